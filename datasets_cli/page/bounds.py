"""What a request may cost: so many bytes are read for it, for so many seconds."""

from __future__ import annotations

import time

from datasets_cli.errors import UsageError
from datasets_cli.progress import Silent
from datasets_cli.store.manifest import Manifest

MOST_SECONDS = 10
MOST_BYTES = 1 << 30


class Deadline(Silent):
    """A ``Progress`` that ends work which takes too long for a page."""

    def __init__(self, command: str) -> None:
        self._command, self._end = command, time.monotonic() + MOST_SECONDS

    def writing(self, num_transitions: int) -> None:
        """Refuse to go on after the time."""
        if time.monotonic() > self._end:
            raise UsageError(
                f"This takes more than {MOST_SECONDS} s, for which no page waits. Run: "
                f"{self._command}"
            )


def is_small(*manifests: Manifest) -> bool:
    """Return whether all numbers of datasets may be read for a page."""
    return sum(map(_data_bytes, manifests)) <= MOST_BYTES


def _data_bytes(manifest: Manifest) -> int:
    return manifest.num_transitions * sum(column.row_bytes for column in manifest.columns)
