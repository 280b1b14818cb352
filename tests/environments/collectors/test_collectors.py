"""What collectors do with their arguments."""

from __future__ import annotations

import time
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
    GymEnv,
    LazyTensorStorage,
    ReplayBuffer,
    UsageError,
    split_trajectories,
)
from datasets_cli.environments import SerialEnv
from datasets_cli.errors import WrongState
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
