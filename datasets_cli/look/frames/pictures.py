"""The pictures of one trajectory: frames that are stored, or an environment in recorded states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from datasets_cli.errors import UsageError
from datasets_cli.quantities import counted
from datasets_cli.schema.columns import Column, Key, rows_per_block, show_key
from datasets_cli.store.arrays import DatasetArrays, open_arrays, plain_numbers
from datasets_cli.store.layouts.records import is_frame

STATES = ("qpos", "qvel")
"""What gymnasium's environments of MuJoCo are set to."""


@dataclass(frozen=True)
class Pictures:
    """Pictures, uint8 ``[height, width]`` or ``[height, width, 3]``, read by their numbers."""

    read: Callable[[np.ndarray], Iterator[np.ndarray]]
    count: int
    source: tuple[str, ...]
    fps: int | None = None
    notes: tuple[str, ...] = ()


def pictures_of(folder: Path, trajectory: int, key: str | Sequence[str] | None) -> Pictures:
    """Return the pictures of a trajectory of the dataset in a folder, one for each row."""
    dataset = open_arrays(folder)
    if trajectory >= dataset.num_trajectories:
        known = counted(dataset.num_trajectories, "trajectory")
        raise UsageError(
            f"There is no trajectory {trajectory} of {dataset.id}: it has {known}, from 0 to "
            f"{dataset.num_trajectories - 1}."
        )
    first, end = dataset.starts[trajectory : trajectory + 2].tolist()
    rows = range(first, end)
    columns = dataset.manifest.columns
    frames = [each for each in columns if len(each.shape) > 1 and is_frame(each.dtype, each.shape)]
    if key is not None:
        return _stored(dataset, _named(dataset, key, frames), rows)
    if frames:
        return _stored(dataset, min(frames, key=lambda each: each.key[0] == "next"), rows)
    return _of_states(dataset, rows)


def _named(dataset: DatasetArrays, key: str | Sequence[str], frames: Sequence[Column]) -> Column:
    """Return the column of a name that has pictures, small ones too."""
    name = key if isinstance(key, str) else show_key(tuple(key))
    column = next((each for each in dataset.manifest.columns if show_key(each.key) == name), None)
    if column is not None and column.dtype == "uint8" and len(column.shape) > 1:
        return column
    what = "no column" if column is None else f"{column.dtype} {list(column.shape)}, no frame"
    known = ", ".join(show_key(each.key) for each in frames) or "none of its columns"
    raise UsageError(
        f"{name} of {dataset.id} is {what}. Expected uint8 of two dimensions or more: {known}."
    )


def _stored(dataset: DatasetArrays, column: Column, rows: range) -> Pictures:
    """Return the frames of a column."""

    def read(numbers: np.ndarray) -> Iterator[np.ndarray]:
        reader, step = dataset.arrays_of(frozenset({column.key})), rows_per_block(column.row_bytes)
        for start in range(0, len(numbers), step):
            part = rows.start + numbers[start : start + step]
            yield from map(_picture, reader.gather(part)[column.key])

    notes, shape = [], column.shape
    if len(shape) > 3 or (len(shape) == 3 and min(shape[0], shape[2]) not in (1, 3)):
        notes.append(
            f"{show_key(column.key)} {list(shape)} is a stack of frames: the last is shown"
        )
    return Pictures(read, len(rows), (show_key(column.key),), None, tuple(notes))


def _picture(frame: np.ndarray) -> np.ndarray:
    """Return a frame as a picture; of a stack the last one."""
    while frame.ndim > 3:
        frame = frame[-1]
    if frame.ndim == 3:
        # Channels, or frames of a stack, are fewer than lines.
        frame = frame if frame.shape[2] < frame.shape[0] else np.moveaxis(frame, 0, 2)
        frame = frame if frame.shape[2] == 3 else frame[..., -1]
    return np.ascontiguousarray(frame)


def _of_states(dataset: DatasetArrays, rows: range) -> Pictures:
    """Return what the environment of a dataset shows in the states of some rows."""
    manifest = dataset.manifest
    known = {column.key for column in manifest.columns if column.key[0] != "next"}
    parts = [
        key[:-1] for key in sorted(known) if all((*key[:-1], name) in known for name in STATES)
    ]
    if not (parts and manifest.metadata.get("env_spec")):
        lacks = " and ".join(
            [
                *["no env_spec"] * (not manifest.metadata.get("env_spec")),
                *["no qpos and qvel"] * (not parts),
            ]
        )
        raise UsageError(
            f"There are no pictures of {manifest.id}: it has no frames, and for its environment to "
            f"show recorded states it has {lacks}. Replayed actions would show what may not have "
            "happened, and are not shown."
        )
    from datasets_cli.environments.record.recover import recover_environment  # gymnasium

    keys: list[Key] = [(*parts[0], name) for name in STATES]
    environment = recover_environment(manifest, {"render_mode": "rgb_array"})

    def read(numbers: np.ndarray) -> Iterator[np.ndarray]:
        read = dataset.arrays_of(frozenset(keys)).gather(rows.start + numbers)
        states = [plain_numbers(read[key]) for key in keys]
        with closing(environment):
            yield from _shown(environment, zip(*states, strict=True), manifest.id)

    note = (
        f"{manifest.id} has no frames: its environment is set to each row's "
        f"{' and '.join(map(show_key, keys))}; all else is as its reset leaves it"
    )
    fps = environment.metadata.get("render_fps")
    return Pictures(read, len(rows), tuple(map(show_key, keys)), fps, (note,))


def _shown(
    environment: Any, states: Iterable[Sequence[np.ndarray]], id: str
) -> Iterator[np.ndarray]:
    """Yield what an environment shows in each of some states."""
    try:
        environment.reset(seed=0)  # before it, none can be shown
        bare = environment.unwrapped
        # Mazes hold the environment of what moves in them.
        inner = next(each for each in (bare, *vars(bare).values()) if hasattr(each, "set_state"))
    except StopIteration:
        raise UsageError(
            f"The environment of {id}, {environment}, cannot be set to a state: it has no "
            "set_state(qpos, qvel), which gymnasium's environments of MuJoCo have."
        ) from None
    for qpos, qvel in states:
        try:
            inner.set_state(qpos, qvel)
            picture = np.asarray(environment.render())
        except Exception as error:  # whatever an environment does
            raise UsageError(
                f"The environment of {id} cannot show a recorded state ({type(error).__name__}: "
                f"{error}). It may be of another version than the one that was recorded."
            ) from error
        if picture.dtype != np.uint8 or picture.ndim != 3:
            raise UsageError(
                f"The environment of {id} shows {picture.dtype} {list(picture.shape)}; expected "
                "uint8 of three dimensions."
            )
        yield _picture(picture)
