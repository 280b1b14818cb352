"""Several buffers sampled as one, each of which draws its part of a batch by its own sampler.

PATH/NAME/   a dump of that member: of a dataset a reference, else all rows
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from tensordict import LazyStackedTensorDict, TensorDict, TensorDictBase, is_tensor_collection
from torch.utils import _pytree

from datasets_cli.errors import UsageError
from datasets_cli.quantities import few_lines
from datasets_cli.replay.arguments import (
    NestedKey,
    Numbers,
    Rows,
    StateDict,
    as_tensor,
    key_of,
    whole_number,
)
from datasets_cli.replay.batches.reader import expand_to_rows
from datasets_cli.replay.batches.row_numbers import flat_rows, unravel_rows
from datasets_cli.replay.buffer.buffer import ReplayBuffer, choose_format
from datasets_cli.replay.checkpoint.dump_folder import DumpFolder, new_dump, open_dump
from datasets_cli.replay.mixing.agreement import (
    batch_leaves,
    difference_table,
    differing,
    plain_leaves,
)
from datasets_cli.replay.samplers.prioritized import PrioritizedSampler
from datasets_cli.replay.samplers.protocol import Sampler
from datasets_cli.replay.storages.collate import make_batch
from datasets_cli.replay.storages.columns import outline
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.transforms.transform import Compose, Inverted, TransformLike
from datasets_cli.schema.bits import join_tensors
from datasets_cli.schema.columns import Key, show_key
from datasets_cli.schema.tree import Tree, entry, grow_tree

JoinFunction = Callable[[list[Rows]], Rows]


@dataclass(frozen=True)
class MemberBatch:
    """What one member gives to a batch."""

    # marks: what its sampler says of the n rows it drew, `[n, ...]`, with their `index`.

    member: int
    rows: Rows
    marks: dict[NestedKey, torch.Tensor]
    is_last: bool

    def __len__(self) -> int:
        return len(self.marks["index"])

    def info(self) -> TensorDict:
        """Return the marks as a separate batch, with ``index`` as in the rows."""
        size = torch.Size([len(self)])
        numbers = _owned(self.member, self.marks["index"], size)
        return TensorDict({**self.marks, "index": numbers}, size).clone()

    def flatten_index(self, storage: Storage) -> None:
        """Give rows of a storage of several dimensions one number each, as others have."""
        if storage.ndim == 1:
            return
        self.marks["index"] = flat_rows(storage, self.marks["index"])
        if isinstance(self.rows, TensorDictBase):
            self.rows["index", "index"] = flat_rows(storage, self.rows["index", "index"])


def draw_member_batch(buffer: ReplayBuffer, member: int, size: int) -> MemberBatch:
    """Return a member's part of a batch, ``size`` rows."""
    # Where an epoch of rows ends within the part, the next one fills it up. Slices cannot be cut to
    # what is missing, so theirs stays short.
    part = _sampled(buffer, member, size)
    while len(part) < size and part.is_last and not buffer.reader.sampler.has_slices:
        rest = _sampled(buffer, member, size - len(part))
        rows = concatenated([part.rows, rest.rows])
        marks = {key: torch.cat((mark, rest.marks[key])) for key, mark in part.marks.items()}
        part = MemberBatch(member, rows, marks, is_last=True)
    return part


def check_sizes(parts: Iterable[MemberBatch]) -> None:
    """Check that parts can be stacked."""
    sizes = [_size(part.rows) for part in parts]
    if len(set(sizes)) > 1:
        raise UsageError(
            f"Members gave parts of unequal sizes: {', '.join(str(list(size)) for size in sizes)}. "
            "Slices can be padded, drop_last leaves out an epoch's short rest, and sample_flat() "
            "joins what there is."
        )


def _size(rows: Rows) -> tuple[int, ...]:
    """Return the batch size of rows, or the number of those that are tensors."""
    if is_tensor_collection(rows):
        return tuple(rows.batch_size)
    return tuple(_pytree.tree_leaves(rows)[0].shape[:1])


def _sampled(buffer: ReplayBuffer, member: int, size: int) -> MemberBatch:
    rows, marks = buffer.with_format("torch").sample(size, return_info=True)
    part = MemberBatch(member, rows, marks, buffer.ran_out)
    if not isinstance(rows, TensorDictBase):  # these have no place for an index
        leaves = [rows] if is_tensor_collection(rows) else _pytree.tree_leaves(rows)
        if not all(isinstance(leaf, torch.Tensor) or leaf is rows for leaf in leaves):
            raise UsageError(
                f"Buffer {member} has rows that are not TensorDicts or tensors but {outline(rows)}."
                " Give that buffer a collate_fn that makes such of them."
            )
        return part
    # A transform may have made other rows of those that were drawn.
    numbers = rows.get("index", None)
    if numbers is None:
        numbers = expand_to_rows(marks["index"], buffer.reader.storage.row_batch_size)
    if numbers.shape[: rows.ndim] != rows.batch_size:
        raise UsageError(
            f"Buffer {member} drew {len(part)} rows, and its transform made a batch "
            f"{list(rows.batch_size)} of them. Make it a TensorDictReplayBuffer: its batches carry "
            "the index through transforms."
        )
    rows.set("index", _owned(member, numbers, rows.batch_size))
    return part


def _owned(member: int, numbers: torch.Tensor, shape: torch.Size) -> TensorDict:
    """Return row numbers with the member that they are of, as ``index`` has them."""
    ids = torch.full(shape, member, device=numbers.device)
    return make_batch({"buffer_ids": ids, "index": numbers}, shape)


def stacked(parts: list[Rows]) -> Rows:
    """Return what members gave side by side, ``[members, B]``: a lazy stack of TensorDicts."""
    return _each(LazyStackedTensorDict.lazy_stack, parts, torch.stack)


def joined(
    names: Sequence[str],
    batches: Sequence[Rows],
    instead: Callable[[list[Key]], str] = lambda _: "sample() parts that may differ",
) -> Rows:
    """Return what members gave as one, ``[B]``."""
    # instead: what may be done in place of a transform, by the keys that are alike.
    for name, batch in zip(names[1:], batches[1:], strict=True):
        if odd := differing(batches[0], batch):
            same = [key for key in batch_leaves(batch) if key not in odd and key[0] != "index"]
            raise UsageError(
                f"The rows of {names[0]} and {name} differ in {', '.join(map(show_key, odd))}:\n"
                f"{difference_table(odd, [names[0], name], [batches[0], batch])}\n"
                "Give one of them a transform that changes types, shapes or names, such as "
                f"DoubleToFloat or RenameTransform; or {instead(same)}."
            )
    return concatenated(batches)


def concatenated(parts: Sequence[Rows]) -> Rows:
    """Return batches one after the other; those of TensorDicts have the same entries."""
    if len(parts) == 1:
        return parts[0]
    plain = [leaves for leaves in map(plain_leaves, parts) if leaves is not None]
    if len(plain) < len(parts):
        return _each(torch.cat, list(parts), torch.cat)
    # Leaf by leaf takes a third of the time that tensordict does.
    joint = {key: join_tensors([leaves[key] for leaves in plain]) for key in plain[0]}
    devices = {part.device for part in parts}
    size = torch.Size([sum(map(len, parts)), *parts[0].batch_size[1:]])
    return make_batch(grow_tree(joint), size, devices.pop() if len(devices) == 1 else None)


def _each(function: JoinFunction, parts: list[Rows], of_tensors: JoinFunction) -> Rows:
    """Return a function of TensorDicts, or of the tensors at each place of equal structures."""
    if all(is_tensor_collection(part) for part in parts):
        if len({part.device for part in parts}) > 1:
            parts = [part.copy().clear_device_() for part in parts]
        return function(parts)

    def of_equal(*several: torch.Tensor) -> Rows:
        types = {getattr(tensor, "dtype", None) for tensor in several}
        if len(types) > 1:  # which torch would convert, or are not tensors
            raise TypeError("element types differ")
        return of_tensors(list(several))

    try:
        return _pytree.tree_map(of_equal, parts[0], *parts[1:])
    except (ValueError, RuntimeError, TypeError) as error:
        raise UsageError(
            f"Members gave rows that cannot be joined: {', '.join(map(outline, parts))}. Expected "
            "tensors of the same structure, types and shapes, or TensorDicts. Give the ensemble a "
            "collate_fn, or members that agree."
        ) from error


WEIGHT = "priority_weight"


def update_batch_priorities(buffers: Sequence[ReplayBuffer], batch: TensorDictBase | Tree) -> None:
    """Give the rows of a batch, of either form, the priorities that their buffers look for."""
    flat = _numbers_of(batch, buffers).reshape(-1)
    owner, rows = flat["index", "buffer_ids"], flat["index", "index"]
    for buffer, own, numbers in _rows_by_buffer(buffers, owner, rows):
        if (update := getattr(buffer, "update_tensordict_priority", None)) is not None:
            update(flat[own].exclude("index").set("index", numbers))


def update_row_priorities(
    buffers: Sequence[ReplayBuffer],
    index: TensorDictBase | Mapping[str, Numbers],
    priority: Numbers,
) -> None:
    """Give rows of several buffers priorities; see ``MixedBuffers.update_priority``."""
    has_names = isinstance(index, TensorDictBase | Mapping)
    owner, rows = (index.get(name, None) if has_names else None for name in ("buffer_ids", "index"))
    if owner is None or rows is None:
        raise UsageError(
            "Rows of several buffers are named by buffer_ids and index, as batch['index'] has "
            f"them; found {type(index).__name__}."
        )
    values = as_tensor(priority)
    for buffer, own, numbers in _rows_by_buffer(buffers, as_tensor(owner), as_tensor(rows)):
        buffer.update_priority(numbers, values[own] if values.ndim else values)


def _rows_by_buffer(
    buffers: Sequence[ReplayBuffer], owner: torch.Tensor, rows: torch.Tensor
) -> Iterator[tuple[ReplayBuffer, torch.Tensor, torch.Tensor]]:
    """Yield each buffer that rows are of, which ones bool ``[B]``, and their numbers there."""
    for number, buffer in enumerate(buffers):
        own = owner == number
        if own.any():
            mine, storage = rows[own], buffer.reader.storage
            # One number a row, also where a storage has several dimensions.
            yield buffer, own, unravel_rows(storage, mine) if mine.ndim == 1 else mine


def _numbers_of(batch: TensorDictBase | Tree, buffers: Sequence[ReplayBuffer]) -> TensorDict:
    """Return what priorities need of a batch, in its shape."""
    own = ("index", "buffer_ids"), ("index", "index")
    keys = {key_of(getattr(buffer, "priority_key", own[0])) for buffer in buffers}
    entries = {key: entry(batch, key) for key in {*own, *keys}}
    numbers = {key: as_tensor(leaf) for key, leaf in entries.items() if leaf is not None}
    if not numbers.keys() >= {*own}:
        raise UsageError("The batch has no 'index', which its rows' priorities need.")
    return TensorDict(grow_tree(numbers), numbers[own[0]].shape)


def balance_weights(
    buffers: Sequence[ReplayBuffer], parts: Sequence[MemberBatch], drawn: Sequence[int]
) -> None:
    """Make the importance weights of parts comparable, in place."""
    # A row that its part's sampler draws with probability p, of n, has the weight `(n * p)^-beta`
    # divided by the greatest one of all rows of all parts. A sampler by itself divides by the
    # greatest of its own part, which would weigh whole parts against each other by how uneven their
    # priorities are. Rows that are drawn uniformly have `n * p = 1`. How much of the batch a part
    # is does not enter: that is chosen, and no bias to correct.
    samplers = [buffer.reader.sampler for buffer in buffers]
    for part in parts:
        if WEIGHT in part.marks and not isinstance(samplers[part.member], PrioritizedSampler):
            raise _unknown(samplers[part.member])
    dtypes = [sampler.draw.dtype for sampler in samplers if isinstance(sampler, PrioritizedSampler)]
    if not dtypes:
        return
    numbers = {*drawn, *(part.member for part in parts)}
    scales = {number: _greatest_weight(buffers[number]) for number in numbers}
    in_rows = any(buffer.reader.sample_info.marks for buffer in buffers)
    for part in parts:
        factor = scales[part.member] / max(scales.values())
        size = torch.Size([len(part)])
        part.marks[WEIGHT] = _scaled(part.marks.get(WEIGHT), factor, size, part, dtypes[0])
        if in_rows and isinstance(part.rows, TensorDictBase):
            size = part.rows.batch_size
            weights = _scaled(part.rows.get(WEIGHT, None), factor, size, part, dtypes[0])
            part.rows.set(WEIGHT, weights)


def _scaled(
    weights: torch.Tensor | None,
    factor: float,
    size: torch.Size,
    part: MemberBatch,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Return weights times a factor; where there are none, rows were drawn uniformly: 1 each."""
    if weights is None:  # also in a batch without a part of the buffer that draws by priority
        return torch.full(size, factor, dtype=dtype, device=part.marks["index"].device)
    return weights * factor


def _greatest_weight(buffer: ReplayBuffer) -> float:
    sampler = buffer.reader.sampler
    if isinstance(sampler, PrioritizedSampler):
        with buffer.reader.lock:  # another thread may write
            return sampler.draw.max_weight
    if sampler.has_priorities:
        raise _unknown(sampler)
    return 1.0


def _unknown(sampler: Sampler) -> UsageError:
    return UsageError(
        f"{type(sampler).__name__} draws rows by priority and cannot say what it divides their "
        "weights by. Take a PrioritizedSampler or a PrioritizedSliceSampler, or derive from one."
    )


PlannedChange = Callable[[], object]
"""A change that was checked and is made when it is called."""


class MixedBuffers(ABC):
    """Several buffers sampled as one; a class derived from it says how a batch is split."""

    _names: ClassVar[Sequence[str] | None] = None  # of members in dumps; their numbers by default
    _draws_name: ClassVar[str]  # of what a state says of the draws of members

    def __init__(
        self,
        buffers: Sequence[ReplayBuffer],
        batch_size: int | None,
        transform: TransformLike | None,
        format: str,
        cast: bool,
    ) -> None:
        self.buffers = tuple(buffers)
        self.batch_size = None if batch_size is None else whole_number("batch_size", batch_size, 1)
        self.transform = Compose()
        for step in Compose(transform or []):
            self.append_transform(step)
        self.ran_out = False  # whether the batch just drawn ended an epoch
        self._format = choose_format(format, cast=cast)

    @property
    def format(self) -> str:
        """What batches are made of: ``"torch"``, ``"numpy"`` or ``"jax"``."""
        return "torch" if self._format is None else self._format.name

    def with_format(self, format: str, *, cast: bool = False) -> Self:
        """Return the same members with batches of another format; see ``ReplayBuffer``."""
        same = type(self).__new__(type(self))
        vars(same).update(vars(self))
        same._format = choose_format(format, cast=cast)
        return same

    def __repr__(self) -> str:
        return few_lines(f"{type(self).__name__}({','.join(self._shown())})")

    def _shown(self) -> list[str]:
        """Return what is printed: a line for each member, and the batch size."""
        members = []
        for buffer in self.buffers:
            storage, *rest = repr(buffer.storage).splitlines()
            shown = f"{storage}{' ...)' * bool(rest)}, {buffer.sampler!r}"
            members.append(f"\n    {type(buffer).__name__}({shown})")
        return [*members, f"\n    batch_size={self.batch_size}"]

    def __len__(self) -> int:
        return sum(map(len, self.buffers))

    @abstractmethod
    def sample(self, batch_size: int | None = None, return_info: bool = False) -> Rows:
        """Return a batch, or ``(batch, info)``."""

    def __iter__(self) -> Iterator[Rows]:
        """Yield batches of ``sample``: forever, or until an epoch ends."""
        if self.batch_size is None:
            name = type(self).__name__
            raise UsageError(f"Iteration needs a batch size. Give {name} a batch_size.")
        while True:
            yield self.sample()
            if self.ran_out:
                return

    def update_priority(
        self, index: TensorDictBase | Mapping[str, Numbers], priority: Numbers
    ) -> None:
        """Give rows of members new priorities; of a member that has none nothing happens.

        Args:
            index: what ``batch["index"]`` is: ``buffer_ids`` and ``index``, int64 ``[B]`` each.
            priority: float ``[B]``, or one number for all.

        Raises:
            UsageError: the index does not say which rows of which buffer, or a row does not exist.
        """
        update_row_priorities(self.buffers, index, priority)

    def update_tensordict_priority(self, batch: TensorDictBase | Tree) -> None:
        """Give the rows of a batch of any format the priorities that their members look for.

        Each reads its own ``priority_key``; of one without priorities nothing happens.

        Raises:
            UsageError: the batch has none, or no ``index``.
        """
        update_batch_priorities(self.buffers, batch)

    def append_transform(self, transform: TransformLike, *, invert: bool = False) -> Self:
        """Apply one more transform to every batch, after the others; return the same object.

        Args:
            transform: any callable from batch to batch.
            invert: apply its ``inv`` instead.
        """
        return self.insert_transform(len(self.transform), transform, invert=invert)

    def insert_transform(
        self, index: int, transform: TransformLike, *, invert: bool = False
    ) -> Self:
        """Apply one more transform at a place among the others; return the same object."""
        added = Inverted(transform) if invert else transform
        for reader in (buffer.reader for buffer in self.buffers):
            reader.check_transform(added, reader.sampler, reader.storage)
        self.transform.insert(index, added)
        return self

    def set_rng(self, generator: torch.Generator) -> None:
        """Seed the draws of each member from a generator."""
        for buffer in self.buffers:
            # A seed, and no generator to hand out, so that a dataset is still read ahead.
            seed = int(torch.randint(2**62, (), generator=generator))
            buffer.reader.use_generator(None, seed)

    def dumps(self, path: str | Path) -> None:
        """Write every member into its own folder below ``path``; see ``ReplayBuffer.dumps``.

        Raises:
            UsageError: as ``ReplayBuffer.dumps``.
        """
        folder = Path(path)
        with new_dump(folder, partial(self._is_part, folder)) as made:
            for name, buffer in self._named():
                buffer.persistence.write(made / name)
            self._write_draws(made)

    def loads(self, path: str | Path, *, tensorclass: Any = None) -> None:
        """Read what ``dumps`` wrote of such members; see ``ReplayBuffer.loads``.

        Where one member is refused, none changes.
        """
        dump = open_dump(Path(path))
        plans = [
            partial(buffer.persistence.plan_load, dump / name, tensorclass)
            for name, buffer in self._named()
        ]
        self._change(partial(self._plan_load_draws, dump), *plans)

    def state_dict(self) -> StateDict:
        """Return the state of every member, and of the draws of members.

        Of a dataset it has the id and the content, of written rows copies; see ``ReplayBuffer``.
        """
        states = {name: buffer.state_dict() for name, buffer in self._named()}
        return {**states, self._draws_name: self._draws_state()}

    def load_state_dict(self, state: StateDict, *, tensorclass: Any = None) -> None:
        """Continue where ``state`` was taken, with the same batches; see ``ReplayBuffer``.

        Where one member is refused, none changes.

        Raises:
            UsageError: it is not a state of such members.
        """
        names = [name for name, _ in self._named()]
        kept = [*state] if isinstance(state, dict) else []
        if {*kept} != {*names, self._draws_name}:
            raise UsageError(
                f"The state is not of a {type(self).__name__} of such members, which has "
                f"{', '.join(names)} and {self._draws_name}; this one has "
                f"{', '.join(map(str, kept)) or 'nothing'}. One of a buffer alone is for that "
                "buffer."
            )
        plans = [
            partial(buffer.persistence.plan_restore, state[name], tensorclass)
            for name, buffer in self._named()
        ]
        self._change(partial(self._plan_restore_draws, state), *plans)

    def _change(self, *plans: Callable[[], PlannedChange]) -> None:
        """Make all changes that are planned, or none where one is refused."""
        with ExitStack() as locks:
            for buffer in self.buffers:
                locks.enter_context(buffer.row_writer.lock)
            changes = [plan() for plan in plans]
            for change in reversed(changes):  # the draws of members last
                change()

    def _named(self) -> Iterator[tuple[str, ReplayBuffer]]:
        """Yield each member with its name in dumps and states."""
        names = map(str, range(len(self.buffers))) if self._names is None else self._names
        yield from zip(names, self.buffers, strict=True)

    @abstractmethod
    def _is_part(self, folder: Path, name: str) -> bool:
        """Return whether a file or folder in ``folder`` is a part of an older dump of this kind."""

    @abstractmethod
    def _draws_state(self) -> StateDict | torch.Tensor:
        """Return where the draws of members stand."""

    @abstractmethod
    def _plan_restore_draws(self, state: StateDict) -> PlannedChange:
        """Return what lets the draws of members stand where ``state_dict`` was called."""

    @abstractmethod
    def _write_draws(self, folder: Path) -> None:
        """Write where the draws of members stand into the new folder of a dump."""

    @abstractmethod
    def _plan_load_draws(self, dump: DumpFolder) -> PlannedChange:
        """Return what lets the draws of members stand where a dump says."""

    def _size(self, batch_size: int | None) -> int:
        size = self.batch_size if batch_size is None else batch_size
        if size is None:
            raise UsageError(
                f"No batch size is given. Pass sample(batch_size), or give {type(self).__name__} a "
                "batch_size."
            )
        return whole_number("batch_size", size, 1)

    def _draw(self, counts: Iterable[tuple[int, int]]) -> list[MemberBatch]:
        """Return parts of as many rows of each member."""
        return [draw_member_batch(self.buffers[member], member, size) for member, size in counts]

    def _finished(self, rows: Rows, details: Rows | None) -> Rows:
        """Return a batch, or ``(batch, info)`` where there are details, as a user gets them."""
        batch = self._formatted(self.transform(rows))
        return batch if details is None else (batch, self._formatted(details))

    def _formatted(self, rows: Rows) -> Rows:
        return rows if self._format is None else self._format.from_batch(rows)
