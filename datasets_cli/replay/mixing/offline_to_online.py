"""A dataset and a written buffer, sampled as one by a fraction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDictBase

from datasets_cli.errors import (
    EmptyBuffer,
    NotWritable,
    UnknownKey,
    Unsupported,
    UsageError,
    WrongRows,
    WrongSize,
    wrong_value,
)
from datasets_cli.replay.arguments import (
    NestedKeys,
    Rows,
    StateDict,
    chosen_size,
    keys_of,
    nested_key,
    seeded,
)
from datasets_cli.replay.buffer.buffer import ReplayBuffer
from datasets_cli.replay.mixing.column_mapping import batch_leaves
from datasets_cli.replay.mixing.mixed_buffers import (
    WEIGHT,
    MemberBatch,
    MixedBuffers,
    PlannedChange,
    balance_weights,
    joined,
)
from datasets_cli.replay.mixing.weights import Anneal, OfflineShare
from datasets_cli.replay.samplers.protocol import Sampler
from datasets_cli.replay.storages.protocol import is_writable
from datasets_cli.replay.transforms.transform import TransformLike
from datasets_cli.schema.columns import Key, show_key
from datasets_cli.schema.tree import entry

OFFLINE, ONLINE = 0, 1
PAIR_NAMES = ("offline", "online")


class OfflineToOnline(MixedBuffers):
    """Draws batches from a dataset and from a written buffer, by a fraction.

    >>> from datasets_cli import ExperienceReplay, LazyTensorStorage, TensorDictReplayBuffer
    >>> replay = ExperienceReplay("d4rl/door-human-v0")
    >>> online = TensorDictReplayBuffer(storage=LazyTensorStorage(1_000_000))
    >>> both = OfflineToOnline(replay, online, fraction=0.5, batch_size=6)
    >>> both.sample()["index", "buffer_ids"]  # nothing was written yet
    tensor([0, 0, 0, 0, 0, 0])
    >>> _ = both.extend(replay[:100])
    >>> both.sample()["index", "buffer_ids"]
    tensor([0, 0, 0, 1, 1, 1])

    Offline rows come first in a batch, then online rows. ``("index", "buffer_ids")`` is 0 for
    offline rows and 1 for online rows. ``("index", "index")`` is the row's number in its buffer;
    one number, also in a storage of several dimensions.

    The remainder of rounding is carried to the next batch. Over any number of batches the offline
    rows are the fraction of all rows, to half a row; with samplers of slices, whose ``slice_len``
    must be equal, to half a slice.

    Args:
        offline: a buffer over a dataset, a mixture, or rows of earlier runs; it is never written.
        online: a writable buffer; ``extend`` and ``add`` write to it.
        fraction: the fraction of offline rows in a batch, from 0 to 1.
        anneal: changes the fraction, such as ``LinearAnneal(to=0.1, over=100_000)``; or a function
            of ``fraction`` and of the rows written online, ``online.write_count``.
        min_online: number of online rows from which ``online`` is drawn; below it, batches are all
            offline and do not count for the fraction.
        keys: keys of the entries of batches, such as ``"next"`` for the whole group; by default all
            entries, which must be equal in both buffers.
        batch_size: rows in a batch; ``sample`` can override it.
        transform: applied to every batch, after the transforms of the two buffers. Written rows
            pass the transforms of ``online`` only.
        seed: seeds the draws of both; by default each buffer keeps its generator.
        format: the format of batches; see ``with_format``. The formats of the two are ignored.
        cast: see ``with_format``.

    Raises:
        UsageError: an argument is out of its range, ``online`` cannot be written, or its storage is
            smaller than ``min_online``.

    Attributes:
        transform: the transforms that are applied to every batch.
        ran_out: whether the batch just drawn ended an offline epoch; iteration stops there.
    """

    _names = PAIR_NAMES
    _draws_name = "share"

    def __init__(
        self,
        offline: ReplayBuffer,
        online: ReplayBuffer,
        *,
        fraction: float = 0.5,
        anneal: Anneal | None = None,
        min_online: int = 1,
        keys: NestedKeys | None = None,
        batch_size: int | None = None,
        transform: TransformLike | None = None,
        seed: int | None = None,
        format: str = "torch",
        cast: bool = False,
    ) -> None:
        self._share = OfflineShare(fraction, anneal, min_online)
        _check_pair(offline, online, self._share.min_online)
        self.keys = None if keys is None else keys_of(keys)
        if self.keys == []:
            raise UsageError(
                "keys is empty.",
                argument="keys",
                found=[],
                advice="Leave it out for batches with all entries.",
            )
        super().__init__((offline, online), batch_size, transform, format, cast)
        if seed is not None:
            self.set_rng(seeded(seed))

    @property
    def offline(self) -> ReplayBuffer:
        """The first buffer: a dataset, or rows that are never written."""
        return self.buffers[OFFLINE]

    @property
    def online(self) -> ReplayBuffer:
        """The second buffer, which is written."""
        return self.buffers[ONLINE]

    @property
    def fraction(self) -> float:
        """The fraction of offline rows in the next batch; 1 below ``min_online`` rows."""
        return self._share.fraction(len(self.online), self.online.write_count)

    def _shown(self) -> list[str]:
        share = self._share
        return [
            *super()._shown(),
            f" fraction={share.start}",
            f" anneal={share.anneal!r}",
            f" min_online={share.min_online}",
            f" keys={self.keys}",
        ]

    def sample(self, batch_size: int | None = None, return_info: bool = False) -> Rows:
        """Return a batch ``[B]``, offline rows first.

        Args:
            batch_size: rows to draw; ``self.batch_size`` by default.
            return_info: return ``(batch, info)``, where info has ``index`` and the info of both
                samplers.

        Raises:
            UsageError: the batch size is missing, or a sampler cannot draw it; or offline and
                online rows have different entries, dtypes or shapes, which the message lists.
        """
        size = chosen_size(batch_size, self.batch_size)
        unit = unit_of(self.buffers, size)
        fraction = self.fraction
        num_offline, carried = self._share.split(size // unit, fraction)
        if num_offline and not len(self.offline):
            raise EmptyBuffer(
                f"offline is empty, and {num_offline * unit} of {size} rows are drawn from it.",
                argument="offline",
                expected=num_offline * unit,
                found=0,
                advice=f"Pass fraction=0 to draw online rows only. {self.offline.storage.no_rows}",
            )
        counts = {OFFLINE: num_offline * unit, ONLINE: size - num_offline * unit}
        parts = self._draw((member, count) for member, count in counts.items() if count)
        drawn = [member for member, part in ((OFFLINE, fraction), (ONLINE, 1 - fraction)) if part]
        for part in parts:
            part.flatten_index(self.buffers[part.member].reader.storage)
        balance_weights(self.buffers, parts, drawn)
        names = [PAIR_NAMES[part.member] for part in parts]
        rows = joined(names, [_select(part, self.keys) for part in parts], _advise_keys)
        self._share.carried = carried
        self.ran_out = any(part.is_last for part in parts if part.member == OFFLINE)
        details = joined(names, [part.info_batch() for part in parts]) if return_info else None
        return self._finished(rows, details)

    def extend(self, data: Rows, update_priority: bool | None = None) -> torch.Tensor:
        """Write rows to ``online``, and return the same as ``ReplayBuffer.extend``."""
        return self.online.extend(data, update_priority)

    def add(self, data: Rows) -> int | torch.Tensor | None:
        """Write one row to ``online``, and return the same as ``ReplayBuffer.add``."""
        return self.online.add(data)

    @property
    def write_count(self) -> int:
        """Rows written online; see ``ReplayBuffer``."""
        return self.online.write_count

    def _draws_state(self) -> StateDict:
        return self._share.state()

    def _plan_draws(self, state: Any, is_dump: bool) -> PlannedChange:
        return self._share.plan_restore(state, "The state")


def _check_pair(offline: ReplayBuffer, online: ReplayBuffer, min_online: int) -> None:
    """Check that two buffers can be an offline and an online one."""
    for name, buffer in zip(PAIR_NAMES, (offline, online), strict=True):
        if not isinstance(buffer, ReplayBuffer):
            raise wrong_value(
                name,
                "a replay buffer, such as ExperienceReplay(...) or TensorDictReplayBuffer(...)",
                type(buffer),
            )
    storage = online.reader.storage
    if not is_writable(storage):
        raise NotWritable(
            "online must be a writable buffer; its rows are a dataset.",
            argument="online",
            expected="a writable buffer",
            advice="Pass TensorDictReplayBuffer(storage=LazyTensorStorage(...)) as online, and the "
            "dataset as offline.",
        )
    if offline.reader.storage is storage:
        raise UsageError(
            "offline and online have the same storage. Pass two buffers.", argument="online"
        )
    if storage.max_size < min_online:
        raise WrongSize(
            f"The storage of online has {storage.max_size} rows at most, less than min_online="
            f"{min_online}.",
            argument="min_online",
            expected=f"{storage.max_size} at most",
            found=min_online,
            advice="Pass a larger storage, or a smaller min_online.",
        )


def unit_of(buffers: Sequence[ReplayBuffer], batch_size: int) -> int:
    """Return the rows of a unit, which is from one buffer: 1, or the length of slices."""
    samplers = [buffer.reader.sampler for buffer in buffers]
    if not any(sampler.has_slices for sampler in samplers):
        return 1
    lengths = [_slice_len(*pair) for pair in zip(PAIR_NAMES, samplers, strict=True)]
    if lengths[0] != lengths[1]:
        raise WrongSize(
            f"offline draws slices of {lengths[0]} rows and online of {lengths[1]}.",
            argument="slice_len",
            expected=lengths[0],
            found=lengths[1],
            advice="Pass both samplers the same slice_len.",
        )
    if batch_size % lengths[0]:
        nearest = max(1, batch_size // lengths[0]) * lengths[0]
        raise wrong_value(
            "batch_size",
            f"a multiple of {lengths[0]}, the rows of a slice",
            batch_size,
            f"Ask for {nearest}.",
            kind=WrongSize,
        )
    return lengths[0]


def _slice_len(name: str, sampler: Sampler) -> int:
    slice_len = getattr(sampler, "slice_len", None) if sampler.has_slices else None
    if not isinstance(slice_len, int):
        raise Unsupported(
            f"{name} draws by {sampler!r}; a batch of slices needs one fixed length in both "
            "buffers.",
            argument=name,
            expected="a sampler with slice_len",
            found=sampler,
            advice="Use slice_len=, such as SliceSampler(slice_len=32), in both.",
        )
    return slice_len


def _select(part: MemberBatch, keys: Sequence[Key] | None) -> Rows:
    """Return the selected entries of a part, with the index and weights for priorities."""
    rows = part.rows
    if keys is None:
        return rows
    name = PAIR_NAMES[part.member]
    if not isinstance(rows, TensorDictBase):
        raise WrongRows(
            f"keys= needs TensorDicts; {name} has rows of {type(rows).__name__}.",
            argument="keys",
            expected="TensorDicts",
            found=type(rows).__name__,
            advice="Leave out keys=.",
        )
    if missing := [key for key in keys if entry(rows, key) is None]:
        known = [show_key(key) for key in batch_leaves(rows)]
        raise UnknownKey(
            f"{name} has no entry {', '.join(map(show_key, missing))}. It has: {', '.join(known)}.",
            argument="keys",
            key=missing[0],
            found=known,
        )
    return rows.select(*keys, "index", WEIGHT, strict=False)


def _advise_keys(keys: Sequence[Key]) -> str:
    return f"drop entries of all batches with keys={[*map(nested_key, keys)]}"
