"""Staging: where a dataset is converted, and what is left of that if it fails."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from datasets_cli.catalogue.names import Resolved
from datasets_cli.install.conversion.convert import convert
from datasets_cli.parallel.engine import IN_THIS_PROCESS, Workers
from datasets_cli.progress import Progress
from datasets_cli.sources.disk import make_folder
from datasets_cli.sources.raw_file import RawFile
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.manifest import Manifest

WORTH_A_WORKER = 16_000_000
"""Bytes of raw files; fewer take less time than a process needs to start."""


def stage(
    resolved: Resolved,
    files: list[RawFile],
    root: CacheRoot,
    layout: str | None,
    progress: Progress,
    workers: Workers = IN_THIS_PROCESS,
) -> tuple[Manifest, Path]:
    """Write a dataset into a staging folder; return its manifest and the folder."""
    files = [replace(file, path=file.path.absolute()) for file in files]  # for other processes
    folder = root.new_staging(resolved.id)
    make_folder(folder.parent)
    try:
        if _is_for_a_worker(resolved, files, workers):
            from datasets_cli.install.conversion.elsewhere import convert_elsewhere

            manifest = convert_elsewhere(resolved, files, folder, layout, progress, workers)
        else:
            manifest = convert(resolved, files, folder, layout, progress, workers)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return manifest, folder


def _is_for_a_worker(resolved: Resolved, files: list[RawFile], workers: Workers) -> bool:
    """Return whether a worker converts the dataset as a whole, beside what others convert."""
    # Frames that are read apart have workers of their own.
    is_small = sum(file.size for file in files) < WORTH_A_WORKER
    return (
        not workers.end_with_the_call
        and not resolved.recipe.has_deferred_frames
        and not (is_small and workers.may_be_left_out)
    )
