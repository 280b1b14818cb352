"""Keeping a buffer in a folder, laid out as TorchRL 0.14 does; ``load`` reads it.

PATH/storage/             a TensorDict in files; storage_metadata.json: how many rows
PATH/writer/metadata.json where the next row goes
PATH/dataset.json         in place of these two: id, content and rows of the buffer's dataset
PATH/sampler/             priorities, or the position in an epoch
PATH/rng_state/           the state of the generator
PATH/buffer_metadata.json the batch size; it is there exactly when all of the others are

A dump is written into PATH/.partial, and moved from there when it is whole.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tensordict import TensorDictBase, is_tensorclass

from datasets_cli.errors import UsageError
from datasets_cli.replay.buffers.dataset_reference import dataset_of
from datasets_cli.replay.buffers.draws import GENERATOR, SAMPLER, write_draws
from datasets_cli.replay.buffers.reader import BatchReader
from datasets_cli.replay.files.json_files import write_state
from datasets_cli.replay.files.write_folder import as_tensordict, plan_files, write_files
from datasets_cli.replay.storages.form import outline
from datasets_cli.replay.storages.lists import as_one
from datasets_cli.replay.storages.protocol import Storage, is_writable
from datasets_cli.replay.writers import Writer

Hook = Callable[[Any], Any]
"""Takes rows that are written or were read, and returns others."""

ROWS = "storage"
ROWS_META = "storage_metadata.json"
WRITER = "writer"
WRITER_META = "metadata.json"
DATASET = "dataset.json"
PARTS = (ROWS, SAMPLER, WRITER, GENERATOR, DATASET)
SEAL = "buffer_metadata.json"
PARTIAL = ".partial"
TORCHRLS_OWN = ("transform.t", "prefetch.pkl")


def dump(reader: BatchReader, writer: Writer, path: str | Path, hooks: list[Hook]) -> None:
    """Write the rows there are, or the name of their dataset, and where the draws stand.

    Nothing of an older dump is left, nor anything else touched that is in the folder. A dump that
    is killed leaves the older one, or none.

    Args:
        reader: of a buffer of TensorDicts, or of tensorclasses, which become TensorDicts.
        writer: of the buffer.
        path: a folder; made with those above it.
        hooks: called one after the other with the rows; what the last one returns is written. Not
            called where the rows are a dataset.

    Raises:
        UsageError: there are no rows, or they are not TensorDicts, or hold what no file can.
    """
    dataset = dataset_of(reader.storage)
    rows = None if dataset else _rows_of(reader.storage, hooks)
    files = [] if rows is None else list(plan_files(rows))  # refuses before anything is written
    folder = Path(path)
    partial = folder / PARTIAL
    shutil.rmtree(partial, ignore_errors=True)  # of a dump that was killed
    partial.mkdir(parents=True)
    try:
        if rows is None:
            write_state(partial / DATASET, dataset or {})
        else:
            write_files(partial / ROWS, files)
            _write_counts(reader.storage, writer, rows, partial)
        write_draws(reader, partial, dumps_global=rows is None)
        write_state(partial / SEAL, {"batch_size": reader.batch_size})
        _put_in_place(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _rows_of(storage: Storage, hooks: list[Hook]) -> TensorDictBase:
    """Return the rows ``[steps, ...]`` that are dumped, time first."""
    if not len(storage):
        raise UsageError("The buffer is empty: there is nothing to dump. Write rows first.")
    if is_writable(storage) and storage.takes_lists:
        rows = as_one(storage.contents())
    else:
        rows = storage.run(0, len(storage))
    rows = _checked(rows)
    if storage.ndim > 1:
        rows = rows.reshape(-1, *storage.grid[1:], *storage.row_batch_size)
    for hook in hooks:
        rows = _checked(hook(rows))
    return rows


def _checked(rows: Any) -> TensorDictBase:
    """Return rows that can be dumped; a tensorclass as a TensorDict."""
    found = as_tensordict(rows) if is_tensorclass(rows) else rows
    if not isinstance(found, TensorDictBase) or not found.batch_size:
        raise UsageError(
            f"Only rows that are TensorDicts can be dumped, not {outline(rows)}. Write "
            "TensorDicts, or keep the rows by other means."
        )
    return found


def _write_counts(storage: Storage, writer: Writer, rows: TensorDictBase, folder: Path) -> None:
    """Write how many rows there are, and where the next one goes."""
    width = math.prod(rows.shape[1 : storage.ndim])
    # TorchRL knows nothing of the names that are stored in another form.
    counts = {"metadata": {}, "is_pytree": False, "len": len(rows) * width, "escaped_names": True}
    write_state(folder / ROWS / ROWS_META, counts)
    state = writer.state_dict()
    if "cursor" in state:  # TorchRL counts time steps
        is_whole = len(rows) * width == len(storage)  # a hook may leave rows out
        state["cursor"] = state["cursor"] // width if is_whole else len(rows)
    write_state(folder / WRITER / WRITER_META, state)


def _put_in_place(folder: Path) -> None:
    """Move a dump that is whole to where an older one, ours or TorchRL's, may be."""
    (folder / SEAL).unlink(missing_ok=True)
    for name in (*PARTS, *TORCHRLS_OWN):
        old = folder / name
        is_folder = old.is_dir() and not old.is_symlink()
        shutil.rmtree(old) if is_folder else old.unlink(missing_ok=True)
    for name in (*PARTS, SEAL):
        if (folder / PARTIAL / name).exists():
            (folder / PARTIAL / name).rename(folder / name)
