"""Room on the disk for raw files, and for the rows that are made of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from datasets_cli.install.options import InstallOptions
from datasets_cli.progress import Progress
from datasets_cli.recipe import Resource
from datasets_cli.sources.disk import check_free_space, free_bytes
from datasets_cli.store.cache_root import CacheRoot

# D4RL and Minari files grow to about twice their size when they are unpacked and successors added.
WRITTEN_RATIO = 2
_SECONDS_A_LOOK = 1.0  # for what has been deleted meanwhile


def needed_room(
    root: CacheRoot, id: str, resources: list[Resource], install_options: InstallOptions
) -> int:
    """Return the bytes of the files that are still to come and of the rows made of them."""
    total = sum(resource.size or 0 for resource in resources)
    folder = root.downloads(id)
    to_download = 0
    if install_options.source_folder is None:
        present = sum(_size_on_disk(folder / resource.filename) for resource in resources)
        to_download = max(0, total - present)
    return to_download + WRITTEN_RATIO * total


class Room:
    """The room for datasets that threads of this process install at the same time."""

    # One that has no room beside the others waits for them: what they need is there until they are
    # done, and their raw files are gone then.

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._needed: list[int] = []

    @contextmanager
    def reserved(
        self, root: CacheRoot, id: str, size_bytes: int, progress: Progress
    ) -> Iterator[None]:
        """Have room for one dataset."""
        self._wait(root, id, size_bytes, progress)
        try:
            yield
        finally:
            with self._changed:
                self._needed.remove(size_bytes)
                self._changed.notify_all()

    def _wait(self, root: CacheRoot, id: str, size_bytes: int, progress: Progress) -> None:
        has_told = False
        with self._changed:
            while self._needed and free_bytes(root.path) < size_bytes + sum(self._needed):
                if not has_told:
                    progress.note(f"{id} waits for room on the disk until others are done")
                    has_told = True
                progress.writing(0)  # ends the wait where the whole run ends
                self._changed.wait(_SECONDS_A_LOOK)
            check_free_space(root.path, size_bytes, id)
            self._needed.append(size_bytes)


def _size_on_disk(path: Path) -> int:
    for candidate in (path, Path(f"{path}.part")):
        if candidate.is_file():
            return candidate.stat().st_size
    return 0
