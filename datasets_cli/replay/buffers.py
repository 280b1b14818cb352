"""Replay buffers: a storage holds rows, a sampler draws them, a writer places them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from tensordict import TensorDict

from datasets_cli.errors import UsageError
from datasets_cli.replay.frame_stack import FrameStack
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
        seed: int | None = None,
    ) -> None:
        self.storage = storage
        self.sampler: Sampler = sampler or RandomSampler()
        self.writer = ImmutableDatasetWriter()
        self.batch_size = batch_size
        self._device = storage.dataset.device
        self.generator = (
            torch.default_generator if seed is None else torch.Generator().manual_seed(seed)
        )
        self._transforms: list[Transform] = [] if transform is None else [transform]
        self._collate_fn = collate_fn

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
            UsageError: no batch size is given here or to the buffer, or the sampler refuses it.
        """
        size = self.batch_size if batch_size is None else batch_size
        if size is None or size < 1:
            raise UsageError(
                f"A batch size of {size} cannot be drawn. Pass sample(batch_size), or give the "
                "buffer a batch_size from 1 on."
            )
        index, info = self.sampler.sample(self.storage, size, self.generator)
        tree = self.storage.tree(index)
        if self._device is not None:
            index = index.to(self._device)
            info = {key: mark.to(self._device) for key, mark in info.items()}
        self._describe(tree, index, info)
        batch = make_batch(tree, len(index))
        if self._transforms:
            batch = self._transformed(batch)
        if self._collate_fn is not None:
            batch = self._collate_fn(batch)
        if not return_info:
            return batch
        details: dict[Any, torch.Tensor] = {"index": index, **info}
        return batch, details

    def __iter__(self) -> Iterator[Any]:
        """Yield batches: for ever, or to the end of an epoch when sampling without replacement."""
        if self.batch_size is None:
            raise UsageError("Iteration needs a batch size. Give the buffer a batch_size.")
        while True:
            yield self.sample()
            if self.sampler.ran_out:
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
        self._transforms.append(transform)
        return self

    def set_sampler(self, sampler: Sampler) -> Sampler:
        """Use another sampler and return the one before."""
        previous, self.sampler = self.sampler, sampler
        return previous

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the draws; loaded into an equal buffer, it goes on with the same."""
        return {
            "sampler": self.sampler.state_dict(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the draws where ``state`` was taken."""
        self.sampler.load_state_dict(state["sampler"])
        self.generator.set_state(state["generator"])

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
