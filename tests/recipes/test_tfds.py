"""RLDS folders and RL Unplugged's records: last steps, encodings, damage, and where files are."""

from __future__ import annotations

import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datasets_cli import import_dataset, plan_import
from datasets_cli.catalogue.names import resolve
from datasets_cli.config import Config
from datasets_cli.errors import AccessError, SourceError, UsageError
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.recipes.tfds.catalogue import find, resources
from datasets_cli.schema.columns import Key
from datasets_cli.sources.http import Http
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.dataset import Dataset, open_dataset
from tests.support.origin import Fault, Origin
from tests.support.paths import TEST_DATA
from tests.support.refusals import refused
from tests.support.rlds_files import (
    BRIDGE,
    dict_of,
    episode,
    image,
    image_file,
    listed_pages,
    read_bridge,
    tensor,
    write_rlds,
)
from tests.support.unplugged_records import lists, records
from tests.support.values import assert_folder, everything

UNPLUGGED = TEST_DATA / "rl_unplugged"
TRAIN = "bridge_dataset-train.tfrecord-00000-of-00001"
MADE = "made-train.tfrecord-00000-of-00001"


def imported(folder: Path, config: Config, layout: str | None = None) -> Dataset:
    made = import_dataset(folder, "mine/made", config=config, layout=layout, force=True)
    return open_dataset(made.path, text=True)


@pytest.mark.parametrize("layout", ["ted", "compact"])
def test_a_folder_is_imported_with_all_values_of_the_family(config: Config, layout: str) -> None:
    dataset, expected = imported(BRIDGE, config, layout), read_bridge()
    if layout == "ted":
        assert_folder(dataset.folder, expected)
    found = everything(dataset)
    assert {key: rows.tobytes() for key, rows in expected.leaves.items()} == {
        key: rows.tobytes() for key, rows in found.items()
    }
    assert dataset.manifest.splits["val"] == {"trajectories": 2, "transitions": 18}
    assert plan_import(BRIDGE.parent, "mine/made").format == "rlds"  # the folder of all versions


def test_a_folder_may_have_the_name_of_rl_unplugged(config: Config, tmp_path: Path) -> None:
    shutil.copytree(BRIDGE, folder := tmp_path / "rlu_control_suite")
    assert len(imported(folder, config)) == len(imported(BRIDGE, config))


# What becomes of the last step.

REWARDS = {"steps/reward": np.array([0, 0, 1], np.float32)}
REWARD = {"reward": tensor("float32")}
INNER = {"steps/is_last": np.array([0, 1, 0, 1]), "steps/is_terminal": np.array([0, 1, 0, 0])}
NO_ACTION = {"steps/action": np.zeros(4, np.float32)}


@pytest.mark.parametrize(
    ("made", "steps", "rows", "terminated", "final"),
    [
        (episode(3), {}, [[0, 1], [1, 2]], [0, 1], 0),
        (episode(3, terminal=False), {}, [[0, 1], [1, 2]], [0, 0], 0),
        # An action or a reward of the last step is kept.
        (episode(3) | REWARDS, REWARD, [[0, 1], [1, 2], [2, 0]], [0, 0, 1], 0),
        (episode(3, terminal=False) | REWARDS, REWARD, [[0, 1], [1, 2]], [0, 0], 1),
        (episode(3, steps__is_last=np.zeros(3, int)), {}, [[0, 1], [1, 2], [2, 0]], [0, 0, 1], 0),
        (episode(4) | INNER | NO_ACTION, {}, [[0, 1], [2, 3]], [1, 0], 0),
    ],
    ids=["void", "void, cut off", "a reward", "a reward, cut off", "no is_last", "two episodes"],
)
def test_the_last_step_is_void_only_if_it_says_nothing(
    made: Any, steps: Any, rows: Any, terminated: Any, final: int, config: Config, tmp_path: Path
) -> None:
    dataset = imported(write_rlds(tmp_path / "made", [made], steps), config)
    found = everything(dataset)
    pairs = [found["observation", "x"][:, 0], found["next", "observation", "x"][:, 0]]
    assert np.stack(pairs, 1).tolist() == rows
    assert found["next", "terminated"][:, 0].tolist() == terminated
    assert found["action",][:, 0].tolist() == [made["steps/action"][t] for t, _ in rows]
    assert dataset.manifest.final_steps == final
    ends = found["next", "done"][:, 0] & ~found["next", "terminated"][:, 0]
    assert found["next", "truncated"][:, 0].tolist() == ends.tolist()


@pytest.mark.parametrize("results", [("success", "failure"), ("success", "unknown")])
def test_success_in_droid_is_what_the_path_says(
    results: tuple[str, str], config: Config, tmp_path: Path
) -> None:
    made = [
        episode(2) | {"episode_metadata/file_path": [f"gs://x/{result}/1.h5".encode()]}
        for result in results
    ]
    paths = dict_of(file_path={"text": {}})
    folder = write_rlds(tmp_path / "made", made, name="droid_100", episode_metadata=paths)
    found = everything(imported(folder, config))
    expected = [True, False] if results[1] == "failure" else None
    success = found.get(("info", "success"))
    assert (None if success is None else success.tolist()) == expected


# Features.


PIXELS = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)


def test_a_grey_file_of_a_colour_feature_has_three_channels(config: Config, tmp_path: Path) -> None:
    record = episode(2) | {"steps/v": [image_file(PIXELS[..., 0])] * 2}
    folder = write_rlds(tmp_path / "made", [record], {"v": image("uint8", 4, 4, 3)})
    (frame,) = everything(imported(folder, config))["info", "v"]
    assert np.array_equal(frame, PIXELS[..., [0, 0, 0]])


def test_what_tensorflow_datasets_wrote_has_the_values_that_it_reads(config: Config) -> None:
    folder = TEST_DATA / "rlds" / "every_feature"
    dataset = imported(folder / "1.0.0", config)
    assert dataset.texts is not None
    found: dict[Key, Any] = everything(dataset)
    found |= {key: np.array(dataset.texts.column(key)) for key in dataset.texts.keys}
    with np.load(folder / "values.npz") as values:
        expected = dict(values)
    assert len(expected) == 19
    for name, rows in expected.items():
        places = [("observation", name), ("observation", "images", name), ("language",)]
        ours = next(found[place] for place in places if place in found)
        assert np.array_equal(ours, rows) and ours.dtype.kind == rows.dtype.kind, name


LEFT_OUT = {
    "ragged": {"sequence": {"feature": tensor("float32"), "length": "-1"}},
    "any": tensor("float32", -1),
    "video": {"pythonClassName": "tensorflow_datasets.core.features.Video", "video": {}},
    "half": tensor("bfloat16"),
}


def test_names_follow_the_table_of_all_families_and_what_is_left_out_is_named(
    config: Config, tmp_path: Path
) -> None:
    text, number = {"text": {}}, tensor("float32")
    observed = dict_of(x=tensor("float32", 2), wrist=image("uint8", 4, 4, 3), note=text)
    steps = {"observation": observed, "language_instruction_2": text, "hint": dict_of(a=number)}
    record = episode(2) | {
        "steps/observation/wrist": [image_file(PIXELS)] * 2,
        "steps/observation/note": [b"a", b"b"],
        "steps/observation/language_instruction": [b"lift", b"lift"],
        "steps/language_instruction_2": [b"raise", b"raise"],
        "steps/hint/a": np.ones(2, np.float32),
        "steps/other": np.ones(2, np.float32),
        "id": [b"7"],
    }
    observed["featuresDict"]["features"]["language_instruction"] = text
    folder = write_rlds(tmp_path / "made", [record], steps | LEFT_OUT, id=text)
    plan = plan_import(folder, "mine/made")
    assert {key for key in plan.map if not key.startswith("next.")} == {
        *("observation.x", "observation.images.wrist", "observation.note", "action", "split"),
        *("language", "info.language_instruction_2", "info.hint.a", "info.id"),
    }
    notes = "\n".join(plan.notes)
    assert all(f"steps/{name}" in notes for name in (*LEFT_OUT, "other"))


def test_the_files_of_a_split_are_read_in_their_order(config: Config, tmp_path: Path) -> None:
    made = [episode(2, steps__action=np.array([n, 0], np.float32)) for n in (1, 2, 3)]
    folder = write_rlds(tmp_path / "made", made)
    name = folder / "made-train.tfrecord-0000{}-of-0000{}"
    data = Path(str(name).format(0, 1)).read_bytes()
    size = len(data) // 3
    for number, part in enumerate((data[: 2 * size], data[2 * size :])):
        Path(str(name).format(number, 2)).write_bytes(part)
    info = {"name": "made", "splits": [{"name": "train", "shardLengths": ["2", "1"]}]}
    (folder / "dataset_info.json").write_text(json.dumps(info))
    assert everything(imported(folder, config))["action",].ravel().tolist() == [1, 2, 3]


def test_the_instruction_of_an_episode_is_the_language_of_its_steps(
    config: Config, tmp_path: Path
) -> None:
    made = [episode(2) | {"episode_metadata/language_instruction": [text]} for text in (b"a", b"b")]
    texts = dict_of(language_instruction={"text": {}})
    dataset = imported(write_rlds(tmp_path / "made", made, episode_metadata=texts), config)
    assert dataset.texts is not None and dataset.texts.column(("language",)) == ["a", "b"]


# RL Unplugged.


def rows_of(path: Path, separator: str) -> list[dict[str, np.ndarray]]:
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = zlib.decompress(data, wbits=31)
    return [
        {
            name.replace(separator, "."): np.frombuffer(values[0], np.uint8)
            if isinstance(values, list)
            else values
            for name, values in lists(record).items()
            if len(values)
        }
        for record in records(data)
    ]


@pytest.mark.parametrize(
    ("name", "file", "separator", "shift"),
    [
        ("rlu_control_suite/cartpole_swingup", "cartpole_swingup_train", "/", 0),
        ("rlu_locomotion/humanoid_corridor", "humanoid_corridor_train", "/", 0),
        (
            "rlu_rwrl/combined_challenge_none/cartpole/swingup/1_percent",
            "rwrl_cartpole_swingup_episodes.tfrecord",
            ":",
            1,
        ),
    ],
)
def test_rewards_of_rl_unplugged_follow_their_actions(
    name: str, file: str, separator: str, shift: int, config: Config, tmp_path: Path
) -> None:
    path = UNPLUGGED / f"{file}-00000-of-00001"
    shutil.copy(path, tmp_path / path.name.rpartition("_")[2])
    options = InstallOptions(source=str(tmp_path))
    dataset = open_dataset(install_dataset(f"tfds/{name}", config, options).path)
    found, first = everything(dataset), 0
    for record in rows_of(path, separator):
        count = len(record["reward"]) - 1
        here = slice(first, first + count)
        for column, values in record.items():
            if column.startswith("observation."):
                camera = ["images"] if "camera" in column else []
                root, *below = column.split(".")
                key: Key = (root, *camera, *below)
                rows = values.reshape(count + 1, *found[key].shape[1:])
                assert (found[key][here] == rows[:-1]).all()
                assert (found["next", *key][here] == rows[1:]).all()
        assert (found["next", "reward"][here, 0] == record["reward"][1:]).all()
        assert (found["info", "discount"][here] == record["discount"][1:]).all()
        actions = record["action"].reshape(count + 1, -1)[shift:][:count]
        assert (found["action",][here] == actions).all()
        first += count
    assert (len(dataset), found["next", "terminated"].any()) == (first, False)
    assert int(found["next", "truncated"].sum()) == dataset.manifest.num_trajectories


# Where the files are.


NEW_LIST = "storage/v1/b/gdm-robotics-open-x-embodiment/o?prefix="


@pytest.fixture
def http(google: Origin, config: Config) -> Http:
    return Http(config, retries=0)


def put(google: Origin, pages: dict[str, bytes]) -> None:
    for url, data in pages.items():
        google.put(url.removeprefix("https://storage.googleapis.com/"), data)


def test_a_name_without_a_version_is_the_newest_one(google: Origin, http: Http) -> None:
    names = [f"robotics/bridge/{v}/features.json" for v in ("0.9.0", "0.10.0", "0.2.1")]
    items = [{"name": name, "size": "1"} for name in (*names, "robotics/bridge/README")]
    google.put(
        "storage/v1/b/gresearch/o?prefix=robotics/bridge/", json.dumps({"items": items}).encode()
    )
    google.always(NEW_LIST + "bridge/", Fault(status=403))
    entry = find("bridge", http)
    assert entry is not None and entry.name == "bridge/0.10.0"
    google.always(NEW_LIST + "x/", Fault(status=403))
    google.always("storage/v1/b/gresearch/o?prefix=robotics/x/", Fault(status=403))
    with pytest.raises(AccessError):
        find("x", http)
    assert find("bridge", None) is None


@pytest.mark.parametrize("listed", [True, False])
def test_the_files_are_those_of_the_splits_with_checksums_if_listed(
    listed: bool, google: Origin, http: Http
) -> None:
    put(google, listed_pages(BRIDGE, "gresearch", "robotics/bridge_dataset/1.0.0/"))
    if not listed:
        path = "storage/v1/b/gresearch/o?prefix=robotics/bridge_dataset/1.0.0/"
        google.always(path, Fault(status=403))
    found = resources("bridge_dataset/1.0.0", http)
    assert [each.filename for each in found][2:] == [TRAIN, TRAIN.replace("train", "val")]
    assert {(each.size is not None, bool(each.checksums)) for each in found} == {(listed, listed)}


@pytest.mark.parametrize("numbers", [(0, 1, 2), (0, 2), ()])
def test_all_files_of_rl_unplugged_are_listed(
    numbers: tuple[int, ...], google: Origin, http: Http
) -> None:
    folder = "rwrl/combined_challenge_easy/walker/walk/5_percent"
    names = [f"{folder}/episodes.tfrecord-{number:05d}-of-00003" for number in numbers]
    page = json.dumps({"items": [{"name": name, "size": "9"} for name in names]}).encode()
    google.put(f"storage/v1/b/rl_unplugged/o?prefix={folder}/episodes.tfrecord-", page)
    if len(numbers) == 3:
        found = resources("rlu_rwrl/combined_challenge_easy/walker/walk/5_percent", http)
        assert [each.filename for each in found] == [name.rpartition("/")[2] for name in names]
        assert {each.size for each in found} == {9}
    else:
        with pytest.raises(SourceError if numbers else AccessError):
            resources("rlu_rwrl/combined_challenge_easy/walker/walk/5_percent", http)


def test_what_no_bucket_has_is_not_available(google: Origin, http: Http) -> None:
    for bucket, folder in (("gresearch", "robotics/"), ("gdm-robotics-open-x-embodiment", "")):
        google.put(f"storage/v1/b/{bucket}/o?prefix={folder}x/1.0.0/", b"{}")
    with pytest.raises(AccessError):
        resources("x/1.0.0", http)


def test_the_catalogue_has_droid_and_rl_unplugged(config: Config) -> None:
    root = CacheRoot(config.root)
    for name in ("droid_100/1.0.0", "rlu_locomotion/rodent_gaps", "bridge/0.1.0"):
        assert resolve(f"tfds/{name}", root).name == name


def test_one_file_of_a_folder_or_two_versions_are_not_a_dataset(tmp_path: Path) -> None:
    for version in ("1.0.0", "1.0.1"):
        write_rlds(tmp_path / version, [episode(2)])
    for path, expected in ((tmp_path, "one version"), (tmp_path / "1.0.0" / MADE, "a folder")):
        with pytest.raises(UsageError) as raised:
            plan_import(path, "mine/made")
        assert (raised.value.path, raised.value.expected) == (path, expected)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("bridge/1.0.0", {"name": "bridge"}), ("bridge_dataset/2.0.0", {"version": "2.0.0"})],
)
def test_the_files_of_another_dataset_are_refused(
    config: Config, name: str, expected: dict[str, str]
) -> None:
    with refused(SourceError, path="dataset_info.json", expected=expected):
        install_dataset(f"tfds/{name}", config, InstallOptions(source=str(BRIDGE)))


def test_texts_of_a_template_are_no_metadata(config: Config) -> None:
    metadata = imported(BRIDGE, config).manifest.metadata
    assert metadata["name"] == "bridge_dataset"
    assert not {"citation", "description"} & metadata.keys()
