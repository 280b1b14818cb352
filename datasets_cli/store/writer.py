"""Writes rows in one layout: numbers as the layout requires, text in the same files."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from datasets_cli.errors import SourceError
from datasets_cli.schema.columns import Column, Key
from datasets_cli.schema.texts import TextColumn, is_text
from datasets_cli.sources.disk import disk_errors
from datasets_cli.store.layouts.records import is_frame
from datasets_cli.store.layouts.ted_writer import TedWriter, Written, describe_files
from datasets_cli.store.texts import TextWriter

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

    def add_frames(
        self, column: Column, offsets: np.ndarray, sample: Callable[[int], np.ndarray]
    ) -> FrameFiles:
        return self._numbers.add_frames(column, offsets, sample)

    def finish(self, extra_files: Mapping[str, bytes]) -> Written:
        """Complete the files, flush them to the disk, and hash them."""
        names = self._text.finish()
        written = self._numbers.finish(extra_files)
        with disk_errors(self.folder):
            files = {**written.files, **describe_files(self.folder, names)}
        return replace(written, files=dict(sorted(files.items())), texts=self._text.columns)

    def close(self) -> None:
        """Close every file; the folder is incomplete unless ``finish`` returned."""
        with ExitStack() as stack:  # closes both even if one fails on a full disk
            stack.callback(self._text.close)
            if "_numbers" in vars(self):
                stack.callback(self._numbers.close)


def best_layout(rows: Mapping[Key, np.ndarray]) -> str:
    """Return the default layout for rows ``[n, ...]``: compact if there are frames, else ted."""
    has_frames = any(is_frame(values.dtype.name, values.shape[1:]) for values in rows.values())
    return "compact" if has_frames else "ted"
