"""The same calls made to both libraries: ours, and TorchRL 0.14.1 as the oracle."""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from tensordict import TensorDict, TensorDictBase

from tests.support import public_names

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl.data import replay_buffers

logging.getLogger("torchrl").setLevel(logging.WARNING)

ours = public_names.EVERYTHING
theirs: Any = replay_buffers

CAPACITY = 8  # rows of most storages: few, so that every row that can be drawn soon is
LEAVES: list[tuple[torch.dtype, tuple[int, ...]]] = [
    (torch.bool, ()),
    (torch.uint8, (2, 3)),
    (torch.int64, (1,)),
    (torch.float32, (2,)),
    (torch.float64, ()),
]
KEYS: list[Any] = ["a", ("b", "c"), ("b", "d", "e")]
FIXED = (0, 1, 4)  # the leaves of ``full_rows``


@dataclass(frozen=True)
class Calls:
    """A sequence of writes of rows, or steps; a size of 0 is one by ``add``.

    ``leaves`` are those of ``LEAVES`` that the rows have under each of ``KEYS``.
    """

    sizes: list[int]
    seed: int
    leaves: tuple[int, ...] = FIXED

    def rows(self, width: int | None = None) -> list[TensorDict]:
        """The rows of each call ``[n]``, or of several environments ``[width, n]``."""
        generator = torch.Generator().manual_seed(self.seed)
        counts = [max(1, size) for size in self.sizes]
        return [self._some(sum(counts[:i]), n, width, generator) for i, n in enumerate(counts)]

    def write(self, buffer: Any, width: int | None = None) -> list[Any]:
        found = []
        for size, rows in zip(self.sizes, self.rows(width), strict=True):
            number = buffer.extend(rows) if size else buffer.add(rows[..., 0])
            found.append(number.tolist() if isinstance(number, torch.Tensor) else number)
        return found

    def _some(self, start: int, count: int, width: int | None, generator: Any) -> TensorDict:
        shape = (count,) if width is None else (width, count)
        number = torch.arange(start, start + count).expand(shape).clone()
        if width is not None:
            number += 1000 * torch.arange(width).unsqueeze(1)
        rows = TensorDict({"number": number}, shape)
        for key, leaf in zip(KEYS, self.leaves, strict=True):
            dtype, inner = LEAVES[leaf]
            rows[key] = torch.randint(0, 2, (*shape, *inner), generator=generator).to(dtype)
        rows["next", "done"] = torch.rand((*shape, 1), generator=generator) < 0.3
        rows["next", "reward"] = torch.randint(6, (*shape, 1), generator=generator).float()
        return rows


def calls(fewest: int = 0) -> st.SearchStrategy[Calls]:
    """Random calls; the first writes two rows at least, each other one ``fewest``."""
    return st.builds(
        Calls,
        sizes=st.builds(
            lambda first, more: [first, *more],
            st.integers(2, 4),
            st.lists(st.integers(fewest, 4), max_size=5),
        ),
        seed=st.integers(0, 2**32),
        leaves=st.tuples(*[st.integers(0, len(LEAVES) - 1) for _ in KEYS]),
    )


def full_rows() -> TensorDict:
    """The rows ``[CAPACITY]`` that a storage is made of; the last ends a trajectory."""
    rows = Calls([CAPACITY], 7).rows()[0]
    rows["number"] += 5000
    rows["next", "done"][-1] = True
    return rows


def kept(buffer: Any) -> TensorDict:
    return buffer[:].exclude("index", "priority_weight")


def form(batch: Any) -> dict[Any, Any]:
    """Keys, shapes and dtypes of a batch or of its info, and the batch size.

    TorchRL says ``index`` in several ways: ``[N]``; for slices ``[N, 1]`` in a batch; and in info a
    tuple of one tensor for each dimension. Here, and in all that is ours, it is one: ``[N]``, or
    ``[N, ndim]``.
    """
    is_batch = isinstance(batch, TensorDictBase)
    leaves = dict(batch.items(True, True)) if is_batch else dict(batch)
    if "index" in leaves:
        index = leaves["index"]
        index = torch.stack(index, -1) if isinstance(index, tuple) else index
        leaves["index"] = index.squeeze(-1) if index.ndim == 2 else index
    found = {key: (tuple(leaf.shape), leaf.dtype) for key, leaf in leaves.items()}
    return found | ({"": tuple(batch.batch_size)} if is_batch else {})


def same(one: TensorDict, other: TensorDict) -> bool:
    return form(one) == form(other) and bool((one == other).all())
