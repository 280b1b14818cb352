"""Small datasets for mixtures: each row says which dataset and row it is."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from datasets_cli import open_storage
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.schema.columns import Key
from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.ted_writer import TedWriter
from datasets_cli.store.manifest import Manifest, write_manifest

MEMBER_STEP = 100_000
"""By this the numbers in the column ``mark`` of two datasets are apart."""


def rows_of(number: int, lengths: Sequence[int]) -> dict[Key, np.ndarray]:
    num_rows = sum(lengths)
    mark = number * MEMBER_STEP + np.arange(num_rows)[:, None]
    done = np.zeros((num_rows, 1), np.bool_)
    done[np.cumsum(lengths) - 1] = True
    none = np.zeros_like(done)
    following = mark + 1
    return {
        ("mark",): mark,
        ("observation",): mark.astype(np.float32).repeat(3, 1),
        ("action",): -mark.astype(np.float32),
        ("next", "observation"): following.astype(np.float32).repeat(3, 1),
        ("next", "reward"): mark.astype(np.float32) / 2,
        ("next", "done"): done,
        ("next", "terminated"): done,
        ("next", "truncated"): none,
        **{(name,): none for name in ("done", "terminated", "truncated")},
    }


def write(
    folder: Path,
    rows: Mapping[Key, np.ndarray],
    layout: str = "compact",
    **metadata: Any,
) -> Path:
    writer = (CompactWriter if layout == "compact" else TedWriter)(folder, "test/member")
    writer.write(dict(rows))
    known = vars(writer.finish({}))
    id = f"test/{folder.name}"
    write_manifest(folder, Manifest(id=id, **{**known, "metadata": metadata}))
    return folder


_NUMBERS = itertools.count()


def member(
    parent: Path, number: int, lengths: Sequence[int], layout: str = "compact", **metadata: Any
) -> DatasetStorage:
    """Return a dataset whose rows have the numbers of a member."""
    folder = parent / f"member{number}-{next(_NUMBERS)}"
    return open_storage(write(folder, rows_of(number, lengths), layout, **metadata))
