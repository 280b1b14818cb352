"""The replay parts of TorchRL's training scripts, and a plain model of what their buffers hold."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict

from tests.support import public_names

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl.data import datasets, replay_buffers
    from torchrl.envs import transforms

FRAMES, BATCH, CAPACITY = 12, 16, 30  # a call of the collector, a batch, a buffer
ALPHA, BETA, EPS = 0.7, 0.5, 1e-8


class Theirs:
    """TorchRL's names, wherever they are, as ours are found in one place."""

    def __getattr__(self, name: str) -> Any:
        for module in (replay_buffers, datasets, transforms):
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(name)


LIBRARIES: dict[str, Any] = {"ours": public_names.EVERYTHING, "theirs": Theirs()}


def rows_of(number: torch.Tensor, pixels: bool = False) -> TensorDict:
    """The transitions ``[*B]`` of a collector that have these numbers, int64 ``[*B]``."""
    state = number.unsqueeze(-1) + torch.arange(4) / 4
    frame = (number.reshape(*number.shape, 1, 1) % 251).expand(*number.shape, 5, 5)
    observed = (lambda ahead: (frame + ahead).to(torch.uint8)) if pixels else state.__add__
    done = (number % 7 == 6).unsqueeze(-1)
    flags = {"done": done, "terminated": done & (number % 2 == 0).unsqueeze(-1)}
    flags["truncated"] = flags["done"] & ~flags["terminated"]
    key = "pixels" if pixels else "observation"
    rows = {
        "number": number,
        key: observed(0),
        "action": state[..., :2].sin(),
        "collector": {"traj_ids": number // 7},
        "next": {key: observed(1), "reward": state[..., :1].cos(), **flags},
        **{name: torch.zeros_like(flag) for name, flag in flags.items()},
    }
    return TensorDict(rows, number.shape)


def collected(call: int, pixels: bool = False) -> TensorDict:
    """What two environments side by side give ``[2, FRAMES / 2]``."""
    steps = FRAMES // 2
    time = torch.arange(call * steps, (call + 1) * steps)
    return rows_of(torch.stack([time, time + 70_000]), pixels)


@dataclass
class Ring:
    """What a buffer holds, as a list: the number of each row, and its priority."""

    numbers: list[int] = field(default_factory=list)
    priorities: list[float] = field(default_factory=list)
    cursor: int = 0
    highest: float = 1.0

    def extend(self, numbers: list[int]) -> None:
        for number in numbers:
            if len(self.numbers) < CAPACITY:
                self.numbers.append(-1)
                self.priorities.append(-1)
            self.numbers[self.cursor] = number
            self.priorities[self.cursor] = self.highest
            self.cursor = (self.cursor + 1) % CAPACITY

    def update(self, rows: list[int], priorities: list[float]) -> None:
        for row, priority in zip(rows, priorities, strict=True):
            self.priorities[row] = priority
        self.highest = max(self.highest, *priorities)

    def weights(self, rows: list[int]) -> list[float]:
        """Importance weights: the row of the lowest priority has 1."""
        masses = [(priority + EPS) ** ALPHA for priority in self.priorities]
        return [(masses[row] / min(masses)) ** -BETA for row in rows]


def to_device(batch: TensorDict) -> TensorDict:
    return batch.to("cpu")


Make = Callable[[Any, Path, int | None], Any]


def _plain(storage: Callable[[Any, Path], Any], moves: bool = False, **words: Any) -> Make:
    def make(library: Any, folder: Path, prefetch: int | None) -> Any:
        buffer = library.TensorDictReplayBuffer(
            pin_memory=False,
            prefetch=prefetch,
            storage=storage(library, folder),
            batch_size=BATCH,
            **words,
        )
        if moves:
            buffer.append_transform(to_device)
        return buffer

    return make


def _prioritised(storage: Callable[[Any, Path], Any], **words: Any) -> Make:
    def make(library: Any, folder: Path, prefetch: int | None) -> Any:
        return library.TensorDictPrioritizedReplayBuffer(
            alpha=ALPHA,
            beta=BETA,
            pin_memory=False,
            prefetch=prefetch,
            storage=storage(library, folder),
            batch_size=BATCH,
            **words,
        )

    return make


def _memory(library: Any, folder: Path) -> Any:
    return library.LazyTensorStorage(CAPACITY, device="cpu")


def _partial(library: Any, folder: Path) -> Any:
    storage_cls = functools.partial(library.LazyTensorStorage, device="cpu", compilable=False)
    return storage_cls(CAPACITY)


def _files(library: Any, folder: Path) -> Any:
    return library.LazyMemmapStorage(CAPACITY, scratch_dir=str(folder / "rb"), device="cpu")


def _temporary(library: Any, folder: Path) -> Any:
    return library.LazyMemmapStorage(CAPACITY)


ONLINE: dict[str, Make] = {
    "sac": _plain(_partial, compilable=False),
    "sac, by priority": _prioritised(_files),
    "td3": _plain(_files, moves=True),
    "td3, by priority": _prioritised(_memory),
    "ddpg": _plain(_temporary),
    "redq": _plain(_files, moves=True, generator=None, delayed_init=False),
    "redq, by priority": _prioritised(_temporary, priority_key="td_error", reduction="max"),
    "crossq": _plain(_memory, shared=False),
    "discrete sac": _plain(_temporary, moves=True),
    "discrete sac, by priority": _prioritised(_files, shared=False, compilable=False),
    "iql, online": _plain(_partial),
    "cql, online, by priority": _prioritised(_memory, dim_extend=0),
    "dqn of cartpole": _plain(_partial, dim_extend=0),
    "dqn of atari": _plain(_files, moves=True),
}
"""How each script that collects makes its buffer; a row is stored for each frame."""
