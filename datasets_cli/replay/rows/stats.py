"""What a monitor logs of a buffer."""

from __future__ import annotations

from datasets_cli.replay.rows.reader import BatchReader
from datasets_cli.replay.storages.protocol import is_writable
from datasets_cli.replay.writers.protocol import Writer


def buffer_stats(reader: BatchReader, writer: Writer) -> dict[str, int | float | bool]:
    """Return the numbers of a buffer, in TorchRL's words; see ``ReplayBuffer.stats``."""
    size, storage = len(reader.storage), reader.storage
    capacity = storage.max_size if is_writable(storage) else size
    return {
        "size": size,
        "write_count": writer.write_count,
        "prefetch_queue_size": reader.num_ahead,
        "initialized": True,
        "capacity": capacity,
        "utilization": size / capacity if capacity else 0.0,
    }
