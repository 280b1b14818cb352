"""Writing what was recorded as a dataset, after the rows of an older one where there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from datasets_cli.environments.record.chunks import read_chunk
from datasets_cli.environments.record.episodes import StepColumns
from datasets_cli.environments.record.run import RecordingRun
from datasets_cli.own.steps import StepDigest, write_steps
from datasets_cli.schema.columns import EPISODE, TERMINATED, TRAJECTORY_END, TRUNCATED
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.layouts.ted_writer import Written
from datasets_cli.store.manifest import Manifest

FAMILY = "recorded"
CHECKED = "recorded"
"""What a manifest says of how far its source was checked: the values were made here."""


def stage(
    root: CacheRoot,
    id: str,
    run: RecordingRun,
    chunks: list[Path],
    older: Dataset | None,
    layout: str | None,
    on_rows: Callable[[int], None],
) -> tuple[Manifest, Path]:
    """Write the dataset into a staging folder; return its manifest and the folder."""
    folder = root.new_staging(id)
    if layout is None and older is not None:
        layout = older.manifest.layout
    new = _first_steps(chunks, run.options.num_steps)
    steps = write_steps(folder, id, layout, new, on_rows, _rows_of(older))
    source = {"filename": f"episodes from {run.first_episode}", "checked": CHECKED}
    metadata = _metadata(run, steps.written, steps.digest)
    return steps.manifest(id, source, metadata, older.manifest.resources if older else ()), folder


def _metadata(run: RecordingRun, written: Written, digest: StepDigest) -> dict[str, Any]:
    """Return what Minari keeps of a dataset, and each recording that it is made of."""
    own = {"episodes_recorded": digest.num_episodes, "steps_recorded": digest.num_steps}
    return {
        **run.environment,
        "total_episodes": written.num_trajectories,
        "total_steps": written.num_transitions,
        "algorithm_name": run.policy_entry["name"],
        "recordings": [*run.earlier, {**run.plan, **own}],
    }


def _first_steps(chunks: list[Path], num_steps: int | None) -> Iterator[StepColumns]:
    """Yield the steps of chunks; where they are counted, the last one of them is a cut."""
    left = num_steps
    for columns in chain.from_iterable(map(read_chunk, chunks)):
        count = len(columns[TERMINATED])
        if left is not None and count >= left:
            cut = {key: values[:left] for key, values in columns.items()}
            cut[TRAJECTORY_END][-1] = True
            cut[TRUNCATED][-1] |= ~cut[TERMINATED][-1]
            yield cut
            return
        left = None if left is None else left - count
        yield columns


def _rows_of(older: Dataset | None) -> Iterator[StepColumns]:
    """Yield the rows of a dataset; the writer numbers the episodes again."""
    for rows in older.blocks() if older is not None else ():
        yield {key: values for key, values in rows.items() if key != EPISODE}
