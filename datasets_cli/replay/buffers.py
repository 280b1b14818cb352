"""Replay buffers: a storage holds rows, a sampler draws them, a writer places them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from tensordict import TensorDict

from datasets_cli.errors import UsageError
from datasets_cli.replay.frame_stack import FrameStack
from datasets_cli.replay.prefetch import Draw, Prefetch
from datasets_cli.replay.samplers import Info, RandomSampler, Sampler
from datasets_cli.replay.storage import DatasetStorage, make_batch
from datasets_cli.replay.writers import ImmutableDatasetWriter
from datasets_cli.store.tree import Tree

Transform = Callable[[TensorDict], TensorDict]
"""Anything that takes a batch and returns one; it may change the batch, which is a copy."""


class ReplayBuffer:
    """Samples batches from a storage.

    Args:
        storage: where the rows are; ``open_storage``, ``preprocess`` and ``FrameStack`` give one.
        sampler: how rows are drawn; uniformly with replacement by default.
        transform: applied to every batch.
        batch_size: rows in a batch; ``sample`` can override it.
        collate_fn: called last, with the batch; what it returns is what ``sample`` returns.
        prefetch: batches that a thread makes ahead of time; worth it where a batch costs more than
            some 0.1 ms: frames, transforms, copies to a device. Transforms run in that thread.
        seed: seeds every draw; without it torch's global generator draws.
    """

    def __init__(
        self,
        *,
        storage: DatasetStorage | FrameStack,
        sampler: Sampler | None = None,
        transform: Transform | None = None,
        batch_size: int | None = None,
        collate_fn: Callable[[TensorDict], Any] | None = None,
        prefetch: int | None = None,
        seed: int | None = None,
    ) -> None:
        if prefetch and batch_size is None:
            raise UsageError("Batches can be made ahead only of a known size: pass batch_size too.")
        self.storage = storage
        self.sampler: Sampler = sampler or RandomSampler()
        self.writer = ImmutableDatasetWriter()
        self.batch_size = batch_size
        place = storage.dataset.placement
        self._hand_out = None if place.device is None and not place.pin_memory else place.hand_out
        self.generator = (
            torch.default_generator if seed is None else torch.Generator().manual_seed(seed)
        )
        self._transforms: list[Transform] = [] if transform is None else [transform]
        self._collate_fn = collate_fn
        self._prefetch = (
            Prefetch(prefetch, self._draw_ahead, self._make_batch) if prefetch else None
        )
        self._ran_out = False

    def __len__(self) -> int:
        return len(self.storage)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(storage={self.storage!r}, "
            f"sampler={type(self.sampler).__name__}, writer={self.writer!r}, "
            f"batch_size={self.batch_size})"
        )

    def sample(self, batch_size: int | None = None, return_info: bool = False) -> Any:
        """Return a batch, a TensorDict ``[B]`` of copies.

        Args:
            batch_size: rows to draw; the buffer's own by default.
            return_info: return ``(batch, info)``, where info has ``index`` int64 ``[B]``.

        Raises:
            UsageError: no batch size is given here or to the buffer, the sampler refuses it, or
                it is not the one that batches are prefetched for.
        """
        size = self.batch_size if batch_size is None else batch_size
        if size is None or size < 1:
            raise UsageError(
                f"A batch size of {size} cannot be drawn. Pass sample(batch_size), or give the "
                "buffer a batch_size from 1 on."
            )
        if self._prefetch is None:
            draw = self._draw(size)
            batch = self._make_batch(draw)
        elif size == self.batch_size:
            draw, batch = self._prefetch.take()
        else:
            raise UsageError(
                f"Batches of {self.batch_size} are prefetched; one of {size} is not among them. "
                "Sample other sizes from a buffer without prefetch."
            )
        self._ran_out = draw.is_last
        if not return_info:
            return batch
        details: dict[Any, torch.Tensor] = {"index": draw.index, **draw.info}
        return batch, details

    def __iter__(self) -> Iterator[Any]:
        """Yield batches: for ever, or to the end of an epoch when sampling without replacement."""
        if self.batch_size is None:
            raise UsageError("Iteration needs a batch size. Give the buffer a batch_size.")
        while True:
            yield self.sample()
            if self._ran_out:
                return

    def __getitem__(self, index: Any) -> Any:
        """Return copies of rows, or of a whole column.

        Args:
            index: an int, slice, list, mask or tensor of rows; or a key, for the whole column.

        Raises:
            IndexError: a row does not exist.
            KeyError: a key does not exist.
            UsageError: the copy would take more than half of the free memory.
        """
        if isinstance(index, str) or (isinstance(index, tuple) and _is_key(index)):
            return self.storage.column((index,) if isinstance(index, str) else index)
        if isinstance(index, slice) and index.step in (None, 1):
            start, stop, _ = index.indices(len(self))
            return self._transformed(self.storage.run(start, max(start, stop)))
        rows = row_numbers(index, len(self))
        batch = self.storage.get(rows.flatten())
        return self._transformed(batch.reshape(rows.shape) if rows.ndim else batch[0])

    def add(self, data: Any) -> Any:
        """Hand one row to the writer; a dataset's writer refuses."""
        return self.writer.add(data)

    def extend(self, data: Any) -> Any:
        """Hand rows to the writer; a dataset's writer refuses."""
        return self.writer.extend(data)

    def append_transform(self, transform: Transform) -> ReplayBuffer:
        """Apply one more transform to every batch, after the others; return the buffer."""
        self._rewind()
        self._transforms.append(transform)
        return self

    def set_sampler(self, sampler: Sampler) -> Sampler:
        """Use another sampler and return the one before."""
        self._rewind()
        previous, self.sampler = self.sampler, sampler
        return previous

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the draws; loaded into an equal buffer, it goes on with the same."""
        ahead = self._prefetch.oldest if self._prefetch else None
        return (ahead and ahead.state_before) or self._state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the draws where ``state`` was taken."""
        if self._prefetch:
            self._prefetch.drop()
        self.sampler.load_state_dict(state["sampler"])
        self.generator.set_state(state["generator"])

    def _draw(self, size: int) -> Draw:
        index, info = self.sampler.sample(self.storage, size, self.generator)
        return Draw(index, info, self.sampler.ran_out)

    def _draw_ahead(self) -> Draw:
        assert self.batch_size is not None
        state = self._state()
        draw = self._draw(self.batch_size)
        draw.state_before = state
        return draw

    def _make_batch(self, draw: Draw) -> Any:
        index, info = draw.index, draw.info
        tree = self.storage.tree(index)
        if self._hand_out is not None:
            index = self._hand_out(index)
            info = {key: self._hand_out(mark) for key, mark in info.items()}
        self._describe(tree, index, info)
        batch = make_batch(tree, len(index))
        if self._transforms:
            batch = self._transformed(batch)
        return batch if self._collate_fn is None else self._collate_fn(batch)

    def _state(self) -> dict[str, Any]:
        return {"sampler": self.sampler.state_dict(), "generator": self.generator.get_state()}

    def _rewind(self) -> None:
        """Give back what was drawn ahead; nothing in an epoch is lost by it."""
        ahead = self._prefetch.oldest if self._prefetch else None
        if self._prefetch and ahead and ahead.state_before:
            self._prefetch.drop()
            self.sampler.load_state_dict(ahead.state_before["sampler"])
            if self.generator is not torch.default_generator:  # that one is not ours to turn back
                self.generator.set_state(ahead.state_before["generator"])

    def _describe(self, tree: Tree, index: torch.Tensor, info: Info) -> None:
        """Add what the sampler says of the batch; a plain buffer keeps that apart."""

    def _transformed(self, batch: TensorDict) -> TensorDict:
        for transform in self._transforms:
            batch = transform(batch)
            if batch is None:
                raise UsageError(
                    f"The transform {transform!r} returned None; expected the batch it made."
                )
        return batch


class TensorDictReplayBuffer(ReplayBuffer):
    """A replay buffer whose batches also carry ``index`` and the sampler's marks."""

    def _describe(self, tree: Tree, index: torch.Tensor, info: Info) -> None:
        tree["index"] = index
        for (*path, name), mark in info.items():
            node: Tree = tree
            for part in path:
                node = node.setdefault(part, {})
            node[name] = mark
            if name == "truncated" and "done" in node:
                node["done"] = node["done"] | mark


def row_numbers(index: Any, num_rows: int) -> torch.Tensor:
    """Return the non-negative int64 row numbers that an index means.

    Raises:
        IndexError: a row does not exist, or a mask has another length.
    """
    if isinstance(index, slice):
        return torch.tensor(range(num_rows)[index], dtype=torch.int64)
    rows = torch.as_tensor(index)
    if rows.dtype == torch.bool:
        if rows.shape != (num_rows,):
            raise IndexError(f"A mask must have one entry a row ({num_rows}), not {rows.shape}.")
        return rows.nonzero().flatten()
    if rows.numel() == 0:
        return rows.long()
    floating = rows.is_floating_point() or rows.is_complex()
    rows = rows if floating else rows.long()  # narrow integers would wrap around
    if floating or int(rows.min()) < -num_rows or int(rows.max()) >= num_rows:
        raise IndexError(f"Rows are whole numbers from {-num_rows} to {num_rows - 1}, not {index}.")
    return torch.where(rows < 0, rows + num_rows, rows)


def _is_key(index: Sequence[Any]) -> bool:
    return bool(index) and all(isinstance(name, str) for name in index)
