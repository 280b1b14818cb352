"""Writes rows in one layout: numbers as the layout requires, text in the same files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from datasets_cli.errors import SourceError
from datasets_cli.schema.columns import (
    EPISODE,
    FINAL_FOLDER,
    RECORDED_STEP,
    Column,
    Key,
    one_file_each,
)
from datasets_cli.schema.texts import TextColumn, is_text
from datasets_cli.sources.disk import disk_errors
from datasets_cli.sources.regular_file import open_regular
from datasets_cli.store.layouts.records import is_frame
from datasets_cli.store.layouts.ted_writer import (
    TedWriter,
    Written,
    describe_files,
    write_meta_files,
)
from datasets_cli.store.texts import TextWriter, count_splits

if TYPE_CHECKING:
    from datasets_cli.schema.frame_table import FrameFiles
    from datasets_cli.store.layouts.compact_writer import CompactWriter


class LayoutWriter:
    """Writes complete TED rows, with their text, into the files of one layout.

    Use it in a ``with`` statement: an error closes its files and removes its folder.
    """

    # layout: None chooses by the first rows. offsets: known trajectories int64 `[K + 1]`; see
    # `TedWriter`.

    def __init__(
        self, layout: str | None, folder: Path, id: str, offsets: np.ndarray | None = None
    ) -> None:
        self.folder = folder
        self.id = id
        self._layout, self._offsets = layout, offsets
        self._text = TextWriter(folder)
        self._final: FinalWriter | None = None
        self._copied: list[str] = []

    def __enter__(self) -> LayoutWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            with suppress(OSError):  # of a full disk, when closing flushes the buffers
                self.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    @cached_property
    def _numbers(self) -> CompactWriter | TedWriter:
        if self._layout == "compact":
            # Lazily: it imports the compressor.
            from datasets_cli.store.layouts.compact_writer import CompactWriter

            return CompactWriter(self.folder, self.id, self._offsets)
        return TedWriter(self.folder, self.id, self._offsets)

    @property
    def num_rows(self) -> int:
        """Rows written so far."""
        return self._numbers.num_rows

    @property
    def notes(self) -> list[str]:
        """Notes for the user about the text written so far."""
        count = self._text.num_not_utf8
        note = f"{count} distinct texts are not UTF-8; their bytes become surrogate escapes"
        return [note] if count else []

    def write(self, rows: Mapping[Key, np.ndarray]) -> None:
        """Append rows ``[n, ...]``."""
        self._layout = self._layout or best_layout(rows)
        text = {key: values for key, values in rows.items() if is_text(values)}
        self._numbers.write({key: rows[key] for key in rows if key not in text})
        if text:
            try:
                self._text.write(text)
            except SourceError as error:
                error.id = self.id
                error.prepend(f"{self.id}: ")
                raise

    def copy_text(self, source: Path, columns: tuple[TextColumn, ...]) -> None:
        """Copy the text of a dataset with the same rows; ``write`` must then get no text."""
        self._text.copy(source, columns)

    def write_final(self, rows: Mapping[Key, np.ndarray]) -> None:
        """Append final steps ``[n, ...]``."""
        self._final = self._final or FinalWriter("ted", self.folder / FINAL_FOLDER, self.id)
        self._final.write(rows)

    def copy_final(self, source: Path, names: Iterable[str]) -> None:
        """Copy the files of the final steps of a dataset with the same rows."""
        with disk_errors(self.folder):
            for name in names:
                path = self.folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with open_regular(source / name) as file, path.open("xb") as copy:
                    shutil.copyfileobj(file, copy)
                self._copied.append(name)

    def add_final_frames(self, column: Column) -> FinalFrames | None:
        """Return the writer of separately read frames of the final steps; None without any."""
        return self._final.add_column(column) if self._final else None

    def add_frames(
        self, column: Column, offsets: np.ndarray, sample: Callable[[int], np.ndarray]
    ) -> FrameFiles:
        return self._numbers.add_frames(column, offsets, sample)

    def finish(self, extra_files: Mapping[str, bytes]) -> Written:
        """Complete the files, flush them to the disk, and hash them."""
        names = [*self._text.finish(), *self._copied]
        names += (
            [f"{FINAL_FOLDER}/{name}" for name in self._final.complete()] if self._final else []
        )
        written = self._numbers.finish(extra_files)
        with disk_errors(self.folder):
            files = {**written.files, **describe_files(self.folder, names)}
        return replace(
            written,
            files=dict(sorted(files.items())),
            texts=self._text.columns,
            splits=count_splits(self.folder, self._text.columns, files),
            final_steps=self._final.num_rows if self._final else 0,
            final_steps_alone=self._final.num_alone if self._final else 0,
        )

    def close(self) -> None:
        """Close every file; the folder is incomplete unless ``finish`` returned."""
        with ExitStack() as stack:  # closes both even if one fails on a full disk
            stack.callback(self._text.close)
            if self._final:
                stack.callback(self._final.close)
            if "_numbers" in vars(self):
                stack.callback(self._numbers.close)


class FinalWriter(LayoutWriter):
    """Writes final steps, with their text, into a folder of leaves."""

    _numbers: TedWriter

    def __init__(self, layout: str, folder: Path, id: str) -> None:
        super().__init__(layout, folder, id)
        self._steps: list[np.ndarray] = []
        self.num_alone = 0
        self._added: tuple[Column, ...] = ()

    def write(self, rows: Mapping[Key, np.ndarray]) -> None:
        """Append final steps ``[n, ...]``."""
        self._steps.append(rows[RECORDED_STEP])
        self.num_alone += int((rows[EPISODE] < 0).sum())
        super().write(rows)

    def add_column(self, column: Column) -> FinalFrames:
        """Add a column whose frames are written later, in any order."""
        frames = FinalFrames(
            self.folder / column.filename, column.row_bytes, np.concatenate(self._steps)
        )
        with disk_errors(self.folder):
            frames.path.parent.mkdir(parents=True, exist_ok=True)
            with one_file_each(frames.path, column.key):
                frames.path.touch(exist_ok=False)
            os.truncate(frames.path, self.num_rows * column.row_bytes)
        self._added = (column,)
        return frames

    def complete(self) -> list[str]:
        """Close the files, and return their paths relative to the folder."""
        names = self._text.finish()
        with disk_errors(self.folder):
            self._numbers.close()
            columns = (*self._numbers.columns, *self._added)
            names += write_meta_files(self.folder, columns, self.num_rows)
        return names + [column.filename for column in columns if column.row_bytes]


@dataclass(frozen=True)
class FinalFrames:
    """The separately read frames of final steps; picklable."""

    # steps: the number of each final step among all steps, int64 `[F]`, ascending.

    path: Path
    row_bytes: int
    steps: np.ndarray

    def write(self, start: int, frames: np.ndarray) -> range:
        """Write the frames of final steps among consecutive steps; return the places of these."""
        # frames: uint8 `[n, *shape]` of the steps from `start` on.
        first, stop = np.searchsorted(self.steps, (start, start + len(frames))).tolist()
        if first < stop:
            with disk_errors(self.path), self.path.open("r+b") as file:
                file.seek(first * self.row_bytes)
                file.write(frames[self.steps[first:stop] - start].data)
        return range(first, stop)


def best_layout(rows: Mapping[Key, np.ndarray]) -> str:
    """Return the default layout for rows ``[n, ...]``: compact if there are frames, else ted."""
    has_frames = any(is_frame(values.dtype.name, values.shape[1:]) for values in rows.values())
    return "compact" if has_frames else "ted"
