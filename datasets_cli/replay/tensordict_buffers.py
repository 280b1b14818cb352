"""Replay buffers of TensorDicts: a batch says how it was drawn, and priorities go back by that."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase

from datasets_cli.errors import UsageError
from datasets_cli.replay.buffers import DEFAULT_SIZE, ReplayBuffer
from datasets_cli.replay.list_storage import ListStorage
from datasets_cli.replay.prioritized import PrioritizedSampler
from datasets_cli.replay.rows import numbers_of
from datasets_cli.replay.samplers import Info
from datasets_cli.store.tree import Tree


class TensorDictReplayBuffer(ReplayBuffer):
    """A replay buffer whose batches also carry ``index`` and the sampler's marks.

    Args:
        priority_key: the entry that ``update_tensordict_priority`` reads.
        arguments: those of ``ReplayBuffer``.
    """

    def __init__(self, *, priority_key: str = "td_error", **arguments: Any) -> None:
        super().__init__(**arguments)
        self.priority_key = priority_key

    def extend(self, data: Any, update_priority: bool | None = None) -> torch.Tensor:
        """Write rows ``[n]``; see ``ReplayBuffer.extend``.

        Args:
            data: a TensorDict, or a list of them.
            update_priority: take the rows' priorities from ``priority_key``; where it is there, by
                default.
        """
        if not isinstance(data, TensorDictBase) and not isinstance(data, list):
            raise UsageError(f"This buffer takes TensorDicts, not {type(data).__name__}.")
        index = super().extend(data)
        known = isinstance(data, TensorDictBase) and self.priority_key in data
        if known and update_priority is not False:
            self.update_priority(index, data[self.priority_key])
        return index

    def update_tensordict_priority(self, batch: TensorDictBase) -> None:
        """Give the rows of a batch the priorities in its entry ``priority_key``.

        Raises:
            UsageError: it has none.
        """
        priority = batch.get(self.priority_key, None)
        if priority is None:
            raise UsageError(f"The batch has no {self.priority_key!r} to take priorities from.")
        self.update_priority(batch["index"], priority)

    def _describe(self, tree: Tree, index: torch.Tensor, info: Info) -> None:
        storage = self.storage
        tree["index"] = numbers = index if storage.ndim == 1 else numbers_of(storage, index)
        if inner := storage.inner:  # each row is of a shape of its own
            numbers = numbers.view(-1, *[1] * len(inner), *numbers.shape[1:])
            tree["index"] = numbers.expand(-1, *inner, *numbers.shape[1 + len(inner) :])
        for (*path, name), mark in info.items():
            node: Tree = tree
            for part in path:
                node = node.setdefault(part, {})
            node[name] = mark
            if name == "truncated":
                node["done"] = node["done"] | mark if "done" in node else mark.clone()
                if "terminated" not in node:
                    node["terminated"] = torch.zeros_like(mark)


class PrioritizedReplayBuffer(ReplayBuffer):
    """A replay buffer that draws rows in proportion to their priority.

    Args:
        alpha: how much priorities matter.
        beta: how much importance weights correct for it.
        eps: added to every priority.
        dtype: of the importance weights.
        arguments: those of ``ReplayBuffer``.
    """

    def __init__(
        self,
        *,
        alpha: float,
        beta: float,
        eps: float = 1e-8,
        dtype: torch.dtype = torch.float,
        storage: Any = None,
        **arguments: Any,
    ) -> None:
        storage = ListStorage(DEFAULT_SIZE) if storage is None else storage
        sampler = PrioritizedSampler(storage.max_size, alpha, beta, eps, dtype)
        super().__init__(storage=storage, sampler=sampler, **arguments)


class TensorDictPrioritizedReplayBuffer(TensorDictReplayBuffer):
    """A buffer of TensorDicts that draws rows in proportion to their priority.

    Args:
        alpha: how much priorities matter.
        beta: how much importance weights correct for it.
        eps: added to every priority.
        reduction: how several numbers a row become one priority.
        arguments: those of ``TensorDictReplayBuffer``.
    """

    def __init__(
        self,
        *,
        alpha: float,
        beta: float,
        eps: float = 1e-8,
        reduction: str = "max",
        storage: Any = None,
        **arguments: Any,
    ) -> None:
        storage = ListStorage(DEFAULT_SIZE) if storage is None else storage
        sampler = PrioritizedSampler(storage.max_size, alpha, beta, eps, reduction=reduction)
        super().__init__(storage=storage, sampler=sampler, **arguments)
