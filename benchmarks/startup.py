"""The command line: how long commands start, and how long they read, compare and audit datasets.

    python -m benchmarks.startup [CASE]... [--quick]

Commands run as whole processes on a terminal, in turn with what they are compared with; modules are
byte code and files are in the page cache, as after a first run. Of a start there are two figures:
the seconds that pass, and the seconds of a core, which other work on the machine hardly changes.
"""

from __future__ import annotations

import os
import pty
import shutil
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.measure import EPISODE_STEPS, ID, LAYOUTS, Call, Figure, Row, Run

BIN = Path(sys.executable).parent
RLDS = str(BIN / "rlds")


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


COMMANDS: dict[str, tuple[list[str], str]] = {  # with what each is compared to
    "rlds --help": ([RLDS, "--help"], "import typer"),
    "rlds list": ([RLDS, "list"], "minari list local"),
    "rlds list 'd4rl/*'": ([RLDS, "list", "d4rl/*"], "minari list local"),
    "rlds verify": ([RLDS, "verify"], "import torch"),
    "rlds repair --dry-run": ([RLDS, "repair", "--dry-run"], "import torch"),
    "import datasets_cli": (python("import datasets_cli"), "import torch"),
    "import typer": (python("import typer"), "python -c pass"),
    "import torch": (python("import torch"), "python -c pass"),
    "minari list local": ([str(BIN / "minari"), "list", "local"], "python -c pass"),
    "python -c pass": (python("pass"), ""),
}


def start(run: Run) -> Iterator[Row | str]:
    """Commands and imports, with one dataset of 300 rows installed."""
    root = run.folder / "root"
    on_a_terminal([RLDS, "download", "demo/door-human"], environment_of(root))
    commands = {
        name: command for name, (command, _) in COMMANDS.items() if shutil.which(command[0])
    }
    if "minari list local" not in commands:
        yield "minari is not installed"
    times = in_turn_on_a_terminal(commands, run, root)
    for name in commands:
        peer = COMMANDS[name][1]
        if peer in times and name.startswith(("rlds", "import datasets_cli")):
            for place, kind in enumerate(("seconds", "of a core")):
                figure, theirs = times[name][place], times[peer][place]
                yield Row(f"start, {kind}", name, figure, peer, theirs, "s")


def environment_of(root: Path) -> dict[str, str]:
    """Return the variables of a process: byte code is written, and the cache root is this run's."""
    environment = {**os.environ, "COLUMNS": "100"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment | {"RLDS_HOME": str(root)}


def in_turn_on_a_terminal(
    commands: Mapping[str, list[str]], run: Run, root: Path
) -> dict[str, tuple[Figure, Figure]]:
    """Return the medians of commands in turn: seconds that pass, and seconds of a core."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    environment = environment_of(root)
    for number in range(run.pick(15, 1) + 1):
        for name, command in commands.items():
            seconds = on_a_terminal(command, environment)
            times[name] += [seconds] if number else []  # the first warms up
    return {
        name: (Figure(statistics.median(passed)), Figure(statistics.median(worked)))
        for name, values in times.items()
        for passed, worked in [zip(*values, strict=True)]
    }


def on_a_terminal(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Return the seconds that pass, and that a core works, while a process runs on a terminal."""
    start = time.perf_counter()
    process, terminal = pty.fork()
    if process == 0:
        os.execve(command[0], command, environment)
    try:
        while os.read(terminal, 1 << 16):
            pass
    except OSError:  # how Linux reports that the process has closed its terminal
        pass
    _, status, used = os.wait4(process, 0)
    passed = time.perf_counter() - start
    os.close(terminal)
    assert status == 0, f"{' '.join(command)} failed"
    return passed, used.ru_utime + used.ru_stime


BLOCK = 1_000_000
READING = "reading all rows"


def peek(run: Run) -> Iterator[Row]:
    """Rows near the end of a dataset of 50M rows, and a batch, beside the imports they need."""
    millions = run.pick(50, 1)
    root = run.folder / "peeked"
    measure.installed(
        "compact",
        root,
        measure.few_columns(np.arange(EPISODE_STEPS - 1, BLOCK, EPISODE_STEPS)),
        millions,
    )
    commands = {
        "rlds peek": [RLDS, "peek", ID, "--start", str(millions * BLOCK - 5)],
        "rlds sample": [RLDS, "sample", ID],
        "import numpy": python("import numpy"),
        "import torch, tensordict": python("import torch, tensordict"),
    }
    times = in_turn_on_a_terminal(commands, run, root)
    pairs = {"rlds peek": "import numpy", "rlds sample": "import torch, tensordict"}
    for name, peer in pairs.items():
        case = f"of {millions * BLOCK:,} rows"
        yield Row(case, name, times[name][0], peer, times[peer][0], "s")


def diff(run: Run) -> Iterator[Row]:
    """``compare_datasets`` of equal datasets and of others, beside reading both."""
    import datasets_cli
    from datasets_cli.config import Config
    from datasets_cli.core.progress import silent

    rows, config = measure.mujoco_like(BLOCK), Config(run.folder / "diff")
    millions = run.pick(10, 1)
    other = {k: np.roll(v, 1, axis=0) if v.dtype == np.float32 else v for k, v in rows.items()}
    cases = {"ted, equal": rows, "ted, other numbers": other, "compact, equal": rows}
    for case, second in [*cases.items()][: run.pick(3, 2)]:
        layout, kind = case.split(", ")
        ids = f"bench/{layout}", f"bench/{layout}-{kind.split()[0]}"
        folders = [config.root / "datasets" / id for id in ids]
        for folder, id, columns in zip(folders, ids, (rows, second), strict=True):
            if not folder.exists():
                measure.install(layout, folder, columns, millions, id=id)
        call = partial(datasets_cli.compare_datasets, *ids, progress=silent, config=config)
        yield from beside_reading(run, f"diff {millions}M rows", case, call, folders)


def read_all(folders: list[Path]) -> None:
    """Read all rows of datasets, block by block."""
    from datasets_cli.schema.columns import rows_per_block
    from datasets_cli.store.arrays import open_arrays

    for folder in folders:
        arrays = open_arrays(folder)
        rows = arrays.arrays_of(frozenset(column.key for column in arrays.manifest.columns))
        step = rows_per_block(arrays.row_bytes)
        for first in range(0, len(arrays), step):
            rows.run(first, min(first + step, len(arrays)))


def beside_reading(
    run: Run, case: str, ours: str, call: Call, folders: list[Path]
) -> Iterator[Row]:
    """Yield a call's memory beside the files, and its seconds beside reading all rows."""
    yield measure.memory_row(case, ours, measure.memory_growth(call), folders)
    calls = {ours: call, READING: partial(read_all, folders)}
    yield from measure.rows_of(case, measure.medians_of(calls, run.pick(3, 1)), (READING,), "s")


def stats(run: Run) -> Iterator[Row]:
    """``dataset_stats`` of rows whose statistics were not computed before."""
    import datasets_cli
    from datasets_cli.core.progress import silent

    rows, millions = measure.mujoco_like(BLOCK), run.pick(10, 1)
    for layout in LAYOUTS[: run.pick(2, 1)]:
        root = run.folder / f"stats-{layout}"
        folder = measure.installed(layout, root, rows, millions)
        options: Any = {"root": root, "recompute": True, "progress": silent}
        call = partial(datasets_cli.dataset_stats, ID, **options)
        yield from beside_reading(run, f"stats of {millions}M rows", layout, call, [folder])


def audit(run: Run) -> Iterator[Row]:
    """All rules of the audit over installed rows."""
    from datasets_cli.audit.rules.registry import RULES
    from datasets_cli.audit.run import audit
    from datasets_cli.core.progress import silent
    from datasets_cli.store.arrays import open_arrays

    rows, millions = measure.mujoco_like(BLOCK), run.pick(10, 1)
    for layout in LAYOUTS[: run.pick(2, 1)]:
        folder = measure.installed(layout, run.folder / f"audited-{layout}", rows, millions)
        call = partial(audit, open_arrays(folder), RULES, silent)
        yield from beside_reading(run, f"audit of {millions}M rows", layout, call, [folder])


CASES = {"start": start, "peek": peek, "diff": diff, "stats": stats, "audit": audit}

if __name__ == "__main__":
    measure.run(CASES)
