"""Transforms of frames: their scale, the order of their dimensions, their height and width."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from tensordict import TensorDict

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import NestedKeys, whole_number
from datasets_cli.replay.transforms.transform import KeyMap, Transform, required_entry
from datasets_cli.schema.columns import Key, show_key

WEIGHT_BITS = 22
BLOCK_NUMBERS = 1 << 20
"""Of the input, at once."""


@dataclass(frozen=True)
class Taps:
    """The neighbours of each output pixel along one dimension."""

    # places: of the input, int64 `[out, k]`.
    # weights: float64 `[out, k]`, which sum up to 1; 0 where there is no k-th neighbour.

    places: torch.Tensor
    weights: torch.Tensor


@lru_cache(maxsize=64)
def taps_of(size_in: int, size_out: int) -> Taps:
    """Return the neighbours and weights of a triangle filter, as wide as it takes to skip no
    pixel.
    """
    scale = size_in / size_out
    reach = max(scale, 1.0)  # pixels to either side of the middle of an output pixel
    middles = (np.arange(size_out) + 0.5) * scale
    firsts = np.maximum((middles - reach + 0.5).astype(np.int64), 0)
    ends = np.minimum((middles + reach + 0.5).astype(np.int64), size_in)
    places = firsts[:, None] + np.arange(int((ends - firsts).max()))
    # The middle of pixel n is at n + 0.5.
    weights = np.maximum(1.0 - np.abs((places - middles[:, None] + 0.5) * (1.0 / reach)), 0.0)
    weights[places >= ends[:, None]] = 0.0
    # A running sum has one order on every machine, where sum() may take another.
    weights *= 1.0 / np.cumsum(weights, axis=1)[:, -1:]
    return Taps(torch.from_numpy(np.minimum(places, size_in - 1)), torch.from_numpy(weights))


def resampled(frames: torch.Tensor, size: int, dim: int) -> torch.Tensor:
    """Return frames with ``size`` pixels along a dimension, of the same element type."""
    # frames: uint8 or floating point, `[..., H, W]` at least.
    if frames.shape[dim] == size:
        return frames
    if dim == -1:  # whole rows are gathered faster than single numbers
        return resampled(frames.mT.contiguous(), size, -2).mT.contiguous()
    taps = taps_of(frames.shape[dim], size)
    # [n, pixels, ...]: some frames at a time, whose sums stay in the processor's cache.
    flat = frames.reshape(frames.shape[:dim].numel(), *frames.shape[dim:])
    resized = flat.new_empty(len(flat), size, *flat.shape[2:])
    count = max(1, BLOCK_NUMBERS // max(1, flat[:1].numel()))
    for start in range(0, len(flat), count):
        resized[start : start + count] = _summed(flat[start : start + count], taps)
    return resized.view(*frames.shape[:dim], *resized.shape[1:])


def _summed(frames: torch.Tensor, taps: Taps) -> torch.Tensor:
    """Return frames ``[n, out, ...]`` of frames ``[n, in, ...]``."""
    if frames.dtype != torch.uint8:
        return _weighted(frames, taps.places, taps.weights)
    weights = (taps.weights * (1 << WEIGHT_BITS) + 0.5).to(torch.int32)
    # At most 255 * 2**22 and a half, which int32 has.
    total = _weighted(frames, taps.places, weights).add_(1 << (WEIGHT_BITS - 1))
    return total.bitwise_right_shift_(WEIGHT_BITS).clamp_(0, 255)


def _weighted(frames: torch.Tensor, places: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the weighted sums ``[n, out, ...]``, in the type of the weights."""
    places, weights = places.to(frames.device), weights.to(frames.device)
    beside = [1] * (frames.ndim - 2)
    total = None
    for tap in range(places.shape[1]):
        taken = frames.index_select(1, places[:, tap]).to(weights.dtype)
        taken *= weights[:, tap].view(-1, *beside)
        total = taken if total is None else total.add_(taken)
    assert total is not None, "each output pixel has a neighbour"
    return total


OBSERVATIONS: list[tuple[str, ...]] = [("observation",), ("next", "observation")]
NUM_CHANNELS = (1, 3, 4)  # grey, colour, colour with transparency


class ScaledFloatFrame(Transform):
    """Divides frames of bytes by 255: floats from 0 to 1 in the shape that the frames have.

    >>> batch = TensorDict({"observation": torch.full((2, 4, 84, 84), 51, dtype=torch.uint8)}, [2])
    >>> ScaledFloatFrame(in_keys="observation")(batch)["observation"][0, 0, 0, 0]
    tensor(0.2000)

    Frames ``[..., H, W]``, stacks of them ``[..., n, H, W]`` and frames with channels in any place
    keep the order of their dimensions; ``ToTensorImage`` puts channels first.

    Args:
        in_keys: entries that are read; ``"observation"`` and ``("next", "observation")`` by
            default.
        out_keys: where the results go; ``in_keys`` by default.
        dtype: of the result, floating point; torch's default by default.

    Raises:
        UsageError: ``dtype`` is of integers, or there are not as many keys out as in.
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
            raise UsageError(
                f"ScaledFloatFrame gives floats from 0 to 1; {self.dtype} would make 0 of them all."
            )
        self._frames = KeyMap(
            "ScaledFloatFrame", OBSERVATIONS if in_keys is None else in_keys, out_keys
        )

    def __call__(self, batch: TensorDict) -> TensorDict:
        for source, target in self._frames.pairs:
            frames = required_entry(batch, source, "ScaledFloatFrame")
            if frames.dtype != torch.uint8:
                raise UsageError(
                    f"ScaledFloatFrame scales frames of bytes, torch.uint8; {show_key(source)} is "
                    f"{frames.dtype} {list(frames.shape)}. Leave the transform out where frames "
                    "are scaled already; ObservationNorm scales other numbers."
                )
            batch.set(target, frames.to(self.dtype).div_(255))  # the copy is ours
        return batch

    def __repr__(self) -> str:
        return f"ScaledFloatFrame(in_keys={self._frames.in_keys})"


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
        for source, target in self._frames.pairs:
            frames = required_entry(batch, source, "ToTensorImage")
            if not self.shape_tolerant:
                _check_channels(source, frames, batch.ndim)
            batch.set(target, self._turn(frames))
        return batch

    def _turn(self, frame: torch.Tensor) -> torch.Tensor:
        if not self.shape_tolerant or frame.shape[-1] == 3:
            frame = frame.movedim(-1, -3)
        divide = not frame.is_floating_point() if self.from_int is None else self.from_int
        frame = (frame.div(255) if divide else frame).to(self.dtype)
        return frame.unsqueeze(0) if self.unsqueeze and frame.ndim == 3 else frame


def _check_channels(key: Key, frames: torch.Tensor, batch_ndim: int) -> None:
    """Check that frames end in height, width and channels."""
    # frames: `[*B, ...]`.
    # batch_ndim: the dimensions of B: a frame `[B, H, 3]` has no channels.
    if frames.ndim - batch_ndim < 3 or frames.shape[-1] not in NUM_CHANNELS:
        raise UsageError(
            "ToTensorImage makes frames [..., height, width, channels] into [..., channels, "
            f"height, width]; expected 1, 3 or 4 channels, found {show_key(key)} "
            f"{list(frames.shape)} in a batch {list(frames.shape[:batch_ndim])}. "
            "ScaledFloatFrame scales frames without channels, stacks of them, and frames whose "
            "channels come first, and leaves the order of their dimensions."
        )


class CenterCrop(Transform):
    """Cuts the middle out of frames.

    >>> frames = TensorDict({"pixels": torch.zeros(2, 84, 84, dtype=torch.uint8)}, [2])
    >>> CenterCrop(64)(frames)["pixels"].shape
    torch.Size([2, 64, 64])

    Where as many rows (or columns) cannot go on either side, the odd one goes where TorchRL's does:
    half of them is rounded to the nearest even number.

    Args:
        w: width of what stays, in pixels.
        h: its height; as wide where None.
        in_keys: entries that are read, ``[..., H, W]``; ``"pixels"`` by default.
        out_keys: where the results go; ``in_keys`` by default.
        channels_last: entries are ``[..., H, W, C]``.

    Raises:
        UsageError: a size below 1, or there are not as many keys out as in.
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
                    raise UsageError(
                        f"CenterCrop cannot cut {self._frames} out of {show_key(source)}, whose "
                        f"shape is {list(frames.shape)}: it is smaller. Crop less, or use Resize."
                    )
                middle = middle.narrow(dim, round(spare / 2), size)
            batch.set(target, middle.clone())
        return batch

    def __repr__(self) -> str:
        return f"CenterCrop({self._frames}, in_keys={self._frames.keys.in_keys})"


class Resize(Transform):
    """Makes frames larger or smaller: each pixel is a weighted mean of those that it covers.

    >>> frames = TensorDict({"pixels": torch.zeros(2, 84, 84, dtype=torch.uint8)}, [2])
    >>> Resize(w=64, h=48)(frames)["pixels"].shape
    torch.Size([2, 48, 64])

    Bytes stay bytes: widths are resized first, then heights, each as Pillow's ``BILINEAR`` does and
    rounded to the nearest, halves up, the same on every machine. Floats keep their type. TorchRL's
    ``w`` is the height of what it makes; here it is the width.

    Args:
        w: width, in pixels.
        h: height; as wide where None.
        interpolation: ``"bilinear"``.
        in_keys: entries that are read, ``[..., H, W]``; ``"pixels"`` by default.
        out_keys: where the results go; ``in_keys`` by default.
        channels_last: entries are ``[..., H, W, C]``.

    Raises:
        UsageError: a size below 1, another interpolation, or there are not as many keys out as in.
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
            raise UsageError(
                f"Resize interpolates bilinearly; found interpolation={interpolation!r}. For "
                "another way, give a function of the batch in its place."
            )
        self._frames = _Frames("Resize", w, h, in_keys, out_keys, channels_last)

    def __call__(self, batch: TensorDict) -> TensorDict:
        for source, target in self._frames.keys.pairs:
            frames = self._frames.of(batch, source)
            if frames.dtype != torch.uint8 and not frames.is_floating_point():
                raise UsageError(
                    f"Resize takes frames of bytes, torch.uint8, or floats; {show_key(source)} is "
                    f"{frames.dtype} {list(frames.shape)}. Cast it first."
                )
            for size, dim in reversed(self._frames.sizes):  # widths first
                frames = resampled(frames, size, dim)
            batch.set(target, frames)
        return batch

    def __repr__(self) -> str:
        return f"Resize({self._frames}, in_keys={self._frames.keys.in_keys})"


class _Frames:
    """Which entries are frames, where their height and width are, and what they become."""

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
        """Height and width, each with its dimension, counted from the last."""
        return [(self.height, -2 - self._last), (self.width, -1 - self._last)]

    def of(self, batch: TensorDict, key: Key) -> torch.Tensor:
        """Return an entry of a batch."""
        frames = required_entry(batch, key, self.keys.owner)
        if frames.ndim - batch.ndim < 2 + self._last:
            expected = "[..., H, W, C]" if self._last else "[..., H, W]"
            raise UsageError(
                f"{self.keys.owner} takes frames {expected}; {show_key(key)} is "
                f"{list(frames.shape)} in a batch {list(batch.batch_size)}."
            )
        return frames

    def __str__(self) -> str:
        return f"w={self.width}, h={self.height}"
