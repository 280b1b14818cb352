"""Converting: the raw files of one dataset are read, and its rows written into a folder."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from datasets_cli.catalogue.names import Resolved
from datasets_cli.errors import SourceError
from datasets_cli.install.reading import read_blocks, source_errors
from datasets_cli.parallel.engine import Workers
from datasets_cli.progress import Progress
from datasets_cli.recipe import Block, DeferredFrames, Description, Source
from datasets_cli.schema.columns import TRAJECTORY_END, Key
from datasets_cli.schema.texts import is_text
from datasets_cli.schema.transitions import Transitions, iterate_rows
from datasets_cli.sources.disk import check_free_space
from datasets_cli.sources.raw_file import RawFile
from datasets_cli.store.content import SUCCESSOR_RULE_VERSION
from datasets_cli.store.layouts.records import is_frame
from datasets_cli.store.manifest import UNCHECKED, UNVERIFIED, Manifest
from datasets_cli.store.writer import LayoutWriter
from datasets_cli.version import TOOL

if TYPE_CHECKING:
    from datasets_cli.schema.frame_table import FrameTableBuilder


@dataclass(frozen=True)
class Conversion:
    """The rows of a dataset that its raw files are to become, in a folder."""

    resolved: Resolved
    files: tuple[RawFile, ...]
    folder: Path
    layout: str | None = None

    @property
    def source(self) -> Source:
        """What a recipe reads."""
        paths = {file.filename: file.path for file in self.files}
        return Source(self.resolved.name, paths, self.resolved.entry)


def convert(conversion: Conversion, progress: Progress, workers: Workers) -> Manifest:
    """Write the rows of a dataset into a folder; return its manifest."""
    resolved, files = conversion.resolved, conversion.files
    id, source = resolved.id, conversion.source
    description, deferred = _described(resolved, source)
    for note in description.notes:
        progress.note(f"{id}: {note}")
    needs_rewards = resolved.recipe.has_rewards
    transitions = Transitions(id, deferred.key if deferred else None, needs_rewards=needs_rewards)
    builder = _new_builder() if deferred else None
    layout = conversion.layout or ("compact" if deferred else None)
    with LayoutWriter(layout, conversion.folder, id) as writer:
        for rows in _rows(conversion, source, transitions, builder):
            writer.write(rows)
            if not deferred:
                progress.writing(writer.num_rows)
        if not writer.num_rows:
            raise SourceError(f"{id} has no transition: every trajectory is empty.")
        if deferred and builder:
            from datasets_cli.install.deferred_frames import write_frames

            paths = source.files.values()
            write_frames(id, deferred, paths, builder.table(), writer, workers, progress)
        text_notes = [*writer.notes, *transitions.notes]
        written = writer.finish(description.files)
    for note in (*text_notes, *_notes_of(files)):
        progress.note(f"{id}: {note}")
    return Manifest(
        id=id,
        **vars(written),
        resources=tuple(file.to_json() for file in files),
        recipe=resolved.recipe.to_json(),
        successors={**transitions.rule, "version": SUCCESSOR_RULE_VERSION},
        metadata={**description.metadata, "notes": [*description.notes, *text_notes]},
        tool=TOOL,
    )


def _described(resolved: Resolved, source: Source) -> tuple[Description, DeferredFrames | None]:
    with source_errors(resolved.id):
        return resolved.recipe.describe(source), resolved.recipe.deferred_frames(source)


def _new_builder() -> FrameTableBuilder:
    # With write_frames, for frames that are read apart alone: workers and compressors.
    from datasets_cli.schema.frame_table import FrameTableBuilder

    return FrameTableBuilder()


def _notes_of(files: Iterable[RawFile]) -> Iterator[str]:
    for file in files:
        if file.version:
            yield f"{file.filename} is the version {file.version}"
        if file.checked.startswith(UNVERIFIED):
            yield file.checked
    if unchecked := [file for file in files if file.checked in UNCHECKED]:
        yield _unchecked(unchecked)


def _unchecked(unchecked: list[RawFile]) -> str:
    names = ", ".join(file.filename for file in unchecked[:3])
    more = f" and {len(unchecked) - 3} more" if unchecked[3:] else ""
    compared = "only the size was" if unchecked[0].checked == "size" else "nothing was"
    is_local = not unchecked[0].url.startswith(("http://", "https://"))
    why = "with a source no publisher is asked" if is_local else "no checksum is known"
    return f"unchecked: {names}{more}: {compared} compared with what is published, for {why}"


def _rows(
    conversion: Conversion,
    source: Source,
    transitions: Transitions,
    builder: FrameTableBuilder | None,
) -> Iterator[dict[Key, np.ndarray]]:
    """Yield the complete rows, without frames that are read apart."""
    resolved = conversion.resolved
    blocks = read_blocks(resolved.id, resolved.recipe.blocks(source))
    steps = (block.columns for block in _with_room(blocks, conversion))
    if builder is None:
        yield from iterate_rows(transitions, steps)
        return
    for rows in iterate_rows(transitions, map(builder.number, steps)):
        yield builder.take(rows)


def _with_room(blocks: Iterator[Block], conversion: Conversion) -> Iterator[Block]:
    """Yield blocks, once it is known that the disk has room for the rows that their files have."""
    # A file of 2 kB can say that it has 10^9 rows, and each would be written.
    for number, block in enumerate(blocks):
        if number == 0 and block.total_rows:
            row_bytes = sum(
                _stored_bytes(key, rows, conversion.layout) for key, rows in block.columns.items()
            )
            num_bytes = block.total_rows * row_bytes
            check_free_space(conversion.folder, num_bytes, conversion.resolved.id)
        yield block


def _stored_bytes(key: Key, rows: np.ndarray, layout: str | None) -> int:
    """Return the least that a row of a column takes on the disk; 0 where that is not known."""
    if (
        key == TRAJECTORY_END
        or is_text(rows)
        or (layout != "ted" and is_frame(rows.dtype.name, rows.shape[1:]))
    ):
        return 0
    return int(math.prod(rows.shape[1:]) * rows.dtype.itemsize)
