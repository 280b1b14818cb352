"""Opening a dataset of the ``compact`` layout: one gather a batch, whatever the number of keys."""

from __future__ import annotations

from typing import NamedTuple

import torch

from datasets_cli.store.compact.frames import FrameReader
from datasets_cli.store.compact.records import (
    RECORDS,
    ROW_MAP,
    Record,
    row_map_dtype,
)
from datasets_cli.store.schema.columns import EPISODE, Column, Key, successor_of
from datasets_cli.store.schema.device_options import DeviceOptions
from datasets_cli.store.schema.mapping import Files
from datasets_cli.store.schema.tree import Place, Tree, TreePlan


class Zone(NamedTuple):
    """The fields of one element type within a pair of records.

    Args:
        dtype: the element type that the whole pair is viewed as.
        sizes: how the view's columns are split: gaps and fields by turns, over both records.
        leaves: for each field wanted, which split it is, the shape it is viewed as (None where the
            split has it already), and its place in the tree.
    """

    dtype: torch.dtype
    sizes: list[int]
    leaves: list[tuple[int, tuple[int, ...] | None, int, str]]


class CompactRows:
    """The records and frames of a dataset, and how a batch is made of them.

    Args:
        files: those of the dataset folder.
        record: how records are laid out.
        num_rows: transitions N.
        device_options: where batches go. Frames stay on the disk.
    """

    def __init__(
        self,
        files: Files,
        record: Record,
        num_rows: int,
        device_options: DeviceOptions,
    ) -> None:
        self.record = record
        self._home, self._pinned = files.device, device_options.pin_memory
        self._to_output, self._contiguous = device_options.to_output, device_options.contiguous
        shape = (record.num_records, record.size)
        records = files.load(RECORDS, torch.uint8, shape)
        map_dtype = getattr(torch, row_map_dtype(record.num_records))
        self._row = files.load(ROW_MAP, map_dtype, (num_rows,))
        # Each row of this view is a record and the one behind it; rows overlap.
        self._pairs = records.as_strided(
            (max(0, record.num_records - 1), 2 * record.size), (record.size, 1)
        )
        columns = [field.column.key for field in record.fields]
        columns += [field.successor for field in record.fields if field.successor]
        columns += [column.key for column, _ in record.constants]
        columns += [column.key for column in record.made]
        columns += [field.column.key for field in record.frames]
        columns += [field.successor for field in record.frames if field.successor]
        self._plan = TreePlan(sorted(columns))
        self._zones = self._zones_of(record)
        self._zeros, self._constants = self._constants_of(record)
        made = {column.key for column in record.made}
        self._episode = self._plan.place(EPISODE) if EPISODE in made else None
        self._frames = [
            (
                FrameReader(files.folder / field.filename, record.num_records, field.column.shape),
                self._plan.place(field.column.key),
                self._plan.place(field.successor) if field.successor else None,
            )
            for field in record.frames
        ]

    def gather(self, index: torch.Tensor) -> Tree:
        """Return copies ``[B, ...]`` of the rows ``index`` int64 ``[B]``, as a nested dict.

        Those from records are views of one fresh tensor; they are strided, so ``view(-1)`` refuses.
        """
        if self._home is not None:
            index = index.to(self._home)
        row = self._row.index_select(0, index)
        packed = self._pairs.index_select(0, row)
        if self._pinned:  # one copy for all leaves that are views of it
            packed = self._to_output(packed)
        nodes, contiguous = self._plan.new(), self._contiguous
        for dtype, sizes, leaves in self._zones:
            parts = packed.view(dtype).split_with_sizes(sizes, 1)
            for part, shape, node, name in leaves:
                leaf = parts[part] if shape is None else parts[part].view(shape)
                nodes[node][name] = leaf.contiguous() if contiguous else leaf
        for shape, dtype, places in self._zeros:
            # One allocation for all flags that never change; each gets memory of its own.
            fresh = torch.zeros((len(places), len(index), *shape), dtype=dtype, device=self._home)
            if self._pinned:
                fresh = self._to_output(fresh)
            for leaf, (node, name) in zip(fresh.unbind(0), places, strict=True):
                nodes[node][name] = leaf
        for value, (node, name) in self._constants:
            fresh = value.expand(len(index), *value.shape).clone()
            nodes[node][name] = self._to_output(fresh) if self._pinned else fresh
        if self._episode is not None:
            node, name = self._episode
            episode = row - index
            nodes[node][name] = self._to_output(episode) if self._pinned else episode
        for reader, (node, name), successor in self._frames:
            where = row.cpu()
            if successor is None:
                nodes[node][name] = self._to_output(reader.read(where))
                continue
            # One decoding for both; the halves are contiguous.
            both = self._to_output(reader.read(torch.cat((where, where + 1))))
            nodes[node][name] = both[: len(row)]
            nodes[successor[0]][successor[1]] = both[len(row) :]
        return nodes[0]

    def history(
        self, key: Key, index: torch.Tensor, age: torch.Tensor, length: int
    ) -> torch.Tensor:
        """Return the last steps of a leaf and the one that follows; see ``dataset.Rows``."""
        row = self._row.index_select(0, index.to(self._row.device)).cpu().long().unsqueeze(1)
        steps = row - torch.minimum(torch.arange(length - 1, -2, -1), age.unsqueeze(1))
        for field, (reader, _, successor) in zip(self.record.frames, self._frames, strict=True):
            if field.column.key == key and successor is not None:
                frames = self._to_output(reader.read(steps.view(-1)))
                return frames.view(len(index), length + 1, *field.column.shape)
        # Small fields: the row itself and its successor need not be neighbours, so go by rows.
        return torch.stack(
            [
                *(
                    self._at(key, index - torch.clamp(age, max=n))
                    for n in range(length - 1, -1, -1)
                ),
                self._at(successor_of(key), index),
            ],
            dim=1,
        )

    def _at(self, key: Key, index: torch.Tensor) -> torch.Tensor:
        tree = self.gather(index)
        for name in key[:-1]:
            tree = tree[name]
        leaf = tree[key[-1]]
        assert isinstance(leaf, torch.Tensor)
        return leaf

    def _zones_of(self, record: Record) -> list[Zone]:
        by_dtype: dict[str, list[tuple[int, Column, Key]]] = {}
        for field in record.fields:
            places = by_dtype.setdefault(field.column.dtype, [])
            places.append((field.offset, field.column, field.column.key))
            if field.successor:
                places.append((record.size + field.offset, field.column, field.successor))
        return [self._zone(dtype, sorted(places), record) for dtype, places in by_dtype.items()]

    def _zone(self, dtype: str, places: list[tuple[int, Column, Key]], record: Record) -> Zone:
        torch_dtype = getattr(torch, dtype)
        item = torch_dtype.itemsize
        sizes: list[int] = []
        leaves: list[tuple[int, tuple[int, ...] | None, int, str]] = []
        position = 0
        for offset, column, key in places:
            if gap := offset // item - position:
                sizes.append(gap)
            width = column.row_bytes // item
            shape = None if len(column.shape) == 1 else (-1, *column.shape)
            leaves.append((len(sizes), shape, *self._plan.place(key)))
            sizes.append(width)
            position = offset // item + width
        if rest := 2 * record.size // item - position:
            sizes.append(rest)
        return Zone(torch_dtype, sizes, leaves)

    def _constants_of(
        self, record: Record
    ) -> tuple[
        list[tuple[tuple[int, ...], torch.dtype, list[Place]]], list[tuple[torch.Tensor, Place]]
    ]:
        """Return the columns that are zero, by row shape and type, and the others' values."""
        zeros: dict[tuple[tuple[int, ...], torch.dtype], list[Place]] = {}
        others = []
        for column, value in record.constants:
            place, dtype = self._plan.place(column.key), getattr(torch, column.dtype)
            if any(value):
                row = torch.frombuffer(bytearray(value), dtype=dtype).view(column.shape)
                others.append((row.to(self._row.device), place))
            else:
                zeros.setdefault((column.shape, dtype), []).append(place)
        return [(*key, places) for key, places in zeros.items()], others
