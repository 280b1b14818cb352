"""The sampler of rows by the weights of members, with replacement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import StateDict
from datasets_cli.replay.draws.mixed_order import bounds_reached
from datasets_cli.replay.draws.protocol import AheadSampler, Info, KindSampler, check_kind
from datasets_cli.replay.mixtures.storage import MixtureStorage
from datasets_cli.replay.mixtures.weights import Weights
from datasets_cli.replay.storages.protocol import Storage


class WeightedRows(KindSampler, AheadSampler):
    """Draws a member by its weight, then a row of it uniformly, with replacement."""

    kind = "weighted rows"

    def __init__(self, weights: Weights) -> None:
        self.weights = weights

    def __repr__(self) -> str:
        return f"WeightedRows({self.weights.state()!r})"

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return row numbers int64 ``[B]``."""
        mixture = mixture_of(storage)
        shares = self.weights.shares(mixture).numpy()
        bounds = mixture.bounds.numpy()
        # Two numbers for each row, one row after the other: as many at once give the same.
        uniform = torch.rand((batch_size, 2), generator=generator, dtype=torch.float64).numpy()
        member = draw_members(shares, uniform[:, 0])
        rows = uniform[:, 1] * np.diff(bounds).take(member)
        return torch.from_numpy(rows.astype(np.int64) + bounds.take(member)), {}

    def ahead(
        self, storage: Storage, batch_size: int, count: int, generator: torch.Generator | None
    ) -> tuple[torch.Tensor, Info] | None:
        """Return the row numbers of ``count`` batches; see ``AheadSampler.ahead``."""
        return None if generator is None else self.sample(storage, count * batch_size, generator)

    def state_dict(self) -> StateDict:
        """Return the weights: what is drawn next is in the generator's state."""
        return super().state_dict() | {"weights": self.weights.state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state`` was taken."""
        check_kind(self.kind, state)
        self.weights.check_state(state)


def draw_members(shares: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Return a member for each number: whole numbers ``[B]`` of a small type."""
    # shares: the part of each member, float64 `[M]` with the sum 1.
    # uniform: float64 `[B]` in [0, 1).
    ends = shares.cumsum()
    last = shares.nonzero()[0][-1]  # none after it is drawn, whatever is lost by rounding
    return bounds_reached(uniform, ends[:last])


def mixture_of(storage: Storage) -> MixtureStorage:
    """Return the storage of a mixture as one."""
    if not isinstance(storage, MixtureStorage):
        raise UsageError(
            f"Weights are those of the members of a Mixture, which a {type(storage).__name__} is "
            "not. Use RandomSampler there."
        )
    return storage
