"""The columns that a function returned for some rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from tensordict import TensorDict, is_leaf_nontensor, is_non_tensor

from datasets_cli.errors import UsageError
from datasets_cli.store.schema.bits import to_array
from datasets_cli.store.schema.columns import Column, Key, show_key
from datasets_cli.store.schema.texts import AnyColumn, any_column, is_text


class Returned(NamedTuple):
    """What a function returned for some rows."""

    # rows: its columns `[k, ...]`; text is an object array of str.
    # kept: which of the rows they are, bool `[n]`; None for all.

    rows: dict[Key, np.ndarray]
    kept: np.ndarray | None

    @property
    def columns(self) -> dict[Key, AnyColumn]:
        """The columns that the rows would fill."""
        return {key: any_column(key, values) for key, values in sorted(self.rows.items())}

    @property
    def is_empty(self) -> bool:
        """Whether no row is left."""
        return self.kept is not None and not self.kept.any()


def first_difference(one: dict[Key, AnyColumn], other: dict[Key, AnyColumn]) -> Key:
    """Return the first key by which two sets of columns, which differ, do so."""
    return min(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))


def kind_of(column: AnyColumn | None) -> str:
    """Return what a column is made of, as messages say it: ``float32 [39]``; None has none."""
    if column is None:
        return "missing"
    dtype = column.dtype if isinstance(column, Column) else "text"
    return f"{dtype} {list(column.shape)}"


def arrays_of(result: TensorDict, named: str) -> dict[Key, np.ndarray]:
    """Return the entries of a result as arrays ``[k, ...]``; text as object arrays of str."""
    keys = result.keys(include_nested=True, leaves_only=True, is_leaf=is_leaf_nontensor)
    names = [(key,) if isinstance(key, str) else key for key in keys]
    rows = {name: _array(name, result.get(name)) for name in names}
    if all(map(is_text, rows.values())):
        raise UsageError(f"The function returned no columns of numbers for {named}.")
    return rows


def _array(key: Key, entry: Any) -> np.ndarray:
    """Return an entry of the result as an array ``[n, ...]``; text as an object array of str."""
    if not is_non_tensor(entry):
        try:
            return np.ascontiguousarray(to_array(entry))
        except (TypeError, AttributeError, RuntimeError) as error:  # sparse, or another's class
            raise UsageError(
                f"The function returned what cannot be stored: {show_key(key)} is a "
                f"{type(entry).__name__} that cannot become an array ({error}). Expected a dense "
                "tensor of numbers or bool, or text."
            ) from error
    shape, flat = entry.batch_size, entry.tolist()
    for _ in shape[1:]:  # a list less deep each time
        flat = [value for values in flat for value in values]
    wrong = [type(value).__name__ for value in flat if not isinstance(value, str)]
    if wrong or len(flat) != shape.numel():
        found = wrong[0] if wrong else "rows of different shapes"
        raise UsageError(
            f"The function returned what cannot be stored: {show_key(key)} is no tensor; expected "
            f"a str for each row, or arrays of one shape of them, found {found}. An object of "
            "another kind may become numbers in tensors, or text, such as json.dumps of it."
        )
    texts = np.empty(len(flat), object)
    texts[:] = [*map(str, flat)]
    return texts.reshape(shape)
