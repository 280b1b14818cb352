"""Batches for ``torch.utils.data.DataLoader``: each worker of each rank has its own stream."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.context import get_spawning_popen
from typing import Any, SupportsIndex

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from datasets_cli.errors import Unsupported, wrong_value
from datasets_cli.parallel.workers import WorkerContext, pickle_for_child
from datasets_cli.replay.arguments import Rows, StateDict, whole_number
from datasets_cli.replay.buffer.buffer import ReplayBuffer
from datasets_cli.replay.goals.sampler import HERSampler
from datasets_cli.replay.mixing.ensemble import ReplayBufferEnsemble
from datasets_cli.replay.mixing.offline_to_online import OfflineToOnline
from datasets_cli.replay.samplers.rows import DrawSampler, SharedEpochs, process_rank, worker_rank


class BatchStream(IterableDataset[Rows]):
    """A buffer's batches as a dataset for ``torch.utils.data.DataLoader``; see ``loader``.

    Every worker of every rank draws a separate stream: its generator is seeded by the seed, the
    number of iterations over the stream, the rank and the worker. With a ``DistributedSampler`` or
    a ``BlockShuffleSampler`` the workers share each epoch instead, and each pass over a loader
    begins the next epoch.

    Args:
        buffer: a replay buffer with a batch size; of a dataset, workers receive the path.
        num_batches: batches that each worker yields; by default until the buffer's iteration ends.
        seed: the seed of the streams, 0 or more.

    Raises:
        UsageError: ``buffer`` is not a replay buffer, or a number is negative or not whole.
    """

    def __init__(
        self,
        buffer: ReplayBuffer | ReplayBufferEnsemble | OfflineToOnline,
        num_batches: int | None = None,
        seed: int = 0,
    ) -> None:
        if not isinstance(buffer, ReplayBuffer | ReplayBufferEnsemble | OfflineToOnline):
            raise wrong_value("buffer", "a replay buffer", buffer)
        self.buffer = buffer
        self.num_batches = num_batches
        if num_batches is not None:
            self.num_batches = whole_number("num_batches", num_batches, 0)
        self.seed = whole_number("seed", seed, 0)
        self.epoch = 0
        # The rank and number of ranks, for a copy in a worker, which has no process group.
        self._ranks: tuple[int, int] | None = None

    def __iter__(self) -> Iterator[Rows]:
        """Yield batches."""
        ranks = self._ranks if get_worker_info() else None
        process, _ = worker_rank(*(ranks or process_rank()))
        words = np.random.SeedSequence([self.seed, self.epoch, process])
        seed = int(words.generate_state(1, np.uint64)[0])
        self.epoch += 1
        if isinstance(self.buffer, ReplayBuffer):
            self.buffer.reader.use_generator(None, seed)
        else:
            self.buffer.set_rng(torch.Generator().manual_seed(seed))
        if self.num_batches is None:
            yield from self.buffer
        for _ in range(self.num_batches or 0):
            yield self.buffer.sample()

    def __getstate__(self) -> StateDict:
        return {**self.__dict__, "_ranks": process_rank()}

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        if get_spawning_popen() is None:
            return super().__reduce_ex__(protocol)
        # A worker does not import the caller's file: transforms are pickled by value.
        return _from_state, (pickle_for_child(self.__getstate__()),)

    def advance_epoch(self) -> None:
        """Continue with the next epoch; copies of this stream in workers draw the current one."""
        self.epoch += 1
        buffer = self.buffer
        sampler = (buffer.offline if isinstance(buffer, OfflineToOnline) else buffer).sampler
        if isinstance(sampler, HERSampler):
            sampler = sampler.sampler
        draw = sampler.draw if isinstance(sampler, DrawSampler) else None
        if isinstance(draw, SharedEpochs):
            draw.set_epoch(draw.epoch + 1 + draw.ran_out)

    def loader(self, num_workers: int = 0, **arguments: Any) -> DataLoader[Rows]:
        """Return a loader of whole batches.

        Workers do not import the caller's file: a script can call this without a ``__main__``
        guard, and transforms and functions are pickled by value. Workers are only faster with slow
        transforms; a buffer without a transform causes a warning.

        Args:
            num_workers: number of worker processes; 0 loads in this process.
            arguments: further arguments of ``torch.utils.data.DataLoader``.

        Raises:
            UsageError: ``num_workers`` is above 0 and batches are on a device.
        """
        if whole_number("num_workers", num_workers, 0):
            self._check_workers(num_workers)
            # A process forked after torch began threads may hang.
            arguments = {"multiprocessing_context": WorkerContext(), **arguments}
            if arguments.get("worker_init_fn") is not None:
                arguments["worker_init_fn"] = _ByValue(arguments["worker_init_fn"])
        return _Loader(
            self, batch_size=None, collate_fn=whole_batch, num_workers=num_workers, **arguments
        )

    def _check_workers(self, num_workers: int) -> None:
        """Reject workers if batches are on a device, and warn if there is no transform."""
        buffer = self.buffer
        members = (buffer,) if isinstance(buffer, ReplayBuffer) else buffer.buffers
        if devices := {str(each.storage.device or "cpu") for each in members} - {"cpu"}:
            raise Unsupported(
                f"Workers cannot send batches on {', '.join(devices)}; found num_workers="
                f"{num_workers}.",
                argument="num_workers",
                expected=0,
                found=num_workers,
                advice="Pass num_workers=0, or open the buffer without device=.",
            )
        if not any(part.transform for part in (buffer, *members)):
            warnings.warn(
                f"num_workers={num_workers}: without a transform, batches come slower from workers "
                "than from this process: transitions 55 to 61 times, stacks of frames 7 to 15 "
                "times on 2 cores. Leave num_workers out; prefetch=2 makes frames in a thread.",
                stacklevel=3,
            )


def _from_state(pickled: bytes) -> BatchStream:
    stream = BatchStream.__new__(BatchStream)
    stream.__dict__.update(pickle.loads(pickled))
    return stream


class _ByValue:
    """A function that is pickled by value."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __reduce__(self) -> Any:
        return _by_value, (pickle_for_child(self._function),)


def _by_value(pickled: bytes) -> _ByValue:
    return _ByValue(pickle.loads(pickled))


class _Loader(DataLoader[Rows]):
    """Loads a stream's batches; counts its epochs, because workers draw from copies of it."""

    def __iter__(self) -> Any:
        batches = super().__iter__()  # workers receive copies of the stream here
        if self.num_workers:
            stream: Any = self.dataset
            stream.advance_epoch()
        return batches


def whole_batch(batch: Rows) -> Rows:
    """Return a batch unchanged: the ``collate_fn`` of a loader whose items are batches."""
    return batch
