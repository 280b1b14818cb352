"""Reading into a buffer what ``dump``, or TorchRL 0.14, wrote."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Annotated

import torch
from tensordict import LazyStackedTensorDict, TensorDictBase, is_tensor_collection

from datasets_cli.checked_json import Check
from datasets_cli.errors import DamagedDataset, ImmutableError, UsageError
from datasets_cli.replay.arguments import Rows, StateDict
from datasets_cli.replay.batches.reader import BatchReader
from datasets_cli.replay.batches.row_numbers import without_index
from datasets_cli.replay.checkpoint.draws import continue_from, read_generator, read_sampler
from datasets_cli.replay.checkpoint.dump import (
    EMPTY,
    ROWS_META,
    STRUCTURE,
    WRITER_META,
    Hook,
)
from datasets_cli.replay.checkpoint.dump_folder import (
    DATASET,
    GENERATOR,
    ROWS,
    SAMPLER,
    SEAL,
    WRITER,
    DumpFolder,
    open_dump,
)
from datasets_cli.replay.checkpoint.read_folder import read_tensordict
from datasets_cli.replay.checkpoint.state import check_dataset
from datasets_cli.replay.checkpoint.write_folder import TensorClass, as_class
from datasets_cli.replay.storages.collate import leading_sizes, map_rows, stack_rows
from datasets_cli.replay.storages.description import RowsJson, restore
from datasets_cli.replay.storages.protocol import WritableStorage
from datasets_cli.replay.storages.state_files import (
    SETTINGS_BYTES,
    check_folder,
    checked,
    read_state,
    whole,
    wrong,
)
from datasets_cli.replay.storages.tensors import LazyTensorStorage, TensorRows
from datasets_cli.replay.writing.row_writer import replace_rows, writable
from datasets_cli.replay.writing.writers import (
    GENERATIONS,
    SEAMS,
    TensorDictMaxValueWriter,
    Writer,
)


@dataclass(frozen=True)
class _Seal:
    """What is known of a whole buffer."""

    batch_size: Annotated[int, Check("a whole number from 1 on", lambda n: n >= 1)] | None = None


def plan_load(
    reader: BatchReader,
    writer: Writer,
    path: str | Path,
    hooks: list[Hook],
    tensorclass: TensorClass = None,
) -> Callable[[], None]:
    """Return what continues a buffer where ``dump``, or TorchRL 0.14, was called."""
    # Whatever may be refused is refused here, before the buffer changes.
    # A ring that is loaded into a larger storage begins there with its oldest row, and its epoch
    # starts again. An epoch of TorchRL's slices also starts again. Ranks that TorchRL's
    # writer kept are computed from the rows again. A generator continues where it was dumped;
    # torch's global one does only for a dataset.
    folder = open_dump(Path(path))
    seal = folder / SEAL  # without it, not everything is there
    checked(_Seal, read_state(seal, SETTINGS_BYTES), seal)
    # TorchRL, which dumps rows, may have written over a dump of a dataset.
    is_dataset = os.path.lexists(folder / DATASET) and not os.path.lexists(folder / ROWS)
    if is_dataset:
        check_dataset(reader.storage, read_state(folder / DATASET, SETTINGS_BYTES), str(path))
    elif not reader.storage.is_writable:
        raise ImmutableError(
            f"{path} holds rows; the rows of this buffer are a dataset, which is never written. "
            "Load it into a buffer with its own storage, such as LazyTensorStorage."
        )
    is_own = is_dataset or reader.generator is not torch.default_generator
    generator = read_generator(folder / GENERATOR, reader.generator) if is_own else None
    if is_dataset:
        drawn, put = read_sampler(reader.sampler, folder / SAMPLER), reader.sampler.on_clear
    else:
        drawn, put = _plan_rows(reader, writer, folder, hooks, tensorclass)
    return partial(continue_from, reader, put, drawn, generator)


def _plan_rows(
    reader: BatchReader,
    writer: Writer,
    folder: DumpFolder,
    hooks: list[Hook],
    tensorclass: TensorClass,
) -> tuple[StateDict | None, Callable[[], None]]:
    """Return the state of the sampler, if any, and what puts the rows dumped into a buffer."""
    storage = writable(reader)
    check_folder(folder / ROWS)
    counts = read_state(folder / ROWS / ROWS_META, SETTINGS_BYTES)
    state = _read_writer(folder / WRITER, writer)
    if counts.get(EMPTY) is True:
        drawn = read_sampler(reader.sampler, folder / SAMPLER)
        empty = copy.copy(writer)
        empty.on_clear()  # a writer of another kind may have been dumped
        begin = {name: part for name, part in empty.state_dict().items() if name != GENERATIONS}
        return drawn, partial(replace_rows, reader, writer, None, begin)
    rows, num_dumped = _hooked(folder / ROWS, counts, storage, hooks)
    num_steps, *side = leading_sizes(rows, storage.ndim)
    width = max(1, math.prod(side))
    num_rows, room = num_steps * width, -(-storage.max_size // width)
    if num_steps > room:
        raise UsageError(
            f"{folder.path} has {num_rows} rows; the storage has room for {room * width}."
        )
    is_whole = num_steps == num_dumped
    oldest = _oldest_step(state, num_steps) if is_whole else 0
    shift = oldest * width if num_steps < room else 0  # only a full ring may begin in its middle
    if shift or not is_whole:
        state.pop(GENERATIONS, None)  # rows have other numbers, or it is not known which
    if SEAMS in state:
        shifted = [(step - oldest * bool(shift)) % num_steps for step in state[SEAMS]]
        state[SEAMS] = shifted if is_whole else []
    if isinstance(writer, TensorDictMaxValueWriter):
        ranks = _ranks_in(state, folder / WRITER, num_steps)
        state["ranks"] = _ranks(writer, rows, folder.path) if ranks is None else ranks
    else:
        state["cursor"] = num_rows if num_steps < room else oldest * width
        state.setdefault("write_count", num_rows)
    drawn = read_sampler(reader.sampler, folder / SAMPLER)
    # Last, because an empty storage takes the form of the first rows that it flattens.
    try:
        columns = _columns(storage, rows, tensorclass)
    except UsageError as error:
        raise UsageError(f"{folder.path} has other rows than the buffer. {error}") from error
    columns = [_rolled(column, shift) for column in columns]
    put = partial(replace_rows, reader, writer, columns, state)
    return _moved(drawn, shift, num_rows, is_whole), put


def _hooked(
    folder: Path, counts: StateDict, storage: WritableStorage, hooks: list[Hook]
) -> tuple[Rows, int]:
    """Return what hooks made of the rows ``[steps, ...]`` that were dumped, and their steps."""
    # Our tensor storages copy what they are given; others, and hooks, may write into it.
    mapped = isinstance(storage, TensorRows) and not hooks
    dumped = _read_rows(folder, counts, storage.ndim, mapped)
    structure = counts.get(STRUCTURE)
    rows = dumped if structure is None else _in_structure(folder, structure, dumped)
    for hook in hooks:
        rows = hook(rows)
    return rows, len(dumped)


def _read_rows(folder: Path, counts: StateDict, ndim: int, mapped: bool) -> TensorDictBase:
    """Return the rows ``[steps, ...]`` that were dumped, time first."""
    if counts.get("is_pytree"):
        raise UsageError(
            f"{folder} holds tensors that are not in a TensorDict, as TorchRL can dump them. Only "
            "rows that are TensorDicts can be loaded: dump these as TensorDicts."
        )
    is_ours = counts.get("escaped_names") is True
    rows = read_tensordict(folder, mapped=mapped, escaped=is_ours)
    if len(rows.batch_size) < ndim:
        raise wrong(folder, "shape", f"{ndim} or more dimensions of rows", list(rows.batch_size))
    width = max(1, math.prod(rows.shape[1:ndim]))
    rows = rows[: whole(counts, "len", folder / ROWS_META, len(rows) * width) // width]
    return rows if is_ours else without_index(rows)  # TorchRL's writer puts it among the rows


def _in_structure(folder: Path, structure: RowsJson, rows: TensorDictBase) -> Rows:
    """Return tensors ``[steps, ...]`` in the lists, tuples and dicts that they were dumped from."""
    try:
        return restore(structure, [rows.get(str(number)) for number in range(len([*rows.keys()]))])
    except ValueError as error:
        raise DamagedDataset(
            f"{folder / ROWS_META}: {STRUCTURE} is not that of these rows: {error}. Dump the "
            "buffer again."
        ) from error


def _read_writer(folder: Path, writer: Writer) -> StateDict:
    """Return where the writer stood."""
    check_folder(folder)
    path = folder / WRITER_META
    state = read_state(path)
    for name in {"cursor", "write_count"} & state.keys():
        state[name] = whole(state, name, path)  # TorchRL's may be 3.0
    for name, least in ((GENERATIONS, -1), (SEAMS, 0)):
        numbers = state.get(name, [])
        if not isinstance(numbers, list) or any(
            type(number) is not int or not least <= number < 2**62 for number in numbers
        ):
            raise wrong(path, name, f"a list of whole numbers from {least} on", numbers)
    # Writers of ours and TorchRL's tell one of these; one of a user's own may tell nothing.
    tells = not state.keys().isdisjoint({"cursor", "ranks", "rank_key"})
    if "cursor" in writer.state_dict() and not tells:
        raise wrong(path, "cursor", "the row that is written next", None)
    return state


def _oldest_step(state: StateDict, num_steps: int) -> int:
    """Return the step of a ring's oldest rows, where it continues; 0 for what is not a ring."""
    cursor = 0 if "rank_key" in state else int(state.get("cursor", 0))  # TorchRL counts time steps
    return cursor if 0 <= cursor < num_steps else 0


def _ranks_in(state: StateDict, folder: Path, num_rows: int) -> list[float] | None:
    """Return the ranks that were dumped; None where there are none, or those of other rows."""
    if (ranks := state.get("ranks")) is None:
        return None
    if not isinstance(ranks, list) or any(
        type(rank) not in (int, float) or math.isnan(rank) for rank in ranks
    ):
        raise wrong(folder / WRITER_META, "ranks", "a list of numbers", ranks)
    return [*map(float, ranks)] if len(ranks) == num_rows else None


def _columns(storage: WritableStorage, rows: Rows, tensorclass: TensorClass) -> list[Rows]:
    """Return the columns of rows ``[steps, ...]``, as a storage flattens them."""
    if isinstance(rows, LazyStackedTensorDict) and not storage.takes_lists:
        rows = stack_rows(list(rows.unbind(0)))
    made, time = as_class(rows, tensorclass), storage.ndim - 1
    if not storage.takes_lists:
        return storage.flatten(map_rows(lambda part: part.transpose(0, time), made))
    if is_tensor_collection(made):
        return storage.flatten(list(made.unbind(0)))
    # A row of a structure is one step of each tensor in it.
    steps = range(leading_sizes(made, 1)[0])
    return storage.flatten([map_rows(itemgetter(step), made) for step in steps])


def _rolled(column: Rows, shift: int) -> Rows:
    """Return a column ``[n, ...]`` of which the first ``shift`` rows became the last."""
    if not shift:
        return column
    if isinstance(column, list):
        return column[shift:] + column[:shift]
    return column.roll(-shift, 0)


def _ranks(writer: TensorDictMaxValueWriter, rows: Rows, folder: Path) -> list[float]:
    """Return the ranks that a writer gives rows."""
    trial = copy.copy(writer)
    trial.on_clear()
    try:
        trial.write(LazyTensorStorage(max(1, len(rows))), rows.select(writer.rank_key))
    except (KeyError, AttributeError, UsageError) as error:
        raise UsageError(
            f"The rows in {folder} cannot be ranked by {writer.rank_key!r}: {error} Give the "
            "writer another rank_key, or dump rows that have it."
        ) from error
    ranks: list[float] = trial.state_dict()["ranks"].tolist()
    return ranks


def _moved(drawn: StateDict | None, shift: int, num_rows: int, is_whole: bool) -> StateDict | None:
    """Return a sampler's state for rows of which the first ``shift`` became the last."""
    if not drawn or "priorities" not in drawn:
        return None if shift else drawn
    priorities = drawn["priorities"]
    # It is not known which rows a hook left out: those that stay get the default priority.
    if not is_whole or len(priorities) > num_rows:
        priorities = priorities[:0]
    if shift:
        of_all = priorities.new_full((num_rows,), -1.0)
        of_all[: len(priorities)] = priorities
        priorities = of_all.roll(-shift)
    return drawn | {"priorities": priorities}
