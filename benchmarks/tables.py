"""The data that sampling is measured on, and buffers over it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from datasets_cli import (
    RandomSampler,
    SamplerWithoutReplacement,
    SliceSampler,
    TensorDictReplayBuffer,
    open_storage,
)
from datasets_cli.schema.columns import Key
from datasets_cli.store.manifest import Manifest, write_manifest

Rows = dict[Key, np.ndarray]
EPISODE_STEPS = 1000


def mujoco_like(num_rows: int, *, infos: bool = False) -> Rows:
    """Return random TED columns of a 17-dimensional MuJoCo task: 11 leaves with ``episode``.

    Args:
        num_rows: transitions.
        infos: also what D4RL's v2 files record of each step and its successor: 17 leaves.
    """
    rng = np.random.default_rng(0)
    num_steps = num_rows + num_rows // EPISODE_STEPS
    row = np.arange(num_rows) + np.arange(num_rows) // EPISODE_STEPS
    done = (np.arange(num_rows) % EPISODE_STEPS == EPISODE_STEPS - 1)[:, None]
    rows = flags(done) | {
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


def torchrl_like(num_rows: int) -> Rows:
    """Return the rows of TorchRL's own replay buffer benchmark, in trajectories of 123."""
    rng = np.random.default_rng(0)
    done = (np.arange(num_rows) % 123 == 122)[:, None]
    done[-1] = True
    return {
        ("a",): rng.normal(size=(num_rows, 5)).astype(np.float32),
        ("b", "c"): rng.integers(0, 256, (num_rows, 3, 32, 32), dtype=np.uint8),
        ("next", "done"): done,
    }


def flags(done: np.ndarray) -> Rows:
    """Return TED's flags of trajectories that are cut off where ``done`` bool ``[N, 1]`` says."""
    none = np.zeros_like(done)
    return {
        **{(name,): none for name in ("done", "terminated", "truncated")},
        ("next", "done"): done,
        ("next", "terminated"): none,
        ("next", "truncated"): done,
    }


def install(kind: Any, folder: Path, rows: Rows, times: int = 1, *, id: str = "bench/rows") -> Path:
    """Write columns, or so many repetitions of them, as a dataset and return its folder."""
    writer = kind(folder, id)
    num_rows = len(rows["next", "done"])
    for start in [*range(0, num_rows, 50_000)] * times:
        writer.write({key: values[start : start + 50_000] for key, values in rows.items()})
    write_manifest(folder, Manifest(id=id, **vars(writer.finish({}))))
    return folder


def ours(folder: Path, batch: int, replacement: bool = True, num_slices: int = 0) -> Any:
    """Return this project's buffer over a dataset."""
    sampler: Any = RandomSampler() if replacement else SamplerWithoutReplacement()
    if num_slices:
        sampler = SliceSampler(num_slices=num_slices)
    return TensorDictReplayBuffer(storage=open_storage(folder), sampler=sampler, batch_size=batch)


def torchrls(folder: Path, batch: int, replacement: bool = True, num_slices: int = 0) -> Any:
    """Return TorchRL's buffer over the same files."""
    from torchrl.data import TensorDictReplayBuffer as Buffer
    from torchrl.data import TensorStorage
    from torchrl.data.replay_buffers import samplers

    sampler: Any = samplers.RandomSampler()
    if not replacement:
        sampler = samplers.SamplerWithoutReplacement()
    if num_slices:
        sampler = samplers.SliceSampler(
            num_slices=num_slices, traj_key="episode", cache_values=True
        )
    storage = TensorStorage(TensorDict.load_memmap(folder))
    return Buffer(storage=storage, sampler=sampler, batch_size=batch)


def bare(folder: Path, batch: int) -> Callable[[], Any]:
    """Return one ``index_select`` of the bytes of a batch of records: the physical limit.

    The rows are others in every call, as in ``sample()``: rows that are still in the processor's
    cache come four times as fast.
    """
    record = open_storage(folder).dataset.manifest.record
    size, num_records = record["record_bytes"], record["num_records"]
    rows = torch.from_numpy(np.fromfile(folder / "rows.memmap", np.uint8)).view(num_records, size)
    pairs = rows.as_strided((num_records - 1, 2 * size), (size, 1))
    indexes = torch.randint(num_records - 1, (4000, batch), dtype=torch.int32).unbind(0)
    fresh = itertools.cycle(indexes)
    return lambda: pairs.index_select(0, next(fresh))
