"""How many calls into this package one call of a user takes, and into how many files of it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import datasets_cli
from datasets_cli.__main__ import run
from datasets_cli.core.progress import silent

PACKAGE = Path(datasets_cli.__file__).parent
ROOTS = (f"{PACKAGE}/", f"{PACKAGE.parent / 'recipes'}/")
DATASET = "demo/door-human"


def traced(run: Callable[[], Any]) -> Counter[tuple[str, str]]:
    """Count the calls of each function, lambda and comprehension; those of modules are left out."""
    counts: Counter[tuple[str, str]] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        is_ours = event == "call" and code.co_filename.startswith(ROOTS)
        if is_ours and code.co_name != "<module>":
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
        quiet: dict[str, Any] = {"root": root, "progress": silent}
        runs: dict[str, Callable[[], Any]] = {
            f"download {DATASET}": lambda: datasets_cli.download(DATASET, **quiet),
            "ExperienceReplay, first": lambda: datasets_cli.ExperienceReplay(DATASET, root=root),
            "ExperienceReplay": lambda: datasets_cli.ExperienceReplay(DATASET, root=root),
            "preprocess 300 rows": lambda: datasets_cli.preprocess(
                DATASET, lambda batch: batch, "same", num_frames=300, **quiet
            ),
        }
        figures = {name: _figures(traced(run)) for name, run in runs.items()}
        return figures | _of_a_buffer(root) | _of_own_rows(root) | _of_a_command(root)


def _of_a_buffer(root: str) -> dict[str, Any]:
    """Return the figures of rows that are written, of one batch, and of a view."""
    import torch

    drawn = datasets_cli.ExperienceReplay(
        DATASET, root=root, batch_size=8, generator=torch.Generator()
    )
    drawn.sample()
    drawn.filter("return > 0")
    rows = drawn[:100]
    written = datasets_cli.TensorDictReplayBuffer(storage=datasets_cli.LazyTensorStorage(1000))
    written.extend(rows)
    return {
        "extend": _figures(traced(lambda: written.extend(rows))),
        "sample": _figures(traced(drawn.sample)),
        "filter": _figures(traced(lambda: drawn.filter("return > 1"))),
    }


def _of_own_rows(root: str) -> dict[str, Any]:
    """Return the figures of 100 rows that are written with priorities, and of a dump's return."""
    rows = datasets_cli.ExperienceReplay(DATASET, root=root)[:100]
    buffer = datasets_cli.TensorDictReplayBuffer(
        storage=datasets_cli.LazyTensorStorage(1000),
        sampler=datasets_cli.PrioritizedSampler(1000, 0.7, 0.5),
        batch_size=8,
    )
    buffer.extend(rows)
    extend = _figures(traced(lambda: buffer.extend(rows)))
    buffer.dumps(f"{root}/dump")
    uniform = datasets_cli.TensorDictReplayBuffer(
        storage=datasets_cli.LazyTensorStorage(1000), batch_size=8
    )
    uniform.extend(rows)
    uniform.sample()
    return {
        "sample of own rows": _figures(traced(uniform.sample)),
        "extend 100": extend,
        "dumps": _figures(traced(lambda: buffer.dumps(f"{root}/dump"))),
        "loads": _figures(traced(lambda: buffer.loads(f"{root}/dump"))),
    }


def _of_a_command(root: str) -> dict[str, Any]:
    """Return the figures of ``rlds path``, a process of its own, whose imports are in functions."""
    arguments = [sys.executable, __file__, "path", DATASET, "--root", root]
    done = subprocess.run(arguments, capture_output=True, check=True, text=True)
    figures: dict[str, Any] = json.loads(done.stderr.splitlines()[-1])
    return {"rlds path": figures}


def _command_line() -> None:
    try:
        run()
    except SystemExit as end:
        if end.code:
            raise


def _figures(counts: Counter[tuple[str, str]]) -> dict[str, Any]:
    named = Counter({place: n for place, n in counts.items() if not place[1].endswith(">")})
    most = [f"{Path(file).name} {name} {n}" for (file, name), n in named.most_common(12)]
    return {
        "files": len({file for file, _ in counts}),
        "calls": counts.total(),
        "calls of named functions": named.total(),
        "manifests read": reads_of_manifests(counts),
        "most": most,
    }


if __name__ == "__main__":
    print(json.dumps(_figures(traced(_command_line))), file=sys.stderr)
