"""Files of robomimic's layout: MimicGen's, LIBERO's, images, masks, imports."""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from datasets_cli import ExperienceReplay
from datasets_cli.catalogue.entries import load_recipe
from datasets_cli.config import Config
from datasets_cli.errors import SourceError, UnknownDataset
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.recipe import Key
from datasets_cli.verbs.import_dataset import import_dataset
from tests.support.conformance import LIFT, Loopback, case_of, path_of
from tests.support.origin import Origin
from tests.support.refusals import refused
from tests.support.values import assert_folder, read_leaves, read_texts

ID = "robomimic/mine/demos"
LENGTHS = {"demo_10": 3, "demo_2": 1, "demo_0": 4}
SUCCESSORS = ("next", "observation")
Change = Callable[[h5py.File], None]


def arrays(number: int, steps: int) -> dict[str, np.ndarray]:
    """Return the arrays of a demonstration; the number in front of each value is its own."""
    values = 100.0 * number + np.arange(steps + 1.0)
    frames = np.broadcast_to(values.astype("u1")[:, None, None, None], (steps + 1, 4, 5, 3))
    return {
        "actions": values[:-1, None].repeat(2, 1).astype("f4"),
        "rewards": np.arange(steps) / 7,
        "dones": (np.arange(steps) >= 1).astype("i8"),
        "states": values[:-1, None] + 0.1,
        "obs/object": values[:-1, None] + 0.5,
        "next_obs/object": values[1:, None] + 0.5,
        "obs/agentview_image": frames[:-1],
        "next_obs/agentview_image": frames[1:],
        "datagen_info/target_pose": values[:-1, None, None] * np.ones((4, 4)),
    }


MASKS: dict[str, list[str]] = {
    "train": ["demo_10"],
    "valid": ["demo_0", "demo_77"],
    "20_percent": ["demo_0", "demo_10"],
}


def write(
    path: Path,
    change: Change = lambda file: None,
    *,
    masks: Mapping[str, list[str]] = MASKS,
    data: Mapping[str, Any] | None = None,
) -> Path:
    with h5py.File(path, "w") as file:
        for name, steps in LENGTHS.items():
            demo = file.create_group(f"data/{name}")
            demo.attrs["num_samples"], demo.attrs["model_file"] = steps, f"<mujoco>{name}"
            for key, values in arrays(int(name[5:]), steps).items():
                demo[key] = values
        for key, value in (data or {"env_args": '{"env_name": "Lift"}', "total": 8}).items():
            file["data"].attrs[key] = value
        for mask, demos in masks.items():
            file[f"mask/{mask}"] = np.array(demos, h5py.string_dtype() if mask > "u" else "S8")
        change(file)
    return path


def installed(path: Path, config: Config, layout: str | None = "ted") -> Path:
    options = InstallOptions(layout=layout, source=str(path), force=True)
    return install_dataset(ID, config, options).path


def expected(name: str) -> np.ndarray:
    """Return an array of all demonstrations, in the order of their numbers."""
    return np.concatenate(
        [arrays(number, LENGTHS[f"demo_{number}"])[name] for number in (0, 2, 10)]
    )


KEYS: dict[str, Key] = {
    "actions": ("action",),
    "dones": ("info", "dones"),
    "states": ("info", "states"),
    "obs/object": ("observation", "object"),
    "next_obs/object": (*SUCCESSORS, "object"),
    "obs/agentview_image": ("observation", "images", "agentview_image"),
    "next_obs/agentview_image": (*SUCCESSORS, "images", "agentview_image"),
    "datagen_info/target_pose": ("info", "datagen_info", "target_pose"),
}


def test_demonstrations_are_trajectories_in_the_order_of_their_numbers(
    tmp_path: Path, config: Config
) -> None:
    folder = installed(write(tmp_path / "a.hdf5"), config)
    leaves = read_leaves(folder)
    for name, key in KEYS.items():
        assert leaves[key].dtype == expected(name).dtype, name
        assert leaves[key].tolist() == expected(name).tolist(), name
    assert leaves["next", "reward"][:, 0].tolist() == expected("rewards").tolist()
    assert np.flatnonzero(leaves["next", "truncated"]).tolist() == [3, 4, 7]
    assert not leaves["next", "terminated"].any()


def test_masks_are_splits_and_subsets(tmp_path: Path, config: Config) -> None:
    folder = installed(write(tmp_path / "a.hdf5"), config)
    assert read_texts(folder) == {("split",): ["valid"] * 4 + [""] + ["train"] * 3}
    subset = read_leaves(folder)["info", "mask", "20_percent"]
    assert (subset.dtype, subset.tolist()) == (bool, [True] * 4 + [False] + [True] * 3)
    replay = ExperienceReplay(ID, root=config.root, download=False)
    assert len(replay.filter("all(info.mask.20_percent) and split == 'train'")) == 3
    notes = json.loads((folder / "manifest.json").read_text())["metadata"]["notes"]
    assert notes[0].endswith("lacks: 1 of 2 in valid")


def test_attributes_are_in_the_metadata_and_a_file(tmp_path: Path, config: Config) -> None:
    folder = installed(write(tmp_path / "a.hdf5"), config)
    metadata = json.loads((folder / "manifest.json").read_text())["metadata"]
    assert metadata["attributes"] == {"env_args": {"env_name": "Lift"}, "total": 8}
    found = json.loads(lzma.decompress((folder / "attributes.json.xz").read_bytes()))
    assert [*found] == ["demo_0", "demo_2", "demo_10"]
    assert found["demo_2"] == {"num_samples": 1, "model_file": "<mujoco>demo_2"}


def test_liberos_steps_have_an_instruction_and_no_successor_at_the_end(
    tmp_path: Path, config: Config
) -> None:
    def libero(file: h5py.File) -> None:
        for demo in file["data"].values():
            del demo["next_obs"], demo["datagen_info"]
            demo["obs"].move("agentview_image", "agentview_rgb")
            demo["robot_states"] = demo["states"][:]

    task = {"problem_info": json.dumps({"language_instruction": ["open", " it"]})}
    folder = installed(write(tmp_path / "a.hdf5", libero, masks={}, data=task), config)
    leaves, rows = read_leaves(folder), [0, 1, 2, 5, 6]  # demo_2 has one step and no successor
    assert read_texts(folder) == {("language",): ["open it"] * 5}
    key: Key = ("observation", "images", "agentview_rgb")
    assert leaves[key].tolist() == expected("obs/agentview_image")[rows].tolist()
    assert leaves["next", *key].tolist() == expected("next_obs/agentview_image")[rows].tolist()
    assert leaves["info", "robot_states"].tolist() == expected("states")[rows].tolist()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["final_steps"], manifest["successors"]["rule"]) == (
        3,
        "following step of the same trajectory",
    )
    assert any("upside down" in note for note in manifest["metadata"]["notes"])


@pytest.mark.parametrize("layout", ["ted", "compact"])
def test_frames_of_a_camera_are_stacked(tmp_path: Path, config: Config, layout: str) -> None:
    installed(write(tmp_path / "a.hdf5"), config, layout)
    replay = ExperienceReplay(ID, frame_stack=2, root=config.root, download=False)
    stacks = replay[[0, 1, 5]]["observation", "images", "agentview_image"]
    assert stacks[..., 0, 0, 0].tolist() == [[0, 0], [0, 1], [0, 1000 % 256]]
    assert replay[5]["next", "observation", "object"].tolist() == [[1000.5], [1001.5]]
    assert replay.specs["observation", "object"].shape == (2, 1)


def test_no_splits_and_no_rewards_are_none(tmp_path: Path, config: Config) -> None:
    def without(file: h5py.File) -> None:
        for demo in file["data"].values():
            del demo["rewards"]

    leaves = read_leaves(folder := installed(write(tmp_path / "a", without, masks={}), config))
    assert ("next", "reward") not in leaves and read_texts(folder) == {}
    assert not any("mask" in key for key in leaves)


@pytest.mark.parametrize("source", ["lift", "made"])
def test_an_import_has_the_values_of_the_recipe(
    source: str, tmp_path: Path, config: Config
) -> None:
    path = LIFT if source == "lift" else write(tmp_path / "a.hdf5")
    ours = installed(path, config)
    made = import_dataset(path, "mine/lift", layout="ted", config=config).path
    found, right = read_leaves(made), read_leaves(ours)
    assert found.keys() == right.keys() and read_texts(made) == read_texts(ours)
    assert all(np.array_equal(found[key], right[key]) for key in right)


def test_an_attribute_that_is_not_json_stays_text(tmp_path: Path, config: Config) -> None:
    folder = installed(write(tmp_path / "a.hdf5", data={"problem_info": "{", "total": 9}), config)
    metadata = json.loads((folder / "manifest.json").read_text())["metadata"]
    assert metadata["attributes"] == {"problem_info": "{", "total": 9}
    assert metadata["notes"][-1] == "the file states 9 steps in total; it has 8"
    assert ("language",) not in read_texts(folder)


def test_an_episode_in_two_splits_is_rejected(tmp_path: Path, config: Config) -> None:
    with refused(SourceError, path="a.hdf5", key="mask/valid", found="demo_0"):
        installed(write(tmp_path / "a.hdf5", masks={**MASKS, "test": ["demo_0"]}), config)


HUB = {
    "v1.5/lift/ph/low_dim_v15": ("robomimic/robomimic_datasets", "v1.5/lift/ph/low_dim_v15.hdf5"),
    "mimicgen/core/stack_d0": ("amandlek/mimicgen_datasets", "core/stack_d0.hdf5"),
    "libero/libero_goal/a_demo": ("yifengzhu-hf/LIBERO-datasets", "libero_goal/a_demo.hdf5"),
}


def pages() -> dict[str, bytes]:
    """Return what Hugging Face answers about three files, and the files."""
    data, site, served = LIFT.read_bytes(), "https://huggingface.co/", {}
    for repository, path in HUB.values():
        tree, folder = f"{site}api/datasets/{repository}/tree/main/", path.rpartition("/")[0]
        lfs = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data)}
        listed = [
            {"type": "directory", "path": folder, "size": 0},
            {"type": "file", "path": path, "size": len(data), "lfs": lfs},
            {"type": "file", "path": f"{folder}/README.md", "size": 3},
        ]
        top = "v1.5" if path.startswith("v1.5/") else ""
        for address in (f"{tree}{folder}", f"{tree}{top}".rstrip("/") + "?recursive=true"):
            served[address] = json.dumps(listed).encode()
        served[f"{site}datasets/{repository}/resolve/main/{path}"] = data
    return served


@pytest.fixture
def hub(config: Config) -> Iterator[Loopback]:
    with Origin() as origin:
        for url, data in pages().items():
            origin.put(path_of(url), data)
        yield Loopback(config, origin)


@pytest.mark.parametrize("name", HUB)
def test_files_on_hugging_face_are_found_and_verified(
    name: str, hub: Loopback, config: Config
) -> None:
    made = install_dataset(f"robomimic/{name}", config, InstallOptions(layout="ted"), http=hub)
    assert_folder(made.path, case_of("robomimic").expected())
    (file,) = json.loads((made.path / "manifest.json").read_text())["resources"]
    assert (file["checked"], file["sha256"]) == (
        "sha256",
        hashlib.sha256(LIFT.read_bytes()).hexdigest(),
    )
    with pytest.raises(UnknownDataset):
        install_dataset(f"robomimic/{name}x", config, http=hub)
    with pytest.raises(UnknownDataset):
        install_dataset("robomimic/mimicgen/none/x", config, http=hub)
    replay = ExperienceReplay(f"robomimic/{name}", root=config.root, download=False)
    assert len(replay) == 117


def test_a_refreshed_catalogue_has_the_files_on_hugging_face(hub: Loopback) -> None:
    entries = {entry.name: entry for entry in load_recipe("robomimic").datasets(hub)}
    assert len(entries) == 21 + len(HUB)
    assert {entries[name].size for name in HUB} == {LIFT.stat().st_size}
    assert all(entries[name].details["url"].endswith(path) for name, (_, path) in HUB.items())
