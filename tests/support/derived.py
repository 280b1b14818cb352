"""Derived datasets in any folder: what ``preprocess`` and ``ExperienceReplay.preprocess`` write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from datasets_cli.core.progress import Progress, silent
from datasets_cli.parallel.engine import Workers
from datasets_cli.preprocessing.execution import write_derived
from datasets_cli.preprocessing.options import PreprocessOptions
from datasets_cli.preprocessing.pipeline import Mapped
from datasets_cli.replay.storages.dataset import DatasetStorage, open_storage
from datasets_cli.store.dataset import open_dataset

WORKERS = ("num_workers", "executor", "engine", "address")


def preprocess(
    source: Path,
    function: Mapped,
    dest: Path,
    *,
    id: str | None = None,
    lock_timeout: float = 600,
    progress: Progress = silent,
    **options: Any,
) -> DatasetStorage:
    """Write ``function`` of every row of ``source`` into ``dest``; return it as a storage."""
    workers = {"num_workers": None} | {
        name: options.pop(name) for name in WORKERS if name in options
    }
    write_derived(
        open_dataset(source, text=True),
        function,
        dest,
        PreprocessOptions(**options),
        id=id,
        workers=Workers(**workers),
        lock_timeout=lock_timeout,
        progress=progress,
    )
    return open_storage(dest)
