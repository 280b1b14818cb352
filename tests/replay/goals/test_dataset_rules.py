"""Goals of datasets: their rules, and what is refused."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from tensordict import TensorDict, TensorDictBase

from datasets_cli import (
    ExperienceReplay,
    FrameStack,
    GoalRule,
    HERSampler,
    LazyTensorStorage,
    ListStorage,
    PrioritizedSampler,
    ReplayBuffer,
    SamplerWithoutReplacement,
    SliceSampler,
    Storage,
    open_storage,
)
from datasets_cli.config import Config
from datasets_cli.errors import EmptyBuffer, UnknownKey, UnverifiedDataset, UsageError, WrongRows
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.replay import LazyStackStorage, RelabelGoal
from tests.support import maze_files
from tests.support.d4rl_cuts import CUTS, columns
from tests.support.goal_rows import ACHIEVED, DESIRED, RULE, buffer_of, goal_rows
from tests.support.paths import TEST_DATA
from tests.support.refusals import check_refused, refused

# Rules of goals, written out, against the rewards that real environments gave.


D4RL_CUTS = TEST_DATA / "d4rl" / "cuts"

Maze = tuple[ExperienceReplay, dict[str, np.ndarray]]


@pytest.fixture(scope="module", params=maze_files.NAMES)
def maze(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Maze]:
    folder = tmp_path_factory.mktemp("maze")
    source = maze_files.unpack(request.param, folder / "source")
    config = Config(folder / "root")
    id = maze_files.install(source, config, "compact" if request.param == "open" else "ted")
    yield ExperienceReplay(id, root=config.root, download=False), maze_files.file_rows(source)


def expected_rewards(rule: str, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
    """As gymnasium-robotics computes them."""
    distance = np.linalg.norm(achieved - desired, axis=-1)
    return np.exp(-distance) if rule == "dense" else (distance <= 0.45).astype(np.float64)


def kind(replay: ExperienceReplay) -> str:
    return "dense" if "Dense" in replay.metadata["env_spec"] else "sparse"


def nearness(achieved: torch.Tensor, desired: torch.Tensor, batch: TensorDictBase) -> torch.Tensor:
    return (-(achieved - desired).norm(dim=-1)).exp()


def rule_of(replay: ExperienceReplay) -> GoalRule:
    terminates = '"continuing_task": false' in replay.metadata["env_spec"]
    rule = GoalRule.sparse(0.45, terminates=terminates)
    return rule if kind(replay) == "sparse" else GoalRule(nearness, rule.terminated, rule.success)


def test_rewards_worked_out_with_the_stored_goals_are_those_of_the_file(maze: Maze) -> None:
    replay, file = maze
    rows = replay[:]
    rule = rule_of(replay)
    goals = rows["next", "observation"]
    found = rule.reward(goals["achieved_goal"], goals["desired_goal"], rows)
    assert torch.equal(found, torch.from_numpy(file["reward"])) or kind(replay) == "dense"
    assert np.allclose(found, file["reward"], rtol=1e-15, atol=0)
    if rule.terminated is not None:
        reached = rule.terminated(goals["achieved_goal"], goals["desired_goal"], rows)
        assert torch.equal(reached, torch.from_numpy(file["terminated"]))


def test_without_new_goals_every_reward_is_the_one_of_the_file(maze: Maze) -> None:
    replay, file = maze
    replay.set_sampler(HERSampler(rule_of(replay), ratio=0))
    batch, info = replay.sample(500, return_info=True)
    stored = file["reward"][info["index"]]
    assert batch["next", "reward"].squeeze(1).numpy().tobytes() == stored.tobytes()


def test_rewards_of_new_goals_are_those_that_the_environment_would_give(maze: Maze) -> None:
    replay, file = maze
    replay.set_sampler(HERSampler(rule_of(replay), ratio=1))
    batch, info = replay.sample(2000, return_info=True)
    goals = file["achieved"][info["goal_row"]]
    assert np.array_equal(batch["observation", "desired_goal"], goals)
    assert np.array_equal(batch["next", "observation", "desired_goal"], goals)
    right = expected_rewards(kind(replay), file["achieved"][info["index"]], goals)
    assert np.allclose(batch["next", "reward"].squeeze(1), right, rtol=1e-15, atol=0)
    near = np.linalg.norm(file["achieved"][info["index"]] - goals, axis=-1) <= 0.45
    assert np.array_equal(batch["next", "info", "success"], near) and near.sum() > 0


def test_a_step_terminates_by_its_new_goal_only_where_goals_end_episodes(maze: Maze) -> None:
    replay, _ = maze
    replay.set_sampler(HERSampler(rule_of(replay), ratio=1, strategy="random"))
    batch, info = replay.sample(2000, return_info=True)
    terminated, truncated, done = (
        batch["next", name].squeeze(1) for name in ("terminated", "truncated", "done")
    )
    stored = replay[info["index"]]
    if '"continuing_task": false' in replay.metadata["env_spec"]:
        assert torch.equal(terminated, batch["next", "info", "success"])
    else:
        assert torch.equal(terminated, stored["next", "terminated"].squeeze(1))
    assert torch.equal(done, terminated | truncated)
    assert done[stored["next", "done"].squeeze(1)].all()  # what ended there still does


@pytest.mark.parametrize("format", ["numpy", "jax"])
def test_other_formats_have_the_same_goals(maze: Maze, format: str) -> None:
    """Rows of a dataset become arrays without a TensorDict in between."""
    replay, _ = maze
    replay.set_sampler(HERSampler(rule_of(replay)))
    replay.reader.use_generator(None, 5)
    expected = replay.sample(100)
    replay.reader.use_generator(None, 5)
    found = replay.with_format(format, cast=format == "jax").sample(100)
    for key in (("next", "reward"), ("observation", "desired_goal"), ("relabelled",)):
        leaf = functools.reduce(lambda tree, name: tree[name], key, found)
        assert np.array_equal(np.asarray(leaf), expected[key].numpy().astype(leaf.dtype))
    assert set(found) == set(expected.keys())


def in_memory(replay: ExperienceReplay) -> Storage:
    return open_storage(replay.data_path, device="cpu")


def of_stacks(replay: ExperienceReplay) -> Storage:
    return FrameStack(open_storage(replay.data_path), 3, key=("observation", "observation"))


@pytest.mark.parametrize("storage", [in_memory, of_stacks])
def test_other_storages_of_a_dataset_have_the_same_goals(maze: Maze, storage: Any) -> None:
    rule = rule_of(maze[0])
    batches = [
        ReplayBuffer(storage=each, sampler=HERSampler(rule), seed=5).sample(100)
        for each in (maze[0].storage, storage(maze[0]))
    ]
    for key in (("next", "reward"), ("observation", "desired_goal"), ("relabelled",)):
        assert torch.equal(batches[0][key], batches[1][key])


def test_goals_of_a_view_are_of_its_own_trajectories(maze: Maze) -> None:
    replay, file = maze
    replay.set_sampler(HERSampler(rule_of(replay), ratio=1, strategy="random"))
    view = replay.episodes_at([2, 0])
    batch, info = view.sample(500, return_info=True)
    offsets = replay.storage.offsets
    whole = [*range(offsets[2], offsets[3]), *range(offsets[1])]
    rows = np.array(whole)[info["goal_row"]]
    assert np.array_equal(batch["observation", "desired_goal"], file["achieved"][rows])


def test_the_goal_that_d4rls_antmaze_states_is_not_the_one_of_its_rewards() -> None:
    """So rows of it have no rule: those rewarded are farther from it than others that are not."""
    with h5py.File(D4RL_CUTS / "antmaze-medium-diverse-v0.hdf5") as file:
        apart = np.linalg.norm(file["observations"][:, :2] - file["infos/goal"][:], axis=1)
        assert file["rewards"][:].sum() == 3 and apart[file["rewards"][:] == 1].min() > 4.3
    with h5py.File(D4RL_CUTS / "antmaze-umaze-v0.hdf5") as file:
        apart = np.linalg.norm(file["observations"][:, :2] - file["infos/goal"][:], axis=1)
        assert file["rewards"][:].sum() == 0 and apart.min() < 4.3


# RelabelGoal gives steps the rewards and ends that their distance to a goal makes.


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


# What HERSampler refuses, and says instead: arguments, rows and rules without a meaning.


def test_arguments_without_a_meaning_are_refused() -> None:
    same = {"desired_goal_key": ("observation", "achieved_goal")}
    keyed = partial(buffer_of, goal_rows([4]))
    check_refused(
        UsageError,
        [
            (
                {"argument": "strategy", "found": "past"},
                partial(buffer_of, strategy="past"),
            ),
            ({"argument": "ratio", "found": 1.5}, lambda: buffer_of(ratio=1.5)),
            ({"argument": "ratio", "found": -1}, lambda: setattr(HERSampler(RULE), "ratio", -1)),
            ({"argument": "gamma", "found": 1}, lambda: buffer_of(strategy="geometric", gamma=1)),
            ({"argument": "gamma", "found": 0.9}, lambda: buffer_of(gamma=0.9)),
            ({"argument": "rule", "found": 3}, lambda: buffer_of(rule=3)),
            (
                {"argument": "sampler"},
                lambda: buffer_of(sampler=PrioritizedSampler(9, 0.5, 0.5)),
            ),
            ({"argument": "sampler", "found": "3"}, lambda: buffer_of(sampler=3)),
            (
                {
                    "argument": "desired_goal_key",
                    "key": ("observation", "achieved_goal"),
                    "found": ("observation", "achieved_goal"),
                },
                lambda: keyed(**same).sample(2),
            ),
            ({"found": 3}, lambda: keyed(desired_goal_key=3).sample(2)),
            *(
                ({"argument": "threshold"}, partial(GoalRule.sparse, threshold))
                for threshold in (-0.1, float("nan"), float("inf"), "0.5", None)
            ),
        ],
    )


def without(key: Any) -> TensorDict:
    return goal_rows([4]).exclude(key)


def test_rows_without_goals_are_refused() -> None:
    def sample(rows: TensorDict, **arguments: Any) -> Callable[[], Any]:
        return lambda: buffer_of(rows, ratio=1, **arguments).sample(8)

    def changed(**entries: torch.Tensor) -> TensorDict:
        keys: dict[str, Any] = {"desired": DESIRED, "terminated": ("next", "terminated")}
        return goal_rows([4]).update({keys.get(name, name): x for name, x in entries.items()})

    def of_itself(achieved: Any, desired: Any, batch: Any) -> Any:
        return achieved

    goals_alone, won = goal_rows([4]), {"success_key": ("next", "won")}
    check_refused(
        UsageError,
        [
            (
                {"found": ["next.observation.achieved_goal"]},
                sample(without(("next", *ACHIEVED))),
            ),
            ({"found": ["observation.desired_goal"]}, sample(without(DESIRED))),
            ({"found": ["next.terminated"]}, sample(without(("next", "terminated")))),
            (
                {"key": ("next", "observation", "achieved_goal"), "expected": "torch.float32 [2]"},
                sample(changed(desired=torch.zeros(4, 2))),
            ),
            (
                {"key": ("next", "observation", "achieved_goal"), "found": "torch.float64 [1]"},
                sample(changed(desired=torch.zeros(4, 1))),
            ),
            (
                {"key": ("next", "terminated"), "found": torch.float32},
                sample(changed(terminated=torch.zeros(4, 1))),
            ),
            ({"key": ("relabelled",)}, sample(changed(relabelled=torch.zeros(4)))),
            ({"found": ["next.won"]}, sample(goals_alone, rule=RULE, **won)),
            (
                {"argument": "success_key", "found": ("next", "won")},
                sample(goals_alone, rule=of_itself, **won),
            ),
            (
                {"argument": "truncated_key"},
                sample(goals_alone, sampler=SliceSampler(slice_len=2, truncated_key=None)),
            ),
        ],
    )


@pytest.mark.parametrize("storage", [ListStorage, LazyStackStorage])
def test_rows_of_a_list_some_of_which_lack_a_goal_are_refused(storage: Any) -> None:
    for key in (("next", *ACHIEVED), DESIRED, ("next", "reward")):
        buffer = ReplayBuffer(storage=storage(9), sampler=HERSampler(RULE, ratio=1))
        buffer.extend(goal_rows([4]))
        buffer.extend(without(key))
        with pytest.raises(UsageError):
            buffer.sample(50)


@pytest.mark.parametrize("storage", [ListStorage, LazyTensorStorage])
def test_goals_of_several_tensors_are_refused(storage: Any) -> None:
    rows = goal_rows([4])
    rows[DESIRED] = TensorDict({"kettle": torch.zeros(4, 1)}, [4])
    rows["next", *ACHIEVED] = TensorDict({"kettle": torch.zeros(4, 1)}, [4])
    buffer = ReplayBuffer(storage=storage(9), sampler=HERSampler(RULE, ratio=1))
    buffer.extend(rows)
    with pytest.raises((UnknownKey, WrongRows)) as error:
        buffer.sample(8)
    assert {error.value.key} <= {DESIRED, ("next", *ACHIEVED), None}


def test_what_is_refused_loses_no_row_of_an_epoch() -> None:
    epoch = SamplerWithoutReplacement()
    buffer = ReplayBuffer(storage=LazyTensorStorage(4), sampler=HERSampler(RULE, sampler=epoch))
    with pytest.raises(EmptyBuffer):
        buffer.sample(2)
    buffer.extend(goal_rows([4]))
    buffer.set_sampler(HERSampler(RULE, sampler=epoch, success_key=("next", "won")))
    with pytest.raises(UsageError):
        buffer.sample(2)
    buffer.set_sampler(HERSampler(RULE, sampler=epoch))
    found = torch.cat([buffer.sample(2)["next", *ACHIEVED] for _ in range(2)])
    assert found.view(-1).sort().values.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("returned", "found"),
    [
        (torch.zeros(3), "torch.float32 [3]"),
        (torch.zeros(8, 2), "torch.float32 [8, 2]"),
        (torch.zeros(8, dtype=torch.complex64), "torch.complex64 [8]"),
        ("much", "much"),
    ],
)
def test_rewards_of_another_dtype_or_shape_are_refused(returned: Any, found: str) -> None:
    buffer = buffer_of(goal_rows([4]), rule=lambda *_: returned, ratio=1)
    with refused(UsageError, found=found):
        buffer.sample(8)


def test_rows_that_are_no_single_steps_are_refused() -> None:
    several: list[Any] = [goal_rows([2])] * 3
    for rows, words in (([1, 2, 3], "do not have"), (several, r"batch size \[2\]")):
        buffer = ReplayBuffer(storage=ListStorage(9), sampler=HERSampler(RULE))
        buffer.extend(rows)
        check_refused(UsageError, [(words, partial(buffer.sample, 2))])
