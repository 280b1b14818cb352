"""Replay buffers: a storage holds rows, a sampler draws them, a writer places new ones."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from typing import Any, ClassVar, Self

import torch
from tensordict import TensorDictBase
from torch.utils.data._utils.collate import default_collate_fn_map

from datasets_cli.core.options import check_choice, check_flags, suggests_keywords
from datasets_cli.core.quantities import few_lines
from datasets_cli.errors import (
    NotWritable,
    UnknownKey,
    Unsupported,
    UsageError,
    install_extra,
    wrong_value,
)
from datasets_cli.replay.arguments import Index, NestedKey, Rows, StateDict, chosen_size
from datasets_cli.replay.batches.formats import BatchFormat, NumpyFormat
from datasets_cli.replay.batches.jax import JaxFormat
from datasets_cli.replay.batches.reader import BatchReader, CollateFunction, SampleInfo
from datasets_cli.replay.batches.row_numbers import is_key, rows_at
from datasets_cli.replay.buffer.parts import (
    as_sampler,
    as_storage,
    as_writer,
    chained_method_of,
    given,
    make_room,
    method_of,
    storage_or_list,
    warn_of_index,
)
from datasets_cli.replay.checkpoint.checkpoint import Persistence
from datasets_cli.replay.queries.query import Predicate, query
from datasets_cli.replay.queries.trajectory import Trajectory
from datasets_cli.replay.samplers.protocol import Sampler
from datasets_cli.replay.samplers.rows import RandomSampler
from datasets_cli.replay.samplers.slices import Slices
from datasets_cli.replay.storages.collate import ARRAYS, rows_of_arrays
from datasets_cli.replay.storages.protocol import Storage, is_writable
from datasets_cli.replay.storages.shared import SharedStorage
from datasets_cli.replay.storages.tensors import LazyMemmapStorage
from datasets_cli.replay.trajectories.trajectory_table import Trajectories
from datasets_cli.replay.transforms.transform import Compose, Inverted, TransformLike
from datasets_cli.replay.writing.row_writer import RowWriter, writable
from datasets_cli.replay.writing.writers import TensorDictRoundRobinWriter, Writer
from datasets_cli.schema.columns import Key
from datasets_cli.torchrl.keywords import accepts_keywords

NAMES = ("torch", "numpy", "jax")
DTYPES = "transform=DTypeCastTransform(torch.float32, torch.float16) converts dtypes."
"""The advice for a dtype passed as ``cast``."""


def choose_format(name: str, *, cast: bool = False) -> BatchFormat | None:
    """Return the format of a name; None for torch's."""
    check_choice("format", name, NAMES)
    if cast not in (False, True):
        raise wrong_value("cast", "True or False", cast, DTYPES)
    if cast and name != "jax":
        raise UsageError(
            f"cast=True is for format 'jax', which may have 32 bits only; {name!r} keeps the "
            "stored dtypes.",
            argument="cast",
            found=name,
            advice=DTYPES,
        )
    if name == "numpy":
        return NumpyFormat()
    if name == "jax":
        if find_spec("jax") is None:
            raise Unsupported(
                "format 'jax' needs jax, which is not installed.",
                argument="format",
                found=name,
                advice=install_extra("jax"),
            )
        return JaxFormat(cast)
    return None


class LoadedArrays(dict[str, Any]):
    """A batch of arrays; torch's default collate function would index it by number."""

    def __missing__(self, key: object) -> None:
        raise UnknownKey(
            f"A batch of arrays has the keys {reprlib.repr([*self])}, not {key!r}.",
            key=str(key),
            expected=[*self],
            advice="Pass collate_fn=datasets_cli.replay.loaders.whole_batch to the DataLoader, or "
            "leave out the format of the buffer.",
        )


def _whole(batch: TensorDictBase | list[TensorDictBase], **_: object) -> TensorDictBase:
    """Return a batch unchanged, and a list of TensorDicts stacked."""
    return batch if isinstance(batch, TensorDictBase) else torch.stack(batch)


# Torch's default collate function rejects TensorDicts unless this map names them.
default_collate_fn_map.setdefault(TensorDictBase, _whole)


class ReadableBuffer:
    """The reading half of a replay buffer; another thread may write rows at the same time.

    Attributes:
        reader: makes the batches; it has the current storage, sampler and transform.
    """

    reader: BatchReader
    _format: BatchFormat | None = None

    @property
    def format(self) -> str:
        """The format of batches: ``"torch"``, ``"numpy"`` or ``"jax"``."""
        return "torch" if self._format is None else self._format.name

    def _use_format(self, batch_format: BatchFormat | None) -> None:
        if batch_format is not None:
            self.reader.check_format(batch_format)
        self._format = batch_format

    @property
    def storage(self) -> Storage:
        """The storage, which holds the rows."""
        found: Storage = given(self.reader.storage)
        return found

    @property
    def sampler(self) -> Sampler:
        """The sampler, which draws rows."""
        found: Sampler = given(self.reader.sampler)
        return found

    @property
    def transform(self) -> Compose:
        """The transforms that are applied to every batch."""
        return self.reader.transform

    @property
    def batch_size(self) -> int | None:
        """Rows in a batch."""
        return self.reader.batch_size

    @batch_size.setter
    def batch_size(self, batch_size: int | None) -> None:
        self.reader.batch_size = batch_size

    @property
    def generator(self) -> torch.Generator:
        """The generator of the draws; read-ahead stops, since the caller may draw from it."""
        return self.reader.hand_out_generator()

    @property
    def ran_out(self) -> bool:
        """Whether the batch just sampled was the last of an epoch."""
        return self.reader.ran_out

    def __len__(self) -> int:
        return len(self.reader.storage)

    def sample(self, batch_size: int | None = None, return_info: bool = False) -> Rows:
        """Return a batch of copies: a TensorDict ``[B]``, another structure, or arrays.

        Args:
            batch_size: rows to draw; the buffer's own by default.
            return_info: return ``(batch, info)``. The info has ``index`` int64 ``[B]``, or
                ``[B, ndim]`` with several dimensions, and the sampler's info on each row.

        Raises:
            UsageError: neither this call nor the buffer has a batch size, the storage is empty, or
                the sampler rejects the size.
        """
        return self.reader.sample(batch_size, return_info, self._format)

    def __iter__(self) -> Iterator[Rows]:
        """Yield batches: without end, or to the end of an epoch without replacement."""
        chosen_size(self.batch_size, None)
        while True:
            yield self.sample()
            if self.ran_out:
                return

    def __getitem__(self, index: Index) -> Rows:
        """Return copies of rows, or of a whole column."""
        if not is_key(index):
            return self._formatted(self._transformed(index))
        if self.transform or self.reader.storage.ndim > 1:
            return self._formatted(self._transformed(slice(None))[index])
        with self.reader.lock:
            key = (index,) if isinstance(index, str) else index
            column = self.reader.storage.column(key)
        return self._formatted(column, key)

    def __getitems__(self, index: list[int]) -> Rows:
        """Return rows as one batch; ``torch.utils.data.DataLoader`` calls this."""
        rows = self[index]
        return LoadedArrays(rows) if type(rows) is dict else rows

    def _transformed(self, index: Index) -> Rows:
        """Return transformed copies of rows, without the format."""
        with self.reader.lock:
            rows = rows_at(self.reader.storage, index)
        return self.transform(rows)

    def _formatted(self, rows: Rows, key: Key = ()) -> Rows:
        """Return rows, or the column of a key, in the format of this buffer."""
        return rows if self._format is None else self._format.from_batch(rows, key)

    def query(
        self, predicate: Predicate | None = None, *, trajectory_key: NestedKey | None = None
    ) -> list[Trajectory]:
        """Return the trajectories for which a condition holds, as TensorDicts, the oldest first.

        Example: ``rb.query((traj.reward.sum() > 100) & (traj.length >= 50))``. The condition reads
        transformed rows. Without a transform, a condition of ``traj`` reads only the entries that
        it names.

        Args:
            predicate: a condition of ``traj``, or a function from a trajectory to a bool; None
                returns every trajectory.
            trajectory_key: the column of numbers that change between trajectories. None uses the
                trajectories of the dataset; for written rows see ``iter_trajectories``.

        Raises:
            UsageError: the argument is not a condition, or names an entry that rows lack; no column
                separates trajectories; rows are not TensorDicts; or the rows of a dataset would
                take more than half of the free memory.
        """
        return self._query(predicate, trajectory_key, None)

    def _query(
        self,
        predicate: Predicate | None,
        trajectory_key: NestedKey | None,
        table: Trajectories | None,
    ) -> list[Trajectory]:
        transform = self.transform if len(self.transform) else None
        with self.reader.lock:
            return query(
                self.reader.storage, predicate, trajectory_key, transform=transform, table=table
            )

    def set_sampler(self, sampler: Sampler) -> Sampler:
        """Replace the sampler and return the previous one."""
        found = as_sampler(sampler)
        self.reader.check_transform(self.transform, found, self.reader.storage)
        make_room(found, self.reader.storage)
        self.reader.rewind()
        previous, self.reader.sampler = self.sampler, found
        return previous

    def set_rng(self, generator: torch.Generator) -> None:
        """Draw from another generator."""
        self.reader.use_generator(generator)

    def append_transform(self, transform: TransformLike, *, invert: bool = False) -> Self:
        """Append a transform to the transforms of every batch; return the buffer.

        Args:
            transform: any callable from batch to batch.
            invert: apply it to written rows instead, and its ``inv`` to batches.

        Raises:
            UsageError: the transform needs consecutive steps and the sampler draws single rows, or
                it acts on written rows and the storage is read-only.
        """
        return self.insert_transform(len(self.transform), transform, invert=invert)

    def insert_transform(
        self, index: int, transform: TransformLike, *, invert: bool = False
    ) -> Self:
        """Insert a transform at an index of the transforms; return the buffer."""
        added = Inverted(transform) if invert else transform
        self.reader.check_transform(added, self.reader.sampler, self.reader.storage)
        self.reader.rewind()
        self.transform.insert(index, added)
        return self


@dataclass(frozen=True, kw_only=True)
class DrawOptions:
    """How the rows of a batch are drawn and transformed; ``ReplayBuffer`` documents each field."""

    sampler: Sampler | None = None
    prefetch: int | None = None
    transform: TransformLike | None = None
    generator: torch.Generator | None = None
    seed: int | None = None


@dataclass(frozen=True, kw_only=True)
class BatchOptions(DrawOptions):
    """How batches are drawn and made; ``ReplayBuffer`` documents each field."""

    collate_fn: CollateFunction | None = None
    pin_memory: bool = False
    format: str = "torch"
    cast: bool = field(default=False, metadata={"instead": DTYPES})


@dataclass(frozen=True, kw_only=True)
class TensorDictBatchOptions(BatchOptions):
    """How batches of TensorDicts are made; ``TensorDictReplayBuffer`` documents each field."""

    priority_key: NestedKey = "td_error"


@accepts_keywords
class ReplayBuffer(ReadableBuffer):
    """A replay buffer: a storage holds rows, a sampler draws batches, a writer places new rows.

    One thread may write while another samples.

    Args:
        storage: holds the rows; a list of 1,000 by default.
        sampler: draws the rows of a batch; uniformly with replacement by default.
        writer: places new rows; by default behind the last written row. A dataset rejects
            every row.
        batch_size: rows in a batch; ``sample`` can override it.
        collate_fn: takes a list of rows, or a batch, from the storage, and returns the batch.
        transform: applied to every batch; one that has ``inv`` also to the rows that are written.
        prefetch: batches of ``batch_size`` that a thread makes ahead of time. It pays where a batch
            costs more than some 0.1 ms: frames, transforms, copies to a device. Transforms run in
            that thread. Cheap batches of a dataset are made in place. A batch of another size is
            drawn when ``sample`` is called, and the batches ahead return to the generator.
        pin_memory: put batches into page-locked memory.
        dim_extend: the dimension of time in data of ``storage.ndim`` leading dimensions: the last.
        generator: draws rows, exclusive with ``seed``. The default is torch's global generator; a
            dataset's buffer has a separate one, seeded by the global one at the first draw.
        seed: seeds a generator of the buffer's own.
        shared: let other processes read and write the same rows; see ``share``.
        format: ``"torch"`` for TensorDicts and tensors, ``"numpy"`` or ``"jax"`` for nested dicts
            of arrays; see ``with_format``.
        cast: with ``"jax"``, convert columns of 64 bits to 32; see ``with_format``.

    Raises:
        UsageError: arguments that exclude one another, a storage that cannot be shared, or rows
            that the format cannot represent.

    Attributes:
        row_writer: writes the rows.
    """

    _sample_info = SampleInfo()
    _array_kinds: ClassVar[tuple[type, ...]] = ARRAYS

    @suggests_keywords
    def __init__(
        self,
        *,
        storage: Storage | None = None,
        sampler: Sampler | None = None,
        writer: Writer | None = None,
        batch_size: int | None = None,
        collate_fn: CollateFunction | None = None,
        transform: TransformLike | None = None,
        prefetch: int | None = None,
        pin_memory: bool = False,
        dim_extend: int | None = None,
        generator: torch.Generator | None = None,
        seed: int | None = None,
        shared: bool = False,
        format: str = "torch",
        cast: bool = False,
    ) -> None:
        check_flags(pin_memory=pin_memory, shared=shared)
        self.reader = BatchReader(
            storage=storage_or_list(storage),
            sampler=RandomSampler() if sampler is None else as_sampler(sampler),
            transform=Compose() if transform is None else Compose(transform),
            batch_size=batch_size,
            collate_fn=collate_fn,
            pin_memory=pin_memory,
            prefetch=prefetch,
            generator=generator,
            seed=seed,
            sample_info=self._sample_info,
        )
        time = self.reader.storage.ndim - 1
        if dim_extend not in (None, time):
            raise wrong_value(
                "dim_extend",
                f"{time}, the dimension of time of a storage with ndim={time + 1}",
                dim_extend,
            )
        make_room(self.reader.sampler, self.reader.storage)
        if isinstance(self.reader.sampler, Slices):
            self.reader.sampler.check(self.reader.storage, self.reader.batch_size)
        self.row_writer = RowWriter(self.reader, None if writer is None else as_writer(writer))
        self._carry_index(writer)
        self._use_format(choose_format(format, cast=cast))
        if shared:
            self.share()

    @cached_property
    def persistence(self) -> Persistence:
        """Dumps and restores the buffer."""
        return Persistence(self.reader, self.row_writer)

    @property
    def shared(self) -> bool:
        """Whether the rows are in memory that other processes can read and write."""
        storage = self.reader.storage
        if isinstance(storage, LazyMemmapStorage):
            return storage.is_shared
        return isinstance(storage, SharedStorage)

    def __getstate__(self) -> StateDict:
        self.row_writer.before_fork()  # a pickle of rows in files reaches another process, too
        return vars(self)

    def with_format(self, format: str, *, cast: bool = False) -> Self:
        """Return the same buffer with batches, rows and columns in another format.

        Both share rows, draws and priorities: a draw, a write or a change of one affects both.

        Args:
            format: ``"torch"``, ``"numpy"`` or ``"jax"``. With the last two a batch is a nested
                dict of arrays, and of lists of str for text. Transforms and ``collate_fn`` get
                torch's format, and their result is converted.
            cast: convert columns of 64 bits to 32 if jax is set to 32 bits; otherwise they are
                rejected. Floats are rounded; integers that do not fit are rejected.

        Raises:
            UsageError: the format is unknown, jax is not installed, or the format lacks the dtype
                of a column.
        """
        batch_format = choose_format(format, cast=cast)
        if batch_format is self._format:  # torch's, again
            return self
        converted = type(self).__new__(type(self))
        vars(converted).update(vars(self) | {"persistence": self.persistence})
        converted._use_format(batch_format)
        return converted

    def with_storage(self, storage: Storage) -> Self:
        """Return an equal buffer of another storage, with its own draws and epochs.

        Priorities start at their default. A generator passed by the caller and the steps of the
        transform are shared; a seed starts again.

        Raises:
            UsageError: the format cannot represent the rows.
        """
        return self._with_storage(as_storage(storage))

    def _with_storage(self, storage: Storage) -> Self:
        """Return a copy of the buffer over another storage."""
        buffer = type(self).__new__(type(self))
        vars(buffer).update(vars(self))
        buffer.reader = self.reader.with_storage(storage)
        make_room(buffer.reader.sampler, storage)
        buffer.row_writer = self.row_writer.with_reader(buffer.reader)
        buffer.persistence = Persistence(buffer.reader, buffer.row_writer)
        if self._format is not None:
            buffer.reader.check_format(self._format)
        return buffer

    @property
    def writer(self) -> Writer:
        """The writer, which places new rows."""
        found: Writer = given(self.row_writer.writer)
        return found

    def __repr__(self) -> str:
        parts = {
            "storage": self.storage,
            "sampler": self.sampler,
            "writer": self.writer,
            "batch_size": self.batch_size,
            "transform": self.transform,
            "collate_fn": self.reader.collate_fn,
            **({} if self._format is None else {"format": self.format}),
        }
        lines = ",".join(f"\n    {name}={part!r}" for name, part in parts.items())
        return few_lines(f"{type(self).__name__}({lines})")

    def __setitem__(self, index: Index, data: Rows) -> None:
        """Replace rows; their priorities stay. See ``RowWriter.replace``."""
        if is_key(index):
            raise NotWritable(
                f"Assignment replaces rows, and {index!r} is a column.",
                key=index,
                advice="Replace rows: rb[:3] = rows",
            )
        self.row_writer.replace(index, data)

    def add(self, data: Rows) -> int | torch.Tensor | None:
        """Write one row; return its row number, or None if the writer rejected it.

        With several dimensions the row is one step of all environments, ``[environments...]``; the
        result is their row numbers int64 ``[n, ndim]``.
        """
        storage = writable(self.reader)
        index = self.extend(storage.one_row(self._as_rows(data, storage.ndim - 1)))
        if self.reader.storage.ndim > 1:
            return index
        number = int(index.flatten()[0]) if index.numel() else -1
        return None if number < 0 else number

    def extend(self, data: Rows, update_priority: bool | None = None) -> torch.Tensor:
        """Write rows ``[n, ...]``, or a list of them; return their row numbers int64.

        Args:
            data: rows; with several dimensions time comes last, ``[environments..., time]``. A
                nested dict of numpy arrays becomes a TensorDict.
            update_priority: None or True; every written row gets a priority.

        Returns:
            ``[n]``, or ``[n, ndim]`` with several dimensions; -1 for a row that the writer
            rejected.

        Raises:
            ImmutableError: the storage is a dataset.
            UsageError: the rows differ from the stored rows in keys, shapes or dtypes.
        """
        if update_priority is False:
            raise Unsupported(
                f"{type(self).__name__} sets the priority of every written row; found "
                "update_priority=False.",
                argument="update_priority",
                found=False,
                advice="A TensorDictReplayBuffer supports it: its rows may have priorities.",
            )
        return self.row_writer.extend(self._as_rows(data, self.reader.storage.ndim))

    def _as_rows(self, data: Rows, ndim: int) -> Rows:
        """Convert a nested dict of arrays to a TensorDict; return other rows unchanged."""
        is_list = self.reader.storage.takes_lists
        if is_list and self.reader.collate_fn is not None:  # it collates the user's items
            return data
        rows = rows_of_arrays(data, ndim, self._array_kinds)
        return rows.clone() if is_list and rows is not data else rows  # a list does not copy

    def set_storage(self, storage: Storage, collate_fn: CollateFunction | None = None) -> Storage:
        """Replace the storage and return the previous one; all rows get the default priority."""
        found = as_storage(storage)
        self.reader.check_transform(self.transform, self.reader.sampler, found)
        make_room(self.reader.sampler, found)
        self.reader.rewind()
        previous = self.storage
        self.reader.use_storage(found)
        self.reader.collate_fn = collate_fn or self.reader.collate_fn
        self.row_writer.use_writer(None)
        self._carry_index(None)
        self.reader.sampler.on_clear()
        return previous

    def set_writer(self, writer: Writer) -> Writer:
        """Replace the writer and return the previous one."""
        previous = self.writer
        self.row_writer.use_writer(as_writer(writer))
        self._carry_index(writer)
        return previous

    # Methods of the parts; each has the signature and the docstring of the part's method.
    share = chained_method_of("row_writer", RowWriter.share)
    empty = method_of("row_writer", RowWriter.empty)
    update_priority = method_of("row_writer", RowWriter.update_priority)
    set_ = chained_method_of("row_writer", RowWriter.set_)
    set_at_ = chained_method_of("row_writer", RowWriter.set_at_)
    update_ = chained_method_of("row_writer", RowWriter.update_)

    dumps = method_of("persistence", Persistence.dumps)
    loads = method_of("persistence", Persistence.loads)
    state_dict = method_of("persistence", Persistence.state_dict)
    load_state_dict = method_of("persistence", Persistence.load_state_dict)
    register_save_hook = method_of("persistence", Persistence.register_save_hook)
    register_load_hook = method_of("persistence", Persistence.register_load_hook)
    save = dump = dumps  # TorchRL's other names
    load = loads

    @property
    def write_count(self) -> int:
        """Rows written since the buffer was created or emptied, overwritten rows included."""
        return self.row_writer.writer.write_count

    def stats(self) -> dict[str, int | float | bool]:
        """Return the numbers that a monitor logs, under TorchRL's names.

        ``size``, ``capacity``, ``utilization`` (their quotient; 1 for a dataset), ``write_count``,
        ``prefetch_queue_size``, and ``initialized``, which is True.
        """
        size, storage = len(self), self.reader.storage
        capacity = storage.max_size if is_writable(storage) else size
        return {
            "size": size,
            "write_count": self.write_count,
            "prefetch_queue_size": self.reader.num_ahead,
            "initialized": True,
            "capacity": capacity,
            "utilization": size / capacity if capacity else 0.0,
        }

    # As TorchRL's tutorials name the parts.
    _storage = property(lambda self: self.storage, lambda self, part: self.set_storage(part))
    _sampler = property(lambda self: self.sampler, lambda self, part: self.set_sampler(part))
    _writer = property(lambda self: self.writer, lambda self, part: self.set_writer(part))
    _transform = property(lambda self: self.transform)

    def _carry_index(self, writer: Writer | None) -> None:
        """Add row numbers to batches if the writer is a ``TensorDictRoundRobinWriter``."""
        indexed = isinstance(writer, TensorDictRoundRobinWriter)
        info = self._sample_info
        self.reader.sample_info = SampleInfo(info.index or indexed, info.info)
        warn_of_index(self.reader.storage, self.reader.sample_info)
