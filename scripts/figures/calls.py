"""How many calls into this package one call of a user takes, and into how many files of it."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import datasets_cli
from datasets_cli.progress import Silent

PACKAGE = Path(datasets_cli.__file__).parent
ROOTS = (f"{PACKAGE}/", f"{PACKAGE.parent / 'recipes'}/")
DATASET = "demo/door-human"


def traced(run: Callable[[], Any]) -> Counter[tuple[str, str]]:
    """Count the calls of each function; modules and comprehensions are none."""
    counts: Counter[tuple[str, str]] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOTS) and code.co_name[0] != "<":
            counts[code.co_filename, code.co_qualname] += 1

    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
    return counts


def reads_of_manifests(counts: Counter[tuple[str, str]]) -> int:
    return sum(n for (_, name), n in counts.items() if name == "read_manifest")


def figures() -> dict[str, Any]:
    """Return files, calls, reads of manifests and the most frequent functions of each verb.

    The download is the first thing that a process does; what opens is run once before.
    """
    with tempfile.TemporaryDirectory() as root:
        quiet: dict[str, Any] = {"root": root, "progress": Silent()}
        runs: dict[str, Callable[[], Any]] = {
            f"download {DATASET}": lambda: datasets_cli.download(DATASET, **quiet),
            "ExperienceReplay, first": lambda: datasets_cli.ExperienceReplay(DATASET, root=root),
            "ExperienceReplay": lambda: datasets_cli.ExperienceReplay(DATASET, root=root),
            "preprocess 300 rows": lambda: datasets_cli.preprocess(
                DATASET, lambda batch: batch, "same", num_frames=300, **quiet
            ),
        }
        return {name: _figures(traced(run)) for name, run in runs.items()} | _of_a_buffer(root)


def _of_a_buffer(root: str) -> dict[str, Any]:
    """Return the figures of a batch that is drawn and gathered by itself, and of a view."""
    drawn = datasets_cli.ExperienceReplay(
        DATASET, root=root, batch_size=8, generator=torch.Generator()
    )
    drawn.sample()
    drawn.filter("return > 0")
    return {
        "sample": _figures(traced(drawn.sample)),
        "filter": _figures(traced(lambda: drawn.filter("return > 1"))),
    }


def _figures(counts: Counter[tuple[str, str]]) -> dict[str, Any]:
    most = [f"{Path(file).name} {name} {n}" for (file, name), n in counts.most_common(12)]
    return {
        "files": len({file for file, _ in counts}),
        "calls": counts.total(),
        "manifests read": reads_of_manifests(counts),
        "most": most,
    }
