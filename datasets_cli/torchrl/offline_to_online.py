"""TorchRL's buffer of offline and online rows, and datasets by prefixed names."""

from __future__ import annotations

from typing import Any, TypeVar

import datasets_cli
from datasets_cli.errors import UsageError
from datasets_cli.experience.replay import ExperienceReplay
from datasets_cli.replay.arguments import whole_number
from datasets_cli.replay.buffer.buffer import ReplayBuffer
from datasets_cli.replay.mixing.offline_to_online import OfflineToOnline
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.storages.tensors import LazyTensorStorage
from datasets_cli.replay.transforms.transform import TransformLike

Buffer = TypeVar("Buffer", bound=ReplayBuffer)

FAMILIES = {
    "atari": "AtariDQNExperienceReplay",
    "atari_dqn": "AtariDQNExperienceReplay",
    "d4rl": "D4RLExperienceReplay",
    "minari": "MinariExperienceReplay",
    "openml": "OpenMLExperienceReplay",
}
"""The class of each family prefix."""


def load_dataset(dataset_id: str, **kwargs: Any) -> ExperienceReplay:
    """Open a published dataset as a replay buffer, by its family and its name in the family.

    Args:
        dataset_id: the id, such as ``"d4rl:hopper-medium-v2"``.
        kwargs: arguments of the family's class.

    Raises:
        UsageError: the prefix is not a family.
    """
    prefix, colon, name = dataset_id.partition(":")
    if not colon or prefix not in FAMILIES:
        raise UsageError(
            f"dataset_id {dataset_id!r} does not start with a family and a colon.",
            argument="dataset_id",
            expected=[*FAMILIES],
            found=dataset_id,
            advice=f"Write 'd4rl:hopper-medium-v2'; the families are {', '.join(FAMILIES)}.",
        )
    replay: ExperienceReplay = getattr(datasets_cli, FAMILIES[prefix])(name, **kwargs)
    return replay


class OfflineToOnlineReplayBuffer(OfflineToOnline):
    """Draws batches from a dataset and from a new buffer, with TorchRL's arguments.

    See ``OfflineToOnline``, which carries the remainder of rounding to the next batch.

    Args:
        offline_dataset: a replay buffer, or an argument of ``load_dataset``.
        online_storage: holds the written rows; exclusive with ``online_capacity``.
        online_capacity: the size of a ``LazyTensorStorage`` for the written rows.
        offline_fraction: the offline share of a batch, from 0 to 1.
        batch_size: rows in a batch; ``sample`` can override it.
        transform: applied to every batch.
        dataset_kwargs: arguments of ``load_dataset``.

    Raises:
        UsageError: both or neither of ``online_storage`` and ``online_capacity``; or
            ``dataset_kwargs`` together with a buffer.
    """

    def __init__(
        self,
        offline_dataset: str | ReplayBuffer,
        *,
        online_storage: Storage | None = None,
        online_capacity: int | None = None,
        offline_fraction: float = 0.5,
        batch_size: int | None = None,
        transform: TransformLike | None = None,
        **dataset_kwargs: Any,
    ) -> None:
        if (online_storage is None) == (online_capacity is None):
            found = "both" if online_storage is not None else "neither"
            raise UsageError(
                f"Expected one of online_storage and online_capacity; found {found}.",
                argument="online_capacity",
                expected="one of online_storage and online_capacity",
                found=found,
                advice="Pass online_capacity=100_000 for a LazyTensorStorage of that size.",
            )
        if isinstance(offline_dataset, str):
            arguments = {"batch_size": batch_size, **dataset_kwargs}
            offline_dataset = load_dataset(offline_dataset, **arguments)
        elif dataset_kwargs:
            names = ", ".join(dataset_kwargs)
            raise UsageError(
                f"offline_dataset is a buffer, which cannot be combined with {names}.",
                argument=next(iter(dataset_kwargs)),
                advice=f"Leave out {names}, or pass the name of a dataset.",
            )
        if online_capacity is not None:
            online_storage = LazyTensorStorage(online_capacity)
        super().__init__(
            offline_dataset,
            ReplayBuffer(storage=online_storage),
            fraction=offline_fraction,
            anneal=self._annealed,
            batch_size=batch_size,
            transform=transform,
        )
        self._remaining = 1.0  # the factor of the fraction

    def anneal(self, step: int, total_steps: int) -> None:
        """Lower the fraction linearly, to 0 at ``total_steps``."""
        self._remaining = max(0.0, 1.0 - step / whole_number("total_steps", total_steps, 1))

    def _annealed(self, fraction: float, num_written: int) -> float:
        return fraction * self._remaining

    @property
    def offline_fraction(self) -> float:
        """The annealed fraction; batches are fully offline until rows are written."""
        return self._annealed(self._share.start, 0)

    @property
    def offline_buffer(self) -> ReplayBuffer:
        """The buffer of offline rows."""
        return self.offline

    @property
    def online_buffer(self) -> ReplayBuffer:
        """The buffer of online rows, which ``extend`` writes."""
        return self.online


def prefill_replay_buffer(
    rb: Buffer, dataset: str | ReplayBuffer, n_samples: int | None = None, chunk_size: int = 1000
) -> Buffer:
    """Write rows drawn from a dataset into a buffer, and return the buffer.

    Args:
        rb: the buffer.
        dataset: the buffer to draw from; or an argument of ``load_dataset``.
        n_samples: rows to draw; at most and by default the size of the dataset.
        chunk_size: rows in each draw.
    """
    chunk_size = whole_number("chunk_size", chunk_size, 1)
    source = dataset if isinstance(dataset, ReplayBuffer) else load_dataset(dataset)
    total = len(source) if n_samples is None else min(n_samples, len(source))
    for start in range(0, total, chunk_size):
        rows = source.sample(min(chunk_size, total - start))
        rb.extend(rows.exclude("index") if source.reader.storage.is_tensordict else rows)
    return rb
