"""Buffers that are written to, on TorchRL's own benchmark rows, beside TorchRL.

    python benchmarks/buffers.py [--calls 300]

Rows are ``{"a": float32 [5], ("b", "c"): uint8 [3, 32, 32]}`` in trajectories of 123; 10,000 rows,
4,000 in lists; batches of 256, slices of 32, 400 rows an ``extend``. Prints JSON of medians and
means in microseconds. ``gather`` is one ``index_select`` a column of the same rows. Every kind of
batch is compared with the rows.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tables import torchrl_like
from tensordict import TensorDict
from timing import Time, compare, lower, shown

import datasets_cli

STORAGES = {"LazyTensorStorage": 10_000, "LazyMemmapStorage": 10_000, "ListStorage": 4_000}
SAMPLERS: dict[str, dict[str, Any]] = {
    "RandomSampler": {},
    "SamplerWithoutReplacement": {},
    "SliceSampler": {"num_slices": 8, "traj_key": "traj"},
}
BATCH, WRITTEN = 256, 400


def rows(count: int) -> TensorDict:
    """Return rows with the number of their trajectory."""
    columns = {key: torch.from_numpy(values) for key, values in torchrl_like(count).items()}
    columns["traj",] = torch.arange(count) // 123
    return TensorDict({key: columns[key] for key in (("a",), ("b", "c"), ("traj",))}, [count])


def fill(library: Any, samplers: Any, storage: str, sampler: str, data: TensorDict) -> Any:
    """Return a full buffer of a library."""
    kind = getattr(library, storage)(len(data))
    drawn = getattr(samplers, sampler)(**SAMPLERS[sampler])
    buffer = library.TensorDictReplayBuffer(storage=kind, sampler=drawn, batch_size=BATCH)
    buffer.extend(data.clone())
    return buffer


def check(buffer: Any, data: TensorDict) -> None:
    """Compare a batch with the rows that its index names."""
    batch = buffer.sample()
    index = batch["index"].reshape(len(batch), -1)[:, 0]
    for key in (("a",), ("b", "c")):
        assert torch.equal(batch[key], data[key][index]), key


def extending(buffer: Any, data: TensorDict) -> Callable[[], Any]:
    """Return a call that writes some rows."""
    part = data[:WRITTEN].clone()
    return lambda: buffer.extend(part)


def main() -> None:
    """Measure every case and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=300)
    calls = parser.parse_args().calls
    warnings.filterwarnings("ignore")  # TorchRL's own
    from torchrl.data import replay_buffers as peer
    from torchrl.data.replay_buffers import samplers as peers

    logging.getLogger("torchrl").setLevel(logging.WARNING)  # it reports to stdout
    cases = {}
    for storage, capacity in STORAGES.items():
        data = rows(capacity)
        for sampler in SAMPLERS:
            if (storage, sampler) == ("ListStorage", "SliceSampler"):
                continue
            ours = fill(datasets_cli, datasets_cli, storage, sampler, data)
            theirs = fill(peer, peers, storage, sampler, data)
            for buffer in (ours, theirs):
                check(buffer, data)
            timed = {"torchrl": theirs.sample, "ours": ours.sample, "again": theirs.sample}
            if storage != "ListStorage":
                timed["gather"] = gathering(data)
            cases[f"{storage}, {sampler}, sample"] = ratio(compare(timed, calls))
        timed = {"torchrl": extending(theirs, data), "ours": extending(ours, data)}
        timed["again"] = timed["torchrl"]
        cases[f"{storage}, extend {WRITTEN}"] = ratio(compare(timed, calls // 3))
    print(json.dumps({"cores": os.cpu_count(), "calls": calls, "cases": cases}, indent=1))


def gathering(data: TensorDict) -> Callable[[], Any]:
    """Return the bare gather of a batch's columns."""
    columns = [data["a"].clone(), data["b", "c"].clone(), data["traj"].clone()]
    rng = np.random.default_rng(0)
    fresh = torch.from_numpy(rng.integers(0, len(data), (500, BATCH)))
    turns = iter(range(10**9))

    def gather() -> list[torch.Tensor]:
        index = fresh[next(turns) % len(fresh)]
        return [column.index_select(0, index) for column in columns]

    return gather


def ratio(times: dict[str, Time]) -> dict[str, dict[str, float]]:
    """Return medians and means, and how often ours fits into TorchRL's lower one."""
    times["torchrl"] = lower(times["torchrl"], times.pop("again"))
    return shown(times) | {"times faster": times["torchrl"].over(times["ours"])}


if __name__ == "__main__":
    main()
