"""Writers that are killed and continued: ``python -m tests.exchange.killed FOLDER KILLS``.

Every kill is a process of its own, forked from this one, which has neither torch nor threads. Half
of them die at a call that was drawn, which is the same in every run, and half after a time that
was drawn, which also hits the middle of a call. Each is continued to its end, whose files must have
the bytes of a writer that nobody killed, with nothing else left. Prints what happened as JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from datasets_cli import DatasetWriter
from datasets_cli.core.progress import silent

ID, NUM_EPISODES = "mine/robot", 40


def episode(number: int) -> dict[str, Any]:
    """Return the columns of an episode, with text; some have hundreds of steps, some one."""
    rng = np.random.default_rng(number)
    count = 1 + number % 5 * 60
    return {
        "observation": rng.normal(size=(count, 17)).astype(np.float32),
        "action": rng.normal(size=(count, 6)),
        "reward": rng.normal(size=count),
        "terminated": number % 2 == 1,
        "info": {"task": [f"line\n{number}"] * count},
    }


def write(root: Path) -> None:
    """Write all episodes, after those that a killed writer left."""
    with DatasetWriter(ID, root=root, force=True, progress=silent) as writer:
        for number in range(writer.num_episodes, NUM_EPISODES):
            writer.add_episode(episode(number))


class Calls:
    """Counts the calls of C functions, such as ``os.write``, and dies before one of them."""

    def __init__(self, last: int) -> None:
        self.last, self.count = last, 0

    def __call__(self, frame: object, event: str, called: object) -> None:
        """Count one."""
        self.count += event == "c_call"
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)


def forked(work: Callable[[], None], seconds: float | None = None) -> int:
    """Return how a process that does this work ended; it is killed after some seconds."""
    if not (child := os.fork()):
        try:
            work()
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def counted_write(root: Path, last: int) -> int:
    """Write all episodes, up to a call; return how many calls there were."""
    calls = Calls(last)
    sys.setprofile(calls)
    write(root)
    sys.setprofile(None)
    return calls.count


def files_of(root: Path) -> dict[str, bytes]:
    """Return every file below a root, but the empty ones that processes lock."""
    paths = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in paths if path.stat().st_size}


def stage_of(root: Path) -> str:
    """Return where a writer was killed."""
    if (root / "datasets" / ID / "manifest.json").exists():
        left = (root / "downloads" / ID).exists()
        return "episodes not deleted" if left else "all done"
    return "commit" if any((root / "tmp").glob("*")) else "adding"


def main(folder: Path, num_kills: int) -> None:
    """Kill, continue and compare."""
    dice, stages, differences = random.Random(32), Counter[str](), []
    write(folder / "whole")  # with what is imported once
    expected = files_of(folder / "whole")
    num_calls = counted_write(folder / "counted", -1)
    start = time.perf_counter()
    write(folder / "timed")
    took = time.perf_counter() - start
    for number in range(num_kills):
        root = folder / str(number)
        if number % 2:
            forked(lambda root=root: write(root), dice.uniform(0, 1.1 * took))
        else:
            last = num_calls - int(num_calls * dice.random() ** 3)  # more of them in the commit
            forked(lambda root=root, last=last: counted_write(root, last) and None)
        stages[stage_of(root)] += 1
        ended, files = forked(lambda root=root: write(root)), files_of(root)
        names = expected.keys() | files.keys()
        wrong = sorted(name for name in names if files.get(name) != expected.get(name))
        differences += [f"kill {number}: {wrong} exit {ended}"] if wrong or ended else []
    print(json.dumps({"stages": stages, "differences": differences, "files": [*expected]}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
