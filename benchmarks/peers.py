"""Sampling beside every peer: TorchRL, cpprb, flashbax, columns of numpy, and ours in each format.

    pip install 'rlds-cli[bench]'
    python benchmarks/peers.py [--rows 1000000] [--calls 300] [--runs 5]

Each has the same rows in memory (or in the page cache, ours and TorchRL's) and draws batches of
256, of all 11 columns and the rows' numbers, in turn with the others; scans have turns of their
own. Ours are the README's calls, ``seed=`` included; "one by one" shares its generator with others
and reads nothing ahead. Prints a table on stderr and JSON on stdout: means and medians in
microseconds a batch, and how many times faster each is than TorchRL and than cpprb, with the lowest
and highest of the runs. Batches are compared with the source before anything is timed. What cannot
be measured here is named.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import warnings
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from contenders import (
    BATCH,
    ID,
    INDEX,
    SLICE,
    Contender,
    Contenders,
    of_cpprb,
    of_numpy,
    of_torchrl,
    ours,
)
from tables import EPISODE_STEPS, Rows, install, mujoco_like
from timing import KINDS, Time, compare

from datasets_cli import ExperienceReplay
from datasets_cli.schema.columns import Key
from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.ted_writer import TedWriter

CASES = ("uniform", "without replacement", "slices", "prioritised")
BASELINES = ("torchrl", "cpprb", "compact, torch, one by one", "flashbax, in a scan")
CHECKED = 70  # batches of each contender: more than one block that is read ahead
NUM_FEW = 5  # columns that a batch has at least
MARKED: tuple[Key, ...] = (("next", "done"), ("next", "truncated"))  # at the end of slices, of ours
Run = dict[str, Time]


def contenders(case: str, root: Path, rows: Rows) -> Contenders:
    """Return who can do a case; say who cannot."""
    found = of_torchrl(root, case)
    if not found:
        say(f"{case}: TorchRL's compiled trees do not load with this torch")
    for library, make in {"cpprb": of_cpprb, "flashbax": of_flashbax, "numpy": of_numpy}.items():
        if find_spec(library) is None:
            say(f"{case}: {library} is not installed: pip install 'rlds-cli[bench]'")
            continue
        made = make(rows, case)
        if not made:
            say(f"{case}: {library} has no such batches")
        found |= made
    if find_spec("flashbax") is not None:
        found |= of_jax_sampler(root, case)
    return found | ours(root, case)


def of_jax_sampler(root: Path, case: str) -> Contenders:
    """Return our draws on JAX's device."""
    import flashbaxes

    replay = ExperienceReplay(ID, root=root / "compact", download=False)
    return flashbaxes.of_jax_sampler(replay, "compact", case)


def of_flashbax(rows: Rows, case: str) -> Contenders:
    """Return flashbax's buffers; jax is imported where it is there."""
    import flashbaxes

    return flashbaxes.of_flashbax(rows, case)


def say(line: str) -> None:
    """Print beside the table."""
    print(line, file=sys.stderr)


def check(name: str, contender: Contender, rows: Rows, case: str) -> None:
    """Compare batches with the source: their rows, and that these are drawn as they should be."""
    drawn = []
    for _ in range(max(2, CHECKED // contender.num_batches)):
        columns = contender.columns(contender.draw())
        index = columns.pop(INDEX).reshape(BATCH, -1)[:, 0]
        drawn.append(index)
        for key in MARKED if case == "slices" else ():
            columns.pop(key)
        found = [key for key in rows if key in columns]
        assert len(found) >= NUM_FEW, (name, sorted(columns))
        for key in found:
            assert np.array_equal(columns[key].reshape(BATCH, -1), rows[key][index]), (name, key)
        if case == "slices":
            assert (np.diff(index.reshape(-1, SLICE)) == 1).all(), name
    if case == "without replacement":
        numbers = np.concatenate(drawn)
        assert len(np.unique(numbers)) == len(numbers), name


def run(entrants: Contenders, calls: int) -> Run:
    """Return the microseconds of a batch of each."""
    draws = {name: entrant.draw for name, entrant in entrants.items() if entrant.num_batches == 1}
    times = compare(draws, calls)
    scans = {name: entrant.draw for name, entrant in entrants.items() if name not in draws}
    for name, time in compare(scans, max(20, calls // 10)).items():
        times[name] = time.divided(entrants[name].num_batches, 3)
    return times


def ratios(runs: list[Run], baseline: str, name: str, kind: str) -> list[float]:
    """Return how many times faster one is than another: in the middle, at least, at most."""
    found = [getattr(one[baseline], kind) / getattr(one[name], kind) for one in runs]
    return [round(value, 2) for value in (statistics.median(found), min(found), max(found))]


def summary(runs: list[Run]) -> dict[str, Any]:
    """Return the medians over the runs, and the ratios."""
    found: dict[str, Any] = {}
    for name in runs[0]:
        record: dict[str, Any] = {
            kind: round(statistics.median(getattr(one[name], kind) for one in runs), 2)
            for kind in KINDS
        }
        for baseline in BASELINES:
            if baseline in runs[0]:
                record[f"times faster than {baseline}"] = {
                    kind: ratios(runs, baseline, name, kind) for kind in KINDS
                }
        found[name] = record
    return found


def show(case: str, found: dict[str, Any]) -> None:
    """Print the table of a case."""
    heading = [f"{f'{case}, {BATCH}, microseconds':30}", *(f"{kind:>9}" for kind in KINDS)]
    say("")
    say("".join(heading) + "   times faster, means; medians")
    for name, record in found.items():
        cells = [f"{name:30}", *(f"{record[kind]:9.1f}" for kind in KINDS)]
        for baseline in BASELINES:
            if faster := record.get(f"times faster than {baseline}"):
                low_to_high = ("{:.2f} ({:.2f}..{:.2f})".format(*faster[kind]) for kind in KINDS)
                cells.append(f"   than {baseline}: " + "; ".join(low_to_high))
        say("".join(cells))


def main() -> None:
    """Measure every case and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")  # TorchRL's own, and that the rows are unverified
    libraries = ("numpy", "torch", "torchrl", "cpprb", "flashbax", "jax")
    document: dict[str, Any] = {
        "cores": os.cpu_count(),
        "threads of torch": torch.get_num_threads(),
        **vars(arguments),
        "versions": {name: version(name) for name in libraries if find_spec(name)},
        "cases": {},
    }
    rows = mujoco_like(arguments.rows)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for layout, writer in (("compact", CompactWriter), ("ted", TedWriter)):
            install(writer, root / layout / "datasets" / ID, rows)
        rows["episode",] = np.arange(arguments.rows)[:, None] // EPISODE_STEPS
        for case in CASES:
            entrants = contenders(case, root, rows)
            for name, entrant in entrants.items():
                check(name, entrant, rows, case)
            runs = [run(entrants, arguments.calls) for _ in range(arguments.runs)]
            document["cases"][case] = summary(runs)
            show(case, document["cases"][case])
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
