"""The half of a replay buffer that reads: batches, rows and trajectories, in a format."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, Self

import torch
from tensordict import TensorDictBase
from torch.utils.data._utils.collate import default_collate_fn_map

from datasets_cli.errors import UsageError, argument
from datasets_cli.replay.arguments import Index, Rows
from datasets_cli.replay.buffers.parts import as_sampler, given, make_room
from datasets_cli.replay.draws.protocol import Sampler
from datasets_cli.replay.nested_keys import NestedKey
from datasets_cli.replay.queries.query import Predicate, query
from datasets_cli.replay.queries.trajectory import Trajectory
from datasets_cli.replay.rows.batch_format import BatchFormat
from datasets_cli.replay.rows.jax_format import JaxFormat
from datasets_cli.replay.rows.numpy_format import NumpyFormat
from datasets_cli.replay.rows.reader import BatchReader
from datasets_cli.replay.rows.row_numbers import is_key, rows_at
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.trajectories.table import Trajectories
from datasets_cli.replay.transforms.compose import Compose
from datasets_cli.replay.transforms.transform import Inverted, TransformLike
from datasets_cli.schema.columns import Key

NAMES = ("torch", "numpy", "jax")
DTYPES = "transform=DTypeCastTransform(torch.float32, torch.float16) gives other element types."
"""What ``cast`` is mistaken for."""


def choose_format(name: str, *, cast: bool = False) -> BatchFormat | None:
    """Return the format that users call by a name; None for torch's."""
    if name not in NAMES:
        raise UsageError(f"format is one of {', '.join(map(repr, NAMES))}, not {name!r}.")
    if cast not in (False, True):
        raise UsageError(f"{argument('cast')} must be True or False, not {cast!r}. {DTYPES}")
    if cast and name != "jax":
        raise UsageError(
            f"cast=True is for format 'jax', which may have 32 bits only; {name!r} gives every "
            f"number as it is stored. {DTYPES}"
        )
    if name == "numpy":
        return NumpyFormat()
    if name == "jax":
        if find_spec("jax") is None:
            raise UsageError("format 'jax' needs jax: pip install 'rlds-cli[jax]'")
        return JaxFormat(cast)
    return None


class LoadedArrays(dict[str, Any]):
    """A batch of arrays, of which torch's default function asks for the first of several."""

    def __missing__(self, key: object) -> None:
        raise UsageError(
            f"There is no {key!r} in a batch of arrays, {reprlib.repr([*self])}. Give the "
            "DataLoader collate_fn=datasets_cli.replay.loaders.whole_batch, or the buffer no "
            "format."
        )


def _whole(batch: TensorDictBase | list[TensorDictBase], **_: object) -> TensorDictBase:
    """Return TensorDicts as one: what a buffer gives a DataLoader is one already."""
    return batch if isinstance(batch, TensorDictBase) else torch.stack(batch)


# Torch's default function knows what is in here; of TensorDicts it makes nothing by itself.
default_collate_fn_map.setdefault(TensorDictBase, _whole)


class ReadableBuffer:
    """What is read of a replay buffer; the rows may be written meanwhile, by another thread.

    Attributes:
        reader: what makes the batches; it has the parts that are in use.
    """

    reader: BatchReader
    _format: BatchFormat | None = None

    @property
    def format(self) -> str:
        """What batches are made of: ``"torch"``, ``"numpy"`` or ``"jax"``."""
        return "torch" if self._format is None else self._format.name

    def _use_format(self, batch_format: BatchFormat | None) -> None:
        if batch_format is not None:
            self.reader.check_format(batch_format)
        self._format = batch_format

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
        """What rows are drawn from; the caller may draw from it, so nothing is read ahead then."""
        return self.reader.hand_out_generator()

    @property
    def ran_out(self) -> bool:
        """Whether the batch just sampled was the last of an epoch."""
        return self.reader.ran_out

    def __len__(self) -> int:
        return len(self.reader.storage)

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
        """Yield batches: forever, or to the end of an epoch when sampling without replacement."""
        if self.batch_size is None:
            raise UsageError("Iteration needs a batch size. Give the buffer a batch_size.")
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
        """Return rows as one batch: what ``torch.utils.data.DataLoader`` asks a dataset for."""
        rows = self[index]
        return LoadedArrays(rows) if type(rows) is dict else rows

    def _transformed(self, index: Index) -> Rows:
        """Return copies of rows as the transform makes them, in no format."""
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

        Such as ``rb.query((traj.reward.sum() > 100) & (traj.length >= 50))``. The condition sees
        rows as the transform makes them. Of a buffer without one, a condition of ``traj`` reads
        nothing but the entries that it names.

        Args:
            predicate: a condition of ``traj``, or a function that takes a trajectory and says
                whether it is wanted; all where None.
            trajectory_key: where numbers are that change between trajectories. Where None, a
                dataset's own trajectories, and of written rows see ``iter_trajectories``.

        Raises:
            UsageError: the argument is not a condition, or reads what rows lack; nothing tells
                trajectories apart; rows are not TensorDicts; or those of a dataset would take more
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

    def set_sampler(self, sampler: Sampler) -> Sampler:
        """Use another sampler and return the one before."""
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
        """Apply one more transform to every batch, after the others; return the buffer.

        Args:
            transform: any callable from batch to batch.
            invert: apply it to what is written instead, and its ``inv`` to batches.

        Raises:
            UsageError: it needs steps in a row that the sampler does not draw, or rows to write.
        """
        return self.insert_transform(len(self.transform), transform, invert=invert)

    def insert_transform(
        self, index: int, transform: TransformLike, *, invert: bool = False
    ) -> Self:
        """Apply one more transform at a place among the others; return the buffer."""
        added = Inverted(transform) if invert else transform
        self.reader.check_transform(added, self.reader.sampler, self.reader.storage)
        self.reader.rewind()
        self.transform.insert(index, added)
        return self
