"""OpenML: every value as scikit-learn reads it, through TorchRL, and from folders."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn.datasets
import torch

from datasets_cli import OpenMLExperienceReplay
from datasets_cli.config import Config
from datasets_cli.errors import IntegrityError, SourceError, UsageError
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.store.dataset import Dataset, open_dataset
from datasets_cli.store.manifest import read_manifest
from tests.conftest import DEMO
from tests.support import openml_files as files
from tests.support.openml_files import OpenML
from tests.support.origin import Origin
from tests.support.refusals import refused

Columns = dict[str, np.ndarray]


@pytest.fixture
def install(site: OpenML) -> Callable[[str], Dataset]:
    return lambda name: open_dataset(install_dataset(f"openml/{name}", site.config).path)


def by_sklearn(site: OpenML, **wanted: Any) -> Any:
    with files.sklearn_reads(site.origin):
        return sklearn.datasets.fetch_openml(parser="liac-arff", cache=False, **wanted)


def as_columns(frame: pd.DataFrame) -> Columns:
    """Return numbers as float64 and labels as objects; text is left out."""
    columns = {}
    for name in frame:
        values = frame[name]
        if isinstance(values.dtype, pd.CategoricalDtype):
            columns[name] = values.astype(object).to_numpy()
        elif values.dtype.kind in "if":
            columns[name] = values.to_numpy(np.float64)
    return columns


def sklearn_columns(site: OpenML, data_id: int) -> tuple[Columns, Columns]:
    """Return the features and the labels that ``fetch_openml`` reads."""
    bunch = by_sklearn(site, data_id=data_id)
    if isinstance(bunch.data, pd.DataFrame):
        labels = pd.DataFrame(bunch.frame[bunch.target_names])
        return as_columns(bunch.data), as_columns(labels)
    matrix = bunch.data.toarray()
    features = {name: matrix[:, i] for i, name in enumerate(bunch.feature_names)}
    return features, {bunch.target_names[0]: bunch.target}


def our_columns(dataset: Dataset) -> tuple[Columns, Columns]:
    """Return the features and the labels of a dataset, decoded by what its manifest says."""
    metadata = dataset.manifest.metadata
    rows = {key: values.numpy() for key, values in dataset.columns(()).items()}
    labels = rows["action",]
    if labels.ndim == 1:
        labels = labels[:, None]
    return (
        decoded(rows["observation",], metadata["feature_names"], metadata["categories"]),
        decoded(labels, metadata["target_names"], metadata["classes"]),
    )


def decoded(matrix: np.ndarray, names: list[str], labels: dict[str, list[str]]) -> Columns:
    assert matrix.shape[1] == len(names)
    columns = {name: matrix[:, index] for index, name in enumerate(names)}
    for name, texts in labels.items():
        codes = columns[name]
        missing = np.isnan(codes)
        columns[name] = np.array([*texts, np.nan], dtype=object)[
            np.where(missing, -1, codes).astype(int)
        ]
    return columns


def assert_same(found: Columns, right: Columns) -> None:
    assert list(found) == list(right)
    for name, values in right.items():
        assert found[name].dtype == values.dtype, name
        if values.dtype == object:
            same = [x == y or x != x != y != y for x, y in zip(found[name], values, strict=True)]
            assert all(same), name
        else:
            same = found[name].tobytes() == values.tobytes()
            assert same, name


# Values


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("data_id", files.CAPTURED)
def test_every_value_of_a_captured_dataset_is_scikit_learn_s(data_id, site, install):
    site.captured(data_id)
    features, labels = our_columns(install(str(data_id)))
    right_features, right_labels = sklearn_columns(site, data_id)
    assert_same(features, right_features)
    assert_same(labels, right_labels)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("data_id", [2, 292, 42585])
def test_codes_are_scikit_learn_s_positions_in_the_file_s_declaration(data_id, site, install):
    site.captured(data_id)
    found = install(str(data_id)).columns(("observation",))["observation",].numpy()
    data = by_sklearn(site, data_id=data_id, as_frame=False).data
    right = data if isinstance(data, np.ndarray) else data.toarray()
    same = found.tobytes() == np.ascontiguousarray(right).tobytes()
    assert same
    assert found.dtype == np.float64


@pytest.mark.parametrize("published", [files.anneal, files.dexter])
def test_every_value_of_a_whole_file_is_scikit_learn_s(published, site, install):
    sparse = {"format": "Sparse_ARFF"} if published is files.dexter else {}
    site.publish(9, *published(), **sparse)
    features, labels = our_columns(install("9"))
    right_features, right_labels = sklearn_columns(site, 9)
    assert_same(features, right_features)
    assert_same(labels, right_labels)


def test_small_blocks_give_the_same_values(site, install, monkeypatch):
    site.captured(61)
    whole = install("61").columns(())
    monkeypatch.setattr("datasets_cli.schema.columns.BLOCK_ROWS", 7)
    monkeypatch.setenv("RLDS_HOME", str(site.config.root / "other"))
    again = install("61").columns(())
    assert all(torch.equal(again[key], values) for key, values in whole.items())


@pytest.mark.parametrize(
    ("data_id", "dtype", "shape"),
    [(61, "int64", ()), (561, "float64", ()), (40589, "int64", (6,)), (42074, "float64", (0,))],
)
def test_the_action_is_the_label(data_id, dtype, shape, site, install):
    site.captured(data_id)
    columns = {column.key: column for column in install(str(data_id)).manifest.columns}
    action = columns["action",]
    assert (action.dtype, action.shape) == (dtype, shape)


def test_samples_and_rows_also_carry_x_and_y(site, monkeypatch):
    site.captured(61)
    install_dataset("openml/61", site.config)
    seen = []
    replay = OpenMLExperienceReplay("61", 32, seed=0, transform=lambda b: seen.append(b["X"]) or b)
    batch = replay.sample()
    assert torch.equal(batch["X"], batch["observation"])
    assert torch.equal(batch["y"], batch["action"])
    assert torch.equal(replay[:]["y"], replay["action"])
    assert replay[7]["X"].tolist() == [5.0, 3.4, 1.5, 0.2]
    assert (replay.max_outcome_val, replay.dataset_id) == (2, "openml/61")
    assert len(seen) == 4  # a batch, rows twice, and a column, which is that of the rows as read


def test_the_available_datasets_are_torchrl_s_seven_and_more():
    assert files.SCHEMAS.keys() | {"adult", "iris@1"} <= set(
        OpenMLExperienceReplay.available_datasets
    )


@pytest.fixture
def named(site: OpenML) -> Callable[[str], Dataset]:
    def run(name: str) -> Dataset:
        files.publish_schema(site, name)
        return open_dataset(install_dataset(f"openml/{name}", site.config).path)

    return run


@pytest.fixture
def by_torchrl(site: OpenML, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """TorchRL's own preprocessing, of the frames that scikit-learn reads from this server."""
    from torchrl.data.datasets import OpenMLExperienceReplay as Peer

    # Its other parser fails on labels that are numbers (scikit-learn 1.9.1 with pandas 3).
    fetch = partial(sklearn.datasets.fetch_openml, parser="liac-arff", cache=False)
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)

    def read(name: str) -> Any:
        with files.sklearn_reads(site.origin):
            return Peer._get_data(name)

    return read


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", files.SCHEMAS)
def test_every_value_is_torchrl_s(name, named, by_torchrl):
    rows = named(name).columns(())
    right = by_torchrl(name)
    for key, values in (("observation", right["X"]), ("action", right["y"])):
        found = rows[key,]
        assert (found.dtype, found.shape) == (values.dtype, values.shape)
        same = found.numpy().tobytes() == values.numpy().tobytes()
        assert same, key


@pytest.mark.parametrize("name", files.SCHEMAS)
def test_what_the_manifest_says_undoes_the_preprocessing(name, site, named):
    dataset = named(name)
    metadata = dataset.manifest.metadata
    rows = dataset.columns(())
    found = rows["observation",].numpy()
    scaled = len(metadata.get("scales", ()))
    back = found[:, :scaled] * metadata.get("scales", 1) + metadata.get("means", 0)
    columns = dict(
        zip(metadata["feature_names"], np.hstack([back, found[:, scaled:]]).T, strict=True)
    )
    columns |= {label: rows["action",].numpy() for label in metadata["target_names"]}
    labels = metadata["categories"] | metadata["classes"]
    written = complete_rows(files.publish_schema(site, name), name)
    for column in written.keys() - ({"class"} if name.startswith("adult") else {}):
        if column in labels:
            texts = [None if text == "?" else text for text in written[column]]
            assert undone(columns, column, labels[column]) == texts, column
        else:
            assert np.allclose(columns[column], np.array(written[column], float)), column


@pytest.mark.parametrize("name", ["covertype", "adult_num", "mushroom_onehot"])
def test_a_table_of_too_many_values_is_refused_before_it_is_encoded(name, site, named):
    num_values = named(name).columns(())["observation",].numel()
    fewer = replace(site.config, limits=(("table_bytes", 8 * num_values - 1),))
    what = "one column a label" if name.endswith("onehot") else name
    with pytest.raises(SourceError) as caught:
        install_dataset(f"openml/{name}", fewer, InstallOptions(force=True))
    assert caught.value.key == "table_bytes" and what in str(caught.value)
    assert not list((fewer.root / "tmp").iterdir())
    plenty = replace(site.config, limits=(("table_bytes", 80 * num_values),))
    install_dataset(f"openml/{name}", plenty, InstallOptions(force=True))


def complete_rows(written: dict[str, list[str]], name: str) -> dict[str, list[str]]:
    """TorchRL drops a row of adult where any feature is missing."""
    if not name.startswith("adult"):
        return written
    rows = [row for row in zip(*written.values(), strict=True) if "?" not in row]
    return dict(zip(written, map(list, zip(*rows, strict=True)), strict=True))


def undone(columns: dict[str, np.ndarray], name: str, labels: list[str | None]) -> list[str | None]:
    if name in columns:
        return [labels[round(code)] for code in columns[name]]
    marks = np.stack([columns[f"{name}={label}"] for label in labels])
    assert (marks.sum(axis=0) == 1).all()
    return [labels[place] for place in marks.argmax(axis=0)]


def test_torchrl_predicts_the_occupation_in_adult_and_the_plain_name_the_income(site, named):
    assert named("adult_num").manifest.metadata["target_names"] == ["occupation"]
    site.captured(1590)
    site.named("adult", 2, 1590)
    adult = open_dataset(install_dataset("openml/adult", site.config).path).manifest
    assert adult.metadata["classes"] == {"class": [">50K", "<=50K"]}
    assert "occupation" in adult.metadata["feature_names"]


def test_the_constructor_installs_by_torchrl_s_name(site, monkeypatch):
    files.publish_schema(site, "adult_onehot")
    monkeypatch.setenv("RLDS_MIRRORS", f"https://www.openml.org/={site.origin.url}")
    replay = OpenMLExperienceReplay("adult_onehot", batch_size=16)
    batch = replay.sample()
    assert batch["X"].shape == (16, len(replay.metadata["feature_names"]))
    assert (batch["y"].dtype, replay.max_outcome_val) == (torch.int64, 13)


@pytest.mark.parametrize(
    ("version", "key", "found"), [("1", "occupation", 0), ("7", "version", "7")]
)
def test_another_table_under_a_known_name_is_refused(version, key, found, site):
    arff, features = files.table("1,a\n", {"x": "real", "y": "{a}"}, "y")
    site.publish(5, arff, features, name="adult", version=version)
    site.named("adult", 1, 5)
    with refused(SourceError, id="openml/adult_num", key=key, found=found):
        install_dataset("openml/adult_num", site.config)


IRIS = DEMO / "openml"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The three files of iris under their own names."""
    folder = tmp_path / "iris"
    folder.mkdir()
    api = IRIS / "api" / "v1" / "json" / "data"
    for name, path in {
        "description.json": api / "61",
        "features.json": api / "features" / "61",
        "dataset.arff": IRIS / "data" / "v1" / "download" / "61" / "iris.arff",
    }.items():
        (folder / name).write_bytes(path.read_bytes())
    return folder


def edit(path: Path, change: Any) -> None:
    document = json.loads(path.read_bytes())
    change(document)
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("name", "kind"), [("61", "folder"), ("iris", "url"), ("iris@1", "folder")]
)
def test_the_right_files_are_taken_and_their_md5_is_compared(
    name: str, kind: str, source: Path, config: Config
) -> None:
    with Origin() as origin:
        for path in source.iterdir():
            origin.put(path.name, path.read_bytes())
        place = str(source) if kind == "folder" else origin.url
        manifest = read_manifest(
            install_dataset(f"openml/{name}", config, InstallOptions(source=place)).path
        )
    assert (manifest.id, manifest.num_transitions) == (f"openml/{name}", 150)
    assert manifest.resources[2]["checked"] == "md5"


def test_a_file_cut_off_is_refused_with_both_sums_unless_anything_is_taken(
    source: Path, config: Config
) -> None:
    arff = source / "dataset.arff"
    stated = hashlib.md5(arff.read_bytes()).hexdigest()
    arff.write_bytes(arff.read_bytes().rpartition(b"5.9,3.0")[0])
    found = hashlib.md5(arff.read_bytes()).hexdigest()
    with pytest.raises(IntegrityError) as caught:
        install_dataset("openml/61", config, InstallOptions(source=str(source)))
    assert (caught.value.expected, caught.value.found) == (f"md5 {stated}", found)
    assert caught.value.exit_code == 4
    taken = install_dataset(
        "openml/61", config, InstallOptions(source=str(source), accept_any=True)
    ).path
    (checked,) = read_manifest(taken).unverified
    assert stated in checked and found in checked


@pytest.mark.parametrize(
    ("name", "key", "expected", "found"),
    [
        ("2000", "id", "2000", "61"),
        ("adult", "id", "1590", "61"),
        ("adult@1", "name", "adult", "iris"),
        ("iris@2", "version", "2", "1"),
        ("foo", "name", "foo", "iris"),
    ],
)
def test_the_files_of_another_dataset_are_refused(
    name: str, key: str, expected: str, found: str, source: Path, config: Config
) -> None:
    with refused(SourceError, key=key, expected=expected, found=found):
        install_dataset(f"openml/{name}", config, InstallOptions(source=str(source)))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda columns: columns[4].update(index="7"), 5),
        (lambda columns: columns[4].update(index="3"), 5),
        (lambda columns: columns[4].update(index=None), None),
        (lambda columns: columns[4].pop("name"), None),
        (lambda columns: columns.insert(0, "a"), None),
        (lambda columns: columns[2].update(name="x"), "x"),
    ],
)
def test_features_that_are_not_those_of_the_file_are_refused(
    change: Any, expected: object, source: Path, config: Config
) -> None:
    edit(source / "features.json", lambda said: change(said["data_features"]["feature"]))
    with refused(SourceError, path="features.json", expected=expected):
        install_dataset("openml/61", config, InstallOptions(source=str(source)))


def test_a_folder_that_lacks_a_file_is_refused_by_its_name(source: Path, config: Config) -> None:
    for name in ("dataset.arff", "description.json"):
        (source / name).unlink()
        with refused(UsageError, argument="source"):
            install_dataset("openml/61", config, InstallOptions(source=str(source)))
