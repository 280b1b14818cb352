"""`rlds stats` beside what numpy and pandas make of the publishers' files alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from tensordict import TensorDict

import datasets_cli
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import DiskFull, UsageError
from datasets_cli.project import statistics
from datasets_cli.schema.column_statistics import MEASURES
from datasets_cli.store import tables
from datasets_cli.store.arrays import open_arrays
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.dataset import open_dataset
from datasets_cli.store.tables import load_summary, load_table, save_table
from tests.support import text_rows
from tests.support.conformance import case_of
from tests.support.refusals import check_refused, refused
from tests.verbs.test_peek import FAMILIES

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("id", FAMILIES)
def test_statistics_are_those_of_the_published_file(id: str, config: Config) -> None:
    datasets_cli.download(id, config=config)
    expected = case_of(FAMILIES[id]).expected()
    leaves = {".".join(key): values for key, values in expected.leaves.items()}
    measured = ("observation", "next.observation", "action", "next.reward")
    columns = {key: leaves[key] for key in measured if key in leaves and leaves[key].dtype != "u1"}
    found = datasets_cli.dataset_stats(id, columns=columns, config=config)
    assert found.columns.keys() == columns.keys() and (found.made, found.changed) == (True, ())
    for key, values in columns.items():
        rows = pandas.DataFrame(values.reshape(len(values), -1).astype(float))
        numbers, whole = found.numbers[key], found.columns[key]
        for measure in ("mean", "min", "max"):
            np.testing.assert_allclose(numbers[measure], getattr(rows, measure)(), atol=1e-12)
        np.testing.assert_allclose(numbers["std"], rows.std(ddof=0), atol=1e-9)
        np.testing.assert_allclose(numbers["q10"], rows.quantile(0.1), rtol=1e-12)
        assert whole["count"] == rows.size and whole["constant"] == (rows.nunique() == 1).all()
        assert whole["std"] == pytest.approx(rows.to_numpy().std(), abs=1e-9)
        assert whole["quantiles"][2] == pytest.approx(np.median(rows), rel=1e-12)
    rewards = expected.rewards()  # of the recorded steps
    returns, lengths = [part.sum() for part in rewards], [len(part) for part in rewards]
    assert found.trajectories["return"]["max"] == pytest.approx(max(returns))
    assert found.trajectories["length"]["mean"] == np.mean(lengths)
    assert found.trajectories["num_transitions"]["mean"] == np.diff(expected.offsets).mean()
    if id == "demo/pong":
        mean = datasets_cli.dataset_stats(id, config=config).frames["observation"]["mean"]
        assert mean == pytest.approx([leaves["observation"].mean()])


def derived(config: Config, put: Callable[[TensorDict], TensorDict]) -> str:
    datasets_cli.download("demo/door-human", config=config)
    datasets_cli.preprocess("demo/door-human", put, "odd", config=config)
    return "derived/odd"


def test_a_nan_among_the_rows_is_counted_and_shown(config: Config, capsys: Capture) -> None:
    def put(batch: TensorDict) -> TensorDict:
        batch["action"][batch["action"][:, 0] > 0, 3] = float("nan")
        batch["observation"][:] = float("nan")
        return batch

    id = derived(config, put)
    found = datasets_cli.dataset_stats(id, columns="action", config=config)
    assert found.columns["action"]["nan"] == sum(map(int, found.numbers["action"]["nan"])) > 0
    assert [number for number, count in enumerate(found.numbers["action"]["nan"]) if count] == [3]
    assert main(["stats", id]) == 0
    shown = capsys.readouterr().out
    assert "NAN" in shown and "11,661" in shown  # each number of observation


def test_kept_statistics_are_read_and_stale_ones_are_made_again(
    config: Config, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = datasets_cli.dataset_stats(door, config=config)
    made = statistics.make_tables
    monkeypatch.setattr(statistics, "make_tables", None)
    assert datasets_cli.dataset_stats(door, config=config).to_json() == {
        **first.to_json(),
        "made": False,
    }
    monkeypatch.setattr(statistics, "make_tables", made)
    root = CacheRoot(config.root)
    table = load_table(root, first.content, "statistics")
    assert table is not None
    save_table(root, first.content, "statistics", {**table, "content": "0" * 64})
    assert load_summary(root, first.content) is None
    again = datasets_cli.dataset_stats(door, config=config)
    assert again.made and again.columns == first.columns


def test_recompute_names_what_was_other(config: Config, door: str) -> None:
    first = datasets_cli.dataset_stats(door, config=config)
    root = CacheRoot(config.root)
    table = load_table(root, first.content, "statistics")
    assert table is not None
    table["columns"]["action"]["max"] = 99.0
    save_table(root, first.content, "statistics", table)
    for path in root.tables(first.content).glob("trajectories-sum-*.array"):
        path.write_bytes(b"stale")
    found = datasets_cli.dataset_stats(door, recompute=True, config=config)
    assert found.changed == ("action",) and found.columns == first.columns
    assert datasets_cli.dataset_stats(door, recompute=True, config=config).changed == ()


def test_what_is_sampled_and_left_out_is_said(
    config: Config, door: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(statistics, "SAMPLED_ROWS", 100)
    assert main(["stats", door]) == 0
    assert "Q50 is of 100 sampled transitions." in capsys.readouterr().out


def test_text_has_no_statistics_and_that_is_said(
    config: Config, tmp_path: Path, capsys: Capture
) -> None:
    folder = text_rows.write(tmp_path, "ted", text_rows.steps_of(text_rows.ODD_TEXTS))
    shutil.copytree(folder, config.root / "datasets" / text_rows.ID)
    found = datasets_cli.dataset_stats(text_rows.ID, config=config)
    assert "observation.mission" in found.unmeasured
    assert main(["stats", text_rows.ID]) == 0
    assert "observation.mission is not measured: it is text" in capsys.readouterr().out
    with refused(UsageError, argument="columns", key="observation.mission", id="toy/missions"):
        datasets_cli.dataset_stats(text_rows.ID, columns="observation.mission", config=config)


def test_a_small_column_has_a_row_for_each_number(
    config: Config, door: str, capsys: Capture
) -> None:
    assert main(["stats", door, "--columns", "action,next.reward"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split()[0] for line in lines if line.startswith(("action", "next"))]
    assert names == ["action", *(f"action[{number}]" for number in range(28)), "next.reward"]


def test_no_line_is_wider_than_the_terminal(
    config: Config, door: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets_cli.cli.terminal._is_terminal", lambda: True)
    for width in (40, 80, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        assert main(["stats", door]) == 0
        assert max(map(len, capsys.readouterr().out.splitlines())) <= width


def test_wrong_calls_of_stats_are_refused(config: Config, door: str) -> None:
    def stats(columns: object) -> Callable[[], object]:
        return lambda: datasets_cli.dataset_stats(door, config=config, columns=columns)  # type: ignore[arg-type]

    check_refused(
        UsageError,
        [
            ("no column nosuch. It has action", stats(columns="nosuch")),
            ("no column act. Did you mean action", stats(columns="act")),
            ("columns is 3", stats(columns=3)),
        ],
    )


def without_reward(batch: TensorDict) -> TensorDict:
    return batch.exclude(("next", "reward"))


def test_one_trajectory_and_no_reward_have_statistics(config: Config) -> None:
    datasets_cli.download("demo/door-human", config=config)
    datasets_cli.preprocess(
        "demo/door-human", without_reward, "one", max_trajectories=1, config=config
    )
    found = datasets_cli.dataset_stats("derived/one", config=config)
    assert (found.num_trajectories, "return" in found.trajectories) == (1, False)
    assert found.trajectories["length"]["std"] == 0 and found.trajectories["length"]["constant"]


def test_json_has_no_nan(config: Config, capsys: Capture) -> None:
    def put(batch: TensorDict) -> TensorDict:
        batch["next", "reward"] = torch.full_like(batch["next", "reward"], float("nan"))
        return batch

    id = derived(config, put)
    assert main(["stats", id, "--columns", "next.reward", "--json"]) == 0
    document = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert document["numbers"]["next.reward"]["mean"] == [None]
    assert document["columns"]["next.reward"]["constant"]
    shutil.rmtree(config.root / "tables")
    assert main(["stats", id]) == 0
    assert " - " in capsys.readouterr().out


def test_all_looks_take_a_folder_and_a_full_disk_keeps_no_statistics(
    config: Config, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise DiskFull("full")

    monkeypatch.setattr(statistics, "write_array", full)
    folder = str(config.root / "datasets" / door)
    found = datasets_cli.dataset_stats(folder, columns="action", config=config)
    assert found.made and found.id == door and len(found.numbers["action"]["mean"]) == 28
    assert datasets_cli.dataset_stats(folder, config=config).made
    assert datasets_cli.peek(folder, config=config).id == door


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
