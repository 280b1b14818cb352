"""Parquet tables, read by pandas where pyarrow is installed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from datasets_cli.formats.arff import NOMINAL, NUMERIC, TEXT, Attribute
from datasets_cli.store.schema.columns import rows_per_block


class Parquet:
    """A table in memory, with the methods of ``arff.Arff``.

    Args:
        frame: a pandas DataFrame.
    """

    def __init__(self, frame: Any) -> None:
        self._frame = frame
        self.attributes = tuple(_attribute(name, frame[name].dtype) for name in frame.columns)

    def blocks(self, columns: Sequence[int]) -> Iterator[np.ndarray]:
        """Yield float64 ``[n, len(columns)]``; nominal values as positions, missing ones NaN."""
        step = rows_per_block(8 * len(columns))
        for start in range(0, len(self._frame), step):
            rows = self._frame.iloc[start : start + step]
            table = np.empty((len(rows), len(columns)))
            for position, column in enumerate(columns):
                table[:, position] = _numbers(rows.iloc[:, column], self.attributes[column])
            yield table


@contextmanager
def open_parquet(path: Path) -> Iterator[Parquet]:
    """Read a Parquet file, for which pyarrow must be installed."""
    import pandas as pd  # 0.4 s, and most tables are ARFF

    yield Parquet(pd.read_parquet(path))


def _attribute(name: str, dtype: Any) -> Attribute:
    if (labels := getattr(dtype, "categories", None)) is not None:
        return Attribute(name, NOMINAL, tuple(map(str, labels)))
    return Attribute(name, NUMERIC if dtype.kind in "biuf" else TEXT)


def _numbers(values: Any, attribute: Attribute) -> np.ndarray:
    if attribute.kind == NUMERIC:
        return np.asarray(values.to_numpy(np.float64, na_value=np.nan))
    codes = values.cat.codes.to_numpy(np.float64)
    codes[codes < 0] = np.nan  # pandas has -1 for a missing value
    return np.asarray(codes)
