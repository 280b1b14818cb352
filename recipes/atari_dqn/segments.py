"""In which order, and in which slots, the logs of a DQN Replay run hold its rows.

The replay buffer is a ring of C slots that is filled again and again. The writer copies all of it
to a log each time it has filled slot C - 2, when slot C - 1 still has the row of the round before:

    log 0           rows 0 to C-2 in slots 0 to C-2; slot C-1 was never filled: garbage
    log 1           row C-1 in slot C-1, then the rows C to 2C-2 in slots 0 to C-2
    log 2, final    row 2C-1 in slot C-1, then the last rows from slot 0 on; the others are log 1's

``add_count`` is the number of rows ever written, but in the final log, where it is the next slot.
The start of an episode writes four rows at once, so that the writer can step over the moment and
log nothing for a whole round: ``add_count`` is then 2C more than in the log before.

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
        """Return the few frames of the slots ``start`` to ``stop - 1``, which takes a while."""
        # uint8 `[stop - start, 84, 84]`.
        found = [np.zeros((0, *FRAME), np.uint8)]
        first = 0
        for frames in read_rows(self.files["observation"], "uint8", (self.capacity, *FRAME)):
            # These frames are of the slots first, first + 1, …: cut what is wanted out of them.
            found.append(frames[max(0, start - first) : max(0, stop - first)].copy())
            first += len(frames)
            if first >= stop:
                break
        return np.concatenate(found)


class LogSegment(NamedTuple):
    """The rows that a log adds to those before it, in the order in which they were written."""

    log: Log
    first: int
    num_rows: int
    follows: bool
    begins: bool = False
    num_empty: int = 0

    @property
    def slots(self) -> np.ndarray:
        """The slot of each row, int64 ``[num_rows]``."""
        return (self.first + np.arange(self.num_rows)) % self.log.capacity  # round the ring


def read_segments(files: Mapping[str, Path]) -> list[LogSegment]:
    """Return what each log adds, in the order of time."""
    logs = [_read_log(files, number) for number in log_numbers(files)]
    sizes = {log.capacity: log.number for log in logs}
    if len(sizes) > 1:
        listed = ", ".join(f"{size} in {number}" for size, number in sorted(sizes.items()))
        raise SourceError(
            f"The checkpoints have different numbers of rows ({listed}): they are not all of one "
            "run, or one is damaged."
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
                f"{stores[store].name}. One of the files is damaged, or another run's."
            )
    if capacity < 2:
        raise SourceError(
            f"Checkpoint {number} has {capacity} rows; the writer's buffer has a million. Its "
            "files are damaged, or not the published ones."
        )
    return Log(number, add_count, capacity, stores)


def _full(log: Log, before: Log | None) -> LogSegment:
    """Return what a log adds that was written in time."""
    capacity, steps = log.capacity, log.add_count - (before.add_count if before else 0)
    if log.add_count % capacity != capacity - 1 or (before and steps <= 0):
        raise _impossible(log, before)
    if log.add_count < capacity:
        return LogSegment(log, 0, capacity - 1, follows=False, begins=True)  # log 0 of the drawing
    return LogSegment(log, capacity - 1, capacity, follows=before is not None and steps == capacity)


def _final(log: Log, before: Log | None) -> LogSegment:
    """Return what the log adds that was written at the end, at whatever slot that was."""
    cursor, capacity = log.add_count, log.capacity
    if not 0 <= cursor < capacity:
        raise _impossible(log, before)
    if log.number == 0:
        return LogSegment(log, 0, cursor, follows=False, begins=True)
    # Slot C - 1, then the slots 0 to cursor - 1: cursor + 1 rows, and none where the cursor is at
    # slot C - 1, for nothing was written after the log before.
    if before is None:
        return LogSegment(log, capacity - 1, (cursor + 1) % capacity, follows=False)
    repeated = cursor if cursor < capacity - 1 else 0  # nothing came after the log before
    if _same(log, before, repeated, capacity - 1):
        return LogSegment(log, capacity - 1, (cursor + 1) % capacity, follows=True)
    # What is left of the round before was never logged: the ring holds its last C rows.
    return LogSegment(log, cursor, capacity, follows=False)


def _same(log: Log, before: Log, start: int, stop: int) -> bool:
    """Return whether two logs have the same rows in the slots ``start`` to ``stop - 1``."""
    for store in SMALL:
        if (log.column(store)[start:stop] != before.column(store)[start:stop]).any():
            return False
    # A few actions may be the same by chance.
    few = stop - start < FEW_ROWS
    return not few or bool((log.frames(start, stop) == before.frames(start, stop)).all())


def _num_empty(segment: LogSegment) -> int:
    """Return how many empty rows a segment begins with; where its past is missing, frames tell."""
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
        f"{count}{after} is not what the writer leaves: it logs when add_count has risen by "
        f"{log.capacity}, or twice that, to one less than a multiple, and at the very end. The "
        "files are not of one run, or one is damaged."
    )
