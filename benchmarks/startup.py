"""How long commands and imports take to start, beside their peers, in one run.

    python benchmarks/startup.py [--repeat 15]

Prints JSON: medians in seconds of whole processes, and two ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

BIN = Path(sys.executable).parent
COMMANDS = {
    "python": [sys.executable, "-c", "pass"],
    "rlds --help": [str(BIN / "rlds"), "--help"],
    "rlds list": [str(BIN / "rlds"), "list"],
    "minari list local": [str(BIN / "minari"), "list", "local"],
    "import datasets_cli": [sys.executable, "-c", "import datasets_cli"],
    "import torch": [sys.executable, "-c", "import torch"],
}


def seconds(command: list[str]) -> float:
    """Return how long one process of a command takes."""
    start = time.perf_counter()
    subprocess.run(command, capture_output=True, check=True)
    return time.perf_counter() - start


def main() -> None:
    """Time every command in turn, so that noise falls on all alike, and print the medians."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeat", type=int, default=15)
    repeat = parser.parse_args().repeat
    commands = {name: c for name, c in COMMANDS.items() if shutil.which(c[0])}
    for command in commands.values():
        seconds(command)  # warm the page cache and the byte code
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(repeat):
        for name, command in commands.items():
            times[name].append(seconds(command))
    medians = {name: statistics.median(values) for name, values in times.items()}
    bare = medians["python"]
    result = {
        "cores": os.cpu_count(),
        "repeat": repeat,
        "seconds": {name: round(value, 3) for name, value in medians.items()},
        "rlds list / minari list local": round(
            medians["rlds list"] / medians["minari list local"], 2
        )
        if "minari list local" in medians
        else "minari is not installed",
        "import datasets_cli / import torch, interpreter's own start taken off": round(
            (medians["import datasets_cli"] - bare) / (medians["import torch"] - bare), 3
        ),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
