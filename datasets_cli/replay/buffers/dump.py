"""Keeping the rows of a buffer in a folder, laid out as TorchRL 0.14 does; ``load`` reads it.

PATH/storage/             a TensorDict's memory-mapped files; storage_metadata.json: how many rows
PATH/sampler/             priorities, or the position in an epoch
PATH/writer/metadata.json where the next row goes
PATH/buffer_metadata.json the batch size; it is there exactly when all of the others are

A dump is written into PATH/.partial, and moved from there when it is whole.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path

from tensordict import TensorDict

from datasets_cli.errors import UsageError
from datasets_cli.replay.buffers.reader import BatchReader
from datasets_cli.replay.samplers.protocol import has_priorities
from datasets_cli.replay.state_files import STATE, write_state
from datasets_cli.replay.writers import Writer

Hook = Callable[[TensorDict], TensorDict]
"""Takes rows that are written or were read, and returns others."""

PARTS = ("storage", "sampler", "writer")
SEAL = "buffer_metadata.json"
PARTIAL = ".partial"
TORCHRLS_OWN = ("rng_state", "transform.t", "prefetch.pkl")


def dump(reader: BatchReader, writer: Writer, path: str | Path, hooks: list[Hook]) -> None:
    """Write the rows there are, and where the sampler and the writer stand.

    Nothing of an older dump is left, nor anything else touched that is in the folder. A dump that
    is killed leaves the older one, or none.

    Args:
        reader: of a buffer of TensorDicts.
        writer: of the buffer.
        path: a folder; made with those above it.
        hooks: called one after the other with the rows; what the last one returns is written.

    Raises:
        UsageError: there are no rows, or they are not TensorDicts.
    """
    storage = reader.storage
    if not len(storage):
        raise UsageError("The buffer is empty: there is nothing to dump. Write rows first.")
    if not storage.is_tensordict:
        raise UsageError("Only rows that are TensorDicts in a tensor storage can be dumped.")
    rows = storage.run(0, len(storage))
    if storage.ndim > 1:
        rows = rows.reshape(-1, *storage.grid[1:], *storage.row_batch_size)
    for hook in hooks:
        rows = hook(rows)
    folder = Path(path)
    shutil.rmtree(folder / PARTIAL, ignore_errors=True)  # of a dump that was killed
    (folder / PARTIAL).mkdir(parents=True)
    try:
        _write(reader, writer, rows, folder / PARTIAL)
        _put_in_place(folder)
    finally:
        shutil.rmtree(folder / PARTIAL, ignore_errors=True)


def _write(reader: BatchReader, writer: Writer, rows: TensorDict, folder: Path) -> None:
    """Write rows ``[steps, ...]`` and the state of a buffer into an empty folder."""
    storage = reader.storage
    rows.memmap(folder / "storage")
    width = math.prod(rows.shape[1 : storage.ndim])
    write_state(
        folder / "storage" / "storage_metadata.json",
        {"metadata": {}, "is_pytree": False, "len": len(rows) * width},
    )
    if has_priorities(reader.sampler):
        reader.sampler.dumps(folder / "sampler")
    else:
        # The reader's: its sampler may have drawn batches ahead, which were not sampled yet.
        write_state(folder / "sampler" / STATE, reader.draw_state()["sampler"])
    state = writer.state_dict()
    if "cursor" in state:  # TorchRL counts time steps
        is_whole = len(rows) * width == len(storage)  # a hook may leave rows out
        state["cursor"] = state["cursor"] // width if is_whole else len(rows)
    write_state(folder / "writer" / "metadata.json", state)
    write_state(folder / SEAL, {"batch_size": reader.batch_size})


def _put_in_place(folder: Path) -> None:
    """Move a dump that is whole to where an older one, ours or TorchRL's, may be."""
    (folder / SEAL).unlink(missing_ok=True)
    for name in (*PARTS, *TORCHRLS_OWN):
        old = folder / name
        shutil.rmtree(old) if old.is_dir() else old.unlink(missing_ok=True)
    for name in (*PARTS, SEAL):
        (folder / PARTIAL / name).rename(folder / name)
