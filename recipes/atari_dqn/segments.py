"""The order and the slots of the rows in the logs of a DQN Replay run.

The replay buffer is a ring of C slots. The writer copies it to a log each time it has filled slot
C - 2, when slot C - 1 still has the row of the previous round:

    log 0           rows 0 to C-2 in slots 0 to C-2; slot C-1 was never filled: garbage
    log 1           row C-1 in slot C-1, then the rows C to 2C-2 in slots 0 to C-2
    log 2, final    row 2C-1 in slot C-1, then the last rows from slot 0; the rest repeats log 1

``add_count`` is the number of rows written so far, except in the final log, where it is the next
slot. The start of an episode writes four rows at once, so the writer can miss slot C - 2 and log
nothing for a whole round: ``add_count`` is then 2C more than in the previous log.

Facts: batch_rl's ``logged_replay_buffer.py``; every log of a writer that follows it was compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from datasets_cli.formats.npy import read_array, read_rows, read_shape
from datasets_cli.recipe import SourceError

from .log_files import COUNT, STORES, filename, log_numbers

FRAME = (84, 84)
DTYPES = {"observation": "uint8", "action": "int32", "reward": "float32", "terminal": "uint8"}
SMALL = ("action", "reward", "terminal")
NUM_EMPTY = 3
FEW_ROWS = 1000


class Log(NamedTuple):
    """One log."""

    number: int
    add_count: int
    capacity: int
    files: dict[str, Path]

    def column(self, store: str) -> np.ndarray:
        """Return a small column ``[C]``, by slot."""
        return read_array(self.files[store], DTYPES[store], (self.capacity,))

    def frames(self, start: int, stop: int) -> np.ndarray:
        """Return the frames of the slots ``start`` to ``stop - 1``; slow, so read only a few."""
        # uint8 `[stop - start, 84, 84]`.
        found = [np.zeros((0, *FRAME), np.uint8)]
        first = 0
        for frames in read_rows(self.files["observation"], "uint8", (self.capacity, *FRAME)):
            # These frames belong to the slots first, first + 1, …
            found.append(frames[max(0, start - first) : max(0, stop - first)].copy())
            first += len(frames)
            if first >= stop:
                break
        return np.concatenate(found)


class LogSegment(NamedTuple):
    """The rows that a log adds to the logs before it, in the order of writing."""

    log: Log
    first: int
    num_rows: int
    follows: bool
    begins: bool = False
    num_empty: int = 0

    @property
    def slots(self) -> np.ndarray:
        """The slot of each row, int64 ``[num_rows]``."""
        return (self.first + np.arange(self.num_rows)) % self.log.capacity


def read_segments(files: Mapping[str, Path]) -> list[LogSegment]:
    """Return the segment of each log, in the order of writing."""
    logs = [_read_log(files, number) for number in log_numbers(files)]
    sizes = {log.capacity: log.number for log in logs}
    if len(sizes) > 1:
        listed = ", ".join(f"{size} in {number}" for size, number in sorted(sizes.items()))
        raise SourceError(
            f"The checkpoints have different numbers of rows ({listed}): they do not belong to one "
            "run, or one is damaged.",
            found=sorted(sizes),
        )
    segments = []
    for number, log in enumerate(logs):
        before = logs[number - 1] if number else None
        is_final = log.add_count < log.capacity - 1 or (
            log.add_count == log.capacity - 1 and log.number > 0
        )
        if is_final and log is not logs[-1]:
            raise _impossible(log, before)
        segments.append(_final(log, before) if is_final else _full(log, before))
    return [each._replace(num_empty=_num_empty(each)) for each in segments if each.num_rows]


def _read_log(files: Mapping[str, Path], number: int) -> Log:
    add_count = int(read_array(files[filename(COUNT, number)], "int64", ()))
    stores = {store: files[filename(store, number)] for store in STORES}
    lengths = {
        store: read_shape(path, DTYPES[store], (None, *(FRAME if store == "observation" else ())))
        for store, path in stores.items()
    }
    capacity = lengths["observation"][0]
    for store, (length, *_) in lengths.items():
        if length != capacity:
            raise SourceError(
                f"Checkpoint {number} has {capacity} observations but {length} rows in "
                f"{stores[store].name}. One of the files is damaged, or belongs to another run.",
                path=stores[store],
                expected=capacity,
                found=length,
            )
    if capacity < 2:
        raise SourceError(
            f"Checkpoint {number} has {capacity} rows; expected a million. Its files are damaged, "
            "or not the published ones.",
            expected=1_000_000,
            found=capacity,
        )
    return Log(number, add_count, capacity, stores)


def _full(log: Log, before: Log | None) -> LogSegment:
    """Return the segment of a log that was written when the ring was full."""
    capacity, steps = log.capacity, log.add_count - (before.add_count if before else 0)
    if log.add_count % capacity != capacity - 1 or (before and steps <= 0):
        raise _impossible(log, before)
    if log.add_count < capacity:
        return LogSegment(
            log, 0, capacity - 1, follows=False, begins=True
        )  # log 0 in the module's drawing
    return LogSegment(log, capacity - 1, capacity, follows=before is not None and steps == capacity)


def _final(log: Log, before: Log | None) -> LogSegment:
    """Return the segment of the log that was written at the end of the run, at any slot."""
    cursor, capacity = log.add_count, log.capacity
    if not 0 <= cursor < capacity:
        raise _impossible(log, before)
    if log.number == 0:
        return LogSegment(log, 0, cursor, follows=False, begins=True)
    # Slot C - 1, then the slots 0 to cursor - 1: cursor + 1 rows. A cursor at slot C - 1 means that
    # nothing was written after the previous log.
    if before is None:
        return LogSegment(log, capacity - 1, (cursor + 1) % capacity, follows=False)
    repeated = cursor if cursor < capacity - 1 else 0
    if _same(log, before, repeated, capacity - 1):
        return LogSegment(log, capacity - 1, (cursor + 1) % capacity, follows=True)
    # The previous round was not logged: the ring has its last C rows.
    return LogSegment(log, cursor, capacity, follows=False)


def _same(log: Log, before: Log, start: int, stop: int) -> bool:
    """Return whether two logs have the same rows in the slots ``start`` to ``stop - 1``."""
    for store in SMALL:
        if (log.column(store)[start:stop] != before.column(store)[start:stop]).any():
            return False
    # A few actions may be equal by chance.
    few = stop - start < FEW_ROWS
    return not few or bool((log.frames(start, stop) == before.frames(start, stop)).all())


def _num_empty(segment: LogSegment) -> int:
    """Return the number of empty rows at the beginning of a segment."""
    # Without the logs before it, only frames distinguish empty rows.
    if segment.follows or segment.begins:
        return NUM_EMPTY if segment.begins else 0
    columns = [segment.log.column(store) for store in SMALL]
    for number, slot in enumerate(segment.slots[:NUM_EMPTY].tolist()):
        is_empty = not any(column[slot] for column in columns)
        if not is_empty or segment.log.frames(slot, slot + 1).any():
            return number
    return min(NUM_EMPTY, segment.num_rows)


def _impossible(log: Log, before: Log | None) -> SourceError:
    count = f"add_count {log.add_count} in checkpoint {log.number}"
    after = f", after {before.add_count} in checkpoint {before.number}" if before else ""
    return SourceError(
        f"{count}{after} is impossible: a log is written when add_count has risen by "
        f"{log.capacity}, or twice that, to one less than a multiple, and at the end. The files do "
        "not belong to one run, or one is damaged.",
        found=log.add_count,
    )
