"""Kept statistics of datasets, against the publisher's files read by h5py and numpy alone."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from tensordict import TensorDict

import datasets_cli
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.project import statistics
from datasets_cli.schema.column_statistics import MEASURES
from datasets_cli.store import tables
from datasets_cli.store.arrays import open_arrays
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.dataset import open_dataset
from tests.support.paths import DEMO_DATA


def made(id: str, config: Config) -> tuple[dict, dict[str, dict[str, np.ndarray]]]:
    root = CacheRoot(config.root)
    dataset = open_arrays(root.dataset(id))
    statistics.save_statistics(
        dataset, root, statistics.RowStatistics(dataset, range(len(dataset)))
    )
    summary = tables.load_summary(root, dataset.manifest.content)
    assert summary is not None
    measures = statistics.load_measures(dataset.manifest, root)
    assert measures is not None
    named = {name: dict(zip(MEASURES, each, strict=True)) for name, each in measures.items()}
    return summary, named


@pytest.fixture(params=["ted", "compact"])
def door_minari(request: pytest.FixtureRequest, config: Config) -> str:
    datasets_cli.download("demo/door-minari", layout=request.param, config=config)
    return "demo/door-minari"


def test_columns_have_the_numbers_of_the_published_file(door_minari: str, config: Config) -> None:
    summary, measures = made(door_minari, config)
    with h5py.File(DEMO_DATA / "minari/D4RL/door/human-v2/data/main_data.hdf5") as file:
        actions = np.concatenate([group["actions"][:] for group in file.values()]).astype(float)
        rewards = [group["rewards"][:].astype(float) for group in file.values()]
    found = measures["action"]
    np.testing.assert_allclose(found["mean"], actions.mean(0), atol=1e-12)
    np.testing.assert_allclose(found["std"], actions.std(0), atol=1e-9)
    np.testing.assert_array_equal(found["min"], actions.min(0))
    np.testing.assert_allclose(found["q90"], np.quantile(actions, 0.9, axis=0))
    column, returns = summary["columns"]["action"], summary["trajectories"]["return"]
    assert (column["min"], column["max"]) == (actions.min(), actions.max())
    assert column["std"] == pytest.approx(actions.std(), abs=1e-9)
    assert returns["max"] == pytest.approx(max(each.sum() for each in rewards))
    assert summary["columns"]["next.done"]["distinct"] == [[False, 897], [True, 3]]


def test_frames_are_measured_by_channel(config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    datasets_cli.download("demo/pong", config=config)
    summary, _ = made("demo/pong", config)
    opened = open_dataset(CacheRoot(config.root).dataset("demo/pong"))
    [frames] = opened.columns(("observation",)).values()
    found = summary["frames"]["observation"]
    assert found["sampled"] == len(frames) == 999
    assert found["mean"] == pytest.approx([frames.double().mean().item()])
    assert found["std"] == pytest.approx([frames.double().std(correction=0).item()])
    assert main(["info", "demo/pong"]) == 0
    shown = (
        f"mean {frames.double().mean():.6g}; std {found['std'][0]:.6g} by channel (of 999 frames)"
    )
    assert capsys.readouterr().out.count(shown) == 1


def test_what_is_not_finite_is_null_in_the_summary(
    config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    datasets_cli.download("demo/door-human", config=config)

    def put(batch: TensorDict) -> TensorDict:
        odd = torch.tensor([np.inf, np.nan, 1.0, 1.7e308, -1.7e308], dtype=torch.float64)
        batch["next", "reward"] = odd.repeat(len(batch))[: len(batch), None]
        return batch

    datasets_cli.preprocess("demo/door-human", put, "odd", per="transition", config=config)
    summary, _ = made("derived/odd", config)
    reward, json_text = summary["columns"]["next.reward"], json.dumps(summary, allow_nan=False)
    assert reward["distinct"] == [[-1.7e308, 59], [1.0, 60], [1.7e308, 60]]
    assert (reward["nan"], reward["infinite"], reward["std"]) == (60, 60, None) and json_text
    assert main(["info", "derived/odd"]) == 0
    assert "-1.7e+308 to 1.7e+308, " in capsys.readouterr().out


def test_the_sample_is_the_contents_and_both_layouts_agree(config: Config, tmp_path: Path) -> None:
    summaries = []
    for layout in ("ted", "compact"):
        other = Config(tmp_path / layout)
        datasets_cli.download("demo/door-human", layout=layout, config=other)
        summaries.append(made("demo/door-human", other)[0])
    assert json.dumps(summaries[0]) == json.dumps(summaries[1])


def test_a_sample_is_drawn_without_replacement_and_in_order(
    monkeypatch: pytest.MonkeyPatch, config: Config, door: str
) -> None:
    monkeypatch.setattr(statistics, "SAMPLED_ROWS", 100)
    summary, _ = made(door, config)
    assert summary["sampled_rows"] == 100
    dataset = open_arrays(CacheRoot(config.root).dataset(door))
    rows = statistics.sampled_rows(dataset.manifest)
    assert (np.diff(rows) > 0).all() and rows[0] >= 0 and rows[-1] < len(dataset)


def test_a_summary_of_another_version_is_absent(
    monkeypatch: pytest.MonkeyPatch, config: Config, door: str
) -> None:
    made(door, config)
    monkeypatch.setattr(tables, "STATISTICS_VERSION", tables.STATISTICS_VERSION + 1)
    root = CacheRoot(config.root)
    content = open_arrays(root.dataset(door)).manifest.content
    assert tables.load_summary(root, content) is None
