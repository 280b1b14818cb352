"""Reading batches: a sampler draws rows of a storage, and a batch is made of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Self

import torch
from tensordict import TensorDictBase

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import choose_generator, seed_of, seeded, whole_number
from datasets_cli.replay.buffers.prefetch import STALE, Draw, Prefetch
from datasets_cli.replay.buffers.rows import unravel_rows
from datasets_cli.replay.buffers.sample_info import slice_marks
from datasets_cli.replay.samplers.protocol import Info, Sampler
from datasets_cli.replay.samplers.random import RandomSampler
from datasets_cli.replay.storages.batch import make_batch
from datasets_cli.replay.storages.lists import ListStorage, stack_rows
from datasets_cli.replay.transforms.compose import Compose
from datasets_cli.replay.transforms.transform import Inverted, Transform
from datasets_cli.store.schema.device_options import can_page_lock
from datasets_cli.store.schema.tree import Tree


class BatchReader:
    """Samples batches from a storage: the half of a replay buffer that reads.

    Args:
        storage: where the rows are; see ``ReplayBuffer`` for it and the others.

    Raises:
        UsageError: arguments that exclude one another.
    """

    def __init__(
        self,
        *,
        storage: Any,
        sampler: Sampler | None = None,
        transform: Transform | None = None,
        batch_size: int | None = None,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        prefetch: int | None = None,
        generator: torch.Generator | None = None,
        seed: int | None = None,
    ) -> None:
        prefetch = None if prefetch is None else whole_number("prefetch", prefetch, 0)
        if prefetch and batch_size is None:
            raise UsageError("Batches can be made ahead only of a known size: pass batch_size too.")
        if isinstance(sampler, type) or not hasattr(sampler or RandomSampler, "sample"):
            raise UsageError(f"A sampler is expected, such as RandomSampler(), not {sampler!r}.")
        if collate_fn is not None and not callable(collate_fn):
            raise UsageError(f"collate_fn must be a function of a batch, not {collate_fn!r}.")
        self._use(storage)
        self.sampler: Sampler = sampler or RandomSampler()
        self.batch_size = None if batch_size is None else whole_number("batch_size", batch_size, 1)
        self.generator = choose_generator(generator, seed)
        self.transform = Compose() if transform is None else Compose(transform)
        self._collate_fn = collate_fn
        self._pin_memory = can_page_lock(pin_memory)
        self.ran_out = False
        self._depth = prefetch
        self._begin()

    def __len__(self) -> int:
        return len(self.storage)

    def sample(self, batch_size: int | None = None, return_info: bool = False) -> Any:
        """Return a batch of copies: a TensorDict ``[B]``, or what the rows are.

        Args:
            batch_size: rows to draw; the buffer's own by default.
            return_info: return ``(batch, info)``, where info has ``index`` int64 ``[B]``, or
                ``[B, ndim]`` with several dimensions, and what else the sampler says of the rows.

        Raises:
            UsageError: no batch size is given here or to the buffer, there are no rows, or the
                sampler refuses the size.
        """
        size = self.batch_size if batch_size is None else batch_size
        if size is None:
            raise UsageError(
                "No batch size is given. Pass sample(batch_size), or give the buffer a batch_size."
            )
        if type(size) is not int or size < 1:
            size = whole_number("batch_size", size, 1)
        if self._prefetch is None:
            index, info, rows = self._take(size)
            batch = self._make_batch(index, info, rows)
            self.ran_out = self.sampler.ran_out
        else:
            if size != self._prefetch.size:
                self._rewind()
            draw, batch = self._prefetch.take(size)
            index, info, self.ran_out = draw.index, draw.info, draw.is_last
        if not return_info:
            return batch
        details: dict[Any, torch.Tensor] = {"index": unravel_rows(self.storage, index)}
        for key, mark in info.items():
            details[key if len(key) > 1 else key[0]] = mark  # as users write keys
        return batch, details

    def __iter__(self) -> Iterator[Any]:
        """Yield batches: for ever, or to the end of an epoch when sampling without replacement."""
        if self.batch_size is None:
            raise UsageError("Iteration needs a batch size. Give the buffer a batch_size.")
        while True:
            yield self.sample()
            if self.ran_out:
                return

    def append_transform(self, transform: Transform, *, invert: bool = False) -> Self:
        """Apply one more transform to every batch, after the others; return the buffer.

        Args:
            transform: any callable from batch to batch.
            invert: apply it to what is written instead, and its ``inv`` to batches.
        """
        return self.insert_transform(len(self.transform), transform, invert=invert)

    def insert_transform(self, index: int, transform: Transform, *, invert: bool = False) -> Self:
        """Apply one more transform at a place among the others; return the buffer."""
        self._rewind()
        self.transform.insert(index, Inverted(transform) if invert else transform)
        return self

    def set_sampler(self, sampler: Sampler) -> Sampler:
        """Use another sampler and return the one before."""
        self._rewind()
        previous, self.sampler = self.sampler, sampler
        return previous

    def set_rng(self, generator: torch.Generator) -> None:
        """Draw from another generator."""
        self._rewind()
        self.generator = generator

    def draw_state(self) -> dict[str, Any]:
        """Return where the draws stand, as if nothing had been drawn ahead: sampler, generator."""
        ahead = self._prefetch.oldest if self._prefetch else None
        draws = ahead.state_before if ahead else self._draws()
        return {
            **draws,
            "sampler": self.sampler.state_dict() if draws["sampler"] is None else draws["sampler"],
        }

    def _begin(self) -> None:
        """Make what a process has of its own."""
        self._lock = threading.RLock()
        self._prefetch: Prefetch | None = None
        if self._depth and self.batch_size:
            steps = self._draw_ahead, self._make_ahead, self._give_back
            self._prefetch = Prefetch(self._depth, self.batch_size, *steps, self._lock)

    def _use(self, storage: Any) -> None:
        """Read rows of a storage from now on."""
        if isinstance(storage, type) or not hasattr(storage, "device_options"):
            found = storage if isinstance(storage, type) else type(storage)
            raise UsageError(
                f"A storage is expected, such as LazyTensorStorage(1000), not {found.__name__}."
            )
        self.storage = storage
        self._is_list = isinstance(storage, ListStorage)
        # Rows that nobody can write need no lock.
        self._is_constant = not hasattr(storage, "write")
        place = storage.device_options
        self._to_output = None if place.device is None and not place.pin_memory else place.to_output

    def _take(self, size: int) -> tuple[torch.Tensor, Info, Any]:
        """Draw rows and gather them; nobody writes in between."""
        if self._is_constant:
            index, info = self.sampler.sample(self.storage, size, self.generator)
            return index, info, self.storage.gather(index)
        with self._lock:
            index, info = self.sampler.sample(self.storage, size, self.generator)
            return index, info, self.storage.gather(index)

    def _draw_ahead(self, size: int) -> Draw:
        state = self._draws()
        index, info = self.sampler.sample(self.storage, size, self.generator)
        return Draw(index, info, self.sampler.ran_out, self.storage.revision, state)

    def _make_ahead(self, draw: Draw) -> Any:
        if self._is_constant:
            rows = self.storage.gather(draw.index)
        else:
            with self._lock:
                if self.storage.revision != draw.revision:
                    return STALE
                rows = self.storage.gather(draw.index)
        return self._make_batch(draw.index, draw.info, rows)

    def _make_batch(self, index: torch.Tensor, info: Info, rows: Any) -> Any:
        if self._to_output is not None:
            index = self._to_output(index)
            info.update({key: self._to_output(mark) for key, mark in info.items()})
        if self.storage.is_tensordict:
            row_batch_size = self.storage.row_batch_size
            self._describe(rows, index, info)
            rows = make_batch(rows, index.shape + row_batch_size if row_batch_size else index.shape)
        if self._collate_fn is not None:
            rows = self._collate_fn(rows)
        elif self._is_list:
            rows = stack_rows(rows)
        if self._is_list and isinstance(rows, TensorDictBase):
            self._describe(rows, index, info)
        if self._pin_memory:
            rows = torch.utils._pytree.tree_map(lambda leaf: leaf.pin_memory(), rows)
        if not self.transform:
            return rows
        batch = self.transform(rows)
        self._keep_marks(batch, index, info)
        return batch

    def _describe(self, rows: Tree | TensorDictBase, index: torch.Tensor, info: Info) -> None:
        """Add to ``info`` what follows from the ends of slices."""
        if not self.storage.row_batch_size:
            info.update(slice_marks(rows, self.sampler, info))

    def _keep_marks(self, batch: Any, index: torch.Tensor, info: Info) -> None:
        """Put back what priorities are handed back by, where a transform took it."""

    def _draws(self) -> dict[str, Any]:
        """Return what it takes to draw the same once more.

        Of priorities nothing: they are of the rows, not of the draws, and as many.
        """
        of_rows = hasattr(self.sampler, "update_priority")
        sampler = None if of_rows else self.sampler.state_dict()
        return {"sampler": sampler, "generator": self.generator.get_state()}

    def _rewind(self) -> None:
        """Give back what was drawn ahead; nothing in an epoch is lost by it."""
        with self._lock:
            if self._prefetch and (ahead := self._prefetch.oldest):
                self._give_back(ahead)

    def _give_back(self, draw: Draw) -> None:
        """Give back a draw and all behind it."""
        assert self._prefetch is not None
        self._prefetch.drop()
        if draw.state_before["sampler"] is not None:
            self.sampler.load_state_dict(draw.state_before["sampler"])
        if self.generator is not torch.default_generator:  # that one is not ours to turn back
            self.generator.set_state(draw.state_before["generator"])

    def __getstate__(self) -> dict[str, Any]:
        # A copy begins the seed's stream anew; see BatchStream for streams of workers' own. It goes
        # on with an epoch where this one does, not behind what only this one has under way.
        self._rewind()
        seed = seed_of(self.generator)
        return {**self.__dict__, "generator": seed, "_lock": None, "_prefetch": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()
        self.generator = seeded(state["generator"])
