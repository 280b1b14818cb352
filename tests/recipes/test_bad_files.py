"""Files of every family with every kind of fault: rejected by name, in bounded memory.

A family joins with an entry of FAMILIES: a dataset, a function that writes its good files and
returns the one to spoil, and the faults that only its format can have. All are also cut.
"""

from __future__ import annotations

import json
import shutil
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from datasets_cli.config import Config
from datasets_cli.errors import SourceError
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.manifest import read_manifest
from tests.support import rlds_files as rlds
from tests.support.bombs import peak_bytes
from tests.support.paths import TEST_DATA
from tests.support.unplugged_files import example, pack

MOST_BYTES = 1 << 30
Fault = Callable[[Path], Any]
"""Spoils a good file."""


@dataclass(frozen=True)
class Family:
    """A small dataset of a family.

    Args:
        id: the dataset.
        write: writes its good files into an empty folder, and returns the file that faults spoil.
        faults: by name, those of its format.
    """

    id: str
    write: Callable[[Path], Path]
    faults: Mapping[str, Fault] = field(default_factory=dict)


def cut(at: int, path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * at // 20])


SHARED: dict[str, Fault] = {
    **{f"cut at {at} of 20": partial(cut, at) for at in range(20)},
    "a web page": lambda path: path.write_bytes(b"<!DOCTYPE html>\n<title>Hello"),
    "text": lambda path: path.write_bytes(b"hello\n" * 1000),
}


def assert_rejected(family: Family, fault: Fault, folder: Path, config: Config) -> None:
    folder.mkdir()
    fault(path := family.write(folder))
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    before = peak_bytes()
    with pytest.raises(SourceError) as caught:
        install_dataset(family.id, config, InstallOptions(source=str(folder), accept_any=True))
    assert peak_bytes() - before < MOST_BYTES
    assert caught.value.exit_code == 4
    assert caught.value.path is not None and Path(caught.value.path).name == path.name
    assert not [*CacheRoot(config.root).installed(), *config.root.glob("tmp/*")]


# numpy's archives.


def npz(path: Path, /, **changes: Any) -> None:
    """Replace arrays of an archive; None removes one, and a function changes it."""
    with np.load(path) as file:
        arrays = dict(file)
    for name, change in changes.items():
        arrays[name] = change(arrays[name]) if callable(change) else change
    np.savez_compressed(path, **{name: each for name, each in arrays.items() if each is not None})


def member(path: Path, name: str, shape: tuple[int, ...], size: int | None = None) -> None:
    """Replace an array by a header that claims float32 of a shape; ``size`` is what zip claims."""
    with zipfile.ZipFile(path) as archive:
        others = {each: archive.read(each) for each in archive.namelist() if each != name}
    text = repr({"descr": "<f4", "fortran_order": False, "shape": shape}).encode() + b"\n"
    others[name] = b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for each, data in others.items():
            archive.writestr(each, data)
        if size is not None:
            archive.getinfo(name).file_size = size + len(others[name])


def renamed(path: Path, name: str, other: str) -> None:
    with zipfile.ZipFile(path) as archive:
        arrays = {each: archive.read(each) for each in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for each, data in arrays.items():
            archive.writestr(other if each == name else each, data)


def flipped(path: Path) -> None:
    """Change a byte of a stored array, so that its checksum is wrong."""
    with np.load(path) as file:
        np.savez(path, **file)
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)


def archive_faults(row: str, names: tuple[str, ...]) -> dict[str, Fault]:
    """Return the faults of an archive with ``names``; ``row`` is one of several numbers a row."""
    first = f"{row}.npy"
    return {
        **{f"no {name}": partial(npz, **{name: None}) for name in names},
        "no arrays": np.savez,
        "no rows": partial(npz, **{name: lambda rows: rows[:0] for name in names}),
        "a row less": partial(npz, **{row: lambda rows: rows[:-1]}),
        "a row more": partial(npz, **{row: lambda rows: np.concatenate([rows, rows[:1]])}),
        "one number": partial(npz, **{row: np.float32(1)}),
        "Python objects": partial(npz, **{row: lambda rows: np.array([{}] * len(rows), object)}),
        "dates": partial(npz, **{row: lambda rows: np.zeros(len(rows), "M8[s]")}),
        "text": partial(npz, **{row: lambda rows: np.full(len(rows), "x")}),
        "a wrong checksum": flipped,
        "10^9 rows": lambda path: member(path, first, (10**9,)),
        "10^9 rows that zip claims too": lambda path: member(path, first, (10**9,), 4 * 10**9),
        "a shape below 0": lambda path: member(path, first, (-1, 4)),
        "a name with ..": lambda path: renamed(path, first, f"../{first}"),
    }


# NeoRL-2.

NEORL2 = ("obs", "action", "reward", "next_obs", "done", "truncated")


def write_neorl2(folder: Path) -> Path:
    """Write val with the rows of train, which are few."""
    source = TEST_DATA / "neorl2" / "Simglucose-train.npz"
    shutil.copy(source, folder)
    return Path(shutil.copy(source, folder / "Simglucose-val.npz"))


# OGBench.

OGBENCH = "pointmaze-medium-navigate"


def write_ogbench(folder: Path) -> Path:
    for suffix in ("", "-val"):
        name = f"{OGBENCH}-v0{suffix}.npz"
        path = Path(shutil.copy(TEST_DATA / "ogbench" / name, folder))
    return path


def with_flag(row: int, value: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that changes one flag."""

    def change(flags: np.ndarray) -> np.ndarray:
        flags = flags.astype(np.asarray(value).dtype)
        flags[row] = value
        return flags

    return change


# robomimic.


def write_lift(folder: Path) -> Path:
    return Path(shutil.copy(TEST_DATA / "robomimic" / "lift_low_dim.hdf5", folder / "low_dim.hdf5"))


def hdf5(change: Callable[[h5py.File], Any]) -> Fault:
    """Return a function that changes an HDF5 file."""

    def fault(path: Path) -> None:
        with h5py.File(path, "r+") as file:
            change(file)

    return fault


def without(*paths: str) -> Fault:
    return hdf5(lambda file: [file.__delitem__(path) for path in paths])


def put(values: Any, *paths: str, steps: Any = 58) -> Fault:
    """Return a function that replaces arrays of demo_1, and the number of steps it states."""

    def change(file: h5py.File) -> None:
        for path in paths:
            file.pop(f"data/demo_1/{path}", None)
            file[f"data/demo_1/{path}"] = values
        file["data/demo_1"].attrs["num_samples"] = steps

    return hdf5(change)


def declare(file: h5py.File) -> None:
    """Declare 10^9 steps of demo_1, and store none."""
    demo = file["data/demo_1"]
    for path in ("actions", "rewards", "dones", "states", "obs/object", "next_obs/object"):
        shape, dtype = demo[path].shape, demo[path].dtype
        del demo[path]
        demo.create_dataset(path, (10**9, *shape[1:]), dtype)
    demo.attrs["num_samples"] = 10**9


HDF5_FAULTS: dict[str, Fault] = {
    "no data": without("data"),
    "no episodes": without("data/demo_0", "data/demo_1"),
    "no numbers in names": hdf5(lambda file: file.move("data", "episodes")),
    "an episode without arrays": hdf5(lambda file: file.create_group("data/demo_2")),
    "no steps": put(np.zeros((0, 7)), "actions", steps=0),
    "a wrong number of steps": put(np.zeros(58), "rewards", steps=59),
    "a number of steps that is text": put(np.zeros(58), "rewards", steps="many"),
    "no observations": without("data/demo_0/obs", "data/demo_1/obs"),
    **{
        f"no {path} of an episode": without(f"data/demo_1/{path}")
        for path in ("actions", "obs", "obs/object", "next_obs/object", "rewards", "dones")
    },
    "fewer rewards": put(np.zeros(57), "rewards"),
    "more dones": put(np.zeros(59, "i8"), "dones"),
    "one action": put(3.0, "actions"),
    "text": put(np.full(58, b"x"), "actions"),
    "narrow observations": put(np.zeros((58, 9)), "obs/object"),
    "narrow successors": hdf5(lambda file: [narrow(demo) for demo in file["data"].values()]),
    "another dtype": put(np.zeros((58, 32), "f4"), "states"),
    "two rewards a row": hdf5(lambda file: [twice(demo) for demo in file["data"].values()]),
    "two splits": hdf5(lambda file: file.__setitem__("mask/test", np.array([b"demo_0"]))),
    "10^9 steps": hdf5(declare),
    "a link": hdf5(lambda file: file.__setitem__("data/demo_2", h5py.SoftLink("/data/demo_1"))),
    "a name with ..": hdf5(lambda file: [above(demo) for demo in file["data"].values()]),
}


def narrow(demo: h5py.Group) -> None:
    rows = demo["next_obs/object"][:, 1:]
    del demo["next_obs/object"]
    demo["next_obs/object"] = rows


def twice(demo: h5py.Group) -> None:
    rows = np.stack([demo["rewards"][:]] * 2, 1)
    del demo["rewards"]
    demo["rewards"] = rows


def above(demo: h5py.Group) -> None:
    demo["obs/.."] = demo["next_obs/.."] = demo["rewards"][:]


# RLDS, and RL Unplugged's records.


def write_made(filename: str, folder: Path) -> Path:
    """Write an RLDS dataset of three episodes, and return one of its files."""
    return rlds.write_rlds(folder, [rlds.episode(3), rlds.episode(4), rlds.episode(3)]) / filename


def document(change: Callable[[Any], Any]) -> Fault:
    """Return a function that changes a JSON document, or replaces it by what is returned."""

    def fault(path: Path) -> None:
        found = json.loads(path.read_text())
        path.write_text(json.dumps(change(found) or found))

    return fault


def action(node: Any) -> Fault:
    """Return a function that describes the action in another way."""

    def change(tree: Any) -> None:
        step = tree["featuresDict"]["features"]["steps"]["sequence"]["feature"]
        step["featuresDict"]["features"]["action"] = node

    return document(change)


def next_to(filename: str, fault: Fault) -> Fault:
    """Return a function that spoils another file of the folder."""
    return lambda path: fault(path.with_name(filename))


def lengths(*shards: str) -> Fault:
    return document(lambda info: info["splits"][0].update(shardLengths=[*shards]))


def made(values: Any = None, node: Any = None, **changes: Any) -> Fault:
    """Return a function that writes one episode, with values ``v`` or changed lists."""
    record = rlds.episode(2, **changes) | ({} if values is None else {"steps/v": values})
    return lambda path: rlds.write_rlds(path.parent, [record], {"v": node} if node else {})


PIXELS = rlds.image_file(np.zeros((4, 4, 3), np.uint8))
RGB, ZLIB = rlds.image("uint8", 4, 4, 3), rlds.tensor("uint8", 1, encoding="zlib")
SHARD = "made-train.tfrecord-00000-of-00001"
RLDS_FAULTS: dict[str, Fault] = {
    "a record less": next_to("dataset_info.json", lengths("4")),
    "10^9 records": next_to("dataset_info.json", lengths("1000000000")),
    "another width": next_to("features.json", action(rlds.tensor("float32", 2))),
    "another kind": next_to("features.json", action(rlds.tensor("int32", 1))),
    "text as numbers": next_to("features.json", action({"text": {}})),
    "a missing feature": made(node=rlds.tensor("float32")),
    "fewer actions": made(steps__action=np.zeros(1, np.float32)),
    "a flag of 7": made(steps__is_last=np.array([0, 7])),
    "bytes that are not zlib": made([b"x", b"x"], ZLIB),
    "a bomb": made([zlib.compress(bytes(1 << 30))] * 2, ZLIB),
    "half an image": made([PIXELS[:50]] * 2, RGB),
    "an empty image": made([b"", b""], RGB),
    "an image of another size": made([PIXELS] * 2, rlds.image("uint8", 9, 4, 3)),
    "an image of 10^9 pixels": made([rlds.image_file(np.zeros((1, 1), "u1"), 10**9)] * 2, RGB),
}
FEATURES_FAULTS: dict[str, Fault] = {
    "no steps": document(lambda tree: rlds.dict_of(x={"text": {}})),
    "the older form": document(lambda tree: {"type": "FeaturesDict"}),
    "a list": document(lambda tree: [1]),
    "10^9 numbers a step": action(rlds.tensor("float32", 10**9)),
    "a dimension that is text": action({"tensor": {"shape": {"dimensions": ["x"]}, "dtype": "i4"}}),
}
SPLITS_FAULTS: dict[str, Fault] = {
    "no splits": document(lambda info: info.pop("splits")),
    "a list": document(lambda info: [1]),
    "array_record": document(lambda info: info.update(fileFormat="array_record")),
    "lengths that are text": lengths("many"),
}


def write_fish(folder: Path, **changes: Any) -> Path:
    lists = {name: np.zeros(3, np.float32) for name in ("reward", "discount", "step_type")}
    lists |= {"observation/x": np.zeros(6, np.float32), "action": np.zeros(3, np.float32)}
    record = {name: each for name, each in (lists | changes).items() if each is not None}
    lists["step_type"][:] = 0, 1, 2
    path = folder / "train-00000-of-00001"
    path.write_bytes(pack([example(record)]))
    return path


def fish(**changes: Any) -> Fault:
    """Return a function that changes lists of a record of RL Unplugged; None removes one."""
    changed = {name.replace("__", "/"): each for name, each in changes.items()}
    return lambda path: write_fish(path.parent, **changed)


FISH_FAULTS: dict[str, Fault] = {
    **{f"no {name}": fish(**{name: None}) for name in ("reward", "discount", "action")},
    "one row": fish(reward=np.zeros(1, np.float32)),
    "an observation of 7 numbers": fish(observation__x=np.zeros(7, np.float32)),
    "fewer discounts": fish(discount=np.zeros(2, np.float32)),
    "half a frame": fish(observation__camera=[bytes(7)]),
    "two episodes": fish(step_type=np.array([0, 2, 2], np.float32)),
}


FAMILIES = {
    "neorl2": Family(
        "neorl2/Simglucose",
        write_neorl2,
        {
            **archive_faults("obs", NEORL2),
            "successors of another width": partial(npz, next_obs=lambda rows: rows[:, 1:]),
            "rows of another width than train's": partial(
                npz, obs=lambda rows: rows[:, 1:], next_obs=lambda rows: rows[:, 1:]
            ),
            "float64": partial(npz, action=lambda rows: rows.astype(float)),
            "two rewards a row": partial(npz, reward=lambda rows: np.stack([rows, rows], 1)),
            "a flag of 0.5": partial(npz, done=lambda rows: rows + np.float32(0.5)),
            "a flag that is NaN": partial(npz, truncated=lambda rows: rows * np.float32(np.nan)),
        },
    ),
    "ogbench": Family(
        f"ogbench/{OGBENCH}-singletask-task5-v0",
        write_ogbench,
        {
            **archive_faults("observations", ("observations", "actions", "terminals", "qpos")),
            "no flag in the last row": partial(npz, terminals=with_flag(-1, False)),
            "no flags": partial(npz, terminals=np.zeros_like),
            "a flag in the first row": partial(npz, terminals=with_flag(0, True)),
            "a flag after a flag": partial(npz, terminals=with_flag(-2, True)),
            "a flag of 2": partial(npz, terminals=with_flag(30, np.int64(2))),
            "a flag of 0.5": partial(npz, terminals=with_flag(30, 0.5)),
            "a flag that is NaN": partial(npz, terminals=with_flag(30, np.nan)),
            "two flags a row": partial(npz, terminals=lambda rows: np.stack([rows, rows], 1)),
            "a flat qpos": partial(npz, qpos=lambda rows: rows[:, 0]),
            "a narrow qpos": partial(npz, qpos=lambda rows: rows[:, :1]),
            "an array that train lacks": partial(npz, button_states=np.zeros((101, 9))),
            "float64 where train has float32": partial(npz, qvel=lambda rows: rows.astype(float)),
            "10^9 flags": lambda path: member(path, "terminals.npy", (10**9,), 4 * 10**9),
        },
    ),
    "robomimic": Family("robomimic/lift/ph/low_dim", write_lift, HDF5_FAULTS),
    "tfds": Family("tfds/made/1.0.0", partial(write_made, SHARD), RLDS_FAULTS),
    "tfds features": Family(
        "tfds/made/1.0.0", partial(write_made, "features.json"), FEATURES_FAULTS
    ),
    "tfds splits": Family(
        "tfds/made/1.0.0", partial(write_made, "dataset_info.json"), SPLITS_FAULTS
    ),
    "tfds unplugged": Family("tfds/rlu_control_suite/fish_swim", write_fish, FISH_FAULTS),
}
CASES = [
    pytest.param(family, fault, id=f"{name}: {text}")
    for name, family in FAMILIES.items()
    for text, fault in {**SHARED, **family.faults}.items()
]


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_the_good_files_are_read(family: Family, config: Config, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    family.write(tmp_path / "source")
    options = InstallOptions(source=str(tmp_path / "source"), accept_any=True)
    path = install_dataset(family.id, config, options).path
    assert read_manifest(path).num_transitions > 0


@pytest.mark.parametrize(("family", "fault"), CASES)
def test_a_bad_file_is_rejected_by_name(
    family: Family, fault: Fault, config: Config, tmp_path: Path
) -> None:
    assert_rejected(family, fault, tmp_path / "source", config)
