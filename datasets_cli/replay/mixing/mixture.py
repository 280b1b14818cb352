"""Mixture: several datasets, views and buffers as one replay buffer, drawn by weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch

from datasets_cli.core.options import check_types, part_of, suggests_keywords, takes_fields
from datasets_cli.core.progress import Note
from datasets_cli.core.quantities import dropped_steps
from datasets_cli.errors import (
    NotWritable,
    Unsupported,
    UsageError,
    WrongSize,
    not_both,
    wrong_value,
)
from datasets_cli.exchange.dataset_writer import OwnOptions, making, own_id, save_steps
from datasets_cli.exchange.steps import StepColumns
from datasets_cli.preprocessing.result import arrays_of
from datasets_cli.replay.arguments import NestedKey, StateDict
from datasets_cli.replay.batches.reader import CollateFunction
from datasets_cli.replay.buffer.buffer import ReplayBuffer, TensorDictBatchOptions
from datasets_cli.replay.buffer.tensordict import TensorDictReplayBuffer
from datasets_cli.replay.mixing.column_mapping import Member
from datasets_cli.replay.mixing.members import (
    MemberLike,
    MixtureStorage,
    manifest_of,
    mixture_storage,
)
from datasets_cli.replay.mixing.weights import MixtureWeights, WeightsLike
from datasets_cli.replay.samplers.epochs import bounds_reached, mixed_order
from datasets_cli.replay.samplers.orders import Order
from datasets_cli.replay.samplers.protocol import Draw, Info, Sampler
from datasets_cli.replay.samplers.rows import RandomSampler, SharedEpochOptions, SharedEpochs
from datasets_cli.replay.samplers.slice_windows import SliceBegins, SliceWindows
from datasets_cli.replay.samplers.slices import SliceOptions, sampler_of
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.storages.sequences import dataset_of_rows
from datasets_cli.replay.trajectories.bounds import TrajectoryKeys
from datasets_cli.replay.transforms.transform import TransformLike
from datasets_cli.schema.columns import MEMBER, TRAJECTORY_END, rows_per_block, show_key
from datasets_cli.schema.shapes import Offsets, Shares
from datasets_cli.schema.steps import MADE_BY_THE_CORE

if TYPE_CHECKING:
    from datasets_cli.install.options import InstalledDataset


EpochEnd = Literal["all", "first", "last"]
"""The end of an epoch: after every item, or when the first or the last member is exhausted."""


class Weighted(Draw):
    """Draws a member by its weight, then an item of it uniformly, with replacement."""

    kind = "weighted {}"
    is_independent = True

    def __init__(self, weights: MixtureWeights) -> None:
        self.weights = weights

    def __repr__(self) -> str:
        return f"Weighted({self.weights.state()!r})"

    def take(
        self, storage: Storage, items: Sized, count: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return items int64 ``[count]``."""
        return self._drawn(storage, items, _uniforms(count, 2, generator)), {}

    def take_slices(
        self, storage: Storage, windows: SliceWindows, count: int, generator: torch.Generator
    ) -> tuple[SliceBegins, Info]:
        """Return where ``count`` slices begin."""
        # Columns: the member, the trajectory, the start of the slice in it.
        uniforms = _uniforms(count, 3, generator)
        return windows.begins(self._drawn(storage, windows, uniforms), uniforms[:, 2]), {}

    def _drawn(self, storage: Storage, items: Sized, uniforms: torch.Tensor) -> torch.Tensor:
        """Return items int64 ``[B]``: column 0 draws the member, column 1 its item."""
        mixture = as_mixture(storage)
        shares = self.weights.shares(mixture)
        bounds, numbers = item_bounds(mixture, items, shares).numpy(), uniforms.numpy()
        member = draw_members(shares.numpy(), numbers[:, 0])
        # The product is below the member's number of items: its integer part is an item.
        item = numbers[:, 1] * np.diff(bounds).take(member)
        return torch.from_numpy(item.astype(np.int64) + bounds.take(member))

    def state_dict(self) -> StateDict:
        """Return the weights; the draws follow from the generator's state."""
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
        self._lengths: list[int] = []  # items of each member
        self._shares: Shares = torch.empty(0)

    def __repr__(self) -> str:
        return f"MixtureEpochs({self.weights.state()!r}, epoch={self.end!r})"

    def take(
        self, storage: Storage, items: Sized, count: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return this process's next items int64 ``[count]``, fewer at the end of its epoch."""
        mixture = as_mixture(storage)
        self._shares = self.weights.shares(mixture)
        self._lengths = item_bounds(mixture, items, self._shares).diff().tolist()
        return super().take(storage, items, count, generator)

    def state_dict(self) -> StateDict:
        """Return the epoch, the number of items that all processes drew of it, and the weights."""
        return super().state_dict() | {"weights": self.weights.state(), "end": self.end}

    def load_state_dict(self, state: StateDict) -> None:
        """Continue within the epoch of ``state``, with any number of processes."""
        self.weights.check_state(state, end=self.end)
        super().load_state_dict(state)

    def _order(self, num_items: int, processes: int) -> Order:
        counts = epoch_counts(self._lengths, self._shares.tolist(), self.end)
        return mixed_order(self._lengths, counts, self.seed + self.epoch)


def _uniforms(count: int, columns: int, generator: torch.Generator) -> torch.Tensor:
    """Return uniform numbers ``[count, columns]``."""
    # Row by row, so that two draws of `n` items are one draw of `2 n`.
    return torch.rand((count, columns), generator=generator, dtype=torch.float64)


def epoch_counts(lengths: Sequence[int], shares: Sequence[float], end: EpochEnd) -> list[int]:
    """Return the number of items that an epoch has of each member."""
    if end == "all":
        return list(lengths)
    # A member's items last for `length / share` items of the epoch. The shortest of these ends an
    # epoch of "first", the longest ends an epoch of "last": all items of that member are drawn.
    #   lengths 10 30, shares 0.5 0.5      last for 20 60      "first": 10 10, "last": 30 30
    drawn = [member for member, share in enumerate(shares) if share > 0]
    limit = min if end == "first" else max
    bound = limit(drawn, key=lambda member: lengths[member] / shares[member])
    # The limit corrects rounding, which may exceed "first" or miss the last item of "last".
    return [
        limit(length, max(1, round(lengths[bound] * share / shares[bound]))) if share > 0 else 0
        for length, share in zip(lengths, shares, strict=True)
    ]


def item_bounds(mixture: MixtureStorage, items: Sized, shares: Shares) -> Offsets:
    """Return the first item, a row or a trajectory, of each member."""
    if isinstance(items, SliceWindows):
        return windows_by_member(mixture, items, shares)
    return mixture.bounds


def draw_members(shares: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Return the member of each uniform number ``[B]``, by the shares ``[M]`` of members.

    shares    0.5   0    0.3   0.2      ends 0.5 0.5 0.8 1
    members   0: to 0.5, 1: empty, 2: 0.5 to 0.8, 3: from 0.8
    """
    # Each member has an interval of [0, 1), which is as long as its share.
    ends = shares.cumsum()
    # The last member with a share has no end: by rounding it may be below 1.
    last = shares.nonzero()[0][-1]
    return bounds_reached(uniform, ends[:last])


def windows_by_member(mixture: MixtureStorage, windows: SliceWindows, shares: Shares) -> Offsets:
    """Return the first drawable trajectory of each member."""
    # Trajectories shorter than a slice are skipped. The others are sorted by their first rows, so
    # that the trajectories of member m have first rows from `bounds[m]` to `bounds[m + 1] - 1`:
    #   bounds        0      5    8       12      members with 5, 3 and 4 rows
    #   first rows    0  3        8  10           of drawable trajectories
    #   begins        0      2    2       4       member 1 has 2 - 2 = 0 trajectories
    begins = torch.searchsorted(windows.first_rows(), mixture.bounds)
    lacking = (begins.diff() == 0) & (shares > 0)
    if bool(lacking.any()):
        names = [mixture.names[member] for member in lacking.nonzero().flatten().tolist()]
        raise WrongSize(
            f"{', '.join(names)}: every trajectory is shorter than a slice, but the weight is "
            "above 0.",
            found=names,
            advice="Ask for shorter slices, pass strict_length=False, or give it the weight 0.",
        )
    return begins


def as_mixture(storage: Storage) -> MixtureStorage:
    """Return the storage, checked to be a mixture's."""
    if not isinstance(storage, MixtureStorage):
        raise Unsupported(
            f"Weights need the storage of a Mixture, not a {type(storage).__name__}.",
            expected="MixtureStorage",
            found=type(storage).__name__,
            advice="Use RandomSampler.",
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
    def weights_argument(self) -> WeightsLike | None:
        """The weights from ``members`` or ``weights``, or None by default."""
        return list(self.members.values()) if isinstance(self.members, Mapping) else self.weights

    def _check_members(self) -> None:
        if isinstance(self.members, Mapping):
            if self.weights is not None:
                raise not_both("weights", "members={buffer: weight}", self.weights)
        # A buffer is iterable, too: a list of its batches would be endless.
        elif isinstance(self.members, ReplayBuffer | Member) or not isinstance(
            self.members, Iterable
        ):
            raise wrong_value(
                "members", "{buffer: weight, another: weight} or a list", type(self.members)
            )

    def _check_drawing(self) -> None:
        """Check that every argument of draws has an effect."""
        epochs = {
            "drop_last": self.drop_last,
            "num_replicas": self.num_replicas is not None,
            "rank": self.rank is not None,
        }
        drawing = {
            "weights": self.weights_argument is not None,
            "epoch": self.epoch is not None,
            "slices": self.has_slices,
            **epochs,
        }
        names = [name for name, is_set in drawing.items() if is_set]
        if self.sampler is not None and names:
            raise not_both("sampler", ", ".join(names), names)
        epoch_names = [name for name, is_set in epochs.items() if is_set]
        if epoch_names and self.epoch is None:
            raise UsageError(
                f"{', '.join(epoch_names)} needs epoch=: only epochs are shared by ranks.",
                argument=epoch_names[0],
                advice="Pass epoch='all', 'first' or 'last'; with replacement, give each rank "
                "another seed.",
            )
        if self.generator is not None and self.epoch is not None and not self.has_slices:
            raise UsageError(
                "generator= cannot order the rows of an epoch, whose order all processes share.",
                argument="generator",
                advice="Pass seed=.",
            )


@dataclass(frozen=True)
class JoinOptions(OwnOptions):
    """Arguments of ``Mixture.preprocess``.

    Args:
        id: ``family/name`` of the new dataset, whose family is not a published family.
    """

    id: str


class Mixture(TensorDictReplayBuffer):
    """Draws rows of several datasets, views and buffers, by weights.

        mixture = Mixture({medium: 0.7, expert: 0.3}, batch_size=256)
        mixture.sample()["member"]      0, 1, 0, 0, 0, 1, 0, ...

    A batch has ``"member"``, int64 ``[B]``: the index of each row's member in ``members``. A member
    is drawn by its weight, then one of its rows, or trajectories, uniformly. In epochs, ranks and
    loader workers share the draws, as with ``DistributedSampler``: each item is drawn once.

    Args:
        members: weights by member, or a list of members, which ``weights`` weighs. A member is a
            buffer, the storage of a dataset, or a ``Member`` that maps its columns.
        batch_size: rows in a batch; ``sample`` can override it.
        weights: the weights of a list of members: ``"rows"`` (the default) or ``"trajectories"``
            weighs each member by its number of rows or trajectories; or a number for each member.
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
        UsageError: members have different columns; a member cannot be mixed; or arguments exclude
            one another.
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
            raise not_both(
                "prefetch", f"{', '.join(rows.written)}, whose rows change", rows.written
            )
        batches = part_of(options, TensorDictBatchOptions)
        if options.sampler is None:
            batches = replace(batches, sampler=_choose_sampler(rows, options))
        super().__init__(storage=rows, batch_size=options.batch_size, **vars(batches))
        self._rows = rows

    @property
    def members(self) -> tuple[str, ...]:
        """The names of the members; ``"member"`` in a batch is an index of these."""
        return self._rows.names

    @takes_fields(JoinOptions)
    def preprocess(self, options: JoinOptions) -> InstalledDataset:
        """Write the rows of all members, in the order of members, into one dataset.

        Columns are mapped as in batches. ``episode`` counts the trajectories of all members, and
        ``"member"`` is not written. The manifest names the members.

        Raises:
            UsageError: a member is a buffer, whose rows change, or has no observation, action or
                reward; or the id is of a published family, or is installed with other data.
        """
        rows, names = self._rows, ", ".join(self._rows.names)
        if rows.written:
            raise NotWritable(
                f"{', '.join(rows.written)}: its rows change; only datasets and views are joined.",
                argument="members",
                found=rows.written,
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
        with making(id, options := replace(options, info=info)) as progress:
            if skipped := sorted(show_key(key) for key in texts if not rows.has(key)):
                text = f"{id}: {', '.join(skipped)} is not written: open members with text=True"
                progress(Note(text))
            return save_steps(
                id,
                _steps(rows),
                options,
                progress,
                lambda: {"filename": f"rows of {names}"},
                notes=_notes_on_final(rows),
            )


SHARED = frozenset({"env_spec", "licence", "citation", "ref_min_score", "ref_max_score"})
"""Metadata that apply to the joined rows if all members agree on them."""


def _steps(rows: MixtureStorage) -> Iterator[StepColumns]:
    """Yield all rows as steps with their successors, in bounded blocks."""
    found = rows.trajectories(TrajectoryKeys())
    is_end = np.zeros(len(rows), np.bool_)
    is_end[(found.starts + found.lengths - 1).numpy()] = True
    names = f"rows of {', '.join(rows.names)}"
    size = rows_per_block(sum(each.nbytes for each in arrays_of(rows.run(0, 1), names).values()))
    for start in range(0, len(rows), size):
        ends = is_end[start : start + size]
        columns = arrays_of(rows.run(start, start + len(ends)), names)
        keys = columns.keys() - MADE_BY_THE_CORE - {MEMBER}
        yield {**{key: columns[key] for key in keys}, TRAJECTORY_END: ends}


def _notes_on_final(rows: MixtureStorage) -> list[str]:
    """Return a note with the number of final steps, which are not joined; empty without any."""
    datasets = filter(None, map(dataset_of_rows, rows.storages))
    count = sum(dataset.num_final for dataset in datasets)
    return dropped_steps(count, "only transitions are joined")


def _choose_sampler(rows: MixtureStorage, options: MixtureOptions) -> Sampler:
    """Return the sampler that the options describe, over the members' rows."""
    argument = options.weights_argument
    weights = MixtureWeights("rows" if argument is None else argument, rows.names)
    if options.epoch is None:
        if weights.value == "rows" and not options.has_slices:
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
    if end not in get_args(EpochEnd):
        raise wrong_value("epoch", [*get_args(EpochEnd), None], end)
    if end == "all" and weights.value != "rows":
        raise UsageError(
            f"epoch='all' draws every row once; it cannot be combined with {weights.state()}.",
            argument="weights",
            found=weights.state(),
            advice="Leave out the weights, or pass epoch='first' or epoch='last'.",
        )
    if rows.written:
        raise not_both("epoch", f"{', '.join(rows.written)}, whose rows change", rows.written)
