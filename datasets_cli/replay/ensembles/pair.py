"""An offline and an online buffer: whether they fit together, and a batch of their parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensordict import TensorDictBase

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import Rows
from datasets_cli.replay.buffers.buffer import ReplayBuffer
from datasets_cli.replay.draws.protocol import Sampler
from datasets_cli.replay.ensembles.agreement import differing, leaves_of, table
from datasets_cli.replay.ensembles.member_batches import MemberBatch, concatenated
from datasets_cli.replay.ensembles.mixed_weights import WEIGHT, balance_weights
from datasets_cli.replay.rows.row_numbers import flat_rows
from datasets_cli.replay.storages.protocol import is_writable
from datasets_cli.schema.columns import Key, show_key
from datasets_cli.schema.tree import entry

OFFLINE, ONLINE = 0, 1
NAMES = ("offline", "online")


def check_pair(offline: Any, online: Any, min_online: int) -> None:
    """Check that two buffers can be an offline and an online one."""
    for name, buffer in zip(NAMES, (offline, online), strict=True):
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
    lengths = [_slice_len(name, sampler) for name, sampler in zip(NAMES, samplers, strict=True)]
    if lengths[0] != lengths[1]:
        raise UsageError(
            f"offline draws slices of {lengths[0]} rows and online of {lengths[1]}. Give both "
            "samplers the same slice_len."
        )
    if batch_size % lengths[0]:
        raise UsageError(
            f"A batch of {batch_size} rows is no whole number of slices of {lengths[0]}. Ask for "
            f"{max(1, batch_size // lengths[0]) * lengths[0]}."
        )
    return lengths[0]


def _slice_len(name: str, sampler: Sampler) -> int:
    found = getattr(sampler, "slice_len", None) if sampler.has_slices else None
    if not isinstance(found, int):
        raise UsageError(
            f"{name} draws by {sampler!r}, and a batch of slices needs those of both buffers to "
            "have one length. Give both a sampler with slice_len=, such as "
            "SliceSampler(slice_len=32); num_slices= would cut the slices of a part shorter."
        )
    return found


def join_pair(
    buffers: Sequence[ReplayBuffer],
    parts: Sequence[MemberBatch],
    drawn: Sequence[int],
    keys: Sequence[Key] | None,
) -> Rows:
    """Return the rows of parts as one batch ``[B]``; their weights are made comparable in place."""
    for part in parts:
        _flatten_numbers(buffers[part.member], part)
    balance_weights(buffers, parts, drawn)
    rows = [part.rows if keys is None else _kept(part, keys) for part in parts]
    if len(rows) > 1 and (odd := differing(*rows)):
        raise UsageError(_difference(odd, rows))
    return concatenated(rows)


def _flatten_numbers(buffer: ReplayBuffer, part: MemberBatch) -> None:
    """Give rows of a storage of several dimensions one number each, as those of others have."""
    storage = buffer.reader.storage
    if storage.ndim == 1:
        return
    part.marks["index"] = flat_rows(storage, part.marks["index"])
    if isinstance(part.rows, TensorDictBase):
        part.rows["index", "index"] = flat_rows(storage, part.rows["index", "index"])


def _kept(part: MemberBatch, keys: Sequence[Key]) -> TensorDictBase:
    """Return the entries of a part that are asked for, and those that priorities go back by."""
    rows = part.rows
    if not isinstance(rows, TensorDictBase):
        raise UsageError(
            f"keys= chooses entries of TensorDicts; {NAMES[part.member]} has rows of "
            f"{type(rows).__name__}. Leave keys= out."
        )
    if missing := [show_key(key) for key in keys if entry(rows, key) is None]:
        known = ", ".join(map(show_key, leaves_of(rows)))
        raise UsageError(
            f"keys= asks for {', '.join(missing)}, which {NAMES[part.member]} does not have. It "
            f"has: {known}."
        )
    return rows.select(*keys, "index", WEIGHT, strict=False)


def _difference(odd: Sequence[Key], rows: Sequence[Rows]) -> str:
    both = [key for key in leaves_of(rows[0]) if key not in odd and key[0] != "index"]
    return (
        f"offline and online rows differ in {', '.join(map(show_key, odd))}, and a batch has rows "
        f"of both:\n{table(odd, NAMES, rows)}\n"
        "Give one of the two buffers a transform that changes types, shapes or names, such as "
        "DoubleToFloat or RenameTransform; or leave entries out of all batches with "
        f"keys={[key if len(key) > 1 else key[0] for key in both]}."
    )
