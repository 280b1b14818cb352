"""What the audit costs: at conversion, and of installed rows beside numpy's plain reductions.

    python benchmarks/audit.py [--millions 10] [--repeat 5]

Converts a file of 1M rows of 17 + 6 floats in D4RL's layout with all rules and with none, each time
in a fresh process, in turn. Then audits rows that are installed, and works out of the same blocks
by plain numpy what no rule can do without: whether all numbers are finite, whether the first one of
an observation is zero, whether actions differ, the ends, and a sha256 of each trajectory.

Prints JSON: medians of seconds, and by how much memory grew: that of no file, and all that is
resident, with the pages of the files that are mapped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import convert

Result = dict[str, Any]
NAME = "halfcheetah-medium-v0"
ROWS = 1_000_000
BOUNDS = {"seconds more": 0.3, "MiB more": 20, "times the reductions": 1.3}


def conversion(folder: Path, with_rules: bool) -> Result:
    """Convert the file in this process; return seconds and the peaks of memory."""
    from trajectories import memory_of

    from datasets_cli.install import installation

    if not with_rules:
        installation.tell_wrong = lambda *_: None
    result: Result = {}
    grown = memory_of(lambda: result.update(convert.convert_ours(folder, NAME)))
    return result | {"MiB of no file": grown}


def conversions(repeat: int) -> Result:
    """Return what the rules cost at conversion, by medians."""
    kinds: dict[str, list[Result]] = {"with": [], "without": []}
    with tempfile.TemporaryDirectory() as temporary:
        convert.run("make", Path(temporary), NAME, str(ROWS))
        for _ in range(repeat):
            for kind, results in kinds.items():
                command = [sys.executable, __file__, "--convert", temporary, kind]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                results.append(json.loads(done.stdout.splitlines()[-1]))
                shutil.rmtree(Path(temporary) / "ours")
    medians = {
        name: {
            kind: round(statistics.median(each[name] for each in results), 3)
            for kind, results in kinds.items()
        }
        for name in ("seconds", "MiB of no file", "peak MB above imports")
    }
    more = {name: round(each["with"] - each["without"], 3) for name, each in medians.items()}
    return {**medians, "more": more}


def plain(dataset: Any) -> None:
    """Reduce the columns by numpy, block by block, and digest each trajectory."""
    import numpy as np

    from datasets_cli.audit.rules.rows import audited_rows
    from datasets_cli.schema.columns import REWARD, TERMINATED

    digest, digests = hashlib.sha256(), []
    keys = ("observation",), ("action",), REWARD
    for rows in audited_rows(dataset, frozenset((*keys, TERMINATED))):
        parts = [rows.columns[key] for key in keys]
        for part in parts:
            np.isfinite(part).all()
        (parts[0][:, 0] == 0).any()
        (parts[1] == parts[1][:1]).all()
        rows.columns[TERMINATED].any()
        packed = np.concatenate([np.ascontiguousarray(p).view(np.uint8) for p in parts], axis=1)
        begin = 0
        starts = rows.starts
        low, high = np.searchsorted(starts[1:], (rows.first + 1, rows.first + len(rows) + 1))
        for end in (starts[1:][low:high] - rows.first).tolist():
            digest.update(packed[begin:end].data)
            digests.append(digest.digest())
            digest, begin = hashlib.sha256(), end
        digest.update(packed[begin:].data)


def installed(millions: int, repeat: int) -> Result:
    """Return how long rows are audited that are installed, beside plain reductions."""
    from tables import install, mujoco_like
    from trajectories import memory_of

    from datasets_cli.audit.rules.registry import RULES
    from datasets_cli.audit.run import audit
    from datasets_cli.core.progress import silent
    from datasets_cli.store.arrays import open_arrays
    from datasets_cli.store.layouts.compact_writer import CompactWriter
    from datasets_cli.store.layouts.ted_writer import TedWriter

    results: Result = {}
    for layout, writer in (("ted", TedWriter), ("compact", CompactWriter)):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "datasets" / "bench" / "rows"
            dataset = open_arrays(install(writer, folder, mujoco_like(ROWS), millions))
            calls: dict[str, Callable[[], Any]] = {
                "audit": lambda: audit(dataset, RULES, silent),  # noqa: B023
                "reductions": lambda: plain(dataset),  # noqa: B023
            }
            grown = {name: memory_of(call) for name, call in calls.items()}  # they warm up, too
            seconds: dict[str, list[float]] = {name: [] for name in calls}
            for _ in range(repeat):
                for name, call in calls.items():
                    began = time.perf_counter()
                    call()
                    seconds[name].append(time.perf_counter() - began)
            medians = {name: statistics.median(each) for name, each in seconds.items()}
            ratio = round(medians["audit"] / medians["reductions"], 2)
            results[layout] = {"seconds": medians, "MiB": grown, "times the reductions": ratio}
    return results


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--millions", type=int, default=10)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--convert", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.convert:
        print(json.dumps(conversion(Path(options.convert[0]), options.convert[1] == "with")))
        return
    result = {
        "conversion of 1M rows": conversions(options.repeat),
        f"{options.millions}M installed rows": installed(options.millions, options.repeat),
        "at most": BOUNDS,
    }
    print(json.dumps(result, indent=1, default=str))


if __name__ == "__main__":
    main()
