"""Reads and writes the steps of flat columns: all steps in one array for each column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from datasets_cli.errors import WrongRows
from datasets_cli.exchange.columns import RETURNED, check_lengths, named_columns
from datasets_cli.exchange.format import ENDS, ColumnMap
from datasets_cli.exchange.steps import (
    StepColumns,
    check_flags,
    ends_of,
    episode_lengths,
    flagged_ends,
    trajectory_ends,
)
from datasets_cli.schema.columns import (
    DONE,
    EPISODE,
    REWARD,
    TERMINATED,
    TRAJECTORY_END,
    TRUNCATED,
    Key,
    numpy_dtype,
    rows_per_block,
    show_key,
)
from datasets_cli.schema.steps import MADE_BY_THE_CORE, NEXT_OBSERVATION, ROOT_FLAGS
from datasets_cli.schema.texts import TEXT, RecordedColumn
from datasets_cli.schema.transitions import SHIFTED
from datasets_cli.store.arrays import DatasetArrays
from datasets_cli.store.manifest import Manifest

FLAGS = (TERMINATED, TRUNCATED)
COMPUTED = frozenset({DONE, *ROOT_FLAGS})
"""Columns computed from the flags of a step: not written, and computed again by the reader."""

IMPORTED_FROM = "imported_from"
"""The entry of the metadata with the format of an imported file."""

Runs = Callable[[list[str]], Iterator[Mapping[str, Any]]]
"""Yields the rows of some columns, by name, in runs; a run has the same rows of each column."""


def flat_steps(columns: ColumnMap, runs: Runs) -> Iterator[StepColumns]:
    """Yield the steps of flat columns; the columns of trajectory ends are read first, and whole."""
    ends = _mapped_ends(columns, runs)
    names = {tuple(key.split(".")): name for key, name in columns.items() if key not in ENDS}
    first = 0
    for run in runs([*dict.fromkeys(names.values())]):  # once, even if two keys read it
        named = named_columns({key: run[name] for key, name in names.items()})
        count = check_lengths(named, f"The steps from {first:,} on")
        if ends is None:
            run_ends = flagged_ends(named, count, first)
        elif len(ends) < first + count:
            raise _wrong_length(len(ends), "more")
        else:
            may_be_cut = "ends" not in columns and len(ends) == first + count
            run_ends = check_flags(ends[first : first + count], named, first, may_be_cut)
        first += count
        yield {**named, TRAJECTORY_END: run_ends}
    if ends is not None and len(ends) != first:
        raise _wrong_length(len(ends), f"{first:,}")


def _mapped_ends(columns: ColumnMap, runs: Runs) -> np.ndarray | None:
    """Return the ends of trajectories, bool ``[N]``, of a mapped column; None without one."""
    names = {key: columns[key] for key in ENDS if key in columns}
    if [*names] == ["episode"]:  # read in runs: only the lengths stay in memory
        name = names["episode"]
        return ends_of(episode_lengths(run[name] for run in runs([name])))
    arrays = {key: _whole(runs, name) for key, name in names.items()}
    if not arrays:
        return None
    lengths = arrays.get("lengths")
    num_steps = len(next(iter(arrays.values()))) if lengths is None else int(lengths.sum())
    return trajectory_ends({}, num_steps, *map(arrays.get, ENDS))


def _whole(runs: Runs, name: str) -> np.ndarray:
    parts = [run[name] for run in runs([name])]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _wrong_length(num_steps: int, found: str) -> WrongRows:
    return WrongRows(
        f"The column of trajectory ends is for {num_steps:,} steps, and the other columns have "
        f"{found}.",
        expected=num_steps,
        found=found,
        advice="Correct one of the two.",
    )


RESERVED_NAMES = frozenset({*ENDS, *(name for (name,) in RETURNED if (name,) not in ROOT_FLAGS)})
"""Names that are read as known keys, so that no other column may have them."""
FLAT_NAMES = {key: show_key(name) for name, key in RETURNED.items()}


def flat_name(key: Key, names: Mapping[Key, str] = FLAT_NAMES, between: str = ".") -> str:
    """Return the name of a column in flat files: its usual name, or its key with dots."""
    depth = next((n for n in (2, 1) if key[:n] in names), 0)
    return between.join((*([names[key[:depth]]] if depth else []), *key[depth:]))


def recorded_columns(manifest: Manifest) -> tuple[RecordedColumn, ...]:
    """Return the columns of the recorded steps, under the source's names or those of a dict."""
    if manifest.recorded:
        return manifest.recorded
    is_shifted = manifest.successors.get("rule") == SHIFTED and manifest.parent is None
    left_out = [NEXT_OBSERVATION] if is_shifted or manifest.final_steps else []
    columns = []
    for each in manifest.all_columns:
        if each.key not in MADE_BY_THE_CORE and each.key[:2] not in left_out:
            dtype = "<U0" if each.dtype == TEXT else numpy_dtype(each.dtype).str
            shape = () if each.key in (REWARD, *FLAGS) else each.shape
            columns.append(RecordedColumn(flat_name(each.key), each.key, dtype, shape))
    return tuple(columns)


def is_nameable(key: Key) -> bool:
    """Return whether the key with dots as a name is read back as the same key."""
    is_reserved = key[0] in RESERVED_NAMES and key != EPISODE
    return not (is_reserved or any(set(name) & {".", "\0"} for name in key))


def flat_names(manifest: Manifest) -> dict[Key, str]:
    """Return the names of the columns in flat files, in the order of the manifest."""
    keys = [column.key for column in manifest.all_columns]
    return {key: flat_name(key) for key in keys if key not in COMPUTED and is_nameable(key)}


def lost_columns(manifest: Manifest) -> list[str]:
    """Return a sentence for each column that no name in a flat file stands for."""
    lost = (show_key(each.key) for each in manifest.all_columns if not is_nameable(each.key))
    return [
        f"{name}: it is left out, because its name would be read as another key" for name in lost
    ]


def key_runs(dataset: DatasetArrays, keys: Iterable[Key]) -> Iterator[StepColumns]:
    """Yield all rows of some columns in bounded runs; text has the dtype object."""
    rows, step = dataset.arrays_of(frozenset(keys)), rows_per_block(dataset.row_bytes)
    for start in range(0, len(dataset), step):
        yield dict(rows.run(start, min(start + step, len(dataset))))


def lost_metadata(manifest: Manifest) -> list[str]:
    """Return a sentence with the metadata that a file of arrays loses; empty without metadata."""
    # The format of an import is not lost: it describes the file and not the data.
    names = [name for name, each in manifest.metadata.items() if each and name != IMPORTED_FROM]
    return [f"metadata of the dataset: {', '.join(names)}"] if names else []
