"""HDF5 files with a group for each episode, as robomimic, MimicGen and LIBERO write them.

    data               attributes env_args, total; LIBERO: problem_info with the instruction, JSON
    data/demo_0        attributes num_samples, model_file and others
    data/demo_0/obs/*  T rows each, as next_obs/* (not LIBERO), actions, rewards, dones, states
    mask/train         names of episodes

``dones`` is 1 on each step after the first success, so only the end of a group ends a trajectory.
"""

from __future__ import annotations

import json
import lzma
import math
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from datasets_cli.errors import SourceError
from datasets_cli.formats.hdf5 import (
    arrays_below,
    check_rows,
    open_hdf5,
    problem_of,
    read_part,
    read_range,
)
from datasets_cli.formats.limits import (
    TEXT_ROW_BYTES,
    check_limit,
    current_limits,
    finite,
    read_json,
)
from datasets_cli.schema.columns import REWARD, TRAJECTORY_END, Key, rows_per_block
from datasets_cli.schema.steps import NEXT_OBSERVATION
from datasets_cli.schema.texts import LANGUAGE, SPLIT

DATA, MASK, INFO = "data", "mask", "problem_info"
"""The groups of a file, and LIBERO's attribute; also the columns of splits and of instructions."""
KEYS: Mapping[str, Key] = {
    "obs": ("observation",),
    "next_obs": NEXT_OBSERVATION,
    "actions": ("action",),
    "rewards": REWARD,
}
SPLITS = ("train", "valid", "val", "test")
"""The masks of which an episode is in one at most; other masks overlap."""
NEEDED = (*KEYS, "dones", "states")
"""The arrays that no episode may lack if another episode has them."""
ACTIONS = ("actions", "action", "acts")
NUMBERED = re.compile(r".*?(\d+)")


class EpisodeSlice(NamedTuple):
    """The steps ``start`` to ``stop - 1`` of an episode."""

    episode: int
    start: int
    stop: int


def pack(lengths: Iterable[int], num_rows: int) -> Iterator[list[EpisodeSlice]]:
    """Yield pieces of up to ``num_rows`` steps together. Only a longer episode is divided."""
    pieces: list[EpisodeSlice] = []
    room = num_rows
    for episode, length in enumerate(lengths):
        for start in range(0, length, num_rows):
            piece = EpisodeSlice(episode, start, min(start + num_rows, length))
            if piece.stop - start > room:
                yield pieces
                pieces, room = [], num_rows
            pieces.append(piece)
            room -= piece.stop - start
    if pieces:
        yield pieces


class EpisodeColumn(NamedTuple):
    """The shape of a row, and the dtype."""

    shape: tuple[int, ...]
    dtype: np.dtype

    def __str__(self) -> str:
        return f"{'text' if self.dtype.kind in 'OSU' else self.dtype} {[*self.shape]}"

    @property
    def row_bytes(self) -> int:
        """The memory of one row."""
        is_text = self.dtype.hasobject
        return math.prod(self.shape) * (TEXT_ROW_BYTES if is_text else self.dtype.itemsize)

    @property
    def is_image(self) -> bool:
        """Whether a row is ``[height, width, channels]`` of uint8."""
        return self.dtype == np.uint8 and len(self.shape) == 3 and self.shape[2] in (1, 3, 4)


def read_episodes(path: Path) -> HDF5Episodes:
    """Return the episodes of a file; those of the last file are read again only if it changed.

    Raises:
        SourceError: the file is damaged, or has no episodes of arrays of one length.
    """
    state = path.stat()
    version = (state.st_ino, state.st_size, state.st_mtime_ns)
    return _read_episodes(path, version, tuple(sorted(current_limits().items())))


@lru_cache(maxsize=1)  # for the metadata, and then for the rows
def _read_episodes(path: Path, version: Hashable, limits: Hashable) -> HDF5Episodes:
    with open_hdf5(path) as file:
        return HDF5Episodes(file)


class HDF5Episodes:
    """The episodes of a file, in the order of their numbers.

    Args:
        file: opened with ``open_hdf5``, and not used later.

    Raises:
        SourceError: there are no episodes, or the lengths of an episode's arrays differ.
    """

    def __init__(self, file: h5py.File) -> None:
        self._path = Path(file.filename)
        self.filename = self._path.name
        self.names = _existing_names(file)
        self.attributes = _parsed(_attributes(file[DATA].id), f"{self.filename}: {DATA}")
        """The attributes of all episodes as JSON values; JSON texts are parsed."""
        self.columns: dict[str, EpisodeColumn] = {}
        """The columns by path, those of ``mask`` and ``problem_info`` among them."""
        self.dropped: dict[str, str] = {}
        """The reason for each object of the file that is not a column."""
        self.notes: list[str] = []
        self._has = Counter[str]()
        self.lengths: list[int] = []
        self.attributes_file = self._scan_all(file)
        """The attributes of each episode by its name, as JSON compressed by xz."""
        for path, count in self._has.items():
            if count < len(self.names):
                self._drop(path, f"only {count:,} of {len(self.names):,} episodes have it")
        self._of_episodes: dict[str, np.ndarray] = {**self._masks(file), **self._language()}
        others = sorted([*(file.keys() - {DATA, MASK}), *(file[DATA].keys() - {*self.names})])
        self.dropped = dict.fromkeys(others, "it is not an episode") | self.dropped
        taken = self.columns.keys() & self._of_episodes
        self.dropped |= dict.fromkeys(sorted(taken), f"the file has a {MASK} of this name")
        self.columns |= {
            name: EpisodeColumn((), rows.dtype) for name, rows in self._of_episodes.items()
        }

    @property
    def num_steps(self) -> int:
        """The number of steps of all episodes."""
        return sum(self.lengths)

    @property
    def missing(self) -> list[str]:
        """The arrays that every file of this layout has, and this one lacks."""
        heads = {name.partition("/")[0] for name in self.columns}
        return [name for name in ("obs", "actions") if name not in heads]

    def keys(self) -> dict[Key, str]:
        """Return the column of each key."""
        keys = {self._key(name, rows): name for name, rows in self.columns.items()}
        return dict(sorted(keys.items()))

    def blocks(self, keys: Mapping[Key, str]) -> Iterator[dict[Key, np.ndarray]]:
        """Yield the steps of all episodes in bounded blocks, ``TRAJECTORY_END`` among them."""
        stored = [self.columns[name] for name in keys.values() if name not in self._of_episodes]
        row_bytes = sum(column.row_bytes for column in stored)
        with open_hdf5(self._path, is_checked=True) as file:
            check_rows(file, self.num_steps, row_bytes)
            for slices in pack(self.lengths, rows_per_block(row_bytes)):
                yield self._block(file, keys, slices)

    def _block(
        self, file: h5py.File, keys: Mapping[Key, str], slices: list[EpisodeSlice]
    ) -> dict[Key, np.ndarray]:
        counts = [stop - start for _, start, stop in slices]
        numbers = [number for number, _, _ in slices]
        ends = np.zeros(sum(counts), np.bool_)
        ends[np.cumsum(counts) - 1] = [stop == self.lengths[number] for number, _, stop in slices]
        block, stored = {TRAJECTORY_END: ends}, {}
        for key, name in keys.items():
            if name in self._of_episodes:
                block[key] = np.repeat(self._of_episodes[name][numbers], counts)
            else:
                column = self.columns[name]
                block[key] = stored[name] = np.empty((len(ends), *column.shape), column.dtype)
        row = 0
        for number, start, stop in slices:
            group = _group(file, self.names[number])
            for name, rows in stored.items():
                rows[row : row + stop - start] = read_part(group, name, start, stop)
            row += stop - start
        return block

    def _scan_all(self, file: h5py.File) -> bytes:
        """Add the arrays of all episodes to the columns; return the attributes of each."""
        # Models of 25,000 characters differ in a few numbers, which gzip would not notice.
        packer, parts = lzma.LZMACompressor(preset=1), list[bytes]()
        for name in self.names:
            group = _group(file, name)
            attributes = _attributes(group)
            self.lengths.append(self._scan(group, name, attributes))
            text = f"{',' if parts else '{'}\n{json.dumps(name)}: {json.dumps(attributes)}"
            parts.append(packer.compress(text.encode()))
        return b"".join([*parts, packer.compress(b"\n}\n"), packer.flush()])

    def _scan(self, group: h5py.h5g.GroupID, name: str, attributes: Mapping[str, Any]) -> int:
        """Add the arrays of an episode to the columns; return the number of its steps."""
        # The low-level API, as in `read_part`.
        found = dict(arrays_below(group))
        check_limit("columns", len(found), f"{self.filename}: {name}")
        head = next((path for path in (*ACTIONS, *found) if path in found), None)
        shape = found[head].shape if head else None
        steps = shape[0] if shape else 0
        stated = attributes.get("num_samples", steps or "one or more")
        if not steps or stated != steps:
            raise SourceError(
                f"{self.filename}: {name} has {steps:,} steps; expected {stated}.",
                path=self.filename,
                key=name,
                expected=stated,
                found=steps,
                advice="The file is damaged, or a program that removed steps left num_samples.",
            )
        for path, item in found.items():
            self._has[path] += 1
            if problem := self._problem(path, item, steps):
                self._drop(path, f"{problem} ({name})")
        return steps

    def _problem(self, path: str, item: h5py.h5d.DatasetID, steps: int) -> str:
        """Return the reason why an array of an episode cannot be rows of a column."""
        shape = item.shape
        if ".." in path.split("/"):
            return "its name leads out of its group"
        if not shape or path not in self.columns:
            if path in self.dropped or (problem := problem_of(h5py.Dataset(item))):
                return self.dropped.get(path) or problem
            self.columns[path] = EpisodeColumn(shape[1:], item.dtype)
        if shape[0] != steps:
            return f"it has {shape[0]:,} rows for {steps:,} steps"
        if not item.get_storage_size() and math.prod(shape):
            return f"its {shape[0]:,} rows are declared but not stored"
        column = self.columns[path]
        if (shape[1:], item.dtype) == (column.shape, column.dtype):
            return ""
        return f"its rows change from {column} to {EpisodeColumn(shape[1:], item.dtype)}"

    def _drop(self, path: str, problem: str) -> None:
        if path.partition("/")[0] in NEEDED:
            raise SourceError(
                f"{self.filename}: {path} is damaged: {problem}.",
                path=self.filename,
                key=path,
                found=problem,
                advice="Download the file again, or write it again with all steps.",
            )
        self.dropped.setdefault(path, problem)
        self.columns.pop(path, None)

    def _key(self, name: str, rows: EpisodeColumn) -> Key:
        head, *below = name.split("/")
        if name in (MASK, INFO):
            return SPLIT if name == MASK else LANGUAGE
        images = ("images",) if head in ("obs", "next_obs") and rows.is_image else ()
        return (*KEYS.get(head, ("info", head)), *images, *below)

    def _masks(self, file: h5py.File) -> dict[str, np.ndarray]:
        """Return the split of each episode, text, and whether it is in each other mask, bool."""
        group = file.get(MASK)
        if not isinstance(group, h5py.Group):
            return {}
        splits, masks = np.full(len(self.names), "", object), {}
        missing = []
        numbers = {name.encode(): number for number, name in enumerate(self.names)}
        for mask, item in group.items():
            if not (isinstance(item, h5py.Dataset) and len(item.shape or ()) == 1) or (
                h5py.check_string_dtype(item.dtype) is None
            ):
                self.dropped[f"{MASK}/{mask}"] = "it does not list the names of episodes"
                continue
            check_limit("columns", item.size, f"{self.filename}: {MASK}/{mask}")
            listed = set(map(bytes, read_range(item, 0, item.size)))
            here = sorted(numbers[name] for name in listed & numbers.keys())
            if len(here) < len(listed):
                missing.append(f"{len(listed) - len(here):,} of {len(listed):,} in {mask}")
            if mask not in SPLITS:
                masks[f"{MASK}/{mask}"] = np.isin(np.arange(len(self.names)), here)
                continue
            if twice := [number for number in here if splits[number]]:
                name, other = self.names[twice[0]], splits[twice[0]]
                raise SourceError(
                    f"{self.filename}: {name} is in {MASK}/{other} and in {MASK}/{mask}; expected "
                    "one split for each episode.",
                    path=self.filename,
                    key=f"{MASK}/{mask}",
                    found=name,
                )
            splits[here] = mask
        if missing:
            self.notes.append(f"masks name episodes that the file lacks: {', '.join(missing)}")
        return ({MASK: splits} if any(splits) else {}) | masks

    def _language(self) -> dict[str, np.ndarray]:
        """Return LIBERO's instruction, which is that of all episodes."""
        info = self.attributes.get(INFO)
        text = info.get("language_instruction") if isinstance(info, dict) else None
        if isinstance(text, list):
            text = "".join(map(str, text))
        if not isinstance(text, str):
            return {}
        texts = np.empty(len(self.names), object)
        texts[:] = text
        return {INFO: texts}


def episode_names(file: h5py.File) -> list[str]:
    """Return the names of the episodes, by number: h5py sorts demo_10 before demo_2."""
    data = file.get(DATA)
    names = data if isinstance(data, h5py.Group) else ()
    numbers = {name: int(found[1]) for name in names if (found := NUMBERED.fullmatch(name))}
    groups = [name for name in numbers if _is_group(data, name)]
    return sorted(groups, key=lambda name: (numbers[name], name))


def _existing_names(file: h5py.File) -> list[str]:
    names, filename, found = episode_names(file), Path(file.filename).name, [*file][:10]
    if not names:
        raise SourceError(
            f"{filename} has no episodes: expected groups {DATA}/demo_0, {DATA}/demo_1, ... and "
            f"found {', '.join(found) or 'nothing'}.",
            path=filename,
            key=DATA,
            expected=f"{DATA}/demo_0",
            found=found,
        )
    return names


def _is_group(data: h5py.Group, name: str) -> bool:
    kind = h5py.h5g.get_objinfo(data.id, name.encode(errors="surrogateescape")).type
    return bool(kind == h5py.h5g.GROUP)


def _group(file: h5py.File, name: str) -> h5py.h5g.GroupID:
    return h5py.h5g.open(file.id, f"{DATA}/{name}".encode(errors="surrogateescape"))


def _attributes(group: h5py.h5g.GroupID) -> dict[str, Any]:
    """Return the attributes of a group as JSON values; those of other types as text."""
    found: dict[str, Any] = {}
    for index in range(h5py.h5a.get_num_attrs(group)):
        attribute = h5py.h5a.open(group, index=index)
        name, shape, dtype = (
            attribute.name.decode(errors="replace"),
            attribute.shape,
            attribute.dtype,
        )
        # Any number of references may lead to one long text.
        if (shape != () and h5py.check_vlen_dtype(dtype)) or not attribute.get_storage_size():
            continue
        check_limit("row_bytes", math.prod(shape) * dtype.itemsize, f"the attribute {name}")
        values = np.empty(shape, dtype)
        attribute.read(values)
        plain = values.tolist()
        plain = plain.decode(errors="replace") if isinstance(plain, bytes) else plain
        is_json = isinstance(plain, str | int | bool)
        found[name] = plain if is_json else finite(json.loads(json.dumps(plain, default=str)))
    return found


def _parsed(values: dict[str, Any], where: str) -> dict[str, Any]:
    """Return values with each text that is JSON parsed."""
    parsed = dict(values)
    for name, value in values.items():
        if isinstance(value, str) and value.lstrip().startswith("{"):
            with suppress(SourceError):
                parsed[name] = finite(read_json(value, f"{where}, {name}"))
    return parsed
