"""Replay buffers: a storage holds rows, a sampler draws them, a writer places new ones."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, Self

import torch

from datasets_cli.errors import UsageError
from datasets_cli.options import takes_fields
from datasets_cli.quantities import few_lines
from datasets_cli.replay.arguments import (
    Index,
    Rows,
)
from datasets_cli.replay.buffers.options import BufferOptions
from datasets_cli.replay.buffers.part_methods import chained_method_of, method_of
from datasets_cli.replay.buffers.parts import (
    as_sampler,
    as_storage,
    as_writer,
    given,
    make_room,
    storage_or_list,
    warn_of_index,
)
from datasets_cli.replay.buffers.readable import ReadableBuffer, choose_format
from datasets_cli.replay.draws.rows import RandomSampler
from datasets_cli.replay.draws.slices import Slices
from datasets_cli.replay.keeping.keeping import Persistence
from datasets_cli.replay.rows.batch_maker import CollateFunction
from datasets_cli.replay.rows.reader import BatchReader
from datasets_cli.replay.rows.replace import writable
from datasets_cli.replay.rows.row_numbers import is_key
from datasets_cli.replay.rows.row_writer import RowWriter
from datasets_cli.replay.rows.sample_info import SampleInfo
from datasets_cli.replay.rows.writers import TensorDictRoundRobinWriter, Writer
from datasets_cli.replay.storages.batches import ARRAYS, rows_of_arrays
from datasets_cli.replay.storages.protocol import Storage, is_writable
from datasets_cli.replay.storages.tensor_rows import TensorRows
from datasets_cli.replay.torchrl_words import BUFFER, takes
from datasets_cli.replay.transforms.compose import Compose


@takes(**BUFFER)
class ReplayBuffer(ReadableBuffer):
    """Samples batches from a storage, and writes rows into one that takes them.

    One thread may write while another samples.

    Raises:
        UsageError: arguments that exclude one another, a storage that cannot be shared, or one
            whose rows a format does not have.

    Attributes:
        row_writer: what writes the rows.
    """

    _sample_info = SampleInfo()
    _array_kinds: ClassVar[tuple[type, ...]] = ARRAYS

    @takes_fields(BufferOptions)
    def __init__(self, options: BufferOptions) -> None:
        self._assemble(options)

    def _assemble(self, options: BufferOptions) -> None:
        """Put the parts together."""
        sampler, transform = options.sampler, options.transform
        self.reader = BatchReader(
            storage=storage_or_list(options.storage),
            sampler=RandomSampler() if sampler is None else as_sampler(sampler),
            transform=Compose() if transform is None else Compose(transform),
            batch_size=options.batch_size,
            collate_fn=options.collate_fn,
            pin_memory=options.pin_memory,
            prefetch=options.prefetch,
            generator=options.generator,
            seed=options.seed,
            sample_info=self._sample_info,
        )
        if options.dim_extend not in (None, self.reader.storage.ndim - 1):
            raise UsageError(
                f"Time is the last of the storage's {self.reader.storage.ndim} dimensions, not "
                f"{options.dim_extend}."
            )
        make_room(self.reader.sampler, self.reader.storage)
        if isinstance(self.reader.sampler, Slices):
            self.reader.sampler.check(self.reader.storage, self.reader.batch_size)
        writer = None if options.writer is None else as_writer(options.writer)
        self.row_writer = RowWriter(self.reader, writer)
        self._carry_index(options.writer)
        self._use_format(choose_format(options.format, cast=options.cast))
        if options.shared:
            self.share()

    @cached_property
    def persistence(self) -> Persistence:
        """What dumps and restores the buffer."""
        return Persistence(self.reader, self.row_writer)

    @property
    def shared(self) -> bool:
        """Whether other processes that the buffer reaches read and write the same rows."""
        storage = self.reader.storage
        return isinstance(storage, TensorRows) and storage.is_shared

    def with_format(self, format: str, *, cast: bool = False) -> Self:
        """Return the same buffer with batches, rows and columns of another format.

        It has the rows, the draws and the priorities of this one: what is sampled, written or set
        in one is so in both.

        Args:
            format: ``"torch"``, ``"numpy"`` or ``"jax"``. Of the last two a batch is a nested dict
                of arrays, with lists of str for text. Transforms and ``collate_fn`` are given what
                they are without a format, and the result is converted.
            cast: give columns of 64 bits as ones of 32 where jax is set to 32 bits; they are
                refused otherwise. Floats are rounded, and whole numbers that do not fit refused.

        Raises:
            UsageError: there is no such format, jax is not installed, or a column has an element
                type that the format does not have.
        """
        batch_format = choose_format(format, cast=cast)
        if batch_format is self._format:  # torch's, again
            return self
        converted = type(self).__new__(type(self))
        vars(converted).update(vars(self) | {"persistence": self.persistence})
        converted._use_format(batch_format)
        return converted

    def over(self, storage: Storage) -> Self:
        """Return an equal buffer over other rows, which draws and counts epochs separately.

        Priorities begin at their default. A generator that was given is shared, and so are the
        steps of the transform; a seed begins again.

        Raises:
            UsageError: the format cannot have them.
        """
        return self._over(as_storage(storage))

    def _over(self, storage: Storage) -> Self:
        """Return an equal buffer over a storage that has every member."""
        buffer = type(self).__new__(type(self))
        vars(buffer).update(vars(self))
        buffer.reader = self.reader.over(storage)
        make_room(buffer.reader.sampler, storage)
        buffer.row_writer = self.row_writer.over(buffer.reader)
        buffer.persistence = Persistence(buffer.reader, buffer.row_writer)
        if self._format is not None:
            buffer.reader.check_format(self._format)
        return buffer

    @property
    def writer(self) -> Writer:
        """Where rows are written."""
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
        """Write rows in place of others, which keep their priorities; see ``rows.write_at``."""
        if is_key(index):
            raise UsageError(f"Rows can be replaced, such as rb[:3] = rows; {index!r} is a column.")
        self.row_writer.replace(index, data)

    def add(self, data: Rows) -> int | torch.Tensor | None:
        """Write one row; return its number, or None where the writer refused it.

        With several dimensions it is one step of all environments, ``[environments...]``, and their
        numbers int64 ``[n, ndim]`` are returned.
        """
        storage = writable(self.reader)
        index = self.extend(storage.one_row(self._as_rows(data, storage.ndim - 1)))
        if self.reader.storage.ndim > 1:
            return index
        number = int(index.flatten()[0]) if index.numel() else -1
        return None if number < 0 else number

    def extend(self, data: Rows, update_priority: bool | None = None) -> torch.Tensor:
        """Write rows ``[n, ...]``, or a list of them; return their numbers int64.

        Args:
            data: rows; with several dimensions time comes last, ``[environments..., time]``. A
                nested dict of arrays of numpy becomes a TensorDict.
            update_priority: None or True; a sampler always learns which rows were written.

        Returns:
            ``[n]``, or ``[n, ndim]`` with several dimensions; -1 where the writer refused a row.

        Raises:
            ImmutableError: the rows are a dataset.
            UsageError: the rows are of another form than those that are there.
        """
        if update_priority is False:
            raise UsageError(
                f"{type(self).__name__} gives every row that is written a priority; "
                "update_priority=False is for a TensorDictReplayBuffer, whose rows may have one."
            )
        return self.row_writer.extend(self._as_rows(data, self.reader.storage.ndim))

    def _as_rows(self, data: Rows, ndim: int) -> Rows:
        """Return rows that are a nested dict of arrays as a TensorDict."""
        is_list = self.reader.storage.takes_lists
        if is_list and self.reader.collate_fn is not None:  # which takes the user's own items
            return data
        rows = rows_of_arrays(data, ndim, self._array_kinds)
        return rows.clone() if is_list and rows is not data else rows  # a list keeps what it gets

    def set_storage(self, storage: Storage, collate_fn: CollateFunction | None = None) -> Storage:
        """Use another storage and return the one before; its rows get the default priority."""
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
        """Use another writer and return the one before."""
        previous = self.writer
        self.row_writer.use_writer(as_writer(writer))
        self._carry_index(writer)
        return previous

    # What the parts do; their methods say what they take.
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
        """Rows written since the buffer was made or emptied, those replaced since among them."""
        return self.row_writer.writer.write_count

    def stats(self) -> dict[str, int | float | bool]:
        """Return what a monitor logs of the buffer, in TorchRL's words.

        ``size`` rows of ``capacity``, of which they are the part ``utilization``, ``write_count``,
        ``prefetch_queue_size``, and ``initialized``, which is True. A dataset is full.
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
        """Let batches carry the rows' numbers where the writer asks for it."""
        indexed = isinstance(writer, TensorDictRoundRobinWriter)
        info = self._sample_info
        self.reader.sample_info = SampleInfo(info.index or indexed, info.marks)
        warn_of_index(self.reader.storage, self.reader.sample_info)
