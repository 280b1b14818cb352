"""Transforms of frames."""

from __future__ import annotations

import torch
from tensordict import TensorDict

from datasets_cli.replay.arguments import NestedKeys
from datasets_cli.replay.transforms.key_map import KeyMap
from datasets_cli.replay.transforms.transform import Transform


class ToTensorImage(Transform):
    """Makes frames ``[..., height, width, channels]`` into ``[..., channels, height, width]``.

    Args:
        from_int: divide by 255; where None, exactly if the entry is of integers.
        unsqueeze: give a single frame a leading dimension of size 1.
        dtype: of the result; torch's default by default.
        in_keys: entries that are read; ``"pixels"`` by default.
        out_keys: where the results go; ``in_keys`` by default.
        shape_tolerant: leave the order of frames alone that do not end in 3 channels.
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
        self._frames = KeyMap("ToTensorImage", ["pixels"] if in_keys is None else in_keys, out_keys)

    def __call__(self, batch: TensorDict) -> TensorDict:
        """Turn frames of the batch, and return it."""
        return self._frames.apply(batch, self._turn)

    def _turn(self, frame: torch.Tensor) -> torch.Tensor:
        if not self.shape_tolerant or frame.shape[-1] == 3:
            frame = frame.movedim(-1, -3)
        divide = not frame.is_floating_point() if self.from_int is None else self.from_int
        frame = (frame.div(255) if divide else frame).to(self.dtype)
        return frame.unsqueeze(0) if self.unsqueeze and frame.ndim == 3 else frame
