"""The rows of a buffer as part of its state, to be saved with a model's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.buffers.rows import rows_at
from datasets_cli.replay.storages.lists import ListStorage


def rows_state(buffer: Any) -> dict[str, Any]:
    """Return copies of the rows there are, as ``extend`` takes them, and where the next one goes.

    Args:
        buffer: one whose rows can be written.
    """
    storage = buffer.storage
    rows = None
    if len(storage):
        whole = torch.arange(len(storage))
        is_list = isinstance(storage, ListStorage)
        rows = storage.gather(whole) if is_list else rows_at(storage, slice(None))
    return {"rows": rows, "max_size": storage.max_size, "writer": buffer.writer.state_dict()}


def restore_rows(buffer: Any, state: Mapping[str, Any]) -> None:
    """Write the rows of ``rows_state`` into a buffer, in place of its own.

    Raises:
        UsageError: they are of a storage of another size, or of rows of another form.
    """
    storage, rows = buffer.storage, state["rows"]
    if storage.max_size != state["max_size"]:
        raise UsageError(
            f"The state is of a storage with room for {state['max_size']} rows; this one has room "
            f"for {storage.max_size}. Make one of that size, or use dumps() and loads()."
        )
    replace_rows(buffer, None if rows is None else storage.flatten(rows), state["writer"])


def replace_rows(buffer: Any, columns: list[Any] | None, writer_state: Mapping[str, Any]) -> None:
    """Forget a buffer's rows for others, and go on behind these where the writer stood.

    Args:
        buffer: one whose rows can be written; it may refuse to forget them.
        columns: of the other rows ``[n, ...]``, as the storage takes them apart; None for none.
        writer_state: where its writer goes on; ``cursor`` counts rows.
    """
    storage = buffer.storage
    buffer.empty()
    if columns is not None:
        storage.write(slice(0, len(columns[0])), columns)
    buffer.writer.load_state_dict(writer_state)
    storage.cursor = writer_state.get("cursor", 0) // storage.width
