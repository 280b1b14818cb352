"""What replay buffers take: each option is declared here once, whichever classes take it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from datasets_cli.replay.buffers.readable import DTYPES
from datasets_cli.replay.draws.protocol import Sampler
from datasets_cli.replay.nested_keys import NestedKey
from datasets_cli.replay.rows.batch_maker import CollateFunction
from datasets_cli.replay.rows.writers import Writer
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.transforms.transform import TransformLike


@dataclass(frozen=True, kw_only=True)
class DrawOptions:
    """How the rows of a batch are drawn, and what is done to it.

    Args:
        sampler: how rows are drawn; uniformly with replacement by default.
        prefetch: batches of ``batch_size`` that a thread makes ahead of time; worth it where one
            costs more than some 0.1 ms: frames, transforms, copies to a device. Transforms run in
            that thread. A dataset's batches that come sooner without it are made in place. A batch
            of another size is drawn when asked for, and those under way are given back.
        transform: applied to every batch; one that has ``inv`` also to what is written.
        generator: draws rows, exclusive with ``seed``; by default torch's global one, and those of
            a dataset one of the buffer's own, which that seeds at the first draw.
        seed: seeds a generator of the buffer's own.
    """

    sampler: Sampler | None = None
    prefetch: int | None = None
    transform: TransformLike | None = None
    generator: torch.Generator | None = None
    seed: int | None = None


@dataclass(frozen=True, kw_only=True)
class BatchOptions(DrawOptions):
    """How batches are drawn, and made of the rows.

    Args:
        collate_fn: takes what the storage gives, a list of rows or a batch, and returns the batch.
        pin_memory: put batches into page-locked memory.
        format: what batches are: ``"torch"`` for TensorDicts and tensors, ``"numpy"`` or ``"jax"``
            for nested dicts of arrays; see ``ReplayBuffer.with_format``.
        cast: with ``"jax"``, give columns of 64 bits as ones of 32; see there.
    """

    collate_fn: CollateFunction | None = None
    pin_memory: bool = False
    format: str = "torch"
    cast: bool = field(default=False, metadata={"instead": DTYPES})


@dataclass(frozen=True, kw_only=True)
class BufferOptions(BatchOptions):
    """What a buffer of any rows takes.

    Args:
        storage: where the rows are; a list of 1,000 by default.
        writer: where rows are written; by default one after the other, after those that are there,
            and nowhere in a dataset.
        batch_size: rows in a batch; ``sample`` can override it.
        dim_extend: the dimension of time in data with ``storage.ndim`` leading ones, the last.
        shared: let other processes read and write the same rows; see ``ReplayBuffer.share``.
    """

    storage: Storage | None = None
    writer: Writer | None = None
    batch_size: int | None = None
    dim_extend: int | None = None
    shared: bool = False


@dataclass(frozen=True, kw_only=True)
class TensorDictBatchOptions(BatchOptions):
    """How batches of TensorDicts are drawn and made.

    Args:
        priority_key: the entry that ``update_tensordict_priority`` reads.
    """

    priority_key: NestedKey = "td_error"


@dataclass(frozen=True, kw_only=True)
class TensorDictBufferOptions(BufferOptions, TensorDictBatchOptions):
    """What a buffer of TensorDicts takes."""
