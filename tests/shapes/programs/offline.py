"""Programs that learn from a dataset alone."""

from typing import Any

from tensordict.nn import TensorDictModule
from torchrl.data import (
    Composite,
    RandomSampler,
    RoundRobinWriter,
    SamplerWithoutReplacement,
    TensorStorage,
)
from torchrl.data.datasets.d4rl import D4RLExperienceReplay
from torchrl.envs import (
    DoubleToFloat,
    ExcludeTransform,
    ObservationNorm,
    RandomCropTensorDict,
    RenameTransform,
    Reward2GoTransform,
    RewardScaling,
)
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import NormalParamExtractor, ProbabilisticActor, TanhDelta, TanhNormal
from torchrl.objectives import CQLLoss, DTLoss, IQLLoss, OnlineDTLoss, SoftUpdate, TD3BCLoss

from tests.shapes.parts import (
    DATASET,
    Attention,
    Learner,
    Losses,
    exact_actor,
    gaussian_actor,
    make_env,
    value,
)


def dataset(batch_size: int, drop_last: bool = False) -> D4RLExperienceReplay:
    data = D4RLExperienceReplay(
        dataset_id=DATASET,
        split_trajs=False,
        batch_size=batch_size,
        sampler=SamplerWithoutReplacement(drop_last=drop_last),
        prefetch=None,
        direct_download=True,
    )
    data.append_transform(DoubleToFloat())
    return data


def iql_offline() -> Losses:
    """Every row once an epoch, then an evaluation of the policy."""
    env = make_env("Door")
    actor = gaussian_actor(Composite(action=env.action_spec_unbatched), 39)
    loss = IQLLoss(
        actor,
        value(67, "observation", "action", out_key="state_action_value"),
        value_network=value(39, "observation", out_key="state_value"),
        loss_function="l2",
        temperature=3.0,
        expectile=0.7,
    )
    loss.make_value_estimator(gamma=0.99)
    learner = Learner(loss, SoftUpdate(loss, tau=0.005))
    for batch in dataset(256):
        learner.learn(batch)
        with set_exploration_type(ExplorationType.DETERMINISTIC):
            env.rollout(5, actor, auto_cast_to_device=True)
    return learner.losses


def cql_offline() -> Losses:
    """One batch after the other, whole batches only."""
    spec = Composite(action=make_env("Door").action_spec_unbatched)
    data = dataset(64, drop_last=True)
    loss = CQLLoss(
        gaussian_actor(spec, 39),
        value(67, "observation", "action", out_key="state_action_value"),
        action_spec=spec["action"],
        temperature=1.0,
        min_q_weight=1.0,
        max_q_backup=False,
        deterministic_backup=True,
        num_random=4,
        with_lagrange=True,
        lagrange_thresh=10.0,
    )
    loss.make_value_estimator(gamma=0.99)
    learner = Learner(loss, SoftUpdate(loss, tau=0.005))
    for _, batch in zip(range(5), data, strict=False):
        learner.learn(batch)
    for _ in range(3):
        learner.learn(data.sample())
    return learner.losses


def td3_bc() -> Losses:
    """Every second step updates the actor, a policy of one action a state."""
    spec = Composite(action=make_env("Door").action_spec_unbatched)
    data = dataset(64)
    loss = TD3BCLoss(
        actor_network=exact_actor(spec, 39),
        qvalue_network=value(67, "action", "observation", out_key="state_action_value"),
        num_qvalue_nets=2,
        loss_function="l2",
        delay_actor=True,
        delay_qvalue=True,
        action_spec=spec["action"],
        alpha=2.5,
    )
    loss.make_value_estimator(gamma=0.99)
    learner = Learner(loss, SoftUpdate(loss, tau=0.005))
    for _ in range(6):
        learner.learn(data.sample())
    return learner.losses


def cropped_trajectories(frames: int) -> D4RLExperienceReplay:
    """Open whole trajectories, put their returns to go into a storage of one's own, crop them."""
    rewards, returns = [("next", "reward"), "reward"], [("next", "return_to_go"), "return_to_go"]
    to_go = Reward2GoTransform(gamma=1.0, in_keys=rewards, out_keys=returns)
    data = D4RLExperienceReplay(
        dataset_id=DATASET,
        split_trajs=True,
        batch_size=8,
        sampler=RandomSampler(),
        transform=None,
        use_truncated_as_done=True,
        direct_download=True,
        prefetch=None,
        writer=RoundRobinWriter(),
    )
    rows = data[:]
    with rows.unlock_():
        data._storage = TensorStorage(to_go.inv(rows))
    observed = data[:]["observation"].flatten(0, -2).float()
    mean, deviation = observed.mean(0), observed.std(0) + 1e-3
    now = ["observation", "action", "return_to_go"]
    renamed = [f"{key}_cat" for key in now]
    later = [("next", key) for key in ("observation", "return_to_go")]
    for transform in (
        RandomCropTensorDict(sub_seq_len=frames, sample_dim=-1),
        RewardScaling(loc=0, scale=0.001, in_keys=returns, standard_normal=False),
        DoubleToFloat(),
        RenameTransform(
            in_keys=now + later, out_keys=renamed + [("next", f"{key}_cat") for _, key in later]
        ),
        ExcludeTransform("terminal", "info", ("next", "info"), "timeout"),
        ObservationNorm(
            loc=mean,
            scale=deviation,
            in_keys=["observation_cat", ("next", "observation_cat")],
            standard_normal=True,
        ),
    ):
        data.append_transform(transform)
    return data


def transformer(network: Any, *parameters: str, **distribution: Any) -> ProbabilisticActor:
    bounds = {"low": -1.0, "high": 1.0}
    inputs = ["observation_cat", "action_cat", "return_to_go_cat"]
    return ProbabilisticActor(
        spec=Composite(action=make_env("Door").action_spec_unbatched),
        module=TensorDictModule(network, inputs, [*parameters]),
        in_keys=[*parameters],
        out_keys=["action"],
        distribution_class=distribution.pop("kind"),
        distribution_kwargs=bounds | distribution,
    )


def learned(loss: Any) -> Losses:
    data = cropped_trajectories(frames=5)
    loss.set_keys(action_target="action_cat")
    learner = Learner(loss)
    for _ in range(4):
        learner.learn(data.sample())
    return learner.losses


def dt() -> Losses:
    """A decision transformer."""
    actor = transformer(Attention(39, 28, 28), "param", kind=TanhDelta)
    return learned(DTLoss(actor, loss_function="l2"))


def online_dt() -> Losses:
    """The offline part of the online one, whose actor is a distribution of actions."""
    network = Attention(39, 28, 2 * 28, NormalParamExtractor())
    actor = transformer(network, "loc", "scale", kind=TanhNormal, tanh_loc=False)
    return learned(OnlineDTLoss(actor, alpha_init=0.1, target_entropy="auto"))
