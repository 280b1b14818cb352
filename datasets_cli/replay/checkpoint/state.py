"""The rows of a buffer as part of its state, to be saved with a model's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import Rows, StateDict, whole_number
from datasets_cli.replay.batches.reader import BatchReader
from datasets_cli.replay.checkpoint.draws import WRONG_STATE, check_kind, continue_from, try_state
from datasets_cli.replay.checkpoint.write_folder import TensorClass, as_class
from datasets_cli.replay.storages.collate import leading_sizes
from datasets_cli.replay.storages.description import describe, restore
from datasets_cli.replay.storages.protocol import Storage, WritableStorage, is_writable
from datasets_cli.replay.writing.row_writer import replace_rows, writable
from datasets_cli.replay.writing.writers import TensorDictMaxValueWriter, Writer

STATE_FORMAT = 4

AGAIN = "Save the state again."
ONLY_STORAGE = (
    "load only the storage: load_state_dict(state | {'sampler': buffer.state_dict()['sampler']})."
)


def rows_state(reader: BatchReader, writer: Writer) -> StateDict:
    """Return copies of the rows there are, and where the next one goes."""
    storage = reader.storage
    if dataset := storage.reference():
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
    reader: BatchReader, writer: Writer, state: StateDict, tensorclass: TensorClass = None
) -> Callable[[], None]:
    """Return what continues with the rows and draws of a state, in place of a buffer's own."""
    # Whatever may be refused is refused here, before the buffer changes.
    names = state.keys() if isinstance(state, Mapping) else set()
    if not {"sampler", "generator"} <= names:
        raise UsageError(
            "The state of a buffer has sampler and generator; this one has "
            f"{', '.join(map(str, names)) or 'nothing'}. What TorchRL dumped, loads() reads."
        )
    if "dataset" in state:
        check_dataset(reader.storage, state["dataset"], "The state")
    generator = generator_in(state, reader.generator)
    check_kind(reader.sampler, state["sampler"], "The state's sampler", ONLY_STORAGE)
    try_state(reader.sampler, state["sampler"], "The state's sampler", UsageError, AGAIN)
    put = _plan_rows(reader, writer, state, tensorclass) if "rows" in state else None
    return partial(continue_from, reader, put, state["sampler"], generator)


def check_dataset(storage: Storage, expected: object, what: str) -> None:
    """Check that a storage has the dataset that a dump or a state names, in any layout."""
    own = storage.reference()
    if not isinstance(expected, dict) or not isinstance(expected.get("content"), str):
        raise UsageError(f"{what} does not name the content of a dataset. Save or dump it again.")
    wanted = f"{expected.get('id')} (content {expected.get('content')})"
    if own is None:
        raise UsageError(
            f"{what} is of a buffer over the dataset {wanted}, and has none of its rows; this "
            "buffer is not over a dataset. Load it into one over that dataset, such as "
            f"ExperienceReplay({str(expected.get('id'))!r}); copy rows with extend()."
        )
    if own["content"] != expected.get("content"):
        raise UsageError(
            f"{what} is of a buffer over the dataset {wanted}; this one's is {own['id']} "
            f"(content {own['content']}). Open the dataset that was used then, in any layout."
        )
    if own.get("view") != expected.get("view"):
        raise UsageError(
            f"{what} is of {_view_of(expected)} of {wanted}; this buffer is over "
            f"{_view_of(own)}, which has {own['num_rows']:,} rows. Make the same view first; a "
            "view is kept by its save(), and opened by ExperienceReplay('the file.json')."
        )


def _view_of(reference: StateDict) -> str:
    view = reference.get("view")
    return "all rows" if view is None else f"a view (digest {str(view)[:16]})"


def generator_in(state: StateDict, generator: torch.Generator) -> torch.Tensor:
    """Return the state of a generator, uint8 ``[n]``, which is checked before rows are gone."""
    try:
        drawn: torch.Tensor = state["generator"].cpu()  # torch.load may have moved it
        torch.Generator(generator.device).set_state(drawn)
    except (KeyError, AttributeError, TypeError, RuntimeError) as error:
        raise UsageError(
            f"The state is not of a generator on {generator.device}: {error}. Load it into a "
            "buffer whose generator is on the same kind of device."
        ) from error
    return drawn


def _plan_rows(
    reader: BatchReader, writer: Writer, state: StateDict, tensorclass: TensorClass
) -> Callable[[], None]:
    storage = writable(reader)
    max_size, place = state.get("max_size"), state.get("writer")
    if not isinstance(place, dict):
        raise UsageError(
            f"The state's writer: expected a dict, found {type(place).__name__}. {AGAIN}"
        )
    try_state(writer, place, "The state's writer", UsageError, AGAIN)
    rows = _rows_in(storage, state, tensorclass)
    # Rows of a list have one dimension; those of tensors have time as the last one of several.
    is_list = isinstance(rows, list) and storage.takes_lists
    sizes = [len(rows)] if is_list else [0] if rows is None else leading_sizes(rows, storage.ndim)
    num_rows, width = math.prod(sizes), max(1, math.prod(sizes[:-1]))
    room = -(-storage.max_size // width) * width  # either may be rounded up to whole steps
    if not isinstance(max_size, int) or -(-max_size // width) * width != room:
        raise UsageError(
            f"The state is of a storage with room for {max_size!r} rows; this one has room "
            f"for {storage.max_size}. Make one of that size, or use dumps() and loads()."
        )
    if num_rows > room:
        raise UsageError(f"The state has {num_rows} rows; the storage has room for {room}. {AGAIN}")
    _check_places(writer, place, num_rows, width, room)
    # Last, because an empty storage takes the form of the first rows that it flattens.
    columns = None if rows is None else storage.flatten(rows)
    return partial(replace_rows, reader, writer, columns, place)


def _check_places(writer: Writer, place: StateDict, num_rows: int, width: int, room: int) -> None:
    """Check that a writer continues within, or right after, the rows that are there."""
    cursor = place.get("cursor", 0)
    most = min(num_rows, room - 1)  # after the last row that fits, a ring continues at row 0
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


def _rows_in(storage: WritableStorage, state: StateDict, tensorclass: TensorClass) -> Rows:
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
