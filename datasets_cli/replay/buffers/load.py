"""Reading into a buffer what ``dump``, or TorchRL 0.14, wrote."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import torch
from tensordict import TensorDict, TensorDictBase

from datasets_cli.errors import DamagedDataset, UsageError
from datasets_cli.replay.arguments import StateDict
from datasets_cli.replay.buffers.checkpoint import replace_rows, writable
from datasets_cli.replay.buffers.dump import SEAL, Hook
from datasets_cli.replay.buffers.reader import BatchReader
from datasets_cli.replay.buffers.rows import without_index
from datasets_cli.replay.samplers.epoch import given_epoch
from datasets_cli.replay.samplers.protocol import Sampler, has_priorities
from datasets_cli.replay.samplers.random import SamplerWithoutReplacement
from datasets_cli.replay.state_files import STATE, read_state
from datasets_cli.replay.storages.tensors import LazyTensorStorage
from datasets_cli.replay.writers import TensorDictMaxValueWriter, Writer
from datasets_cli.store.schema.columns import encode_name


def load(reader: BatchReader, writer: Writer, path: str | Path, hooks: list[Hook]) -> None:
    """Read rows that ``dump``, or TorchRL 0.14, wrote into a buffer, in place of its own.

    A ring that is loaded into a larger storage begins there with its oldest row, and its epoch
    starts again. An epoch also starts again where another kind of sampler was dumped, or TorchRL's
    sampler of slices, which counts trajectories differently. Ranks that TorchRL's writer kept are
    computed from the rows again.

    Args:
        reader: of a buffer of the same parts.
        writer: of the buffer.
        path: the folder.
        hooks: called one after the other with the rows; what the last one returns is stored.

    Raises:
        FileNotFoundError: nothing was written there, or a part of it is missing.
        DamagedDataset: a file is missing or too short.
        ImmutableError: the buffer's rows are a dataset.
        UsageError: there are more rows than the storage can have, or they are not TensorDicts.
    """
    folder, storage, sampler = Path(path), writable(reader), reader.sampler
    read_state(folder / SEAL)  # without it, not everything is there
    state = read_state(folder / "writer" / "metadata.json")
    rows = dumped = _read_rows(folder / "storage", storage.ndim)
    for hook in hooks:
        rows = hook(rows)
    rows = without_index(rows)
    width = max(1, math.prod(rows.shape[1 : storage.ndim]))
    num_steps, room = len(rows), -(-storage.max_size // width)
    if num_steps > room:
        raise UsageError(
            f"{folder} has {num_steps * width} rows; the storage has room for {room * width}."
        )
    oldest = _oldest_step(state, num_steps) if num_steps == len(dumped) else 0
    shift = oldest if num_steps < room else 0  # only a full ring may begin in its middle
    if shift:
        rows = torch.cat([rows[shift:], rows[:shift]])
    if isinstance(writer, TensorDictMaxValueWriter):
        if len(state.get("ranks", ())) != num_steps:
            state["ranks"] = _ranks(writer, rows)
    else:
        state["cursor"] = (num_steps if num_steps < room else oldest) * width
        state.setdefault("write_count", num_steps * width)
    # Whatever may be refused is checked before the buffer's own rows are gone.
    columns = storage.flatten(rows.transpose(0, storage.ndim - 1) if storage.ndim > 1 else rows)
    drawn = _read_sampler(sampler, folder / "sampler")
    replace_rows(reader, writer, columns, state)
    if drawn and "priorities" in drawn:
        known, num_rows = drawn["priorities"], num_steps * width
        # It is not known which rows a hook left out: those that stay get the default priority.
        if num_steps != len(dumped) or len(known) > num_rows:
            known = known[:0]
        drawn["priorities"] = _shifted(known, shift * width, num_rows)
    if drawn and ("priorities" in drawn or not shift):
        sampler.load_state_dict(drawn)


def _read_rows(folder: Path, ndim: int) -> TensorDict:
    """Return the rows ``[steps, ...]`` that were dumped, time first."""
    known = read_state(folder / "storage_metadata.json")
    if known.get("is_pytree"):
        raise UsageError(
            f"{folder} holds tensors that are not in a TensorDict, as TorchRL can dump them. Only "
            "rows that are TensorDicts can be loaded: dump these as TensorDicts."
        )
    check_leaves(folder)
    rows = TensorDict.load_memmap(folder)
    return rows[: int(known["len"]) // max(1, math.prod(rows.shape[1:ndim]))]


def _oldest_step(state: StateDict, num_steps: int) -> int:
    """Return the step of a ring's oldest rows, where it continues; 0 for what is not a ring."""
    cursor = 0 if "rank_key" in state else int(state.get("cursor", 0))  # TorchRL counts time steps
    return cursor if 0 <= cursor < num_steps else 0


def _ranks(writer: TensorDictMaxValueWriter, rows: TensorDictBase) -> list[float]:
    """Return the ranks that a writer gives rows."""
    if rows.get(writer.rank_key, None) is None:
        raise UsageError(f"The rows have no {writer.rank_key!r}, which the writer ranks them by.")
    trial = copy.copy(writer)
    trial.on_clear()
    trial.write(LazyTensorStorage(max(1, len(rows))), rows.select(writer.rank_key))
    ranks: list[float] = trial.state_dict()["ranks"].tolist()
    return ranks


def _read_sampler(sampler: Sampler, folder: Path) -> StateDict | None:
    """Return the state of a sampler that was dumped, or None where it was of another kind."""
    if has_priorities(sampler):
        sampler.loads(folder)
        return sampler.state_dict()
    if (folder / "meta.json").exists():
        return _read_epoch(folder) if isinstance(sampler, SamplerWithoutReplacement) else None
    path = folder / STATE
    state = read_state(path) if path.exists() else {}
    return state if state.keys() >= sampler.state_dict().keys() else None


def _read_epoch(folder: Path) -> StateDict | None:
    """Return what is left of an epoch of TorchRL's, or None where it had not begun."""
    if "shape" not in read_state(folder / "meta.json")["_sample_list"]:
        return None
    check_leaves(folder)
    found = TensorDict.load_memmap(folder)
    # Where that epoch had ended, the list is already the next one's.
    return given_epoch(found["_sample_list"].clone(), int(found["len_storage"]))


def _shifted(priorities: torch.Tensor, shift: int, num_rows: int) -> torch.Tensor:
    """Return priorities float64 ``[n]`` of rows of which the first ``shift`` became the last."""
    if not shift:
        return priorities
    known = priorities.new_full((num_rows,), -1.0)
    known[: len(priorities)] = priorities[:num_rows]
    return known.roll(-shift)


def check_leaves(folder: Path) -> None:
    """Check that every leaf of a memory-mapped TensorDict is there in full.

    tensordict 0.14 leaves out a file that is missing, and fills one that is too short with zeros;
    what is not a tensor it may unpickle.

    Raises:
        DamagedDataset: one is not.
        UsageError: one is no tensor.
    """
    for name, leaf in read_state(folder / "meta.json").items():
        if not isinstance(leaf, dict):
            continue
        if "shape" not in leaf:
            if leaf.get("type") != "TensorDict":
                raise UsageError(f"{folder / name} is not a tensor but {leaf.get('type')}.")
            check_leaves(folder / encode_name(name))
            continue
        size = getattr(torch, leaf["dtype"].removeprefix("torch.")).itemsize * math.prod(
            leaf["shape"]
        )
        path = folder / f"{encode_name(name)}.memmap"
        found = path.stat().st_size if path.exists() else 0
        if found < size:
            raise DamagedDataset(f"{path} has {found} of {size} bytes. Dump the buffer again.")
