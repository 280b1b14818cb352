"""What a request may ask for and cost: numbers, bytes that are read, seconds."""

from __future__ import annotations

import time

from starlette.requests import Request

from datasets_cli.core.progress import Silent
from datasets_cli.errors import UsageError
from datasets_cli.store.manifest import Manifest

MOST_SECONDS = 10
MOST_BYTES = 1 << 30
LARGEST = 2**48


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


def whole_number(request: Request, name: str, default: int, least: int = 0) -> int:
    """Return a whole number of the query of an address, or what stands for it."""
    text = request.query_params.get(name, "") or str(default)
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise UsageError(f"{name} is {text[:40]!r}; expected a whole number, {least} or more.")
    return max(least, min(int(text), LARGEST))
