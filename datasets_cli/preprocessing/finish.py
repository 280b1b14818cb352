"""The end of a run: what follows from all rows, and one commit."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from datasets_cli.preprocessing.destination import refuse_used
from datasets_cli.preprocessing.origin import Origin
from datasets_cli.preprocessing.work import Work
from datasets_cli.sources.disk import disk_errors, make_folder
from datasets_cli.store.commit import commit_folder, sweep
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.manifest import Manifest
from datasets_cli.store.schema.columns import DONE, TRUNCATED, Column
from datasets_cli.store.schema.meta_files import write_meta_files
from datasets_cli.store.schema.summary import summarise
from datasets_cli.store.schema.texts import TextColumn, text_files
from datasets_cli.store.schema.trajectories import first_rows
from datasets_cli.store.ted.writer import reward_column, write_beside
from datasets_cli.store.text.writer import TextWriter
from datasets_cli.version import TOOL


def commit(
    dataset: Dataset,
    work: Work,
    columns: tuple[Column, ...],
    texts: tuple[TextColumn, ...],
    parts: list[Path],
    num_rows: int,
    id: str,
    origin: Origin,
    trash: Path | None = None,
) -> None:
    """Write what follows from all rows, and commit the folder.

    Args:
        dataset: that the rows were made of.
        work: where they are.
        columns: of the new dataset.
        texts: of the new dataset.
        parts: the folders of the tasks' text, in their order.
        num_rows: of the new dataset.
        id: of the new dataset.
        origin: parent, function, arguments and seed, for the manifest.
        trash: the name that an older result has on its way out; None where there must be none.

    Raises:
        UsageError: another run filled the destination meanwhile.
    """
    parent = dataset.manifest
    offsets = first_rows(dataset.offsets.numpy(), num_rows)
    data = work.data
    with disk_errors(data):
        _end_cut_trajectories(data, columns, _cut_ends(dataset, num_rows))
        names = write_meta_files(data, columns, num_rows)
        names += [column.filename for column in columns if column.row_bytes]
        names += _join_text(data, texts, parts)
        manifest = Manifest(
            id=id,
            layout="ted",
            num_transitions=num_rows,
            num_trajectories=len(offsets) - 1,
            columns=columns,
            files=write_beside(data, names, offsets, {}),
            recipe=parent.recipe,
            # Notes are about the parent's rows and fields, which a function may have changed.
            metadata={name: known for name, known in parent.metadata.items() if name != "notes"},
            texts=texts,
            statistics=summarise(data, reward_column(columns), offsets),
            parent=origin.parent,
            function=origin.function,
            arguments=origin.arguments,
            seed=origin.seed,
            tool=TOOL,
        )
    if trash is not None:
        make_folder(trash.parent)
    if not commit_folder(data, work.dest, manifest, trash):
        refuse_used(work.dest)
    shutil.rmtree(work.folder, ignore_errors=True)
    if trash is not None:
        sweep(trash)


def _join_text(data: Path, texts: tuple[TextColumn, ...], parts: list[Path]) -> list[str]:
    """Write the text of all tasks, in their order, and return the names of its files."""
    for name in text_files(texts):  # of a run that was killed here
        (data / name).unlink(missing_ok=True)
    writer = TextWriter(data)
    try:
        if texts:
            writer.join(parts, texts)
        return writer.finish()
    finally:
        writer.close()


def _cut_ends(dataset: Dataset, num_rows: int) -> np.ndarray:
    """Return the rows int64 ``[n]`` that may end a trajectory of theirs too early: cut ones.

    ``num_frames`` may cut the last one, and a view any.
    """
    last = np.array([num_rows - 1])
    selection = dataset.selection
    if selection is None:
        return last
    ends = dataset.offsets.numpy()[1:] - 1
    is_cut = selection.ends_early(dataset.whole.offsets.numpy()) & (ends < num_rows)
    return np.union1d(last, ends[is_cut])


def _end_cut_trajectories(data: Path, columns: tuple[Column, ...], rows: np.ndarray) -> None:
    """Mark rows as truncated, those of them that are not done.

    A flag is one byte per row, so row n is byte n of its file.
    """
    single = (column for column in columns if (column.dtype, column.shape) == ("bool", (1,)))
    flags = {column.key: data / column.filename for column in single}
    if not {DONE, TRUNCATED} <= flags.keys():
        return
    with flags[DONE].open("r+b") as done, flags[TRUNCATED].open("r+b") as truncated:
        for row in rows.tolist():
            done.seek(row)
            if done.read(1) == b"\0":
                for file in (done, truncated):
                    file.seek(row)
                    file.write(b"\1")
