"""Small files in the layouts that D4RL's own scripts write, one function a layout.

The sources are named at each function (Farama-Foundation/D4RL, ``scripts/generation``). Numbers are
random, so that no row equals another and any shift shows; a few are NaN, infinite or -0.0.

    write_mujoco_v0(path)    steps  0 … 4T 5 … 11T 12T 13 … 20| 21| 22 … 33| 34 … 39
    T terminal, | timeout; step 12 is a trajectory of its own and so is 21; the last one is cut.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from tests.support.paths import TEST_DATA

TERMINALS = (4, 11, 12)
TIMEOUTS = (20, 21, 33)
NUM_STEPS = 40
DEMONSTRATIONS = TEST_DATA / "d4rl" / "demonstrations" / "door-v0_demos_clipped.hdf5"


@dataclass(frozen=True)
class Layout:
    """One way in which D4RL files are laid out."""

    name: str
    write: Callable[[Path], None]
    max_episode_steps: int | None = None


def finite(path: Path, what: str, *shape: int, dtype: str = "float32") -> np.ndarray:
    """Return normal numbers, always the same for one file name and purpose."""
    seed = zlib.crc32(f"{path.name} {what}".encode())
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def floats(path: Path, what: str, *shape: int, dtype: str = "float32") -> np.ndarray:
    """Return normal numbers with NaN, infinity, -0.0 and a NaN of other bits among them."""
    values = finite(path, what, *shape, dtype=dtype)
    rows = values.reshape(len(values), -1)
    for row, value in {1: np.nan, 3: np.inf, 5: -0.0, 7: -np.inf, 9: np.nan}.items():
        rows[row, -1] = value
    rows[9, -1:].view(f"u{values.itemsize}")[:] += 291
    return values


def flags(num_steps: int, places: Iterable[int]) -> np.ndarray:
    return np.isin(np.arange(num_steps), list(places))


def save(path: Path, columns: Mapping[str, Any], compression: str | None = "gzip") -> None:
    with h5py.File(path, "w") as file:
        for name, values in columns.items():
            scalar = not np.shape(values)
            file.create_dataset(name, data=values, compression=None if scalar else compression)


def steps(
    path: Path,
    widths: tuple[int, int] = (11, 3),
    terminals: Iterable[int] = TERMINALS,
    timeouts: Iterable[int] | None = TIMEOUTS,
    num_steps: int = NUM_STEPS,
    dtype: str = "float32",
) -> dict[str, Any]:
    """Return the columns that every file has, and timeouts unless that is None."""
    columns = {
        "observations": floats(path, "observations", num_steps, widths[0], dtype=dtype),
        "actions": floats(path, "actions", num_steps, widths[1], dtype=dtype),
        "rewards": finite(path, "rewards", num_steps, dtype=dtype),
        "terminals": flags(num_steps, terminals),
    }
    return columns | ({} if timeouts is None else {"timeouts": flags(num_steps, timeouts)})


def infos(path: Path, num_steps: int = NUM_STEPS, dtype: str = "float32", **widths: int) -> Any:
    """Return columns ``infos/<name>`` of the widths; a width of 0 is one number per step."""
    return {
        f"infos/{name}": floats(path, name, *(num_steps, width)[: 1 + (width > 0)], dtype=dtype)
        for name, width in widths.items()
    }


def algorithm() -> dict[str, Any]:
    """Return the ``metadata`` of a replay buffer, which has no policy."""
    return {"metadata/algorithm": np.bytes_("SAC"), "metadata/iteration": np.int32(1200)}


def policy(path: Path) -> dict[str, Any]:
    """Return ``metadata`` with a policy, as mujoco/collect_data.py does."""
    columns = algorithm() | {
        "metadata/policy/nonlinearity": np.bytes_("relu"),
        "metadata/policy/output_distribution": np.bytes_("tanh_gaussian"),
    }
    for layer in ("fc0", "fc1", "last_fc", "last_fc_log_std"):
        columns[f"metadata/policy/{layer}/weight"] = floats(path, layer, 16, 11)
        columns[f"metadata/policy/{layer}/bias"] = floats(path, layer, 16)
    return columns


def write_mujoco_v0(path: Path, **changes: Any) -> None:
    """gym_mujoco, version 0: timeouts, no next_observations, no infos."""
    save(path, steps(path, **changes))


def write_narrow_chunks(path: Path) -> None:
    """A file in the chunks that h5py makes of a large one: fewer rows, and narrower than a row."""
    with h5py.File(path, "w") as file:
        for name, values in (steps(path) | infos(path, qpos=6, time=0)).items():
            chunks = (7, 2)[: values.ndim]
            file.create_dataset(name, data=values, compression="gzip", chunks=chunks)


def write_mujoco_v1_replay(path: Path) -> None:
    """gym_mujoco_v1 replay buffers: float64, next_observations, no policy."""
    save(path, recorded(path, "float64") | algorithm())


def write_mujoco_v2(path: Path) -> None:
    """gym_mujoco_v2, mujoco/collect_data.py: next_observations, float64 infos, a policy."""
    save(path, recorded(path, "float32") | policy(path))


def write_mujoco_v2_older(path: Path) -> None:
    """gym_mujoco_v2 as first published: infos are float32, and those of the step's end."""
    columns = recorded(path, "float32") | infos(path, action_log_probs=0, qpos=6, qvel=6)
    save(path, columns | policy(path))


def write_medium_expert(path: Path) -> None:
    """mujoco/stitch_dataset.py: two files, the first cut at its last end, without metadata."""
    first, second = (recorded(path.with_name(name), "float32") for name in ("medium", "expert"))
    end = 1 + int(np.flatnonzero(first["terminals"] | first["timeouts"])[-1])
    save(path, {name: np.concatenate((first[name][:end], second[name])) for name in first})


def recorded(path: Path, dtype: str) -> dict[str, Any]:
    """Return the columns of a file with next_observations, which no other row repeats."""
    following = floats(path, "next_observations", NUM_STEPS, 11, dtype=dtype)
    columns = steps(path, dtype=dtype) | {"next_observations": following}
    return columns | infos(path, dtype="float64", action_log_probs=0, qpos=6, qvel=6)


def write_adroit_human_v0(path: Path) -> None:
    """Real demonstrations, version 0: a terminal at the last step of each, and timeouts within."""
    with h5py.File(DEMONSTRATIONS) as file:
        columns = {name: file[name][:700] for name in steps(path)}
    columns["terminals"] = columns["timeouts"]
    columns["timeouts"] = flags(700, [199, 499])  # demonstrations of 300 steps, cut after 200
    save(path, columns | infos(path, num_steps=700, qpos=30, qvel=30))


def write_adroit_cloned_v0(path: Path) -> None:
    """Cloned demonstrations, version 0: float64 but for the actions."""
    columns = steps(path, (45, 24), terminals=[], timeouts=[9, 29, 39], dtype="float64")
    columns["actions"] = columns["actions"].astype("float32")
    save(path, columns | infos(path, dtype="float64", qpos=30, qvel=30))


def write_adroit_expert_v1(path: Path) -> None:
    """Experts, version 1: the policy's distribution at every step."""
    columns = steps(path, (39, 30), terminals=[], timeouts=[19, 39])
    moments = infos(path, action_log_std=30, action_mean=30, hand_qpos=30, obj_pos=3)
    save(path, columns | moments | policy(path))


def write_antmaze(path: Path, terminals: list[int], timeouts: list[int]) -> None:
    """generate_ant_maze_datasets.py: terminal on several steps in a row, as nothing is reset."""
    columns = steps(path, (29, 8), terminals, timeouts)
    save(path, columns | infos(path, goal=2, qpos=15, qvel=14))


def write_maze2d(path: Path) -> None:
    """generate_maze2d_datasets.py: one endless trajectory, timeouts where a goal is reached."""
    columns = steps(path, (4, 2), terminals=[], timeouts=[7, 8, 30])
    save(path, columns | infos(path, goal=2, qpos=2, qvel=2))


def write_kitchen(path: Path) -> None:
    """Kitchen: ``infos`` is a plain dataset, and there are no timeouts."""
    columns = steps(path, (60, 9), terminals=[150, 430], timeouts=None, num_steps=800)
    save(path, columns | {"infos": floats(path, "infos", 800, 5)})


def write_flow(path: Path) -> None:
    """DatasetWriter: neither timeouts nor infos."""
    save(path, steps(path, (5, 1), terminals=[499, 700], timeouts=None, num_steps=1710))


def write_minigrid(path: Path) -> None:
    """generate_minigrid_fourroom_data.py: images, one action number, no timeouts."""
    columns = steps(path, terminals=[20, 70, 71], timeouts=None, num_steps=175)
    columns["observations"] = floats(path, "images", 175, 7, 7, 3)
    columns["actions"] = columns["actions"][:, 1].copy()
    save(path, columns | infos(path, num_steps=175, goal=2, orientation=0, pos=2))


def write_columns_of_one(path: Path) -> None:
    """Rewards and terminals ``[N, 1]``, which D4RL's loader squeezes."""
    save(path, {name: rows.reshape(NUM_STEPS, -1) for name, rows in steps(path).items()})


def write_big_endian(path: Path) -> None:
    """Numbers in the byte order of another machine, and not compressed."""
    columns = steps(path) | infos(path, dtype="float64", qpos=6)
    swapped = {name: rows.astype(rows.dtype.newbyteorder(">")) for name, rows in columns.items()}
    save(path, swapped, compression=None)


TRAJECTORY_END = {"terminals": [5], "timeouts": [13], "num_steps": 15}
WHOLE = {"terminals": [0, 6, 19], "timeouts": [1, 6, 12], "num_steps": 20}
ENDLESS = {"widths": (17, 6), "terminals": [], "timeouts": []}
UNCORRECTED = {"terminals": [8, 9, 10, 25, 26], "timeouts": [10, 24, 39]}
CORRECTED = {"terminals": [15, 16, 17], "timeouts": [19, 39]}

LAYOUTS = {
    "mujoco_v0": Layout("hopper-medium-v0", write_mujoco_v0),
    "ends_in_the_middle": Layout("walker2d-random-v0", partial(write_mujoco_v0, **TRAJECTORY_END)),
    "ends_with_a_terminal": Layout("hopper-random-v0", partial(write_mujoco_v0, **WHOLE)),
    "has_no_end": Layout("halfcheetah-medium-v0", partial(write_mujoco_v0, **ENDLESS)),
    "narrow_chunks": Layout("ant-medium-v0", write_narrow_chunks),
    "mujoco_v1_replay": Layout("walker2d-medium-replay-v1", write_mujoco_v1_replay),
    "mujoco_v2": Layout("hopper-medium-v2", write_mujoco_v2),
    "mujoco_v2_older": Layout("hopper-expert-v2", write_mujoco_v2_older),
    "medium_expert": Layout("hopper-medium-expert-v2", write_medium_expert),
    "adroit_human_v0": Layout("door-human-v0", write_adroit_human_v0),
    "adroit_cloned_v0": Layout("pen-cloned-v0", write_adroit_cloned_v0),
    "adroit_expert_v1": Layout("relocate-expert-v1", write_adroit_expert_v1),
    "antmaze_v0": Layout("antmaze-umaze-diverse-v0", partial(write_antmaze, **UNCORRECTED)),
    "antmaze_v2": Layout("antmaze-large-play-v2", partial(write_antmaze, **CORRECTED)),
    "maze2d": Layout("maze2d-umaze-v1", write_maze2d),
    "kitchen": Layout("kitchen-complete-v0", write_kitchen, max_episode_steps=280),
    "flow": Layout("flow-ring-random-v0", write_flow, max_episode_steps=500),
    "minigrid": Layout("minigrid-fourrooms-v0", write_minigrid, max_episode_steps=50),
    "columns_of_one": Layout("ant-random-v0", write_columns_of_one),
    "big_endian": Layout("hopper-expert-v0", write_big_endian),
}
