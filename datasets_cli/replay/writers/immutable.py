"""The writer of a dataset, which is never written."""

from __future__ import annotations

from typing import NoReturn

from datasets_cli.errors import ImmutableError
from datasets_cli.replay.arguments import Rows
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.torchrl_words import COMPILABLE, takes
from datasets_cli.replay.writers.protocol import Writer


@takes(compilable=COMPILABLE)
class ImmutableDatasetWriter(Writer):
    """The writer of a dataset: it refuses."""

    def __init__(self) -> None:
        super().__init__()  # so that a wrong argument is reported by this name

    def write(self, storage: Storage, data: Rows) -> NoReturn:
        """Refuse rows."""
        refuse_to_write()

    def on_clear(self) -> NoReturn:
        """Refuse to forget rows."""
        refuse_to_write()

    def __repr__(self) -> str:
        return "ImmutableDatasetWriter()"


def refuse_to_write() -> NoReturn:
    """Refuse to change the rows of a dataset."""
    raise ImmutableError(
        "A dataset cannot be written to. Copy rows into a buffer of your own, or make a new "
        "dataset with preprocess()."
    )
