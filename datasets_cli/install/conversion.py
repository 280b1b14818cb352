"""Converting raw files into a staging folder that is ready to be committed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets_cli.catalogue.names import Resolved
from datasets_cli.errors import SourceError
from datasets_cli.install.reading import read_blocks, source_errors
from datasets_cli.progress import Progress
from datasets_cli.recipe import Description, Source
from datasets_cli.sources.resource import RawFile
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.manifest import UNVERIFIED, Manifest
from datasets_cli.store.schema.columns import Key
from datasets_cli.version import TOOL

if TYPE_CHECKING:
    import numpy as np

    from datasets_cli.store.compact.writer import CompactWriter
    from datasets_cli.store.schema.frame_table import Bounds
    from datasets_cli.store.schema.transitions import Transitions
    from datasets_cli.store.ted.writer import TedWriter, Written


def convert(
    resolved: Resolved,
    files: list[RawFile],
    root: CacheRoot,
    wished_layout: str | None,
    progress: Progress,
    num_workers: int | None = 0,
) -> tuple[Manifest, Path]:
    """Convert raw files into a staging folder; return its manifest and the folder.

    Args:
        resolved: the dataset.
        files: what its recipe reads.
        root: where the folder is made.
        wished_layout: ``"ted"``, ``"compact"``, or None for what suits the rows.
        progress: told of notes and of the rows done.
        num_workers: processes for pictures that are read apart; all cores where None, this process
            where 0. The bytes do not depend on it.

    Raises:
        SourceError: the files are damaged or break an invariant of the format.
        DiskFull: no room.
    """
    from datasets_cli.install.deferred_frames import write_pictures
    from datasets_cli.store.schema.frame_table import Bounds
    from datasets_cli.store.schema.transitions import Transitions

    source = Source(resolved.name, {file.filename: file.path for file in files}, resolved.entry)
    staging = root.new_staging(resolved.id)
    writer: TedWriter | CompactWriter | None = None
    try:
        with source_errors(resolved.id):
            description = resolved.recipe.describe(source)
            pictures = resolved.recipe.deferred_frames(source)
        for note in description.notes:
            progress.note(f"{resolved.id}: {note}")
        transitions = Transitions(resolved.id, pictures.key if pictures else None)
        bounds = Bounds() if pictures else None
        for rows in _rows(resolved, source, transitions, bounds):
            layout = wished_layout or ("compact" if pictures else best_layout(rows))
            writer = writer or new_writer(layout, staging, resolved.id)
            writer.write(rows)
            if not pictures:
                progress.converting(writer.num_rows)
        if writer is None:
            raise SourceError(f"{resolved.id} has no transition: every trajectory is empty.")
        if pictures and bounds:
            table = bounds.table()
            write_pictures(resolved.id, pictures, table, writer, num_workers, progress)
        written = writer.finish(description.files)
    except BaseException:
        if writer is not None:
            with suppress(OSError):  # a full disk: closing writes what is still buffered
                writer.close()
        shutil.rmtree(staging, ignore_errors=True)
        raise
    for file in files:
        if file.version:
            progress.note(f"{resolved.id}: {file.filename} is the version {file.version}")
        if file.checked.startswith(UNVERIFIED):
            progress.note(f"{resolved.id}: {file.checked}")
    return _manifest(resolved, files, description, transitions.rule, written), staging


def _manifest(
    resolved: Resolved,
    files: list[RawFile],
    description: Description,
    successors: Mapping[str, Any],
    written: Written,
) -> Manifest:
    return Manifest(
        id=resolved.id,
        layout=written.layout,
        num_transitions=written.num_transitions,
        num_trajectories=written.num_trajectories,
        columns=written.columns,
        files=written.files,
        resources=tuple(file.to_json() for file in files),
        recipe=resolved.recipe.to_json(),
        successors=successors,
        metadata={**description.metadata, "notes": list(description.notes)},
        statistics=written.statistics,
        record=written.record,
        tool=TOOL,
    )


def _rows(
    resolved: Resolved, source: Source, transitions: Transitions, bounds: Bounds | None
) -> Iterator[dict[Key, np.ndarray]]:
    """Yield the complete rows, but for pictures that are read apart."""
    from datasets_cli.store.schema.transitions import iterate_rows

    blocks = read_blocks(resolved.id, resolved.recipe.blocks(source))
    steps = (block.columns for block in blocks)
    if bounds is None:
        yield from iterate_rows(transitions, steps)
        return
    for rows in iterate_rows(transitions, map(bounds.number, steps)):
        yield bounds.take(rows)


def best_layout(rows: Mapping[Key, np.ndarray]) -> str:
    """Return the layout for rows that nobody chose one for: compact where there are frames."""
    from datasets_cli.store.compact.records import is_frame
    from datasets_cli.store.schema.columns import column_of

    frames = any(is_frame(column_of(key, values)) for key, values in rows.items())
    return "compact" if frames else "ted"


def new_writer(
    layout: str, folder: Path, id: str, offsets: np.ndarray | None = None
) -> TedWriter | CompactWriter:
    """Return what writes a layout into a new folder; see ``TedWriter`` for the arguments."""
    from datasets_cli.store.compact.writer import CompactWriter
    from datasets_cli.store.ted.writer import TedWriter

    return (CompactWriter if layout == "compact" else TedWriter)(folder, id, offsets)
