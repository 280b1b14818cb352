"""The structure of a Minari HDF5 file: its episodes, and the arrays that all of them have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np

from datasets_cli.formats.jpeg import decode_jpeg, starts_jpeg
from datasets_cli.recipe import Key, SourceError, can_store

from .episodes import Episode, Leaf
from .spaces import TUPLE_ITEM, Space, find_space

EPISODE = re.compile(r"episode_(\d+)")
KEYS: dict[str, Key] = {
    "observations": ("observation",),
    "actions": ("action",),
    "rewards": ("next", "reward"),
    "terminations": ("next", "terminated"),
    "truncations": ("next", "truncated"),
}
"""What every episode must have."""
NUMBERS = ("rewards", "terminations", "truncations")


TEXT = np.dtype(str)
"""The element type of text in ``Stored``, whatever its length and encoding in the file."""


class Stored(NamedTuple):
    """How an episode stores one array; ``extra`` is the rows beyond one a step, or None."""

    extra: int | None
    shape: tuple[int, ...]
    dtype: np.dtype
    jpeg: bool = False


@dataclass(frozen=True)
class Structure:
    """What a whole file holds.

    Args:
        episodes: those with steps, in the order of their numbers.
        num_empty: episodes without a step.
        leaves: the arrays to read.
        notes: what is left out, and why.
    """

    episodes: tuple[Episode, ...]
    num_empty: int
    leaves: tuple[Leaf, ...]
    notes: tuple[str, ...]


def read_structure(file: h5py.File, spaces: Mapping[str, Space | None], *, jpeg: bool) -> Structure:
    """Return what the file holds, from the structure of every episode; rows are not read.

    Args:
        file: opened by ``open_hdf5``.
        spaces: the parsed spaces of ``observations`` and ``actions``, None where unknown.
        jpeg: whether frames may be JPEG.

    Raises:
        SourceError: there is no episode, one is ragged or unlike the others, or nothing of the
            observation or of the action can be stored.
    """
    episodes = []
    common: dict[str, Stored] = {}
    varying: set[str] = set()
    names = _episode_names(file)
    for name in names:
        arrays = dict(_arrays(h5py.h5g.open(file.id, name.encode())))
        steps = _count_steps(name, arrays)
        if not steps:
            continue
        episodes.append(Episode(name, steps))
        found = {
            path: _stored(array, path, steps, spaces if jpeg else None)
            for path, array in arrays.items()
        }
        common = common or found
        if found != common:
            varying |= _merge(common, found, name)
    leaves, notes = _choose(common, varying)
    if others := sorted(set(file) - set(names)):
        notes.append(f"what is not an episode is left out: {', '.join(others)}")
    leaves = [_with_frame_shape(leaf, file, episodes[0]) if leaf.jpeg else leaf for leaf in leaves]
    return Structure(tuple(episodes), len(names) - len(episodes), tuple(leaves), tuple(notes))


def _episode_names(file: h5py.File) -> list[str]:
    """Return the episodes' names by number: h5py gives episode_10 before episode_2."""
    numbers = {name: int(match[1]) for name in file if (match := EPISODE.fullmatch(name))}
    if not numbers:
        raise SourceError(
            f"{Path(file.filename).name} has no episodes: expected groups episode_0, episode_1, … "
            f"and found {', '.join(sorted(file)[:10]) or 'nothing'}. It is not a Minari file."
        )
    return sorted(numbers, key=lambda name: numbers[name])


def _arrays(group: h5py.h5g.GroupID, above: str = "") -> Iterator[tuple[str, h5py.h5d.DatasetID]]:
    """Yield the path and handle of every array below a group."""
    # The low-level API: with 10,000 short episodes the high-level one takes three times as long.
    for name in group:
        item = h5py.h5o.open(group, name)
        path = above + name.decode(errors="surrogateescape")
        if isinstance(item, h5py.h5g.GroupID):
            yield from _arrays(item, f"{path}/")
        elif isinstance(item, h5py.h5d.DatasetID):
            yield path, item


def _count_steps(name: str, arrays: Mapping[str, h5py.h5d.DatasetID]) -> int:
    """Return an episode's number of steps T, having checked the rows of all that must have them."""
    roots = {path.partition("/")[0] for path in arrays}
    missing = [root for root in KEYS if root not in (arrays if root in NUMBERS else roots)]
    if arrays and missing:
        raise SourceError(
            f"{name} has no {', '.join(missing)}; found {', '.join(sorted(roots))}. "
            f"A Minari episode has {', '.join(KEYS)}."
        )
    shapes = {path: array.shape or () for path, array in arrays.items()}
    steps = next(iter(shapes.get("rewards", ())), 0)
    for path, shape in shapes.items():
        root = path.partition("/")[0]
        expected = steps + (root == "observations")
        if root in KEYS and shape[:1] != (expected,) and (steps or shape[:1] != (0,)):
            raise SourceError(
                f"{name} is ragged: {path} has shape {list(shape)}, and {steps} rewards need "
                f"{expected} rows. Minari records one observation more than actions, rewards and "
                "flags. The file is damaged, or a faulty tool wrote it."
            )
    return steps


def _stored(
    array: h5py.h5d.DatasetID, path: str, steps: int, spaces: Mapping[str, Space | None] | None
) -> Stored:
    """Return how an array is stored, alike for all ways of storing the same thing.

    Args:
        array: in an episode.
        path: below the episode's group.
        steps: of the episode.
        spaces: by which frames are told from other bytes; None where frames are not JPEG.
    """
    shape, dtype = array.shape or (), array.dtype
    extra = shape[0] - steps if shape and shape[0] - steps in (0, 1) else None
    if spaces is not None and extra is not None and dtype.kind in "Ou":
        space = find_space(spaces, path)
        if _is_jpeg(array, dtype, space):
            return Stored(extra, (), np.dtype(np.uint8), jpeg=True)
    if h5py.check_string_dtype(dtype) is not None:
        return Stored(extra, shape[1:], TEXT)
    if dtype.kind not in "biufc":
        return Stored(extra, (), np.dtype(object))
    return Stored(extra, shape[1:], dtype)


def _is_jpeg(array: h5py.h5d.DatasetID, dtype: np.dtype, space: Space | None) -> bool:
    """Tell whether the rows are JPEG files, by what they are and not by what wrote them.

    Minari 0.5.3 encoded small frames and infos too, though no space asks for it. Frames are rows
    of variable length; where all of an episode have the same length, a matrix of bytes.
    """
    matrix = dtype == np.uint8 and array.rank == 2
    if matrix and space is not None and len(space.get("shape", ())) not in (2, 3):
        return False
    variable = h5py.check_vlen_dtype(dtype) == np.uint8
    return (matrix or variable) and starts_jpeg(h5py.Dataset(array)[0])


def _merge(common: dict[str, Stored], found: Mapping[str, Stored], name: str) -> set[str]:
    """Return the paths that differ, having made the reward and flags of ``common`` fit both."""
    varying = set()
    for path in common.keys() | found.keys():
        first, other = common.get(path), found.get(path)
        if first == other:
            continue
        if first and other and path in NUMBERS and first.shape == other.shape:
            # Lists of Python numbers: an episode that never scores has whole numbers as rewards.
            common[path] = first._replace(dtype=np.promote_types(first.dtype, other.dtype))
        elif path.partition("/")[0] in KEYS:
            raise SourceError(
                f"{name} is unlike the episodes before it: {path} is {_show(other)}, and was "
                f"{_show(first)}. One dataset has one observation and one action."
            )
        else:
            varying.add(path)
    return varying


def _show(stored: Stored | None) -> str:
    return f"{stored.dtype} {list(stored.shape)}" if stored else "missing"


def _choose(common: Mapping[str, Stored], varying: set[str]) -> tuple[list[Leaf], list[str]]:
    """Return the arrays that can be leaves, and notes of those that are text or left out."""
    leaves = []
    left_out: dict[str, list[str]] = {}
    texts: list[Key] = []
    for path in sorted(common.keys() | varying):
        key = _key(path)
        stored = common.get(path)
        if path in varying or stored is None:
            left_out.setdefault("not the same in every episode", []).append(".".join(key))
        elif stored.dtype != TEXT and not can_store(key, stored.dtype):
            left_out.setdefault("of variable length", []).append(".".join(key))
        elif stored.extra is None:
            left_out.setdefault("not one entry a step", []).append(".".join(key))
        elif stored.dtype == TEXT:
            texts.append(key)
            leaves.append(Leaf(path, key, bool(stored.extra), stored.shape, np.dtype(object)))
        else:
            leaves.append(Leaf(path, key, bool(stored.extra), *stored[1:]))
    keys = [leaf.key for leaf in leaves]
    if twice := sorted({".".join(key) for key in keys if keys.count(key) > 1}):
        raise SourceError(f"two arrays of each episode would both be {', '.join(twice)}.")
    for root in ("observation", "action"):
        if common and not any(key[0] == root for key in keys if key not in texts):
            raise SourceError(
                f"nothing of the {root} can be stored: expected numbers, found text or arrays of "
                f"variable length ({', '.join(path for path in common if _key(path)[0] == root)})."
            )
    notes = [f"left out, {why}: {', '.join(names)}" for why, names in left_out.items()]
    if texts:
        shown = ", ".join(".".join(key) for key in texts)
        notes.append(f"kept as text, which batches have with text=True: {shown}")
    return leaves, notes


def _key(path: str) -> Key:
    """Return a path's key; ``actions/_index_0`` is ``("action", "0")``."""
    root, *below = path.split("/")
    parts = [match[1] if (match := TUPLE_ITEM.fullmatch(part)) else part for part in below]
    return (*KEYS.get(root, ("info",) if root == "infos" else ("info", root)), *parts)


def _with_frame_shape(leaf: Leaf, file: h5py.File, episode: Episode) -> Leaf:
    path = f"{episode.name}/{leaf.path}"
    return replace(leaf, shape=decode_jpeg(file[path][0], f"{path}, row 0").shape)
