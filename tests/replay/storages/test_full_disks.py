"""Full disks: rows without room are refused, and no process dies of a write to a mapped page."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MOUNT = "mount -t tmpfs -o size=$1 tmpfs $2"
START = """
import os, sys
import torch
from tensordict import TensorDict
from datasets_cli import LazyMemmapStorage, LazyTensorStorage, ReplayBuffer
from datasets_cli.errors import DiskFull

def rows(count, start=0):
    number = torch.arange(start, start + count)
    wide = number.unsqueeze(1).expand(count, 1024).int()
    return TensorDict({"number": number, "wide": wide}, [count])

def fill(buffer, step):
    while True:
        before = len(buffer)
        try:
            buffer.extend(rows(step, before))
        except DiskFull as error:
            assert "bytes free" in str(error) and f"{step * 4104:,} bytes" in str(error), error
            assert len(buffer) == buffer.writer.cursor == before
            assert torch.equal(buffer[:]["wide"], rows(before)["wide"])
            return before
"""


def run_on(size: str, mounted: Path | str, script: str) -> None:
    """Run a script where a small disk of its own is mounted."""
    inside = ["unshare", "-m", "sh", "-c"]
    tried = subprocess.run(
        [*inside, MOUNT, "sh", size, mounted], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        pytest.skip(f"no disk can be mounted here: {tried.stderr.strip()}")
    command = f'{MOUNT} && shift 2 && exec "$@"'
    python = [sys.executable, "-c", START + script, str(mounted)]
    made = subprocess.run(
        [*inside, command, "sh", size, mounted, *python],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, (made.returncode, made.stderr)


def test_rows_that_a_full_disk_has_no_room_for_are_refused(tmp_path: Path) -> None:
    run_on(
        "8m",
        tmp_path,
        """
folder = f"{sys.argv[1]}/rows"
buffer = ReplayBuffer(storage=LazyMemmapStorage(10_000, scratch_dir=folder))
written = fill(buffer, 100)
assert written == 2000, written
for texts in (False, True):  # whose rows are in files, too
    other = LazyMemmapStorage(1000, scratch_dir=f"{sys.argv[1]}/{texts}")
    more = rows(100).set("text", ["a"] * 100) if texts else rows(100)
    try:
        ReplayBuffer(storage=other).extend(more)
        raise SystemExit("there was room")
    except DiskFull:
        assert len(other) == 0
""",
    )


def test_shared_memory_is_reserved_before_the_first_row_is_written() -> None:
    run_on(
        "64m",
        "/dev/shm",
        """
first, second = (ReplayBuffer(storage=LazyTensorStorage(10_000), shared=True) for _ in range(2))
third = ReplayBuffer(storage=LazyTensorStorage(10_000))
first.extend(rows(10))
third.extend(rows(10))
for write in (lambda: second.extend(rows(10)), third.share):
    try:
        write()
        raise SystemExit("there was room")
    except DiskFull as error:
        assert "need 41,040,000 bytes in /dev/shm/rlds-" in str(error), error
assert len(second) == 0 and len(third) == 10 and not third.shared
third.extend(rows(10, 10))
assert torch.equal(third[:]["wide"], rows(20)["wide"])
first.extend(rows(9_990, 10))
del first
second.extend(rows(10_000))
""",
    )
