"""Several buffers sampled as one, each of which draws its part of a batch by its own sampler."""

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

from datasets_cli.core.quantities import few_lines
from datasets_cli.errors import (
    UnknownKey,
    Unsupported,
    WrongRows,
    WrongSize,
    WrongState,
    wrong_value,
)
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
from datasets_cli.replay.checkpoint.checkpoint import DUMP, error_path, write_dump
from datasets_cli.replay.mixing.column_mapping import (
    batch_leaves,
    difference_table,
    different_keys,
    plain_leaves,
)
from datasets_cli.replay.samplers.prioritized import PrioritizedSampler
from datasets_cli.replay.samplers.protocol import Sampler
from datasets_cli.replay.state_file import read_state_file
from datasets_cli.replay.storages.collate import make_batch
from datasets_cli.replay.storages.columns import outline
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.transforms.transform import Compose, Inverted, TransformLike
from datasets_cli.schema.bits import join_tensors
from datasets_cli.schema.columns import Key, show_key
from datasets_cli.schema.shapes import Mask, MemberNumbers, RowNumbers
from datasets_cli.schema.tree import Tree, entry, grow_tree

JoinFunction = Callable[[list[Rows]], Rows]


@dataclass(frozen=True)
class MemberBatch:
    """The part of a batch that one member draws.

    ``info`` is the sampler's info of the n rows, ``[n, ...]``, and their ``index``. ``is_last``
    flags the end of an epoch.
    """

    member: int
    rows: Rows
    info: dict[NestedKey, torch.Tensor]
    is_last: bool

    def __len__(self) -> int:
        return len(self.info["index"])

    def info_batch(self) -> TensorDict:
        """Return a copy of the info as a batch, with ``index`` as in the rows."""
        size = torch.Size([len(self)])
        index = _with_member(self.member, self.info["index"], size)
        return TensorDict({**self.info, "index": index}, size).clone()

    def flatten_index(self, storage: Storage) -> None:
        """Replace the coordinates of rows in a storage of several dimensions by row numbers."""
        if storage.ndim == 1:
            return
        self.info["index"] = flat_rows(storage, self.info["index"])
        if isinstance(self.rows, TensorDictBase):
            self.rows["index", "index"] = flat_rows(storage, self.rows["index", "index"])


def draw_member_batch(buffer: ReplayBuffer, member: int, size: int) -> MemberBatch:
    """Return a member's part of a batch, ``size`` rows."""
    # If an epoch of rows ends within the part, the next epoch fills the rest. A part of slices
    # stays short, because slices are never cut.
    part = _sampled(buffer, member, size)
    while len(part) < size and part.is_last and not buffer.reader.sampler.has_slices:
        rest = _sampled(buffer, member, size - len(part))
        rows = concatenated([part.rows, rest.rows])
        info = {key: torch.cat((values, rest.info[key])) for key, values in part.info.items()}
        part = MemberBatch(member, rows, info, is_last=True)
    return part


def check_sizes(parts: Iterable[MemberBatch]) -> None:
    """Check that parts can be stacked."""
    sizes = [list(_size(part.rows)) for part in parts]
    if any(size != sizes[0] for size in sizes):
        raise WrongSize(
            f"The members drew parts of sizes {', '.join(map(str, sizes))}; sample() stacks parts "
            "of one size.",
            expected="one size",
            found=sizes,
            advice="Pad slices, pass drop_last=True to samplers of epochs, or use sample_flat().",
        )


def _size(rows: Rows) -> tuple[int, ...]:
    if is_tensor_collection(rows):
        return tuple(rows.batch_size)
    return tuple(_pytree.tree_leaves(rows)[0].shape[:1])


def _sampled(buffer: ReplayBuffer, member: int, size: int) -> MemberBatch:
    rows, info = buffer.with_format("torch").sample(size, return_info=True)
    part = MemberBatch(member, rows, info, buffer.ran_out)
    if not isinstance(rows, TensorDictBase):  # without a key for the index
        leaves = [rows] if is_tensor_collection(rows) else _pytree.tree_leaves(rows)
        if not all(isinstance(leaf, torch.Tensor) or leaf is rows for leaf in leaves):
            raise WrongRows(
                f"Buffer {member} returns batches of {outline(rows)}.",
                expected="TensorDicts or tensors",
                found=outline(rows),
                advice="Pass it a collate_fn that returns tensors or TensorDicts.",
            )
        return part
    # A transform may have dropped, repeated or added rows.
    numbers = rows.get("index", None)
    if numbers is None:
        numbers = expand_to_rows(info["index"], buffer.reader.storage.row_batch_size)
    if numbers.shape[: rows.ndim] != rows.batch_size:
        raise WrongRows(
            f"Buffer {member} drew {len(part)} rows, but its transform returned a batch "
            f"{list(rows.batch_size)} without their index.",
            expected=list(numbers.shape),
            found=list(rows.batch_size),
            advice="Use a TensorDictReplayBuffer, whose batches have the index.",
        )
    rows.set("index", _with_member(member, numbers, rows.batch_size))
    return part


def _with_member(member: int, numbers: RowNumbers, shape: torch.Size) -> TensorDict:
    """Return the entry ``index`` of a batch: the member and the row numbers."""
    ids = torch.full(shape, member, device=numbers.device)
    return make_batch({"buffer_ids": ids, "index": numbers}, shape)


def stacked(parts: list[Rows]) -> Rows:
    """Return a stack of the parts, ``[members, B]``; of TensorDicts a lazy stack."""
    return _map_parts(LazyStackedTensorDict.lazy_stack, parts, torch.stack)


def joined(
    names: Sequence[str],
    batches: Sequence[Rows],
    alternative: Callable[[list[Key]], str] = lambda _: "sample() parts that may differ",
) -> Rows:
    """Return the batches of members as one batch ``[B]``.

    ``alternative`` returns further advice for the error message, given the keys that agree.
    """
    first, *others = map(batch_leaves, batches)
    for name, other in zip(names[1:], others, strict=True):
        if odd := different_keys(first, other):
            equal = [key for key in other if key not in odd and key[0] != "index"]
            raise WrongRows(
                f"The rows of {names[0]} and {name} differ in {', '.join(map(show_key, odd))}:\n"
                f"{difference_table(odd, [names[0], name], [first, other])}\n",
                key=odd[0],
                found=[show_key(key) for key in odd],
                advice="Give one of them a transform, such as DoubleToFloat or RenameTransform; "
                f"or {alternative(equal)}.",
            )
    return concatenated(batches)


def concatenated(parts: Sequence[Rows]) -> Rows:
    """Return the concatenation of batches; TensorDicts have the same entries."""
    if len(parts) == 1:
        return parts[0]
    plain = [leaves for leaves in map(plain_leaves, parts) if leaves is not None]
    if len(plain) < len(parts):
        return _map_parts(torch.cat, list(parts), torch.cat)
    # Leaf by leaf takes a third of the time of tensordict's cat.
    joint = {key: join_tensors([leaves[key] for leaves in plain]) for key in plain[0]}
    devices = {part.device for part in parts}
    size = torch.Size([sum(map(len, parts)), *parts[0].batch_size[1:]])
    return make_batch(grow_tree(joint), size, devices.pop() if len(devices) == 1 else None)


def _map_parts(join: JoinFunction, parts: list[Rows], join_tensors_of_parts: JoinFunction) -> Rows:
    """Return the join of TensorDicts, or of the tensors of equal structures, leaf by leaf."""
    if all(is_tensor_collection(part) for part in parts):
        if len({part.device for part in parts}) > 1:
            parts = [part.copy().clear_device_() for part in parts]
        return join(parts)

    def join_equal(*tensors: torch.Tensor) -> Rows:
        dtypes = {getattr(tensor, "dtype", None) for tensor in tensors}
        if len(dtypes) > 1:  # torch would convert silently
            raise TypeError("dtypes differ")
        return join_tensors_of_parts(list(tensors))

    try:
        return _pytree.tree_map(join_equal, parts[0], *parts[1:])
    except (ValueError, RuntimeError, TypeError) as error:
        found = [outline(part) for part in parts]
        raise WrongRows(
            f"The members' rows cannot be joined: {', '.join(found)}.",
            expected="the same structure, dtypes and shapes, or TensorDicts",
            found=found,
            advice="Pass a collate_fn to the ensemble, or members with equal rows.",
        ) from error


WEIGHT = "priority_weight"


def update_batch_priorities(buffers: Sequence[ReplayBuffer], batch: TensorDictBase | Tree) -> None:
    """Update the priorities of the rows of a batch, read from each buffer's ``priority_key``."""
    flat = _index_and_priorities(batch, buffers).reshape(-1)
    members, rows = flat["index", "buffer_ids"], flat["index", "index"]
    for buffer, mask, numbers in _rows_by_buffer(buffers, members, rows):
        if (update := getattr(buffer, "update_tensordict_priority", None)) is not None:
            update(flat[mask].exclude("index").set("index", numbers))


def update_row_priorities(
    buffers: Sequence[ReplayBuffer],
    index: TensorDictBase | Mapping[str, Numbers],
    priority: Numbers,
) -> None:
    """Update the priorities of rows of several buffers; see ``MixedBuffers.update_priority``."""
    has_keys = isinstance(index, TensorDictBase | Mapping)
    members, rows = (
        index.get(name, None) if has_keys else None for name in ("buffer_ids", "index")
    )
    if members is None or rows is None:
        raise wrong_value("index", "buffer_ids and index", type(index), "Pass batch['index'].")
    values = as_tensor(priority)
    for buffer, mask, numbers in _rows_by_buffer(buffers, as_tensor(members), as_tensor(rows)):
        buffer.update_priority(numbers, values[mask] if values.ndim else values)


def _rows_by_buffer(
    buffers: Sequence[ReplayBuffer], members: MemberNumbers, rows: RowNumbers
) -> Iterator[tuple[ReplayBuffer, Mask, RowNumbers]]:
    """Yield each buffer with the mask of its rows, and their numbers in its storage."""
    for member, buffer in enumerate(buffers):
        mask = members == member
        if mask.any():
            numbers, storage = rows[mask], buffer.reader.storage
            # Also in a storage of several dimensions a row has one number in `rows`.
            yield buffer, mask, unravel_rows(storage, numbers) if numbers.ndim == 1 else numbers


def _index_and_priorities(
    batch: TensorDictBase | Tree, buffers: Sequence[ReplayBuffer]
) -> TensorDict:
    """Return the index of a batch and the entries of all ``priority_key``."""
    index_keys = ("index", "buffer_ids"), ("index", "index")
    keys = {key_of(getattr(buffer, "priority_key", index_keys[0])) for buffer in buffers}
    entries = {key: entry(batch, key) for key in {*index_keys, *keys}}
    numbers = {key: as_tensor(leaf) for key, leaf in entries.items() if leaf is not None}
    if not numbers.keys() >= {*index_keys}:
        raise UnknownKey(
            "The batch has no 'index' with 'buffer_ids' and 'index'; priorities need it.",
            key="index",
        )
    return TensorDict(grow_tree(numbers), numbers[index_keys[0]].shape)


def balance_weights(
    buffers: Sequence[ReplayBuffer], parts: Sequence[MemberBatch], drawn: Sequence[int]
) -> None:
    """Rescale the importance weights of parts to one maximum, in place."""
    # A row that its part's sampler draws with probability p, of n rows, has the weight
    # `(n * p)^-beta`, divided by the maximum over all rows of all parts. A sampler divides by the
    # maximum over its part alone, which makes all weights of a part with uneven priorities smaller.
    # Rows drawn uniformly have `n * p = 1`. The size of a part does not matter: it is chosen by the
    # user, and not a bias to correct.
    samplers = [buffer.reader.sampler for buffer in buffers]
    for part in parts:
        if WEIGHT in part.info and not isinstance(samplers[part.member], PrioritizedSampler):
            raise _unknown_maximum(samplers[part.member])
    dtypes = [sampler.draw.dtype for sampler in samplers if isinstance(sampler, PrioritizedSampler)]
    if not dtypes:
        return
    members = {*drawn, *(part.member for part in parts)}
    maxima = {member: _max_weight(buffers[member]) for member in members}
    in_rows = any(buffer.reader.sample_info.info for buffer in buffers)
    for part in parts:
        factor = maxima[part.member] / max(maxima.values())
        size = torch.Size([len(part)])
        part.info[WEIGHT] = _scaled(part.info.get(WEIGHT), factor, size, part, dtypes[0])
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
    """Return weights times a factor; rows drawn uniformly have the weight 1."""
    if weights is None:
        return torch.full(size, factor, dtype=dtype, device=part.info["index"].device)
    return weights * factor


def _max_weight(buffer: ReplayBuffer) -> float:
    sampler = buffer.reader.sampler
    if isinstance(sampler, PrioritizedSampler):
        with buffer.reader.lock:  # another thread may write
            return sampler.draw.max_weight
    if sampler.has_priorities:
        raise _unknown_maximum(sampler)
    return 1.0


def _unknown_maximum(sampler: Sampler) -> Unsupported:
    name = type(sampler).__name__
    return Unsupported(
        f"{name} draws by priority; the maximum of its weights is unknown.",
        expected="PrioritizedSampler",
        found=name,
        advice="Use a PrioritizedSampler or a PrioritizedSliceSampler, or a subclass.",
    )


PlannedChange = Callable[[], object]
"""A checked change, applied by the call."""


class MixedBuffers(ABC):
    """Several buffers sampled as one; subclasses split a batch among them."""

    _names: ClassVar[Sequence[str] | None] = None  # keys of members in states; their numbers
    _draws_name: ClassVar[str]  # key of the state of the draws of members

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
        """The format of batches: ``"torch"``, ``"numpy"`` or ``"jax"``."""
        return "torch" if self._format is None else self._format.name

    def with_format(self, format: str, *, cast: bool = False) -> Self:
        """Return the same members with batches of another format; see ``ReplayBuffer``."""
        copy = type(self).__new__(type(self))
        vars(copy).update(vars(self))
        copy._format = choose_format(format, cast=cast)
        return copy

    def __repr__(self) -> str:
        return few_lines(f"{type(self).__name__}({','.join(self._shown())})")

    def _shown(self) -> list[str]:
        """Return the parts of ``repr``: a line for each member, and the batch size."""
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
            raise WrongSize(
                f"Iteration needs a batch size. Give {name} a batch_size.", argument="batch_size"
            )
        while True:
            yield self.sample()
            if self.ran_out:
                return

    def update_priority(
        self, index: TensorDictBase | Mapping[str, Numbers], priority: Numbers
    ) -> None:
        """Update the priorities of rows; members without priorities are skipped.

        Args:
            index: ``batch["index"]``: ``buffer_ids`` and ``index``, int64 ``[B]`` each.
            priority: float ``[B]``, or one number for all.

        Raises:
            UsageError: ``index`` lacks ``buffer_ids`` or ``index``, or a row does not exist.
        """
        update_row_priorities(self.buffers, index, priority)

    def update_tensordict_priority(self, batch: TensorDictBase | Tree) -> None:
        """Update the priorities of the rows of a batch of any format.

        They are read from the ``priority_key`` of each member; members without priorities are
        skipped.

        Raises:
            UsageError: the batch lacks the priorities or ``index``.
        """
        update_batch_priorities(self.buffers, batch)

    def append_transform(self, transform: TransformLike, *, invert: bool = False) -> Self:
        """Append a transform, which is applied to every batch; return the same object.

        Args:
            transform: a callable from batch to batch.
            invert: apply its ``inv`` instead.
        """
        return self.insert_transform(len(self.transform), transform, invert=invert)

    def insert_transform(
        self, index: int, transform: TransformLike, *, invert: bool = False
    ) -> Self:
        """Insert a transform before the transform at ``index``; return the same object."""
        added = Inverted(transform) if invert else transform
        for reader in (buffer.reader for buffer in self.buffers):
            reader.check_transform(added, reader.sampler, reader.storage)
        self.transform.insert(index, added)
        return self

    def set_rng(self, generator: torch.Generator) -> None:
        """Seed the draws of each member from a generator."""
        for buffer in self.buffers:
            # A seed rather than a generator, so that a dataset is still read ahead.
            seed = int(torch.randint(2**62, (), generator=generator))
            buffer.reader.use_generator(None, seed)

    def dumps(self, path: str | Path) -> None:
        """Write the state of every member into the file ``buffer.pt`` of a folder.

        Args:
            path: the folder, which is created if it does not exist.

        Raises:
            UsageError: see ``ReplayBuffer.dumps``.
        """
        states = {name: buffer.persistence.dump_state() for name, buffer in self._named()}
        write_dump(path, {**states, self._draws_name: self._dump_draws()})

    def loads(self, path: str | Path, *, tensorclass: Any = None) -> None:
        """Load a dump of such members; see ``ReplayBuffer.loads``.

        If one member cannot load its part, no member changes.
        """
        with error_path(path):
            self._restore(read_state_file(Path(path) / DUMP), tensorclass, is_dump=True)

    def state_dict(self) -> StateDict:
        """Return the state of every member, and of the draws of members.

        Of a dataset it contains the id and the content, of written rows copies.
        """
        states = {name: buffer.state_dict() for name, buffer in self._named()}
        return {**states, self._draws_name: self._draws_state()}

    def load_state_dict(self, state: StateDict, *, tensorclass: Any = None) -> None:
        """Continue with the same batches as the members of a state; see ``ReplayBuffer``.

        If one member cannot load its part, no member changes.

        Raises:
            WrongState: the state is not of such members.
        """
        self._restore(state, tensorclass, is_dump=False)

    def _restore(self, state: StateDict, tensorclass: Any, is_dump: bool) -> None:
        names = [*(name for name, _ in self._named()), self._draws_name]
        found = [*state] if isinstance(state, dict) else []
        if {*found} != {*names}:
            shown = ", ".join(map(str, found)) or "nothing"
            raise WrongState(
                f"The state is not of a {type(self).__name__} of such members: expected "
                f"{', '.join(names)}; found {shown}.",
                expected=names,
                found=shown,
                advice="Load the state of a single buffer into a single buffer.",
            )
        plans: list[Callable[[], PlannedChange]] = []
        for name, buffer in self._named():
            persistence = buffer.persistence
            plan = persistence.plan_load if is_dump else persistence.plan_restore
            plans.append(partial(plan, state[name], tensorclass))
        self._change(partial(self._plan_draws, state[self._draws_name], is_dump), *plans)

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
    def _draws_state(self) -> StateDict | torch.Tensor:
        """Return the state of the draws of members."""

    def _dump_draws(self) -> StateDict | torch.Tensor | None:
        """Return the state of the draws of members as ``dumps`` writes it."""
        return self._draws_state()

    @abstractmethod
    def _plan_draws(self, state: Any, is_dump: bool) -> PlannedChange:
        """Return the change that restores the draws of members; errors are raised here."""

    def _draw(self, counts: Iterable[tuple[int, int]]) -> list[MemberBatch]:
        """Return the parts of members, ``counts`` rows each."""
        return [draw_member_batch(self.buffers[member], member, size) for member, size in counts]

    def _finished(self, rows: Rows, details: Rows | None) -> Rows:
        """Return a batch, or ``(batch, info)``, transformed and in the format of batches."""
        batch = self._formatted(self.transform(rows))
        return batch if details is None else (batch, self._formatted(details))

    def _formatted(self, rows: Rows) -> Rows:
        return rows if self._format is None else self._format.from_batch(rows)
