"""Kill and continue, again and again: ``python -m tests.soak --cycles 500``, or ``make soak``.

One cycle is one start of a download, a conversion or a run of ``preprocess`` that is killed at a
random moment by a random signal, or meets a random fault of its server. After the cycles of one
piece of work it is run to its end; then every file must have the sha256 that undisturbed work gives
it, and nothing else may be left under the cache root. What is printed counts cycles, kills, faults,
bytes that were sent again, and differences; the exit code is 1 where there is any difference.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from tensordict import TensorDict

import datasets_cli
from datasets_cli.config import Config, load_config
from datasets_cli.errors import RldsError
from datasets_cli.project import Pipeline
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.manifest import read_manifest
from tests.support.d4rl_files import save, steps
from tests.support.origin import Fault, Origin

SMALL, LARGE = "soak/maze2d-open-v0", "soak/maze2d-open-dense-v0"
ROWS = {SMALL: 1_000, LARGE: 1_000_000}  # 0.3 MB and 294 MB
WIDTHS = (56, 16)

RECIPE = """
from dataclasses import replace
from datasets_cli.recipe import CatalogueEntry, Resource
from datasets_cli.recipes.d4rl import RECIPE as D4RL

FILES = {files!r}

def resources(name, web):
    url, size, sha256 = FILES[name]
    filename = name + ".hdf5"
    return [Resource((url,), filename, size=size, checksums={{"sha256": sha256}})]

RECIPE = replace(
    D4RL, family="soak", resources=resources, datasets=lambda web: map(CatalogueEntry, FILES)
)
"""
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
MOST_CYCLES_OF_ONE = 6
LARGE_EVERY = 10  # every tenth round is of the large file

FAULTS: tuple[Callable[[random.Random], Fault], ...] = (
    lambda dice: Fault(cut=dice.randrange(1, 200_000)),
    lambda dice: Fault(status=dice.choice((429, 500, 502, 503))),
    lambda dice: Fault(flip=dice.randrange(8, 100_000)),
    lambda dice: Fault(no_length=True),
    lambda dice: Fault(chunked=dice.randrange(1_000, 60_000)),
    lambda dice: Fault(ignore_range=True),
    lambda dice: Fault(shift_range=dice.randrange(1, 1_000)),
    lambda dice: Fault(longer=dice.randrange(1, 1_000)),
    lambda dice: Fault(body=b"<html>busy</html>"),
)


DERIVED, SELECTED = "doubled", "selected"


def double(rows: TensorDict) -> TensorDict:
    rows["observation"] *= 2
    return rows


@dataclass(frozen=True)
class Job:
    """One piece of work that is killed until it is left alone."""

    kind: str
    id: str
    layout: str = "ted"

    @property
    def result(self) -> str:
        names = {"preprocess": f"derived/{DERIVED}", "select": f"derived/{SELECTED}"}
        return names.get(self.kind, self.id)

    def run(self, config: Config) -> None:
        if self.kind == "download":
            datasets_cli.download(self.id, num_workers=0, config=config)
        elif self.kind == "convert":
            datasets_cli.convert(self.id, self.layout, config=config)
        elif self.kind == "select":  # keeps final steps
            datasets_cli.preprocess(
                self.id, Pipeline(), SELECTED, where="number >= 1", chunksize=500, config=config
            )
        else:
            datasets_cli.preprocess(self.id, double, DERIVED, chunksize=500, config=config)


def child(job: Job, root: Path) -> None:
    """Run a job as the command line does: signals end it in order."""
    os.setpgrp()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupted)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for the life of the process
    try:
        job.run(load_config(root=root))
    except (RldsError, KeyboardInterrupt):
        sys.exit(1)


def _interrupted(number: int, frame: object) -> None:
    raise KeyboardInterrupt


@dataclass
class Tally:
    """What happened so far."""

    counts: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        for name, count in sorted(self.counts.items()):
            yield f"{name:32} {count:>14,}"
        yield f"{'differences':32} {len(self.differences):>14,}"
        yield from self.differences


class Soak:
    """Jobs on one cache root, against one server."""

    def __init__(self, folder: Path, origin: Origin, seed: int) -> None:
        self.dice = random.Random(seed)
        self.origin, self.tally = origin, Tally()
        self.context = get_context("forkserver")
        self.context.set_forkserver_preload(["tests.soak", "datasets_cli.install.installation"])
        os.environ |= {"XDG_CONFIG_HOME": str(folder), "RLDS_RECIPES": str(folder / "recipes")}
        self.sizes = self._publish(folder)
        self.config = load_config(root=folder / "root")
        self.root = CacheRoot(self.config.root)
        self.expected: dict[Job, dict[str, object]] = {}
        self.seconds: dict[Job, float] = {}

    def _publish(self, folder: Path) -> dict[str, int]:
        """Serve both files, write the recipe that knows them, and return their sizes."""
        files, sizes = {}, {}
        for id, rows in ROWS.items():
            path = folder / f"{id.rpartition('/')[2]}.hdf5"
            save(path, steps(path, WIDTHS, [], range(499, rows, 500), num_steps=rows), None)
            data = path.read_bytes()
            path.unlink()
            sizes[id] = len(data)
            url = self.origin.put(path.name, data)
            files[path.stem] = (url, len(data), hashlib.sha256(data).hexdigest())
        (folder / "recipes").mkdir()
        (folder / "recipes" / "soak.py").write_text(RECIPE.format(files=files))
        return sizes

    def run(self, num_cycles: int) -> None:
        """Kill downloads, conversions and runs of ``preprocess`` of both files, in turn."""
        for id in (SMALL, LARGE):
            self.learn(Job("download", id))
            datasets_cli.download(id, layout="ted", config=self.config)
            for job in self._later_jobs(id):
                self.learn(job)
            datasets_cli.delete(id, config=self.config)
        for number in itertools.count():
            left = num_cycles - self.tally.counts["cycles"]
            if left <= 0:
                return
            id = SMALL if number % LARGE_EVERY else LARGE
            self.tally.counts[f"rounds of {id}"] += 1
            self.work(Job("download", id), min(left, self.dice.randint(1, MOST_CYCLES_OF_ONE)))
            datasets_cli.download(id, layout="ted", config=self.config)
            for job in self._later_jobs(id):
                left = num_cycles - self.tally.counts["cycles"]
                self.work(job, min(left, self.dice.randint(1, MOST_CYCLES_OF_ONE)))
            datasets_cli.delete(id, config=self.config)

    def _later_jobs(self, id: str) -> tuple[Job, ...]:
        return Job("convert", id, "compact"), Job("preprocess", id), Job("select", id)

    def learn(self, job: Job) -> None:
        """Do a job undisturbed, and remember its files and its time."""
        began = time.monotonic()
        self._start(job).join()
        self.seconds[job] = time.monotonic() - began
        self.expected[job] = self._files(job)
        self._undo(job)

    def work(self, job: Job, num_cycles: int) -> None:
        """Kill a job some times, then let it end, and compare."""
        sent = self.origin.sent
        filename = f"{job.id.rpartition('/')[2]}.hdf5"
        for _ in range(num_cycles):
            self.tally.counts["cycles"] += 1
            self.tally.counts[f"cycles of {job.kind}"] += 1
            if job.kind == "download" and self.dice.random() < 0.5:
                self.origin.script(filename, self.dice.choice(FAULTS)(self.dice))
                self.tally.counts["faults"] += 1
            process = self._start(job)
            process.join(self.dice.uniform(0, 1.1) * self.seconds[job])
            if process.is_alive():
                os.kill(process.pid, self.dice.choice(SIGNALS))
                self.tally.counts["kills"] += 1
            process.join()
        for _ in range(10):  # a fault that was not met yet may still fail a run
            process = self._start(job)
            process.join()
            if process.exitcode == 0:
                break
        self.origin.heal(filename)
        self._compare(job, process.exitcode)
        if job.kind == "download":
            self.tally.counts["bytes needed"] += self.sizes[job.id]
            self.tally.counts["bytes sent again"] += self.origin.sent - sent - self.sizes[job.id]
        self._undo(job)

    def _start(self, job: Job):  # type: ignore[no-untyped-def]  # ForkServerProcess has no stub
        process = self.context.Process(target=child, args=(job, self.config.root))
        process.start()
        return process

    def _files(self, job: Job) -> dict[str, object]:
        datasets_cli.verify(job.result, config=self.config)
        return dict(read_manifest(self.root.dataset(job.result)).files)

    def _compare(self, job: Job, code: int | None) -> None:
        try:
            found = self._files(job)
        except (RldsError, OSError) as error:
            self.tally.differences.append(f"{job}: exit code {code}, {error}")
            return
        if found != self.expected[job]:
            self.tally.differences.append(f"{job}: other files than undisturbed")
        found_left = datasets_cli.prune(
            older_than_days=0, raw=True, dry_run=True, config=self.config
        )
        left = [each.path for each in found_left]
        if left:
            self.tally.differences.append(f"{job}: left {', '.join(map(str, left))}")

    def _undo(self, job: Job) -> None:
        if job.kind == "convert":
            datasets_cli.convert(
                job.id, "compact" if job.layout == "ted" else "ted", config=self.config
            )
        else:
            datasets_cli.delete(job.result, config=self.config)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cycles", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, Origin() as origin:
        soak = Soak(Path(name), origin, arguments.seed)
        soak.run(arguments.cycles)
        print(*soak.tally.lines(), sep="\n")
    return 1 if soak.tally.differences else 0


if __name__ == "__main__":
    sys.exit(main())
