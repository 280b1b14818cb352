"""Transforms of frames: scaling, order of dimensions, cropping, resizing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from tensordict import TensorDict

from datasets_cli.errors import WrongRows, WrongSize, wrong_value
from datasets_cli.replay.arguments import NestedKeys, whole_number
from datasets_cli.replay.transforms.transform import KeyMap, Transform, required_entry
from datasets_cli.schema.columns import Key, show_key, wrong_column

WEIGHT_BITS = 22
BLOCK_NUMBERS = 1 << 20
"""Numbers of the input that are resampled at once."""


@dataclass(frozen=True)
class Taps:
    """The neighbours of each output pixel along one dimension."""

    # pixels: numbers of input pixels, int64 `[out, k]`.
    # weights: float64 `[out, k]`, each row with the sum 1; 0 pads rows of fewer neighbours.

    pixels: torch.Tensor
    weights: torch.Tensor


@lru_cache(maxsize=64)
def taps_of(size_in: int, size_out: int) -> Taps:
    """Return the neighbours and weights of a triangle filter that covers every input pixel."""
    # 4 pixels to 2, reach 2     input    0  1  2  3      middles of the output 1.0 and 3.0
    #                            row 0    .  .  .         neighbours of output pixel 0
    #                            row 1       .  .  .
    scale = size_in / size_out
    reach = max(scale, 1.0)  # pixels to either side of the middle of an output pixel
    middles = (np.arange(size_out) + 0.5) * scale
    firsts = np.maximum((middles - reach + 0.5).astype(np.int64), 0)
    ends = np.minimum((middles + reach + 0.5).astype(np.int64), size_in)
    pixels = firsts[:, None] + np.arange(int((ends - firsts).max()))
    # The middle of pixel n is at n + 0.5.
    weights = np.maximum(1.0 - np.abs((pixels - middles[:, None] + 0.5) * (1.0 / reach)), 0.0)
    weights[pixels >= ends[:, None]] = 0.0
    # A running sum has the same order on every machine; the order of sum() varies.
    weights *= 1.0 / np.cumsum(weights, axis=1)[:, -1:]
    return Taps(torch.from_numpy(np.minimum(pixels, size_in - 1)), torch.from_numpy(weights))


def resampled(frames: torch.Tensor, size: int, dim: int) -> torch.Tensor:
    """Return frames of the same dtype with ``size`` pixels along a dimension."""
    # frames: uint8 or floating point, `[..., H, W]` at least.
    if frames.shape[dim] == size:
        return frames
    if dim == -1:  # gathering whole rows is faster than single numbers
        return resampled(frames.mT.contiguous(), size, -2).mT.contiguous()
    taps = taps_of(frames.shape[dim], size)
    # [n, pixels, ...] in blocks, so that the sums stay in the processor's cache.
    flat = frames.reshape(frames.shape[:dim].numel(), *frames.shape[dim:])
    resized = flat.new_empty(len(flat), size, *flat.shape[2:])
    count = max(1, BLOCK_NUMBERS // max(1, flat[:1].numel()))
    for start in range(0, len(flat), count):
        resized[start : start + count] = _summed(flat[start : start + count], taps)
    return resized.view(*frames.shape[:dim], *resized.shape[1:])


def _summed(frames: torch.Tensor, taps: Taps) -> torch.Tensor:
    """Return frames ``[n, out, ...]`` of frames ``[n, in, ...]``."""
    if frames.dtype != torch.uint8:
        return _weighted(frames, taps.pixels, taps.weights)
    weights = (taps.weights * (1 << WEIGHT_BITS) + 0.5).to(torch.int32)
    # Fixed point: weights times 2**22, and a half to round. The sum is at most 255.5 * 2**22, which
    # fits into int32.
    total = _weighted(frames, taps.pixels, weights).add_(1 << (WEIGHT_BITS - 1))
    return total.bitwise_right_shift_(WEIGHT_BITS).clamp_(0, 255)


def _weighted(frames: torch.Tensor, pixels: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the weighted sums ``[n, out, ...]``, in the dtype of the weights."""
    pixels, weights = pixels.to(frames.device), weights.to(frames.device)
    beside = [1] * (frames.ndim - 2)
    total = None
    for tap in range(pixels.shape[1]):
        term = frames.index_select(1, pixels[:, tap]).to(weights.dtype)
        term *= weights[:, tap].view(-1, *beside)
        total = term if total is None else total.add_(term)
    assert total is not None, "each output pixel has a neighbour"
    return total


OBSERVATIONS: list[tuple[str, ...]] = [("observation",), ("next", "observation")]
NUM_CHANNELS = (1, 3, 4)  # grey, colour, colour with transparency


class ScaledFloatFrame(Transform):
    """Divides uint8 frames by 255: floats from 0 to 1 of the same shape.

    >>> batch = TensorDict({"observation": torch.full((2, 4, 84, 84), 51, dtype=torch.uint8)}, [2])
    >>> ScaledFloatFrame(in_keys="observation")(batch)["observation"][0, 0, 0, 0]
    tensor(0.2000)

    Frames ``[..., H, W]``, stacks ``[..., n, H, W]`` and frames with channels keep the order of
    their dimensions; ``ToTensorImage`` moves channels first.

    Args:
        in_keys: keys of frames; ``"observation"`` and ``("next", "observation")`` by default.
        out_keys: keys of the results; ``in_keys`` by default.
        dtype: a floating point dtype; torch's default dtype by default.

    Raises:
        UsageError: ``dtype`` is an integer dtype, or the numbers of keys differ.
    """

    def __init__(
        self,
        in_keys: NestedKeys | None = None,
        out_keys: NestedKeys | None = None,
        *,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.dtype = torch.get_default_dtype() if dtype is None else dtype
        if not self.dtype.is_floating_point:
            raise wrong_value("dtype", "a floating point dtype", self.dtype)
        self._frames = KeyMap(
            "ScaledFloatFrame", OBSERVATIONS if in_keys is None else in_keys, out_keys
        )

    def __call__(self, batch: TensorDict) -> TensorDict:
        for source, target in self._frames.pairs:
            frames = required_entry(batch, source, "ScaledFloatFrame")
            if frames.dtype != torch.uint8:
                raise wrong_column(
                    source,
                    torch.uint8,
                    frames.dtype,
                    "Remove the transform if frames are scaled already; ObservationNorm scales "
                    "other numbers.",
                    owner="ScaledFloatFrame",
                )
            batch.set(target, frames.to(self.dtype).div_(255))
        return batch

    def __repr__(self) -> str:
        return f"ScaledFloatFrame(in_keys={self._frames.in_keys})"


class ToTensorImage(Transform):
    """Permutes frames ``[..., height, width, channels]`` to ``[..., channels, height, width]``.

    Args:
        from_int: divide by 255; by default if the frames are integers.
        unsqueeze: add a leading dimension of size 1 to a single frame.
        dtype: dtype of the result; torch's default dtype by default.
        in_keys: keys of frames; ``"pixels"`` by default.
        out_keys: keys of the results; ``in_keys`` by default.
        shape_tolerant: skip the permutation of frames whose last dimension is not 3 channels.
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
        for source, target in self._frames.pairs:
            frames = required_entry(batch, source, "ToTensorImage")
            if not self.shape_tolerant:
                _check_channels(source, frames, batch.ndim)
            batch.set(target, self._permuted(frames))
        return batch

    def _permuted(self, frame: torch.Tensor) -> torch.Tensor:
        if not self.shape_tolerant or frame.shape[-1] == 3:
            frame = frame.movedim(-1, -3)
        divide = not frame.is_floating_point() if self.from_int is None else self.from_int
        frame = (frame.div(255) if divide else frame).to(self.dtype)
        return frame.unsqueeze(0) if self.unsqueeze and frame.ndim == 3 else frame


def _check_channels(key: Key, frames: torch.Tensor, batch_ndim: int) -> None:
    """Check that frames end in height, width and channels."""
    # frames: `[*B, ...]`.
    # batch_ndim: the number of dimensions of B, because `[B, H, 3]` is a frame without channels.
    if frames.ndim - batch_ndim < 3 or frames.shape[-1] not in NUM_CHANNELS:
        raise WrongRows(
            f"ToTensorImage: {show_key(key)} is {list(frames.shape)} in a batch "
            f"{list(frames.shape[:batch_ndim])}; expected [..., height, width, channels] with 1, 3 "
            "or 4 channels.",
            key=key,
            expected="[..., H, W, C]",
            found=list(frames.shape),
            advice="Use ScaledFloatFrame for frames without channels, stacks, and frames whose "
            "channels come first.",
        )


class CenterCrop(Transform):
    """Cuts the middle out of frames.

    >>> frames = TensorDict({"pixels": torch.zeros(2, 84, 84, dtype=torch.uint8)}, [2])
    >>> CenterCrop(64)(frames)["pixels"].shape
    torch.Size([2, 64, 64])

    Of an odd number of spare rows (or columns), half is rounded to an even number, as in TorchRL.

    Args:
        w: width of the crop, in pixels.
        h: height of the crop; ``w`` by default.
        in_keys: keys of frames ``[..., H, W]``; ``"pixels"`` by default.
        out_keys: keys of the results; ``in_keys`` by default.
        channels_last: frames are ``[..., H, W, C]``.

    Raises:
        UsageError: a size is below 1, or the numbers of keys differ.
    """

    def __init__(
        self,
        w: int,
        h: int | None = None,
        in_keys: NestedKeys | None = None,
        out_keys: NestedKeys | None = None,
        *,
        channels_last: bool = False,
    ) -> None:
        self._frames = _Frames("CenterCrop", w, h, in_keys, out_keys, channels_last)

    def __call__(self, batch: TensorDict) -> TensorDict:
        for source, target in self._frames.keys.pairs:
            middle = frames = self._frames.of(batch, source)
            for size, dim in self._frames.sizes:
                spare = frames.shape[dim] - size
                if spare < 0:
                    raise WrongSize(
                        f"CenterCrop cannot cut {self._frames} out of {show_key(source)} "
                        f"{list(frames.shape)}, which is smaller.",
                        key=source,
                        expected=size,
                        found=frames.shape[dim],
                        advice="Pass a smaller size, or use Resize.",
                    )
                middle = middle.narrow(dim, round(spare / 2), size)
            batch.set(target, middle.clone())
        return batch

    def __repr__(self) -> str:
        return f"CenterCrop({self._frames}, in_keys={self._frames.keys.in_keys})"


class Resize(Transform):
    """Resizes frames: each output pixel is a weighted mean of the input pixels that it covers.

    >>> frames = TensorDict({"pixels": torch.zeros(2, 84, 84, dtype=torch.uint8)}, [2])
    >>> Resize(w=64, h=48)(frames)["pixels"].shape
    torch.Size([2, 48, 64])

    Frames keep their dtype. Widths are resized first, then heights, each as Pillow's ``BILINEAR``
    does. uint8 results are rounded to the nearest, halves up, equally on every machine. Here ``w``
    is the width of the result; in TorchRL ``w`` is the height.

    Args:
        w: width, in pixels.
        h: height, in pixels; ``w`` by default.
        interpolation: ``"bilinear"``.
        in_keys: keys of frames ``[..., H, W]``; ``"pixels"`` by default.
        out_keys: keys of the results; ``in_keys`` by default.
        channels_last: frames are ``[..., H, W, C]``.

    Raises:
        UsageError: a size is below 1, the interpolation is not ``"bilinear"``, or the numbers of
            keys differ.
    """

    def __init__(
        self,
        w: int,
        h: int | None = None,
        interpolation: str = "bilinear",
        in_keys: NestedKeys | None = None,
        out_keys: NestedKeys | None = None,
        *,
        channels_last: bool = False,
    ) -> None:
        if interpolation != "bilinear":
            raise wrong_value(
                "interpolation",
                "bilinear",
                interpolation,
                "Pass a function of the batch as transform for another interpolation.",
            )
        self._frames = _Frames("Resize", w, h, in_keys, out_keys, channels_last)

    def __call__(self, batch: TensorDict) -> TensorDict:
        for source, target in self._frames.keys.pairs:
            frames = self._frames.of(batch, source)
            if frames.dtype != torch.uint8 and not frames.is_floating_point():
                raise wrong_column(
                    source,
                    "torch.uint8 or floating point",
                    frames.dtype,
                    "Use DTypeCastTransform before.",
                    owner="Resize",
                )
            for size, dim in reversed(self._frames.sizes):  # widths first
                frames = resampled(frames, size, dim)
            batch.set(target, frames)
        return batch

    def __repr__(self) -> str:
        return f"Resize({self._frames}, in_keys={self._frames.keys.in_keys})"


class _Frames:
    """The keys of frames, the dimensions of height and width, and their new sizes."""

    def __init__(
        self,
        owner: str,
        w: int,
        h: int | None,
        in_keys: NestedKeys | None,
        out_keys: NestedKeys | None,
        channels_last: bool,
    ) -> None:
        self.width = whole_number("w", w, 1)
        self.height = self.width if h is None else whole_number("h", h, 1)
        self.keys = KeyMap(owner, ["pixels"] if in_keys is None else in_keys, out_keys)
        self._last = int(channels_last)

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """Pairs of new size and negative dimension, of height and width."""
        return [(self.height, -2 - self._last), (self.width, -1 - self._last)]

    def of(self, batch: TensorDict, key: Key) -> torch.Tensor:
        """Return the frames of a batch."""
        frames = required_entry(batch, key, self.keys.owner)
        if frames.ndim - batch.ndim < 2 + self._last:
            expected = "[..., H, W, C]" if self._last else "[..., H, W]"
            raise WrongRows(
                f"{self.keys.owner} needs frames {expected}; {show_key(key)} is "
                f"{list(frames.shape)} in a batch {list(batch.batch_size)}.",
                key=key,
                expected=expected,
                found=list(frames.shape),
            )
        return frames

    def __str__(self) -> str:
        return f"w={self.width}, h={self.height}"
