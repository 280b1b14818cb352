"""Episodes on the disk, one after the other, so that a killed writer can go on.

columns.json   key, element type, shape of a step and file of each column
episodes       int64 [episodes, 1 + columns]: steps, and bytes of each column's file, up to the end
               of an episode; written after its columns, so that what a kill cut off is not counted
0, 1, ...      the steps of each column; text as a line of JSON a step
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from datasets_cli.errors import RldsError, UsageError
from datasets_cli.own.steps import StepColumns
from datasets_cli.schema.columns import TRAJECTORY_END, Key, rows_per_block, show_key
from datasets_cli.schema.texts import is_text
from datasets_cli.sources.disk import disk_errors, make_folder, replacing

COLUMNS, EPISODES = "columns.json", "episodes"
TEXT = "text"

Form = tuple[Key, str, tuple[int, ...]]
"""Key, element type and shape of a step of a column."""


class Journal:
    """The episodes that were added to a dataset so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._forms: list[Form] = []
        self._ends = np.zeros((0, 1), np.int64)
        self._new: list[list[int]] = []
        self._files = ExitStack()
        self._columns: list[BinaryIO] = []
        if (folder / COLUMNS).exists():
            self._continue()

    @property
    def num_episodes(self) -> int:
        """Episodes so far."""
        return len(self._ends) + len(self._new)

    @property
    def num_steps(self) -> int:
        """Steps so far."""
        return self._last[0]

    @property
    def _last(self) -> list[int]:
        if self._new:
            return self._new[-1]
        return self._ends[-1].tolist() if len(self._ends) else [0] * (1 + len(self._forms))

    def check(self, episode: StepColumns) -> None:
        """Check that an episode has the columns of those before it."""
        forms = _forms(episode)
        if self._forms and forms != self._forms:
            raise UsageError(_difference(self.num_episodes, forms, self._forms))

    def add(self, episode: StepColumns) -> None:
        """Append the steps of an episode, which was checked."""
        with disk_errors(self.folder):
            if not self._forms:
                self._begin(_forms(episode))
            row = [self.num_steps + len(episode[TRAJECTORY_END])]
            last = self._last[1:]
            for (key, _, _), file, end in zip(self._forms, self._columns, last, strict=True):
                row.append(end + file.write(_bytes_of(episode[key])))
                file.flush()
            self._episodes.write(np.array(row, "<i8").tobytes())
            self._episodes.flush()
        self._new.append(row)

    def blocks(self) -> Iterator[StepColumns]:
        """Yield all steps in blocks."""
        ends = np.zeros(self.num_steps, np.bool_)
        steps = [*self._ends[:, 0].tolist(), *(row[0] for row in self._new)]
        ends[np.array(steps, np.int64) - 1] = True
        with ExitStack() as opened:
            read = [self._reader(number, opened) for number in range(len(self._forms))]
            step = rows_per_block(sum(self._last[1:]) // max(1, self.num_steps))
            for start in range(0, self.num_steps, step):
                count = min(step, self.num_steps - start)
                columns = {
                    key: each(count) for (key, _, _), each in zip(self._forms, read, strict=True)
                }
                yield {**columns, TRAJECTORY_END: ends[start : start + count]}

    @property
    def fingerprint(self) -> str:
        """The sha256 of which columns and episodes there are; empty where there are none."""
        if not self.num_episodes:
            return ""
        files = (self.folder / name for name in (COLUMNS, EPISODES))
        return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()

    def close(self) -> None:
        """Close the files; the episodes stay."""
        self._files.close()

    def remove(self) -> None:
        """Delete the episodes."""
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _begin(self, forms: list[Form]) -> None:
        make_folder(self.folder)
        with replacing(self.folder / COLUMNS) as new:
            new.write_text(json.dumps(forms), encoding="utf-8")
        self._forms = forms
        self._open()

    def _continue(self) -> None:
        """Count the episodes that are whole, and cut off the one that a kill left."""
        try:
            listed = json.loads((self.folder / COLUMNS).read_text(encoding="utf-8"))
            self._forms = [(tuple(key), kind, tuple(shape)) for key, kind, shape in listed]
            self._open()
            width = 1 + len(self._forms)
            rows = np.fromfile(self.folder / EPISODES, "<i8")
            self._ends = rows[: len(rows) // width * width].reshape(-1, width).astype(np.int64)
            sizes = [os.fstat(file.fileno()).st_size for file in self._columns]
            wrong = np.flatnonzero((self._ends[:, 1:] > sizes).any(1))
            self._ends = self._ends[: wrong[0] if wrong.size else None]
            for file, end in zip(self._columns, self._last[1:], strict=True):
                file.truncate(end)
            self._episodes.truncate(self._ends.nbytes)
        except (OSError, ValueError, TypeError) as error:
            raise RldsError(
                f"{self.folder} has episodes of a writer that was killed, and cannot be read "
                f"({error}). Delete that folder to begin anew."
            ) from error

    def _open(self) -> None:
        paths = [self.folder / str(number) for number in range(len(self._forms))]
        self._columns = [self._files.enter_context(path.open("ab")) for path in paths]
        self._episodes = self._files.enter_context((self.folder / EPISODES).open("ab"))

    def _reader(self, number: int, opened: ExitStack) -> Any:
        """Return a function that reads the next steps of a column."""
        _, kind, shape = self._forms[number]
        file = opened.enter_context((self.folder / str(number)).open("rb"))
        if kind == TEXT:
            return lambda count: _texts([*islice(file, count)], shape)
        dtype = np.dtype(kind)
        size = int(np.prod(shape, dtype=np.int64))
        return lambda count: np.fromfile(file, dtype, count * size).reshape(count, *shape)


def _forms(episode: StepColumns) -> list[Form]:
    return [
        (key, TEXT if is_text(values) else values.dtype.str, values.shape[1:])
        for key, values in sorted(episode.items(), key=itemgetter(0))
        if key != TRAJECTORY_END
    ]


def _bytes_of(values: np.ndarray) -> bytes | memoryview:
    if is_text(values):
        return "".join(f"{json.dumps(each)}\n" for each in values.tolist()).encode()
    # A view as bytes: not every element type of numpy has a buffer.
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data


def _texts(lines: list[bytes], shape: tuple[int, ...]) -> np.ndarray:
    texts = np.empty((len(lines), *shape), object)
    for number, line in enumerate(lines):
        texts[number] = json.loads(line)
    return texts


def _difference(number: int, forms: list[Form], known: list[Form]) -> str:
    """Return what differs between the columns of an episode and those before it."""
    now, before = ({key: form for key, *form in each} for each in (forms, known))
    key = min(key for key in now.keys() | before.keys() if now.get(key) != before.get(key))

    def shown(form: list[Any] | None) -> str:
        return (
            "missing"
            if form is None
            else f"{np.dtype(form[0]) if form[0] != TEXT else TEXT} {list(form[1])} a step"
        )

    return (
        f"Episode {number} is not as the {number} before it: {show_key(key)} is "
        f"{shown(now.get(key))}, and was {shown(before.get(key))}. Every episode has the same "
        "columns."
    )
