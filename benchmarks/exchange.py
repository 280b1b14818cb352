"""Other tools' files, beside those tools: seconds to write and read, and memory.

    python -m benchmarks.exchange [FORMAT]... [--quick]

npz, Parquet, D4RL's HDF5, Minari's and tensordict's folders, beside numpy, pyarrow, h5py, minari
and tensordict, which write and read the same columns. An import has no peer: it is beside reading
the same file. Each side runs in a process of its own; memory is without mapped files.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet as pq
from tensordict import TensorDict

from benchmarks import measure
from benchmarks.measure import ID, Figure, Row, Run
from datasets_cli import import_dataset
from datasets_cli.core.progress import silent
from datasets_cli.exchange.format import format_of
from datasets_cli.store.arrays import open_arrays

BLOCK = 100_000


def ours(name: str, what: str, at: str) -> dict[str, float]:
    """Time writing, reading or importing here."""
    folder = Path(at)
    path, form = folder / f"ours.{name}", format_of(name)
    for module in ("datasets_cli.exchange.arrow_table", "pandas"):  # pyarrow looks for the latter
        import_module(module)
    if what == "write":
        dataset = open_arrays(folder / "datasets" / ID)
        return measure.timed(lambda: form.write(dataset, path, silent, path))
    if what == "import":
        options: Any = {"root": folder / "imported", "progress": None}
        return measure.timed(lambda: import_dataset(path, "mine/rows", **options))
    found = form.recognise(path)
    assert found is not None
    # tensordict's leaves are mapped: copying is what reads them.
    read = np.array if name == "torchrl" else id
    blocks = form.blocks(path, found.map)
    return measure.timed(lambda: [[read(rows) for rows in block.values()][:0] for block in blocks])


def read_hdf5(path: Path) -> dict[str, np.ndarray]:
    with h5py.File(path) as file:
        return {name: item[:] for name, item in file.items() if isinstance(item, h5py.Dataset)}


def write_hdf5(path: Path, columns: dict[str, np.ndarray]) -> None:
    with h5py.File(path, "w") as file:
        for name, rows in columns.items():
            file.create_dataset(name, data=rows)


def read_minari(path: Path) -> list[Any]:
    from minari import MinariDataset

    return [*MinariDataset(path).iterate_episodes()]


def write_minari(path: Path, episodes: list[Any]) -> None:
    from gymnasium.spaces import Box
    from minari.data_collector import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage

    observation, action = (Box(-np.inf, np.inf, (width,), np.float32) for width in (17, 6))
    path.mkdir()
    names = ("observations", "actions", "rewards", "terminations", "truncations")
    buffers = [EpisodeBuffer(**{name: getattr(each, name) for name in names}) for each in episodes]
    storage = MinariStorage.new(path, observation, action, jpeg_encoding=False)
    storage.update_episodes(buffers)


PEERS: dict[str, tuple[str, Callable[[Path], Any], Callable[[Path, Any], Any]]] = {
    "npz": ("numpy", lambda path: dict(np.load(path)), lambda path, rows: np.savez(path, **rows)),
    "parquet": ("pyarrow", pq.read_table, lambda path, table: pq.write_table(table, path)),
    "d4rl": ("h5py", read_hdf5, write_hdf5),
    "minari": ("minari", read_minari, write_minari),
    "torchrl": (
        "tensordict",
        lambda path: TensorDict.load_memmap(path).clone(),
        lambda path, rows: rows.memmap(path),
    ),
}


def peers(name: str, what: str, at: str) -> dict[str, float]:
    """Time the peer's own writer or reader of the same columns."""
    folder = Path(at)
    _, read, write = PEERS[name]
    source = folder / f"ours.{name}"
    if what != "write":
        return measure.timed(lambda: read(source))
    rows = read(source)
    return measure.timed(lambda: write(folder / f"theirs.{name}", rows))


def one_format(run: Run, name: str) -> Iterator[Row | str]:
    """Write, read and import one format; a quick run writes and reads one."""
    if run.is_quick and name != "parquet":
        yield "npz, d4rl, minari, torchrl: a quick run has one format"
        return
    num_rows = run.pick(1_000_000, 100_000)
    measure.installed("ted", run.folder, measure.mujoco_like(BLOCK), num_rows // BLOCK)
    for what in ("write", "read", "import")[: run.pick(3, 2)]:
        sides = ("ours", "peers")
        both = [measure.fresh("exchange", side, name, what, run.folder) for side in sides]
        for key, unit in (("seconds", "s"), ("anonymous MB", "MB")):
            figure, theirs = (Figure(each[key]) for each in both)
            yield Row(f"{what} {name}, {key}", "ours", figure, PEERS[name][0], theirs, unit)
    for path in (run.folder / "imported", *run.folder.glob(f"*.{name}"), run.folder / "datasets"):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


CASES = {name: partial(one_format, name=name) for name in PEERS}

if __name__ == "__main__":
    measure.run(CASES, {"ours": ours, "peers": peers})
