"""A dataset and rows that are written, sampled as one by a fraction."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from tensordict import TensorDictBase

from datasets_cli.errors import EmptyBuffer, UsageError
from datasets_cli.replay.arguments import NestedKeys, Rows, StateDict, keys_of, seeded
from datasets_cli.replay.buffer.buffer import ReplayBuffer
from datasets_cli.replay.checkpoint.dump_folder import PAIR_PARTS, DumpFolder
from datasets_cli.replay.mixing.agreement import batch_leaves
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
from datasets_cli.replay.storages.state_files import SETTINGS_BYTES, read_state, write_state
from datasets_cli.replay.transforms.transform import TransformLike
from datasets_cli.schema.columns import Key, show_key
from datasets_cli.schema.tree import entry

OFFLINE, ONLINE = 0, 1
PAIR_NAMES = ("offline", "online")
SHARE = "share.json"


class OfflineToOnline(MixedBuffers):
    """Draws batches from a dataset and from a buffer that is written, by a fraction.

    >>> from datasets_cli import ExperienceReplay, LazyTensorStorage, TensorDictReplayBuffer
    >>> replay = ExperienceReplay("d4rl/door-human-v0")
    >>> online = TensorDictReplayBuffer(storage=LazyTensorStorage(1_000_000))
    >>> both = OfflineToOnline(replay, online, fraction=0.5, batch_size=6)
    >>> both.sample()["index", "buffer_ids"]  # nothing was written yet
    tensor([0, 0, 0, 0, 0, 0])
    >>> _ = both.extend(replay[:100])
    >>> both.sample()["index", "buffer_ids"]
    tensor([0, 0, 0, 1, 1, 1])

    The offline rows of a batch come first, then the online ones. ``("index", "buffer_ids")`` is 0
    for offline rows and 1 for online ones, ``("index", "index")`` is the row's number there, as one
    number also where a storage has several dimensions.

    Nothing is rounded away: the rest of each batch is carried to the next, so that over any number
    of batches the offline rows are the fraction of all, to half a row; with samplers of slices,
    of which both need the same ``slice_len``, to half a slice.

    Args:
        offline: a buffer over a dataset, a mixture, or rows of earlier runs; never written here.
        online: a buffer over rows that are written; ``extend`` and ``add`` write there.
        fraction: of the rows of a batch that are offline, from 0 to 1.
        anneal: moves the fraction, such as ``LinearAnneal(to=0.1, over=100_000)``; or a function of
            ``fraction`` and of the rows written online, ``online.write_count``.
        min_online: rows that ``online`` must have to be drawn from; before, all rows of a batch are
            offline, and do not count for the fraction.
        keys: the entries that batches have, groups such as ``"next"`` whole; by default all, and
            then both must have the same.
        batch_size: rows in a batch; ``sample`` can override it.
        transform: applied to every batch, after those of the two buffers. What is written passes
            those of ``online`` alone.
        seed: seeds the draws of both; by default each draws as it did before.
        format: what batches are made of; see ``with_format``. Those of the two do not matter.
        cast: of ``format``; see there.

    Raises:
        UsageError: an argument is out of its range, or ``online`` cannot be written or never has
            ``min_online`` rows.

    Attributes:
        transform: what is applied to every batch.
        ran_out: whether an offline epoch ended with the batch just drawn; iteration stops there.
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
            raise UsageError("keys names no entry; leave it out for batches with all entries.")
        super().__init__((offline, online), batch_size, transform, format, cast)
        if seed is not None:
            self.set_rng(seeded(seed))

    @property
    def offline(self) -> ReplayBuffer:
        """The first buffer: a dataset, or rows that are never written here."""
        return self.buffers[OFFLINE]

    @property
    def online(self) -> ReplayBuffer:
        """The second buffer, whose rows are written."""
        return self.buffers[ONLINE]

    @property
    def fraction(self) -> float:
        """The fraction of offline rows in the next batch; 1 while online has too few rows."""
        return self._share.fraction(len(self.online), self.online.write_count)

    def _shown(self) -> list[str]:
        share = self._share
        own = f"anneal={share.anneal!r}", f"min_online={share.min_online}", f"keys={self.keys}"
        return [*super()._shown(), f" fraction={share.start}", *(f" {each}" for each in own)]

    def sample(self, batch_size: int | None = None, return_info: bool = False) -> Rows:
        """Return a batch ``[B]``, offline rows first.

        Args:
            batch_size: rows to draw; this object's own by default.
            return_info: return ``(batch, info)``, where info has ``index`` and what the samplers of
                both say of the rows.

        Raises:
            UsageError: no batch size is given, or the samplers refuse it; or offline and online
                rows have other entries, element types or shapes; the message lists them.
        """
        size = self._size(batch_size)
        unit = unit_of(self.buffers, size)
        fraction = self.fraction
        num_offline, carried = self._share.split(size // unit, fraction)
        if num_offline and not len(self.offline):
            why = self.offline.storage.no_rows
            raise EmptyBuffer(f"There are no offline rows to draw; fraction=0 needs none. {why}")
        counts = {OFFLINE: num_offline * unit, ONLINE: size - num_offline * unit}
        parts = self._draw((member, count) for member, count in counts.items() if count)
        drawn = [member for member, part in ((OFFLINE, fraction), (ONLINE, 1 - fraction)) if part]
        for part in parts:
            part.flatten_index(self.buffers[part.member].reader.storage)
        balance_weights(self.buffers, parts, drawn)
        names = [PAIR_NAMES[part.member] for part in parts]
        rows = joined(names, [_kept(part, self.keys) for part in parts], _by_keys)
        self._share.carried = carried
        self.ran_out = any(part.is_last for part in parts if part.member == OFFLINE)
        details = joined(names, [part.info() for part in parts]) if return_info else None
        return self._finished(rows, details)

    def extend(self, data: Rows, update_priority: bool | None = None) -> torch.Tensor:
        """Write rows online; see ``ReplayBuffer.extend``, also for what is returned."""
        return self.online.extend(data, update_priority)

    def add(self, data: Rows) -> int | torch.Tensor | None:
        """Write one row online; see ``ReplayBuffer.add``, also for what is returned."""
        return self.online.add(data)

    @property
    def write_count(self) -> int:
        """Rows written online; see ``ReplayBuffer``."""
        return self.online.write_count

    def _is_part(self, folder: Path, name: str) -> bool:
        return name in PAIR_PARTS

    def _write_draws(self, folder: Path) -> None:
        write_state(folder / SHARE, self._share.state())

    def _plan_load_draws(self, dump: DumpFolder) -> PlannedChange:
        kept = read_state(dump / SHARE, SETTINGS_BYTES)
        return self._share.plan_restore(kept, str(dump.path))

    def _draws_state(self) -> StateDict:
        return self._share.state()

    def _plan_restore_draws(self, state: StateDict) -> PlannedChange:
        return self._share.plan_restore(state[self._draws_name], "The state")


def _check_pair(offline: ReplayBuffer, online: ReplayBuffer, min_online: int) -> None:
    """Check that two buffers can be an offline and an online one."""
    for name, buffer in zip(PAIR_NAMES, (offline, online), strict=True):
        if not isinstance(buffer, ReplayBuffer):
            raise UsageError(
                f"{name} must be a replay buffer, such as ExperienceReplay(...) or "
                f"TensorDictReplayBuffer(...), not {type(buffer).__name__}."
            )
    storage = online.reader.storage
    if not is_writable(storage):
        raise UsageError(
            "online must be a buffer that can be written; the rows of this one are a dataset. Give "
            "TensorDictReplayBuffer(storage=LazyTensorStorage(...)), and the dataset as offline."
        )
    if offline.reader.storage is storage:
        raise UsageError("offline and online are the same rows. Give two buffers.")
    if storage.max_size < min_online:
        raise UsageError(
            f"online has room for {storage.max_size} rows and would never have min_online="
            f"{min_online}. Give it a larger storage, or a smaller min_online."
        )


def unit_of(buffers: Sequence[ReplayBuffer], batch_size: int) -> int:
    """Return the rows that a batch is shared out by: 1, or the length of slices."""
    samplers = [buffer.reader.sampler for buffer in buffers]
    if not any(sampler.has_slices for sampler in samplers):
        return 1
    lengths = [_slice_len(*pair) for pair in zip(PAIR_NAMES, samplers, strict=True)]
    if lengths[0] != lengths[1]:
        raise UsageError(
            f"offline draws slices of {lengths[0]} rows and online of {lengths[1]}. Give both "
            "samplers the same slice_len."
        )
    if batch_size % lengths[0]:
        raise UsageError(
            f"A batch of {batch_size} rows is not a whole number of slices of {lengths[0]}. Ask "
            f"for {max(1, batch_size // lengths[0]) * lengths[0]}."
        )
    return lengths[0]


def _slice_len(name: str, sampler: Sampler) -> int:
    slice_len = getattr(sampler, "slice_len", None) if sampler.has_slices else None
    if not isinstance(slice_len, int):
        raise UsageError(
            f"{name} draws by {sampler!r}, and a batch of slices needs those of both buffers to "
            "have one length. Give both a sampler with slice_len=, such as "
            "SliceSampler(slice_len=32); num_slices= would cut the slices of a part shorter."
        )
    return slice_len


def _kept(part: MemberBatch, keys: Sequence[Key] | None) -> Rows:
    """Return the entries of a part that are asked for, and those that priorities go back by."""
    rows = part.rows
    if keys is None:
        return rows
    if not isinstance(rows, TensorDictBase):
        raise UsageError(
            f"keys= chooses entries of TensorDicts; {PAIR_NAMES[part.member]} has rows of "
            f"{type(rows).__name__}. Leave keys= out."
        )
    if missing := [show_key(key) for key in keys if entry(rows, key) is None]:
        known = ", ".join(map(show_key, batch_leaves(rows)))
        raise UsageError(
            f"keys= asks for {', '.join(missing)}, which {PAIR_NAMES[part.member]} does not have. "
            f"It has: {known}."
        )
    return rows.select(*keys, "index", WEIGHT, strict=False)


def _by_keys(keys: Sequence[Key]) -> str:
    given = [key if len(key) > 1 else key[0] for key in keys]
    return f"leave entries out of all batches with keys={given}"
