"""Mixture: several datasets, views and buffers as one replay buffer, drawn by weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import NestedKey
from datasets_cli.replay.buffers.buffer import ReplayBuffer
from datasets_cli.replay.buffers.tensordict import TensorDictReplayBuffer
from datasets_cli.replay.mixtures.choice import EpochOptions, choose_sampler
from datasets_cli.replay.mixtures.epochs import EpochEnd
from datasets_cli.replay.mixtures.member import Member, Source, mixture_storage
from datasets_cli.replay.mixtures.weights import Weights, WeightsLike
from datasets_cli.replay.rows.reader import CollateFunction
from datasets_cli.replay.samplers.protocol import Sampler
from datasets_cli.replay.samplers.slicing import Slicing
from datasets_cli.replay.transforms.transform import TransformLike


class Mixture(TensorDictReplayBuffer):
    """Draws rows of several datasets, views and buffers, by weights.

        mixture = Mixture({medium: 0.7, expert: 0.3}, batch_size=256)
        mixture.sample()["member"]      0, 1, 0, 0, 0, 1, 0, ...

    A batch has ``"member"``, int64 ``[B]``: which member a row is of, by its place in ``members``.
    A member is drawn by its weight, then a row of it, or a trajectory, uniformly. Without
    replacement the draws are shared in epochs among ranks and loader workers, as those of
    ``DistributedSampler``, and no item is drawn twice for it.

    Args:
        members: weights by member; or a list of members, drawn as ``weights`` says. A member is a
            buffer or the storage of a dataset, or a ``Member`` that maps its columns.
        batch_size: rows in a batch; ``sample`` can override it.
        weights: of a list of members: ``"rows"``, by default, or ``"trajectories"``, of which a
            member has so many more than another; or a number for each.
        epoch: draw without replacement, in epochs: of every row once (``"all"``, which has no
            weights), until the first member has none left (``"first"``), or the last (``"last"``,
            where the others' rows come again). None draws with replacement, for ever.
        num_slices: slices of trajectories in a batch; an epoch is of trajectories then.
        slice_len: rows in a slice; exclusive with ``num_slices``.
        strict_length: never draw from a trajectory shorter than a slice.
        drop_last: leave out what the processes do not divide of an epoch, so that each draws
            equally many; otherwise some draw one row, or trajectory, less.
        num_replicas: ranks that share an epoch; those of ``torch.distributed`` by default, or 1.
        rank: which one this is; that of ``torch.distributed`` by default, or 0.
        sampler: how rows are drawn, in place of weights, epochs and slices.
        accept: what members may differ in, such as ``["discount"]``, where it is known of them.
        transform: applied to every batch.
        collate_fn: called with the batch, before the transform.
        pin_memory: put batches into page-locked memory.
        prefetch: batches that a thread makes ahead of time.
        priority_key: the entry that ``update_tensordict_priority`` reads.
        generator: draws rows, exclusive with ``seed``; by default one of the mixture's own, which
            torch's global one seeds at the first draw.
        seed: seeds a generator of the mixture's own, and orders epochs (by 0 where it is None).
        format: what batches are made of; see ``ReplayBuffer.with_format``.

    Raises:
        UsageError: members have different columns or mean different things by their numbers, and
            nothing says how to map them; a member cannot be mixed; or arguments exclude one
            another.
    """

    def __init__(
        self,
        members: Mapping[Source, float] | Sequence[Source],
        batch_size: int | None = None,
        *,
        weights: WeightsLike | None = None,
        epoch: EpochEnd | None = None,
        num_slices: int | None = None,
        slice_len: int | None = None,
        strict_length: bool = True,
        drop_last: bool = False,
        num_replicas: int | None = None,
        rank: int | None = None,
        sampler: Sampler | None = None,
        accept: Sequence[str] = (),
        transform: TransformLike | None = None,
        collate_fn: CollateFunction | None = None,
        pin_memory: bool = False,
        prefetch: int | None = None,
        priority_key: NestedKey = "td_error",
        generator: torch.Generator | None = None,
        seed: int | None = None,
        format: str = "torch",
    ) -> None:
        sources, given = _split(members, weights)
        has_slices = num_slices is not None or slice_len is not None
        drawing = {
            "weights": given is not None,
            "epoch": epoch is not None,
            "slices": has_slices,
            "drop_last": drop_last,
            "num_replicas": num_replicas is not None,
            "rank": rank is not None,
        }
        _check_drawing(drawing, sampler, generator)
        rows = mixture_storage(sources, accept)
        if prefetch and rows.written:
            raise UsageError(
                f"{', '.join(rows.written)}: rows are written to it, and batches that were made "
                "ahead would be of older ones. Leave out prefetch."
            )
        if sampler is None:
            slicing = None
            if has_slices:
                slicing = Slicing(
                    num_slices=num_slices, slice_len=slice_len, strict_length=strict_length
                )
            shared = EpochOptions(seed or 0, num_replicas, rank, drop_last)
            chosen = Weights("rows" if given is None else given, rows.names)
            sampler = choose_sampler(rows, chosen, slicing, epoch, shared)
        super().__init__(
            storage=rows,
            sampler=sampler,
            transform=transform,
            batch_size=batch_size,
            collate_fn=collate_fn,
            pin_memory=pin_memory,
            prefetch=prefetch,
            priority_key=priority_key,
            generator=generator,
            seed=seed,
            format=format,
        )
        self._rows = rows

    @property
    def members(self) -> tuple[str, ...]:
        """The names of the members; a batch has their places, in ``"member"``."""
        return self._rows.names


def _split(
    members: Mapping[Source, float] | Sequence[Source], weights: WeightsLike | None
) -> tuple[list[Source], WeightsLike | None]:
    """Return the members, and their weights where these are given."""
    if not isinstance(members, Mapping):
        # A buffer is iterable, too: a list of its batches would never end.
        if isinstance(members, ReplayBuffer | Member) or not isinstance(members, Iterable):
            raise UsageError(
                "The members of a mixture are given as {buffer: weight, another: weight}, or as a "
                f"list of them; not as one {type(members).__name__}."
            )
        return list(members), weights
    if weights is not None:
        raise UsageError("Members are given with their weights, and weights= gives others.")
    return list(members), list(members.values())


def _check_drawing(
    drawing: Mapping[str, bool], sampler: Sampler | None, generator: torch.Generator | None
) -> None:
    """Check that no argument on draws is without an effect."""
    found = [name for name, is_given in drawing.items() if is_given]
    if sampler is not None and found:
        raise UsageError(
            f"A sampler draws by itself: {', '.join(found)} would do nothing. Leave out one or the "
            "other; weights of a mixture are no part of a sampler that is given."
        )
    of_epochs = [name for name in ("drop_last", "num_replicas", "rank") if drawing[name]]
    if of_epochs and not drawing["epoch"]:
        raise UsageError(
            f"{', '.join(of_epochs)}: only epochs are shared out. Pass epoch='all', 'first' or "
            "'last', too; with replacement, give each rank a seed of its own."
        )
    if generator is not None and drawing["epoch"] and not drawing["slices"]:
        raise UsageError(
            "The rows of an epoch are ordered by seed=, which is the same in all processes, and "
            "not by a generator. Pass seed=."
        )
