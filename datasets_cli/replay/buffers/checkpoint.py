"""The rows of a buffer as part of its state, to be saved with a model's."""

from __future__ import annotations

from typing import Any

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import StateDict
from datasets_cli.replay.buffers.reader import BatchReader
from datasets_cli.replay.storages.protocol import WritableStorage, is_writable
from datasets_cli.replay.writers import Writer, refuse_to_write


def rows_state(reader: BatchReader, writer: Writer) -> StateDict:
    """Return copies of the rows there are, as ``extend`` takes them, and where the next one goes.

    Args:
        reader: of the buffer; of a dataset nothing is returned.
        writer: of the buffer.
    """
    storage = reader.storage
    if not is_writable(storage):
        return {}
    return {
        "rows": storage.contents() if len(storage) else None,
        "max_size": storage.max_size,
        "writer": writer.state_dict(),
    }


def restore_state(reader: BatchReader, writer: Writer, state: StateDict) -> None:
    """Continue with the rows and the draws of a state, in place of a buffer's own.

    Args:
        reader: of the buffer.
        writer: of the buffer.
        state: that of the draws, and what ``rows_state`` returned.

    Raises:
        ImmutableError: the state has rows and the buffer's are a dataset.
        UsageError: it is no state of such a buffer: of a storage of another size, or of rows of
            another form.
    """
    if not {"sampler", "generator"} <= state.keys():
        raise UsageError(
            "The state of a buffer has sampler and generator; this one has "
            f"{', '.join(map(str, state)) or 'nothing'}. What TorchRL dumped, loads() reads."
        )
    reader.drop()
    if "rows" in state:
        _restore_rows(reader, writer, state)
    reader.sampler.load_state_dict(state["sampler"])
    reader.generator.set_state(state["generator"])


def _restore_rows(reader: BatchReader, writer: Writer, state: StateDict) -> None:
    storage, rows = writable(reader), state["rows"]
    if storage.max_size != state["max_size"]:
        raise UsageError(
            f"The state is of a storage with room for {state['max_size']} rows; this one has room "
            f"for {storage.max_size}. Make one of that size, or use dumps() and loads()."
        )
    columns = None if rows is None else storage.flatten(rows)
    replace_rows(reader, writer, columns, state["writer"])


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
