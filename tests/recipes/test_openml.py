"""OpenML: every value is scikit-learn's own, and each row becomes a trajectory of one step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn.datasets
import torch

from datasets_cli import OpenMLExperienceReplay
from datasets_cli.install.installation import install_dataset
from datasets_cli.store.dataset import Dataset, open_dataset
from tests.support import openml_files as files
from tests.support.openml_files import OpenML

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
@pytest.mark.parametrize("data_id", [2, 3, 61, 62, 292, 561, 1119, 40589, 40675, 40966, 42585])
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


# One-step trajectories


def test_each_row_is_a_trajectory_of_one_rewarded_step(site, install):
    site.captured(61)
    rows = install("61").columns(())
    ones = torch.ones(150, 1)
    assert torch.equal(rows["next", "reward"], ones.double())
    assert torch.equal(rows["next", "terminated"], ones.bool())
    assert torch.equal(rows["next", "done"], ones.bool())
    assert not rows["next", "observation"].any()
    assert torch.equal(rows["episode",], torch.arange(150))
    zero_flags = [rows[key] for key in (("done",), ("terminated",), ("next", "truncated"))]
    assert not torch.cat(zero_flags).any()


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
