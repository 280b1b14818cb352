"""What must not change while the house does: the bytes of datasets, and the draws of samplers."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from tensordict import TensorDict

import datasets_cli
from datasets_cli import ExperienceReplay, LazyTensorStorage, ReplayBuffer
from datasets_cli.core.progress import silent

LAYOUTS = ("ted", "compact")
SEEDS = (0, 1, 2)
NUM_BATCHES = 12
OF_RANKS: dict[str, dict[str, Any]] = {
    "RandomSampler": {},
    "SamplerWithoutReplacement": {},
    "PrioritizedSampler": {"max_capacity": 10_000, "alpha": 0.7, "beta": 0.5},
    "SliceSampler": {"slice_len": 8, "traj_key": "episode"},
    "DistributedSampler": {},
    "BlockShuffleSampler": {"block_len": 16, "window": 4},
}
"""Samplers whose draws are compared for each rank, with their arguments."""

NUM_RANKS = (1, 3)
SEEDS_OF_RANKS = range(20)
BATCHES_OF_RANKS = 4
OF_THIS_MACHINE = ("resources", "tool", "digest")
"""What a manifest says of where it was made: paths, a version, and the digest of all that."""

Draws = dict[str, Callable[[int], Any]]


def figures() -> dict[str, Any]:
    """Return the digests of the files of each demo dataset, and of each sampler's draws."""
    with tempfile.TemporaryDirectory() as folder:
        datasets = {layout: dict(installed(Path(folder) / layout, layout)) for layout in LAYOUTS}
        draws = {
            f"{layout} {name}": digest_of(draw)
            for layout in LAYOUTS
            for name, draw in samplers(Path(folder) / layout).items()
        }
        shares = {
            f"{layout} {name}, ranks: {num_ranks}": digest_of_ranks(
                Path(folder) / layout, name, num_ranks
            )
            for layout in LAYOUTS
            for name in OF_RANKS
            for num_ranks in NUM_RANKS
        }
    return {"datasets": datasets, "draws": draws, "draws of ranks": shares}


def installed(root: Path, layout: str) -> Iterator[tuple[str, str]]:
    """Install every demo dataset; yield its id, and the digest of its files and manifest."""
    for record in datasets_cli.list_datasets(family="demo", root=root):
        datasets_cli.download(record.id, layout=layout, root=root, progress=silent)
        folder = datasets_cli.dataset_path(record.id, root=root).path
        digest = hashlib.sha256()
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            digest.update(str(path.relative_to(folder)).encode())
            digest.update(manifest(path) if path.name == "manifest.json" else path.read_bytes())
        yield record.id, digest.hexdigest()[:16]


def manifest(path: Path) -> bytes:
    document = json.loads(path.read_bytes())
    return json.dumps({k: document[k] for k in document if k not in OF_THIS_MACHINE}).encode()


def samplers(root: Path) -> Draws:
    """Return a function from a seed to a buffer, for each way of drawing."""
    door = "demo/door-human"

    def replay(seed: int, **options: Any) -> ExperienceReplay:
        return ExperienceReplay(door, 32, root=root, seed=seed, **options)

    def drawn_by(name: str, *arguments: Any, **options: Any) -> Callable[[int], Any]:
        kind = getattr(datasets_cli, name)
        return lambda seed: replay(seed, sampler=kind(*arguments, **options))

    slices: dict[str, Any] = {"slice_len": 8, "traj_key": "episode"}
    return {
        "uniform": replay,
        "epochs": lambda seed: replay(seed, replacement=False),
        "slices": lambda seed: replay(seed, slice_len=8),
        "slices by number": lambda seed: replay(seed, num_slices=4),
        "slice epochs": lambda seed: replay(seed, slice_len=8, replacement=False),
        "RandomSampler": drawn_by("RandomSampler"),
        "SamplerWithoutReplacement": drawn_by("SamplerWithoutReplacement", drop_last=True),
        "PrioritizedSampler": drawn_by("PrioritizedSampler", 10_000, 0.7, 0.5),
        "PrioritizedSliceSampler": drawn_by("PrioritizedSliceSampler", 10_000, 0.7, 0.5, **slices),
        "SliceSampler": drawn_by("SliceSampler", **slices),
        "SliceSampler, span": drawn_by("SliceSampler", **slices, span=True),
        "SliceSamplerWithoutReplacement": drawn_by("SliceSamplerWithoutReplacement", **slices),
        "BlockShuffleSampler": drawn_by("BlockShuffleSampler", 16, 4),
        "DistributedSampler": drawn_by("DistributedSampler", 3, 1),
        "view": lambda seed: replay(seed).filter("length > 10"),
        "frame stack": lambda seed: replay(seed, frame_stack=4),
        "mixture by weight": lambda seed: mixture(root, seed, weights=[3.0, 1.0]),
        "mixture by rows": lambda seed: mixture(root, seed, weights="rows"),
        "mixture epochs": lambda seed: mixture(root, seed, epoch="all"),
        "mixture slices": lambda seed: mixture(root, seed, slice_len=8),
        "mixture slice epochs": lambda seed: mixture(root, seed, slice_len=8, epoch="first"),
        "offline to online": offline_to_online(root),
        "ensemble": lambda seed: datasets_cli.ReplayBufferEnsemble(
            replay(1), replay(2), batch_size=32, seed=seed
        ),
        "written": written,
        "goals": goals,
    }


def mixture(root: Path, seed: int, **options: Any) -> Any:
    whole = ExperienceReplay("demo/door-human", root=root)
    parts = [whole.episodes_at([number]) for number in (0, 1)]
    return datasets_cli.Mixture(parts, 32, seed=seed, **options)


def offline_to_online(root: Path) -> Callable[[int], Any]:
    def make(seed: int) -> Any:
        offline = ExperienceReplay("demo/door-human", 32, root=root, seed=seed)
        online = ReplayBuffer(storage=LazyTensorStorage(2000), seed=seed)
        online.extend(offline[:500])
        return datasets_cli.OfflineToOnline(offline, online, batch_size=32, seed=seed)

    return make


def written(seed: int) -> ReplayBuffer:
    """Return a ring that was written over, drawn from by priority."""
    sampler = datasets_cli.PrioritizedSampler(100, 0.6, 0.4)
    buffer = datasets_cli.TensorDictReplayBuffer(
        storage=LazyTensorStorage(100), sampler=sampler, batch_size=32, seed=seed
    )
    for first in (0, 70):
        rows = torch.arange(first, first + 70)
        buffer.extend(TensorDict({"a": rows, "td_error": rows % 7 + 0.5}, [70]))
    return buffer


def goals(seed: int) -> ReplayBuffer:
    rows = torch.arange(60)
    ends = (rows % 20 == 19).unsqueeze(1)
    goal = rows.float().unsqueeze(1)
    step = {"achieved_goal": goal, "desired_goal": goal + 100, "observation": goal}
    reached = {**step, "achieved_goal": goal + 1}
    after = {"observation": reached, "reward": -torch.ones(60, 1)}
    flags = {"done": ends, "terminated": torch.zeros_like(ends), "truncated": ends}
    batch = TensorDict(
        {"observation": step, "episode": rows // 20, "next": {**after, **flags}}, [60]
    )
    sampler = datasets_cli.HERSampler(
        lambda achieved, desired, _: -((achieved - desired).abs() > 0.5).float()
    )
    buffer = ReplayBuffer(storage=LazyTensorStorage(60), sampler=sampler, batch_size=32, seed=seed)
    buffer.extend(batch)
    return buffer


def digest_of(make: Callable[[int], Any]) -> str:
    """Return one digest of the batches that a way of drawing gives for all seeds."""
    digest = hashlib.sha256()
    for seed in SEEDS:
        torch.manual_seed(seed)
        buffer = make(seed)
        for _ in range(NUM_BATCHES):
            for key, value in leaves(buffer.sample()):
                digest.update(key.encode() + value.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def digest_of_ranks(root: Path, name: str, num_ranks: int) -> str:
    """Return one digest of the batches that all ranks draw, for all seeds."""
    digest = hashlib.sha256()
    for seed in SEEDS_OF_RANKS:
        for rank in range(num_ranks):
            with rank_of_process(rank, num_ranks):
                sampler = getattr(datasets_cli, name)(**OF_RANKS[name])
                buffer = ExperienceReplay(
                    "demo/door-human", root=root, batch_size=32, seed=seed, sampler=sampler
                )
                for batch in datasets_cli.BatchStream(buffer, BATCHES_OF_RANKS, seed=seed):
                    for key, value in leaves(batch):
                        digest.update(key.encode() + value.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


@contextmanager
def rank_of_process(rank: int, num_ranks: int) -> Iterator[None]:
    """Make ``torch.distributed`` report a rank; samplers ask it for nothing else."""
    reports = {"is_initialized": True, "get_rank": rank, "get_world_size": num_ranks}
    with ExitStack() as patches:
        for name, report in reports.items():
            patches.enter_context(patch.object(torch.distributed, name, return_value=report))
        yield


def leaves(batch: Any) -> Iterator[tuple[str, torch.Tensor]]:
    for part in batch if isinstance(batch, list | tuple) else [batch]:
        named = part.flatten_keys(".") if hasattr(part, "flatten_keys") else part
        for key in sorted(named.keys()):
            if isinstance(value := named.get(key), torch.Tensor):
                yield key, value
