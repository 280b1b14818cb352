"""Resampling: a dimension of frames at another size, each number a weighted mean of its neighbours.

    84 pixels to 64      output 0   output 1   ...        84 / 64 = 1.3 pixels of the input each
    weights              a triangle around the middle of each, 1.3 pixels to either side

Bytes are summed with whole weights, so that every machine gives the same: torch's own way for
bytes depends on the instructions that a processor has. The rule is that of Pillow's ``BILINEAR``
along one dimension: weights in units of 2**-22, the sum rounded to the nearest byte, halves up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

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
