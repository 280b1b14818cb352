"""Preprocessing the rows of a replay buffer: TorchRL's arguments of ``preprocess``, translated."""

from __future__ import annotations

import os
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass
from multiprocessing.pool import Pool
from pathlib import Path

import torch

from datasets_cli.errors import UsageError
from datasets_cli.options import part_of
from datasets_cli.parallel.engine import EngineOptions, Workers
from datasets_cli.parallel.tasks import PoolExecutor
from datasets_cli.preprocessing.options import ChunkOptions, PreprocessOptions
from datasets_cli.preprocessing.pipeline import Pipeline
from datasets_cli.preprocessing.running import write_derived
from datasets_cli.progress_bars import Bars
from datasets_cli.progress_lines import PlainLines
from datasets_cli.replay.storages.dataset import DatasetStorage, open_storage
from datasets_cli.replay.torchrl_words import check_start_method
from datasets_cli.replay.transforms.transform import TransformLike
from datasets_cli.store.dataset import Dataset, open_dataset


@dataclass(frozen=True)
class ReplayPreprocessOptions(EngineOptions, ChunkOptions):
    """What ``ExperienceReplay.preprocess`` takes.

    Args:
        fn: takes a TensorDict ``[n]`` of consecutive rows, a copy, and returns one ``[n]``, or one
            of fewer of these rows, ``batch[keep]``; or a ``Pipeline``.
        dim: 0, the rows; there is no other.
        num_workers: processes, this process where 0. Where None it begins in this process, and uses
            all cores where that is worth starting processes for.
        dest: folder of the new dataset; it must not hold anything but the same result, which is
            then returned.
        pbar: show a progress bar.
        pool: where to work instead; a pool of ``multiprocessing``, which waits forever for a
            worker that was killed, or an executor.
        max_tasks_per_child: None; a pool may replace its processes.
        worker_threads: 1, in each worker.
        index_with_generator: given for compatibility; chunks are made when they are read.
        mp_start_method: ``"spawn"``; ``"fork"`` and ``"forkserver"`` are warned of and not used,
            because a process that is forked after torch began threads may hang.
        generator: draws the seed.
        seed: seeds torch again for every chunk; 0 by default.
    """

    fn: TransformLike | Pipeline
    dim: int = 0
    num_workers: int | None = None
    _: KW_ONLY
    dest: str | os.PathLike[str]
    pbar: bool = False
    pool: Pool | Executor | None = None
    max_tasks_per_child: int | None = None
    worker_threads: int = 1
    index_with_generator: bool = False
    mp_start_method: str | None = None
    generator: torch.Generator | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.dim != 0:
            raise UsageError(f"A dataset has one dimension, 0, the rows; not {self.dim}.")
        if self.generator is not None and self.seed is not None:
            raise UsageError("Give a generator or a seed, not both.")
        if self.worker_threads != 1 or self.max_tasks_per_child is not None:
            raise UsageError(
                "ExperienceReplay.preprocess runs each chunk in one thread, of a process that "
                f"stays; worker_threads={self.worker_threads!r} and max_tasks_per_child="
                f"{self.max_tasks_per_child!r} ask for others. Give it a pool of yours."
            )
        if self.mp_start_method is not None:
            check_start_method(self.mp_start_method)
        if self.pool is not None and self.executor is not None:
            raise UsageError("Give an executor or a pool, not both.")

    @property
    def workers(self) -> Workers:
        """Who works."""
        executor = self.executor
        if self.pool is not None:
            executor = self.pool if isinstance(self.pool, Executor) else PoolExecutor(self.pool)
        options = vars(part_of(self, EngineOptions)) | {"executor": executor}
        return Workers(num_workers=self.num_workers, **options)

    def reading(self) -> PreprocessOptions:
        """Return what is read, in which chunks; a generator draws the seed."""
        seed = self.seed or 0
        if self.generator is not None:
            seed = int(torch.randint(2**62, (), generator=self.generator))
        return PreprocessOptions(**vars(part_of(self, ChunkOptions)), seed=seed)


def preprocess_rows(
    dataset: Dataset, options: ReplayPreprocessOptions, lock_timeout: float
) -> DatasetStorage:
    """Write a function of the rows of a dataset, or of a selection of it, into a new dataset."""
    dest = Path(options.dest)
    bars = Bars(num_transitions=options.num_frames or len(dataset))
    with bars if options.pbar else nullcontext(PlainLines()) as progress:
        whole = open_dataset(dataset.folder, text=True)
        write_derived(
            whole if dataset.selection is None else whole.select(dataset.selection),
            options.fn,
            dest,
            options.reading(),
            workers=options.workers,
            lock_timeout=lock_timeout,
            progress=progress,
        )
    return open_storage(dest)
