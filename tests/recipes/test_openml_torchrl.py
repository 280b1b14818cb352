"""The seven tables that TorchRL names: its own values, from its own preprocessing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import sklearn.datasets
import torch

from datasets_cli import OpenMLExperienceReplay
from datasets_cli.errors import SourceError
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.store.dataset import Dataset, open_dataset
from tests.support import openml_files as files
from tests.support.openml_files import OpenML
from tests.support.refusals import refused


@pytest.fixture
def install(site: OpenML) -> Callable[[str], Dataset]:
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
def test_every_value_is_torchrl_s(name, install, by_torchrl):
    rows = install(name).columns(())
    right = by_torchrl(name)
    for key, values in (("observation", right["X"]), ("action", right["y"])):
        found = rows[key,]
        assert (found.dtype, found.shape) == (values.dtype, values.shape)
        same = found.numpy().tobytes() == values.numpy().tobytes()
        assert same, key


@pytest.mark.parametrize("name", files.SCHEMAS)
def test_what_the_manifest_says_undoes_the_preprocessing(name, site, install):
    dataset = install(name)
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
def test_a_table_of_too_many_values_is_refused_before_it_is_encoded(name, site, install):
    num_values = install(name).columns(())["observation",].numel()
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


def test_torchrl_predicts_the_occupation_in_adult_and_the_plain_name_the_income(site, install):
    assert install("adult_num").manifest.metadata["target_names"] == ["occupation"]
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
