"""Reading OGBench's archives: T + 1 states of each trajectory, the last one without an action.

    rows         s0 a0   s1 a1   s2 a2   s3 --     terminals 0 0 0 1
    transitions  s0 a0 s1   s1 a1 s2   s2 a2 s3    the last one is truncated

The file has no state after the action in a trajectory's last row. OGBench's loader drops this row
too, after its state became the last of ``next_observations``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from datasets_cli.formats.npz import NpzArray, read_headers, read_rows
from datasets_cli.recipe import SPLIT, Block, Description, Key, Source, SourceError

from .catalogue import SPLITS, Variant, variants
from .relabel import Task

ENDS = "terminals"
ACTIONS = "actions"
BUTTONS = "button_states"
REQUIRED = ("observations", ACTIONS, ENDS)
STATES: dict[str, Key] = {
    "observations": ("observation",),
    "qpos": ("info", "qpos"),
    "qvel": ("info", "qvel"),
    BUTTONS: ("info", BUTTONS),
}
"""The arrays of states. The state in the next row is the successor."""
ORACLE_REPS: Key = ("info", "oracle_reps")

Rows = Mapping[str, np.ndarray]
Headers = Mapping[str, NpzArray]


class Archive(NamedTuple):
    """A checked archive: the headers of its arrays, and the size of its contents.

    ``others`` are names of arrays that are not read.
    """

    split: str
    path: Path
    arrays: dict[str, NpzArray]
    others: list[str]
    num_trajectories: int
    num_transitions: int


def describe(source: Source) -> Description:
    """Return the entry's details, and notes on omitted actions and arrays."""
    archives = _archives(source, variants()[source.name])
    count = sum(archive.num_trajectories for archive in archives)
    notes = [
        f"{count:,} actions are left out: in the last row of each trajectory, which is only the "
        "successor of the row before"
    ]
    for archive in archives:
        if archive.others:
            listed = ", ".join(archive.others)
            notes.append(f"unknown arrays of {archive.path.name} are not read: {listed}")
    return Description(source.entry.details if source.entry else {}, tuple(notes))


def blocks(source: Source) -> Iterator[Block]:
    """Yield the transitions of the training file, then of the validation file."""
    variant = variants()[source.name]
    archives = _archives(source, variant)
    total_rows = sum(archive.num_transitions for archive in archives)
    task = Task.of(variant) if variant.is_computed else None
    for archive in archives:
        for rows in _with_carry(read_rows(archive.path, archive.arrays)):
            # The last row of the block is the first one of the next, so nothing ends with it.
            kept = np.flatnonzero(rows[ENDS].reshape(-1)[:-1] == 0)
            now = {name: values[kept] for name, values in rows.items()}
            following = {name: values[kept + 1] for name, values in rows.items()}
            columns = _columns(now, following)
            if task is not None:
                columns |= _computed(task, variant, now, following)
            columns[SPLIT] = np.full(len(kept), archive.split, dtype=object)
            yield Block(columns, total_rows=total_rows)


def _archives(source: Source, variant: Variant) -> list[Archive]:
    """Return the archives of both splits, after checks of their arrays and ends."""
    archives: list[Archive] = []
    for split, suffix in SPLITS.items():
        path = source.files[f"{variant.base}{suffix}.npz"]
        arrays, others = _arrays(path, variant)
        if archives:
            _check_equal(path, arrays, archives[0].arrays)
        archives.append(Archive(split, path, arrays, others, *_count(path, arrays[ENDS])))
    return archives


def _arrays(path: Path, variant: Variant) -> tuple[dict[str, NpzArray], list[str]]:
    """Return the headers of the arrays to read, and the names of all other arrays."""
    widths = Task.of(variant).widths if variant.is_computed else {}
    present = read_headers(path, [*REQUIRED, *widths])
    names = [*REQUIRED, *(name for name in STATES if name in present and name not in REQUIRED)]
    arrays = {name: header for name, header in read_headers(path, names).items() if name in names}
    for name, width in widths.items():
        found = list(arrays[name].shape[1:])
        # No rule reads the further numbers of qpos.
        if len(found) != 1 or found[0] < width or (name == BUTTONS and found[0] != width):
            least = "" if name == BUTTONS else " or more"
            expected = f"{width}{least} numbers in each row, for {variant.environment}"
            raise _wrong(path, name, expected, f"rows of {found}")
    return arrays, sorted(present.keys() - arrays.keys())


def _check_equal(path: Path, arrays: Headers, train: Headers) -> None:
    """Check that the arrays of a split have the names, dtypes and rows of the training file."""
    forms = [
        {name: f"{header.dtype} {list(header.shape[1:])}" for name, header in each.items()}
        for each in (train, arrays)
    ]
    for name in sorted(train.keys() | arrays.keys()):
        expected, found = (form.get(name, "no such array") for form in forms)
        if expected != found:
            raise _wrong(path, name, f"{expected}, as in the training file", found)


def _count(path: Path, header: NpzArray) -> tuple[int, int]:
    """Return the number of trajectories and of transitions, after a check of all ends."""
    if header.shape[1:] not in ((), (1,)):
        raise _wrong(path, ENDS, "one number in each row", f"rows of {list(header.shape[1:])}")
    num_rows = num_ends = 0
    before = np.ones(1)
    for block in read_rows(path, {ENDS: header}):
        flags = block[ENDS].reshape(-1)
        wrong = np.flatnonzero((flags != 0) & (flags != 1))
        # A last row that follows a last row: a trajectory without a transition.
        alone = np.flatnonzero((flags == 1) & (np.concatenate((before, flags[:-1])) == 1))
        for rows, expected in ((wrong, "0 or 1"), (alone, "0 in the first row of a trajectory")):
            if len(rows):
                found = str(flags[rows[0]])
                raise _wrong(path, ENDS, expected, found, num_rows + int(rows[0]))
        num_rows, num_ends = num_rows + len(flags), num_ends + int((flags == 1).sum())
        before = flags[-1:]
    if not num_rows or before != 1:
        found = str(before[0]) if num_rows else "no rows"
        raise _wrong(path, ENDS, "1 in the last row", found, max(num_rows - 1, 0))
    return num_ends, num_rows - num_ends


def _wrong(path: Path, name: str, expected: str, found: str, row: int | None = None) -> SourceError:
    place = "" if row is None else f" in row {row:,}"
    return SourceError(
        f"{path.name}: the array {name} is wrong{place}: expected {expected}, found {found}. The "
        "file is damaged, or belongs to another dataset.",
        path=path,
        key=name,
        row=row,
        expected=expected,
        found=found,
    )


def _with_carry(blocks: Iterable[Rows]) -> Iterator[Rows]:
    """Yield blocks that begin with the last row of the block before."""
    held: Rows = {}
    for block in blocks:
        rows = block
        if held:
            rows = {name: np.concatenate((held[name], block[name])) for name in block}
        held = {name: values[-1:].copy() for name, values in rows.items()}
        yield rows


def _columns(now: Rows, following: Rows) -> dict[Key, np.ndarray]:
    """Return the columns that the file contains, of transitions."""
    columns: dict[Key, np.ndarray] = {
        ("action",): now[ACTIONS],
        ("next", "truncated"): following[ENDS],
    }
    for name, key in STATES.items():
        if name in now:
            columns[key], columns["next", *key] = now[name], following[name]
    return columns


def _computed(task: Task, variant: Variant, now: Rows, following: Rows) -> dict[Key, np.ndarray]:
    """Return the columns that OGBench's loader computes for a variant."""
    if variant.has_oracle_reps:
        reps = (task.oracle_reps(now), task.oracle_reps(following))
        return {ORACLE_REPS: reps[0], ("next", *ORACLE_REPS): reps[1]}
    rewards, is_solved = task.rewards(now)
    return {("next", "reward"): rewards, ("next", "terminated"): is_solved}
