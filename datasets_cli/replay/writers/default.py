"""The writer of a buffer that was given none."""

from __future__ import annotations

from datasets_cli.replay.storages.protocol import Storage, is_writable
from datasets_cli.replay.writers.immutable import ImmutableDatasetWriter
from datasets_cli.replay.writers.protocol import Writer
from datasets_cli.replay.writers.round_robin import RoundRobinWriter


def default_writer(storage: Storage) -> Writer:
    """Return the writer of a buffer that was given none: after the rows that are there."""
    if not is_writable(storage):
        return ImmutableDatasetWriter()
    writer = RoundRobinWriter()
    writer.cursor = storage.cursor * storage.width
    return writer
