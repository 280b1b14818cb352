"""OpenML's tables as replay buffers."""

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
from datasets_cli.torchrl.families.family import AvailableDatasets


@takes(**DATASET)
class OpenMLExperienceReplay(ExperienceReplay):
    """A table of OpenML by one of TorchRL's names, such as ``adult_onehot``, or by its id.

    Batches, and rows taken by index, also have ``X`` and ``y``, which are TorchRL's names for what
    is at ``observation`` and ``action``, and the same tensors. A trajectory is one step: there are
    no slices of several.

    Args:
        name: such as ``adult_onehot``, ``adult@2`` or ``61``.
        batch_size: rows in a batch; ``sample`` can override it.
        root: the cache root; ``RLDS_HOME`` or the user's cache by default.
        download: install what is missing (True), fail instead (False), or install again
            (``"force"``).
        layout: how the rows are stored on disk; ``"ted"`` or ``"compact"``.
        source: a folder or URL with the publisher's raw files.
        sampler: how rows are drawn; overrides ``replacement``.
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
        UsageError: arguments exclude one another, or are out of range.
        RldsError: as ``ExperienceReplay``.
    """

    family = "openml"
    available_datasets = AvailableDatasets()

    def __init__(
        self,
        name: str,
        batch_size: int | None = None,
        *,
        root: str | os.PathLike[str] | None = None,
        download: bool | str = True,
        layout: str | None = None,
        source: str | None = None,
        sampler: Sampler | None = None,
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
        super().__init__(
            name,
            batch_size,
            root=root,
            download=download,
            layout=layout,
            source=source,
            sampler=sampler,
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
        self.transform.insert(0, _with_table_names)

    @property
    def max_outcome_val(self) -> int | float:
        """The largest label; counted from 0, there is one class more."""
        largest: int | float = self.storage.column(("action",)).max().item()
        return largest


def _with_table_names(batch: TensorDict) -> TensorDict:
    batch["X"], batch["y"] = batch["observation"], batch["action"]
    return batch
