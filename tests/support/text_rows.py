"""Small datasets with text, and what must be read from them, worked out row by row."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import numpy as np

from datasets_cli.schema.transitions import Transitions, iterate_rows
from datasets_cli.store.commit import commit_folder
from datasets_cli.store.manifest import Manifest
from datasets_cli.store.writer import LayoutWriter

Key = tuple[str, ...]

ID = "toy/missions"
LENGTHS = (4, 1, 6, 3)
ODD_TEXTS = [
    "",
    "go left",
    "новая цель",
    "拿球 🟦",
    "a\0b",
    "two\nlines",
    "é" * 300,
    "x" * 5000,
    " ",
]


def objects(values: list[str], shape: tuple[int, ...] = ()) -> np.ndarray:
    flat = np.empty(len(values), object)
    flat[:] = values
    return flat.reshape(-1, *shape)


def steps_of(
    missions: list[str], lengths: tuple[int, ...] = LENGTHS, **more: np.ndarray
) -> dict[Key, np.ndarray]:
    """Return steps of terminated trajectories, with ``observation.mission``."""
    num_steps = sum(lengths)
    ends = np.zeros(num_steps, bool)
    ends[np.cumsum(lengths) - 1] = True
    values = [missions[step % len(missions)] for step in range(num_steps)]
    return {
        ("observation", "x"): np.arange(2.0 * num_steps).reshape(-1, 2),
        ("observation", "mission"): objects(values),
        **{("observation", name): rows for name, rows in more.items()},
        ("action",): np.arange(num_steps),
        ("next", "reward"): np.arange(num_steps) / 2,
        ("next", "terminated"): ends,
    }


def successors(values: list[str], ends: np.ndarray) -> list[str]:
    """Return each step's following value, and ``""`` after a terminated step."""
    return [
        "" if end else values[step + 1] if step + 1 < len(values) else ""
        for step, end in enumerate(ends)
    ]


def write(
    folder: Path, layout: str, steps: Mapping[Key, np.ndarray], block_rows: int = 1000
) -> Path:
    num_steps = len(next(iter(steps.values())))
    blocks = (
        {key: rows[start : start + block_rows] for key, rows in steps.items()}
        for start in range(0, num_steps, block_rows)
    )
    with closing(LayoutWriter(layout, folder / "staging", ID)) as writer:
        for rows in iterate_rows(Transitions(ID), blocks):
            writer.write(rows)
        written = writer.finish({})
    manifest = Manifest(
        id=ID,
        layout=written.layout,
        num_transitions=written.num_transitions,
        num_trajectories=written.num_trajectories,
        columns=written.columns,
        files=written.files,
        record=written.record,
        texts=written.texts,
    )
    commit_folder(folder / "staging", folder / "data", manifest)
    return folder / "data"
