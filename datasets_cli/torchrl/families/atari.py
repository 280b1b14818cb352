"""Runs of the DQN Replay Dataset as replay buffers."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar

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
class AtariDQNExperienceReplay(ExperienceReplay):
    """A run of the DQN Replay Dataset by game and run, such as ``Pong/5``.

    The frames are single ones, uint8 ``[84, 84]``; ``frame_stack=4`` makes stacks of them when
    batches are drawn. Rewards are clipped to [-1, 1], as the publisher recorded them.

    Args:
        dataset_id: such as ``Pong/5``, ``Pong/5~ckpt0-5``, ``Pong/5~unplugged``; or a view's file.
        batch_size: rows in a batch; ``sample`` can override it.
        checkpoints: ``"A:B"`` takes the checkpoints A to B - 1 alone.
        upstream: ``"dqn_replay"``, ``"rl_unplugged"``, or ``"auto"``: the first that answers.
        num_procs: processes that convert the checkpoints; all cores where None, this process
            where 0.
        strict_len: TorchRL's name of ``strict_length``.
        mp_start_method: taken for TorchRL's sake; processes are always started by ``"spawn"``.
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
        UsageError: arguments exclude one another, or are out of range.
        RldsError: as ``ExperienceReplay``.
    """

    family = "atari_dqn"
    available_datasets = AvailableDatasets()
    _max_runs: ClassVar[int | None] = None  # TorchRL's page sets it, to take the first checkpoints

    def __init__(
        self,
        dataset_id: str | os.PathLike[str],
        batch_size: int | None = None,
        *,
        checkpoints: str | None = None,
        upstream: str | None = None,
        num_procs: int | None = 0,
        strict_len: bool | None = None,
        mp_start_method: str = "spawn",
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
        if checkpoints is None and self._max_runs is not None:
            checkpoints = f"0:{self._max_runs}"
        options = {"checkpoints": checkpoints, "upstream": upstream}
        super().__init__(
            dataset_id,
            batch_size,
            options={name: value for name, value in options.items() if value is not None},
            num_workers=num_procs,
            root=root,
            download=download,
            layout=layout,
            source=source,
            sampler=sampler,
            num_slices=num_slices,
            slice_len=slice_len,
            frame_stack=frame_stack,
            strict_length=strict_length if strict_len is None else strict_len,
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

    @property
    def episodes(self) -> torch.Tensor:  # type: ignore[override]
        """The number of each row's trajectory, int64 ``[N]``, as in TorchRL.

        What ``ExperienceReplay.episodes`` does, ``iterate_episodes`` does here.
        """
        episodes: torch.Tensor = self.storage.column(("episode",))
        return episodes
