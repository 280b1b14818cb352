"""What two processes gain on this machine, with work that shares nothing: the limit of any pool."""

from __future__ import annotations

import subprocess
import sys
import time

PARTS = 400
WORK = """
import sys, zlib
data = bytes(range(256)) * 4096
print(flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[1])):
    zlib.compress(data, 9)
"""


def gain() -> float:
    """Return how much faster two processes pack bytes than one, from when both have started."""
    return seconds_of(1) / seconds_of(2)


def seconds_of(count: int) -> float:
    """Return the seconds that some processes take for all parts together."""
    command = [sys.executable, "-c", WORK, str(PARTS // count)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    running = [subprocess.Popen(command, text=True, **pipes) for _ in range(count)]  # type: ignore[call-overload]
    for process in running:
        process.stdout.readline()
    begun = time.perf_counter()
    for process in running:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in running:
        process.wait()
    return time.perf_counter() - begun
