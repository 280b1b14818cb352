"""The rows of a buffer as part of its state, to be saved with a model's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import Rows, StateDict, whole_number
from datasets_cli.replay.keeping.dataset_reference import check_dataset, dataset_of
from datasets_cli.replay.keeping.draws import WRONG_STATE, try_state
from datasets_cli.replay.keeping.write_folder import as_class
from datasets_cli.replay.rows.max_value import TensorDictMaxValueWriter
from datasets_cli.replay.rows.reader import BatchReader
from datasets_cli.replay.rows.replace import replace_rows, writable
from datasets_cli.replay.rows.writers import Writer
from datasets_cli.replay.storages.description import describe, restore
from datasets_cli.replay.storages.form import check_leading, form_of
from datasets_cli.replay.storages.protocol import WritableStorage, is_writable
from datasets_cli.replay.storages.tensor_rows import TensorRows

STATE_FORMAT = 4

AGAIN = "Save the state again."


def rows_state(reader: BatchReader, writer: Writer) -> StateDict:
    """Return copies of the rows there are, and where the next one goes."""
    storage = reader.storage
    if dataset := dataset_of(storage):
        return {"dataset": dataset}
    if not is_writable(storage):
        return {}
    rows = None
    if len(storage):
        description, columns = describe(storage.contents())
        rows = {"description": description, "columns": _copied(storage, columns)}
    return {
        "format": STATE_FORMAT,
        "rows": rows,
        "max_size": storage.max_size,
        "writer": writer.state_dict(),
    }


def plan_restore(
    reader: BatchReader, writer: Writer, state: StateDict, tensorclass: Any = None
) -> Callable[[], None]:
    """Return what continues with the rows and draws of a state, in place of a buffer's own."""
    # Whatever may be refused is refused here, with the buffer as it was.
    found = state.keys() if isinstance(state, Mapping) else set()
    if not {"sampler", "generator"} <= found:
        raise UsageError(
            "The state of a buffer has sampler and generator; this one has "
            f"{', '.join(map(str, found)) or 'nothing'}. What TorchRL dumped, loads() reads."
        )
    if "dataset" in state:
        check_dataset(reader.storage, state["dataset"], "The state")
    generator = generator_in(state, reader.generator)
    try_state(reader.sampler, state["sampler"], "The state's sampler", UsageError, AGAIN)
    put = _plan_rows(reader, writer, state, tensorclass) if "rows" in state else None

    def restore() -> None:
        reader.drop()
        if put is not None:
            put()
        reader.sampler.load_state_dict(state["sampler"])
        reader.generator.set_state(generator)

    return restore


def generator_in(state: StateDict, generator: torch.Generator) -> torch.Tensor:
    """Return the state of a generator, uint8 ``[n]``, which is checked before rows are gone."""
    try:
        found: torch.Tensor = state["generator"].cpu()  # torch.load may have moved it
        torch.Generator(generator.device).set_state(found)
    except (KeyError, AttributeError, TypeError, RuntimeError) as error:
        raise UsageError(
            f"The state is not of a generator on {generator.device}: {error}. Load it into a "
            "buffer whose generator is on the same kind of device."
        ) from error
    return found


def _plan_rows(
    reader: BatchReader, writer: Writer, state: StateDict, tensorclass: Any
) -> Callable[[], None]:
    storage = writable(reader)
    max_size, place = state.get("max_size"), state.get("writer")
    if storage.max_size != max_size:
        raise UsageError(
            f"The state is of a storage with room for {max_size!r} rows; this one has room "
            f"for {storage.max_size}. Make one of that size, or use dumps() and loads()."
        )
    try_state(writer, place, "The state's writer", UsageError, AGAIN)
    if not isinstance(place, dict):
        raise UsageError(f"The state's writer is a {type(place).__name__}, not a dict. {AGAIN}")
    rows = _rows_in(storage, state, tensorclass)
    _check_places(writer, place, *_counted(storage, rows), storage.max_size)
    # Last, because an empty storage takes the form of the first rows that it flattens.
    columns = None if rows is None else storage.flatten(rows)
    return partial(replace_rows, reader, writer, columns, place)


def _counted(storage: WritableStorage, rows: Rows) -> tuple[int, int]:
    """Return how many rows of a state there are, and how many are written side by side."""
    if rows is None:
        return 0, 1
    width = 1
    if isinstance(storage, TensorRows):
        form = form_of(rows, storage.ndim)
        columns = form.flatten(rows)
        check_leading(form, columns, storage.ndim)
        *side, num_steps = columns[0].shape[: storage.ndim]  # time is last
        width = max(1, math.prod(side))
        num_rows = num_steps * width
    else:
        num_rows = len(storage.flatten(rows)[0])
    room = -(-storage.max_size // width) * width
    if num_rows > room:
        raise UsageError(f"The state has {num_rows} rows; the storage has room for {room}. {AGAIN}")
    return num_rows, width


def _check_places(
    writer: Writer, place: StateDict, num_rows: int, width: int, max_size: int
) -> None:
    """Check that a writer continues within, or right after, the rows that are there."""
    cursor = place.get("cursor", 0)
    # After the last row that fits, a ring continues at row 0.
    most = min(num_rows, -(-max_size // width) * width - 1)
    if not 0 <= whole_number("cursor", cursor) <= most or cursor % width:
        raise UsageError(
            f"The state's writer continues at row {cursor}, with {num_rows} rows in steps of "
            f"{width}. Expected the begin of a step, or the end of the rows. {AGAIN}"
        )
    if isinstance(writer, TensorDictMaxValueWriter) and len(place["ranks"]) > num_rows:
        raise UsageError(
            f"The state's writer has the ranks of {len(place['ranks'])} rows; there are {num_rows} "
            f"rows. {AGAIN}"
        )


def _copied(storage: WritableStorage, columns: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return tensors that share no memory with a storage, which keeps those of a list as given."""
    return [column.clone() for column in columns] if storage.takes_lists else columns


def _rows_in(storage: WritableStorage, state: StateDict, tensorclass: Any) -> Rows:
    """Return the rows of a state."""
    if (version := state.get("format")) != STATE_FORMAT:
        raise UsageError(
            f"The state has format {version!r}, and this program reads {STATE_FORMAT}. Save the "
            "state again; where a newer program saved it, upgrade."
        )
    if state["rows"] is None:
        return None
    try:
        columns = _copied(storage, state["rows"]["columns"])
        rows = restore(state["rows"]["description"], columns)
    except WRONG_STATE as error:
        raise UsageError(
            f"The rows of the state are not as state_dict() returns them: {error!r}. Save it again."
        ) from error
    if isinstance(rows, list):
        return [as_class(row, tensorclass) for row in rows]
    return as_class(rows, tensorclass)
