"""Demonstrations without rewards: everything works on them, or refuses by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas
import pytest
import torch
from datasets import Dataset as Table
from pyarrow import parquet
from tensordict import TensorDict

import datasets_cli as rlds
from datasets_cli import ExperienceReplay, GoalRule, UsageError, create_dataset, traj
from datasets_cli.catalogue.names import Resolved
from datasets_cli.core.progress import silent
from datasets_cli.errors import NoRewards, SourceError, UnknownKey, WrongRows
from datasets_cli.install.convert import Conversion, convert
from datasets_cli.parallel.engine import Workers
from datasets_cli.recipe import Block, CatalogueEntry
from datasets_cli.replay.samplers.protocol import Sampler
from tests.support.paths import TEST_DATA
from tests.support.user_recipe import recipe_of

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
        fn = rlds.project.Pipeline(**fields)
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
    "dataset_card": lambda x: x.run("dataset_card", format="hf"),
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
    "plot": lambda x: x.run("plot"),
    "plot lengths": lambda x: x.run("plot", kind="lengths"),
    "plot ends": lambda x: x.run("plot", kind="ends"),
    "plot actions": lambda x: x.run("plot", kind="actions", out=x.out / "a.svg"),
    "cast": lambda x: x.preprocess(cast=["float64"]),
    "select": lambda x: x.preprocess(select=["observation"]),
    "normalise": lambda x: x.preprocess(normalise=["observation"], where="length > 15"),
    "preprocess_columns": lambda x: x.run(
        "preprocess_columns", rlds.project.Pipeline(rename=["goal=aim"]), f"{x.out.name}-{x.id[5:]}"
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
    "take return": lambda x: x.replay().take(2, by="-return"),
    "table return": lambda x: x.replay().trajectories["return"],
    "reduce": lambda x: x.replay().trajectories.reduce("next.reward", "mean"),
    "columns reward": lambda x: x.draw(columns=["next.reward"]),
    "gamma": lambda x: x.replay().sequences(4, gamma=0.9),
    "qlearning_dataset": lambda x: x.replay().qlearning_dataset(),
    "RewardSum": lambda x: x.draw(slice_len=4, transform=rlds.RewardSum()),
    "RewardScaling": lambda x: x.draw(transform=rlds.RewardScaling(0, 2.0)),
    "MultiStep": lambda x: x.draw(slice_len=4, transform=rlds.MultiStep(0.9, 3)),
    "RelabelGoal": lambda x: x.draw(
        transform=rlds.replay.RelabelGoal(
            GoalRule.sparse(1.0), achieved=("next", "place"), goal=[0.0]
        )
    ),
    "HERSampler": lambda x: x.draw(sampler=rlds.HERSampler(GoalRule.sparse(1.0), **KEYS)),
    "plot returns": lambda x: x.run("plot", kind="returns"),
    "plot reward": lambda x: x.run("plot", "mine/steps-ted", kind="reward"),
    "list_trajectories return": lambda x: x.run("list_trajectories", sort="return"),
    "returns_to_go": lambda x: x.preprocess(returns_to_go=True),
    "n_step": lambda x: x.preprocess(n_step=3, gamma=0.9),
    "cast reward": lambda x: x.preprocess(cast=["next.reward=float32"]),
    "where return": lambda x: x.preprocess(cast=["float64"], where="return > -100"),
    "d4rl": lambda x: x.export("d4rl"),
}


@pytest.fixture
def demos(request: pytest.FixtureRequest, root: Path, tmp_path: Path) -> Opened:
    return Opened(f"mine/demos-{getattr(request, 'param', 'ted')}", root, tmp_path)


both_layouts = pytest.mark.parametrize("demos", ["ted", "compact"], indirect=True)


@pytest.mark.parametrize("demos", ["compact"], indirect=True)
@pytest.mark.parametrize("name", WORKS)
def test_what_needs_no_rewards_works_without_them(demos: Opened, name: str) -> None:
    WORKS[name](demos)


@pytest.mark.parametrize("name", NEEDS_REWARDS)
def test_what_needs_rewards_refuses_to_work_without_them(demos: Opened, name: str) -> None:
    with pytest.raises(NoRewards) as caught:
        NEEDS_REWARDS[name](demos)
    assert caught.value.key == ("next", "reward")
    assert not list((demos.root / "datasets" / "derived").glob(f"{demos.out.name}*"))


@pytest.mark.parametrize("name", NEEDS_REWARDS)
def test_the_same_works_with_rewards(root: Path, tmp_path: Path, name: str) -> None:
    NEEDS_REWARDS[name](Opened("mine/steps-compact", root, tmp_path))


def test_every_sampler_is_among_these() -> None:
    kinds = {each: getattr(rlds.replay, each) for each in rlds.replay.__all__ if "Sampler" in each}
    samplers = {name for name, kind in kinds.items() if Sampler in kind.__mro__}
    of_others = {"Sampler", "PrioritySampler", "SamplerEnsemble", "HERSampler"}
    assert samplers - of_others == {*SAMPLERS}


@both_layouts
def test_nothing_stands_in_the_place_of_rewards(demos: Opened) -> None:
    replay = demos.replay()
    manifest = json.loads((replay.data_path / "manifest.json").read_text())
    assert manifest["rewards"] == "none" and [*manifest["statistics"]] == ["length"]
    batch: TensorDict = replay[:]
    assert {*batch["next"].keys()} == {"observation", "place", "done", "terminated", "truncated"}
    assert batch["observation"].numpy().tobytes() == steps()["observation"].tobytes()
    assert [*replay.trajectories] == [
        *("number", "start", "length", "num_transitions", "terminated", "truncated", "success")
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


def test_rewards_can_be_excluded_and_added(root: Path, tmp_path: Path) -> None:
    def with_rewards(batch: TensorDict) -> TensorDict:
        return batch.set(("next", "reward"), torch.ones(len(batch), 1))

    steps, demos = (Opened(f"mine/{name}-ted", root, tmp_path) for name in ("steps", "demos"))
    steps.run("preprocess", rlds.project.Pipeline(exclude=["next.reward"]), "without")
    demos.run("preprocess", with_rewards, "with")
    without, added = (
        ExperienceReplay(f"derived/{name}", root=root, download=False)
        for name in ("without", "with")
    )
    assert "reward" not in without[:]["next"] and not without.manifest.has_rewards
    with pytest.raises(NoRewards):
        without.trajectories["return"]
    assert added.trajectories["return"].tolist() == LENGTHS


def test_an_identity_of_data_with_rewards_is_what_it_was(tmp_path: Path) -> None:
    columns = {"observation": np.arange(4.0)[:, None], "action": np.arange(4), "reward": np.ones(4)}
    create_dataset("mine/x", columns, lengths=[4], root=tmp_path, layout="ted")
    manifest = rlds.dataset_info("mine/x", root=tmp_path).manifest
    assert manifest and manifest.content.startswith("342146c2fcfe08f4d8ec")
    assert "rewards" not in manifest.to_json()


def episode(length: int, **others: Any) -> dict[str, Any]:
    states = np.arange(length + 1.0)[:, None]
    return {"observation": {"state": states}, "action": {"move": np.ones((length, 2))}, **others}


def test_a_writer_takes_episodes_without_rewards_alone(tmp_path: Path) -> None:
    with rlds.DatasetWriter("mine/x", root=tmp_path) as writer:
        writer.add_episode(episode(3, terminated=True))
        with pytest.raises(UsageError):
            writer.add_episode(episode(3, reward=np.ones(3)))
        with pytest.raises(WrongRows):
            writer.add_episode(episode(0))
        writer.add_episode(episode(2, terminated=True))
    replay = ExperienceReplay("mine/x", root=tmp_path, download=False)
    assert replay.trajectories.num_transitions.tolist() == [3, 2]
    assert replay[:]["next", "observation", "state"].flatten().tolist() == [1, 2, 3, 1, 2]


@pytest.mark.parametrize("format", ["npz", "csv", "parquet", "hf", "torchrl", "d4rl"])
def test_files_without_a_column_of_rewards_are_imported(tmp_path: Path, format: str) -> None:
    columns = {"obs": np.arange(6.0), "action": np.arange(6), "episode": np.arange(6) // 3}
    path = SAVED[format](columns, tmp_path / "steps")
    call = partial(rlds.import_dataset, path, "mine/x", format=format, layout="ted", root=tmp_path)
    assert call(dry_run=True).num_transitions == call().num_transitions == 4
    replay = ExperienceReplay("mine/x", root=tmp_path, download=False)
    assert not replay.manifest.has_rewards and "reward" not in replay[:]["next"]
    assert replay[:]["observation"].flatten().tolist() == [0, 1, 3, 4]


def save_npz(columns: dict[str, np.ndarray], path: Path) -> Path:
    np.savez(path.with_suffix(".npz"), **columns)  # type: ignore[arg-type]
    return path.with_suffix(".npz")


def save_csv(columns: dict[str, np.ndarray], path: Path) -> Path:
    pandas.DataFrame(columns).to_csv(path.with_suffix(".csv"), index=False)
    return path.with_suffix(".csv")


def save_parquet(columns: dict[str, np.ndarray], path: Path) -> Path:
    pandas.DataFrame(columns).to_parquet(path.with_suffix(".parquet"))
    return path.with_suffix(".parquet")


def save_hf(columns: dict[str, np.ndarray], path: Path) -> Path:
    Table.from_dict(columns).save_to_disk(path)
    return path


def save_tensors(columns: dict[str, np.ndarray], path: Path) -> Path:
    TensorDict({name: torch.tensor(each) for name, each in columns.items()}, [6]).memmap(path)
    return path


def save_hdf5(columns: dict[str, np.ndarray], path: Path) -> Path:
    with h5py.File(path.with_suffix(".hdf5"), "w") as file:
        for name, values in columns.items():
            file[name] = values
    return path.with_suffix(".hdf5")


SAVED = {
    **{"npz": save_npz, "csv": save_csv, "parquet": save_parquet},
    **{"hf": save_hf, "torchrl": save_tensors, "d4rl": save_hdf5},
}


@pytest.mark.parametrize("kind", ["robomimic", "d3rlpy"])
def test_episodes_of_hdf5_need_no_rewards(tmp_path: Path, kind: str) -> None:
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        for number, length in enumerate((3, 2)):
            steps = {"actions": np.arange(length), "observations": np.arange(float(length))}
            for name, values in steps.items():
                place = f"data/demo_{number}/{name}" if kind == "robomimic" else f"{name}_{number}"
                file[place] = values
        if kind == "d3rlpy":
            file["columns"], file["num_episodes"] = ["actions", "observations"], 2
    rlds.import_dataset(tmp_path / "a.hdf5", "mine/x", root=tmp_path)
    replay = ExperienceReplay("mine/x", root=tmp_path, download=False)
    assert not replay.manifest.has_rewards
    assert replay.trajectories.num_transitions.tolist() == [2, 1]


def test_a_real_file_of_lerobot_has_no_rewards(tmp_path: Path) -> None:
    path = TEST_DATA / "lerobot" / "g1" / "episode_000030.parquet"
    table = parquet.read_table(path)
    rlds.import_dataset(path, "mine/g1", root=tmp_path)
    replay = ExperienceReplay("mine/g1", root=tmp_path, download=False)
    right = np.array(table["action"].to_pylist(), "f4")
    assert replay[:]["action"].numpy().tobytes() == right[:-1].tobytes()
    assert replay.trajectories.to_pandas().columns.tolist()[:3] == ["number", "start", "length"]
    with pytest.raises(NoRewards):
        replay.take(1, by="-return")


@pytest.mark.parametrize("name", ["reward_sparse", "rewards.dense", "rew"])
def test_a_column_that_may_be_of_rewards_is_asked_about(tmp_path: Path, name: str) -> None:
    columns = {"obs": np.arange(6.0), "action": np.arange(6), "episode": np.arange(6) // 3}
    path = save_npz({**columns, name: np.arange(6.0)}, tmp_path / "a")
    with pytest.raises(UnknownKey) as raised:
        rlds.plan_import(path, "mine/x", root=tmp_path)
    assert raised.value.key == "next.reward"
    assert rlds.plan_import(path, "mine/x", map={"next.reward": ""}).map["next.reward"] == ""
    assert rlds.plan_import(path, "mine/x", map={"reward": name}).map["next.reward"] == name


@both_layouts
def test_a_round_trip_of_files_keeps_that_there_are_no_rewards(demos: Opened) -> None:
    for format in ("npz", "parquet", "torchrl"):
        path = demos.out / format
        rlds.export_dataset(demos.id, format, path, allow_loss=True, root=demos.root)
        rlds.import_dataset(path, f"mine/{format}", map={"goal": "goal"}, root=demos.out)
        found = ExperienceReplay(f"mine/{format}", root=demos.out, download=False)[:]
        assert (found == demos.replay()[:]).all()


@pytest.mark.parametrize("has_rewards", [False, True])
def test_a_recipe_says_whether_its_blocks_may_lack_rewards(
    tmp_path: Path, has_rewards: bool
) -> None:
    columns = {("observation",): np.arange(3.0)[:, None], ("action",): np.zeros(3)}
    recipe = recipe_of("a", blocks=lambda source: iter([Block(columns)]), has_rewards=has_rewards)
    resolved = Resolved(recipe, "a", CatalogueEntry("a"))
    made = partial(convert, Conversion(resolved, (), tmp_path / "a"), silent, Workers())
    if has_rewards:
        with pytest.raises(SourceError) as caught:
            made()
        assert (caught.value.key, caught.value.expected) == (("next", "reward"), "numbers")
    else:
        manifest = made()
        assert not manifest.has_rewards and manifest.num_transitions == 2


def test_rewards_under_another_name_are_rejected(root: Path) -> None:
    with pytest.raises(WrongRows) as raised:
        create_dataset("mine/x", {**steps(), "rewards": np.ones(COUNT)}, lengths=LENGTHS, root=root)
    assert (raised.value.key, raised.value.found) == (("next", "reward"), "rewards")
    assert not (root / "datasets" / "mine" / "x").exists()
