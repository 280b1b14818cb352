"""Parquet: the form of OpenML's newest files, read by pandas where pyarrow is installed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets_cli.recipe import UsageError, rows_per_block

from ._openml_arff import NOMINAL, NUMERIC, TEXT, Attribute

if TYPE_CHECKING:
    import numpy as np


class Parquet:
    """A table in memory, with the names and the order of ``_openml_arff.Arff``.

    Args:
        frame: a pandas DataFrame.
    """

    def __init__(self, frame: Any) -> None:
        self._frame = frame
        self.attributes = tuple(_attribute(name, frame[name].dtype) for name in frame.columns)

    def blocks(self, columns: Sequence[int]) -> Iterator[np.ndarray]:
        """Yield float64 ``[n, len(columns)]``; nominal values as positions, missing ones NaN."""
        import numpy as np

        step = rows_per_block(8 * len(columns))
        for start in range(0, len(self._frame), step):
            rows = self._frame.iloc[start : start + step]
            table = np.empty((len(rows), len(columns)))
            for position, column in enumerate(columns):
                table[:, position] = _numbers(rows.iloc[:, column], self.attributes[column])
            yield table


@contextmanager
def open_parquet(path: Path) -> Iterator[Parquet]:
    """Read a Parquet file; see ``check_reader``."""
    import pandas as pd

    yield Parquet(pd.read_parquet(path))


def check_reader(id: str) -> None:
    """Check that Parquet can be read here.

    Raises:
        UsageError: it cannot.
    """
    if find_spec("pyarrow") is None:
        raise UsageError(
            f"{id} is published as Parquet alone, and pyarrow, which reads it, is not installed. "
            "Run: pip install 'rlds-cli[parquet]'"
        )


def _attribute(name: str, dtype: Any) -> Attribute:
    if (labels := getattr(dtype, "categories", None)) is not None:
        return Attribute(name, NOMINAL, tuple(map(str, labels)))
    return Attribute(name, NUMERIC if dtype.kind in "biuf" else TEXT)


def _numbers(values: Any, attribute: Attribute) -> np.ndarray:
    import numpy as np

    if attribute.kind == NUMERIC:
        return np.asarray(values.to_numpy(np.float64, na_value=np.nan))
    codes = values.cat.codes.to_numpy(np.float64)
    codes[codes < 0] = np.nan
    return np.asarray(codes)
