"""The structure of a Minari dataset: its episodes, and the arrays that all of them have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from datasets_cli.formats.images import decode_jpeg
from datasets_cli.formats.limits import check_limit
from datasets_cli.recipe import Key, SourceError, can_store

from .common_arrays import KEYS, NUMBERS, CommonArrays, inexact_paths
from .spaces import TUPLE_ITEM
from .storage import TEXT, EpisodeStorage, Leaf, Stored, StoredEpisode, read_runs


@dataclass(frozen=True)
class Structure:
    """The episodes and arrays of a whole dataset."""

    episodes: tuple[StoredEpisode, ...]
    num_episodes: int
    num_empty: int
    num_steps: int
    leaves: tuple[Leaf, ...]
    notes: tuple[str, ...]
    last_rows_of_short: tuple[int, ...]  # of episodes without an observation after their last step


def read_structure(storage: EpisodeStorage) -> Structure:
    """Return the structure of a dataset from that of every episode."""
    episodes: list[StoredEpisode] = []
    common = CommonArrays()
    short: dict[str, tuple[int, Mapping[str, Stored]]] = {}
    num_steps = num_empty = 0
    for name in storage.names:
        arrays = storage.arrays(name)
        steps = _count_steps(name, arrays)
        num_steps += steps
        num_empty += not steps
        if steps and any(
            stored.rows == steps for path, stored in arrays.items() if _is_observation(path)
        ):
            short[name] = steps, arrays
            terminated = bool(storage.read(name, "terminations", steps - 1, steps)[0])
            # The successor rule: a terminated step stays, a truncated one is dropped.
            episodes.append(StoredEpisode(name, steps if terminated else steps - 1, terminated))
        elif steps:
            episodes.append(StoredEpisode(name, steps))
            common.add(name, _beyond_steps(arrays, steps))
    # Last, because only complete episodes show whether an info has a row beyond one per step.
    for name, (steps, arrays) in short.items():
        common.add(name, _beyond_steps(arrays, steps, common.arrays, short=True))
    leaves, notes = _choose(common, inexact_paths(storage, episodes, common))
    if storage.others:
        notes.append(f"entries other than episodes are left out: {', '.join(storage.others)}")
    if short:
        notes.append(_note_of_short(episodes, list(short)))
    kept = tuple(episode for episode in episodes if episode.steps)
    if kept:
        leaves = [_with_frame_shape(leaf, storage, kept[0]) for leaf in leaves]
    # Before memory or disk is spent.
    row_bytes = sum(leaf.row_bytes for leaf in leaves)
    num_rows = sum(episode.steps for episode in kept)
    check_limit("row_bytes", row_bytes, "a step of all arrays")
    check_limit("rows", num_rows, "the dataset")
    count = len(storage.names)
    lasts = np.cumsum([episode.steps for episode in kept]) - 1
    cut = tuple(int(last) for last, each in zip(lasts, kept, strict=True) if each.name in short)
    return Structure(kept, count, num_empty, num_steps, tuple(leaves), tuple(notes), cut)


def note_inner_ends(storage: EpisodeStorage, episodes: tuple[StoredEpisode, ...]) -> str:
    """Return a note on flags before the last step of an episode; "" without any."""
    notes = []
    for flag in ("terminations", "truncations"):
        stored = Stored(None, (), np.dtype(np.bool_))
        counts = [
            sum(map(np.count_nonzero, read_runs(storage, name, flag, steps - 1, stored)))
            for name, steps, _ in episodes
        ]
        if num_set := sum(counts):
            found = sum(count > 0 for count in counts)
            notes.append(f"{num_set} {flag} inside {found} episodes")
    if not notes:
        return ""
    return (
        f"{' and '.join(notes)}, before their last step: the flags stay as published. Because "
        "done ends a trajectory, such an episode becomes several trajectories"
    )


def _is_observation(path: str) -> bool:
    return path.partition("/")[0] == "observations"


def _count_steps(name: str, arrays: Mapping[str, Stored]) -> int:
    """Return an episode's number of steps T, after checking the length of its arrays."""
    roots = {path.partition("/")[0] for path in arrays}
    missing = [root for root in KEYS if root not in (arrays if root in NUMBERS else roots)]
    if arrays and missing:
        raise SourceError(
            f"{name} has no {', '.join(missing)}; found {', '.join(sorted(roots))}. "
            f"A Minari episode has {', '.join(KEYS)}.",
            key=missing[0],
            expected=[*KEYS],
            found=sorted(roots),
        )
    steps = (arrays["rewards"].rows or 0) if arrays else 0
    for path, stored in arrays.items():
        check_limit("row_bytes", stored.row_bytes, f"{name}: a row of {path}")
        root = path.partition("/")[0]
        expected = steps + _is_observation(path)
        fits = stored.rows == expected or (_is_observation(path) and stored.rows == steps)
        if root in KEYS and not fits and (steps or stored.rows != 0):
            shape = [] if stored.rows is None else [stored.rows, *stored.shape]
            raise SourceError(
                f"{name} is ragged: {path} has shape {shape}, and {steps} rewards need "
                f"{expected} rows. Minari records one observation more than actions, rewards and "
                "flags. The file is damaged, or a faulty tool wrote it.",
                key=path,
                expected=expected,
                found=shape,
            )
    return steps


def _beyond_steps(
    arrays: Mapping[str, Stored],
    steps: int,
    common: Mapping[str, Stored] | None = None,
    *,
    short: bool = False,
) -> dict[str, Stored]:
    """Return arrays whose ``rows`` counts rows beyond one per step: 0, 1, or None for any other."""
    found = {}
    for path, stored in arrays.items():
        extra = stored.rows - steps if stored.rows is not None else None
        if short and extra == 0:
            other = (common or {}).get(path)
            extra = 1 if _is_observation(path) else other.rows if other else 0
        found[path] = stored._replace(rows=extra if extra in (0, 1) else None)
    return found


def _choose(common: CommonArrays, inexact: set[str]) -> tuple[list[Leaf], list[str]]:
    """Return the arrays that can be columns, and notes on changed and omitted arrays."""
    leaves = []
    left_out: dict[str, list[str]] = {}
    texts: list[Key] = []
    widened = []
    for path in sorted(common.arrays.keys() | common.varying):
        key = _key(path)
        stored = common.arrays.get(path)
        name = ".".join(key)
        if path in common.varying or stored is None:
            left_out.setdefault("not the same in every episode", []).append(name)
        elif stored.dtype != TEXT and not can_store(key, stored.dtype):
            left_out.setdefault("of variable length", []).append(name)
        elif stored.rows is None:
            left_out.setdefault("not one entry per step", []).append(name)
        elif path in inexact:
            why = f"integers in some episodes, which {stored.dtype} does not hold exactly"
            left_out.setdefault(why, []).append(name)
        else:
            dtype = np.dtype(object) if stored.dtype == TEXT else stored.dtype
            leaves.append(Leaf(path, key, bool(stored.rows), stored.shape, dtype, jpeg=stored.jpeg))
            if stored.dtype == TEXT:
                texts.append(key)
            if path in common.types and path not in NUMBERS:
                found = " and ".join(sorted(map(str, common.types[path])))
                widened.append(f"{name} ({found} to {dtype})")
    _check_keys([leaf.key for leaf in leaves], texts, common)
    notes = [f"left out, {why}: {', '.join(names)}" for why, names in left_out.items()]
    if widened:
        notes.append(f"widened, because dtypes differ between episodes: {', '.join(widened)}")
    if texts:
        shown = ", ".join(".".join(key) for key in texts)
        notes.append(f"kept as text; batches include it with text=True: {shown}")
    return leaves, notes


def _check_keys(keys: list[Key], texts: list[Key], common: CommonArrays) -> None:
    if twice := sorted({".".join(key) for key in keys if keys.count(key) > 1}):
        raise SourceError(
            f"two arrays of each episode would both be {', '.join(twice)}.", key=twice[0]
        )
    for root in ("observation", "action"):
        if common.arrays and not any(key[0] == root for key in keys if key not in texts):
            found = ", ".join(path for path in common.arrays if _key(path)[0] == root)
            raise SourceError(
                f"the {root} cannot be stored: expected numbers, found text or arrays of variable "
                f"length ({found}).",
                key=root,
                expected="numbers",
                found=found,
            )


def _note_of_short(episodes: list[StoredEpisode], names: list[str]) -> str:
    terminated = sum(episode.lacks_successor for episode in episodes)
    gone = sum(not episode.steps for episode in episodes)
    shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    parts = []
    if dropped := len(names) - terminated:
        left = f" ({gone} had no other step)" if gone else ""
        parts.append(
            f"{dropped} were cut off there: that step is dropped{left}, and the one before it is "
            "the truncated end"
        )
    if terminated:
        parts.append(f"{terminated} ended there by themselves: the successor is zeros")
    return (
        f"{len(names)} episodes have no observation after their last step ({shown}); "
        f"{'; '.join(parts)}"
    )


def _key(path: str) -> Key:
    """Return a path's key; ``actions/_index_0`` is ``("action", "0")``."""
    root, *below = path.split("/")
    parts = [match[1] if (match := TUPLE_ITEM.fullmatch(part)) else part for part in below]
    return (*KEYS.get(root, ("info",) if root == "infos" else ("info", root)), *parts)


def _with_frame_shape(leaf: Leaf, storage: EpisodeStorage, episode: StoredEpisode) -> Leaf:
    if not leaf.jpeg:
        return leaf
    (data,) = storage.read(episode.name, leaf.path, 0, 1)
    where = f"{episode.name}/{leaf.path}, row 0"
    return replace(leaf, shape=decode_jpeg(data, where).shape)
