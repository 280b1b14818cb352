"""Reads and writes memory-mapped folders of tensordict and TorchRL: one file for each tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets_cli.core.progress import Progress, Rows
from datasets_cli.errors import DamagedDataset, SourceError, UsageError
from datasets_cli.exchange.flat import (
    COMPUTED,
    flat_steps,
    is_nameable,
    key_runs,
    lost_columns,
    lost_metadata,
)
from datasets_cli.exchange.format import ColumnMap, Recognised
from datasets_cli.exchange.mapping import guess
from datasets_cli.exchange.steps import StepColumns
from datasets_cli.formats.limits import check_limit
from datasets_cli.schema.columns import META_FILENAME, Column, rows_per_block, show_key
from datasets_cli.store.arrays import DatasetArrays
from datasets_cli.store.layouts.ted_writer import TedWriter, write_meta_files
from datasets_cli.store.manifest import Manifest

if TYPE_CHECKING:
    import torch

STORAGE = "storage_metadata.json"
"""The file next to the tensors of a storage that TorchRL dumped."""
WRITER = Path("..", "writer", "metadata.json")
"""The file with the cursor of the buffer's writer, relative to the folder of its storage."""
TED = ("observation", "action", "info", "next")
"""The first parts of the names that a folder in the TED format has."""


def recognise(path: Path) -> Recognised | None:
    if not (path / META_FILENAME).is_file():
        return None
    leaves, dropped, num_rows, seam = _leaves(path)
    # A folder with "next" is in the TED format, where "terminated" at the root is the flag before
    # the step: it is computed again.
    if ted := any(name.startswith("next.") for name in leaves):
        computed = {show_key(key) for key in COMPUTED}
        leaves = {name: rows for name, rows in leaves.items() if name not in computed}
    own_keys = {name: name for name in leaves if ted and name.partition(".")[0] in TED}
    dtypes = {name: str(rows.dtype).removeprefix("torch.") for name, rows in leaves.items()}
    return Recognised(
        {name: f"{dtypes[name]} {list(rows.shape[1:])}" for name, rows in leaves.items()},
        guess(leaves) | own_keys,
        dict.fromkeys(dropped, "it is not a tensor"),
        notes=(f"{num_rows:,} rows, {_order(seam)}",) if (path / STORAGE).exists() else (),
        is_ring=seam is None,
    )


def _order(seam: int | None) -> str:
    if seam is None:
        return f"in storage order: the storage is full, and {WRITER} does not name the oldest row"
    return f"starting at row {seam:,}, the oldest" if seam else "oldest first"


def blocks(path: Path, columns: ColumnMap) -> Iterator[StepColumns]:
    from datasets_cli.schema.bits import to_array

    leaves, _, num_rows, seam = _leaves(path)
    check_limit("rows", num_rows, path.name)
    parts = ((seam or 0, num_rows), (0, seam or 0))

    def runs(names: list[str]) -> Iterator[Mapping[str, Any]]:
        step = rows_per_block(sum(leaves[name][:1].nbytes for name in names))
        for first, stop in parts:
            for start in range(first, stop, step):
                rows = slice(start, min(start + step, stop))
                yield {name: to_array(leaves[name][rows]) for name in names}

    return flat_steps(columns, runs)


def losses(manifest: Manifest) -> list[str]:
    why = dict.fromkeys([each.key for each in manifest.texts], "text is not a tensor")
    empty = [each.key for each in manifest.columns if not each.row_bytes]
    why |= dict.fromkeys(empty, "its rows are empty, and tensordict does not write them")
    lost = (f"{show_key(key)}: {each}" for key, each in why.items())
    return [*lost, *lost_columns(manifest), *lost_metadata(manifest)]


def write(dataset: DatasetArrays, path: Path, progress: Progress, out: Path) -> str:
    """Write the leaves in the ``ted`` layout, and no other files; see ``Format``."""
    columns: list[Column] = [
        each for each in dataset.manifest.columns if each.row_bytes and is_nameable(each.key)
    ]
    path.mkdir()
    with closing(TedWriter(path, dataset.id, dataset.starts)) as writer:
        for run in key_runs(dataset, [each.key for each in columns]):
            writer.write(run)
            progress(Rows(dataset.id, writer.num_rows, len(dataset)))
    write_meta_files(path, columns, len(dataset))
    return f"tensordict.TensorDict.load_memmap({str(out)!r})"


def _leaves(path: Path) -> tuple[dict[str, torch.Tensor], list[str], int, int | None]:
    """Return the mapped tensors, the names of other leaves, the number of rows, and the oldest."""
    import torch
    from tensordict import TensorDict

    from datasets_cli.replay.checkpoint.torchrl_folder import (
        read_json,
        read_tensordict,
        whole_number_in,
    )

    non_tensors: list[str] = []
    try:
        rows = read_tensordict(path, mapped=True, escaped=True, non_tensors=non_tensors)
        stored = path / STORAGE
        length = whole_number_in(read_json(stored), "len", stored) if stored.exists() else None
        seam = _seam(path / WRITER, length) if length and length == len(rows) else 0
    except (DamagedDataset, FileNotFoundError) as error:
        why = str(error).removesuffix(" Dump the buffer again.")
        raise SourceError(
            f"{path.name} is not a complete folder of tensordict: {why}",
            path=path,
            found=why,
            advice="Write the folder again, by memmap() or dumps().",
        ) from error
    if len(rows.batch_size) != 1:
        raise UsageError(
            f"{path} has the batch size {list(rows.batch_size)}; expected one dimension, all steps "
            "in order of time.",
            path=path,
            expected="a batch size [N]",
            found=list(rows.batch_size),
            advice="Write rows.reshape(-1), which keeps the order of time in each lane.",
        )
    # Only plain TensorDicts are groups. Any other value is a leaf, dropped if it is not a tensor.
    items = rows.items(True, True, is_leaf=lambda kind: not issubclass(kind, TensorDict))
    leaves = {name if isinstance(name, str) else ".".join(name): item for name, item in items}
    tensors = {name: item for name, item in leaves.items() if isinstance(item, torch.Tensor)}
    dropped = [".".join(Path(each).relative_to(path).parts) for each in non_tensors]
    count = len(rows) if length is None else min(length, len(rows))
    return tensors, [*(leaves.keys() - tensors), *dropped], count, seam


def _seam(writer: Path, capacity: int) -> int | None:
    """Return the oldest row, which the writer would replace next; None if the file lacks it."""
    from datasets_cli.replay.checkpoint.torchrl_folder import read_json, whole_number_in

    state = read_json(writer) if writer.is_file() else {}
    if not {"cursor", "write_count"} <= state.keys():
        return None
    cursor = whole_number_in(state, "cursor", writer) % capacity
    return cursor if whole_number_in(state, "write_count", writer) > capacity else 0
