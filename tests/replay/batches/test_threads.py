"""No operation on the way to a batch is one that torch shares among its threads and waits for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torch.utils._python_dispatch import TorchDispatchMode

import datasets_cli as rlds
from datasets_cli.replay.storages.sequences import Sequences
from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.ted_writer import TedWriter
from tests.store.test_compact import pixel_rows, write

SHARED_FROM = 32_768
"""Elements of an operation from which on torch's threads take part in it."""
NUM_ROWS, WIDTH, BATCH = 3000, 40, 2048
NOTHING_COPIED = {"aten.empty.memory_format", "aten.unsafe_split_with_sizes.default"}
Operations = list[tuple[str, int]]


class Counted(TorchDispatchMode):
    """Notes the operations that read or write memory, with the elements of each."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: Operations = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        returns = func._schema.returns
        is_view = any(each.alias_info and not each.alias_info.is_write for each in returns)
        if not is_view and str(func) not in NOTHING_COPIED:
            parts = result if isinstance(result, tuple | list) else [result]
            sizes = [part.numel() for part in parts if isinstance(part, torch.Tensor)]
            self.operations.append((str(func), max(sizes, default=0)))
        return result


def operations_of(sample: Callable[[], Any], calls: int = 40) -> list[Operations]:
    each = []
    for _ in range(calls):
        with Counted() as counted:
            sample()
        each.append(counted.operations)
    return each


def shared(calls: list[Operations]) -> set[str]:
    return {name for call in calls for name, size in call if size >= SHARED_FROM}


def vectors() -> dict[tuple[str, ...], np.ndarray]:
    rng = np.random.default_rng(0)
    done = (np.arange(NUM_ROWS) % 100 == 99)[:, None]
    none = np.zeros_like(done)
    rows = {
        ("action",): rng.normal(size=(NUM_ROWS, WIDTH)).astype(np.float32),
        ("next", "reward"): rng.normal(size=(NUM_ROWS, 1)).astype(np.float32),
        ("done",): none,
        ("terminated",): none,
        ("truncated",): none,
        ("next", "done"): done,
        ("next", "terminated"): none,
        ("next", "truncated"): done,
    }
    for name in ("observation", "info"):
        steps = rng.normal(size=(NUM_ROWS + 1, WIDTH)).astype(np.float32)
        rows[name,], rows["next", name] = steps[:-1], steps[1:].copy()
    rows["constant",] = np.full((NUM_ROWS, WIDTH), 3, np.float32)
    return rows


@pytest.fixture(scope="module")
def storages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("rows")
    frames = pixel_rows([700, 1, 900])
    for name, kind in {"ted": TedWriter, "compact": CompactWriter}.items():
        write(kind, folder / name, vectors(), 500)
        write(kind, folder / f"{name} frames", frames, 500)
    opened = {path.name: rlds.open_storage(path) for path in sorted(Path(folder).iterdir())}
    memory = rlds.LazyTensorStorage(NUM_ROWS)
    rlds.TensorDictReplayBuffer(storage=memory, batch_size=1).extend(
        TensorDict(
            {key: torch.from_numpy(rows) for key, rows in vectors().items()},
            [NUM_ROWS],
        )
    )
    return opened | {"memory": memory}


SAMPLERS: dict[str, Callable[[int], Any]] = {
    "uniform": lambda size: rlds.RandomSampler(),
    "each once": lambda size: rlds.SamplerWithoutReplacement(),
    "in blocks": lambda size: rlds.BlockShuffleSampler(block_len=64),
    "slices": lambda size: rlds.SliceSampler(slice_len=32, end_key=("next", "done")),
    "slices once": lambda size: rlds.SliceSamplerWithoutReplacement(slice_len=32),
    "priorities": lambda size: rlds.PrioritizedSampler(size, 0.7, 0.5),
}


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("name", ["ted", "compact", "ted frames", "compact frames", "memory"])
def test_no_batch_waits_for_threads_of_torch(
    name: str, sampler: str, storages: dict[str, Any]
) -> None:
    storage = storages[name]
    size = 64 if "frames" in name else BATCH
    replay = rlds.TensorDictReplayBuffer(
        storage=storage, sampler=SAMPLERS[sampler](len(storage)), batch_size=size
    )
    calls = operations_of(replay.sample, 8)
    assert shared(calls) == set()


def buffer_of(kind: str, storages: dict[str, Any]) -> Any:
    """Return a buffer whose batches are put together of several parts."""
    each = {name: {"storage": storage, "batch_size": BATCH} for name, storage in storages.items()}
    members = [rlds.TensorDictReplayBuffer(**each[name]) for name in ("compact", "ted", "memory")]
    match kind:
        case "mixture of records":
            return rlds.Mixture([members[0], members[0]], weights=[1, 2], batch_size=BATCH)
        case "mixture of layouts":
            return rlds.Mixture(members[:2], weights=[1, 2], batch_size=BATCH)
        case "list":
            rows = rlds.ReplayBuffer(storage=rlds.ListStorage(100), batch_size=64)
            rows.extend([TensorDict({"frame": torch.zeros(84, 84)}) for _ in range(100)])
            return rows
        case "ensemble":
            return rlds.ReplayBufferEnsemble(*members, batch_size=3 * BATCH)
        case "frame stacks":
            stacks = rlds.FrameStack(storages["ted frames"], 4, padding="zeros")
            return rlds.TensorDictReplayBuffer(storage=stacks, batch_size=32)
        case "packed frame stacks":
            stacks = rlds.FrameStack(storages["compact frames"], 4, padding="zeros")
            return rlds.TensorDictReplayBuffer(storage=stacks, batch_size=32)
        case "sequences":
            sequences = Sequences(storages["ted"], 20)
            return rlds.TensorDictReplayBuffer(storage=sequences, batch_size=64)
    return rlds.TensorDictReplayBuffer(**each["ted"], format="numpy")


@pytest.mark.parametrize(
    "kind",
    [
        *("mixture of records", "mixture of layouts", "ensemble"),
        *("frame stacks", "packed frame stacks", "sequences", "numpy", "list"),
    ],
)
def test_no_batch_that_is_put_together_waits(kind: str, storages: dict[str, Any]) -> None:
    assert shared(operations_of(buffer_of(kind, storages).sample, 8)) == set()


@pytest.mark.parametrize("name", ["ted", "compact", "memory"])
def test_torch_draws_the_rows_of_a_batch_and_does_nothing_else(
    name: str, storages: dict[str, Any]
) -> None:
    replay = rlds.TensorDictReplayBuffer(storage=storages[name], batch_size=BATCH)
    replay.sample()  # a generator of the buffer's own is seeded
    for call in operations_of(replay.sample, 4):
        assert {name for name, _ in call} <= {"aten.randint.generator"}


def test_an_operation_that_is_shared_is_counted() -> None:
    rows, index = torch.zeros(4, SHARED_FROM), torch.tensor([1])
    assert shared(operations_of(lambda: rows.index_select(0, index), 1)) == {
        "aten.index_select.default"
    }
