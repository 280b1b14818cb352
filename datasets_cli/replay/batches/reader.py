"""Reading batches: a sampler draws rows of a storage, which become a batch."""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tensordict import LazyStackedTensorDict, TensorDictBase

from datasets_cli.errors import NotWritable, Unsupported, UsageError, wrong_value
from datasets_cli.replay.arguments import Rows, StateDict, chosen_size, nested_key, whole_number
from datasets_cli.replay.batches.ahead import STALE, DrawnBatch, Prefetch, ReadAhead, side_stream_of
from datasets_cli.replay.batches.drawing import DrawGenerator, access_to, check_generator
from datasets_cli.replay.batches.formats import BatchFormat
from datasets_cli.replay.batches.row_numbers import unravel_rows
from datasets_cli.replay.samplers.protocol import Info, Sampler, draw_rows
from datasets_cli.replay.storages.collate import map_rows
from datasets_cli.replay.storages.process_lock import call_after_fork
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.storages.shared import SharedStorage
from datasets_cli.replay.transforms.transform import Compose, TransformLike, as_transform, parts_of
from datasets_cli.schema.bits import to_tensor
from datasets_cli.schema.columns import Key
from datasets_cli.schema.mapping import can_page_lock, sent
from datasets_cli.schema.shapes import RowNumbers
from datasets_cli.schema.tree import Tree, entry, put

IN_PLACE_BYTES = 4096
"""The size of rows up to which a dataset is gathered in place; frames are larger."""


@dataclass(frozen=True)
class SampleInfo:
    """Whether a batch of TensorDicts carries its row numbers, and the sampler's info."""

    index: bool = False
    info: bool = False

    def describe(
        self,
        rows: Tree | TensorDictBase,
        index: RowNumbers,
        info: Info,
        storage: Storage,
        sampler: Sampler,
    ) -> None:
        """Add row numbers and info to a batch, and the flags of slice ends to ``info``.

        ``rows`` is the batch ``[B]``, or the nested dict of its leaves; ``index`` is flat.
        """
        inner: tuple[int, ...] = storage.row_batch_size
        if not isinstance(rows, dict):
            rows = _rows_first(rows)
            inner = rows.batch_size[1:]
            if -1 in inner:
                for part in _parts(rows, index, info):
                    self.describe(*part, storage, sampler)
                return
        numbers = index if storage.ndim == 1 else unravel_rows(storage, index)
        if self.info and not info and not inner:  # the most common batch: no more steps
            rows["index"] = numbers
            return
        if not inner:
            info.update(slice_flags(rows, sampler, info))
        carried: Info = {("index",): numbers} if self.index or self.info else {}
        if self.info:
            carried |= info
        if inner:  # rows have a batch size: repeat each entry for the whole row
            carried = {key: expand_to_rows(column, inner) for key, column in carried.items()}
            if self.info:
                carried |= slice_flags(rows, sampler, carried)
        to_output = storage.device_options.to_output  # flags were computed on the CPU or a device
        for key, column in carried.items():
            put(rows, key, to_output(column))

    def restore(self, batch: Any, index: RowNumbers, info: Info, storage: Storage) -> None:
        """Restore the entries that a transform dropped and that priorities need."""
        if not self.info or not isinstance(batch, TensorDictBase):
            return
        batch = _rows_first(batch)
        if batch.batch_size[:1] != index.shape:
            return
        if -1 in batch.batch_size:
            for part in _parts(batch, index, info):
                self.restore(*part, storage)
            return
        for key, column in {("index",): unravel_rows(storage, index), **info}.items():
            if len(key) == 1 and key[0] not in batch.keys():  # noqa: SIM118
                batch[key[0]] = expand_to_rows(column, batch.batch_size[1:])


def _rows_first(rows: Any) -> Any:
    """Return a batch with rows along the first dimension; it shares its entries with ``rows``."""
    # A lazy stack may have rows along another dimension.
    if isinstance(rows, LazyStackedTensorDict) and rows.stack_dim:
        return LazyStackedTensorDict(*rows.tensordicts, stack_dim=0)
    return rows


def _parts(
    rows: LazyStackedTensorDict, index: RowNumbers, info: Info
) -> Iterator[tuple[LazyStackedTensorDict, RowNumbers, Info]]:
    """Yield each row as a batch of one, because rows have different batch sizes."""
    for number, row in enumerate(rows.tensordicts):
        one = slice(number, number + 1)
        part = {key: column[one] for key, column in info.items()}
        yield LazyStackedTensorDict(row, stack_dim=0), index[one], part


def expand_to_rows(column: torch.Tensor, row_batch_size: tuple[int, ...]) -> torch.Tensor:
    """Repeat one entry per row ``[B, ...]`` for the whole row: ``[B, *row_batch_size, ...]``."""
    for _ in row_batch_size:
        column = column.unsqueeze(1)
    trailing = column.shape[1 + len(row_batch_size) :]
    return column.expand(-1, *row_batch_size, *trailing).contiguous()


def slice_flags(
    rows: Tree | TensorDictBase, sampler: Sampler, info: Info
) -> dict[Key, torch.Tensor]:
    """Return the flags bool ``[B, 1]`` of the first and last rows of slices.

    stored done       0 0 0 1 0 0
    last of a slice   0 0 1 0 0 1
    done              0 0 1 1 0 1
    """
    flags: dict[Key, torch.Tensor] = {}
    truncated_key = sampler.truncated_key
    if truncated_key is not None and (last := info.get(truncated_key)) is not None:
        done_key, terminated_key = _beside(truncated_key)
        done, terminated = _stored(rows, done_key), _stored(rows, terminated_key)
        flags[done_key] = last.clone() if done is None else done | _like(last, done)
        flags[terminated_key] = torch.zeros_like(last) if terminated is None else terminated
    init_key = sampler.init_key
    if init_key is not None and (first := info.get(init_key)) is not None:
        stored = _stored(rows, init_key)
        if stored is not None:
            flags[init_key] = stored | _like(first, stored)
    return flags


def _stored(rows: Tree | TensorDictBase, key: Key) -> torch.Tensor | None:
    """Return an entry of a batch as a tensor, or None."""
    leaf: torch.Tensor | np.ndarray | None = entry(rows, key)
    return to_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf


@functools.cache
def _beside(truncated_key: Key) -> tuple[Key, Key]:
    """Return the keys of the done and terminated flags beside a truncated flag."""
    return (*truncated_key[:-1], "done"), (*truncated_key[:-1], "terminated")


def _like(flag: torch.Tensor, stored: torch.Tensor) -> torch.Tensor:
    """Return a flag in the shape of a stored one; comparing shapes is cheaper than a view."""
    return flag if flag.shape == stored.shape else flag.view(stored.shape)


CollateFunction = Callable[[Rows], Rows]
"""A function from a list of rows, or from a batch of a storage, to the batch."""


class BatchMaker:
    """The half of a batch reader that turns gathered rows into a batch."""

    storage: Storage
    sampler: Sampler
    transform: Compose
    collate_fn: CollateFunction | None
    sample_info: SampleInfo
    _pin_memory: bool
    _to_output: Callable[[torch.Tensor], torch.Tensor] | None
    _checked: BatchFormat | None

    def check_format(self, batch_format: BatchFormat) -> None:
        """Check that a format can represent the batches, as far as the storage shows it."""
        if self._is_direct:  # a transform may give other types than the storage
            batch_format.check(self.storage)
            self._checked = batch_format

    def check_transform(
        self, transform: TransformLike, sampler: Sampler, storage: Storage, rows: Rows = None
    ) -> None:
        """Check that a transform gets the consecutive steps, or the written rows, that it needs.

        ``rows`` are the first rows to write: an empty storage does not know their shape.
        """
        row_shape = storage.row_batch_size if len(storage) else None
        if isinstance(rows, TensorDictBase):
            row_shape = rows.shape[storage.ndim :]
        is_split = row_shape == () and self.collate_fn is None and not sampler.has_slices
        for part, inverted in parts_of(as_transform(transform)):
            reads = part.only_writes == inverted
            name = type(part).__name__
            if reads and part.needs_steps and is_split:
                raise Unsupported(
                    f"{name} needs consecutive steps, but {sampler!r} draws single rows.",
                    argument="transform",
                    found=name,
                    advice="Use a SliceSampler, or slice_len= of a dataset. Or call "
                    f"{name} on replay.episode(0), or write its result with preprocess().",
                )
            if not (reads or storage.is_writable) and (part.needs_steps or part.only_writes):
                raise NotWritable(
                    f"{name} transforms rows when they are written; a dataset is read-only.",
                    argument="transform",
                    found=name,
                    advice="Write its result into a new dataset with preprocess().",
                )

    def _takes_arrays(self, batch_format: BatchFormat) -> bool:
        """Return whether batches contain the arrays of the storage."""
        if not self._is_direct:
            return False
        if self._checked is not batch_format:
            self.check_format(batch_format)
        return True

    @property
    def _is_direct(self) -> bool:
        """Whether gathered rows become batches without a TensorDict."""
        is_changed = self.transform.steps or self.collate_fn is not None or self._pin_memory
        return self.storage.is_tensordict and not is_changed

    def _make_batch(
        self, index: RowNumbers, info: Info, rows: Rows, batch_format: BatchFormat | None
    ) -> Rows:
        """Return gathered rows as a batch: collated, transformed, in a format."""
        if self._to_output is not None:
            index = self._to_output(index)
            info.update({key: self._to_output(column) for key, column in info.items()})
        storage, collate_fn = self.storage, self.collate_fn
        if storage.is_tensordict:  # adding entries to the nested dict is ten times as fast
            self.sampler.relabel(rows, info)
            self.sample_info.describe(rows, index, info, storage, self.sampler)
            if batch_format is not None and self._is_direct:
                return batch_format.from_tree(rows)
            batch = storage.as_batch(rows, index.shape)
            if collate_fn is not None:
                batch = collate_fn(batch)
        else:
            batch = storage.collate(rows) if collate_fn is None else collate_fn(rows)
            if isinstance(batch, TensorDictBase):
                self.sampler.relabel(batch, info)
                self.sample_info.describe(batch, index, info, storage, self.sampler)
        if self._pin_memory:
            batch = map_rows(lambda part: part.pin_memory(), batch)
        if self.transform.steps:
            batch = self.transform(batch)
            self.sample_info.restore(batch, index, info, self.storage)
        return batch if batch_format is None else batch_format.from_batch(batch)


class BatchReader(BatchMaker):
    """Draws and gathers the batches of a replay buffer; writes wait while it gathers."""

    def __init__(
        self,
        *,
        storage: Storage,
        sampler: Sampler,
        transform: Compose,
        batch_size: int | None,
        collate_fn: CollateFunction | None,
        pin_memory: bool,
        prefetch: int | None,
        generator: torch.Generator | None,
        seed: int | None,
        sample_info: SampleInfo,
    ) -> None:
        self.batch_size = None if batch_size is None else whole_number("batch_size", batch_size, 1)
        self._depth = None if prefetch is None else whole_number("prefetch", prefetch, 0)
        if self._depth and batch_size is None:
            raise UsageError(
                f"prefetch={self._depth} requires a batch size.",
                argument="prefetch",
                found=self._depth,
                advice="Pass batch_size=.",
            )
        if collate_fn is not None and not callable(collate_fn):
            raise wrong_value("collate_fn", "a function of a batch", collate_fn)
        self.sampler = sampler
        self.transform = transform
        self.collate_fn = collate_fn
        self._draws_from = DrawGenerator(generator, seed)
        check_generator(generator, sampler)
        self.sample_info = sample_info
        self.priority_key: Key | None = None  # of the priorities of written rows
        self._pin_memory = can_page_lock(pin_memory)
        self.check_transform(transform, sampler, storage)
        self._start(storage)

    def _start(self, storage: Storage) -> None:
        """Start reading a storage."""
        self.ran_out = False
        self._ahead_format: BatchFormat | None = None  # of the prefetched batches
        self.use_storage(storage)
        call_after_fork(self)

    @property
    def lock(self) -> AbstractContextManager[object]:
        """The lock that a writer holds."""
        return self._access.lock(self)

    def check_priorities(self) -> None:
        """Check that this process has the priorities of the sampler."""
        self._access.check_priorities(self)

    def share(self, storage: SharedStorage) -> None:
        """Replace the storage by the shared one to which its rows were moved."""
        self.rewind()
        self.storage = storage
        self._access = access_to(storage)

    @property
    def generator(self) -> torch.Generator:
        """The generator of the draws."""
        return self._draws_from.get(is_writable=self.storage.is_writable)

    def use_generator(self, generator: torch.Generator | None, seed: int | None = None) -> None:
        """Replace the generator, or seed a private one."""
        self.rewind()
        draws_from = DrawGenerator(generator, seed)
        check_generator(generator, self.sampler)
        self._draws_from = draws_from

    def hand_out_generator(self) -> torch.Generator:
        """Return the generator to the caller, and stop reading ahead."""
        self.rewind()
        generator = self.generator
        self._draws_from.is_private = False
        return generator

    def with_storage(self, storage: Storage) -> BatchReader:
        """Return an equal reader of another storage, with separate draws."""
        # Epochs and priorities start again; a generator of the caller and the steps of the
        # transform are shared.
        reader = type(self).__new__(type(self))
        vars(reader).update(vars(self))
        reader.sampler = copy.deepcopy(self.sampler)
        reader.sampler.on_clear()
        reader.transform = self.transform[:]
        reader._draws_from = self._draws_from.again()
        reader._start(storage)
        return reader

    def use_storage(self, storage: Storage) -> None:
        """Replace the storage."""
        self.storage = storage
        self._checked: BatchFormat | None = None  # the last checked format
        self._ahead: ReadAhead | None = None  # created for the first batch
        self._reads_ahead = bool(storage.row_bytes)
        # Gathering small rows takes less time than passing a batch between threads
        # (benchmarks/batches.py). Rows that can change are still drawn `prefetch` batches early.
        can_change = storage.is_writable or self.sampler.has_priorities
        self._are_cheap = 0 < storage.row_bytes <= IN_PLACE_BYTES and not can_change
        self._access = access_to(storage)
        self.refusal = ""  # the message if this process cannot write the rows
        options = storage.device_options
        self._to_output = options.to_output if options.moves else None
        self._begin()

    def after_fork(self) -> None:
        """Restart in a forked process, which does not have the threads of its parent."""
        if self._ahead is not None:
            self._ahead.rewind()
        self._draws_from.after_copy()
        self._ahead = None
        self._access.after_fork()
        self._begin()

    def sample(
        self, batch_size: int | None, return_info: bool, batch_format: BatchFormat | None = None
    ) -> Rows:
        """Return a batch, or ``(batch, info)``; see ``ReplayBuffer.sample``."""
        size = self.batch_size if batch_size is None else batch_size
        if type(size) is not int or size < 1:
            size = chosen_size(size, None)
        prefetch = self._prefetch
        if prefetch is None or (self._are_cheap and self._adds_nothing):
            index, info, rows = self._take(size, batch_format)
            batch = self._make_batch(index, info, rows, batch_format)
            self.ran_out = self.sampler.ran_out
        else:
            if size != prefetch.size or batch_format is not self._ahead_format:
                self.rewind()
                self._ahead_format = batch_format
            draw, batch = prefetch.take(size)
            index, info, self.ran_out = draw.index, draw.info, draw.is_last
        if not return_info:
            return batch
        details: dict[str | tuple[str, ...], torch.Tensor] = {
            "index": unravel_rows(self.storage, index)
        }
        for key, column in info.items():
            details[nested_key(key)] = column
        return batch, details if batch_format is None else batch_format.from_batch(details)

    @property
    def _adds_nothing(self) -> bool:
        return not self.transform.steps and self.collate_fn is None and self._to_output is None

    @property
    def num_ahead(self) -> int:
        """The number of prefetched batches."""
        return 0 if self._prefetch is None else self._prefetch.num_waiting

    def draw_state(self) -> StateDict:
        """Return the states of sampler and generator, as if nothing was read ahead."""
        with self.threads:  # no other thread draws between the parts of the state
            if self._ahead is not None:
                self._ahead.rewind()
            ahead = self._prefetch.oldest if self._prefetch else None
            draws = ahead.state_before if ahead else self._draws()
            sampler = draws["sampler"]
            return {**draws, "sampler": self.sampler.state_dict() if sampler is None else sampler}

    def rewind(self) -> None:
        """Undo the draws ahead, so that an epoch does not lose rows."""
        with self.threads:
            if self._ahead is not None:
                self._ahead.rewind()
            if self._prefetch and (ahead := self._prefetch.oldest):
                self._undo(ahead)

    def drop(self) -> None:
        """Discard the draws ahead, because their rows no longer exist."""
        if self._ahead is not None:
            self._ahead.drop()
        if self._prefetch:
            self._prefetch.drop()

    def _begin(self) -> None:
        """Create the lock and the prefetch queue of this process."""
        self.threads = threading.RLock()
        self._prefetch: Prefetch | None = None
        if self._depth and self.batch_size:
            steps = self._draw_ahead, self._make_ahead, self._undo
            stream = side_stream_of(self.storage)
            self._prefetch = Prefetch(self._depth, self.batch_size, *steps, self.threads, stream)

    def _take(self, size: int, batch_format: BatchFormat | None) -> tuple[RowNumbers, Info, Rows]:
        """Draw rows under the lock of the threads, and gather them."""
        with self.threads:
            if self._ahead is None and self._reads_ahead:
                self._ahead = ReadAhead(self.storage)
            ahead = self._ahead
            taken = None if ahead is None else ahead.take(self.sampler, size, self._draws_from)
            if taken is None:
                if self.storage.is_writable:
                    return self._access.take(self, size)
                index, info = draw_rows(self.sampler, self.storage, size, self.generator)
                if (device := self.storage.index_device) is not None:
                    index = sent(index, device)
        if taken is None:  # immutable rows are gathered without the lock
            return index, info, self._gather(index, batch_format)
        index, info, block, start = taken
        if batch_format is not None and self._takes_arrays(batch_format):
            return index, info, block.arrays(start, start + size)
        return index, info, block.tree(start, start + size)

    def _gather(self, index: RowNumbers, batch_format: BatchFormat | None) -> Rows:
        """Return copies of rows, as arrays if batches contain them unchanged."""
        block = None
        if batch_format is not None and self._takes_arrays(batch_format):
            block = self.storage.read(index)
        return self.storage.gather(index) if block is None else block.arrays(0, len(block))

    def _draw_ahead(self, size: int) -> DrawnBatch:
        if self._ahead is not None:  # batches without the thread were read ahead
            self._ahead.rewind()
        state = self._draws()
        index, info, rows = self._access.draw(self, size)
        return DrawnBatch(index, info, self.sampler.ran_out, self.storage.revision, state, rows)

    def _make_ahead(self, draw: DrawnBatch) -> Rows:
        batch_format = self._ahead_format
        index = sent(draw.index, self.storage.index_device)
        if draw.rows is not None:
            rows = draw.rows
        elif not self.storage.is_writable:
            rows = self._gather(index, batch_format)
        else:
            with self.threads:
                if self.storage.revision != draw.revision:
                    return STALE
                rows = self.storage.gather(index)
        return self._make_batch(index, draw.info, rows, batch_format)

    def _draws(self) -> StateDict:
        """Return the state from which the next draw can be repeated."""
        # Without priorities, which belong to the rows.
        sampler = None if self.sampler.has_priorities else self.sampler.state_dict()
        return {"sampler": sampler, "generator": self.generator.get_state()}

    def _undo(self, draw: DrawnBatch) -> None:
        """Undo a draw and all later ones."""
        self.drop()
        if draw.state_before["sampler"] is not None:
            self.sampler.load_state_dict(draw.state_before["sampler"])
        if self.generator is not torch.default_generator:  # the global one belongs to the user
            self.generator.set_state(draw.state_before["generator"])

    def __getstate__(self) -> StateDict:
        # A copy continues after the last returned batch; see BatchStream for streams of workers.
        self.rewind()
        made_here = {"threads": None, "_prefetch": None, "_ahead": None}
        return {**self.__dict__, **made_here}

    def __setstate__(self, state: StateDict) -> None:
        self.__dict__.update(state)
        if not isinstance(self.storage, SharedStorage):
            self._access = access_to(self.storage)
        self._begin()
        call_after_fork(self)
