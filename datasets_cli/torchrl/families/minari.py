"""Minari's datasets as replay buffers."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict

from datasets_cli.experience import ExperienceReplay
from datasets_cli.progress import Progress
from datasets_cli.replay.arguments import NestedKey
from datasets_cli.replay.samplers.protocol import Sampler
from datasets_cli.replay.torchrl_words import DATASET, takes
from datasets_cli.replay.transforms.transform import TransformLike
from datasets_cli.replay.writers.protocol import Writer
from datasets_cli.torchrl.families.family import AvailableDatasets, hold_trajectories, refuse


@takes(**DATASET)
class MinariExperienceReplay(ExperienceReplay):
    """A Minari dataset by its Minari id, such as ``D4RL/door/human-v2``.

    The two arguments after ``batch_size`` are TorchRL's; all others are those of
    ``ExperienceReplay``.

    Args:
        dataset_id: such as ``D4RL/door/human-v2``; or a view's file.
        batch_size: rows in a batch; ``sample`` can override it.
        split_trajs: draw whole trajectories ``[T_max]``, padded, with their ``mask``, in place of
            rows; they are copied into memory.
        load_from_local_minari: False; ``source`` takes a folder of files that are there.
        root: the cache root; ``RLDS_HOME`` or the user's cache by default.
        download: install what is missing (True), fail instead (False), or install again
            (``"force"``).
        layout: how the rows are stored on disk; ``"ted"`` or ``"compact"``.
        source: a folder or URL with the publisher's raw files.
        sampler: how rows are drawn; overrides the arguments of slices and ``replacement``.
        num_slices: draw this number of slices of trajectories a batch.
        slice_len: draw slices of this number of rows; exclusive with ``num_slices``.
        frame_stack: make each observation, and next observation, a stack of its last steps.
        strict_length: never draw from a trajectory shorter than a slice.
        replacement: draw with replacement; otherwise each row (or trajectory) once an epoch.
        transform: applied to every batch.
        writer: refuses rows, as does any other writer of a dataset.
        collate_fn: called with the batch, before the transform.
        device: copy the rows into this device's memory and give batches there.
        pin_memory: leave the rows on the disk and gather batches into page-locked memory.
        prefetch: batches that a thread makes ahead of time.
        priority_key: the entry that ``update_tensordict_priority`` reads.
        contiguous: give every leaf memory of its own, for code that calls ``view``.
        text: read the columns of text too, as non-tensor entries of batches.
        generator: draws rows, exclusive with ``seed``; by default one of the buffer's own, which
            torch's global one seeds at the first draw.
        seed: seeds a generator of the buffer's own.
        format: what batches are made of; see ``ReplayBuffer.with_format``.
        progress: told of download and conversion.

    Raises:
        UsageError: another value is asked for of an argument that has one.
        RldsError: as ``ExperienceReplay``.
    """

    family = "minari"
    available_datasets = AvailableDatasets()

    def __init__(
        self,
        dataset_id: str | os.PathLike[str],
        batch_size: int | None = None,
        *,
        split_trajs: bool = False,
        load_from_local_minari: bool = False,
        root: str | os.PathLike[str] | None = None,
        download: bool | str = True,
        layout: str | None = None,
        source: str | None = None,
        sampler: Sampler | None = None,
        num_slices: int | None = None,
        slice_len: int | None = None,
        frame_stack: int | None = None,
        strict_length: bool = True,
        replacement: bool = True,
        transform: TransformLike | None = None,
        writer: Writer | None = None,
        collate_fn: Callable[[TensorDict], Any] | None = None,
        device: str | torch.device | None = None,
        pin_memory: bool = False,
        prefetch: int | None = None,
        priority_key: NestedKey = "td_error",
        contiguous: bool = False,
        text: bool = False,
        generator: torch.Generator | None = None,
        seed: int | None = None,
        format: str = "torch",
        progress: Progress | None = None,
    ) -> None:
        refuse("load_from_local_minari=True", load_from_local_minari)
        super().__init__(
            dataset_id,
            batch_size,
            root=root,
            download=download,
            layout=layout,
            source=source,
            sampler=sampler,
            num_slices=num_slices,
            slice_len=slice_len,
            frame_stack=frame_stack,
            strict_length=strict_length,
            replacement=replacement,
            transform=transform,
            writer=writer,
            collate_fn=collate_fn,
            device=device,
            pin_memory=pin_memory,
            prefetch=prefetch,
            priority_key=priority_key,
            contiguous=contiguous,
            text=text,
            generator=generator,
            seed=seed,
            format=format,
            progress=progress,
        )
        if split_trajs:
            hold_trajectories(self)
