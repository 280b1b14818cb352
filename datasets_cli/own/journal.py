"""Episodes on the disk, one after the other, so that a killed writer can go on.

columns.json   key, element type and shape of a step of each column
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
from pathlib import Path
from typing import Any

import numpy as np

from datasets_cli.errors import RldsError, UsageError
from datasets_cli.own.steps import StepColumns
from datasets_cli.schema.columns import TRAJECTORY_END, Key, rows_per_block, show_key
from datasets_cli.schema.element_types import element_type, numpy_dtype
from datasets_cli.schema.texts import TEXT, decode_text, encode_text, is_text
from datasets_cli.sources.disk import disk_errors, make_folder
from datasets_cli.sources.new_files import replacing

COLUMNS, EPISODES = "columns.json", "episodes"

Form = tuple[str | None, tuple[int, ...]]
"""Element type and shape of a step of a column."""


class Journal:
    """The episodes that were added to a dataset so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.num_episodes = 0
        self._forms: dict[Key, Form] = {}
        self._last = [0]  # of `episodes`, its last row
        self._files = ExitStack()
        self._descriptors: list[int] = []  # of the columns, and of `episodes`
        if (folder / COLUMNS).exists():
            self._continue()

    @property
    def num_steps(self) -> int:
        """Steps so far."""
        return self._last[0]

    def add(self, episode: StepColumns) -> None:
        """Append the steps of an episode, which has the columns of those before it."""
        forms = _forms(episode)
        if self.num_episodes and forms != self._forms:
            raise UsageError(_difference(self.num_episodes, forms, self._forms))
        data = [_bytes_of(episode[key], kind) for key, (kind, _) in forms.items()]
        with disk_errors(self.folder):
            if not self.num_episodes:
                self._begin(forms)
            stops = (end + len(each) for end, each in zip(self._last[1:], data, strict=True))
            row = [self.num_steps + len(episode[TRAJECTORY_END]), *stops]
            try:
                data.append(np.array(row, "<i8").view(np.uint8).data)
                for descriptor, each in zip(self._descriptors, data, strict=True):
                    _write(descriptor, each)
            except BaseException:  # a full disk
                self._cut()
                raise
        self.num_episodes, self._last = self.num_episodes + 1, row

    def blocks(self) -> Iterator[StepColumns]:
        """Yield all steps in blocks."""
        ends = np.zeros(self.num_steps, np.bool_)
        ends[self._rows()[:, 0] - 1] = True
        size = rows_per_block(sum(self._last[1:]) // max(1, self.num_steps))
        with ExitStack() as opened:
            read = {
                key: _reader(opened.enter_context((self.folder / str(number)).open("rb")), *form)
                for number, (key, form) in enumerate(self._forms.items())
            }
            for start in range(0, self.num_steps, size):
                marked = ends[start : start + size]
                yield {**{key: read[key](len(marked)) for key in read}, TRAJECTORY_END: marked}

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
        self.num_episodes, self._last = 0, [0]

    def _begin(self, forms: dict[Key, Form]) -> None:
        """Begin anew, whatever a kill left of the files."""
        listed = [(key, *form) for key, form in forms.items()]
        make_folder(self.folder)
        with replacing(self.folder / COLUMNS) as new:
            new.write_text(json.dumps(listed), encoding="utf-8")
        self._open(forms)
        self._cut()

    def _continue(self) -> None:
        """Count the episodes that are whole, and cut off the one that a kill left."""
        try:
            listed = json.loads((self.folder / COLUMNS).read_text(encoding="utf-8"))
            self._open({tuple(key): (kind, tuple(shape)) for key, kind, shape in listed})
            rows = self._rows()
            sizes = [os.fstat(each).st_size for each in self._descriptors[:-1]]
            wrong = np.flatnonzero((rows[:, 1:] > sizes).any(1))
            self.num_episodes = int(wrong[0]) if wrong.size else len(rows)
            if self.num_episodes:
                self._last = rows[self.num_episodes - 1].tolist()
            self._cut()
        except (OSError, ValueError, TypeError) as error:
            raise RldsError(
                f"{self.folder} has episodes of a writer that was killed, and cannot be read "
                f"({error}). Delete that folder to begin anew."
            ) from error

    def _open(self, forms: dict[Key, Form]) -> None:
        self.close()
        self._forms, self._last, self._descriptors = forms, [0] * (1 + len(forms)), []
        for name in (*map(str, range(len(forms))), EPISODES):
            file = self._files.enter_context((self.folder / name).open("ab", buffering=0))
            self._descriptors.append(file.fileno())

    def _cut(self) -> None:
        """Leave the episodes that are counted in the files, and nothing behind them."""
        stops = (*self._last[1:], self.num_episodes * 8 * len(self._last))
        for descriptor, stop in zip(self._descriptors, stops, strict=True):
            # ext4 brings a file to the disk when it is closed, once it was truncated to nothing.
            if os.fstat(descriptor).st_size != stop:
                os.truncate(descriptor, stop)

    def _rows(self) -> np.ndarray:
        rows, width = np.fromfile(self.folder / EPISODES, "<i8"), len(self._last)
        return rows[: len(rows) // width * width].reshape(-1, width)


def _forms(episode: StepColumns) -> dict[Key, Form]:
    return {
        key: (TEXT if is_text(values) else element_type(values.dtype), values.shape[1:])
        for key, values in sorted(episode.items(), key=lambda item: item[0])
        if key != TRAJECTORY_END
    }


def _bytes_of(values: np.ndarray, kind: str | None) -> memoryview:
    if kind == TEXT:
        for text in filter(lambda each: isinstance(each, str), values.flat):
            encode_text(text)  # which refuses what no dataset can hold
        lines = [f"{json.dumps(each, default=decode_text)}\n" for each in values.tolist()]
        return memoryview("".join(lines).encode())
    # A view as bytes: not every element type of numpy has a buffer.
    return np.ascontiguousarray(values, numpy_dtype(kind)).reshape(-1).view(np.uint8).data


def _write(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _reader(file: Any, kind: str | None, shape: tuple[int, ...]) -> Any:
    """Return a function that reads the next steps of a column."""
    if kind == TEXT:
        lines = map(json.loads, file)
        return lambda count: np.array([*islice(lines, count)], object).reshape(count, *shape)
    dtype, size = numpy_dtype(kind), int(np.prod(shape, dtype=np.int64))
    return lambda count: np.fromfile(file, dtype, count * size).reshape(count, *shape)


def _difference(number: int, forms: dict[Key, Form], known: dict[Key, Form]) -> str:
    """Return what differs between the columns of an episode and those before it."""
    key = min(key for key in forms.keys() | known.keys() if forms.get(key) != known.get(key))
    now, before = (
        f"{each[key][0]} {list(each[key][1])} a step" if key in each else "missing"
        for each in (forms, known)
    )
    return (
        f"Episode {number} is not as the {number} before it: {show_key(key)} is {now}, and was "
        f"{before}. Every episode has the same columns."
    )
