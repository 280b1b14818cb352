"""TorchRL's seven tables: scaled features and encoded labels, by scikit-learn's own encoders.

What TorchRL does to each (``torchrl/data/datasets/openml.py``, 0.14.1) is in ``catalogue.tsv``:

    codes      nominal features become label codes, then every feature is scaled
    onehot     numeric features are scaled and come first, nominal ones become one column a label
    numbers    the labels of nominal features are numbers; then every feature is scaled

Labels become codes. A ``target`` that OpenML has among the features becomes the label once the rows
with a missing feature are dropped: in adult, TorchRL predicts the occupation, not the income.
Scaling needs the whole table in memory, some three times: 0.8 GB for the largest, covertype. A
table of more values than ``--limit table_values`` is refused before that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from datasets_cli.formats.limits import check_limit
from datasets_cli.recipe import Block, Source, SourceError, rows_per_block

from .rows import open_rows
from .table import Column, Table, one_step

CODES, ONE_HOT, NUMBERS = "codes", "onehot", "numbers"

Classes = list[str | None]
"""What each code of a column means; None is a missing value."""


@dataclass(frozen=True)
class Prepared:
    """A table as TorchRL has it."""

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
    features = [feature for feature in table.features if feature != label]
    blocks = _read(source, [*features, label], complete=bool(target))
    action, classes = _encoded(label, _column(blocks, -1))
    numbers, categories = _numbers(features, blocks, encoding)
    del blocks  # scaling takes as much again
    if encoding == ONE_HOT:
        observation, metadata = _one_hot(source.name, features, numbers, categories)
    else:
        observation, metadata = _scaled(features, numbers)
    metadata |= {"target_names": [label.name], "classes": {label.name: classes}}
    return Prepared(observation, action, {"categories": categories, **metadata})


def _label(table: Table, target: str) -> Column:
    columns = [c for c in table.features if c.name == target] if target else table.targets
    if len(columns) != 1:
        raise SourceError(
            f"expected one label{f' {target!r}' if target else ''}, found "
            f"{', '.join(column.name for column in columns) or 'none'}."
        )
    return columns[0]


def _read(source: Source, columns: Sequence[Column], *, complete: bool) -> list[np.ndarray]:
    """Return all rows, or those without a missing value, in blocks of float64 ``[n, C]``."""
    blocks: list[np.ndarray] = []
    num_values = 0
    with open_rows(source) as rows:
        for block in rows.blocks([column.index for column in columns]):
            num_values += block.size
            check_limit("table_values", num_values, source.name)
            blocks.append(block)
    return [block[~np.isnan(block).any(axis=1)] for block in blocks] if complete else blocks


def _column(blocks: Sequence[np.ndarray], number: int) -> np.ndarray:
    return np.concatenate([block[:, number] for block in blocks])


def _numbers(
    features: Sequence[Column], blocks: Sequence[np.ndarray], encoding: str
) -> tuple[np.ndarray, dict[str, Classes]]:
    """Return float64 ``[N, F]``, nominal features as codes or as numbers, and what codes mean."""
    # Column by column in memory, as a DataFrame is: another order gives sums of another last bit.
    matrix = np.empty((sum(map(len, blocks)), len(features)), order="F")
    categories = {}
    for number, feature in enumerate(features):
        column = _column(blocks, number)
        if feature.labels is not None and encoding == NUMBERS:
            column = _texts(feature, column).astype(float)
        elif feature.labels is not None:
            column, categories[feature.name] = _encoded(feature, column)
        matrix[:, number] = column
    return matrix, categories


def _texts(column: Column, positions: np.ndarray) -> np.ndarray:
    """Return the labels themselves, objects ``[N]``; NaN where missing."""
    # NaN stands after the labels, so that it is at the position of every missing value.
    texts = np.array([*(column.labels or ()), np.nan], dtype=object)
    return np.asarray(texts[np.where(np.isnan(positions), len(texts) - 1, positions).astype(int)])


def _encoded(column: Column, positions: np.ndarray) -> tuple[np.ndarray, Classes]:
    """Return int64 codes ``[N]``, in the labels' alphabetical order, and what they mean."""
    from sklearn.preprocessing import LabelEncoder

    encoder = LabelEncoder()
    codes = encoder.fit_transform(_texts(column, positions))
    return codes, [label if isinstance(label, str) else None for label in encoder.classes_]


def _scaled(features: Sequence[Column], matrix: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    """Return every column with mean 0 and variance 1, and what undoes it."""
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler(copy=False)
    scaled = scaler.fit_transform(matrix)
    scaling = {"means": scaler.mean_.tolist(), "scales": scaler.scale_.tolist()}
    return scaled, {"feature_names": [feature.name for feature in features]} | scaling


def _one_hot(
    name: str, features: Sequence[Column], matrix: np.ndarray, categories: Mapping[str, Classes]
) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the numeric columns scaled, then one column for each label of the others."""
    from sklearn.preprocessing import OneHotEncoder

    nominal = np.array([feature.name in categories for feature in features])
    width = int((~nominal).sum()) + sum(map(len, categories.values()))
    check_limit("table_values", len(matrix) * width, f"{name}: one column a label")
    observation = OneHotEncoder(sparse_output=False).fit_transform(matrix[:, nominal])
    names = [f"{name}={label}" for name, classes in categories.items() for label in classes]
    if nominal.all():
        return observation, {"feature_names": names}
    numeric = [feature for feature in features if feature.name not in categories]
    scaled, metadata = _scaled(numeric, np.asfortranarray(matrix[:, ~nominal]))
    metadata["feature_names"] += names
    return np.concatenate((scaled, observation), axis=1), metadata
