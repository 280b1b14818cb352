"""The rows of a buffer as part of its state, to be saved with a model's."""

from __future__ import annotations

from typing import Any

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import Rows, StateDict
from datasets_cli.replay.buffers.dataset_reference import check_dataset, dataset_of
from datasets_cli.replay.buffers.reader import BatchReader
from datasets_cli.replay.files.plain_rows import from_plain, to_plain
from datasets_cli.replay.files.write_folder import as_class
from datasets_cli.replay.storages.protocol import WritableStorage, is_writable
from datasets_cli.replay.writers import Writer, refuse_to_write

STATE_FORMAT = 2
"""Since 2, rows in a state are plain values; before, they were as they were stored."""


def rows_state(reader: BatchReader, writer: Writer) -> StateDict:
    """Return copies of the rows there are, and where the next one goes.

    Args:
        reader: of the buffer; of a dataset its id, content and number of rows are returned, and of
            other rows that cannot be written nothing.
        writer: of the buffer.

    Raises:
        UsageError: a row is something that ``torch.load`` does not take by default.
    """
    storage = reader.storage
    if dataset := dataset_of(storage):
        return {"dataset": dataset}
    if not is_writable(storage):
        return {}
    return {
        "format": STATE_FORMAT,
        "rows": to_plain(storage.contents()) if len(storage) else None,
        "max_size": storage.max_size,
        "writer": writer.state_dict(),
    }


def restore_state(
    reader: BatchReader, writer: Writer, state: StateDict, tensorclass: Any = None
) -> None:
    """Continue with the rows and the draws of a state, in place of a buffer's own.

    Args:
        reader: of the buffer.
        writer: of the buffer.
        state: that of the draws, and what ``rows_state`` returned.
        tensorclass: the class that rows become, where they were of one.

    Raises:
        ImmutableError: the state has rows and the buffer's are a dataset.
        UsageError: it is no state of such a buffer: of a storage of another size, or of rows of
            another form; or of another dataset.
    """
    if not {"sampler", "generator"} <= state.keys():
        raise UsageError(
            "The state of a buffer has sampler and generator; this one has "
            f"{', '.join(map(str, state)) or 'nothing'}. What TorchRL dumped, loads() reads."
        )
    if "dataset" in state:
        check_dataset(reader.storage, state["dataset"], "The state")
    generator = _generator_in(state, reader.generator)
    reader.drop()
    if "rows" in state:
        _restore_rows(reader, writer, state, tensorclass)
    reader.sampler.load_state_dict(state["sampler"])
    reader.generator.set_state(generator)


def _generator_in(state: StateDict, generator: torch.Generator) -> torch.Tensor:
    """Return the state of a generator, uint8 ``[n]``, which is checked before rows are gone."""
    try:
        found: torch.Tensor = state["generator"].cpu()  # torch.load may have moved it
        torch.Generator(generator.device).set_state(found)
    except (AttributeError, TypeError, RuntimeError) as error:
        raise UsageError(
            f"The state is not of a generator on {generator.device}: {error}. Load it into a "
            "buffer whose generator is on the same kind of device."
        ) from error
    return found


def _restore_rows(reader: BatchReader, writer: Writer, state: StateDict, tensorclass: Any) -> None:
    storage = writable(reader)
    if storage.max_size != state["max_size"]:
        raise UsageError(
            f"The state is of a storage with room for {state['max_size']} rows; this one has room "
            f"for {storage.max_size}. Make one of that size, or use dumps() and loads()."
        )
    rows = _rows_in(state, tensorclass)
    columns = None if rows is None else storage.flatten(rows)
    replace_rows(reader, writer, columns, state["writer"])


def _rows_in(state: StateDict, tensorclass: Any) -> Rows:
    """Return the rows of a state."""
    if (version := state.get("format", 1)) == 1:
        return state["rows"]
    if version != STATE_FORMAT:
        raise UsageError(
            f"The state has format {version!r}; this version reads up to {STATE_FORMAT}. Upgrade."
        )
    try:
        rows = from_plain(state["rows"])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"The rows of the state are not as state_dict() returns them: {error!r}. Save it again."
        ) from error
    if isinstance(rows, list):
        return [as_class(row, tensorclass) for row in rows]
    return rows if rows is None else as_class(rows, tensorclass)


def replace_rows(
    reader: BatchReader,
    writer: Writer,
    columns: list[Any] | None,
    writer_state: StateDict,
) -> None:
    """Forget a buffer's rows for others, and continue after these where the writer stood.

    Args:
        reader: of the buffer.
        writer: of the buffer.
        columns: of the other rows ``[n, ...]``, as the storage flattens them; None for none.
        writer_state: where its writer continues; ``cursor`` counts rows.
    """
    storage = writable(reader)
    clear_rows(reader, writer)
    if columns is not None:
        storage.write(slice(0, len(columns[0])), columns)
    writer.load_state_dict(writer_state)
    # The storage counts time steps, the writer rows.
    storage.cursor = writer_state.get("cursor", 0) // storage.width


def clear_rows(reader: BatchReader, writer: Writer) -> None:
    """Forget a buffer's rows, and tell all who know of them."""
    storage = writable(reader)
    writer.on_clear()  # first, because it may refuse
    storage.clear()
    reader.transform.on_clear()
    reader.sampler.on_clear()
    reader.drop()


def writable(reader: BatchReader) -> WritableStorage:
    """Return the storage of a buffer to write to.

    Raises:
        ImmutableError: its rows are a dataset.
    """
    if not is_writable(reader.storage):
        refuse_to_write()
    return reader.storage
