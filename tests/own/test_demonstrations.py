"""Demonstrations without rewards: everything works on them, or refuses by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

import datasets_cli as rlds
from datasets_cli import ExperienceReplay, GoalRule, NoRewards, UsageError, create_dataset, traj
from datasets_cli.replay.draws.protocol import Sampler

LENGTHS = [20, 10, 30]
COUNT = sum(LENGTHS)
KEYS: Any = {"achieved_goal_key": "place", "desired_goal_key": "goal"}


def steps(has_rewards: bool = False) -> dict[Any, Any]:
    rng = np.random.default_rng(0)
    columns: dict[Any, Any] = {
        "observation": rng.normal(size=(COUNT, 3)).astype("f4"),
        "action": rng.normal(size=(COUNT, 2)).astype("f4"),
        "terminated": np.isin(np.arange(COUNT), np.cumsum(LENGTHS) - 1),
        ("info", "success"): np.arange(COUNT) % 7 == 0,
        **{("next", "place"): np.ones((COUNT, 1), "f4"), "goal": np.zeros((COUNT, 1), "f4")},
    }
    return columns | ({"reward": rng.normal(size=COUNT).astype("f4")} if has_rewards else {})


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("root")
    for layout in ("ted", "compact"):
        for name, has_rewards in (("demos", False), ("steps", True)):
            id = f"mine/{name}-{layout}"
            create_dataset(id, steps(has_rewards), lengths=LENGTHS, layout=layout, root=path)
    return path


class Opened:
    """A dataset of the root, as the cases below use it."""

    def __init__(self, id: str, root: Path, out: Path) -> None:
        self.id, self.root, self.out = id, root, out

    def replay(self, **options: Any) -> ExperienceReplay:
        return ExperienceReplay(
            self.id, root=self.root, download=False, batch_size=8, seed=0, **options
        )

    def draw(self, **options: Any) -> Any:
        return self.replay(**options).sample()

    def run(self, verb: str, *values: Any, **options: Any) -> Any:
        return getattr(rlds, verb)(self.id, *values, root=self.root, **options)

    def preprocess(self, **fields: Any) -> Any:
        where = fields.pop("where", None)
        fn = rlds.Pipeline(**fields)
        return self.run("preprocess", fn, f"{self.out.name}-{self.id[5:]}", where=where)

    def export(self, format: str) -> Any:
        return self.run("export_dataset", format, self.out / "x", allow_loss=True)


Case = Callable[[Opened], Any]
SAMPLERS: dict[str, Case] = {
    "RandomSampler": lambda x: x.draw(sampler=rlds.RandomSampler()),
    "SamplerWithoutReplacement": lambda x: x.draw(sampler=rlds.SamplerWithoutReplacement()),
    "SliceSampler": lambda x: x.draw(sampler=rlds.SliceSampler(num_slices=2)),
    "SliceSamplerWithoutReplacement": lambda x: x.draw(
        sampler=rlds.SliceSamplerWithoutReplacement(num_slices=2)
    ),
    "PrioritizedSampler": lambda x: x.draw(sampler=rlds.PrioritizedSampler(COUNT, 0.6, 0.4)),
    "PrioritizedSliceSampler": lambda x: x.draw(
        sampler=rlds.PrioritizedSliceSampler(COUNT, 0.6, 0.4, num_slices=2)
    ),
    "DistributedSampler": lambda x: x.draw(sampler=rlds.DistributedSampler(1, 0)),
    "BlockShuffleSampler": lambda x: x.draw(sampler=rlds.BlockShuffleSampler()),
}
WORKS: dict[str, Case] = {
    **SAMPLERS,
    "columns": lambda x: x.draw(columns=["observation"]),
    "loader": lambda x: next(iter(torch.utils.data.DataLoader(x.replay(), batch_size=8))),
    "jax": lambda x: x.replay().jax_sampler(4),
    "numpy": lambda x: x.replay().with_format("numpy").sample(),
    "filter length": lambda x: x.replay().filter("length > 15").sample(),
    "filter success": lambda x: x.replay().filter("success"),
    "filter traj": lambda x: x.replay().filter(traj.length > 3),
    "preset": lambda x: x.replay().filter("first-success"),
    "take": lambda x: x.replay().take(2, by="length").sample(),
    "split": lambda x: x.replay().split(0.5, 0.5),
    "drop_duplicates": lambda x: x.replay().drop_duplicates(),
    "rows": lambda x: x.replay().rows(3, 9).sample(),
    "episodes": lambda x: [*x.replay().iterate_episodes()],
    "sequences": lambda x: x.replay().sequences(4).sample(2),
    "table": lambda x: x.replay().trajectories.to_pandas(),
    "specs": lambda x: x.replay().specs,
    "to_numpy": lambda x: x.replay().to_numpy(),
    "to_pandas": lambda x: x.replay().to_pandas(),
    "to_arrow": lambda x: x.replay().to_arrow().read_all(),
    "dumps": lambda x: x.replay().dumps(x.out / "dump"),
    "state": lambda x: x.replay().load_state_dict(x.replay().state_dict()),
    "mixture": lambda x: rlds.Mixture([x.replay(), x.replay()], batch_size=8).sample(),
    "ensemble": lambda x: rlds.ReplayBufferEnsemble(x.replay(), x.replay(), batch_size=8).sample(),
    "StepCounter": lambda x: x.draw(slice_len=4, transform=rlds.StepCounter()),
    "SelectTransform": lambda x: x.draw(transform=rlds.SelectTransform("observation")),
    "dataset_info": lambda x: x.run("dataset_info"),
    "dataset_path": lambda x: x.run("dataset_path"),
    "list_datasets": lambda x: rlds.list_datasets(root=x.root),
    "cite": lambda x: x.run("cite"),
    "dataset_stats": lambda x: x.run("dataset_stats"),
    "dataset_card": lambda x: x.run("dataset_card", format="html"),
    "card": lambda x: x.run("dataset_card", format="hf"),
    "export_pages": lambda x: x.run("export_pages", x.out / "pages"),
    "peek": lambda x: x.run("peek", trajectory=1),
    "sample_batch": lambda x: x.run("sample_batch", sampler="slice", slice_len=4),
    "list_trajectories": lambda x: x.run("list_trajectories", sort="success"),
    "verify": lambda x: [each.error for each in x.run("verify", deep=True)] == [None] or 1 / 0,
    "audit_datasets": lambda x: x.run("audit_datasets"),
    "compare_datasets": lambda x: x.run("compare_datasets", "mine/steps-compact"),
    "find_overlap": lambda x: rlds.find_overlap("mine/*", root=x.root),
    "disk_usage": lambda x: x.run("disk_usage"),
    "plot": lambda x: x.run("plot", kind="lengths"),
    "plot ends": lambda x: x.run("plot", kind="ends"),
    "plot actions": lambda x: x.run("plot", kind="actions", out=x.out / "a.svg"),
    "cast": lambda x: x.preprocess(cast=["float64"]),
    "select": lambda x: x.preprocess(select=["observation"]),
    "normalise": lambda x: x.preprocess(normalise=["observation"], where="length > 15"),
    "preprocess_columns": lambda x: x.run(
        "preprocess_columns", rlds.Pipeline(rename=["goal=aim"]), f"{x.out.name}-{x.id[5:]}"
    ),
    "npz": lambda x: x.export("npz"),
    "parquet": lambda x: x.export("parquet"),
    "torchrl": lambda x: x.export("torchrl"),
}
NEEDS_REWARDS: dict[str, Case] = {
    "filter return": lambda x: x.replay().filter("return > -100"),
    "filter sum": lambda x: x.replay().filter("sum(next.reward) > -100"),
    "filter reward": lambda x: x.replay().filter(traj.reward.sum() > -100),
    "query": lambda x: x.replay().query(traj.total_reward > -100),
    "query rows": lambda x: x.replay().query((traj["next", "reward"] > -100).any()),
    "query function": lambda x: x.replay().query(lambda found: found.total_reward > -100),
    "iter_trajectories": lambda x: [each.reward for each in rlds.iter_trajectories(x.replay()[:])],
    "take return": lambda x: x.replay().take(2, by="return"),
    "table return": lambda x: x.replay().trajectories["return"],
    "reduce": lambda x: x.replay().trajectories.reduce("next.reward", "mean"),
    "columns reward": lambda x: x.draw(columns=["next.reward"]),
    "gamma": lambda x: x.replay().sequences(4, gamma=0.9),
    "qlearning_dataset": lambda x: x.replay().qlearning_dataset(),
    "RewardSum": lambda x: x.draw(slice_len=4, transform=rlds.RewardSum()),
    "RewardScaling": lambda x: x.draw(transform=rlds.RewardScaling(0, 2.0)),
    "MultiStep": lambda x: x.draw(slice_len=4, transform=rlds.MultiStep(0.9, 3)),
    "RelabelGoal": lambda x: x.draw(
        transform=rlds.RelabelGoal(GoalRule.sparse(1.0), achieved=("next", "place"), goal=[0.0])
    ),
    "HERSampler": lambda x: x.draw(sampler=rlds.HERSampler(GoalRule.sparse(1.0), **KEYS)),
    "plot returns": lambda x: x.run("plot"),
    "plot reward": lambda x: x.run("plot", "mine/steps-ted", kind="reward"),
    "list_trajectories return": lambda x: x.run("list_trajectories", sort="return"),
    "returns_to_go": lambda x: x.preprocess(returns_to_go=True),
    "n_step": lambda x: x.preprocess(n_step=3, gamma=0.9),
    "cast reward": lambda x: x.preprocess(cast=["next.reward=float32"]),
    "where return": lambda x: x.preprocess(cast=["float64"], where="return > -100"),
    "d4rl": lambda x: x.export("d4rl"),
}


@pytest.fixture(params=["ted", "compact"])
def demos(request: pytest.FixtureRequest, root: Path, tmp_path: Path) -> Opened:
    return Opened(f"mine/demos-{request.param}", root, tmp_path)


@pytest.mark.parametrize("name", WORKS)
def test_what_needs_no_rewards_works_without_them(demos: Opened, name: str) -> None:
    WORKS[name](demos)


@pytest.mark.parametrize("name", NEEDS_REWARDS)
def test_what_needs_rewards_refuses_to_work_without_them(demos: Opened, name: str) -> None:
    with pytest.raises(NoRewards, match=r"has no rewards \(no next\.reward\), and .+ needs them"):
        NEEDS_REWARDS[name](demos)
    assert not list((demos.root / "datasets" / "derived").glob(f"{demos.out.name}*"))


@pytest.mark.parametrize("name", {**WORKS, **NEEDS_REWARDS})
def test_the_same_works_with_rewards(root: Path, tmp_path: Path, name: str) -> None:
    {**WORKS, **NEEDS_REWARDS}[name](Opened("mine/steps-compact", root, tmp_path))


def test_every_sampler_is_among_these() -> None:
    kinds = {name: getattr(rlds, name) for name in rlds.__all__ if "Sampler" in name}
    samplers = {name for name, kind in kinds.items() if Sampler in kind.__mro__}
    of_others = {"Sampler", "PrioritySampler", "SamplerEnsemble", "HERSampler"}
    assert samplers - of_others == {*SAMPLERS}


def test_nothing_stands_in_the_place_of_rewards(demos: Opened) -> None:
    replay = demos.replay()
    manifest = json.loads((replay.data_path / "manifest.json").read_text())
    assert manifest["rewards"] == "none" and [*manifest["statistics"]] == ["length"]
    batch: TensorDict = replay[:]
    assert {*batch["next"].keys()} == {"observation", "place", "done", "terminated", "truncated"}
    assert batch["observation"].numpy().tobytes() == steps()["observation"].tobytes()
    assert [*replay.trajectories] == [
        *("number", "start", "length", "terminated", "truncated", "success")
    ]
    sequences = replay.sequences(4)
    assert "returns_to_go" not in sequences.sample(2)
    assert not sequences.storage.has(("returns_to_go",))
    assert demos.run("list_trajectories").columns.keys() == {*replay.trajectories}


def test_an_identity_is_that_of_all_layouts(tmp_path: Path) -> None:
    made = create_dataset("mine/x", steps(), lengths=LENGTHS, layout="ted", root=tmp_path)
    before = rlds.dataset_info("mine/x", root=tmp_path).manifest
    rlds.convert("mine/x", "compact", root=tmp_path)
    after = rlds.dataset_info("mine/x", root=tmp_path).manifest
    assert before and after and before.content == after.content
    assert not (before.has_rewards or after.has_rewards)
    again = create_dataset("mine/x", steps(), lengths=LENGTHS, layout="compact", root=tmp_path)
    assert again.num_transitions == made.num_transitions == COUNT


def test_rewards_under_another_name_are_not_taken_for_none(root: Path) -> None:
    with pytest.raises(UsageError, match="rewards"):
        create_dataset("mine/x", {**steps(), "rewards": np.ones(COUNT)}, lengths=LENGTHS, root=root)
    assert not (root / "datasets" / "mine" / "x").exists()
