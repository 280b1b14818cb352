"""How long commands and imports take to start on a terminal, beside their peers, in one run.

    python benchmarks/startup.py [--repeat 15]

Prints JSON: medians of whole processes, in seconds that pass and in seconds that a core works, and
two ratios. Where a machine does other work too, the first grow and the second hardly do.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

BIN = Path(sys.executable).parent
COMMANDS = {
    "python": [sys.executable, "-c", "pass"],
    "rlds --help": [str(BIN / "rlds"), "--help"],
    "rlds list": [str(BIN / "rlds"), "list"],
    "rlds list 'd4rl/*'": [str(BIN / "rlds"), "list", "d4rl/*"],
    "rlds verify": [str(BIN / "rlds"), "verify"],
    "rlds repair --dry-run": [str(BIN / "rlds"), "repair", "--dry-run"],
    "rlds verify --deep": [str(BIN / "rlds"), "verify", "--deep"],
    "minari list local": [str(BIN / "minari"), "list", "local"],
    "import typer": [sys.executable, "-c", "import typer"],
    "import datasets_cli": [sys.executable, "-c", "import datasets_cli"],
    "import torch": [sys.executable, "-c", "import torch"],
}


def run(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Return the seconds that pass, and that a core works, while one process runs on a terminal."""
    start = time.perf_counter()
    process, terminal = pty.fork()
    if process == 0:
        os.execve(command[0], command, environment)
    try:
        while os.read(terminal, 1 << 16):
            pass
    except OSError:  # how Linux says that the process has closed its terminal
        pass
    _, status, used = os.wait4(process, 0)
    passed = time.perf_counter() - start
    os.close(terminal)
    assert status == 0, f"{' '.join(command)} failed"
    return passed, used.ru_utime + used.ru_stime


def in_turn(repeat: int, environment: dict[str, str]) -> dict[str, tuple[float, float]]:
    """Return the medians of every command, each run in turn, so that noise falls on all alike."""
    commands = {name: c for name, c in COMMANDS.items() if shutil.which(c[0])}
    for command in commands.values():
        run(command, environment)  # warm the page cache and the byte code
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(repeat):
        for name, command in commands.items():
            times[name].append(run(command, environment))
    return {
        name: (statistics.median(passed), statistics.median(worked))
        for name, values in times.items()
        for passed, worked in [zip(*values, strict=True)]
    }


def main() -> None:
    """Time every command and print the medians."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeat", type=int, default=15)
    repeat = parser.parse_args().repeat
    with tempfile.TemporaryDirectory() as folder:
        # As installed: the modules are byte code, and the cache root is this run's own.
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder, "RLDS_HOME": f"{folder}/root"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        # One dataset of 300 rows is installed.
        run([str(BIN / "rlds"), "download", "demo/door-human"], environment)
        medians = in_turn(repeat, environment)
    passed = {name: value for name, (value, _) in medians.items()}
    bare = passed["python"]
    result = {
        "cores": os.cpu_count(),
        "repeat": repeat,
        "seconds": {name: round(value, 3) for name, value in passed.items()},
        "seconds of a core": {name: round(value, 3) for name, (_, value) in medians.items()},
        "rlds list / minari list local": round(passed["rlds list"] / passed["minari list local"], 2)
        if "minari list local" in passed
        else "minari is not installed",
        "import datasets_cli / import torch, interpreter's own start taken off": round(
            (passed["import datasets_cli"] - bare) / (passed["import torch"] - bare), 3
        ),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
