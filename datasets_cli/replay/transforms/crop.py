"""Random crops: a run of steps out of each row of a batch of trajectories."""

from __future__ import annotations

import torch
from tensordict import TensorDict

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import NestedKey, optional_key, whole_number
from datasets_cli.replay.transforms.key_map import required_entry
from datasets_cli.replay.transforms.transform import Transform


class RandomCropTensorDict(Transform):
    """Cuts runs of equal length out of trajectories, each row's start drawn for itself.

        row, 5 steps    a b c d e
        crops of 3      a b c · b c d · c d e        each with probability 1/3

    Args:
        sub_seq_len: steps in a crop.
        sample_dim: the dimension of time; negative counts from the last of the batch.
        mask_key: where a mask ``[*B, T]`` of valid steps is, first those and then padding;
            crops then have no padding. A batch without it is taken as valid throughout.
        generator: draws the starts; torch's global generator by default.

    Raises:
        UsageError: ``sub_seq_len`` is no whole number from 1 on.
    """

    def __init__(
        self,
        sub_seq_len: int,
        sample_dim: int = -1,
        mask_key: NestedKey | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        self.sub_seq_len = whole_number("sub_seq_len", sub_seq_len, 1)
        self.sample_dim = sample_dim
        self.mask_key = optional_key(mask_key)
        self.generator = generator

    def __call__(self, batch: TensorDict) -> TensorDict:
        """Return the crops: the batch's shape, but ``sub_seq_len`` along the dimension of time."""
        if not -batch.ndim <= self.sample_dim < batch.ndim:
            raise UsageError(
                f"A batch {list(batch.batch_size)} has no dimension {self.sample_dim}."
            )
        dim = self.sample_dim % batch.ndim
        lengths = self._lengths(batch, dim)
        if not lengths.numel() or int(lengths.min()) < self.sub_seq_len:
            raise UsageError(
                f"Crops of {self.sub_seq_len} steps need rows of that many or more along dimension "
                f"{self.sample_dim}; found a batch {list(batch.batch_size)}"
                + (f" with a row of {int(lengths.min())}." if lengths.numel() else ".")
            )
        device = None if self.generator is None else self.generator.device
        # float64: a float32 cannot name every start in a row above 2**24 steps.
        chance = torch.rand(
            lengths.shape, dtype=torch.float64, generator=self.generator, device=device
        ).to(lengths.device)
        start = (chance * (lengths - self.sub_seq_len + 1)).long()
        steps = torch.arange(self.sub_seq_len, device=lengths.device)
        steps = steps.view([-1 if axis == dim else 1 for axis in range(batch.ndim)])
        return batch.gather(dim=dim, index=start + steps)

    def _lengths(self, batch: TensorDict, dim: int) -> torch.Tensor:
        """Return the valid steps of each row, int64, with size 1 along the dimension of time."""
        if self.mask_key is None or batch.get(self.mask_key, None) is None:
            shape = [1 if axis == dim else size for axis, size in enumerate(batch.batch_size)]
            return torch.full(shape, batch.batch_size[dim], device=batch.device)
        mask = required_entry(batch, self.mask_key, "RandomCropTensorDict")
        if mask.shape != batch.batch_size:
            raise UsageError(
                f"The mask must have the batch's shape {list(batch.batch_size)}, not "
                f"{list(mask.shape)}."
            )
        return mask.sum(dim, keepdim=True)
