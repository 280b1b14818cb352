"""The state of a replay buffer: its draws, and its rows or the id and content of their dataset.

Loading is planned first: every error is raised before the buffer changes.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import torch
from tensordict import LazyStackedTensorDict, is_tensor_collection

from datasets_cli.errors import RldsError, WrongRows, WrongSize, WrongState
from datasets_cli.replay.arguments import Rows, StateDict, whole_number
from datasets_cli.replay.batches.reader import BatchReader
from datasets_cli.replay.samplers.protocol import Sampler
from datasets_cli.replay.storages.collate import leading_sizes, map_rows, stack_rows
from datasets_cli.replay.storages.columns import outline
from datasets_cli.replay.storages.description import describe, restore
from datasets_cli.replay.storages.protocol import Storage, WritableStorage, is_writable
from datasets_cli.replay.storages.tensors import LazyTensorStorage
from datasets_cli.replay.trajectories.seams import moved_seams
from datasets_cli.replay.writing.row_writer import replace_rows, writable
from datasets_cli.replay.writing.writers import (
    GENERATIONS,
    SEAMS,
    TensorDictMaxValueWriter,
    Writer,
)
from datasets_cli.schema.bits import TYPE_NAMES

STATE_FORMAT = 4

Hook = Callable[[Rows], Rows]
"""A function of the rows that are dumped or loaded, ``[steps, ...]``, which returns rows."""

TensorClass = Any
"""The class of a tensorclass, or None."""

WRONG_VALUES = (
    *(ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, RuntimeError),
)
"""Errors that a part may raise for a state with other types or sizes than its own."""

SAVE_AGAIN = "Save the state again."
OTHER_SAMPLER = (
    "Create the buffer with a sampler of that kind, and call set_sampler() after loading. "
    "load_state_dict(state | {'sampler': None}) loads the rows alone."
)


def buffer_state(reader: BatchReader, writer: Writer, hooks: Sequence[Hook] = ()) -> StateDict:
    """Return the state of the draws, with copies of the rows or the id of their dataset."""
    state, storage = reader.draw_state(), reader.storage
    if dataset := storage.reference():
        return state | {"dataset": dataset}
    if not is_writable(storage):
        return state
    place, rows = writer.state_dict(), None
    if len(storage):
        contents = storage.contents()
        hooked = run_hooks(storage, contents, hooks)
        num_rows, _ = sizes_of(storage, hooked)
        if num_rows != sizes_of(storage, contents)[0]:
            place = _without_row_numbers(place)
            place |= {SEAMS: []} if SEAMS in place else {}
            place |= {"cursor": num_rows % storage.max_size} if "cursor" in place else {}
            state["sampler"] = _moved(state["sampler"], 0, num_rows, is_whole=False)
        description, columns = describe(hooked)
        rows = {
            "description": description,
            "columns": _copied(storage, columns),
            "is_list": isinstance(hooked, list) and storage.takes_lists,
        }
    return state | {
        "format": STATE_FORMAT,
        "rows": rows,
        "max_size": storage.max_size,
        "writer": place,
    }


def plan_restore(
    reader: BatchReader,
    writer: Writer,
    state: StateDict,
    tensorclass: TensorClass = None,
    hooks: Sequence[Hook] = (),
) -> Callable[[], None]:
    """Return the change that gives a buffer the rows and draws of a state."""
    names = state.keys() if isinstance(state, Mapping) else set()
    if not {"sampler", "generator"} <= names:
        found = ", ".join(map(str, names)) or "nothing"
        raise WrongState(
            f"The state of a buffer has sampler and generator; this one has {found}.",
            expected="sampler, generator",
            found=found,
            advice="Pass a result of state_dict().",
        )
    if "dataset" in state:
        check_dataset(reader.storage, state["dataset"])
    generator, drawn = state["generator"], state["sampler"]
    if generator is not None:
        generator = generator_in(generator, reader.generator)
    if drawn is not None:
        _check_kind(reader.sampler, drawn)
        _check_loads(reader.sampler, drawn, "sampler")
    put: Callable[[], None] | None = None
    if "rows" in state:
        put, drawn = _plan_rows(reader, writer, state, tensorclass, hooks)
    return partial(_restore, reader, put, drawn, generator)


def _restore(
    reader: BatchReader,
    put: Callable[[], None] | None,
    drawn: StateDict | None,
    generator: torch.Tensor | None,
) -> None:
    reader.drop()
    if put is not None:
        put()
    if drawn is None:
        reader.sampler.on_clear()
    else:
        reader.sampler.load_state_dict(drawn)
    if generator is not None:
        reader.generator.set_state(generator)


def generator_in(state: object, generator: torch.Generator) -> torch.Tensor:
    """Return the saved state of a generator, uint8 ``[n]``, if ``generator`` can load it."""
    try:
        saved: torch.Tensor = state.cpu()  # type: ignore[attr-defined]  # torch.load may move it
        torch.Generator(generator.device).set_state(saved)
    except (AttributeError, TypeError, RuntimeError) as error:
        raise WrongState(
            f"The state's generator is not the state of a generator on {generator.device}: {error}",
            expected=str(generator.device),
            advice="Keep the buffer's own generator: load_state_dict(state | {'generator': None}).",
        ) from error
    return saved


def _check_kind(sampler: Sampler, state: object) -> None:
    """Check that a state is of a sampler of the same kind."""
    own = sampler.state_dict().get("kind")
    kind = state.get("kind") if isinstance(state, Mapping) else None
    is_empty = isinstance(state, Mapping) and not state
    if not is_empty and not _is_equal(kind, own):
        drawn = kind if isinstance(kind, str) else "in an unknown way"
        raise WrongState(
            f"The state's sampler draws {drawn}; this "
            f"buffer has a {type(sampler).__name__}, which draws {own or 'in its own way'}.",
            argument="sampler",
            expected=own,
            found=kind,
            advice=OTHER_SAMPLER,
        )


def _is_equal(value: object, own: object) -> bool:
    """Return whether a value of a state, which may be a tensor of any shape, is equal to ours."""
    return type(value) is type(own) and value == own


def _check_loads(part: Sampler | Writer, state: StateDict, name: str) -> None:
    """Check that a sampler or writer can load a state; it keeps its own."""
    before = part.state_dict()
    try:
        part.load_state_dict(state)
    except WrongState as error:
        error.prepend(f"The state's {name} does not fit: ")
        error.argument = name
        raise
    except WRONG_VALUES as error:
        reason = str(error) if isinstance(error, RldsError) else f"{error!r}."
        if isinstance(error, KeyError):
            reason = f"it has no {error}."
        raise WrongState(
            f"The state's {name} is not the state of a {type(part).__name__}: {reason}",
            argument=name,
            expected=type(part).__name__,
            advice=SAVE_AGAIN,
        ) from error
    finally:
        part.load_state_dict(before)


def check_dataset(storage: Storage, saved: object) -> None:
    """Check that a storage has the dataset, in any layout, that a state names."""
    if not isinstance(saved, dict) or not isinstance(saved.get("content"), str):
        raise WrongState(
            "The state's dataset does not name the content of a dataset.",
            found=saved,
            advice=SAVE_AGAIN,
        )
    own, id = storage.reference(), str(saved.get("id"))
    wanted = f"{id} (content {saved['content']})"
    if own is None:
        raise WrongState(
            f"The state is of a buffer over the dataset {wanted}; this buffer is not over a "
            "dataset, and the state has no rows.",
            id=id,
            expected=saved["content"],
            advice=f"Load it into ExperienceReplay({id!r}); copy rows with extend().",
        )
    if not _is_equal(saved["content"], own["content"]):
        raise WrongState(
            f"The state is of a buffer over the dataset {wanted}; this one's is {own['id']} "
            f"(content {own['content']}).",
            id=id,
            expected=saved["content"],
            found=own["content"],
            advice="Open the dataset that the state names, in any layout.",
        )
    if not _is_equal(saved.get("view"), own.get("view")):
        raise WrongState(
            f"The state is of {_view_of(saved)} of {wanted}; this buffer is over {_view_of(own)}, "
            f"which has {own['num_rows']:,} rows.",
            id=id,
            expected=saved.get("view"),
            found=own.get("view"),
            advice="Make the same view first.",
        )


def _view_of(reference: StateDict) -> str:
    view = reference.get("view")
    return "all rows" if view is None else f"a view (digest {str(view)[:16]})"


def _plan_rows(
    reader: BatchReader,
    writer: Writer,
    state: StateDict,
    tensorclass: TensorClass,
    hooks: Sequence[Hook],
) -> tuple[Callable[[], None], StateDict | None]:
    """Return the change that puts the rows of a state into a buffer, and the sampler's state."""
    storage, place, drawn = writable(reader), _writer_in(state), state["sampler"]
    saved = _rows_in(storage, state)
    if saved is None:
        _check_loads(writer, place, "writer")
        return partial(replace_rows, reader, writer, None, place), drawn
    num_saved, _ = sizes_of(storage, saved)
    rows = _for_storage(storage, run_hooks(storage, saved, hooks), tensorclass)
    num_rows, width = sizes_of(storage, rows)
    capacity = -(-storage.max_size // width) * width  # whole steps
    _check_room(num_rows, capacity)
    is_whole = num_rows == num_saved
    shift = 0
    if "cursor" in place:
        cursor = _cursor_in(place, state.get("max_size"), num_saved, width)
        # A ring that is smaller than this storage begins with its oldest row here:
        #
        #     saved    5 6 2 3 4      the next row goes over row 2, the oldest
        #     loaded   2 3 4 5 6 _ _
        oldest = cursor % num_rows if is_whole and num_rows else 0
        is_ring = "cursor" in writer.state_dict()
        shift = oldest if is_ring and num_rows < capacity else 0
        place = place | {"cursor": num_rows if num_rows < capacity else oldest}
    if shift or not is_whole:
        place = _without_row_numbers(place)
    if isinstance(writer, TensorDictMaxValueWriter):
        place = _ranked(writer, place, rows, num_rows)
    _check_loads(writer, place, "writer")
    if SEAMS in place and (shift or not is_whole):
        seams = moved_seams(place[SEAMS], shift // width, num_rows // width) if is_whole else []
        place = place | {SEAMS: seams}
    drawn = _moved(drawn, shift, num_rows, is_whole)
    # Last, because an empty storage takes the form of the first rows that it flattens.
    columns = storage.flatten(rows)
    if shift:
        columns = [_rolled(column, shift) for column in columns]
    return partial(replace_rows, reader, writer, columns, place), drawn


def _writer_in(state: StateDict) -> StateDict:
    """Return the state of the writer."""
    if not isinstance(place := state.get("writer"), dict):
        raise WrongState(
            f"The state's writer: expected a dict, found {type(place).__name__}.",
            argument="writer",
            expected="dict",
            found=type(place).__name__,
            advice=SAVE_AGAIN,
        )
    return place


def _check_room(num_rows: int, capacity: int) -> None:
    if num_rows > capacity:
        raise WrongSize(
            f"The state has {num_rows:,} rows; the storage has room for {capacity:,}.",
            argument="max_size",
            expected=num_rows,
            found=capacity,
            advice="Make the storage larger.",
        )


def _rows_in(storage: WritableStorage, state: StateDict) -> Rows:
    """Return the rows of a state, or None if it has no rows."""
    if not _is_equal(version := state.get("format"), STATE_FORMAT):
        raise WrongState(
            f"The state has format {version!r}; this version of rlds reads {STATE_FORMAT}.",
            expected=STATE_FORMAT,
            found=version,
            advice="Save the state again, or upgrade if a newer version saved it.",
        )
    if state["rows"] is None:
        return None
    try:
        columns = state["rows"]["columns"]
        for column in columns:
            _check_column(column)
        rows = restore(state["rows"]["description"], _copied(storage, columns))
        is_list = state["rows"].get("is_list", storage.takes_lists) is True
    except WRONG_VALUES as error:
        raise WrongState(
            f"The state's rows are not the rows of a state_dict(): {error}.",
            key="rows",
            advice=SAVE_AGAIN,
        ) from error
    return stack_rows(rows) if is_list and not storage.takes_lists else rows


def _check_column(column: torch.Tensor) -> None:
    """Check that a tensor has a value in memory for each of its elements."""
    if column.layout != torch.strided or column.is_nested or column.dtype not in TYPE_NAMES:
        raise ValueError(f"a column is a tensor of {column.dtype}, {column.layout}")
    # An expanded tensor, or one of the device "meta", claims any size.
    if column.untyped_storage().nbytes() < column.nbytes or column.is_meta:
        raise ValueError(f"a column of {column.nbytes:,} bytes is not stored whole")


def _copied(storage: WritableStorage, columns: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return tensors that share no memory with a list storage, which keeps the ones it is given."""
    return [column.clone() for column in columns] if storage.takes_lists else columns


def sizes_of(storage: WritableStorage, rows: Rows) -> tuple[int, int]:
    """Return the number of rows, and how many of them are one time step."""
    if isinstance(rows, list) and storage.takes_lists:
        return len(rows), 1
    sizes = leading_sizes(rows, storage.ndim)  # time last
    return math.prod(sizes), max(1, math.prod(sizes[:-1]))


def run_hooks(storage: Storage, rows: Rows, hooks: Sequence[Hook]) -> Rows:
    """Return the result of hooks, which are given the rows as one batch, time first."""
    if not hooks:
        return rows
    if isinstance(rows, list):
        rows = stack_rows(rows)
    needs_tensordict = is_tensor_collection(rows)
    rows = _swap_time(storage, rows)
    for hook in hooks:
        rows = hook(rows)
    if needs_tensordict and not (is_tensor_collection(rows) and rows.batch_size):
        raise WrongRows(
            f"A hook returned {outline(rows)}; expected a TensorDict of rows [steps, ...].",
            found=outline(rows),
            advice="Return the rows from the hook.",
        )
    return _swap_time(storage, rows)


def _swap_time(storage: Storage, rows: Rows) -> Rows:
    """Return rows with time, the last of their dimensions, as the first one, or the reverse."""
    time = storage.ndim - 1
    return map_rows(lambda part: part.transpose(0, time), rows) if time else rows


def _for_storage(storage: WritableStorage, rows: Rows, tensorclass: TensorClass) -> Rows:
    """Return rows in the form that a storage takes: a list of rows, or one batch."""
    if storage.takes_lists:
        if is_tensor_collection(rows):
            rows = list(rows.unbind(0))
        elif not isinstance(rows, list):
            numbers = range(leading_sizes(rows, 1)[0])
            rows = [map_rows(itemgetter(number), rows) for number in numbers]
        return [_as_class(row, tensorclass) for row in rows]
    if isinstance(rows, LazyStackedTensorDict) and rows.tensordicts:
        rows = stack_rows(list(rows.unbind(0)))
    return _as_class(rows, tensorclass)


def _as_class(rows: Rows, tensorclass: TensorClass) -> Rows:
    if tensorclass is None:
        return rows
    try:
        return tensorclass.from_tensordict(rows)
    except (AttributeError, TypeError, ValueError, KeyError, RuntimeError) as error:
        name = getattr(tensorclass, "__name__", tensorclass)
        raise WrongRows(
            f"The rows, {outline(rows)}, cannot be made {name!r}: {error}.",
            argument="tensorclass",
            advice="Pass the tensorclass of the rows that were saved, or None for TensorDicts.",
        ) from error


def _cursor_in(place: StateDict, max_size: Any, num_rows: int, width: int) -> int:
    """Return the row that the writer of a state writes next."""
    cursor, max_size = whole_number("cursor", place["cursor"]), whole_number("max_size", max_size)
    capacity = -(-max_size // width) * width
    last = min(num_rows, capacity - 1)  # after the last row that fits, a ring continues at row 0
    if not 0 <= cursor <= last or cursor % width:
        raise WrongState(
            f"The state's writer continues at row {cursor}, with {num_rows} rows in steps of "
            f"{width}.",
            argument="cursor",
            expected=f"the first row of a step, from 0 to {last}",
            found=cursor,
            advice=SAVE_AGAIN,
        )
    return cursor


def _without_row_numbers(place: StateDict) -> StateDict:
    """Return a writer's state without its entries per row, since row numbers have changed."""
    return {name: value for name, value in place.items() if name not in (GENERATIONS, "ranks")}


def _ranked(
    writer: TensorDictMaxValueWriter, place: StateDict, rows: Rows, num_rows: int
) -> StateDict:
    """Return a writer's state with ranks: computed from the rows if the state has none."""
    if "ranks" not in place:
        return place | {"ranks": _ranks(writer, rows, num_rows)}
    found = len(place["ranks"]) if isinstance(place["ranks"], list | torch.Tensor) else -1
    if found > num_rows:
        raise WrongState(
            f"The state's writer has the ranks of {found} rows; the state has {num_rows} rows.",
            argument="ranks",
            expected=num_rows,
            found=found,
            advice=SAVE_AGAIN,
        )
    return place


def _ranks(writer: TensorDictMaxValueWriter, rows: Rows, num_rows: int) -> torch.Tensor:
    """Return the ranks float64 ``[n]`` that a writer gives rows."""
    trial = copy.copy(writer)
    trial.on_clear()
    try:
        batch = stack_rows(rows) if isinstance(rows, list) else rows
        trial.write(LazyTensorStorage(max(1, num_rows)), batch.select(writer.rank_key))
    except WRONG_VALUES as error:
        raise WrongRows(
            f"The rows cannot be ranked by {writer.rank_key!r}: {error}",
            argument="rank_key",
            advice="Give the writer another rank_key.",
        ) from error
    ranks: torch.Tensor = trial.state_dict()["ranks"]
    return ranks


def _rolled(column: Rows, shift: int) -> Rows:
    """Return a column ``[n, ...]`` whose first ``shift`` rows are moved to the end."""
    if isinstance(column, list):
        return column[shift:] + column[:shift]
    return column.roll(-shift, 0)


def _moved(drawn: StateDict | None, shift: int, num_rows: int, is_whole: bool) -> StateDict | None:
    """Return a sampler's state for rows of which the first ``shift`` were moved to the end."""
    if not drawn or "priorities" not in drawn:
        return None if shift else drawn
    priorities = torch.as_tensor(drawn["priorities"])
    # A hook removed rows, and it is unknown which: all rows get the default priority.
    if not is_whole or len(priorities) > num_rows:
        priorities = priorities[:0]
    if shift:
        of_all = priorities.new_full((num_rows,), -1.0)
        of_all[: len(priorities)] = priorities
        priorities = of_all.roll(-shift)
    return drawn | {"priorities": priorities}
