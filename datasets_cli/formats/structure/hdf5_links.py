"""The links of an HDF5 file: each must lead to data inside the file, and all be within limits."""

from __future__ import annotations

import math
import reprlib
from typing import Any

import h5py

from datasets_cli.errors import SourceError
from datasets_cli.formats.limits import beyond, check_limit, limit
from datasets_cli.formats.structure.hdf5_chunks import chunks_beside

SHOWN = 200
"""Characters of a path that a message shows."""

_LINKS = {h5py.h5l.TYPE_SOFT: "a SoftLink", h5py.h5l.TYPE_EXTERNAL: "an ExternalLink"}


class HDF5Check:
    """Walks all links of a file by h5py's low-level interface: a file may have 200,000 of them.

    Args:
        filename: for messages.
        root: the group that all others are below.
    """

    def __init__(self, filename: str, root: h5py.h5g.GroupID) -> None:
        self._filename = filename
        self._seen: set[int] = {h5py.h5o.get_info(root).addr}
        self._num_links = 0

    def check_group(self, group: h5py.h5g.GroupID, where: str, nesting: int = 0) -> None:
        """Check what is below a group and has not been seen.

        Raises:
            SourceError: something refers to what is outside the file, or is beyond a limit.
        """
        check_limit("nesting", nesting, _short(where))
        for name, kind, address in self._links(group, where):
            path = f"{where}/{name.decode(errors='replace')}"
            if kind != h5py.h5l.TYPE_HARD:
                found = _LINKS.get(kind, "a link of a kind of its own")
                raise SourceError(
                    f"{_short(path)} is {found}. Expected data inside the file itself; links are "
                    "refused: they could read other files of this disk."
                )
            if address in self._seen:  # hard links may form a circle
                continue
            self._seen.add(address)
            item = h5py.h5o.open(group, name)
            if isinstance(item, h5py.h5g.GroupID):
                self.check_group(item, path, nesting + 1)
            elif isinstance(item, h5py.h5d.DatasetID):
                _check_dataset(item, path)

    def _links(self, group: h5py.h5g.GroupID, where: str) -> list[tuple[bytes, int, int]]:
        """Return name, kind and address of each link of a group."""
        links: list[tuple[bytes, int, int]] = []
        most = limit("entries") - self._num_links, limit("name_bytes")

        def add(name: bytes, info: Any) -> bool | None:
            links.append((name, info.type, info.u))
            # Any value ends the iteration; an error in here would be lost.
            return True if len(links) > most[0] or len(name) > most[1] else None

        group.links.iterate(add, info=True)
        for name, _, _ in links[-1:]:  # where the iteration may have ended early
            what = f"{_short(where)}: the name {reprlib.repr(name.decode(errors='replace'))}"
            check_limit("name_bytes", len(name), what)
            if len(links) > most[0]:
                raise SourceError(beyond("entries", math.inf, self._filename))
        self._num_links += len(links)
        return links


def _short(path: str) -> str:
    """Return a path for a message: names may be long, and nested."""
    return path if len(path) <= SHOWN else f"{path[: SHOWN // 2]}...{path[-SHOWN // 2 :]}"


def _check_dataset(item: h5py.h5d.DatasetID, path: str) -> None:
    """Refuse data in other files, and chunks beyond the limits."""
    made = item.get_create_plist()
    layout = made.get_layout()
    if layout == h5py.h5d.VIRTUAL or made.get_external_count():
        raise SourceError(
            f"{_short(path)} keeps its data in another file. Expected data inside the file itself."
        )
    if layout == h5py.h5d.CHUNKED:
        # HDF5 unpacks a chunk whole, and lists all that a read touches.
        chunk = made.get_chunk()
        size = math.prod(chunk) * item.get_type().get_size()
        check_limit("chunk_bytes", size, f"a chunk of {_short(path)}")
        check_limit("chunks", chunks_beside(item.shape, chunk), f"a row of {_short(path)}")
