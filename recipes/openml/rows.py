"""The rows of an OpenML dataset, from its ARFF or Parquet file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np

from datasets_cli.formats.arff import Attribute, open_arff
from datasets_cli.recipe import Source

from .api import as_list, column_entries
from .catalogue import ARFF, FEATURES, PARQUET

NOMINAL = "nominal"
"""The ``data_type`` of a nominal column in OpenML's list of columns."""


class TableRows(Protocol):
    """An open file of rows."""

    attributes: tuple[Attribute, ...]
    notes: tuple[str, ...]

    def blocks(self, columns: Sequence[int]) -> Iterator[np.ndarray]:
        """Yield float64 ``[n, len(columns)]``: nominal values are positions, missing ones NaN."""


def open_rows(source: Source) -> AbstractContextManager[TableRows]:
    """Open the dataset's file."""
    return _open(*_files(source))


def num_missing(source: Source, columns: Sequence[int]) -> int:
    """Return the number of missing values of some columns in the file; OpenML's may be wrong."""
    path, features = _files(source)
    stat = path.stat()
    stamp = (path, features, stat.st_size, stat.st_mtime_ns)
    return _num_missing(stamp, tuple(columns)) if columns else 0


@lru_cache(maxsize=1)  # the description of a dataset needs it, then its rows
def _num_missing(stamp: tuple[Path, Path | None, int, int], columns: tuple[int, ...]) -> int:
    with _open(*stamp[:2]) as rows:
        return sum(int(np.isnan(block).sum()) for block in rows.blocks(columns))


def _files(source: Source) -> tuple[Path, Path | None]:
    """Return the file of the rows and, for Parquet, the list of its columns."""
    parquet = source.files.get(PARQUET)
    return (parquet, source.files[FEATURES]) if parquet else (source.files[ARFF], None)


@contextmanager
def _open(path: Path, features: Path | None) -> Iterator[TableRows]:
    if features is None:
        with open_arff(path) as arff:
            yield arff
        return
    from datasets_cli.formats.parquet import open_parquet  # pyarrow is optional

    # A nominal column of Parquet may have plain values; OpenML's list of labels is optional.
    declared = [
        list(map(str, as_list(entry.get("nominal_value"))))
        if str(entry.get("data_type")).lower() == NOMINAL
        else None
        for entry in column_entries(features)
    ]
    with open_parquet(path, declared) as parquet:
        yield parquet
