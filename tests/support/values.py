"""The checker of values: what a converted dataset must hold, worked out by a slow plain loop.

It shares no code with what it checks: it reads the source with h5py and the result with numpy, and
imports nothing of ``datasets_cli``. Everything is compared as bytes, so that NaN and -0.0 count.

    step           0    1    2T   3    4    5|     T terminal, | timeout, step limit or end of file
    successor      1    2    0    4    5    -      where the file has no next_observations: zeros
    next.done      .    .    T    .    T    -      at a terminal; a step that was cut off is dropped
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np

Key = tuple[str, ...]

KEYS: dict[str, Key] = {
    "observations": ("observation",),
    "actions": ("action",),
    "rewards": ("next", "reward"),
    "next_observations": ("next", "observation"),
    "infos": ("info",),
}
FLAGS = ("done", "terminated", "truncated")


@dataclass(frozen=True)
class Expected:
    """What must be on the disk.

    Args:
        leaves: ``{key: rows [N, ...]}`` of every leaf; empty where no step makes a transition.
        offsets: first row of each trajectory, and N.
        recorded: whether the source has the successors itself.
        final: ``{key: steps [F, ...]}`` of the recorded steps that are no transition.
        texts: ``{key: values}`` of every column of text.
    """

    leaves: Mapping[Key, np.ndarray]
    offsets: list[int]
    recorded: bool
    final: Mapping[Key, np.ndarray] = field(default_factory=dict)
    texts: Mapping[Key, list[str]] = field(default_factory=dict)

    def rewards(self) -> list[np.ndarray]:
        """Return the rewards of all recorded steps of each trajectory with a row, each ``[T]``."""
        rewards = self.leaves["next", "reward"][:, 0].astype(np.float64)
        parts = np.split(rewards, self.offsets[1:-1])
        if self.final:
            final = zip(self.final["episode",], self.final["next", "reward"], strict=True)
            for number, reward in final:
                if number >= 0:
                    parts[number] = np.append(parts[number], reward)
        return parts


@dataclass(frozen=True)
class Trajectory:
    """The steps ``first`` to ``last`` of a source, and how they end."""

    first: int
    last: int
    terminated: bool
    truncated: bool


def read_source(path: Path) -> dict[str, np.ndarray]:
    """Return every column of a D4RL file by its path in the file."""
    columns = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and not name.startswith("metadata/"):
            columns[name] = item[()]

    with h5py.File(path) as file:
        file.visititems(visit)
    return columns


def expect(source: Mapping[str, np.ndarray], max_episode_steps: int | None = None) -> Expected:
    """Return what a D4RL file must become; its step limit counts where it has no timeouts."""
    recorded = "next_observations" in source
    rows: dict[Key, list[np.ndarray]] = {}
    final: dict[Key, list[np.ndarray]] = {}
    offsets = [0]
    for trajectory in split(source, max_episode_steps):
        last = trajectory.last
        if not (recorded or trajectory.terminated):
            last -= 1
            episode = len(offsets) - 1 if last >= trajectory.first else -1
            for key, value in final_step(source, trajectory.last, episode).items():
                final.setdefault(key, []).append(value)
        if last < trajectory.first:
            continue
        for step in range(trajectory.first, last + 1):
            for key, value in transition(source, step, trajectory, step == last).items():
                rows.setdefault(key, []).append(value)
            rows.setdefault(("episode",), []).append(np.int64(len(offsets) - 1))
        offsets.append(offsets[-1] + last + 1 - trajectory.first)
    texts = {
        key: [value.decode(errors="surrogateescape") for value in values]
        for key, values in rows.items()
        if isinstance(values[0], bytes)
    }
    leaves = {key: np.stack(values) for key, values in rows.items() if key not in texts}
    numbers = {key: np.stack(values) for key, values in final.items() if key not in texts}
    return Expected(leaves, offsets, recorded, numbers, texts)


def split(source: Mapping[str, np.ndarray], max_episode_steps: int | None) -> list[Trajectory]:
    """Cut the steps of a D4RL file into trajectories."""
    trajectories = []
    first, num_steps = 0, len(source["observations"])
    for step in range(num_steps):
        terminated = bool(source["terminals"][step])
        if "timeouts" in source:
            truncated = bool(source["timeouts"][step])
        else:
            truncated = step - first + 1 == max_episode_steps and not terminated
        if step == num_steps - 1 and not terminated:
            truncated = True
        if terminated or truncated:
            trajectories.append(Trajectory(first, step, terminated, truncated))
            first = step + 1
    return trajectories


def recorded_values(source: Mapping[str, np.ndarray], step: int) -> dict[Key, np.ndarray]:
    """Return what a file has of one step, but for its flags."""
    row: dict[Key, np.ndarray] = {}
    for name, values in source.items():
        if name.startswith("infos/"):
            row["info", name.removeprefix("infos/")] = values[step]
        elif name not in ("terminals", "timeouts"):
            row[KEYS[name]] = values[step]
    row["next", "reward"] = np.reshape(row["next", "reward"], (1,))
    return row


def transition(
    source: Mapping[str, np.ndarray], step: int, trajectory: Trajectory, ends: bool
) -> dict[Key, np.ndarray]:
    """Return the row of one step; ``ends`` where it is the last row of its trajectory."""
    row = recorded_values(source, step)
    if "next_observations" not in source:
        if ends and trajectory.terminated:
            row["next", "observation"] = np.zeros_like(source["observations"][step])
        else:
            row["next", "observation"] = source["observations"][step + 1]
    flags = {
        "done": ends,
        "terminated": ends and trajectory.terminated,
        "truncated": ends and trajectory.truncated,
    }
    for name in FLAGS:
        row[name,] = np.array([False])
        row["next", name] = np.array([flags[name]])
    return row


def final_step(source: Mapping[str, np.ndarray], step: int, episode: int) -> dict[Key, np.ndarray]:
    """Return a recorded step that is no transition; ``episode`` -1 where it is alone."""
    row = {("episode",): np.int64(episode)} | recorded_values(source, step)
    row["next", "terminated"] = np.array([False])
    timeout = "timeouts" in source and bool(source["timeouts"][step])
    return row | {("next", "truncated"): np.array([timeout]), ("recorded_step",): np.int64(step)}


def read_leaves(folder: Path, prefix: Key = ()) -> dict[Key, np.ndarray]:
    """Return every leaf of a memory-mapped folder, by its ``meta.json`` files and raw bytes."""
    leaves: dict[Key, np.ndarray] = {}
    for name, entry in json.loads((folder / "meta.json").read_text()).items():
        if not isinstance(entry, dict):
            continue
        if entry.get("type") == "TensorDict":
            leaves |= read_leaves(folder / name, (*prefix, name))
            continue
        dtype = np.dtype(entry["dtype"].removeprefix("torch."))
        data = (folder / f"{name}.memmap").read_bytes()
        size = int(np.prod(entry["shape"])) * dtype.itemsize
        assert len(data) == size, f"{(*prefix, name)}: {size} bytes expected, {len(data)} found"
        leaves[*prefix, name] = np.frombuffer(data, dtype).reshape(entry["shape"])
    return leaves


def read_texts(folder: Path) -> dict[Key, list[str]]:
    """Return every column of text with one value per row, by the manifest and raw bytes."""
    texts: dict[Key, list[str]] = {}
    for entry in json.loads((folder / "manifest.json").read_text()).get("texts", []):
        offsets = np.fromfile(folder / "text.offsets", "<i8")
        data = (folder / "text.utf8").read_bytes()
        values = [data[offsets[k] : offsets[k + 1]] for k in range(len(offsets) - 1)]
        codes = np.fromfile(folder.joinpath("text", *entry["key"]).with_suffix(".memmap"), "<i4")
        decoded = [values[code].decode(errors="surrogateescape") for code in codes]
        texts[tuple(entry["key"])] = decoded
    return texts


def everything(dataset: Any) -> dict[Key, np.ndarray]:
    """Return every column of an opened dataset."""
    return {key: leaf.numpy() for key, leaf in dataset.columns(()).items()}


def assert_same(found: Mapping[Key, np.ndarray], expected: Mapping[Key, np.ndarray]) -> None:
    """Compare keys, element types, shapes and bytes of two sets of leaves."""
    assert found.keys() == expected.keys(), f"leaves that differ: {found.keys() ^ expected.keys()}"
    for key, wanted in expected.items():
        native = wanted.astype(wanted.dtype.newbyteorder("="))
        ours = f"{key}: {found[key].dtype} {found[key].shape}"
        assert found[key].dtype == native.dtype, f"{ours}, not {native.dtype}"
        assert found[key].shape == native.shape, f"{ours}, not {native.shape}"
        if found[key].tobytes() == native.tobytes():
            continue
        for row, (has, must) in enumerate(zip(found[key], native, strict=True)):
            assert has.tobytes() == must.tobytes(), f"{key}, row {row}: {has}, not {must}"


def assert_folder(folder: Path, expected: Expected) -> None:
    """Compare everything a dataset folder holds with what must be in it."""
    assert_same(read_leaves(folder), expected.leaves)
    texts = read_texts(folder)
    assert texts == expected.texts, f"text: {texts}, not {expected.texts}"
    names = {"/".join(key) + ".memmap" for key in expected.leaves}
    names |= {"/".join(("text", *key)) + ".memmap" for key in expected.texts}
    if expected.final:
        assert_same(read_leaves(folder / "final"), expected.final)
        names |= {"/".join(("final", *key)) + ".memmap" for key in expected.final}
        names |= {"/".join(("final/text", *key)) + ".memmap" for key in expected.texts}
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*.memmap")}
    assert files == names, f"files that differ: {files ^ names}"

    offsets = np.load(folder / "trajectories.npy")
    assert offsets.dtype == np.int64
    assert offsets.tolist() == expected.offsets, f"offsets: {offsets}, not {expected.offsets}"

    manifest = json.loads((folder / "manifest.json").read_text())
    rule = manifest["successors"]
    counts = {
        "transitions": (manifest["num_transitions"], expected.offsets[-1]),
        "trajectories": (manifest["num_trajectories"], len(expected.offsets) - 1),
        "final": (manifest.get("final_steps", 0), len(expected.final.get(("episode",), ()))),
        "recorded": (rule["rule"] == "recorded", expected.recorded),
    }
    wrong = {name: pair for name, pair in counts.items() if pair[0] != pair[1]}
    assert not wrong, f"the manifest says, and should say: {wrong}"
    columns = {tuple(c["key"]): (c["dtype"], tuple(c["shape"])) for c in manifest["columns"]}
    leaves = expected.leaves.items()
    schema = {key: (rows.dtype.name, rows.shape[1:]) for key, rows in leaves}
    assert columns == schema, f"the manifest's columns: {columns}, not {schema}"


def assert_d4rl(folder: Path, source: Path, max_episode_steps: int | None = None) -> None:
    """Compare a converted D4RL dataset with the file it came from."""
    assert_folder(folder, expect(read_source(source), max_episode_steps))
