"""TorchRL's seven tables: scaled features and encoded labels, by scikit-learn's own encoders.

What TorchRL does to each (``torchrl/data/datasets/openml.py``, 0.14.1) stands in ``openml.tsv``:

    codes      nominal features become label codes, then every feature is scaled
    onehot     numeric features are scaled and come first, nominal ones become one column a label
    numbers    the labels of nominal features are numbers; then every feature is scaled

Labels become codes. A ``target`` that OpenML has among the features becomes the label once the rows
with a missing feature are dropped: in adult, TorchRL predicts the occupation, not the income.
Scaling needs the whole table in memory; the largest, covertype, takes 250 MB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from datasets_cli.recipe import Block, Source, SourceError, rows_per_block

from ._openml_table import Column, Table, one_step, open_rows

if TYPE_CHECKING:
    import numpy as np

CODES, ONE_HOT, NUMBERS = "codes", "onehot", "numbers"

Classes = list[str | None]
"""What each code of a column means; None is a missing value."""


@dataclass(frozen=True)
class Prepared:
    """A table as TorchRL has it.

    Args:
        observation: float64 ``[N, F]``.
        action: int64 ``[N]``.
        metadata: names, means and scales of the features, categories and classes.
    """

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
    """Return the whole table, encoded and scaled.

    Args:
        source: its files.
        table: what their documents say.
        encoding: ``CODES``, ``ONE_HOT`` or ``NUMBERS``.
        target: the feature that is the label; empty for OpenML's own.

    Raises:
        SourceError: the table has not the one label.
    """
    label = _label(table, target)
    features = [feature for feature in table.features if feature != label]
    columns = _read(source, [*features, label])
    if target:
        columns = _complete_rows(columns)
    *values, labels = columns
    action, classes = _encoded(label, labels)
    prepare_features = _one_hot if encoding == ONE_HOT else _scaled_all
    observation, metadata = prepare_features(features, values, encoding)
    metadata |= {"target_names": [label.name], "classes": {label.name: classes}}
    return Prepared(observation, action, metadata)


def _label(table: Table, target: str) -> Column:
    columns = [c for c in table.features if c.name == target] if target else table.targets
    if len(columns) != 1:
        raise SourceError(
            f"expected one label{f' {target!r}' if target else ''}, found "
            f"{', '.join(column.name for column in columns) or 'none'}."
        )
    return columns[0]


def _read(source: Source, columns: Sequence[Column]) -> list[np.ndarray]:
    """Return whole columns, float64 ``[N]`` each: numbers, positions of labels, NaN."""
    import numpy as np

    with open_rows(source) as rows:
        blocks = list(rows.blocks([column.index for column in columns]))
    return [np.concatenate([block[:, i] for block in blocks]) for i in range(len(columns))]


def _complete_rows(columns: list[np.ndarray]) -> list[np.ndarray]:
    import numpy as np

    complete = ~np.any([np.isnan(column) for column in columns], axis=0)
    return [column[complete] for column in columns]


def _texts(column: Column, positions: np.ndarray) -> np.ndarray:
    """Return the labels themselves, objects ``[N]``; NaN where missing."""
    import numpy as np

    texts = np.array([*(column.labels or ()), np.nan], dtype=object)
    return np.asarray(texts[np.where(np.isnan(positions), len(texts) - 1, positions).astype(int)])


def _encoded(column: Column, positions: np.ndarray) -> tuple[np.ndarray, Classes]:
    """Return int64 codes ``[N]``, in the labels' alphabetical order, and what they mean."""
    from sklearn.preprocessing import LabelEncoder

    encoder = LabelEncoder()
    codes = encoder.fit_transform(_texts(column, positions))
    return codes, [label if isinstance(label, str) else None for label in encoder.classes_]


def _scaled(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, dict[str, Any]]:
    """Return float64 ``[N, F]`` of mean 0 and variance 1, and the means and scales they had."""
    import numpy as np
    from sklearn.preprocessing import StandardScaler

    # Column by column in memory, as a DataFrame is: another order gives sums of another last bit.
    matrix = np.empty((len(columns[0]), len(columns)), order="F")
    for number, column in enumerate(columns):
        matrix[:, number] = column
    scaler = StandardScaler(copy=False)
    scaled = scaler.fit_transform(matrix)
    return scaled, {"means": scaler.mean_.tolist(), "scales": scaler.scale_.tolist()}


def _scaled_all(
    features: Sequence[Column], columns: Sequence[np.ndarray], encoding: str
) -> tuple[np.ndarray, dict[str, Any]]:
    numbers, categories = [], {}
    for feature, column in zip(features, columns, strict=True):
        if feature.labels is None:
            numbers.append(column)
        elif encoding == NUMBERS:
            numbers.append(_texts(feature, column).astype(float))
        else:
            codes, categories[feature.name] = _encoded(feature, column)
            numbers.append(codes)
    observation, metadata = _scaled(numbers)
    names = [feature.name for feature in features]
    return observation, metadata | {"feature_names": names, "categories": categories}


def _one_hot(
    features: Sequence[Column], columns: Sequence[np.ndarray], encoding: str
) -> tuple[np.ndarray, dict[str, Any]]:
    import numpy as np
    from sklearn.preprocessing import OneHotEncoder

    pairs = list(zip(features, columns, strict=True))
    numeric = [(feature, column) for feature, column in pairs if feature.labels is None]
    encoded = {f.name: _encoded(f, column) for f, column in pairs if f.labels is not None}
    codes = np.stack([codes for codes, _ in encoded.values()], axis=1)
    parts = [OneHotEncoder(sparse_output=False).fit_transform(codes)]
    metadata: dict[str, Any] = {"categories": {name: c for name, (_, c) in encoded.items()}}
    if numeric:
        scaled, scaling = _scaled([column for _, column in numeric])
        parts.insert(0, scaled)
        metadata |= scaling
    names = [feature.name for feature, _ in numeric]
    names += [f"{name}={label}" for name, (_, classes) in encoded.items() for label in classes]
    return np.concatenate(parts, axis=1), metadata | {"feature_names": names}
