"""What a Minari dataset must be, read by h5py or by Minari itself and nothing of this program."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import minari
import numpy as np

Episode = dict[tuple[str, ...], np.ndarray]

TED = {
    "observations": ("observation",),
    "actions": ("action",),
    "rewards": ("next", "reward"),
    "terminations": ("next", "terminated"),
    "truncations": ("next", "truncated"),
    "infos": ("info",),
}
ROOT_FLAGS = ("done", "terminated", "truncated")


def by_h5py(folder: Path) -> list[Episode]:
    with h5py.File(folder / "main_data.hdf5") as file:
        numbers = sorted(int(name.removeprefix("episode_")) for name in file)
        return [dict(arrays(file[f"episode_{number}"])) for number in numbers]


def arrays(group: h5py.Group) -> Iterator[tuple[tuple[str, ...], np.ndarray]]:
    for name, item in group.items():
        part = name.removeprefix("_index_")
        if isinstance(item, h5py.Group):
            yield from (((part, *path), values) for path, values in arrays(item))
        elif item.dtype.kind not in "OS":
            yield (part,), item[()]


def texts_by_h5py(folder: Path) -> dict[tuple[str, ...], list[str]]:
    """Return every column of text, read one value after the other; empty texts for no value."""
    columns: dict[tuple[str, ...], list[str]] = {}
    with h5py.File(folder / "main_data.hdf5") as file:
        for number in sorted(int(name.removeprefix("episode_")) for name in file):
            group = file[f"episode_{number}"]
            steps = len(group["rewards"])
            for path, values in texts(group):
                key = (*TED[path[0]], *path[1:])
                columns.setdefault(key, []).extend(values[:steps])
                if len(values) == steps + 1:
                    columns.setdefault(("next", *key), []).extend(values[1:])
    return columns


def texts(group: h5py.Group) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    for name, item in group.items():
        part = name.removeprefix("_index_")
        if isinstance(item, h5py.Group):
            yield from (((part, *path), values) for path, values in texts(item))
        elif h5py.check_string_dtype(item.dtype):
            rows = (item[row] for row in range(len(item)))
            yield (part,), [row.decode(errors="surrogateescape") for row in rows]


def by_minari(name: str) -> list[Episode]:
    return [
        {path: values for path, values in parts if isinstance(values, np.ndarray)}
        for parts in _read_by_minari(name)
    ]


def texts_by_minari(name: str) -> dict[tuple[str, ...], list[str]]:
    """Return every column of text as ``texts_by_h5py`` does, by Minari's own reader."""
    columns: dict[tuple[str, ...], list[str]] = {}
    for parts in _read_by_minari(name):
        found = dict(parts)
        steps = len(found["rewards",])
        for path, values in found.items():
            if isinstance(values, list):
                key = (*TED[path[0]], *path[1:])
                columns.setdefault(key, []).extend(values[:steps])
                if len(values) == steps + 1:
                    columns.setdefault(("next", *key), []).extend(values[1:])
    return columns


Part = tuple[tuple[str, ...], np.ndarray | list[str]]


def _read_by_minari(name: str) -> Iterator[list[Part]]:
    dataset = minari.load_dataset(name)
    for number in range(dataset.total_episodes):
        episode = dataset[number]  # alone: together they must be alike in the Arrow form
        yield list(leaves({root: getattr(episode, root) for root in TED}))


def leaves(value: Any) -> Iterator[Part]:
    """Yield the arrays and the lists of text in what Minari's reader returns."""
    if isinstance(value, np.ndarray) and value.dtype == object and isinstance(value[0], dict):
        # Infos within infos, of the Arrow form: a dict for each row.
        value = {name: np.stack([row[name] for row in value]) for name in value[0]}
    if isinstance(value, np.ndarray) and value.dtype.kind in "OSU":
        value = value.tolist()
    if isinstance(value, list):
        texts = (text if isinstance(text, str) else text.decode() for text in value)
        yield (), list(texts)
    elif isinstance(value, np.ndarray):
        yield (), value
    else:
        items = value.items() if isinstance(value, dict) else enumerate(value or ())
        for name, item in items:
            part = str(name).removeprefix("_index_")
            yield from (((part, *path), values) for path, values in leaves(item))


def expected(episodes: list[Episode]) -> Episode:
    """Return the transitions that episodes of T + 1 observations are, by key."""
    columns: dict[tuple[str, ...], list[np.ndarray]] = {}
    for number, episode in enumerate(episodes):
        steps = len(episode["rewards",])
        terminated = episode["terminations",][:, None]
        truncated = episode["truncations",][:, None].copy()
        truncated[-1] |= ~terminated[-1]
        rows = {(*TED[root], *path): values for (root, *path), values in episode.items()}
        successors = {("next", *key): v[1:] for key, v in rows.items() if len(v) == steps + 1}
        rows = {key: values[:steps] for key, values in rows.items()} | successors
        rows["next", "reward"] = rows["next", "reward"][:, None]
        rows["next", "terminated"] = terminated
        rows["next", "truncated"] = truncated
        rows["next", "done"] = terminated | truncated
        rows["episode",] = np.full(steps, number, dtype=np.int64)
        rows |= {(flag,): np.zeros((steps, 1), bool) for flag in ROOT_FLAGS}
        for key, values in rows.items():
            columns.setdefault(key, []).append(values.astype(values.dtype.newbyteorder("=")))
    return {key: np.concatenate(parts) for key, parts in columns.items()}
