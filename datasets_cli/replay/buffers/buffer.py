"""Replay buffers: a storage holds rows, a sampler draws them, a writer places new ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch
from tensordict import TensorDictBase

from datasets_cli.errors import UsageError
from datasets_cli.options import takes_fields
from datasets_cli.replay.arguments import (
    Index,
    NestedKey,
    Numbers,
    Rows,
    StateDict,
)
from datasets_cli.replay.buffers.options import BufferOptions
from datasets_cli.replay.buffers.parts import (
    as_sampler,
    as_storage,
    as_writer,
    check_room,
    given,
    storage_or_list,
    warn_of_index,
)
from datasets_cli.replay.draws.protocol import Sampler
from datasets_cli.replay.draws.rows import RandomSampler
from datasets_cli.replay.keeping.dump import Hook
from datasets_cli.replay.keeping.keeping import Persistence
from datasets_cli.replay.queries.query import Predicate, query
from datasets_cli.replay.queries.trajectory import Trajectory
from datasets_cli.replay.rows.batch_format import BatchFormat
from datasets_cli.replay.rows.format_choice import choose_format
from datasets_cli.replay.rows.reader import BatchReader, CollateFunction
from datasets_cli.replay.rows.replace import clear_rows, writable
from datasets_cli.replay.rows.row_numbers import is_key, rows_at
from datasets_cli.replay.rows.row_writer import RowWriter
from datasets_cli.replay.rows.sample_info import SampleInfo
from datasets_cli.replay.rows.writers import TensorDictRoundRobinWriter, Writer
from datasets_cli.replay.storages.protocol import Storage, is_writable
from datasets_cli.replay.torchrl_words import BUFFER, takes
from datasets_cli.replay.trajectories.table import Trajectories
from datasets_cli.replay.transforms.compose import Compose
from datasets_cli.replay.transforms.transform import Inverted, TransformLike
from datasets_cli.schema.columns import Key


@takes(**BUFFER)
class ReplayBuffer:
    """Samples batches from a storage, and writes rows into one that takes them.

    One thread may write while another samples.

    Raises:
        UsageError: arguments that exclude one another, a storage that cannot be shared, or one
            whose rows a format does not have.

    Attributes:
        reader: what makes the batches; it has the parts that are in use.
        row_writer: what writes the rows.
    """

    _sample_info = SampleInfo()

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
        check_room(self.reader.sampler, self.reader.storage)
        writer = None if options.writer is None else as_writer(options.writer)
        self.row_writer = RowWriter(self.reader, writer)
        self._carry_index(options.writer)
        self._format: BatchFormat | None = None
        if options.format != "torch":
            self._use_format(choose_format(options.format))
        if options.shared:
            self.share()

    @cached_property
    def persistence(self) -> Persistence:
        """What dumps and restores the buffer."""
        return Persistence(self.reader, self.row_writer)

    @property
    def shared(self) -> bool:
        """Whether other processes that the buffer reaches read and write the same rows."""
        return self.reader.storage.sharing is not None

    def share(self) -> Self:
        """Let other processes read and write the same rows from now on; return the buffer.

        It reaches them as an argument of a process, forked or spawned, or by a pickle. One writes
        at a time; priorities stay with this process, which samples by them.

        Raises:
            ImmutableError: the rows are a dataset, which needs no sharing.
            UsageError: the storage cannot be shared: it is a list, or on another device.
        """
        self.row_writer.share()
        return self

    @property
    def format(self) -> str:
        """What batches are made of: ``"torch"``, ``"numpy"`` or ``"jax"``."""
        return "torch" if self._format is None else self._format.name

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

    def _use_format(self, batch_format: BatchFormat | None) -> None:
        if batch_format is not None:
            self.reader.check_format(batch_format)
        self._format = batch_format

    def over(self, storage: Storage) -> Self:
        """Return an equal buffer over other rows, which draws and counts epochs by itself.

        Priorities begin at their default. A generator that was given is shared, and so are the
        steps of the transform; a seed begins again.

        Raises:
            UsageError: the sampler has priorities for fewer rows, or the format cannot have them.
        """
        return self._over(as_storage(storage))

    def _over(self, storage: Storage) -> Self:
        """Return an equal buffer over a storage that has every member."""
        buffer = type(self).__new__(type(self))
        vars(buffer).update(vars(self))
        buffer.reader = self.reader.over(storage)
        check_room(buffer.reader.sampler, storage)
        buffer.row_writer = self.row_writer.over(buffer.reader)
        buffer.persistence = Persistence(buffer.reader, buffer.row_writer)
        if self._format is not None:
            buffer.reader.check_format(self._format)
        return buffer

    @property
    def storage(self) -> Storage:
        """Where the rows are."""
        found: Storage = given(self.reader.storage)
        return found

    @property
    def sampler(self) -> Sampler:
        """How rows are drawn."""
        found: Sampler = given(self.reader.sampler)
        return found

    @property
    def writer(self) -> Writer:
        """Where rows are written."""
        found: Writer = given(self.row_writer.writer)
        return found

    @property
    def transform(self) -> Compose:
        """What is applied to every batch."""
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
        """What rows are drawn from; who asks may draw from it, so nothing is read ahead then."""
        return self.reader.hand_out_generator()

    @property
    def ran_out(self) -> bool:
        """Whether the batch just sampled was the last of an epoch."""
        return self.reader.ran_out

    def __len__(self) -> int:
        return len(self.reader.storage)

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
        return f"{type(self).__name__}({lines})"

    def sample(self, batch_size: int | None = None, return_info: bool = False) -> Rows:
        """Return a batch of copies: a TensorDict ``[B]``, or what the rows are, or arrays of these.

        Args:
            batch_size: rows to draw; the buffer's own by default.
            return_info: return ``(batch, info)``, where info has ``index`` int64 ``[B]``, or
                ``[B, ndim]`` with several dimensions, and what else the sampler says of the rows.

        Raises:
            UsageError: no batch size is given here or to the buffer, there are no rows, or the
                sampler refuses the size.
        """
        return self.reader.sample(batch_size, return_info, self._format)

    def __iter__(self) -> Iterator[Rows]:
        """Yield batches: for ever, or to the end of an epoch when sampling without replacement."""
        if self.batch_size is None:
            raise UsageError("Iteration needs a batch size. Give the buffer a batch_size.")
        while True:
            yield self.sample()
            if self.ran_out:
                return

    def __getitem__(self, index: Index) -> Rows:
        """Return copies of rows, or of a whole column."""
        if not is_key(index):
            with self.reader.lock:
                rows = rows_at(self.reader.storage, index)
            return self._formatted(self.transform(rows))
        if self.transform or self.reader.storage.ndim > 1:
            return self._formatted(self.with_format("torch")[:][index])
        with self.reader.lock:
            key = (index,) if isinstance(index, str) else index
            column = self.reader.storage.column(key)
        return self._formatted(column, key)

    def _formatted(self, rows: Rows, key: Key = ()) -> Rows:
        """Return rows, or the column of a key, in the format of this buffer."""
        return rows if self._format is None else self._format.from_batch(rows, key)

    def __setitem__(self, index: Index, data: Rows) -> None:
        """Write rows in place of others, which keep their priorities; see ``rows.write_at``."""
        if is_key(index):
            raise UsageError(f"Rows can be replaced, such as rb[:3] = rows; {index!r} is a column.")
        self.row_writer.replace(index, data)

    def query(
        self, predicate: Predicate | None = None, *, trajectory_key: NestedKey | None = None
    ) -> list[Trajectory]:
        """Return the trajectories for which a condition holds, as TensorDicts, the oldest first.

        Such as ``rb.query((traj.reward.sum() > 100) & (traj.length >= 50))``. The condition sees
        rows as the transform makes them. Of a buffer without one, a condition of ``traj`` reads
        nothing but the entries that it names.

        Args:
            predicate: a condition of ``traj``, or a function that takes a trajectory and says
                whether it is wanted; all where None.
            trajectory_key: where numbers are that change between trajectories. Where None, a
                dataset's own trajectories, and of written rows see ``iter_trajectories``.

        Raises:
            UsageError: what is given is no condition, or reads what rows do not have; nothing tells
                trajectories apart; rows are no TensorDicts; or those of a dataset would take more
                than half of the free memory.
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

    def __getitems__(self, index: list[int]) -> Rows:
        """Return rows as one batch: what ``torch.utils.data.DataLoader`` asks a dataset for."""
        # Give the loader `collate_fn=loaders.whole_batch`.
        return self[index]

    def add(self, data: Rows) -> int | torch.Tensor | None:
        """Write one row; return its number, or None where the writer refused it.

        With several dimensions it is one step of all environments, ``[environments...]``, and their
        numbers int64 ``[n, ndim]`` are returned.
        """
        index = self.extend(writable(self.reader).one_row(data))
        if self.reader.storage.ndim > 1:
            return index
        number = int(index.flatten()[0]) if index.numel() else -1
        return None if number < 0 else number

    def extend(self, data: Rows, update_priority: bool | None = None) -> torch.Tensor:
        """Write rows ``[n, ...]``, or a list of them; return their numbers int64.

        Args:
            data: rows; with several dimensions time comes last, ``[environments..., time]``.
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
        return self.row_writer.extend(data)

    def empty(self, empty_write_count: bool = True) -> None:
        """Forget every row.

        Args:
            empty_write_count: let ``write_count`` begin at 0 again.

        Raises:
            ImmutableError: they are a dataset.
        """
        with self.reader.lock:
            written = self.write_count
            clear_rows(self.reader, self.row_writer.writer)
            if not empty_write_count:
                self.row_writer.writer.write_count = written

    def update_priority(self, index: Numbers, priority: Numbers) -> None:
        """Give rows new priorities; nothing happens unless the sampler has any.

        Args:
            index: whole numbers ``[B]``, or ``[B, ndim]`` with several dimensions; tensors, or
                arrays of numpy or jax, as are the priorities.
            priority: float ``[B]``, or one number for all.
        """
        self.row_writer.update_priority(index, priority)

    def set_storage(self, storage: Storage, collate_fn: CollateFunction | None = None) -> Storage:
        """Use another storage and return the one before; its rows get the default priority.

        Raises:
            UsageError: it has more room than the sampler has priorities for.
        """
        found = as_storage(storage)
        check_room(self.reader.sampler, found)
        self.reader.rewind()
        previous = self.storage
        self.reader.use_storage(found)
        self.reader.collate_fn = collate_fn or self.reader.collate_fn
        self.row_writer.use_writer(None)
        self._carry_index(None)
        self.reader.sampler.on_clear()
        return previous

    def set_sampler(self, sampler: Sampler) -> Sampler:
        """Use another sampler and return the one before.

        Raises:
            UsageError: it has priorities for fewer rows than the storage has room for.
        """
        found = as_sampler(sampler)
        check_room(found, self.reader.storage)
        self.reader.rewind()
        previous, self.reader.sampler = self.sampler, found
        return previous

    def set_writer(self, writer: Writer) -> Writer:
        """Use another writer and return the one before."""
        previous = self.writer
        self.row_writer.use_writer(as_writer(writer))
        self._carry_index(writer)
        return previous

    def set_rng(self, generator: torch.Generator) -> None:
        """Draw from another generator."""
        self.reader.use_generator(generator)

    def append_transform(self, transform: TransformLike, *, invert: bool = False) -> Self:
        """Apply one more transform to every batch, after the others; return the buffer.

        Args:
            transform: any callable from batch to batch.
            invert: apply it to what is written instead, and its ``inv`` to batches.
        """
        return self.insert_transform(len(self.transform), transform, invert=invert)

    def insert_transform(
        self, index: int, transform: TransformLike, *, invert: bool = False
    ) -> Self:
        """Apply one more transform at a place among the others; return the buffer."""
        self.reader.rewind()
        self.transform.insert(index, Inverted(transform) if invert else transform)
        return self

    def dumps(self, path: str | Path) -> None:
        """Write the rows there are, and where sampler and writer stand, into a folder.

        Of a dataset its id and content are written, and no rows. Tensorclasses become TensorDicts.

        Raises:
            UsageError: rows are neither TensorDicts nor tensors in lists, tuples and dicts; or
                TensorDicts with an entry that is neither a tensor nor text, bytes, a number, bool,
                None, or lists, tuples and dicts of these.
        """
        self.persistence.dump(path)

    def loads(self, path: str | Path, *, tensorclass: Any = None) -> None:
        """Read what ``dumps``, or TorchRL 0.14, wrote, in place of the rows there are.

        In a larger storage the rows of a ring begin with the oldest one. Nothing that the folder
        names is imported, and nothing in it is run.

        Args:
            path: the folder.
            tensorclass: the class that rows become; they are TensorDicts by default.

        Raises:
            ImmutableError: rows were dumped, and those there are are a dataset.
            FileNotFoundError: nothing was written there.
            DamagedDataset: a file is missing, too short, or not what it should be.
            UsageError: the storage has no room for the rows, or a dataset was dumped that is not
                this one, or there is something pickled.
        """
        with self.reader.lock:
            self.persistence.plan_load(path, tensorclass)()

    save = dump = dumps  # TorchRL's other names
    load = loads

    def state_dict(self) -> StateDict:
        """Return the state of the draws, and copies of the rows where these can be written.

        Loaded into an equal buffer, it continues with the same. Of a dataset it has the id and the
        content, and no rows. ``torch.load`` takes what ``torch.save`` wrote of it, by default.

        Raises:
            UsageError: a row has something else than tensors, text, bytes, numbers, bool, None, and
                lists, tuples, dicts and TensorDicts of these.
        """
        return self.persistence.state()

    def load_state_dict(self, state: StateDict, *, tensorclass: Any = None) -> None:
        """Continue where ``state`` was taken, with the rows that were there.

        Args:
            state: what ``state_dict`` returned.
            tensorclass: the class that rows become, where they were of one.

        Raises:
            UsageError: it is no state of such a buffer, or of a storage of another size, or of
                another dataset.
        """
        with self.reader.lock:
            self.persistence.plan_restore(state, tensorclass)()

    def register_save_hook(self, hook: Hook) -> None:
        """Let ``hook`` change the rows that ``dumps`` writes; it takes them and returns others."""
        self.persistence.save_hooks.append(hook)

    def register_load_hook(self, hook: Hook) -> None:
        """Let ``hook`` change the rows that ``loads`` read; it takes them and returns others."""
        self.persistence.load_hooks.append(hook)

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

    def set_(self, key: NestedKey, value: Rows) -> Self:
        """Replace an entry of all rows by another ``[N, ...]``; return the buffer."""
        return self.update_({key: value})

    def set_at_(self, key: NestedKey, value: Rows, index: Index) -> Self:
        """Replace an entry of some rows by another ``[n, ...]``; return the buffer."""
        self.row_writer.replace_entries({key: value}, index)
        return self

    def update_(
        self,
        input_dict_or_td: Mapping[NestedKey, Rows] | TensorDictBase,
        clone: bool = False,
        *,
        keys_to_update: Sequence[NestedKey] | None = None,
    ) -> Self:
        """Replace entries of all rows by others ``[N, ...]``; return the buffer.

        No transform acts on them, as in TorchRL.

        Args:
            input_dict_or_td: entries that the rows have.
            clone: given for compatibility; values are always copied.
            keys_to_update: which of them are written; all by default.

        Raises:
            ImmutableError: the rows are a dataset.
            UsageError: rows do not have such an entry, or it is of another shape or element type.
        """
        self.row_writer.replace_entries(input_dict_or_td, slice(None), keys_to_update)
        return self

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
