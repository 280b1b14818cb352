"""What the folder of a dump has: rows, and where the writer stood. Each number is checked."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from tensordict import TensorDictBase

from datasets_cli.errors import DamagedDataset, UsageError
from datasets_cli.replay.arguments import Rows, StateDict
from datasets_cli.replay.files.json_files import (
    SETTINGS_BYTES,
    check_folder,
    read_state,
    whole,
    wrong,
)
from datasets_cli.replay.files.read_folder import read_tensordict
from datasets_cli.replay.files.structures import from_numbered
from datasets_cli.replay.persistence.dump import ROWS_META, STRUCTURE, WRITER_META
from datasets_cli.replay.rows.row_numbers import without_index
from datasets_cli.replay.writers.protocol import Writer


def read_counts(folder: Path) -> StateDict:
    """Return what is known of the rows that were dumped into a folder: their number, their form."""
    check_folder(folder)
    return read_state(folder / ROWS_META, SETTINGS_BYTES)


def in_structure(folder: Path, structure: Any, rows: TensorDictBase) -> Rows:
    """Return tensors ``[steps, ...]`` in the lists, tuples and dicts that they were dumped from."""
    try:
        return from_numbered(structure, rows)
    except ValueError as error:
        raise DamagedDataset(
            f"{folder / ROWS_META}: {STRUCTURE} is not that of these rows: {error}. Dump the "
            "buffer again."
        ) from error


def _is_ours(known: StateDict) -> bool:
    """Tell whether we wrote the rows, by what ``read_counts`` returned."""
    return known.get("escaped_names") is True


def read_rows(folder: Path, known: StateDict, ndim: int, mapped: bool) -> TensorDictBase:
    """Return the rows ``[steps, ...]`` that were dumped, time first."""
    path = folder / ROWS_META
    if known.get("is_pytree"):
        raise UsageError(
            f"{folder} holds tensors that are not in a TensorDict, as TorchRL can dump them. Only "
            "rows that are TensorDicts can be loaded: dump these as TensorDicts."
        )
    rows = read_tensordict(folder, mapped=mapped, escaped=_is_ours(known))
    if len(rows.batch_size) < ndim:
        raise wrong(folder, "shape", f"{ndim} or more dimensions of rows", list(rows.batch_size))
    width = max(1, math.prod(rows.shape[1:ndim]))
    rows = rows[: whole(known, "len", path, len(rows) * width) // width]
    if not _is_ours(known):  # TorchRL's writer puts it among the rows
        rows = without_index(rows)
    return rows


def read_writer(folder: Path, writer: Writer) -> StateDict:
    """Return where the writer stood."""
    check_folder(folder)
    path = folder / WRITER_META
    state = read_state(path)
    for name in {"cursor", "write_count"} & state.keys():
        state[name] = whole(state, name, path)  # TorchRL's may be 3.0
    # Writers of ours and TorchRL's tell one of these; one of a user's own may tell nothing.
    tells = not state.keys().isdisjoint({"cursor", "ranks", "rank_key"})
    if "cursor" in writer.state_dict() and not tells:
        raise wrong(path, "cursor", "the row that is written next", None)
    return state


def oldest_step(state: StateDict, num_steps: int) -> int:
    """Return the step of a ring's oldest rows, where it continues; 0 for what is not a ring."""
    cursor = 0 if "rank_key" in state else int(state.get("cursor", 0))  # TorchRL counts time steps
    return cursor if 0 <= cursor < num_steps else 0


def ranks_of(state: StateDict, folder: Path, num_rows: int) -> list[float] | None:
    """Return the ranks that were dumped; None where there are none, or those of other rows."""
    ranks = state.get("ranks")
    if ranks is None:
        return None
    if not isinstance(ranks, list) or any(
        type(rank) not in (int, float) or math.isnan(rank) for rank in ranks
    ):
        raise wrong(folder / WRITER_META, "ranks", "a list of numbers", ranks)
    return [*map(float, ranks)] if len(ranks) == num_rows else None
