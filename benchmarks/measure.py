"""What the benchmarks share: timing in turn, rows of one table, data. As a command, runs them all.

    python -m benchmarks.measure [NAME]... [--quick]     run benchmarks, JSON into build/bench
    python -m benchmarks.measure --page                  write that JSON's tables into the pages

With ``--quick`` the run ends within three minutes: what does not fit is left out and named.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib.util
import itertools
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

PROJECT = Path(__file__).resolve().parent.parent
JSON_FOLDER = PROJECT / "build" / "bench"
NAMES = (
    *("batches", "startup", "convert", "layouts", "collectors"),
    *("device", "page", "exchange", "preprocess"),
)
QUICK_SECONDS, LONGEST = 170, {"batches": 70}  # of all benchmarks, of one
LIBRARIES = ("torch", "numpy", "torchrl", "cpprb", "flashbax", "jax", "minari", "gymnasium")
LEAST_FOR_P99 = 100
UNITS = {"µs": 1e6, "ms": 1e3, "s": 1.0}
LAYOUTS = ("compact", "ted")
ID = "bench/rows"
EPISODE_STEPS = 1000

os.environ.setdefault("RL_LOGGING_LEVEL", "WARNING")  # TorchRL reports on the standard output

Call = Callable[[], Any]
Rows = dict[tuple[str, ...], np.ndarray]


@dataclass(frozen=True)
class Figure:
    """A measured figure.

    A buffer that reads ahead builds several batches in one call and returns them one by one. The
    mean contains a batch's share of that call, the median does not.

    Args:
        mean: the mean of all calls, or the figure itself.
        p99: the 99th percentile of at least 100 calls.
    """

    mean: float
    p99: float | None = None

    @classmethod
    def of(cls, seconds: Sequence[float], unit: str = "µs", batches: int = 1) -> Figure:
        """Return the mean and the 99th percentile of timed calls of so many batches each."""
        each = np.array(seconds) * UNITS[unit] / batches
        p99 = float(np.quantile(each, 0.99)) if len(each) >= LEAST_FOR_P99 else None
        return cls(float(each.mean()), p99)

    def __str__(self) -> str:
        return short(self.mean) + (f" ({short(self.p99)})" if self.p99 is not None else "")


@dataclass(frozen=True)
class Row:
    """A line of the table: a figure of this project beside one of a peer, from the same run.

    Args:
        case: what is measured.
        ours: which way of this project's, such as a layout.
        figure: its figure.
        peer: what it is compared with: a library, a physical limit or a bound.
        theirs: the peer's figure.
        unit: of both; a rate ends in ``/s``, and is better if it is higher.
        load: what else the machine does.
    """

    case: str
    ours: str
    figure: Figure
    peer: str
    theirs: Figure
    unit: str = "µs"
    load: str = "idle"

    @property
    def ratio(self) -> float:
        """How many times better ours is than the peer's; below 1 it is worse."""
        ours, theirs = max(self.figure.mean, 1e-9), max(self.theirs.mean, 1e-9)
        return ours / theirs if self.unit.endswith("/s") else theirs / ours


@dataclass(frozen=True)
class Run:
    """How a benchmark runs.

    Args:
        is_quick: whether it has seconds instead of minutes.
        folder: an empty folder, which is deleted afterwards.
    """

    is_quick: bool
    folder: Path

    def pick(self, full: int, quick: int) -> int:
        """Return the size of a full run or that of a quick one."""
        return quick if self.is_quick else full


Case = Callable[[Run], Iterable[Row | str]]
"""Yields the rows of a case, and sentences on what is left out."""


def short(value: float) -> str:
    """Return a number with the digits that say something: ``14,728``, ``49``, ``1.64``."""
    digits = 0 if abs(value) >= 20 else 1 if abs(value) >= 2 else 3 if abs(value) < 0.1 else 2
    return f"{value:,.{digits}f}"


# Timing


def seconds_in_turn(
    calls: Mapping[str, Call],
    repeat: int,
    *,
    rounds: int = 10,
    warm: int | None = None,
    limit: float = 60,
    between: Callable[[Any], Any] | None = None,
) -> dict[str, list[float]]:
    """Return the seconds of each call. All calls take turns, so that noise falls on all alike.

    Args:
        calls: what to time, by name.
        repeat: timed calls of each.
        rounds: turns of each.
        warm: untimed calls at the beginning of each turn; by default a fifth of the timed ones.
        limit: no round begins after so many seconds, except for the first two.
        between: called with each result after it was timed, such as a step of training.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    each, end = max(1, repeat // rounds), time.perf_counter() + limit
    for number in range(min(rounds, repeat)):
        if number > 1 and time.perf_counter() > end:
            break
        for name, call in calls.items():
            for _ in range(max(3, each // 5) if warm is None else warm):
                call()
            for _ in range(each):
                start = time.perf_counter()
                result = call()
                seconds[name].append(time.perf_counter() - start)
                if between is not None:
                    between(result)
    return seconds


def in_turn(calls: Mapping[str, Call], repeat: int, unit: str = "µs", **how: Any) -> dict[str, Any]:
    """Return the figure of each call; see ``seconds_in_turn``."""
    timed = seconds_in_turn(calls, repeat, **how)
    return {name: Figure.of(seconds, unit) for name, seconds in timed.items()}


def medians_of(calls: Mapping[str, Call], repeat: int, unit: str = "s") -> dict[str, Figure]:
    """Return the median of each call that takes long; the first round warms up."""
    seconds_in_turn(calls, 1, rounds=1, warm=0)
    timed = seconds_in_turn(calls, repeat, rounds=repeat, warm=0)
    return {name: Figure(statistics.median(each) * UNITS[unit]) for name, each in timed.items()}


def rows_of(
    case: str,
    times: Mapping[str, Figure],
    peers: Iterable[str],
    unit: str = "µs",
    load: str = "idle",
) -> Iterator[Row]:
    """Yield a row for each of ours and each peer: the names in ``times`` that are not peers."""
    peers = [name for name in peers if name in times]
    for ours, peer in itertools.product([name for name in times if name not in peers], peers):
        yield Row(case, ours, times[ours], peer, times[peer], unit, load)


# Memory, files and processes


def memory_mb(field: str, process: int | str = "self") -> float:
    """Return a field of a process's memory in MB: ``VmRSS``, its peak ``VmHWM``, ``RssAnon``."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(field)) * 1.024e-3


def memory_growth(call: Call) -> Figure:
    """Return by how many MB this process's memory without mapped files grows during a call."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # memory that was freed before would be used again unseen
    peak, done = [memory_mb("RssAnon")], threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            peak.append(memory_mb("RssAnon"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        call()
    finally:
        done.set()
        watcher.join()
    return Figure(max(peak) - peak[0])


def memory_row(case: str, ours: str, figure: Figure, folders: Iterable[Path]) -> Row:
    """Return the row of a memory beside the size of datasets' files."""
    files = [file for folder in folders for file in folder.rglob("*.memmap")]
    size = sum(file.stat().st_size for file in files) / 1e6
    return Row(f"{case}, memory", ours, figure, "the files", Figure(size), "MB")


def timed(call: Call) -> dict[str, float]:
    """Return the seconds of a call, and by how many MB it raises the peak of resident memory."""
    before, anonymous = memory_mb("VmHWM"), memory_mb("RssAnon")
    start, core = time.perf_counter(), time.process_time()
    call()
    return {
        "seconds": time.perf_counter() - start,
        "core seconds": time.process_time() - core,
        "resident MB": memory_mb("VmHWM") - before,
        "anonymous MB before": anonymous,
    }


def fresh(module: str, step: str, *arguments: object) -> dict[str, Any]:
    """Run a step of a benchmark in a new process, once the disk is at rest.

    Returns what the step returned, and ``anonymous MB``: by how much its memory without mapped
    files grew.
    """
    os.sync()
    command = [sys.executable, "-m", f"benchmarks.{module}", "--step", step, *map(str, arguments)]
    peak, pipe = 0.0, subprocess.PIPE
    with tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(
            command, cwd=PROJECT, stdout=pipe, stderr=errors, text=True
        ) as process:
            while process.poll() is None:
                peak = max(peak, memory_mb("RssAnon", process.pid))
                time.sleep(0.005)
            assert process.stdout is not None
            written = process.stdout.read()
        if process.returncode:
            errors.seek(0)
            raise RuntimeError(f"{module} {step}: {errors.read()[-1000:]}")
    found: dict[str, Any] = json.loads(written.splitlines()[-1])
    if "anonymous MB before" in found:
        found["anonymous MB"] = peak - found["anonymous MB before"]
    return found


def drop_from_page_cache(folder: Path) -> None:
    """Drop the files of a folder from the page cache; no process may have them mapped."""
    gc.collect()  # buffers that refer to themselves keep their mappings until then
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cold_batches(make: Callable[[], Call], folder: Path, batches: int = 20) -> Figure:
    """Return batches a second from files outside the page cache, which are mapped each time."""
    rates = []
    for _ in range(5):
        drop_from_page_cache(folder)
        draw = make()
        start = time.perf_counter()
        for _ in range(batches):
            draw()
        rates.append(batches / (time.perf_counter() - start))
        del draw
    return Figure(statistics.median(rates))


# Data and buffers


def mujoco_like(num_rows: int, *, infos: bool = False) -> Rows:
    """Return random TED columns of a 17-dimensional MuJoCo task: 11 leaves with ``episode``.

    Args:
        num_rows: transitions.
        infos: also what D4RL's v2 files record of each step and its successor: 17 leaves.
    """
    rng = np.random.default_rng(0)
    num_steps = num_rows + num_rows // EPISODE_STEPS
    row = np.arange(num_rows) + np.arange(num_rows) // EPISODE_STEPS
    rows = flags(np.arange(num_rows) % EPISODE_STEPS == EPISODE_STEPS - 1) | {
        ("action",): rng.normal(size=(num_rows, 6)).astype(np.float32),
        ("next", "reward"): rng.normal(size=(num_rows, 1)).astype(np.float32),
    }
    widths = {("observation",): (17, np.float32)}
    if infos:
        widths |= {("info", "qpos"): (9, np.float64), ("info", "qvel"): (9, np.float64)}
        widths |= {("info", "action_log_probs"): (1, np.float32)}
    for key, (width, dtype) in widths.items():
        steps = rng.normal(size=(num_steps, width)).astype(dtype)
        rows[key], rows["next", *key] = steps[row], steps[row + 1]
    return rows


def few_columns(ends: np.ndarray) -> Rows:
    """Return rows of few columns, so that many fit onto a disk, of trajectories that end there."""
    rng, is_end = np.random.default_rng(0), np.zeros(int(ends[-1]) + 1, np.bool_)
    is_end[ends] = True
    row = np.arange(len(is_end)) + np.cumsum(is_end) - is_end
    steps = rng.normal(size=(len(is_end) + len(ends), 3)).astype(np.float32).cumsum(0)
    return flags(is_end) | {
        ("observation",): steps[row],
        ("next", "observation"): steps[row + 1],
        ("action",): rng.integers(0, 4, len(is_end)).astype(np.int32),
        ("next", "reward"): rng.normal(size=(len(is_end), 1)).astype(np.float32),
    }


def flags(is_end: np.ndarray) -> Rows:
    """Return TED's flags of trajectories that are truncated at some rows, bool ``[N]``."""
    done = is_end[:, None]
    none = np.zeros_like(done)
    return {
        **{(name,): none for name in ("done", "terminated", "truncated")},
        ("next", "done"): done,
        ("next", "terminated"): none,
        ("next", "truncated"): done,
    }


def install(layout: str, folder: Path, rows: Rows, times: int = 1, *, id: str = ID) -> Path:
    """Write rows, or so many repetitions of them, as a dataset, and return its folder."""
    from datasets_cli.store.layouts.compact_writer import CompactWriter
    from datasets_cli.store.layouts.ted_writer import TedWriter
    from datasets_cli.store.manifest import Manifest, write_manifest

    writer = {"compact": CompactWriter, "ted": TedWriter}[layout](folder, id)
    num_rows = len(rows["next", "done"])
    for start in [*range(0, num_rows, 50_000)] * times:
        writer.write({key: values[start : start + 50_000] for key, values in rows.items()})
    write_manifest(folder, Manifest(id=id, **vars(writer.finish({}))))
    return folder


def installed(layout: str, root: Path, rows: Rows, times: int = 1) -> Path:
    """Write rows as the dataset ``bench/rows`` of a root, and return its folder."""
    return install(layout, root / "datasets" / ID, rows, times)


def torchrls_priorities(num_rows: int) -> Any:
    """Return TorchRL's prioritised sampler, or None if its wheel's compiled trees do not load."""
    from torchrl.data.replay_buffers.samplers import PrioritizedSampler

    try:
        return PrioritizedSampler(num_rows, alpha=0.7, beta=0.5)
    except RuntimeError:
        return None


def torchrls(storage: Any, batch: int, replacement: bool = True, slices: int = 0) -> Any:
    """Return TorchRL's buffer over one of its storages."""
    from torchrl.data import TensorDictReplayBuffer
    from torchrl.data.replay_buffers import samplers

    sampler: Any = samplers.RandomSampler()
    if not replacement:
        sampler = samplers.SamplerWithoutReplacement()
    if slices:
        sampler = samplers.SliceSampler(num_slices=slices, traj_key="episode", cache_values=True)
    return TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=batch)


def torchrls_mapped(folder: Path) -> Any:
    """Return TorchRL's storage over the mapped files of a dataset in the ``ted`` layout."""
    from tensordict import TensorDict
    from torchrl.data import TensorStorage

    return TensorStorage(TensorDict.load_memmap(folder))


# Running


def run(cases: Mapping[str, Case], steps: Mapping[str, Callable[..., Any]] | None = None) -> None:
    """Run a benchmark from the command line: all of its cases, or one step in this process."""
    parser = argparse.ArgumentParser(description="CASE is one of: " + ", ".join(cases))
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--no-heading", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--step", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    warnings.filterwarnings("ignore")  # TorchRL's own, and that the rows are unverified
    if given.step and steps:
        print(json.dumps(steps[given.step[0]](*given.step[1:])))
        return
    if unknown := {*given.cases} - {*cases}:
        parser.error(f"unknown: {', '.join(unknown)}; expected some of {', '.join(cases)}")
    if not given.no_heading:
        print(columns(HEADING))
    names = given.cases or [*cases]
    with tempfile.TemporaryDirectory() as folder:
        table = _Table(given.json, given.quick)
        for name in names:
            table.add(name, cases[name], Run(given.quick, Path(folder)))
    sys.exit(table.has_failed)


class _Table:
    """The rows of a benchmark, which are printed and written as they are measured."""

    def __init__(self, path: Path | None, is_quick: bool) -> None:
        self.has_failed = False
        self._path = path
        self._last: Row | None = None
        self._document: dict[str, Any] = {
            "date": time.strftime("%d %B %Y").lstrip("0"),
            "cores": os.cpu_count(),
            "quick": is_quick,
            "versions": {each: metadata.version(each) for each in LIBRARIES if is_installed(each)},
            "left out": [],
            "rows": [],
        }
        self._write()

    def add(self, name: str, case: Case, how: Run) -> None:
        try:
            for found in case(how):
                self._add(found)
        except Exception as error:  # the other cases have figures of their own
            traceback.print_exc()
            self.has_failed = True
            self._add(f"{name} failed: {type(error).__name__}")

    def _add(self, found: Row | str) -> None:
        if isinstance(found, str):
            if found not in self._document["left out"]:
                self._document["left out"].append(found)
                print(f"left out: {found}", flush=True)
        else:
            self._document["rows"].append(asdict(found) | {"ratio": round(found.ratio, 3)})
            print(line(found, self._last), flush=True)
            self._last = found
        self._write()  # here: a quick run may be killed at its end

    def _write(self) -> None:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps(self._document, indent=1) + "\n", encoding="utf-8")


WIDTHS = (34, 19, 26, 18, 21, 18, 5, 7)
HEADING = ("case", "load", "ours", "mean (p99)", "beside", "mean (p99)", "unit", "times better")


def columns(cells: Sequence[str]) -> str:
    return " ".join(f"{cell:{width}}" for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


def line(row: Row, last: Row | None) -> str:
    """Return a row's line; what equals the line above is left blank."""
    cells = [row.case, row.load, row.ours, str(row.figure)]
    if last is not None:
        above = (last.case, last.load, last.ours)
        same = [cells[: n + 1] == [*above[: n + 1]] for n in range(3)]
        cells = ["" if same[min(n, 2)] else cell for n, cell in enumerate(cells)]
    return columns((*cells, row.peer, str(row.theirs), row.unit, short(row.ratio)))


def is_installed(library: str) -> bool:
    """Return whether a library can be imported."""
    return importlib.util.find_spec(library) is not None


def run_all(names: Sequence[str], is_quick: bool) -> int:
    """Run benchmarks one after the other, each in its own process; return how many failed."""
    failed, end = [], time.monotonic() + QUICK_SECONDS
    print(columns(HEADING), flush=True)
    for name in names:
        path = JSON_FOLDER / f"{name}.json"
        command = [sys.executable, "-m", f"benchmarks.{name}", "--no-heading", "--json", str(path)]
        left = None
        if is_quick:
            left = min(end - time.monotonic(), LONGEST.get(name, 22))
        if left is not None and left < 1:
            print(f"left out: {name}, whose turn did not come within {QUICK_SECONDS} s")
            continue
        print(f"-- {name}", flush=True)
        process = subprocess.Popen(
            [*command, *(["--quick"] if is_quick else [])], cwd=PROJECT, start_new_session=True
        )
        try:
            failed += [name] if process.wait(left) else []
        except subprocess.TimeoutExpired:
            print(f"left out: the rest of {name}, after {left:.0f} s", flush=True)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    print(f"JSON: {JSON_FOLDER.relative_to(PROJECT)}")
    if failed:
        print(f"failed: {', '.join(failed)}")
    return len(failed)


# Pages


def markdown(document: Mapping[str, Any]) -> str:
    """Return a benchmark's table for the page: a line for each of ours, its peers in one cell."""
    size = "quick" if document["quick"] else "full"
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    lines = [f"{document['date']}, {document['cores']} cores, {size} run; {versions}.", ""]
    lines += ["| case | load | ours | mean (p99) | beside: mean (p99), times better |"]
    lines += ["|---|---|---|---|---|"]
    rows = [row_of(each) for each in document["rows"]]
    for (case, load, ours), peers in itertools.groupby(rows, lambda r: (r.case, r.load, r.ours)):
        group = [*peers]
        beside = "; ".join(f"{r.peer} {r.theirs}, **{short(r.ratio)}**" for r in group)
        lines += [f"| {case} | {load} | {ours} | {group[0].figure} {group[0].unit} | {beside} |"]
    lines += [f"\nLeft out: {'; '.join(document['left out'])}."] if document["left out"] else []
    return "\n".join(lines)


def row_of(record: Mapping[str, Any]) -> Row:
    values = {key: value for key, value in record.items() if key != "ratio"}
    values |= {key: Figure(**record[key]) for key in ("figure", "theirs")}
    return Row(**values)


CLAIM = r"[\d,.]+ to [\d,.]+\s+times"


def speed_claims(page: str) -> list[str]:
    """Return what the README claims, from the page's table: beside a learner, and idle.

    They are the lowest and the highest ratio of batches of 256 from the ``compact`` layout to
    TorchRL's, drawn uniformly, without replacement and as slices.
    """
    cases, claims = ("uniform 256", "without replacement 256", "slices 8x32"), []
    for load in ("beside a learner", "idle"):
        row = rf"^\| (.+) \| {load} \| compact \|.*TorchRL [^*;|]*\*\*(.+?)\*\*"
        ratios = dict(re.findall(row, page, re.M))
        if missing := {*cases} - {*ratios}:
            raise SystemExit(f"The table has no row of: {', '.join(sorted(missing))}, {load}.")
        found = sorted((ratios[case] for case in cases), key=lambda r: float(r.replace(",", "")))
        claims.append(f"{found[0]} to {found[-1]} times")
    return claims


def write_pages() -> None:
    """Write the tables of ``build/bench`` into benchmarks/README.md, and README's two claims."""
    page, readme = PROJECT / "benchmarks" / "README.md", PROJECT / "README.md"
    text = page.read_text(encoding="utf-8")
    for name in NAMES:
        path = JSON_FOLDER / f"{name}.json"
        document = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"rows": []}
        if document["rows"]:
            marked = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
            table = markdown(document)
            text = re.sub(marked, lambda m: f"{m[1]}{table}\n{m[2]}", text, flags=re.S)  # noqa: B023
    page.write_text(text, encoding="utf-8")
    claims = iter(speed_claims(text))
    claimed = re.sub(CLAIM, lambda _: next(claims), readme.read_text(encoding="utf-8"))
    readme.write_text(claimed, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--quick", action="store_true", help="end within three minutes")
    parser.add_argument("--page", action="store_true", help="write build/bench into the pages")
    given = parser.parse_args()
    if unknown := {*given.names} - {*NAMES}:
        parser.error(f"unknown: {', '.join(unknown)}; expected some of {', '.join(NAMES)}")
    if given.page:
        write_pages()
        return
    sys.exit(run_all(given.names or NAMES, given.quick))


if __name__ == "__main__":
    main()
