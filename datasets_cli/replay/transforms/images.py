"""Transforms of pictures."""

from __future__ import annotations

import torch
from tensordict import TensorDict

from datasets_cli.replay.arguments import NestedKeys
from datasets_cli.replay.transforms.transform import KeyMap


class ToTensorImage:
    """Makes pictures ``[..., height, width, channels]`` into ``[..., channels, height, width]``.

    Args:
        from_int: divide by 255; where None, exactly if the entry is of integers.
        unsqueeze: give a single picture a leading dimension of size 1.
        dtype: of the result; torch's default by default.
        in_keys: entries that are read; ``"pixels"`` by default.
        out_keys: where the results go; ``in_keys`` by default.
        shape_tolerant: leave the order of pictures alone that do not end in 3 channels.
    """

    def __init__(
        self,
        from_int: bool | None = None,
        unsqueeze: bool = False,
        dtype: torch.dtype | None = None,
        *,
        in_keys: NestedKeys | None = None,
        out_keys: NestedKeys | None = None,
        shape_tolerant: bool = False,
    ) -> None:
        self.from_int = from_int
        self.unsqueeze = unsqueeze
        self.dtype = torch.get_default_dtype() if dtype is None else dtype
        self.shape_tolerant = shape_tolerant
        self._pictures = KeyMap(
            "ToTensorImage", ["pixels"] if in_keys is None else in_keys, out_keys
        )

    def __call__(self, batch: TensorDict) -> TensorDict:
        """Turn pictures of the batch, and return it."""
        return self._pictures.apply(batch, self._turn)

    def _turn(self, picture: torch.Tensor) -> torch.Tensor:
        if not self.shape_tolerant or picture.shape[-1] == 3:
            picture = picture.movedim(-1, -3)
        divide = not picture.is_floating_point() if self.from_int is None else self.from_int
        picture = (picture.div(255) if divide else picture).to(self.dtype)
        return picture.unsqueeze(0) if self.unsqueeze and picture.ndim == 3 else picture
