"""Collectors: their batches, what a restart keeps apart, and refused arguments."""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import (
    InteractionType,
    ProbabilisticTensorDictModule,
    TensorDictModule,
    TensorDictSequential,
)
from tqdm import tqdm

from datasets_cli import (
    Collector,
    GoalRule,
    GymEnv,
    HERSampler,
    LazyTensorStorage,
    MultiSyncCollector,
    ReplayBuffer,
    SliceSampler,
    UsageError,
    split_trajectories,
)
from datasets_cli.environments import SerialEnv
from datasets_cli.errors import WrongRows, WrongState, install_extra
from datasets_cli.replay.trajectories import seams
from datasets_cli.replay.trajectories.bounds import TrajectoryKeys
from datasets_cli.torchrl import SyncDataCollector
from tests.support.hand_written import balances, check_equal, falls, lane, policy_of
from tests.support.refusals import refused


def make_env(max_episode_steps: int = 500) -> GymEnv:
    return GymEnv("CartPole-v1", max_episode_steps=max_episode_steps)


def collector_of(environment: Any = make_env, policy: Any = None, **arguments: Any) -> Collector:
    given = {"frames_per_batch": 40, "total_frames": 80, **arguments}
    return Collector(environment, policy, **given)


def test_the_pages_name_is_the_same_class() -> None:
    assert SyncDataCollector is Collector


def test_batches_have_separate_memory_and_end_at_total_frames() -> None:
    collector = collector_of()
    first, second = collector
    copy = first.clone()
    assert [first.shape, second.shape] == [(40,), (40,)]
    collector.set_seed(0)
    assert [*collector] == [] and bool((first == copy).all())
    with refused(UsageError, argument="total_frames", expected=80, found=80):
        collector.next()


@pytest.mark.parametrize("total", [80, 81, 30])
@pytest.mark.filterwarnings("ignore:total_frames=")
def test_the_length_is_the_number_of_batches(total: int) -> None:
    collector = collector_of(total_frames=total)
    assert len(collector) == len([*collector]) == -(-total // 40)


def test_a_collector_without_an_end_has_no_length() -> None:
    collector = collector_of(total_frames=-1)
    with refused(UsageError, argument="total_frames", found=-1):
        len(collector)
    assert collector and next(iter(tqdm(collector, disable=None))).shape == (40,)


def test_a_collector_fills_a_buffer_in_a_thread_while_weights_are_updated() -> None:
    policy = TensorDictModule(torch.nn.Linear(4, 2), ["observation"], ["action"])
    policy = TensorDictSequential(policy, TensorDictModule(one_hot, ["action"], ["action"]))
    buffer = ReplayBuffer(storage=LazyTensorStorage(4000))
    collector = collector_of(policy=policy, replay_buffer=buffer, total_frames=4000)
    assert collector.policy is policy and collector.policy_version is None
    collector.start()
    with pytest.raises(UsageError):
        collector.start()
    for _ in range(3):
        collector.update_policy_weights_()
    while len(buffer) < 80:
        time.sleep(0.01)
    collector.async_shutdown()
    num_rows = len(buffer)
    time.sleep(0.1)
    assert collector.is_closed and len(buffer) == num_rows and num_rows % 40 == 0


def one_hot(scores: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.one_hot(scores.argmax(-1), 2)


def test_the_error_that_ended_a_thread_is_raised_at_shutdown() -> None:
    def fails(_: Any) -> None:
        raise RuntimeError("no more")

    collector = collector_of(replay_buffer=ReplayBuffer(storage=LazyTensorStorage(80)))
    collector.set_postproc(fails)
    with refused(UsageError, argument="postproc", found=fails):
        collector.set_postproc(fails)
    collector.start()
    time.sleep(0.2)
    with pytest.raises(RuntimeError, match="no more"):
        collector.shutdown()
    with refused(UsageError, argument="replay_buffer"):
        collector_of().start()


def test_a_second_loop_continues_the_trajectories_of_the_first() -> None:
    collector = collector_of(policy=policy_of(balances), total_frames=-1)
    collector.set_seed(0)
    found = [next(iter(collector)) for _ in range(3)]
    check_equal(torch.cat(found), lane(0, 120, balances))


def test_an_environment_may_be_a_function_with_arguments() -> None:
    collector = collector_of(
        lambda name, most: GymEnv(name, max_episode_steps=most),
        create_env_kwargs={"name": "CartPole-v1", "most": 8},
    )
    assert int(collector.next()["next", "done"].sum()) == 5


def test_with_reset_at_each_iter_every_batch_has_new_trajectories() -> None:
    collector = collector_of(make_env(), policy_of(balances), reset_at_each_iter=True)
    first, second = collector
    assert first["collector", "traj_ids"].tolist() == [0] * 40
    assert second["collector", "traj_ids"].tolist() == [1] * 40
    assert not torch.equal(first["next", "observation"][-1], second["observation"][0])
    assert not first["next", "done"].any()


def test_with_set_truncated_the_last_rows_are_truncated() -> None:
    collector = collector_of(SerialEnv(2, make_env), policy_of(balances), set_truncated=True)
    batch = collector.next()
    for name in ("truncated", "done"):
        assert batch["next", name].nonzero()[:, :2].tolist() == [[0, 19], [1, 19]]
    following = collector.next()
    assert torch.equal(following["collector", "traj_ids"][:, 0], torch.arange(2))


def test_first_frames_are_random_and_have_the_policys_entries() -> None:
    def policy(tensordict: TensorDict) -> TensorDict:
        tensordict["value"] = torch.ones(1)
        return tensordict.set("action", torch.tensor([1, 0]))

    collector = collector_of(policy=policy, total_frames=120, init_random_frames=50)
    first, second, third = collector
    assert first.keys() == third.keys()
    assert int(first["action"][:, 1].sum()) > 0 and int(second["action"][:, 1].sum()) > 0
    assert not first["value"].any() and not third["action"][:, 1].any() and third["value"].all()


def test_trajectories_are_split_before_postproc() -> None:
    torch.manual_seed(0)
    plain = collector_of().next()
    torch.manual_seed(0)
    collector = collector_of(split_trajs=True, postproc=lambda batch: batch.select("observation"))
    split = collector.next()
    assert [*split.keys()] == ["observation"]
    environment = collector_of(split_trajs=True).next()
    assert environment["collector", "mask"].sum() == 40
    assert split_trajectories(plain, prefix="collector").shape[0] > 1


def test_a_replay_buffer_is_extended_instead() -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(100))
    assert [*collector_of(replay_buffer=buffer)] == [None, None]
    assert len(buffer) == 80 and buffer[:]["collector", "traj_ids"].shape == (80,)


def test_batches_go_to_a_device() -> None:
    assert collector_of(storing_device="cpu").next().device == torch.device("cpu")
    assert collector_of(device="meta", policy_device="cpu").next()["action"].is_meta
    assert collector_of(GymEnv("CartPole-v1", device="cpu")).next().device is not None


def actor() -> TensorDictSequential:
    network = TensorDictModule(torch.nn.Linear(4, 2), ["observation"], ["logits"])
    kind = torch.distributions.OneHotCategorical
    sampled = ProbabilisticTensorDictModule(["logits"], ["action"], distribution_class=kind)
    return TensorDictSequential(network, sampled)


def test_rows_have_the_entries_of_a_module() -> None:
    policy = actor()
    batch = collector_of(SerialEnv(2, make_env), policy).next()
    assert batch["logits"].shape == (2, 20, 2) and not batch["logits"].requires_grad
    assert torch.allclose(batch["logits"], policy[0].module(batch["observation"]), atol=1e-6)
    assert bool((batch["action"].sum(-1) == 1).all())


@pytest.mark.parametrize("kind", ["deterministic", InteractionType.DETERMINISTIC])
def test_exploration_type_chooses_how_distributions_are_sampled(kind: Any) -> None:
    batch = collector_of(policy=actor(), exploration_type=kind).next()
    assert torch.equal(batch["action"].argmax(-1), batch["logits"].argmax(-1))
    drawn = collector_of(policy=actor()).next()
    assert not torch.equal(drawn["action"].argmax(-1), drawn["logits"].argmax(-1))


def test_weights_come_from_the_policy_or_the_argument() -> None:
    policy, other = actor(), actor()
    collector = collector_of(policy=policy)
    for weights in (other, other.state_dict(), TensorDict.from_module(other)):
        with torch.no_grad():
            policy[0].module.weight.zero_()
        collector.update_policy_weights_(weights)
        assert torch.equal(policy[0].module.weight, other[0].module.weight)
    collector.update_policy_weights_()
    with refused(WrongState, argument="weights", found=["weight"]):
        collector.update_policy_weights_({"weight": torch.ones(2)})
    with refused(WrongState, argument="weights"):
        collector.update_policy_weights_({key: torch.ones(5) for key in other.state_dict()})
    with refused(UsageError, argument="weights", found=2):
        collector.update_policy_weights_(other, weights=other)
    with refused(UsageError, argument="policy", found="NoneType"):
        collector_of().update_policy_weights_(other)


def test_a_state_continues_counts_and_numbers() -> None:
    first = collector_of(SerialEnv(2, make_env), total_frames=120, policy=policy_of(falls))
    seen = torch.cat([first.next(), first.next()], -1)["collector", "traj_ids"]
    second = collector_of(SerialEnv(2, make_env), total_frames=120, policy=policy_of(falls))
    second.load_state_dict(first.state_dict())
    (last,) = second
    assert not set(last["collector", "traj_ids"].flatten().tolist()) & set(seen.flatten().tolist())
    assert second.state_dict()["frames"] == 120
    with refused(WrongState, argument="state_dict", expected=1, found=0):
        second.load_state_dict({"frames": 3})


def test_a_state_has_the_policys_weights() -> None:
    first, second = actor(), actor()
    state = collector_of(policy=first).state_dict()
    collector_of(policy=second).load_state_dict(state)
    assert torch.equal(first[0].module.weight, second[0].module.weight)


def test_steps_between_batches_do_not_mix_with_them() -> None:
    environment = make_env()
    collector = collector_of(environment, policy_of(falls))
    first = collector.next()
    environment.rollout(1000)
    second = collector.next()
    ids = second["collector", "traj_ids"]
    assert ids[0] > first["collector", "traj_ids"][-1]
    same = (second["next", "observation"][:-1] == second["observation"][1:]).all(-1)
    assert torch.equal(same, ids.diff() == 0)


def test_a_collector_cannot_be_used_after_shutdown() -> None:
    collector = collector_of()
    collector.shutdown()
    collector.shutdown()
    assert collector.env.is_closed
    for call in (collector.next, collector.reset, lambda: collector.set_seed(0)):
        with pytest.raises(UsageError):
            call()


# What a restart leaves apart: trajectories of two runs are never joined, whoever numbers them.


NUMBER = ("collector", "traj_ids")


def rows(run: int, *lanes: int, steps: int = 60, number: int | None = 0) -> TensorDict:
    """Return ``[*lanes, steps]`` of one run: a trajectory that does not end."""
    shape = (*lanes, steps)
    flag = torch.zeros(*shape, 1, dtype=torch.bool)
    goal = torch.full((*shape, 1), float(run))
    following = TensorDict({"done": flag, "reward": goal, "achieved": goal}, shape)
    entries = {"run": torch.full(shape, run), "desired": goal, "next": following}
    if number is not None:
        entries["collector"] = TensorDict({"traj_ids": torch.full(shape, number)}, shape)
    return TensorDict(entries, shape)


def new_buffer(lanes: tuple[int, ...], sampler: Any = None) -> ReplayBuffer:
    storage = LazyTensorStorage(120 * (lanes or (1,))[0], ndim=1 + len(lanes))
    return ReplayBuffer(
        storage=storage, sampler=sampler or SliceSampler(slice_len=8), batch_size=8000, seed=0
    )


def reloaded(first: ReplayBuffer, second: ReplayBuffer, way: str, folder: Path) -> ReplayBuffer:
    if way == "state":
        second.load_state_dict(first.state_dict())
    else:
        first.dumps(folder / "dump")
        second.loads(folder / "dump")
    return second


def mixed(buffer: ReplayBuffer) -> int:
    """Return how many of 1,000 slices of 8 have rows of two runs."""
    runs = buffer.sample()["run"].reshape(1000, 8)
    return int((runs != runs[:, :1]).any(1).sum())


@pytest.mark.parametrize(
    ("way", "number", "lanes"),
    [("state", 0, ()), ("state", None, (2,)), ("dump", 0, (2,)), ("dump", None, ())],
)
def test_no_slice_crosses_a_reload(
    way: str, number: int | None, lanes: tuple[int, ...], tmp_path: Path
) -> None:
    buffer = new_buffer(lanes)
    buffer.extend(rows(0, *lanes, number=number))
    for run in (1, 2):  # the second seam is written over the first rows of the ring
        buffer = reloaded(buffer, new_buffer(lanes), way, tmp_path / str(run))
        buffer.extend(rows(run, *lanes, steps=45, number=number))
        assert mixed(buffer) == 0
        assert len(set(buffer.sample()["run"].tolist())) == run + 1
    assert mixed(reloaded(buffer, new_buffer(lanes), way, tmp_path)) == 0  # it keeps its seams


def test_a_seam_is_gone_once_its_rows_are(tmp_path: Path) -> None:
    buffer = new_buffer(())
    buffer.extend(rows(0))
    buffer = reloaded(buffer, new_buffer(()), "state", tmp_path)
    buffer.extend(rows(1, steps=60))
    assert buffer.state_dict()["writer"]["seams"] == [59]
    buffer.extend(rows(2, number=1))
    assert "seams" not in buffer.state_dict()["writer"]


def test_a_larger_ring_that_is_loaded_keeps_its_seams(tmp_path: Path) -> None:
    buffer = new_buffer(())
    buffer.extend(rows(0))
    buffer = reloaded(buffer, new_buffer(()), "dump", tmp_path)
    buffer.extend(rows(1, steps=80))  # over the first 20 rows
    larger = ReplayBuffer(
        storage=LazyTensorStorage(500), sampler=SliceSampler(slice_len=8), batch_size=8000
    )
    reloaded(buffer, larger, "dump", tmp_path / "larger")
    larger.extend(rows(2, steps=50))
    assert larger.state_dict()["writer"]["seams"] == [39, 119] and mixed(larger) == 0


@pytest.mark.parametrize("way", ["state", "dump"])
def test_the_writer_may_say_that_trajectories_continue(way: str, tmp_path: Path) -> None:
    whole, half = new_buffer(()), new_buffer(())
    half.extend(rows(0, steps=60))
    half = reloaded(half, new_buffer(()), way, tmp_path)
    half.writer.continue_trajectories()
    for buffer in (whole, half):
        buffer.extend(rows(0, steps=120 - len(buffer)))
        buffer.generator.manual_seed(1)
    assert torch.equal(whole.sample(80)["run"], half.sample(80)["run"])
    assert [len(each.storage.trajectories(TrajectoryKeys()).starts) for each in (whole, half)] == [
        1, 1,
    ]  # fmt: skip


def test_an_end_flag_ends_a_trajectory_beside_numbers() -> None:
    data = rows(0, steps=6)
    data["next", "done"][2] = True
    buffer = ReplayBuffer(storage=LazyTensorStorage(10))
    buffer.extend(data)
    found = buffer.storage.trajectories(TrajectoryKeys(number=NUMBER))
    assert (found.starts.tolist(), found.lengths.tolist()) == ([0, 3], [3, 3])


def test_goals_are_of_the_same_run(tmp_path: Path) -> None:
    def goals() -> HERSampler:
        return HERSampler(
            GoalRule.sparse(0.5), strategy="episode", ratio=1.0,
            achieved_goal_key="achieved", desired_goal_key="desired",
        )  # fmt: skip

    buffer = new_buffer((), goals())
    buffer.extend(rows(0))
    buffer = reloaded(buffer, new_buffer((), goals()), "dump", tmp_path)
    buffer.extend(rows(1, steps=40))
    batch = buffer.sample()
    assert torch.equal(batch["desired"].squeeze(1), batch["run"].float())


def test_collectors_of_a_process_number_trajectories_differently() -> None:
    buffer = ReplayBuffer(
        storage=LazyTensorStorage(4000), sampler=SliceSampler(slice_len=8), batch_size=8000
    )
    runs = [Collector(make_env(), None, frames_per_batch=50, total_frames=500) for _ in range(2)]
    for batches in zip(*runs, strict=True):
        for run, batch in enumerate(batches):
            buffer.extend(batch.set("run", torch.full((50,), run)))
    assert mixed(buffer) == 0
    found = buffer[:]
    numbers = [set(found[NUMBER][found["run"] == run].tolist()) for run in range(2)]
    assert len(numbers[0]) > 5 and not numbers[0] & numbers[1]


def test_collectors_take_different_blocks_of_numbers() -> None:
    first, second = seams.Numbering(), seams.Numbering()
    begin = first.of(torch.tensor([0]))
    assert second.of(torch.tensor([5])) == begin + seams.BLOCK + 5
    assert torch.equal(
        first.of(torch.tensor([1023, 1024])), begin + torch.tensor([1023, 2 * seams.BLOCK])
    )
    assert first.stop == int(begin) + 2 * seams.BLOCK + 1


@pytest.mark.parametrize("kind", ["loaded", "given"])
def test_trajectory_numbers_continue_after_the_largest_in_a_buffer(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = new_buffer(())
    buffer.extend(rows(0, number=41))
    monkeypatch.setattr(seams, "_counter", seams._Counter())  # as in a new process
    if kind == "loaded":
        buffer = reloaded(buffer, new_buffer(()), "dump", tmp_path)
    numbers: list[torch.Tensor] = []

    def note(batch: TensorDict) -> TensorDict:
        numbers.append(batch[NUMBER])
        return rows(1)

    written = buffer if kind == "given" else None
    environment = SerialEnv(2, make_env)
    arguments: Any = {"frames_per_batch": 20, "total_frames": 20, "postproc": note}
    Collector(environment, None, replay_buffer=written, **arguments).next()
    assert numbers[0][:, 0].tolist() == [42, 43]


def test_a_state_of_a_collector_continues_in_a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seams, "_counter", seams._Counter())
    arguments: Any = {"frames_per_batch": 80, "total_frames": 400}
    first = MultiSyncCollector([make_env] * 2, None, **arguments)
    seen = first.next()[NUMBER]
    state = first.state_dict()
    first.shutdown()
    monkeypatch.setattr(seams, "_counter", seams._Counter())
    second = Collector(make_env(), None, **arguments)
    second.load_state_dict(state | {"sources": second.state_dict()["sources"]})
    assert second.next()[NUMBER][0] == seen.max() + 1


# Invalid arguments and policies of collectors.


def renames(tensordict: TensorDict) -> TensorDict:
    return tensordict.set("observation", torch.zeros(4)).set("action", torch.tensor([1, 0]))


def below_next(tensordict: TensorDict) -> TensorDict:
    return tensordict.set("action", torch.tensor([1, 0])).set(("next", "hidden"), torch.zeros(1))


@pytest.mark.parametrize(
    ("arguments", "argument", "found"),
    [
        ({"frames_per_batch": 0}, "frames_per_batch", 0),
        ({"total_frames": 0}, "total_frames", 0),
        ({"max_frames_per_traj": -2}, "max_frames_per_traj", -2),
        ({"init_random_frames": 1.5}, "init_random_frames", 1.5),
        ({"environment": "CartPole-v1"}, "create_env_fn", "str"),
        ({"environment": lambda: 3}, "create_env_fn", "int"),
        ({"environment": make_env(), "create_env_kwargs": {"a": 1}}, "create_env_kwargs", ["a"]),
        ({"policy": 3}, "policy", 3),
        ({"policy": lambda _: None}, "policy", "NoneType"),
        ({"postproc": 3}, "postproc", 3),
        ({"pre_collect_hook": 3}, "pre_collect_hook", 3),
        ({"replay_buffer": 3}, "replay_buffer", 3),
        ({"exploration_type": "bold"}, "exploration_type", "bold"),
        ({"return_same_td": True}, "return_same_td", True),
        ({"env_device": "cuda"}, "env_device", "cuda"),
        ({"extend_buffer": False}, "extend_buffer", False),
    ],
)
def test_invalid_arguments_are_refused_by_name(
    arguments: dict[str, Any], argument: str, found: Any
) -> None:
    with refused(UsageError, argument=argument, found=found):
        collector_of(**arguments)


@pytest.mark.parametrize(
    ("policy", "error", "key"),
    [
        (lambda tensordict: tensordict, WrongRows, ("action",)),
        (lambda _: torch.tensor([0.7, 0.3]), WrongRows, ("action",)),
        (lambda _: torch.tensor(1), WrongRows, ("action",)),
        (renames, UsageError, ("observation",)),
        (below_next, UsageError, ("next", "hidden")),
    ],
)
def test_a_policy_that_writes_a_wrong_entry_is_refused(policy: Any, error: Any, key: Any) -> None:
    with refused(error, key=key):
        collector_of(policy=policy)


@pytest.mark.parametrize(
    ("arguments", "argument", "found"),
    [
        ({"create_env_fn": make_env}, "create_env_fn", make_env),
        ({"create_env_fn": []}, "create_env_fn", []),
        ({"create_env_fn": [3, make_env]}, "create_env_fn", 3),
        ({"cat_results": "heap"}, "cat_results", "heap"),
        ({"create_env_kwargs": [{}]}, "create_env_kwargs", 1),
        ({"num_workers": 3}, "num_workers", 3),
    ],
)
def test_invalid_arguments_of_several_processes_are_refused(
    arguments: Any, argument: str, found: Any
) -> None:
    options = {"create_env_fn": [make_env] * 2, "frames_per_batch": 40, **arguments}
    with refused(UsageError, argument=argument, found=found):
        MultiSyncCollector(**options)


def test_a_policy_writes_the_same_entries_in_each_step() -> None:
    calls = []

    def policy(tensordict: TensorDict) -> TensorDict:
        calls.append(1)
        tensordict["extra" if len(calls) < 5 else "other"] = torch.zeros(1)
        return tensordict.set("action", torch.tensor([1, 0]))

    with pytest.raises(WrongRows) as raised:
        collector_of(policy=policy).next()
    forms = raised.value.expected, raised.value.found
    assert [sorted(each) for each in forms] == [["action", "extra"], ["action", "other"]]


@pytest.mark.parametrize("later", [[0, 0], [1, 1], [0, 5]])
def test_an_action_outside_the_categories_is_refused_in_each_step(later: list[int]) -> None:
    actions = iter([[1, 0]] * 5)

    def policy(tensordict: TensorDict) -> TensorDict:
        return tensordict.set("action", torch.tensor(next(actions, later)))

    with refused(WrongRows, key=("action",), row=4, found=later):
        collector_of(policy=policy).next()


def test_without_gymnasium_the_error_names_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = "datasets_cli.core.gymnasium_extra"
    monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with refused(UsageError, expected="gymnasium", advice=install_extra("collect")):
        importlib.import_module(module)
