"""Lengths, returns and returns to go of recorded steps, beside plain loops over the files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import datasets_cli
from datasets_cli import ExperienceReplay, Trajectories, traj
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.project import Pipeline
from tests.support import d4rl_cuts
from tests.support.d4rl_cuts import CUTS
from tests.support.values import Trajectory, split

LAYOUTS = ["ted", "compact"]
Source = Mapping[str, np.ndarray]


def listed(source: Source) -> list[Trajectory]:
    """Return the trajectories of a file that have a transition."""
    recorded = "next_observations" in source
    found = split(source, None)
    return [each for each in found if recorded or each.terminated or each.last > each.first]


def sums(values: np.ndarray, gamma: float) -> np.ndarray:
    """Return the sum from each value on, float64 ``[n]``."""
    found, following = np.zeros(len(values)), 0.0
    for place in reversed(range(len(values))):
        following = found[place] = float(values[place]) + gamma * following
    return found


def close(found: Any, right: Any, rtol: float = 1e-12) -> None:
    np.testing.assert_allclose(found, right, rtol=rtol, atol=1e-9)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("cut", CUTS)
def test_a_table_is_that_of_every_step_of_the_file(
    cut: str, layout: str, config: Config, tmp_path: Path
) -> None:
    source = str(CUTS[cut].lay_out(tmp_path / "source"))
    options = InstallOptions(source=source, accept_any=True, layout=layout)
    install_dataset(f"d4rl/{CUTS[cut].name}", config, options)
    replay = ExperienceReplay(f"d4rl/{CUTS[cut].name}", download=False)
    file = d4rl_cuts.columns(cut)
    trajectories, rewards = listed(file), file["rewards"].reshape(-1)
    lengths = [each.last - each.first + 1 for each in trajectories]
    parts = [rewards[each.first : each.last + 1] for each in trajectories]
    returns = [float(sums(part, 1)[0]) for part in parts]

    table = replay.trajectories
    assert table["length"].tolist() == lengths
    close(table["return"], returns)
    rows = np.diff([*table["start"], len(replay)])
    assert table["num_transitions"].tolist() == table.num_transitions.tolist() == rows.tolist()
    assert len(replay) + replay.manifest.final_steps == len(rewards)

    statistics = replay.manifest.statistics
    close([statistics["length"][name] for name in ("min", "max")], [min(lengths), max(lengths)])
    close(statistics["length"]["mean"], np.mean(lengths))
    close([statistics["return"][name] for name in ("min", "max")], [min(returns), max(returns)])
    for gamma in (1.0, 0.9, 0.0):
        found = replay.sequences(1, 1, gamma=gamma)[:]["returns_to_go"].reshape(-1)
        right = [sums(part, gamma)[:n] for part, n in zip(parts, rows, strict=True)]
        close(found, np.concatenate(right), 1e-5)


def test_the_first_return_of_door_human_is_the_publishers(config: Config, tmp_path: Path) -> None:
    source = str(CUTS["door-human-v1"].lay_out(tmp_path))
    install_dataset("d4rl/door-human-v1", config, InstallOptions(source=source, accept_any=True))
    replay = ExperienceReplay("d4rl/door-human-v1", download=False)
    assert replay.trajectories["return"][0] == pytest.approx(520.4158407449722)
    assert replay.trajectories["length"].tolist() == [300, 300]
    assert replay.trajectories["num_transitions"].tolist() == [299, 299]


# Own data: trajectories of 3, 1, 4, 2 and 5 steps, of which the fourth terminates. The second has
# no transition.

LENGTHS = [3, 1, 4, 2, 5]
REWARDS = np.arange(15.0)
SUCCESS = np.isin(np.arange(15), [2, 3, 8])
"""The successes of the final steps of the first two trajectories, and of one that terminates."""
TO_GO = [[3, 3], [22, 18, 13], [17, 9], [60, 50, 39, 27]]


@pytest.fixture(params=LAYOUTS)
def replay(request: pytest.FixtureRequest, config: Config) -> ExperienceReplay:
    columns = {
        "observation": np.arange(15.0)[:, None],
        "action": np.arange(15),
        "reward": REWARDS,
        "terminated": np.arange(15) == 9,
        "info.success": SUCCESS,
    }
    datasets_cli.create_dataset("mine/steps", columns, lengths=LENGTHS, layout=request.param)
    return ExperienceReplay("mine/steps", 4)


def table_of(replay: ExperienceReplay) -> dict[str, list[Any]]:
    names = ("number", "length", "num_transitions", "return", "success")
    return {name: replay.trajectories[name].tolist() for name in names}


WHOLE: dict[str, list[Any]] = {
    "number": [0, 1, 2, 3],
    "length": [3, 4, 2, 5],
    "num_transitions": [2, 3, 2, 4],
    "return": [3.0, 22.0, 17.0, 60.0],
    "success": [True, False, True, False],
}


def test_final_steps_count_in_length_return_and_success(replay: ExperienceReplay) -> None:
    assert table_of(replay) == WHOLE
    assert replay.trajectories["truncated"].tolist() == [True, True, False, True]
    assert replay.trajectories.reduce("next.reward", "sum").tolist() == [1.0, 15.0, 17.0, 46.0]
    assert [len(each) for each in replay.episodes()] == WHOLE["num_transitions"]


def test_views_choose_by_recorded_steps(replay: ExperienceReplay) -> None:
    best = replay.take(2, by="-return")
    assert table_of(best) == {name: [each[3], each[1]] for name, each in WHOLE.items()}
    assert replay.filter("return > 20").trajectories["number"].tolist() == [1, 3]
    assert replay.filter("length > 3").trajectories["number"].tolist() == [1, 3]
    assert replay.filter("length == num_transitions").trajectories["number"].tolist() == [2]
    assert replay.take(2, by="length").trajectories["number"].tolist() == [2, 0]
    # Conditions of traj are of the stored rows.
    assert replay.filter(traj.length > 3).trajectories["number"].tolist() == [3]
    assert [found.length for found in replay.query(traj.length > 3)] == [4]


@pytest.mark.parametrize("is_cached", [True, False])
def test_a_view_has_the_final_step_exactly_after_the_last_row(
    is_cached: bool, replay: ExperienceReplay
) -> None:
    if is_cached:
        assert table_of(replay) == WHOLE
    cut = replay.rows(1, 4)  # the last row of the first, two of three rows of the second
    assert cut.trajectories["length"].tolist() == [2, 2]
    assert cut.trajectories["return"].tolist() == [1.0 + 2.0, 4.0 + 5.0]
    assert cut.trajectories["success"].tolist() == [True, False]
    whole = replay.episodes_at([3, 0, 3])
    assert whole.trajectories["length"].tolist() == [5, 3, 5]
    assert whole.trajectories["return"].tolist() == [60.0, 3.0, 60.0]
    no_ends = replay.filter("no-timeouts")  # without the last rows that are truncated
    assert no_ends.trajectories["length"].tolist() == [1, 2, 2, 3]
    assert no_ends.trajectories["return"].tolist() == [0.0, 9.0, 17.0, 33.0]


def test_returns_to_go_include_the_final_step_by_its_place(replay: ExperienceReplay) -> None:
    def to_go(view: ExperienceReplay, gamma: float) -> list[float]:
        found: torch.Tensor = view.sequences(1, 1, gamma=gamma)[:]["returns_to_go"]
        return found.reshape(-1).tolist()

    assert to_go(replay, 1.0) == [number for each in TO_GO for number in each]
    assert to_go(replay, 0.5)[:2] == [0.0 + 0.5 * (1 + 0.5 * 2), 1 + 0.5 * 2]
    assert to_go(replay, 0.0) == replay[:]["next", "reward"].reshape(-1).tolist()
    assert to_go(replay.episodes_at([3, 2]), 1.0) == TO_GO[3] + TO_GO[2]
    assert to_go(replay.rows(1, 4), 1.0) == [3.0, 9.0, 5.0]


def test_a_selection_of_whole_trajectories_keeps_their_returns(
    replay: ExperienceReplay, tmp_path: Path
) -> None:
    chosen = replay.filter("return > 20").preprocess(Pipeline(), dest=tmp_path / "x", num_workers=0)
    table = Trajectories(chosen, None)
    assert table["return"].tolist() == [22.0, 60.0] and table["length"].tolist() == [4, 5]
    assert chosen.dataset.manifest.statistics["return"]["max"] == 60.0


def test_final_rewards_that_are_not_finite_make_returns_so(config: Config) -> None:
    rewards = np.array([1.0, 2.0, np.inf, 4.0, 5.0, np.nan])
    columns = {"observation": np.zeros((6, 1)), "action": np.zeros(6), "reward": rewards}
    datasets_cli.create_dataset("mine/odd", columns, lengths=[3, 3])
    replay = ExperienceReplay("mine/odd")
    np.testing.assert_array_equal(replay.trajectories["return"], [np.inf, np.nan])
    found = replay.sequences(1, 1, gamma=0.0)[:]["returns_to_go"].reshape(-1)
    assert found.tolist() == [1, 2, 4, 5]


def test_recorded_steps_are_told_where_transitions_are_counted(
    replay: ExperienceReplay, capsys: pytest.CaptureFixture[str]
) -> None:
    for verb in ("info", "stats", "trajectories", "card"):
        assert main([verb, "mine/steps"]) == 0
        captured = capsys.readouterr()
        shown = " ".join((captured.out + captured.err).replace("\\", "").split())
        assert "15 recorded steps, 11 transitions: 4 final steps have no successor" in shown, verb
        assert "1 of them is a trajectory of one step, without a transition" in shown, verb
    found = datasets_cli.dataset_stats("mine/steps").trajectories
    assert (found["length"]["max"], found["num_transitions"]["max"]) == (5, 4)
    assert found["return"]["mean"] == np.mean(WHOLE["return"])
    listed = datasets_cli.list_trajectories("mine/steps", sort="-return").columns
    assert listed["number"] == [3, 1, 2, 0] and listed["length"] == [5, 4, 2, 3]


@pytest.mark.parametrize("workers", [0, 2])
def test_the_column_of_returns_to_go_includes_final_steps(
    workers: int, replay: ExperienceReplay, tmp_path: Path
) -> None:
    def column(view: ExperienceReplay, **options: Any) -> list[float]:
        steps = Pipeline(returns_to_go=True, **options)
        made = view.preprocess(
            steps, dest=tmp_path / str(options), num_workers=workers, chunksize=3
        )
        found: torch.Tensor = made.column(("returns_to_go",))
        return found.reshape(-1).tolist()

    flat = [number for each in TO_GO for number in each]
    assert column(replay) == flat
    found = replay.sequences(1, 1, gamma=0.5)[:]["returns_to_go"].reshape(-1).tolist()
    assert column(replay, gamma=0.5) == pytest.approx(found)
    assert column(replay.episodes_at([3, 2]), select="action") == TO_GO[3] + TO_GO[2]
    rows = replay[:]["next", "reward"].double()
    scaled = (REWARDS - rows.mean().item()) / rows.std().item()
    last = [scaled[2], scaled[7], scaled[9], scaled[14]]
    found = column(replay, normalise="next.reward")
    assert [found[1], found[4], found[6], found[10]] == pytest.approx(
        [scaled[1] + last[0], scaled[6] + last[1], last[2], scaled[13] + last[3]]
    )
