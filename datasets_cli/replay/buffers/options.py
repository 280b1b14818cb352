"""The keywords that kinds of replay buffers share, for editors and type checkers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

import torch

from datasets_cli.replay.samplers.protocol import Sampler
from datasets_cli.replay.transforms.transform import Transform
from datasets_cli.replay.writers import Writer


class ReadOptions(TypedDict, total=False):
    """How batches are made; see ``ReplayBuffer``."""

    transform: Transform | None
    batch_size: int | None
    collate_fn: Callable[[Any], Any] | None
    pin_memory: bool
    prefetch: int | None
    generator: torch.Generator | None
    seed: int | None


class WriteOptions(ReadOptions, total=False):
    """How rows are placed, too."""

    writer: Writer | None
    dim_extend: int | None


class BufferOptions(WriteOptions, total=False):
    """Where rows are and how they are drawn, too: all of a buffer."""

    storage: Any
    sampler: Sampler | None
