"""Batches beside TorchRL, cpprb, flashbax, numpy and torch's loader, idle and beside a learner.

    python -m benchmarks.batches [CASE]... [--quick]

Microseconds of one ``sample()`` as a user calls it, with sampler, index and flags: the mean and the
99th percentile. All contenders of a case have the same rows, in memory or in the page cache, and
take turns. The learner is a network with two layers of 256 and Adam. It trains on all cores in a
process of its own, or in the loop that samples. Batches are compared with the source first.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from tensordict import TensorDict
from torch import nn

import datasets_cli.torchrl.data
from benchmarks import measure
from benchmarks.measure import EPISODE_STEPS, ID, LAYOUTS, PROJECT, Call, Figure, Row, Rows, Run
from datasets_cli import ExperienceReplay, PrioritizedSampler, SliceSampler, TensorDictReplayBuffer
from datasets_cli.store.cache_root import CacheRoot
from tests.support.shared_rings import stress

BATCH, SLICE = 256, 32
ALPHA, BETA = 0.7, 0.5
LIMIT = "bare gather"
IDLE, BESIDE, WITHIN = "idle", "beside a learner", "in a learner's loop"
CHECKED = 40  # batches of each contender: more than one block that is read ahead
MARKED = {("next", "done"), ("next", "truncated")}  # set at the ends of our slices
Calls = dict[str, Call]

# The learner


def learner(kind: str = "vectors") -> Callable[[Any], None]:
    """Return a step of training, with Adam: two layers of 256, or convolutions for frames."""
    convolutions = [
        *(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU()),
        *(nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(512), nn.ReLU()),
    ]
    hidden = [nn.LazyLinear(256), nn.ReLU(), nn.LazyLinear(256), nn.ReLU()]
    network = nn.Sequential(*(convolutions if "frames" in kind else hidden), nn.LazyLinear(1))
    optimizers: list[torch.optim.Adam] = []

    def step(batch: Any) -> None:
        loss = nn.functional.mse_loss(
            network(batch["observation"].float()), batch["next", "reward"]
        )
        optimizers[:] = optimizers or [torch.optim.Adam(network.parameters())]  # sizes are known
        optimizers[0].zero_grad()
        loss.backward()
        optimizers[0].step()

    return step


def learn() -> None:
    """Train on one batch of random rows as long as the benchmark runs."""
    step = learner()
    batch = {"observation": torch.randn(BATCH, 17), ("next", "reward"): torch.randn(BATCH, 1)}
    print("learning", flush=True)
    benchmark = os.getppid()
    while os.getppid() == benchmark:
        step(batch)


@cache
def neighbour() -> subprocess.Popen[bytes]:
    """Start a learner in a process of its own, and stop it until it is continued."""
    command = [sys.executable, "-m", "benchmarks.batches", "--learn"]
    process = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE)
    atexit.register(process.kill)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGSTOP)
    return process


@contextlib.contextmanager
def under(load: str) -> Iterator[None]:
    """Let the learner work while a load that has one is measured."""
    if load != BESIDE:
        yield
        return
    neighbour().send_signal(signal.SIGCONT)
    try:
        yield
    finally:
        neighbour().send_signal(signal.SIGSTOP)


def compared(
    run: Run, case: str, calls: Mapping[str, Call], peers: tuple[str, ...], *loads: str
) -> Iterator[Row]:
    """Yield the rows of calls in turn, under each load; by default idle and beside a learner."""
    for load in loads or (IDLE, BESIDE):
        how: Any = {"limit": run.pick(30, 2)}
        if load == WITHIN:
            how["between"] = learner()
        with under(load):
            times = measure.in_turn(calls, run.pick(1000, 400), **how)
        yield from measure.rows_of(case, times, peers, load=load)


# Draws of a dataset


@dataclass(frozen=True)
class Draw:
    """How a batch is drawn: uniformly, in epochs, as slices or by priorities."""

    batch: int = BATCH
    replacement: bool = True
    slices: int = 0
    is_prioritised: bool = False
    leaves: int = 11


DRAWS = {
    "uniform 256": Draw(),
    "without replacement 256": Draw(replacement=False),
    "slices 8x32": Draw(slices=BATCH // SLICE),
    "priorities 256": Draw(is_prioritised=True),
    "uniform 2,048": Draw(2048),
    "slices 64x64": Draw(4096, slices=64),
    "17 leaves, uniform 256": Draw(leaves=17),
}
QUICK_DRAWS = 4


@dataclass(frozen=True)
class Data:
    """A dataset in both layouts, and its rows in memory."""

    root: Path
    rows: Rows

    def replay(self, layout: str, draw: Draw, **arguments: Any) -> ExperienceReplay:
        arguments |= {"root": self.root / layout, "download": False, "seed": 0}
        if draw.is_prioritised:
            arguments["sampler"] = PrioritizedSampler(len(self), alpha=ALPHA, beta=BETA)
        if draw.slices:
            arguments["num_slices"] = draw.slices
        return ExperienceReplay(ID, draw.batch, replacement=draw.replacement, **arguments)

    def folder(self, layout: str) -> Path:
        return self.root / layout / "datasets" / ID

    def named(self) -> dict[str, np.ndarray]:
        """Return the columns by dotted names, and the rows' numbers as ``index``."""
        columns = {".".join(key): values for key, values in self.rows.items()}
        return columns | {"index": np.arange(len(self))}

    def __len__(self) -> int:
        return len(self.rows["next", "done"])


@cache
def data_of(folder: Path, num_rows: int, leaves: int) -> Data:
    """Write rows in both layouts; they are read again by later cases."""
    rows, root = measure.mujoco_like(num_rows, infos=leaves == 17), folder / f"{num_rows}x{leaves}"
    for layout in LAYOUTS:
        measure.installed(layout, root / layout, rows)
    return Data(root, rows)


def million(run: Run) -> Data:
    """Return the dataset that most cases draw from."""
    return data_of(run.folder, 1_000_000, 11)


def ours(data: Data, draw: Draw) -> Calls:
    """Return this project's draws: each layout, and the format of numpy."""
    replays = {layout: data.replay(layout, draw) for layout in LAYOUTS}
    replays["compact, numpy"] = data.replay("compact", draw, format="numpy")
    if not draw.is_prioritised:
        return {name: replay.sample for name, replay in replays.items()}
    return {name: updating(replay) for name, replay in replays.items()}


def updating(replay: Any) -> Call:
    """Return a draw by priority that then gives the batch's rows new priorities."""
    replay.update_priority(torch.arange(len(replay)), torch.rand(len(replay)))
    fresh = itertools.cycle(np.random.default_rng(0).random((100, BATCH), np.float32))

    def draw() -> Any:
        batch, priority = replay.sample(), next(fresh)
        index = batch["index"]
        is_torch = isinstance(index, torch.Tensor)
        replay.update_priority(index, torch.from_numpy(priority) if is_torch else priority)
        return batch

    return draw


def of_torchrl(data: Data, draw: Draw) -> Calls:
    """Return TorchRL's buffer over the same files of ``ted``."""
    storage = measure.torchrls_mapped(data.folder("ted"))
    buffer = measure.torchrls(storage, draw.batch, draw.replacement, draw.slices)
    if not draw.is_prioritised:
        return {"TorchRL": buffer.sample}
    sampler = measure.torchrls_priorities(len(data))
    if sampler is None:
        return {}
    buffer.set_sampler(sampler)
    return {"TorchRL": updating(buffer)}


def of_cpprb(data: Data, draw: Draw) -> Calls:
    """Return cpprb's buffer of the same columns; it draws uniformly and by priorities."""
    if draw.slices or not draw.replacement or not measure.is_installed("cpprb"):
        return {}
    import cpprb

    columns = data.named()
    specs = {
        name: {"shape": values.shape[1:] or 1, "dtype": values.dtype}
        for name, values in columns.items()
    }
    if not draw.is_prioritised:
        buffer = cpprb.ReplayBuffer(len(data), specs)
        buffer.add(**columns)
        return {"cpprb": lambda: buffer.sample(draw.batch)}
    buffer = cpprb.PrioritizedReplayBuffer(len(data), specs, alpha=ALPHA)
    buffer.add(**columns)
    rng = np.random.default_rng(0)
    buffer.update_priorities(columns["index"], rng.random(len(data), np.float32))
    fresh = itertools.cycle(rng.random((100, draw.batch), np.float32))

    def sample() -> Any:
        batch = buffer.sample(draw.batch, beta=BETA)
        buffer.update_priorities(batch["indexes"], next(fresh))
        return batch

    return {"cpprb": sample}


def of_numpy(data: Data, draw: Draw) -> Calls:
    """Return fancy indexing of a dict of arrays, as many training scripts have it."""
    if draw.is_prioritised or not draw.replacement:
        return {}
    columns, rng = data.named(), np.random.default_rng(0)
    length = draw.batch // draw.slices if draw.slices else 1

    def sample() -> dict[str, np.ndarray]:
        first = rng.integers(len(data) // EPISODE_STEPS, size=draw.batch // length) * EPISODE_STEPS
        first += rng.integers(EPISODE_STEPS - length + 1, size=len(first))
        index = (first[:, None] + np.arange(length)).ravel()
        return {name: values[index] for name, values in columns.items()}

    return {"numpy columns": sample}


def of_torch_loader(data: Data, draw: Draw) -> Calls:
    """Return ``DataLoader`` over the same rows as tensors, in this process."""
    if draw.replacement:
        return {}
    tensors = map(torch.from_numpy, data.named().values())
    rows = torch.utils.data.TensorDataset(*tensors)
    loader = torch.utils.data.DataLoader(rows, draw.batch, shuffle=True)
    return {"torch DataLoader": itertools.chain.from_iterable(itertools.repeat(loader)).__next__}


def bare(data: Data, draw: Draw) -> Calls:
    """Return one ``take`` of the bytes of a batch, records and successors: the physical limit.

    The rows are others in every call, as in ``sample()``: rows that are still in the processor's
    cache come four times as fast.
    """
    if draw.is_prioritised:
        return {}
    folder = data.folder("compact")
    size = datasets_cli.open_storage(folder).dataset.manifest.record["record_bytes"]
    records = np.fromfile(folder / "rows.memmap", f"V{size}")
    first = np.random.default_rng(0).integers(len(records) - 1, size=(1000, draw.batch))
    fresh = itertools.cycle(np.concatenate([first, first + 1], axis=1))
    return {LIMIT: lambda: records.take(next(fresh))}


PEERS: dict[str, Callable[[Data, Draw], Calls]] = {
    "TorchRL": of_torchrl,
    "cpprb": of_cpprb,
    "numpy columns": of_numpy,
    "torch DataLoader": of_torch_loader,
    LIMIT: bare,
}


def flat(batch: Any, prefix: tuple[str, ...] = ()) -> Rows:
    """Return the columns of nested mappings or of a TensorDict, as numpy arrays."""
    found: Rows = {}
    for name, leaf in batch.items():
        key = (*prefix, *name.split("."))
        found |= flat(leaf, key) if hasattr(leaf, "items") else {key: np.asarray(leaf)}
    return found


def check(call: Call, data: Data, draw: Draw) -> None:
    """Compare batches with the source; slices must be consecutive rows of one trajectory."""
    drawn = []
    for _ in range(CHECKED):
        columns = flat(call())
        index = columns.pop(("index",)).reshape(draw.batch, -1)[:, 0]
        drawn.append(index)
        for key in columns.keys() & data.rows.keys() - (MARKED if draw.slices else set()):
            assert np.array_equal(columns[key].reshape(draw.batch, -1), data.rows[key][index]), key
    if draw.slices:
        runs = index.reshape(draw.slices, -1)
        assert (np.diff(runs) == 1).all()
        assert (runs[:, 0] // EPISODE_STEPS == runs[:, -1] // EPISODE_STEPS).all()
    if not draw.replacement:
        numbers = np.concatenate(drawn)
        assert len(np.unique(numbers)) == len(numbers)


def draws(run: Run) -> Iterator[Row | str]:
    """Every kind of draw from 1,000,000 rows, beside each library that has it."""
    if not measure.is_installed("cpprb"):
        yield "cpprb is not installed"
    for name, draw in itertools.islice(DRAWS.items(), run.pick(len(DRAWS), QUICK_DRAWS)):
        data = data_of(run.folder, 1_000_000, draw.leaves)
        calls, theirs = ours(data, draw), {}
        for make in PEERS.values():
            theirs |= make(data, draw)
        if draw.is_prioritised and "TorchRL" not in theirs:
            yield "TorchRL's priorities: the compiled trees of its wheel do not load"
        for library, call in (calls | theirs).items():
            if library not in {LIMIT, "torch DataLoader"}:
                check(call, data, draw)
        loads = (IDLE, BESIDE, WITHIN) if name == "uniform 256" else (IDLE, BESIDE)
        for load in loads:
            timed = calls | theirs
            if load == WITHIN:  # a learner takes TED's keys, as tensors
                timed = {each: timed[each] for each in (*LAYOUTS, "TorchRL")}
            yield from compared(run, name, timed, (*PEERS,), load)


# JAX: its threads make other calls in the same process slower, so it has cases of its own

SCANNED = 100  # batches of one call of ``jax.lax.scan``


def jax_scans(run: Run) -> Iterator[Row | str]:
    """Draws within XLA, jitted and in a scan: flashbax and ``jax_sampler``."""
    if not measure.is_installed("flashbax"):
        yield "flashbax is not installed"
        return
    data = million(run)
    for name in ("uniform 256", "slices 8x32"):
        draw = DRAWS[name]
        theirs = of_flashbax(data, draw)
        sample = data.replay("compact", Draw()).jax_sampler(BATCH, draw.slices or None)
        calls = by_key("jax_sampler", lambda rows, key: rows(key), sample)
        for load in (IDLE, BESIDE):
            with under(load):
                times = measure.seconds_in_turn(calls | theirs, run.pick(300, 50), limit=30)
            figures = {
                each: Figure.of(seconds, batches=SCANNED if "scan" in each else 1)
                for each, seconds in times.items()
            }
            yield from measure.rows_of(f"{name}, JAX", figures, (*theirs,), load=load)


def of_flashbax(data: Data, draw: Draw) -> Calls:
    """Return flashbax's buffer; its slices may cross the end of a trajectory."""
    import flashbax
    import jax

    length = SLICE if draw.slices else 1
    buffer = flashbax.make_trajectory_buffer(
        add_batch_size=1,
        sample_batch_size=BATCH // length,
        sample_sequence_length=length,
        period=1,
        min_length_time_axis=length,
        max_length_time_axis=len(data),
    )
    columns = jax_columns(data)
    empty = buffer.init({name: values[0] for name, values in columns.items()})
    batch = {name: values[None] for name, values in columns.items()}
    state = jax.jit(buffer.add, donate_argnums=0)(empty, batch)
    return by_key("flashbax", lambda state, key: buffer.sample(state, key).experience, state)


def by_key(name: str, sample: Callable[[Any, Any], Any], state: Any) -> Calls:
    """Return what draws a batch of a state by a random key, jitted and in a scan."""
    import jax

    def scan(state: Any, keys: Any) -> Any:
        # The batch is the carry: each one is made whole, and none is kept.
        first = sample(state, keys[0])
        return jax.lax.scan(lambda _, key: (sample(state, key), None), first, keys[1:])[0]

    one, many = jax.jit(sample), jax.jit(scan)
    key, keys = fresh_keys(1), fresh_keys(SCANNED)
    return {
        f"{name}, jitted": lambda: jax.block_until_ready(one(state, next(key)[0])),
        f"{name}, in a scan": lambda: jax.block_until_ready(many(state, next(keys))),
    }


def fresh_keys(count: int) -> Any:
    """Return endless arrays of random keys, which are computed before they are drawn."""
    import jax

    keys = jax.random.split(jax.random.key(0), 500 * count).reshape(500, count)
    return itertools.cycle([jax.block_until_ready(keys[turn]) for turn in range(500)])


def jax_columns(data: Data) -> dict[str, Any]:
    import jax.numpy as jnp

    return {name: jnp.asarray(values) for name, values in data.named().items()}


# Buffers that are written to, mixtures, views, sequences, goals

STORAGES = {"LazyTensorStorage": 10_000, "LazyMemmapStorage": 10_000, "ListStorage": 4_000}
WRITTEN = 400


def written(run: Run) -> Iterator[Row]:
    """Sampling and extending buffers of the rows of TorchRL's own benchmark, 3 kB each."""
    from torchrl.data import replay_buffers as peer

    for storage, capacity in STORAGES.items():
        rng = np.random.default_rng(0)
        pictures = rng.integers(0, 256, (capacity, 3, 32, 32), dtype=np.uint8)
        columns = {"a": torch.randn(capacity, 5), "traj": torch.arange(capacity) // 123}
        rows = TensorDict({**columns, "b": {"c": torch.from_numpy(pictures)}}, [capacity])
        for draw in ("uniform", "slices") if storage != "ListStorage" else ("uniform",):
            libraries: dict[str, Any] = {"ours": datasets_cli, "TorchRL": peer}
            buffers = {name: filled(each, storage, draw, rows) for name, each in libraries.items()}
            for buffer in buffers.values():
                batch = buffer.sample()
                index = batch["index"].reshape(BATCH, -1)[:, 0]
                assert torch.equal(batch["b", "c"], rows["b", "c"][index])
            calls: Calls = {name: each.sample for name, each in buffers.items()}
            yield from compared(run, f"{storage}, {draw}", calls, ("TorchRL",))
        part = rows[:WRITTEN].clone()
        calls = {name: partial(each.extend, part) for name, each in buffers.items()}
        case = f"{storage}, extend {WRITTEN}"
        yield from compared(run, case, calls, ("TorchRL",), IDLE)


def filled(library: Any, storage: str, draw: str, rows: TensorDict) -> Any:
    sampler = library.RandomSampler()
    if draw == "slices":
        sampler = library.SliceSampler(num_slices=BATCH // SLICE, traj_key="traj")
    held = getattr(library, storage)(len(rows))
    buffer = library.TensorDictReplayBuffer(storage=held, sampler=sampler, batch_size=BATCH)
    buffer.extend(rows.clone())
    return buffer


MEMBERS, WEIGHTS = 7, [0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1]
MIXTURES: dict[str, tuple[Any, dict[str, Any]]] = {
    "by weight": (datasets_cli.RandomSampler, {"weights": WEIGHTS}),
    "epochs by weight": (datasets_cli.DistributedSampler, {"weights": WEIGHTS, "epoch": "first"}),
    "epochs": (datasets_cli.DistributedSampler, {"epoch": "all"}),
    "slices by weight": (
        lambda: SliceSampler(slice_len=SLICE),
        {"weights": WEIGHTS, "slice_len": SLICE},
    ),
}


def mixtures(run: Run) -> Iterator[Row]:
    """A mixture of seven datasets beside its members, sampled in turn, and beside one of them."""
    rows = measure.mujoco_like(run.pick(1_000_000, 200_000))
    for layout in LAYOUTS[: run.pick(2, 1)]:
        folder = run.folder / f"members-{layout}"
        folders = [
            measure.installed(layout, folder / str(number), rows) for number in range(MEMBERS)
        ]
        storages = [datasets_cli.open_storage(each) for each in folders]
        for storage in storages:  # so that no page of the files is mapped while it is timed
            for numbers in torch.arange(len(storage)).split(10_000):
                storage.gather(numbers)
        for name in [*MIXTURES][: run.pick(4, 1)]:
            make, arguments = MIXTURES[name]
            members = [
                TensorDictReplayBuffer(storage=storage, sampler=make(), batch_size=BATCH)
                for storage in storages
            ]
            mixture = datasets_cli.Mixture(storages, BATCH, **arguments)
            batch = mixture.sample()
            for number, storage in enumerate(storages):
                mine = batch["member"] == number
                source = storage.get(batch["index"][mine] - number * len(storage))
                assert torch.equal(batch["observation"][mine], source["observation"])
            turns = itertools.cycle(members)
            calls = {layout: mixture.sample, "one member": members[0].sample}
            calls["members in turn"] = lambda: next(turns).sample()  # noqa: B023
            peers = ("members in turn", "one member")
            yield from compared(run, f"mixture of 7, {name}", calls, peers)
        shutil.rmtree(folder)


def views(run: Run) -> Iterator[Row]:
    """Views of half of a dataset beside the dataset, by the way in which they find their rows."""
    from datasets_cli.store import selection

    data = million(run)
    for layout in LAYOUTS[: run.pick(2, 1)]:
        for name in ("uniform 256", "slices 8x32")[: run.pick(2, 1)]:
            replay = data.replay(layout, DRAWS[name])
            count = len(replay.trajectories)
            with mock.patch.object(selection, "MAPPED_ROWS", 0):  # as views of over 10M rows do
                search = replay.episodes_at(np.arange(0, count, 2))
            found = {
                f"{layout}, table of rows": replay.episodes_at(np.arange(0, count, 2)),
                f"{layout}, search": search,
                f"{layout}, one run": replay.episodes_at(np.arange(count // 2)),
            }
            calls = {"the dataset": replay.sample} | {way: v.sample for way, v in found.items()}
            yield from compared(run, f"view, {name}", calls, ("the dataset",))


def sequences(run: Run, batch: int = 64, length: int = 20) -> Iterator[Row]:
    """Padded sequences with returns to go, beside slices and a loader written by hand."""
    data = million(run)
    hand = by_hand(data.rows, batch, length)
    for layout in LAYOUTS:
        storage = datasets_cli.open_storage(data.folder(layout))
        root = CacheRoot(run.folder / "returns")
        padded = datasets_cli.Sequences(storage, length, root=root)
        buffer = TensorDictReplayBuffer(storage=padded, batch_size=batch)
        found = buffer.sample()
        right = hand(found["index"][:, 0].numpy())
        for name in ("observation", "returns_to_go"):
            np.testing.assert_allclose(found[name].numpy(), right[name], rtol=0, atol=1e-3)
        sampler: Any = SliceSampler(slice_len=length)
        slices = TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=batch * length)
        timed = {layout: buffer.sample, "slices": slices.sample, "by hand": hand}
        peers = ("slices", "by hand")
        yield from compared(run, f"sequences {batch}x{length}", timed, peers)


def by_hand(rows: Rows, batch: int, length: int) -> Callable[..., dict[str, np.ndarray]]:
    """Return what cuts, pads and stacks one sequence after the other, as the papers' code does."""
    rng, num_rows = np.random.default_rng(0), len(rows["next", "done"])

    def cut(row: int) -> dict[str, np.ndarray]:
        end = min(row - row % EPISODE_STEPS + EPISODE_STEPS, num_rows)
        rewards = rows["next", "reward"][row:end]
        part = slice(row, min(row + length, end))
        steps = part.stop - part.start
        parts = {
            "observation": rows["observation",][part],
            "action": rows["action",][part],
            "reward": rewards[:steps],
            "returns_to_go": rewards[::-1].cumsum(0)[::-1][:steps],
            "timesteps": np.arange(row % EPISODE_STEPS, row % EPISODE_STEPS + steps),
            "attention_mask": np.ones(steps),
        }
        return {
            name: np.concatenate([np.zeros((length - steps, *each.shape[1:]), each.dtype), each])
            for name, each in parts.items()
        }

    def draw(drawn: np.ndarray | None = None) -> dict[str, np.ndarray]:
        numbers = rng.integers(num_rows, size=batch) if drawn is None else drawn
        parts = [cut(row) for row in numbers.tolist()]
        return {name: np.stack([part[name] for part in parts]) for name in parts[0]}

    return draw


def goals(run: Run, radius: float = 0.45) -> Iterator[Row]:
    """Goals in hindsight for 8 of 10 rows, beside TorchRL's buffer and a batch without."""
    import torchrl.data

    rows = maze(run.pick(1_000_000, 200_000))
    keys: Any = {"achieved_goal_key": "achieved_goal", "desired_goal_key": "desired_goal"}
    rule = datasets_cli.GoalRule.sparse(radius)
    storage = datasets_cli.LazyTensorStorage(len(rows))
    plain = datasets_cli.ReplayBuffer(storage=storage)
    plain.extend(rows)
    sampler = datasets_cli.HERSampler(rule, **keys)
    buffers: dict[str, Any] = {
        "HERSampler": datasets_cli.ReplayBuffer(storage=storage, sampler=sampler)
    }

    def reward(batch: Any) -> torch.Tensor:
        apart = batch["next", "achieved_goal"] - batch["desired_goal"]
        return (apart.norm(dim=-1, keepdim=True) <= radius).float()

    ours: Any = datasets_cli.torchrl.data
    for name, library in {"HERReplayBuffer": ours, "TorchRL": torchrl.data}.items():
        held = library.LazyTensorStorage(len(rows))
        buffers[name] = library.HERReplayBuffer(reward, storage=held, batch_size=BATCH)
        buffers[name].extend(rows)
    buffers["without goals"] = plain
    calls = {name: partial(buffer.sample, BATCH) for name, buffer in buffers.items()}
    peers = ("TorchRL", "without goals")
    yield from compared(run, "goals in hindsight 256", calls, peers)


def maze(num_rows: int, steps: int = 100) -> TensorDict:
    """Return rows like a PointMaze's: 27 + 2 + 2 numbers of float64 an observation."""
    draw = partial(torch.randn, dtype=torch.float64)
    rows = {"observation": draw(num_rows, 27), "achieved_goal": draw(num_rows, 2)}
    done = (torch.arange(num_rows) % steps == steps - 1)[:, None]
    goal = draw(num_rows, 2)
    following = {name: values.roll(-1, 0) for name, values in rows.items()} | {
        "desired_goal": goal.clone(),
        "reward": torch.zeros(num_rows, 1),
        "done": done,
        "terminated": torch.zeros_like(done),
        "truncated": done.clone(),
    }
    action = torch.randn(num_rows, 8)
    return TensorDict(
        {**rows, "desired_goal": goal, "action": action, "next": following}, [num_rows]
    )


# Tables of trajectories, loaders, shared rings


def trajectories(run: Run) -> Iterator[Row]:
    """The table of a dataset's trajectories beside one pass over the bytes that it is made from."""
    data = million(run)
    returns = data.rows["next", "reward"].astype(np.float64).reshape(-1, EPISODE_STEPS).sum(1)
    for layout, file in {"compact": "rows.memmap", "ted": "next/reward.memmap"}.items():
        folder, root = data.folder(layout), run.folder / f"table-{layout}"
        read, compute = partial(table_of, folder, root), partial(computed_table_of, folder, root)
        memory = measure.memory_growth(compute)
        yield measure.memory_row("table of trajectories", layout, memory, [folder])
        path = folder / file
        peer = f"bytes of {path.name}"
        np.testing.assert_allclose(read()["return"], returns, atol=1e-9)
        calls = {f"{layout}, computed": compute, f"{layout}, cached": read}
        times = measure.medians_of(calls | {peer: partial(largest, path)}, run.pick(10, 3), "ms")
        yield from measure.rows_of("table of trajectories", times, (peer,), "ms")


def table_of(folder: Path, root: Path) -> dict[str, Any]:
    """Read every column of a dataset's table, which is computed the first time."""
    return dict(datasets_cli.Trajectories(datasets_cli.open_storage(folder), CacheRoot(root)))


def computed_table_of(folder: Path, root: Path) -> dict[str, Any]:
    """Compute every column of a dataset's table."""
    shutil.rmtree(root, ignore_errors=True)
    return table_of(folder, root)


def largest(path: Path) -> Any:
    """Read every byte of a file through a mapping."""
    return np.memmap(path, np.uint64, "r", shape=path.stat().st_size // 8).max()


WAYS = ("prefetch=2", "1 worker", "2 workers")
REPEATED = "one batch repeated"


def loaders(run: Run) -> Iterator[Row]:
    """``sample()`` beside a thread and beside loader workers, idle and with a network that trains.

    Workers have filled their queues before they are timed, and the queues are emptied. The limit is
    the same network on one batch again and again.
    """
    kinds: dict[str, tuple[Any, int]] = {"transitions 256": (million(run).rows, BATCH)}
    if measure.is_installed("ale_py"):
        from benchmarks.layouts import play

        kinds["stacks of 4 frames, 32"] = (play("breakout", run.pick(5000, 1000)), 32)
    for kind, (rows, batch) in kinds.items():
        storage: Any = datasets_cli.open_storage(
            measure.installed("compact", run.folder / f"loader-{batch}", rows)
        )
        storage = datasets_cli.FrameStack(storage, 4) if "frames" in kind else storage
        streams = {way: stream(storage, batch, way) for way in ("sample()", *WAYS)}
        count = run.pick(300, 40)
        for load in (IDLE, WITHIN):
            once = next(streams["sample()"])
            ways, step = streams, lambda _: None
            if load == WITHIN:
                ways, step = streams | {REPEATED: itertools.repeat(once)}, learner(kind)
            times = {way: Figure(each_batch(batches, count, step)) for way, batches in ways.items()}
            yield from measure.rows_of(f"loaders, {kind}", times, [*ways][1:], load=load)


def stream(storage: Any, batch: int, way: str) -> Iterator[Any]:
    """Return endless batches that are made in one of the ways."""
    prefetch = {"prefetch": 2} if way == "prefetch=2" else {}
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=batch, **prefetch)
    if "worker" not in way:
        return (buffer.sample() for _ in itertools.repeat(None))
    return iter(datasets_cli.BatchStream(buffer, sys.maxsize).loader(num_workers=int(way[0])))


def each_batch(batches: Iterator[Any], count: int, step: Callable[[Any], Any]) -> float:
    """Return the microseconds of a batch in a loop that works on each, a median of three turns."""
    rates = []
    for _ in range(3):
        for _ in range(8):  # what workers made while others had their turn
            step(next(batches))
        start = time.perf_counter()
        for _ in range(count):
            step(next(batches))
        rates.append((time.perf_counter() - start) / count * 1e6)
    return statistics.median(rates)


def shared(run: Run) -> Iterator[Row]:
    """Three processes sample a ring that a fourth writes; no batch may have a torn row."""
    found = [
        stress("LazyMemmapStorage", run.pick(20, 3), 3, "fork", writes=writes)
        for writes in (True, False)
    ]
    assert found[0]["torn rows"] == 0 and found[0]["exit codes"] == 0
    rates = [Figure(each["batches a second"]) for each in found]
    yield Row("shared ring, 3 samplers", "1 writer", rates[0], "no writer", rates[1], "1/s")


CASES = {
    "draws": draws,
    "written": written,
    "goals": goals,
    "sequences": sequences,
    "trajectories": trajectories,
    "mixtures": mixtures,
    "views": views,
    "loaders": loaders,
    "shared": shared,
    "jax": jax_scans,
}

if __name__ == "__main__":
    if sys.argv[1:] == ["--learn"]:
        sys.exit(learn())
    measure.run(CASES)
