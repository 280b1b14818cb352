"""The same rows in each library's buffer: ours, TorchRL, cpprb, flashbax, and columns of numpy."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from priorities import torchrls_sampler
from tables import Rows, torchrls

from datasets_cli import ExperienceReplay, PrioritizedSampler
from datasets_cli.schema.columns import Key

ID = "bench/rows"  # as ``install`` names what it writes
BATCH, SLICE = 256, 32
ALPHA, BETA = 0.7, 0.5
SCANNED = 100  # batches of one call of ``scan``
INDEX: Key = ("index",)
FEW = ("observation", "action", "next.reward", "next.observation", "next.terminated")
"""The columns of most of cpprb's examples."""


@dataclass(frozen=True)
class Contender:
    """A way to draw a batch.

    Args:
        draw: what is timed; it returns a batch.
        columns: makes columns of what ``draw`` returns, with the numbers of the rows under
            ``("index",)``.
        num_batches: that one call of ``draw`` makes.
    """

    draw: Callable[[], Any]
    columns: Callable[[Any], Rows]
    num_batches: int = 1


Contenders = dict[str, Contender]


def flat(batch: Any, prefix: Key = ()) -> Rows:
    """Return the columns of nested mappings or of a TensorDict, as numpy arrays."""
    found: Rows = {}
    for name, leaf in batch.items():
        key = (*prefix, *name.split("."))
        found |= flat(leaf, key) if hasattr(leaf, "items") else {key: np.asarray(leaf)}
    return found


def named(rows: Rows) -> dict[str, np.ndarray]:
    """Return the columns by dotted names, and their numbers, for libraries without an index."""
    columns = {".".join(key): values for key, values in rows.items()}
    return columns | {"index": np.arange(len(rows["next", "done"]))}


def ours(root: Path, case: str) -> Contenders:
    """Return this project's buffers, made as the README makes them."""
    found = {}
    more: dict[str, Any] = {
        "uniform": {},
        "without replacement": {"replacement": False},
        "slices": {"slice_len": SLICE},
        "prioritised": {},
    }[case]
    for layout, name in itertools.product(("compact", "ted"), ("torch", "numpy", "jax")):
        arguments = more | {"root": root / layout, "download": False, "batch_size": BATCH}
        if case == "prioritised":
            sampler = PrioritizedSampler(num_rows(root / layout), alpha=ALPHA, beta=BETA)
            replay = ExperienceReplay(ID, **arguments, format=name, seed=0, sampler=sampler)
            replay.update_priority(torch.arange(len(replay)), torch.rand(len(replay)))
            found[f"{layout}, {name}"] = Contender(updating(replay), flat)
            continue
        replay = ExperienceReplay(ID, **arguments, format=name, seed=0)
        found[f"{layout}, {name}"] = Contender(replay.sample, flat)
        if case == "uniform":  # a generator that others may draw from is not drawn from ahead
            shared = torch.Generator().manual_seed(0)
            replay = ExperienceReplay(ID, **arguments, format=name, generator=shared)
            found[f"{layout}, {name}, one by one"] = Contender(replay.sample, flat)
    return found


def num_rows(root: Path) -> int:
    """Return the rows of the dataset."""
    return len(ExperienceReplay(ID, root=root, download=False, batch_size=1))


def updating(replay: Any) -> Callable[[], Any]:
    """Return a draw that gives the rows of the batch other priorities then."""
    fresh = itertools.cycle(np.random.default_rng(0).random((100, BATCH), np.float32))

    def draw() -> Any:
        batch = replay.sample()
        priority = next(fresh)
        index = batch["index"]
        if isinstance(index, torch.Tensor):
            priority = torch.from_numpy(priority)
        replay.update_priority(index, priority)
        return batch

    return draw


def of_torchrl(root: Path, case: str) -> Contenders:
    """Return TorchRL's buffer over the files of ``ted``."""
    folder = root / "ted" / "datasets" / ID
    if case != "prioritised":
        slices = BATCH // SLICE if case == "slices" else 0
        buffer = torchrls(folder, BATCH, case != "without replacement", slices)
        return {"torchrl": Contender(buffer.sample, flat)}
    sampler = torchrls_sampler(num_rows(root / "ted"))
    if sampler is None:
        return {}
    buffer = torchrls(folder, BATCH)
    buffer.set_sampler(sampler)
    sampler.update_priority(torch.arange(len(buffer)), torch.rand(len(buffer)))
    return {"torchrl": Contender(updating(buffer), flat)}


def of_numpy(rows: Rows, case: str) -> Contenders:
    """Return fancy indexing of a dict of arrays, as buffers within many learners' code do it."""
    columns, rng = named(rows), np.random.default_rng(0)
    count = len(columns["index"])
    episode = rows["episode",][:, 0]
    (starts,) = np.nonzero(episode[: 1 - SLICE] == episode[SLICE - 1 :])

    def each_once() -> Iterator[np.ndarray]:
        while True:
            order = rng.permutation(count)
            for start in range(0, count - BATCH + 1, BATCH):
                yield order[start : start + BATCH]

    def in_slices() -> np.ndarray:
        first = starts[rng.integers(len(starts), size=(BATCH // SLICE, 1))]
        return (first + np.arange(SLICE)).ravel()

    draws: dict[str, Callable[[], np.ndarray]] = {
        "uniform": lambda: rng.integers(count, size=BATCH),
        "without replacement": each_once().__next__,
        "slices": in_slices,
    }
    if case not in draws:
        return {}
    draw_index = draws[case]

    def draw() -> dict[str, np.ndarray]:
        index = draw_index()
        return {name: values[index] for name, values in columns.items()}

    return {"numpy columns": Contender(draw, flat)}


def of_cpprb(rows: Rows, case: str) -> Contenders:
    """Return cpprb's buffers, of all columns and of the few that its examples have."""
    import cpprb

    columns = named(rows)
    count = len(columns["index"])

    def filled(kind: Any, names: Any, **arguments: Any) -> Any:
        specs = {
            name: {"shape": columns[name].shape[1:] or 1, "dtype": columns[name].dtype}
            for name in names
        }
        buffer = kind(count, specs, **arguments)
        buffer.add(**{name: columns[name] for name in names})
        return buffer

    if case == "uniform":
        every = filled(cpprb.ReplayBuffer, columns)
        few = filled(cpprb.ReplayBuffer, (*FEW, "index"))
        return {
            "cpprb": Contender(lambda: every.sample(BATCH), flat),
            "cpprb, 5 columns": Contender(lambda: few.sample(BATCH), flat),
        }
    if case == "prioritised":
        buffer = filled(cpprb.PrioritizedReplayBuffer, columns, alpha=ALPHA)
        rng = np.random.default_rng(0)
        buffer.update_priorities(columns["index"], rng.random(count, np.float32))
        fresh = itertools.cycle(rng.random((100, BATCH), np.float32))

        def draw() -> Any:
            batch = buffer.sample(BATCH, beta=BETA)
            buffer.update_priorities(batch["indexes"], next(fresh))
            return batch

        return {"cpprb": Contender(draw, flat)}
    return {}
