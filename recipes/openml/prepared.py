"""TorchRL's seven tables: scaled features and encoded labels, by scikit-learn's own encoders.

What TorchRL does to each (``torchrl/data/datasets/openml.py``, 0.14.1) is in ``catalogue.tsv``:

    codes      nominal features become label codes, then every feature is scaled
    onehot     numeric features are scaled and come first, nominal ones become one column a label
    numbers    the labels of nominal features are numbers; then every feature is scaled

Labels become codes. A ``target`` that OpenML has among the features becomes the label once the rows
with a missing feature are dropped: in adult, TorchRL predicts the occupation, not the income.
Scaling needs three copies of the whole table in memory: 0.8 GB for the largest, covertype. A larger
table than ``--limit table_bytes`` is rejected before that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from datasets_cli.formats.limits import check_limit
from datasets_cli.recipe import Block, Source, SourceError, rows_per_block

from .rows import open_rows
from .table import Table, TableColumn, one_step

if TYPE_CHECKING:
    import pandas

CODES, ONE_HOT, NUMBERS = "codes", "onehot", "numbers"
VALUE_BYTES = 8

Classes = list[str | None]
"""The label of each code of a column; None is a missing value."""


@dataclass(frozen=True)
class Prepared:
    """A table in TorchRL's encoding."""

    # observation: float64 `[N, F]`.
    # action: int64 `[N]`.

    observation: np.ndarray
    action: np.ndarray
    metadata: dict[str, Any]

    def blocks(self) -> Iterator[Block]:
        """Yield the rows as one-step trajectories."""
        step = rows_per_block(8 * self.observation.shape[1])
        for start in range(0, len(self.action), step):
            rows = slice(start, start + step)
            yield one_step(self.observation[rows], self.action[rows])


def prepare(source: Source, table: Table, encoding: str, target: str) -> Prepared:
    """Return the whole table, encoded and scaled."""
    label = _label(table, target)
    frame = _frame(source, [*(each for each in table.features if each != label), label])
    if target:
        frame = frame.dropna().copy()
    action, classes = _encoded(frame.pop(label.name))
    nominal = [*frame.columns[frame.dtypes == "category"]]
    categories: dict[str, Classes] = {}
    for name in nominal:
        if encoding == NUMBERS:
            frame[name] = frame[name].astype(float)
        else:
            frame[name], categories[name] = _encoded(frame[name])
    if encoding == ONE_HOT:
        observation, metadata = _one_hot(source.name, frame, categories)
    else:
        observation, metadata = _scaled(frame)
    metadata |= {"target_names": [label.name], "classes": {label.name: classes}}
    return Prepared(observation, action, {"categories": categories, **metadata})


def _label(table: Table, target: str) -> TableColumn:
    columns = [c for c in table.features if c.name == target] if target else table.targets
    if len(columns) != 1:
        raise SourceError(
            f"expected one label{f' {target!r}' if target else ''}, found "
            f"{', '.join(column.name for column in columns) or 'none'}.",
            key=target or None,
            expected=1,
            found=len(columns),
        )
    return columns[0]


def _frame(source: Source, columns: Sequence[TableColumn]) -> pandas.DataFrame:
    """Return all rows: nominal columns are categories, missing values NaN."""
    import pandas

    blocks: list[np.ndarray] = []
    num_values = 0
    with open_rows(source) as rows:
        for block in rows.blocks([column.index for column in columns]):
            num_values += block.size
            check_limit("table_bytes", VALUE_BYTES * num_values, source.name)
            blocks.append(block)
    named: dict[str, Any] = {}
    for column, values in zip(columns, np.concatenate(blocks).T, strict=True):
        named[column.name] = values
        if column.labels is not None:
            codes = np.where(np.isnan(values), -1, values).astype(int)
            named[column.name] = pandas.Categorical.from_codes(codes, column.labels)
    return pandas.DataFrame(named)


def _encoded(column: pandas.Series) -> tuple[np.ndarray, Classes]:
    """Return int64 codes ``[N]``, in the alphabetical order of the labels, and their labels."""
    from sklearn.preprocessing import LabelEncoder

    encoder = LabelEncoder()
    codes = encoder.fit_transform(column.astype(object))
    return codes, [label if isinstance(label, str) else None for label in encoder.classes_]


def _scaled(frame: pandas.DataFrame) -> tuple[np.ndarray, dict[str, Any]]:
    """Return every column with mean 0 and variance 1, and the means and scales."""
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler(copy=False)
    # Fortran order: another order in memory changes the last bit of sums.
    scaled = scaler.fit_transform(np.asfortranarray(frame.to_numpy(float)))
    scaling = {"means": scaler.mean_.tolist(), "scales": scaler.scale_.tolist()}
    return scaled, {"feature_names": [*frame.columns]} | scaling


def _one_hot(
    name: str, frame: pandas.DataFrame, categories: Mapping[str, Classes]
) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the numeric columns, scaled, and one column for each label of the nominal ones."""
    from sklearn.preprocessing import OneHotEncoder

    numeric = frame.drop(columns=[*categories])
    width = numeric.shape[1] + sum(map(len, categories.values()))
    num_bytes = VALUE_BYTES * len(frame) * width
    check_limit("table_bytes", num_bytes, f"{name}, with one column a label,")
    observation = OneHotEncoder(sparse_output=False).fit_transform(frame[[*categories]])
    names = [f"{name}={label}" for name, classes in categories.items() for label in classes]
    if numeric.empty:
        return observation, {"feature_names": names}
    scaled, metadata = _scaled(numeric)
    metadata["feature_names"] += names
    return np.concatenate((scaled, observation), axis=1), metadata
