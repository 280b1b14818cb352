"""A session's start: from ``python`` to the first batch of an installed dataset."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

import datasets_cli
from datasets_cli.core.progress import silent

DATASET = "demo/door-human"
REPEAT = 9
SCRIPTS = {
    "python": "pass",
    "import torch, tensordict": "import torch, tensordict",
    "import ExperienceReplay": "from datasets_cli import ExperienceReplay",
    "first batch": (
        "from datasets_cli import ExperienceReplay;"
        f"ExperienceReplay({DATASET!r}, batch_size=256).sample()"
    ),
}


def figures() -> dict[str, float]:
    """Return means of whole processes in seconds, each run in turn, and what the last two add."""
    with tempfile.TemporaryDirectory() as root:
        datasets_cli.download(DATASET, root=root, progress=silent)
        environment = {**os.environ, "RLDS_HOME": root}
        times: dict[str, list[float]] = {name: [] for name in SCRIPTS}
        for turn in range(REPEAT + 1):  # the first warms the page cache and the byte code
            for name, script in SCRIPTS.items():
                begin = time.perf_counter()
                subprocess.run([sys.executable, "-c", script], env=environment, check=True)
                if turn:
                    times[name].append(time.perf_counter() - begin)
    means = {name: round(statistics.mean(each), 3) for name, each in times.items()}
    libraries = means["import torch, tensordict"]
    return means | {
        "beyond torch and tensordict": round(means["first batch"] - libraries, 3),
    }
