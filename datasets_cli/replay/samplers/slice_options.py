"""The arguments of slice samplers, for those that hand them on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import torch

from datasets_cli.replay.arguments import NestedKey
from datasets_cli.replay.samplers.windows import Span


class SliceOptions(TypedDict, total=False):
    """The arguments of ``SliceSampler``, which says what they mean."""

    num_slices: int | None
    slice_len: int | None
    end_key: NestedKey | None
    end_keys: Sequence[NestedKey] | None
    traj_key: NestedKey | None
    trajectory_key: NestedKey | None
    step_key: NestedKey | None
    fragmented: bool
    ends: torch.Tensor | None
    trajectories: torch.Tensor | None
    cache_values: bool
    truncated_key: NestedKey | None
    init_key: NestedKey | None
    strict_length: bool
    pad_output: bool
    compile: bool | dict[str, Any]
    span: Span | tuple[Span, Span]
    use_gpu: torch.device | bool
