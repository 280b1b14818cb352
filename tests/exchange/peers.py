"""What other tools read in exported files, in a process without ``datasets_cli``.

``python tests/exchange/peers.py FOLDER`` prints, for each ``NAME.FORMAT`` in a folder, the element
type, the shape and the sha256 of the bytes of each column, by the keys of the project with dots.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import datasets
import h5py
import numpy as np
import pandas
from minari import MinariDataset
from tensordict import TensorDict

Columns = dict[str, Any]

FLAT = {
    "reward": "next.reward",
    "terminated": "next.terminated",
    "truncated": "next.truncated",
    "next_observation": "next.observation",
}
D4RL = {
    "observations": "observation",
    "actions": "action",
    "rewards": "next.reward",
    "terminals": "next.terminated",
    "timeouts": "next.truncated",
    "next_observations": "next.observation",
    "infos": "info",
    "next_infos": "next.info",
}


def npz(path: Path) -> Columns:
    """Read with numpy."""
    with np.load(path, allow_pickle=False) as file:
        return renamed({name: file[name] for name in file.files}, FLAT)


def d4rl(path: Path) -> Columns:
    """Read with h5py by the published layout."""
    with h5py.File(path) as file:
        found = dict(hdf5_datasets(file))
    return renamed({n: rows for n, rows in found.items() if not n.startswith("metadata.")}, D4RL)


def hdf5_datasets(group: h5py.Group, above: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays of a file by their names."""
    for name, item in group.items():
        if isinstance(item, h5py.Group):
            yield from hdf5_datasets(item, f"{above}{name}.")
        else:
            yield above + name, item[()]


def minari(path: Path) -> Columns:
    """Read with Minari: rows and, of observations and infos, their successors."""
    parts: dict[str, list[Any]] = {}
    for episode in MinariDataset(path / "data"):
        found = {
            "next.reward": episode.rewards,
            "next.terminated": episode.terminations,
            "next.truncated": episode.truncations,
            "episode": np.full(len(episode), episode.id),
            **leaves("action", episode.actions),
        }
        recorded = leaves("observation", episode.observations) | leaves("info", episode.infos)
        for name, rows in recorded.items():
            found[name] = rows[: len(episode)]
            if len(rows) > len(episode):
                found[f"next.{name}"] = rows[1:]
        for name, rows in found.items():
            parts.setdefault(name, []).append(rows)
    return {name: np.concatenate(rows) for name, rows in parts.items()}


def leaves(name: str, values: Any) -> Columns:
    """Return the arrays of dicts in one another by their names."""
    if not isinstance(values, Mapping):
        return {name: values}
    return {
        key: rows
        for below, value in values.items()
        for key, rows in leaves(f"{name}.{below}", value).items()
    }


def torchrl(path: Path) -> Columns:
    """Read with tensordict."""
    rows = TensorDict.load_memmap(path).flatten_keys(".")
    return {name: values.numpy() for name, values in rows.items()}


def parquet(path: Path) -> Columns:
    """Read with pandas."""
    return renamed(of_table(pandas.read_parquet(path)), FLAT)


def hf(path: Path) -> Columns:
    """Read with Hugging Face's ``datasets``."""
    return of_table(datasets.load_from_disk(str(path)).to_pandas())


def of_table(table: pandas.DataFrame) -> Columns:
    """Return the columns of a table, lists as arrays."""
    return {name: stacked(table[name].to_numpy()) for name in table}


def stacked(values: np.ndarray) -> np.ndarray:
    """Return arrays in one another as one."""
    is_list = values.dtype == object and isinstance(values[0], np.ndarray)
    return np.stack([stacked(each) for each in values]) if is_list else values


def renamed(columns: Columns, names: dict[str, str]) -> Columns:
    """Return columns by our keys."""
    heads = ((name.partition("."), rows) for name, rows in columns.items())
    return {names.get(head, head) + dot + rest: rows for (head, dot, rest), rows in heads}


def digest(rows: np.ndarray) -> list[Any]:
    """Return the type, the shape and the sha256 of an array; of text of its UTF-8."""
    if rows.dtype.kind in "OUS":
        texts = [each if isinstance(each, bytes) else str(each).encode() for each in rows.flat]
        return ["text", list(rows.shape), hashlib.sha256(b"\0".join(texts)).hexdigest()]
    data = np.ascontiguousarray(rows).tobytes()
    return [str(rows.dtype), list(rows.shape), hashlib.sha256(data).hexdigest()]


READERS: tuple[Callable[[Path], Columns], ...] = (npz, d4rl, minari, torchrl, parquet, hf)

if __name__ == "__main__":
    read = {f".{each.__name__}": each for each in READERS}
    found = {
        path.name: {name: digest(rows) for name, rows in read[path.suffix](path).items()}
        for path in sorted(Path(sys.argv[1]).iterdir())
    }
    assert "datasets_cli" not in sys.modules
    print(json.dumps(found))
