"""Files of flat columns, all steps one after the other: their steps, in and out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from datasets_cli.errors import UsageError
from datasets_cli.exchange.columns import RETURNED, check_lengths, named_columns
from datasets_cli.exchange.format import ColumnMap
from datasets_cli.exchange.mapping import ENDS
from datasets_cli.exchange.steps import (
    StepColumns,
    check_flags,
    episode_lengths,
    flagged_ends,
    marked,
    trajectory_ends,
)
from datasets_cli.schema.columns import (
    DONE,
    EPISODE,
    TERMINATED,
    TRAJECTORY_END,
    TRUNCATED,
    Key,
    rows_per_block,
    show_key,
)
from datasets_cli.schema.steps import ROOT_FLAGS
from datasets_cli.store.arrays import DatasetArrays
from datasets_cli.store.manifest import Manifest

FLAGS = (TERMINATED, TRUNCATED)
MADE_AGAIN = frozenset({DONE, *ROOT_FLAGS})
"""Columns that the flags of a step give: they are not written, and made again when read."""

IMPORTED_FROM = "imported_from"
"""The metadata that names the format of an import."""

Runs = Callable[[list[str]], Iterator[Mapping[str, Any]]]
"""Yields runs of rows of some columns by name, in order, each of the same rows."""


def flat_steps(columns: ColumnMap, runs: Runs) -> Iterator[StepColumns]:
    """Yield the steps of flat columns; what says where trajectories end is read whole, first."""
    ends = _told_ends(columns, runs)
    names = {tuple(key.split(".")): name for key, name in columns.items() if key not in ENDS}
    first = 0
    for run in runs([*dict.fromkeys(names.values())]):  # each once, of whatever keys it is
        named = named_columns({key: run[name] for key, name in names.items()})
        count = check_lengths(named, f"The steps from {first:,} on")
        if ends is None:
            own = flagged_ends(named, count, first)
        elif len(ends) < first + count:
            raise _of_other_length(len(ends), "more")
        else:
            may_be_cut = "ends" not in columns and len(ends) == first + count
            own = check_flags(ends[first : first + count], named, first, may_be_cut)
        first += count
        yield {**named, TRAJECTORY_END: own}
    if ends is not None and len(ends) != first:
        raise _of_other_length(len(ends), f"{first:,}")


def _told_ends(columns: ColumnMap, runs: Runs) -> np.ndarray | None:
    """Return where columns say that trajectories end, bool ``[N]``; None where none does."""
    given = {key: columns[key] for key in ENDS if key in columns}
    if [*given] == ["episode"]:  # a number a step, of which lengths alone are kept
        name = given["episode"]
        return marked(episode_lengths(run[name] for run in runs([name])))
    told = {key: _whole(runs, name) for key, name in given.items()}
    if not told:
        return None
    lengths = told.get("lengths")
    num_told = len(next(iter(told.values()))) if lengths is None else int(lengths.sum())
    return trajectory_ends({}, num_told, *map(told.get, ENDS))


def _whole(runs: Runs, name: str) -> np.ndarray:
    parts = [run[name] for run in runs([name])]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _of_other_length(told: int, found: str) -> UsageError:
    return UsageError(
        f"What says where trajectories end is for {told:,} steps, and the columns have {found}. "
        "Correct one of the two."
    )


TAKEN = frozenset({*ENDS, *(name for (name,) in RETURNED if (name,) not in ROOT_FLAGS)})
"""Names that a column of no other key may have."""
FLAT_NAMES = {ours: show_key(theirs) for theirs, ours in RETURNED.items()}


def flat_name(key: Key, names: Mapping[Key, str] = FLAT_NAMES, between: str = ".") -> str:
    """Return the name of a column in flat files: what people call it, or our key with dots."""
    depth = next((n for n in (2, 1) if key[:n] in names), 0)
    return between.join((*([names[key[:depth]]] if depth else []), *key[depth:]))


def is_nameable(key: Key) -> bool:
    """Return whether a name with dots is read as this key and no other."""
    is_told = key[0] in TAKEN and key != EPISODE
    return not (is_told or any(set(name) & {".", "\0"} for name in key))


def flat_names(manifest: Manifest) -> dict[Key, str]:
    """Return the names of the columns that flat files have, in the order of the manifest."""
    keys = [column.key for column in manifest.all_columns]
    return {key: flat_name(key) for key in keys if key not in MADE_AGAIN and is_nameable(key)}


def lost_columns(manifest: Manifest) -> list[str]:
    """Return the columns that flat files have no name for."""
    lost = (show_key(each.key) for each in manifest.all_columns if not is_nameable(each.key))
    return [f"{name}: its name would be read as another key's, and it is left out" for name in lost]


def key_runs(dataset: DatasetArrays, keys: Iterable[Key]) -> Iterator[StepColumns]:
    """Yield all rows of some columns in bounded runs, text as objects."""
    rows, step = dataset.arrays_of(frozenset(keys)), rows_per_block(dataset.row_bytes)
    for start in range(0, len(dataset), step):
        yield dict(rows.run(start, min(start + step, len(dataset))))


def lost_metadata(manifest: Manifest) -> list[str]:
    """Return that a file of arrays alone loses what is said of the data, where anything is."""
    # The format that it was imported from is not said of the data.
    said = [name for name, each in manifest.metadata.items() if each and name != IMPORTED_FROM]
    return [f"what is said of the data: {', '.join(said)}"] if said else []
