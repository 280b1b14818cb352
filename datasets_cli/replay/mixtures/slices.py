"""Samplers of slices by the weights of members."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import StateDict
from datasets_cli.replay.draws.protocol import Info, check_kind
from datasets_cli.replay.draws.slices import Slices
from datasets_cli.replay.draws.slicing import Slicing
from datasets_cli.replay.draws.windows import SliceWindows
from datasets_cli.replay.mixtures.storage import MixtureStorage
from datasets_cli.replay.mixtures.uniform import draw_members, mixture_of
from datasets_cli.replay.mixtures.weights import Weights
from datasets_cli.replay.storages.protocol import Storage


def windows_by_member(
    mixture: MixtureStorage, windows: SliceWindows, shares: torch.Tensor
) -> torch.Tensor:
    """Return where the trajectories of each member begin among those that slices are drawn from."""
    # shares: the part of each member, float64 `[M]`.
    # int64 `[M + 1]`.
    first_rows = windows.first_rows()
    begins = torch.searchsorted(first_rows, mixture.bounds)
    lacking = (begins.diff() == 0) & (shares > 0)
    if bool(lacking.any()):
        names = [mixture.names[member] for member in lacking.nonzero().flatten().tolist()]
        raise UsageError(
            f"{', '.join(names)}: no trajectory is long enough for a slice, and the weights ask "
            "for some. Ask for shorter slices, pass strict_length=False, or give it the weight 0."
        )
    return begins


class WeightedSlices(Slices):
    """Draws a member by its weight, then a slice of it as ``Slices`` does."""

    kind = "weighted slices"

    def __init__(self, weights: Weights, slicing: Slicing) -> None:
        super().__init__(slicing)
        self.weights = weights

    def __repr__(self) -> str:
        return f"WeightedSlices({self.weights.state()!r}, {self.slicing!r})"

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return row numbers int64 ``[B]``, slice after slice, and the marks of slice ends."""
        num_slices, slice_len = self.slicing.shape(batch_size)
        windows = self.slicing.windows(storage, slice_len)
        return self._cut(storage, windows, num_slices, generator)

    def ahead(
        self, storage: Storage, batch_size: int, count: int, generator: torch.Generator | None
    ) -> tuple[torch.Tensor, Info] | None:
        """Return the rows of ``count`` batches; see ``AheadSampler.ahead``."""
        # None where slices may be shorter than others.
        if generator is None:
            return None
        num_slices, slice_len = self.slicing.shape(batch_size)
        windows = self.slicing.windows(storage, slice_len)
        if not (windows.are_full or self.slicing.pad_output):
            return None
        return self._cut(storage, windows, count * num_slices, generator)

    def _cut(
        self, storage: Storage, windows: SliceWindows, count: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        mixture = mixture_of(storage)
        shares = self.weights.shares(mixture)
        begins = windows_by_member(mixture, windows, shares).numpy()
        # Three numbers for each slice, one slice after the other: as many at once give the same.
        uniform = torch.rand((count, 3), generator=generator, dtype=torch.float64)
        member = draw_members(shares.numpy(), uniform[:, 0].numpy())
        number = uniform[:, 1].numpy() * np.diff(begins).take(member)
        drawn = torch.from_numpy(number.astype(np.int64) + begins.take(member))
        return self.slicing.cut(storage, windows, drawn, uniform[:, 2].clone())

    def state_dict(self) -> StateDict:
        """Return the weights: what is drawn next is in the generator's state."""
        return super().state_dict() | {"weights": self.weights.state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state`` was taken."""
        check_kind(self.kind, state)
        self.weights.check_state(state)
