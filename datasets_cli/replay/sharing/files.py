"""The files of shared rows: a column each, their form, and the numbers by which processes agree."""

from __future__ import annotations

import hmac
import json
import math
import mmap
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from datasets_cli.checked_json import decode
from datasets_cli.errors import DiskFull, UsageError
from datasets_cli.json_form import JsonForm
from datasets_cli.replay.arguments import StateDict
from datasets_cli.replay.sharing.process import rows_are_gone
from datasets_cli.replay.sharing.temporary import is_in_memory
from datasets_cli.schema.bits import bits_dtype, torch_dtype
from datasets_cli.schema.columns import Column, one_file_each
from datasets_cli.sources.disk import free_bytes, reserve
from datasets_cli.store.layouts.ted_writer import write_meta_files
from datasets_cli.system_errors import is_full

SEQUENCE, FORM, OTHERS, KEY, FIRST_ROW, END_ROW = range(6)
"""Places of numbers in the shared control file; the counters follow, twice.

- ``SEQUENCE``: raised by two with every change; odd while rows are being written.
- ``FORM``: 1 once the form of the rows is known, and their files are there.
- ``OTHERS``: 1 once a second process may read the rows.
- ``KEY``: tells the control file of one storage from that of the next in its folder.
- ``FIRST_ROW``: the first row that the write under way touches.
- ``END_ROW``: the row after the last one that it touches.
"""

_FIRST, _NUM_COUNTERS = 6, 5
NUM_NUMBERS = _FIRST + 2 * _NUM_COUNTERS


@dataclass
class Counters:
    """What one process counts."""

    num_rows: int = 0
    cursor: int = 0
    revision: int = 0
    write_count: int = 0
    clears: int = 0


def _counter(place: int) -> property:
    def read(counters: SharedCounters) -> int:
        numbers = counters.numbers
        found: int = numbers[_FIRST + numbers[SEQUENCE] // 2 % 2 * _NUM_COUNTERS + place]
        return found

    def write(counters: SharedCounters, value: int) -> None:
        numbers = counters.numbers
        numbers[_FIRST + (numbers[SEQUENCE] // 2 + 1) % 2 * _NUM_COUNTERS + place] = value

    return property(read, write)


class SharedCounters:
    """The same counters in memory that several processes share; they change all at once."""

    # There are two sets of them. `SEQUENCE // 2` says which one counts: it is odd or even. Values
    # are set in the other one, so that raising `SEQUENCE` to the next even number, which is one
    # store, makes all of them count.

    num_rows, cursor, revision, write_count, clears = map(_counter, range(5))

    def __init__(self, numbers: memoryview) -> None:
        self.numbers = numbers

    def begin(self) -> None:
        """Begin a change: what is not set from here on is kept."""
        turn = self.numbers[SEQUENCE] // 2 % 2
        old, new = (_FIRST + which * _NUM_COUNTERS for which in (turn, 1 - turn))
        self.numbers[new : new + _NUM_COUNTERS] = self.numbers[old : old + _NUM_COUNTERS]

    def end(self) -> None:
        """Make what was set count."""
        self.numbers[SEQUENCE] = (self.numbers[SEQUENCE] // 2 + 1) * 2


SUBFOLDER = ".sharing"
"""In the folder of the rows: the control file, and the form of the rows."""

_BYTES = 8 * NUM_NUMBERS


def make_control(folder: Path) -> bytes:
    """Make the control file of a storage, in place of that of an earlier one; return its key."""
    control = folder / SUBFOLDER
    key = secrets.token_bytes(32)
    with room_for(folder, _BYTES):
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(control, ignore_errors=True)
        control.mkdir(mode=0o700)
        (control / "control").write_bytes(bytes(_BYTES))
    _map(folder)[KEY] = _short(key)
    return key


def open_control(folder: Path, key: bytes) -> memoryview:
    """Return the numbers int64 of a control file, which all its processes read and set."""
    try:
        numbers = _map(folder)
    except FileNotFoundError as error:
        raise rows_are_gone(folder) from error
    if numbers[KEY] != _short(key):
        raise rows_are_gone(folder)
    return numbers


def _map(folder: Path) -> memoryview:
    with (folder / SUBFOLDER / "control").open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), _BYTES)).cast("q")


def _short(key: bytes) -> int:
    return int.from_bytes(key[:7], "little")


def check_empty(folder: Path) -> None:
    """Check that a folder has no more than what a storage left that was never written."""
    if folder.exists() and any(path.name != SUBFOLDER for path in folder.iterdir()):
        raise UsageError(
            f"{folder} is not empty: rows of another storage may be there. Choose a new "
            "scratch_dir, or pass existsok=True to write over it."
        )


@contextmanager
def room_for(folder: Path, num_bytes: int) -> Iterator[None]:
    """Turn a full disk into an error that says how many bytes are needed, and how many are free."""
    try:
        yield
    except FileNotFoundError as error:
        raise rows_are_gone(folder) from error
    except OSError as error:
        if not is_full(error):
            raise
        raise _no_room(folder, num_bytes) from error


def _no_room(folder: Path, num_bytes: int) -> DiskFull:
    return DiskFull(
        f"These rows need {num_bytes:,} bytes in {folder}, whose disk has {free_bytes(folder):,} "
        "bytes free. None of them was written. Make room, give the storage a smaller max_size or "
        "shared memory more (docker run --shm-size), or use a LazyMemmapStorage with a "
        "scratch_dir on another disk."
    )


PIECE_BYTES = 64 << 20
"""Of a file that are reserved at once, ahead of the row that is written next."""


def reserve_all(folder: Path, shared: SharedForm) -> None:
    """Reserve all that rows in shared memory will ever need; files on a disk stay sparse."""
    if not is_in_memory(folder):
        return
    num_bytes = shared.capacity * shared.row_bytes
    if num_bytes > free_bytes(folder):
        raise _no_room(folder, num_bytes)
    reserve_rows(folder, shared, 0, shared.capacity)


def reserve_rows(folder: Path, shared: SharedForm, first: int, end: int) -> int:
    """Give rows their place on the disk, and more ahead of them; return the row where it ends."""
    # A write to a page of a mapping that finds no room on the disk kills the process.
    reached = shared.capacity
    for leaf in shared.leaves:
        if not (row_bytes := leaf.row_bytes):
            continue
        start, needed = first * row_bytes, end * row_bytes
        ahead = min(-(-needed // PIECE_BYTES) * PIECE_BYTES, shared.capacity * row_bytes)
        stop = ahead if ahead - start <= free_bytes(folder) else needed
        num_bytes = (end - first) * shared.row_bytes
        with room_for(folder, num_bytes), (folder / leaf.filename).open("r+b") as file:
            reserve(file.fileno(), start, stop)
        reached = min(reached, stop // row_bytes)
    return reached


_DIGEST = "sha256"
_DIGEST_BYTES = 32


@dataclass(frozen=True)
class SharedForm(JsonForm):
    """What shared rows are: their columns, with a file each, the grid that they fill, and more."""

    leaves: tuple[Column, ...]
    grid: tuple[int, ...]
    form: StateDict | None
    """What tells the form of the rows, as JSON; none where that cannot."""

    @property
    def capacity(self) -> int:
        """Rows that fit."""
        return math.prod(self.grid)

    @property
    def width(self) -> int:
        """Rows of one time step."""
        return math.prod(self.grid[1:])

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in all files."""
        return sum(leaf.row_bytes for leaf in self.leaves)


def make_files(folder: Path, leaves: Sequence[Column], capacity: int) -> None:
    """Make the files of leaves, all zeros, as ``TensorDict.load_memmap`` opens them."""
    delete_files(folder, leaves)  # what another storage still maps must not change below it
    write_meta_files(folder, leaves, capacity)
    for leaf in leaves:
        path = folder / leaf.filename
        if math.prod(leaf.shape):
            with one_file_each(path, leaf.key), path.open("xb") as file:
                file.truncate(capacity * leaf.row_bytes)


def delete_files(folder: Path, leaves: Sequence[Column]) -> None:
    """Delete the files of leaves."""
    for leaf in leaves:
        (folder / leaf.filename).unlink(missing_ok=True)


def map_column(folder: Path, leaf: Column, capacity: int) -> torch.Tensor:
    """Return the column in a file, which every process that maps it reads and writes."""
    dtype, size = bits_dtype(torch_dtype(leaf.dtype)), capacity * math.prod(leaf.shape)
    if not size:  # tensordict has no file of a leaf without elements either
        return torch.empty((capacity, *leaf.shape), dtype=dtype)
    rows = torch.from_file(str(folder / leaf.filename), shared=True, size=size, dtype=dtype)
    return rows.view(capacity, *leaf.shape)


def write_form(folder: Path, key: bytes, shared: SharedForm) -> None:
    """Tell of the form of rows in their folder."""
    content = json.dumps(shared.to_json()).encode()
    _path(folder).write_bytes(hmac.digest(key, content, _DIGEST) + content)


def read_form(folder: Path, key: bytes) -> SharedForm:
    """Return what ``write_form`` told."""
    try:
        written = _path(folder).read_bytes()
    except FileNotFoundError as error:
        raise rows_are_gone(folder) from error
    digest, content = written[:_DIGEST_BYTES], written[_DIGEST_BYTES:]
    # Nothing is believed that a process without the key may have put there.
    if not hmac.compare_digest(digest, hmac.digest(key, content, _DIGEST)):
        raise rows_are_gone(folder)
    return decode(SharedForm, json.loads(content))


def _path(folder: Path) -> Path:
    return folder / SUBFOLDER / "form"
