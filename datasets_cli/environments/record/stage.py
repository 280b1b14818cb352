"""Writing what was recorded as a dataset, after the rows of an older one where there is one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from datasets_cli.environments.record.chunks import read_chunk
from datasets_cli.environments.record.episodes import StepColumns
from datasets_cli.environments.record.run import RecordingRun
from datasets_cli.schema.columns import EPISODE, TERMINATED, TRAJECTORY_END, TRUNCATED, Key
from datasets_cli.schema.transitions import Transitions, iterate_rows
from datasets_cli.sources.disk import make_folder
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.content import SUCCESSOR_RULE_VERSION
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.manifest import Manifest
from datasets_cli.store.writer import DatasetWriter
from datasets_cli.version import TOOL

FAMILY = "recorded"
RECIPE = {"family": FAMILY, "version": 1}
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
    make_folder(folder.parent)
    transitions, digest = Transitions(id), _Digest()
    new = iterate_rows(transitions, map(digest.take, _first_steps(chunks, run.options.num_steps)))
    if layout is None and older is not None:
        layout = older.manifest.layout
    with DatasetWriter(layout, folder, id) as writer:
        for rows in chain(_rows_of(older), new):
            writer.write(rows)
            on_rows(writer.num_rows)
        written = writer.finish({})
    manifest = Manifest(
        id=id,
        **vars(written),
        resources=(*(older.manifest.resources if older else ()), _resource(run, digest)),
        recipe=RECIPE,
        successors={**transitions.rule, "version": SUCCESSOR_RULE_VERSION},
        metadata=_metadata(run, written.num_transitions, written.num_trajectories, digest),
        tool=TOOL,
    )
    return manifest, folder


def _resource(run: RecordingRun, digest: _Digest) -> dict[str, Any]:
    return {
        "filename": f"episodes from {run.first_episode}",
        "url": "",
        "bytes": digest.size_bytes,
        "sha256": digest.hex(),
        "validator": "",
        "checked": CHECKED,
    }


def _metadata(
    run: RecordingRun, num_steps: int, num_episodes: int, digest: _Digest
) -> dict[str, Any]:
    """Return what Minari keeps of a dataset, and each recording that it is made of."""
    own = {"episodes_recorded": digest.num_episodes, "steps_recorded": digest.num_steps}
    return {
        **run.environment,
        "total_episodes": num_episodes,
        "total_steps": num_steps,
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


class _Digest:
    """What was recorded, counted and hashed column by column: the same for any chunks."""

    def __init__(self) -> None:
        self.num_steps = self.num_episodes = self.size_bytes = 0
        self._columns: dict[Key, Any] = {}

    def take(self, columns: StepColumns) -> StepColumns:
        """Add steps, and return them."""
        for key, values in columns.items():
            kind = f"{'.'.join(key)} {values.dtype} {values.shape[1:]}"
            digest = self._columns.setdefault(key, hashlib.sha256(kind.encode()))
            is_text = values.dtype == object
            data = "\0".join([*values, ""]).encode() if is_text else np.ascontiguousarray(values)
            digest.update(data)
            self.size_bytes += len(data) if is_text else values.nbytes
        self.num_steps += len(columns[TRAJECTORY_END])
        self.num_episodes += int(columns[TRAJECTORY_END].sum())
        return columns

    def hex(self) -> str:
        """Return the sha256 of all columns' digests, 64 hexadecimal digits."""
        parts = (self._columns[key].digest() for key in sorted(self._columns))
        return hashlib.sha256(b"".join(parts)).hexdigest()
