"""RelabelGoal gives steps the rewards and ends that their distance to a goal makes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from datasets_cli import ExperienceReplay, GoalRule
from datasets_cli.config import Config
from datasets_cli.errors import UnverifiedDataset, UsageError
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.replay import RelabelGoal
from tests.support import maze_files
from tests.support.d4rl_cuts import CUTS, columns

ENDS = GoalRule.sparse(0.5, terminates=True)
STATE = ("next", "observation")


def antmaze(cut: str, layout: str, root: Path) -> ExperienceReplay:
    source = str(CUTS[cut].lay_out(root / "source"))
    options = InstallOptions(accept_any=True, source=source, layout=layout)
    install_dataset(f"d4rl/{cut}", Config(root), options)
    with pytest.warns(UnverifiedDataset):
        return ExperienceReplay(f"d4rl/{cut}", root=root, audit="ignore")


@pytest.mark.parametrize("layout", ["ted", "compact"])
def test_every_step_near_the_goal_of_antmaze_is_rewarded_and_terminal(
    layout: str, tmp_path: Path
) -> None:
    cut = "antmaze-umaze-v0"
    replay, file = antmaze(cut, layout, tmp_path), columns(cut)
    goal = file["observations"][350, :2].astype(float)  # where the ant of this piece has been
    is_near = np.linalg.norm(file["observations"][:, :2] - goal, axis=1) <= 0.5
    rows = np.delete(np.arange(len(is_near)), np.flatnonzero(file["timeouts"]))
    relabel = RelabelGoal(ENDS, achieved=STATE, goal=goal.tolist())
    written = replay.preprocess(relabel, dest=tmp_path / "new", num_workers=0)
    for batch in (relabel(replay[:]), written.get(torch.arange(len(written)))):
        assert np.array_equal(batch["next", "reward"][:, 0].numpy(), is_near[rows + 1])
        assert np.array_equal(batch["next", "terminated"][:, 0].numpy(), is_near[rows + 1])
        is_end = is_near[rows + 1] | np.isin(rows, np.flatnonzero(file["timeouts"]) - 1)
        assert np.array_equal(batch["next", "done"][:, 0].numpy(), is_end)
    # The first of them is the end, once the rest of its trajectory is left out.
    first = ExperienceReplay(tmp_path / "new", root=tmp_path, view="first-success")
    near = [np.flatnonzero(part) for part in np.split(is_near[rows + 1], [700])]
    lengths = [int(part[0]) + 1 if len(part) else 700 for part in near]
    assert first.trajectories["length"].tolist() == lengths and min(lengths) < 700


def test_a_terminal_whose_next_state_is_not_recorded_keeps_what_is_stored(tmp_path: Path) -> None:
    replay = antmaze("antmaze-medium-diverse-v0", "ted", tmp_path)
    batch = RelabelGoal(ENDS, achieved=STATE, goal=(20.0, 21.5))(replay[:])
    observations = columns("antmaze-medium-diverse-v0")["observations"][1:65, :2].astype(float)
    is_near = np.linalg.norm(observations - (20.0, 21.5), axis=1) <= 0.5
    assert not is_near.any()
    assert batch["next", "reward"].flatten().tolist() == [0.0] * 64 + [1.0] * 3
    assert batch["next", "terminated"].flatten().tolist() == [False] * 64 + [True] * 3


@pytest.mark.parametrize("name", ["open", "open-ends"])
def test_the_rewards_of_a_maze_follow_from_the_goals_of_its_steps(
    name: str, tmp_path: Path
) -> None:
    source = maze_files.unpack(name, tmp_path / "source")
    id = maze_files.install(source, Config(tmp_path / "root"))
    rule = GoalRule.sparse(0.45, reached=3.0, missed=-1.0, terminates=name == "open-ends")
    replay = ExperienceReplay(id, root=tmp_path / "root", transform=RelabelGoal(rule))
    file, batch = maze_files.file_rows(source), replay[:]
    assert np.array_equal(batch["next", "reward"][:, 0].numpy(), 4 * file["reward"] - 1)
    assert np.array_equal(batch["next", "terminated"][:, 0].numpy(), file["terminated"])
    assert np.array_equal(batch["next", "observation", "desired_goal"], file["desired"])


def test_a_terminal_far_from_the_goal_is_a_cut_and_batches_keep_their_shape() -> None:
    flags = torch.tensor([[[True], [False]]])
    following = {
        **{"observation": torch.tensor([[[9.0], [1.0]]]), "reward": torch.zeros(1, 2, 1)},
        **{"terminated": flags, "done": flags, "truncated": torch.zeros_like(flags)},
    }
    batch = TensorDict({"next": following}, [1, 2])
    made = RelabelGoal(ENDS, achieved=STATE, goal=[1.2])(batch)["next"]
    assert made["reward"].tolist() == [[[0.0], [1.0]]] and made.batch_size == (1, 2)
    assert made["terminated"].tolist() == [[[False], [True]]]
    assert made["truncated"].tolist() == [[[True], [False]]]
    assert made["done"].tolist() == [[[True], [True]]]


@pytest.mark.parametrize("arguments", [{}, {"achieved": ("next", "reward"), "goal": (1.0, 2.0)}])
def test_rows_without_a_goal_or_with_a_smaller_state_are_refused(
    arguments: dict[str, object],
) -> None:
    following = {"reward": torch.zeros(3, 1), "terminated": torch.zeros(3, 1, dtype=torch.bool)}
    with pytest.raises(UsageError):
        RelabelGoal(ENDS, **arguments)(TensorDict({"next": following}, [3]))  # type: ignore[arg-type]


def test_a_rule_is_given_a_goal_for_each_row_in_the_type_of_what_was_achieved() -> None:
    seen = []

    def equal(achieved: torch.Tensor, desired: torch.Tensor, batch: TensorDict) -> torch.Tensor:
        seen.append((desired.shape, desired.dtype))
        return (achieved == desired).all(1).float()

    after = {"reward": torch.zeros(3, 1), "terminated": torch.zeros(3, 1, dtype=torch.bool)}
    after["observation"] = torch.tensor([[0.1], [0.2], [0.1]])
    rows = TensorDict({"next": TensorDict(after, [3])}, [3])
    made = RelabelGoal(GoalRule(equal), achieved=STATE, goal=[0.1])(rows)
    assert made["next", "reward"][:, 0].tolist() == [1, 0, 1]
    assert seen == [((3, 1), torch.float32)]
