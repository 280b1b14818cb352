"""Mixture: several datasets, views and buffers as one replay buffer, drawn by weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from datasets_cli.errors import UsageError
from datasets_cli.options import check_types, part_of, suggests_keywords, takes_fields
from datasets_cli.own.dataset import OwnOptions, making, own_id, save_steps
from datasets_cli.own.steps import StepColumns
from datasets_cli.preprocessing.returned import arrays_of
from datasets_cli.replay.arguments import NestedKey, StateDict
from datasets_cli.replay.batches.reader import CollateFunction
from datasets_cli.replay.buffer.buffer import ReplayBuffer, TensorDictBatchOptions
from datasets_cli.replay.buffer.tensordict import TensorDictReplayBuffer
from datasets_cli.replay.mixing.agreement import manifest_of
from datasets_cli.replay.mixing.members import Member, MemberLike, mixture_storage
from datasets_cli.replay.mixing.storage import MixtureStorage
from datasets_cli.replay.mixing.weights import MixtureWeights, WeightsLike
from datasets_cli.replay.samplers.epochs import bounds_reached, mixed_order
from datasets_cli.replay.samplers.orders import Order
from datasets_cli.replay.samplers.protocol import IndependentDraw, Info, Sampler
from datasets_cli.replay.samplers.rows import RandomSampler, SharedEpochOptions, SharedEpochs
from datasets_cli.replay.samplers.slices import SliceOptions, sampler_of
from datasets_cli.replay.samplers.windows import SliceBegins, SliceWindows
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.trajectories.bounds import TrajectoryKeys
from datasets_cli.replay.transforms.transform import TransformLike
from datasets_cli.schema.columns import MEMBER, TRAJECTORY_END, rows_per_block, show_key
from datasets_cli.schema.steps import MADE_BY_THE_CORE

if TYPE_CHECKING:
    from datasets_cli.install.options import InstalledDataset


EpochEnd = Literal["all", "first", "last"]
"""When an epoch ends: every item once, or when the first or the last member has none left."""


class Weighted(IndependentDraw):
    """Draws a member by its weight, then an item of it uniformly, with replacement."""

    kind = "weighted {}"

    def __init__(self, weights: MixtureWeights) -> None:
        self.weights = weights

    def __repr__(self) -> str:
        return f"Weighted({self.weights.state()!r})"

    def take(
        self, storage: Storage, items: Sized, count: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return items int64 ``[count]``."""
        return self._drawn(storage, items, _uniform(count, 2, generator)), {}

    def take_slices(
        self, storage: Storage, windows: SliceWindows, count: int, generator: torch.Generator
    ) -> tuple[SliceBegins, Info]:
        """Return where ``count`` slices begin."""
        uniform = _uniform(count, 3, generator)  # the third says where a slice is in its trajectory
        return windows.begins(self._drawn(storage, windows, uniform), uniform[:, 2]), {}

    def _drawn(self, storage: Storage, items: Sized, uniform: torch.Tensor) -> torch.Tensor:
        """Return items int64 ``[B]``: the first number says the member, the second its item."""
        mixture = mixture_of(storage)
        shares = self.weights.shares(mixture)
        bounds, numbers = item_bounds(mixture, items, shares).numpy(), uniform.numpy()
        member = draw_members(shares.numpy(), numbers[:, 0])
        # A product below the member's number of items: cut to a whole number it is one of them.
        item = numbers[:, 1] * np.diff(bounds).take(member)
        return torch.from_numpy(item.astype(np.int64) + bounds.take(member))

    def state_dict(self) -> StateDict:
        """Return the weights: what is drawn next is in the generator's state."""
        return {"weights": self.weights.state()}

    def load_state_dict(self, state: StateDict) -> None:
        """Continue where ``state`` was taken."""
        self.weights.check_state(state)


class MixtureEpochs(SharedEpochs):
    """Epochs of rows or trajectories of members, shared among processes."""

    kind = "epochs of {} of a mixture"

    def __init__(self, weights: MixtureWeights, end: EpochEnd, shared: SharedEpochOptions) -> None:
        super().__init__(shared, fills_up=False)
        self.weights = weights
        self.end = end
        self._of: tuple[list[int], torch.Tensor] = [], torch.empty(0)  # items, shares of members

    def __repr__(self) -> str:
        return f"MixtureEpochs({self.weights.state()!r}, epoch={self.end!r})"

    def take(
        self, storage: Storage, items: Sized, count: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return this process's next items int64 ``[count]``, fewer at the end of its epoch."""
        mixture = mixture_of(storage)
        shares = self.weights.shares(mixture)
        self._of = item_bounds(mixture, items, shares).diff().tolist(), shares
        return super().take(storage, items, count, generator)

    def state_dict(self) -> StateDict:
        """Return the epoch, how much of it was drawn by all processes together, and the weights."""
        return super().state_dict() | {"weights": self.weights.state(), "end": self.end}

    def load_state_dict(self, state: StateDict) -> None:
        """Continue in the middle of the epoch of ``state``, with as many processes or not."""
        self.weights.check_state(state, end=self.end)
        super().load_state_dict(state)

    def _order(self, num_items: int, processes: int) -> Order:
        lengths, shares = self._of
        counts = epoch_counts(lengths, shares.tolist(), self.end)
        return mixed_order(lengths, counts, self.seed + self.epoch)


def _uniform(count: int, numbers: int, generator: torch.Generator) -> torch.Tensor:
    """Return numbers for each item, one item after the other: as many at once give the same."""
    return torch.rand((count, numbers), generator=generator, dtype=torch.float64)


def epoch_counts(lengths: Sequence[int], shares: Sequence[float], end: EpochEnd) -> list[int]:
    """Return how many items of each member an epoch has."""
    if end == "all":
        return list(lengths)
    # A member's items would last for `length / share` items of the epoch. The shortest of these
    # ends an epoch of "first", the longest one of "last": that member's items are all drawn.
    drawn = [member for member, share in enumerate(shares) if share > 0]
    limit = min if end == "first" else max
    bound = limit(drawn, key=lambda member: lengths[member] / shares[member])
    # Rounding must not take an item of another member twice, or leave its last one out.
    return [
        limit(length, max(1, round(lengths[bound] * share / shares[bound]))) if share > 0 else 0
        for length, share in zip(lengths, shares, strict=True)
    ]


def item_bounds(mixture: MixtureStorage, items: Sized, shares: torch.Tensor) -> torch.Tensor:
    """Return where each member's items begin, int64 ``[M + 1]``: rows, or trajectories."""
    if isinstance(items, SliceWindows):
        return windows_by_member(mixture, items, shares)
    return mixture.bounds


def draw_members(shares: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Return a member for each number: whole numbers ``[B]`` of a small type."""
    # shares: the part of each member, float64 `[M]` with the sum 1.
    # uniform: float64 `[B]` in [0, 1).
    # Member m has the numbers from the sum of the shares before it up to the sum with its own, so
    # that a member of share 0 has none.
    ends = shares.cumsum()
    last = shares.nonzero()[0][-1]  # none after it is drawn, whatever is lost by rounding
    return bounds_reached(uniform, ends[:last])


def windows_by_member(
    mixture: MixtureStorage, windows: SliceWindows, shares: torch.Tensor
) -> torch.Tensor:
    """Return where each member's trajectories begin, int64 ``[M + 1]``, of those that are drawn."""
    # shares: the part of each member, float64 `[M]`.
    # Trajectories that are too short for a slice are left out, and each is of one member. The
    # others come in the order of their first rows, as members do, so that those of member m are the
    # trajectories whose first row is one of `bounds[m]` to `bounds[m + 1] - 1`:
    #   bounds        0      5    8       12      of members with 5, 3 and 4 rows
    #   first rows    0  3        8  10           of the trajectories that can be drawn
    #   begins        0      2    2       4       none of member 1: the bound 5 is before row 8
    begins = torch.searchsorted(windows.first_rows(), mixture.bounds)
    lacking = (begins.diff() == 0) & (shares > 0)
    if bool(lacking.any()):
        names = [mixture.names[member] for member in lacking.nonzero().flatten().tolist()]
        raise UsageError(
            f"{', '.join(names)}: no trajectory is long enough for a slice, and the weights ask "
            "for some. Ask for shorter slices, pass strict_length=False, or give it the weight 0."
        )
    return begins


def mixture_of(storage: Storage) -> MixtureStorage:
    """Return the storage of a mixture as one."""
    if not isinstance(storage, MixtureStorage):
        raise UsageError(
            f"Weights are those of the members of a Mixture, which a {type(storage).__name__} is "
            "not. Use RandomSampler there."
        )
    return storage


@dataclass(frozen=True)
class MixtureOptions(TensorDictBatchOptions, SliceOptions):
    """The arguments of a mixture, checked together; ``Mixture`` documents each field."""

    members: Mapping[MemberLike, float] | Sequence[MemberLike]
    batch_size: int | None = None
    _: KW_ONLY
    weights: WeightsLike | None = None
    epoch: EpochEnd | None = None
    drop_last: bool = False
    num_replicas: int | None = None
    rank: int | None = None

    def __post_init__(self) -> None:
        self._check_members()
        self._check_drawing()

    @property
    def given_weights(self) -> WeightsLike | None:
        """The weights, where they are given."""
        return list(self.members.values()) if isinstance(self.members, Mapping) else self.weights

    def _check_members(self) -> None:
        if isinstance(self.members, Mapping):
            if self.weights is not None:
                raise UsageError("Members are given with their weights, and weights= gives others.")
        # A buffer is iterable, too: a list of its batches would never end.
        elif isinstance(self.members, ReplayBuffer | Member) or not isinstance(
            self.members, Iterable
        ):
            raise UsageError(
                "The members of a mixture are given as {buffer: weight, another: weight}, or as a "
                f"list of them; not as one {type(self.members).__name__}."
            )

    def _check_drawing(self) -> None:
        """Check that no argument on draws is without an effect."""
        epochs = {
            "drop_last": self.drop_last,
            "num_replicas": self.num_replicas is not None,
            "rank": self.rank is not None,
        }
        drawing = {
            "weights": self.given_weights is not None,
            "epoch": self.epoch is not None,
            "slices": self.has_slices,
            **epochs,
        }
        given = [name for name, is_given in drawing.items() if is_given]
        if self.sampler is not None and given:
            raise UsageError(
                f"A sampler draws by itself: {', '.join(given)} would do nothing. Leave out one or "
                "the other; weights of a mixture are no part of a sampler that is given."
            )
        of_epochs = [name for name, is_given in epochs.items() if is_given]
        if of_epochs and self.epoch is None:
            raise UsageError(
                f"{', '.join(of_epochs)}: only epochs are shared out. Pass epoch='all', 'first' or "
                "'last', too; with replacement, give each rank its own seed."
            )
        if self.generator is not None and self.epoch is not None and not self.has_slices:
            raise UsageError(
                "The rows of an epoch are ordered by seed=, which is the same in all processes, "
                "and not by a generator. Pass seed=."
            )


@dataclass(frozen=True)
class JoinOptions(OwnOptions):
    """What ``Mixture.preprocess`` takes.

    Args:
        id: ``family/name`` of the new dataset; the family is any word that no published family has.
    """

    id: str


class Mixture(TensorDictReplayBuffer):
    """Draws rows of several datasets, views and buffers, by weights.

        mixture = Mixture({medium: 0.7, expert: 0.3}, batch_size=256)
        mixture.sample()["member"]      0, 1, 0, 0, 0, 1, 0, ...

    A batch has ``"member"``, int64 ``[B]``: which member a row is of, by its place in ``members``.
    A member is drawn by its weight, then a row of it, or a trajectory, uniformly. Without
    replacement the draws are shared in epochs among ranks and loader workers, as those of
    ``DistributedSampler``, and no item is drawn twice for it.

    Args:
        members: weights by member, or a list of members, which ``weights`` weighs. A member is a
            buffer, the storage of a dataset, or a ``Member`` that maps its columns.
        batch_size: rows in a batch; ``sample`` can override it.
        weights: of a list of members: ``"rows"``, the default, or ``"trajectories"`` weigh each
            member by its number of them; or a number for each member.
        epoch: draw without replacement, in epochs. ``"all"`` draws every row once, without weights.
            ``"first"`` ends when the first member is used up. ``"last"`` ends when the last one is;
            rows of the other members are drawn again. None draws with replacement, forever.
        num_slices: slices of trajectories in a batch; exclusive with ``slice_len``. An epoch is
            then one of trajectories.
        slice_len: rows in a slice; exclusive with ``num_slices``.
        strict_length: leave out trajectories shorter than a slice; otherwise they are drawn whole,
            and the batch is shorter than ``batch_size``.
        drop_last: leave out the remainder of an epoch that the processes do not divide, so that
            each draws equally many; otherwise some draw one row, or trajectory, less.
        num_replicas: ranks that share an epoch; those of ``torch.distributed`` by default, or 1.
        rank: the rank of this process; that of ``torch.distributed`` by default, or 0.
        sampler: draws the rows of a batch; exclusive with weights, epochs and slices.
        transform: applied to every batch.
        prefetch: batches that a thread makes ahead of time; see ``ReplayBuffer``.
        pin_memory: put batches into page-locked memory.
        seed: seeds a generator of the mixture's own, and orders epochs (as 0 if it is None).
        generator: draws rows, exclusive with ``seed``. The default is a generator of the mixture's
            own, seeded by torch's global one at the first draw.
        format: ``"torch"``, ``"numpy"`` or ``"jax"``; see ``with_format``.
        cast: with ``"jax"``, convert columns of 64 bits to 32; see ``with_format``.
        collate_fn: called with the batch, before the transform.
        priority_key: the entry that ``update_tensordict_priority`` reads.

    Raises:
        UsageError: members have different columns or mean different things by their numbers, and
            nothing says how to map them; a member cannot be mixed; or arguments exclude one
            another.
    """

    @suggests_keywords
    def __init__(
        self,
        members: Mapping[MemberLike, float] | Sequence[MemberLike],
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
        transform: TransformLike | None = None,
        prefetch: int | None = None,
        pin_memory: bool = False,
        seed: int | None = None,
        generator: torch.Generator | None = None,
        format: str = "torch",
        cast: bool = False,
        collate_fn: CollateFunction | None = None,
        priority_key: NestedKey = "td_error",
    ) -> None:
        options = MixtureOptions(
            members,
            batch_size,
            weights=weights,
            epoch=epoch,
            num_slices=num_slices,
            slice_len=slice_len,
            strict_length=strict_length,
            drop_last=drop_last,
            num_replicas=num_replicas,
            rank=rank,
            sampler=sampler,
            transform=transform,
            prefetch=prefetch,
            pin_memory=pin_memory,
            seed=seed,
            generator=generator,
            format=format,
            cast=cast,
            collate_fn=collate_fn,
            priority_key=priority_key,
        )
        check_types(options)
        rows = mixture_storage([*options.members])
        if options.prefetch and rows.written:
            raise UsageError(
                f"{', '.join(rows.written)}: rows are written to it, and batches that were made "
                "ahead would be of older ones. Leave out prefetch."
            )
        batches = part_of(options, TensorDictBatchOptions)
        if options.sampler is None:
            batches = replace(batches, sampler=_choose_sampler(rows, options))
        super().__init__(storage=rows, batch_size=options.batch_size, **vars(batches))
        self._rows = rows

    @property
    def members(self) -> tuple[str, ...]:
        """The names of the members; a batch has their places, in ``"member"``."""
        return self._rows.names

    @takes_fields(JoinOptions)
    def preprocess(self, options: JoinOptions) -> InstalledDataset:
        """Write the rows of all members, one member after the other, into one dataset.

        The values are those that a batch has. ``episode`` counts the trajectories of all members,
        and ``"member"`` is not written. The manifest names the members.

        Raises:
            UsageError: a member is a buffer, whose rows change, or has no observation, action or
                reward; or the id is of a published family, or is installed with other data.
        """
        rows, names = self._rows, ", ".join(self._rows.names)
        if rows.written:
            raise UsageError(
                f"{', '.join(rows.written)}: its rows change. Join datasets and views."
            )
        manifests = [each for each in map(manifest_of, rows.storages) if each is not None]
        first, *others = [each.metadata for each in manifests]
        shared = {
            name: first[name]
            for name in SHARED & first.keys()
            if all(each.get(name) == first[name] for each in others)
        }
        info = {**shared, "members": rows.reference()["members"], **(options.info or {})}
        id, texts = own_id(options.id), {text.key for each in manifests for text in each.texts}
        with making(id, options := replace(options, info=info)) as told:
            if left := sorted(show_key(key) for key in texts if not rows.has(key)):
                told.note(
                    f"{id}: {', '.join(left)} is left out: text=True reads the text of members"
                )
            return save_steps(
                id, _steps(rows), options, told, lambda: {"filename": f"rows of {names}"}
            )


SHARED = frozenset({"env_spec", "licence", "citation", "ref_min_score", "ref_max_score"})
"""Metadata of all members that are true of their rows together."""


def _steps(rows: MixtureStorage) -> Iterator[StepColumns]:
    """Yield all rows as steps with their successors, in bounded blocks."""
    found = rows.trajectories(TrajectoryKeys())
    is_end = np.zeros(len(rows), np.bool_)
    is_end[(found.starts + found.lengths - 1).numpy()] = True
    names = f"rows of {', '.join(rows.names)}"
    size = rows_per_block(sum(each.nbytes for each in arrays_of(rows.run(0, 1), names).values()))
    for start in range(0, len(rows), size):
        marks = is_end[start : start + size]
        columns = arrays_of(rows.run(start, start + len(marks)), names)
        kept = columns.keys() - MADE_BY_THE_CORE - {MEMBER}
        yield {**{key: columns[key] for key in kept}, TRAJECTORY_END: marks}


def _choose_sampler(rows: MixtureStorage, options: MixtureOptions) -> Sampler:
    """Return the sampler that the options describe, over the members' rows."""
    given = options.given_weights
    weights = MixtureWeights("rows" if given is None else given, rows.names)
    if options.epoch is None:
        if weights.given == "rows" and not options.has_slices:
            return RandomSampler()
        return sampler_of(Weighted(weights), options)
    _check_epoch(rows, weights, options.epoch)
    shared = SharedEpochOptions(
        num_replicas=options.num_replicas,
        rank=options.rank,
        seed=options.seed or 0,
        drop_last=options.drop_last,
    )
    return sampler_of(MixtureEpochs(weights, options.epoch, shared), options)


def _check_epoch(rows: MixtureStorage, weights: MixtureWeights, end: EpochEnd) -> None:
    if end not in ("all", "first", "last"):
        raise UsageError(f"epoch is 'all', 'first', 'last' or None, not {end!r}.")
    if end == "all" and weights.given != "rows":
        raise UsageError(
            f"epoch='all' draws everything once, so that the weights {weights.state()} cannot be "
            "kept. Leave them out, or let the epoch end with epoch='first' or epoch='last'."
        )
    if rows.written:
        raise UsageError(
            f"{', '.join(rows.written)}: rows are written to it, so that an epoch of the mixture "
            "would change while it is drawn. Leave out epoch= to draw with replacement."
        )
