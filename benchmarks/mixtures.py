"""How long batches of a mixture of seven datasets take beside those of its members.

    python benchmarks/mixtures.py [--rows 1000000] [--calls 2000]

Datasets of a 17-dimensional MuJoCo task in trajectories of 1,000 steps, the page cache warm;
batches of 256. The members are sampled in turn, a batch of each, so that the processor's caches and
page tables have all seven to hold, as for the mixture; and one of them alone, for which they do
more. Prints JSON: medians and means in microseconds, and how many times the members' time the
mixture's is. Every kind of batch is compared with the rows.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import torch
from tables import install, mujoco_like
from timing import compare, shown

from datasets_cli import (
    DistributedSampler,
    Mixture,
    RandomSampler,
    SliceSampler,
    TensorDictReplayBuffer,
    open_storage,
)
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.ted_writer import TedWriter

WRITERS = {"compact": CompactWriter, "ted": TedWriter}
WEIGHTS = [0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1]
BATCH = 256
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "by weight": (RandomSampler, {"weights": WEIGHTS}),
    "by rows": (RandomSampler, {}),
    "epochs": (DistributedSampler, {"epoch": "all"}),
    "epochs by weight": (DistributedSampler, {"weights": WEIGHTS, "epoch": "first"}),
    "slices by weight": (lambda: SliceSampler(slice_len=32), {"weights": WEIGHTS, "slice_len": 32}),
}


def check(mixture: Mixture, storages: list[DatasetStorage]) -> None:
    """Compare batches with the rows of the members that they name."""
    for _ in range(3):
        batch = mixture.sample()
        for number, storage in enumerate(storages):
            mine = batch["member"] == number
            rows = batch["index"][mine] - number * len(storage)
            for key in ("observation", "action"):
                assert torch.equal(batch[key][mine], storage.get(rows)[key])


def measure(storages: list[DatasetStorage], case: str, calls: int) -> dict[str, Any]:
    """Return the times of a mixture and of its members."""
    make, arguments = CASES[case]
    members = [
        TensorDictReplayBuffer(storage=storage, sampler=make(), batch_size=BATCH)
        for storage in storages
    ]
    mixture = Mixture(storages, BATCH, **arguments)
    check(mixture, storages)
    turns = itertools.cycle(members)
    timed = {
        "members in turn": lambda: next(turns).sample(),
        "a member alone": members[0].sample,
        "mixture": mixture.sample,
    }
    times = compare(timed, calls)
    return {
        "microseconds": shown(times),
        "times": times["mixture"].over(times["members in turn"]),
        "times a member alone": times["mixture"].over(times["a member alone"]),
    }


def touch(storage: DatasetStorage) -> None:
    """Read every row, so that no page of the files is mapped while it is timed."""
    for rows in torch.arange(len(storage)).split(10_000):
        storage.gather(rows)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--calls", type=int, default=2000)
    options = parser.parse_args()
    found: dict[str, Any] = {"cores": os.cpu_count(), "rows of a member": options.rows}
    rows = mujoco_like(options.rows)
    for layout, writer in WRITERS.items():
        with tempfile.TemporaryDirectory() as name:
            folders = [install(writer, Path(name, str(number)), rows) for number in range(7)]
            storages = [open_storage(folder) for folder in folders]
            for storage in storages:
                touch(storage)
            for case in CASES:
                found[f"{layout}, {case}"] = measure(storages, case, options.calls)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
