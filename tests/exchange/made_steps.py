"""Steps of many types that a test has made, and leaf files read by numpy alone."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from datasets_cli.config import Config
from datasets_cli.store.manifest import read_manifest

Columns = dict[tuple[str, ...], np.ndarray]


def made_steps(lengths: list[int], seed: int = 7) -> Columns:
    """Return steps whose successors chain in each trajectory: bool, int8, float16, NaN, text."""
    rng, count = np.random.default_rng(seed), sum(lengths)
    after = rng.normal(size=(count, 2)).astype(np.float16)
    after[rng.random(count) < 0.2, 0] = np.nan
    flag = rng.random(count) < 0.5
    state = rng.normal(size=(count, 2)).astype(np.float16)
    was = rng.random(count) < 0.5
    for start, stop in pairwise(np.cumsum([0, *lengths])):
        state[start + 1 : stop] = after[start : stop - 1]
        was[start + 1 : stop] = flag[start : stop - 1]
    ends = np.isin(np.arange(count), np.cumsum(lengths) - 1)
    terminated = ends & (rng.random(count) < 0.5)
    return {
        ("observation", "state"): state,
        ("observation", "on"): was,
        ("next", "observation", "state"): after,
        ("next", "observation", "on"): flag,
        ("action", "move"): rng.integers(-128, 127, (count, 3), np.int8),
        ("action", "pick"): rng.integers(0, 9, count),
        ("next", "reward"): rng.normal(size=(count, 1)).astype(np.float32),
        ("next", "terminated"): terminated[:, None],
        ("next", "truncated"): (ends & ~terminated)[:, None],
        ("info", "task"): np.array([f"té {n % 3}" for n in range(count)], object),
        ("info", "speed"): rng.normal(size=count),
    }


def leaf_files(id: str, config: Config) -> Columns:
    """Return the leaves of a dataset in the ted layout, read by numpy."""
    folder = config.root / "datasets" / id
    manifest = read_manifest(folder)
    assert manifest.layout == "ted"
    return {
        column.key: np.fromfile(folder / column.filename, column.dtype).reshape(
            manifest.num_transitions, *column.shape
        )
        for column in manifest.columns
    }
