"""D4RL: HDF5 files of one endless row sequence each (Fu et al., 2020).

Facts of the files: the generation scripts and loader of Farama-Foundation/D4RL, and the shapes that
tensorflow/datasets recorded. Sizes and sha256 in ``d4rl.tsv`` are tensorflow/datasets' records of
the Berkeley server; files without them there are taken as they come.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets_cli.recipe import (
    CUT,
    HDF5_MAGIC,
    Block,
    Content,
    Description,
    Key,
    Recipe,
    Resource,
    Row,
    Source,
    SourceError,
    Web,
    open_hdf5,
    read_tsv,
    rows_per_block,
)

if TYPE_CHECKING:
    import h5py
    import numpy as np

BERKELEY = "http://rail.eecs.berkeley.edu/datasets/offline_rl/"
HUGGING_FACE = "https://huggingface.co/datasets/imone/D4RL/resolve/main/"
OLDER = "as first published, before D4RL 1.2.0"

KEYS: dict[str, Key] = {
    "observations": ("observation",),
    "actions": ("action",),
    "rewards": ("next", "reward"),
    "terminals": ("next", "terminated"),
    "timeouts": ("next", "truncated"),
    "next_observations": ("next", "observation"),
}
REQUIRED = ("observations", "actions", "rewards", "terminals")

TRAPS = {
    ("antmaze-", "-v0"): "timeouts do not agree with where trajectories end (D4RL issue 77); "
    "the v2 files are corrected",
    ("antmaze-umaze-diverse", ""): "rewards are inconsistent (D4RL issue 199)",
    ("maze2d-", ""): "one continuous trajectory: timeouts mark a reached goal, not a jump of the "
    "state (D4RL issue 85); the reward belongs to the observation of its own row (issue 194)",
    ("kitchen-", ""): "the reward belongs to the observation of its own row",
    **{
        (f"{task}-human", "-v0"): "the file splits 25 demonstrations into 50 episodes "
        "(D4RL issue 137)"
        for task in ("door", "hammer", "pen", "relocate")
    },
}


def datasets(web: Web | None) -> list[Row]:
    """Return the 179 published ids; D4RL has no catalogue to ask."""
    return [
        Row(
            name=row["name"],
            size=int(row["bytes"]) if row["bytes"] else None,
            details={
                "url": BERKELEY + row["path"],
                "max_episode_steps": int(row["max_episode_steps"] or 0) or None,
                "ref_min_score": float(row["ref_min_score"]) if row["ref_min_score"] else None,
                "ref_max_score": float(row["ref_max_score"]) if row["ref_max_score"] else None,
            },
        )
        for row in _table()
    ]


def resources(name: str, web: Web | None) -> list[Resource]:
    """Return the dataset's one file, at Berkeley and at its Hugging Face mirror."""
    row = next(row for row in _table() if row["name"] == name)
    filename = row["path"].rpartition("/")[2]
    older = Content(int(row["older_bytes"] or 0), {"sha256": row["older_sha256"]}, OLDER)
    return [
        Resource(
            urls=(BERKELEY + row["path"], HUGGING_FACE + filename),
            filename=filename,
            size=int(row["bytes"]) if row["bytes"] else None,
            checksums={"sha256": row["sha256"]} if row["sha256"] else {},
            older=(older,) if row["older_sha256"] else (),
            magic=HDF5_MAGIC,
        )
    ]


def describe(source: Source) -> Description:
    """Return the reference scores, the file's metadata scalars, and what a user should know."""
    import h5py

    assert source.row is not None
    metadata = dict(source.row.details)
    notes = []
    with open_hdf5(_path(source)) as file:
        _check_layout(file)
        rows, dropped = _row_datasets(file)
        if "metadata" in file:
            scalars, weights = _split_metadata(file["metadata"])
            metadata["file_metadata"] = scalars
            dropped += weights
        if dropped:
            metadata["dropped_fields"] = sorted(dropped)
        if "timeouts" not in rows:
            steps = source.row.details["max_episode_steps"]
            metadata["trajectory_ends"] = f"terminals and every {steps} steps" if steps else "terminals"
            notes.append(f"the file has no timeouts; trajectories end at {metadata['trajectory_ends']}")
        unknown = [name for name in rows if name not in KEYS and not name.startswith("infos")]
        if unknown:
            notes.append(f"fields that D4RL does not document are kept under info: {unknown}")
        assert isinstance(file, h5py.File)
    traps = [
        text
        for (start, end), text in TRAPS.items()
        if source.name.startswith(start) and source.name.endswith(end)
    ]
    if traps:
        metadata["known_traps"] = traps
        notes += [f"known trap of the published file: {text}" for text in traps]
    return Description(metadata, tuple(notes))


def blocks(source: Source) -> Iterator[Block]:
    """Yield the file's rows in order."""
    import numpy as np

    assert source.row is not None
    with open_hdf5(_path(source)) as file:
        _check_layout(file)
        rows, _ = _row_datasets(file)
        num_rows = len(rows["observations"])
        columns = {name: _key(name) for name in rows}
        step = rows_per_block(sum(max(1, _row_bytes(dataset)) for dataset in rows.values()))
        limit = source.row.details["max_episode_steps"] if "timeouts" not in rows else None
        age = 0
        for start in range(0, num_rows, step):
            block = {columns[name]: dataset[start : start + step] for name, dataset in rows.items()}
            if limit:
                terminated = np.asarray(block["next", "terminated"]).reshape(-1) != 0
                block[CUT], age = _time_limits(terminated, age, limit)
            yield Block(block)


def _table() -> list[dict[str, str]]:
    return read_tsv(Path(__file__).with_suffix(".tsv"))


def _path(source: Source) -> Path:
    (path,) = source.files.values()
    return path


def _check_layout(file: h5py.File) -> None:
    """Refuse a file that is not D4RL's, by name, before anything is read from it."""
    found = ", ".join(sorted(file)) or "nothing"
    missing = [name for name in REQUIRED if name not in file]
    if missing:
        raise SourceError(
            f"{Path(file.filename).name} has no {', '.join(missing)}; found {found}. "
            "A D4RL file has observations, actions, rewards and terminals."
        )
    if "episode_terminals" in file:
        raise SourceError(
            f"{Path(file.filename).name} has episode_terminals: it is a d3rlpy file, whose ends mean "
            f"something else than D4RL's. Expected D4RL's keys, found {found}."
        )


def _row_datasets(file: h5py.File) -> tuple[dict[str, h5py.Dataset], list[str]]:
    """Return the datasets with one entry a step, by path, and the names of all others."""
    import h5py

    rows: dict[str, h5py.Dataset] = {}
    dropped: list[str] = []

    def visit(path: str, item: Any) -> None:
        if path.split("/")[0] == "metadata" or not isinstance(item, h5py.Dataset):
            return
        if path in KEYS or path == "infos" or path.startswith("infos/") or item.shape[:1] == length:
            rows[path] = item
        else:
            dropped.append(path)

    length = file["observations"].shape[:1]
    file.visititems(visit)
    lengths = {path: dataset.shape[:1] for path, dataset in rows.items()}
    if len(set(lengths.values())) != 1 or not all(lengths.values()):
        raise SourceError(
            f"{Path(file.filename).name} is ragged: expected one entry a step everywhere, found "
            + ", ".join(f"{path} {list(shape)}" for path, shape in lengths.items())
            + ". The file is damaged or was cut."
        )
    return rows, dropped


def _key(path: str) -> Key:
    """Return the TED key of a path in the file; ``infos/qpos`` is ``("info", "qpos")``."""
    if path in KEYS:
        return KEYS[path]
    head, *rest = path.split("/")
    return ("info", *rest) if head == "infos" else ("info", head, *rest)


def _row_bytes(dataset: h5py.Dataset) -> int:
    width = 1
    for size in dataset.shape[1:]:
        width *= size
    return width * int(dataset.dtype.itemsize)


def _split_metadata(group: h5py.Group) -> tuple[dict[str, Any], list[str]]:
    """Return the scalars under ``metadata`` and the names of its arrays (policy weights)."""
    import h5py

    scalars: dict[str, Any] = {}
    arrays: list[str] = []

    def visit(path: str, item: Any) -> None:
        if not isinstance(item, h5py.Dataset):
            return
        if item.shape == ():
            value = item[()]
            scalars[path] = value.decode(errors="replace") if isinstance(value, bytes) else value.item()
        else:
            arrays.append(f"metadata/{path}")

    group.visititems(visit)
    return scalars, arrays


def _time_limits(terminated: np.ndarray, age: int, limit: int) -> tuple[np.ndarray, int]:
    """Return which rows end a trajectory by the step limit, and the age of the open trajectory.

    Args:
        terminated: bool ``[n]``.
        age: steps that the open trajectory already has before this block.
        limit: ``max_episode_steps``; D4RL's own loader counts the same way.
    """
    import numpy as np

    rows = np.arange(len(terminated))
    begins = np.zeros(len(terminated), dtype=np.int64)
    begins[1:] = np.where(terminated[:-1], rows[1:], 0)
    first = np.maximum.accumulate(begins)
    steps = rows - first + np.where(first == 0, age, 0)
    cut = (steps % limit == limit - 1) & ~terminated
    new_age = 0 if terminated[-1] else int(steps[-1] + 1) % limit
    return cut, new_age


RECIPE = Recipe(
    family="d4rl",
    version=1,
    title="D4RL: datasets for deep data-driven reinforcement learning",
    licence="CC BY 4.0",
    citation="Fu, Kumar, Nachum, Tucker, Levine. D4RL: Datasets for Deep Data-Driven Reinforcement "
    "Learning. arXiv:2004.07219, 2020.",
    homepage="https://github.com/Farama-Foundation/D4RL",
    datasets=datasets,
    resources=resources,
    blocks=blocks,
    describe=describe,
)
