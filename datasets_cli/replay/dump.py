"""Keeping the rows of a buffer in a folder, laid out as TorchRL 0.14 does.

PATH/storage/             a TensorDict's memory-mapped files; storage_metadata.json: how many rows
PATH/sampler/             priorities, or the position in an epoch
PATH/writer/metadata.json where the next row goes
PATH/buffer_metadata.json the batch size
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from datasets_cli.errors import DamagedDataset, UsageError

Hook = Callable[[Any], Any]


def dump(buffer: Any, path: str | Path, hooks: list[Hook]) -> None:
    """Write the rows there are, and where the sampler and the writer stand.

    Args:
        buffer: a replay buffer of TensorDicts.
        path: a folder; made with those above it.
        hooks: called one after the other with the rows; what the last one returns is written.

    Raises:
        UsageError: the rows are not TensorDicts.
    """
    folder, storage = Path(path), buffer.storage
    if not storage.is_tensordict:
        raise UsageError("Only rows that are TensorDicts in a tensor storage can be dumped.")
    rows = storage.run(0, len(storage))
    if storage.ndim > 1:
        rows = rows.reshape(-1, *storage.grid[1:])
    for hook in hooks:
        rows = hook(rows)
    folder.mkdir(parents=True, exist_ok=True)
    rows.memmap(folder / "storage")
    width = math.prod(rows.shape[1:])
    _write_json(
        folder / "storage" / "storage_metadata.json",
        {"metadata": {}, "is_pytree": False, "len": len(rows) * width},
    )
    if dumps := getattr(buffer.sampler, "dumps", None):
        dumps(folder / "sampler")
    else:
        _write_json(folder / "sampler" / "state.json", buffer.sampler.state_dict())
    state = {name: _json_of(value) for name, value in buffer.writer.state_dict().items()}
    if "cursor" in state:  # TorchRL counts time steps
        state["cursor"] //= width
    _write_json(folder / "writer" / "metadata.json", state)
    _write_json(folder / "buffer_metadata.json", {"batch_size": buffer.batch_size})


def load(buffer: Any, path: str | Path, hooks: list[Hook]) -> None:
    """Read rows that ``dump``, or TorchRL 0.14, wrote into a buffer, in place of its own.

    Args:
        buffer: a replay buffer of the same parts.
        path: the folder.
        hooks: called one after the other with the rows; what the last one returns is stored.

    Raises:
        FileNotFoundError: nothing was written there.
        DamagedDataset: a file is missing or too short.
        UsageError: there are more rows than the storage can have.
    """
    folder, storage = Path(path), buffer.storage
    known = _read_json(folder / "storage" / "storage_metadata.json")
    check_leaves(folder / "storage")
    rows = TensorDict.load_memmap(folder / "storage")
    width = math.prod(rows.shape[1 : storage.ndim])
    rows = rows[: int(known["len"]) // max(1, width)]
    for hook in hooks:
        rows = hook(rows)
    num_rows = len(rows) * width
    if num_rows > storage.max_size:
        raise UsageError(
            f"{folder} has {num_rows} rows; the storage has room for {storage.max_size}."
        )
    data = _plain(rows.transpose(0, storage.ndim - 1) if storage.ndim > 1 else rows)
    storage.apart(data)  # refuses rows of another form before the buffer's own are gone
    buffer.empty()
    buffer.writer.place(storage, data)
    state = _read_json(folder / "writer" / "metadata.json")
    if "cursor" in state:
        state["cursor"] *= width
    buffer.writer.load_state_dict(state)
    if loads := getattr(buffer.sampler, "loads", None):
        loads(folder / "sampler")
    elif (folder / "sampler" / "state.json").exists():
        buffer.sampler.load_state_dict(_read_json(folder / "sampler" / "state.json"))


def check_leaves(folder: Path) -> None:
    """Check that every leaf of a memory-mapped TensorDict is there in full.

    tensordict 0.14 leaves out a file that is missing, and fills one that is too short with zeros.

    Raises:
        DamagedDataset: one is not.
    """
    for name, leaf in _read_json(folder / "meta.json").items():
        if not isinstance(leaf, dict):
            continue
        if "shape" not in leaf:
            check_leaves(folder / name)
            continue
        size = getattr(torch, leaf["dtype"].removeprefix("torch.")).itemsize * math.prod(
            leaf["shape"]
        )
        path = folder / f"{name}.memmap"
        found = path.stat().st_size if path.exists() else 0
        if found < size:
            raise DamagedDataset(f"{path} has {found} of {size} bytes. Dump the buffer again.")


def _plain(data: TensorDictBase) -> TensorDictBase:
    """Return the rows without an ``index`` that TorchRL's writer put among them."""
    return data.exclude("index") if "index" in data.keys() else data  # noqa: SIM118


def _json_of(value: Any) -> Any:
    return value.tolist() if isinstance(value, torch.Tensor) else value


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def _read_json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
