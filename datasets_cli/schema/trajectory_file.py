"""The file of the trajectory table, int64 ``[K + 1]`` as numpy writes it, checked without numpy.

numpy's own reader evaluates the header as a Python literal, and trusts the size in it. Here the
header has a fixed form, and the size follows from the number of trajectories.

    byte 0      x93 NUMPY, version 1.0, 118 bytes of text        10 bytes
    byte 10     {'descr': '<i8', 'fortran_order': False, 'shape': (K + 1,), }, spaces, a line's end
    byte 128    the offsets, 8 bytes each, little-endian
"""

from __future__ import annotations

import re
from pathlib import Path

from datasets_cli.core.system_errors import damaged

FILENAME = "trajectories.npy"

HEADER_BYTES = 128
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00\x76\x00"  # x76: 118
    rb"\{'descr': '<i8', 'fortran_order': False, 'shape': \((\d{1,20}),\), \} *\n"
)


def table_bytes(num_trajectories: int) -> int:
    """Return the size in bytes of the file of K trajectories."""
    return HEADER_BYTES + 8 * (num_trajectories + 1)


def check_table(path: Path | str, table: memoryview, num_trajectories: int) -> None:
    """Check the size and the header of the table of K trajectories."""
    header = bytes(table[:HEADER_BYTES])
    stated = _HEADER.fullmatch(header)
    if len(table) != (expected := table_bytes(num_trajectories)):
        wanted, found = f"{expected} bytes", str(len(table))
    elif not stated or int(stated[1]) != num_trajectories + 1:
        wanted = f"int64 [{num_trajectories + 1}]"
        found = repr(header[10:].decode("latin-1").strip())
    else:
        return
    raise damaged(
        path,
        f"{path} is not the table of {num_trajectories} trajectories: expected {wanted}, found "
        f"{found}",
        expected=wanted,
        found=found,
    )
