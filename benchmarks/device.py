"""Batches of rows in a GPU's memory, beside TorchRL's ``LazyTensorStorage`` there.

    python -m benchmarks.device [--quick]

Microseconds until the device has finished, in turn. Without a GPU nothing is measured, and the
table says so.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from tensordict import TensorDict

from benchmarks import measure
from benchmarks.measure import LAYOUTS, Call, Row, Run
from datasets_cli import PrioritizedSampler, SliceSampler, TensorDictReplayBuffer, open_storage

DRAWS = {
    "uniform 256": {"batch": 256},
    "uniform 2,048": {"batch": 2048},
    "slices 8x32": {"batch": 256, "slices": 8},
    "priorities 256": {"batch": 256},
}


def draws(run: Run, device: str = "cuda") -> Iterator[Row | str]:
    """Draws from 1,000,000 rows on a GPU; priorities are drawn and updated."""
    if device == "cuda" and not torch.cuda.is_available():
        yield "device: this machine has no GPU"
        return
    from torchrl.data import LazyTensorStorage

    rows = measure.mujoco_like(run.pick(1_000_000, 200_000))
    folders = {layout: measure.install(layout, run.folder / layout, rows) for layout in LAYOUTS}
    source = TensorDict.load_memmap(folders["ted"])
    for case, draw in DRAWS.items():
        is_prioritised = case.startswith("priorities")
        buffers: dict[str, Any] = {}
        for layout, folder in folders.items():
            storage = open_storage(folder, device=device)
            sampler: Any = SliceSampler(num_slices=draw["slices"]) if "slices" in draw else None
            if is_prioritised:
                sampler = PrioritizedSampler(len(storage), alpha=0.7, beta=0.5, device=device)
            buffers[layout] = TensorDictReplayBuffer(
                storage=storage, sampler=sampler, batch_size=draw["batch"]
            )
        theirs = measure.torchrls(LazyTensorStorage(len(source), device=device), **draw)
        theirs.extend(source)
        trees = measure.torchrls_priorities(len(source)) if is_prioritised else None
        if trees is not None:
            theirs.set_sampler(trees)
            theirs.update_priority(torch.arange(len(source)), torch.rand(len(source)))
        if is_prioritised and trees is None:
            yield "TorchRL's priorities: the compiled trees of its wheel do not load"
        else:
            buffers["TorchRL"] = theirs
        calls = {name: until_done(each, is_prioritised, device) for name, each in buffers.items()}
        if is_prioritised:
            storage = open_storage(folders["compact"], device=device)
            uniform = TensorDictReplayBuffer(storage=storage, batch_size=draw["batch"])
            calls["uniform draw"] = until_done(uniform, False, device)
        times = measure.in_turn(calls, run.pick(500, 100))
        yield from measure.rows_of(f"{case}, {device}", times, ("TorchRL", "uniform draw"))


def until_done(buffer: Any, is_prioritised: bool, device: str) -> Call:
    """Return a draw, and an update of its priorities, until the device has finished."""
    losses = itertools.cycle(torch.rand(100, 256, device=device).unbind())

    def draw() -> None:
        batch = buffer.sample()
        if is_prioritised:
            buffer.update_priority(batch["index"], next(losses))
        if device == "cuda":
            torch.cuda.synchronize()

    return draw


CASES = {"draws": draws}

if __name__ == "__main__":
    measure.run(CASES)
