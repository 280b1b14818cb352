"""Decision transformer: cropped trajectories with returns to go, kept in a storage of one's own."""

from tensordict.nn import TensorDictModule
from torchrl.data import Composite, RandomSampler, RoundRobinWriter, TensorStorage
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
from torchrl.modules import ProbabilisticActor, TanhDelta
from torchrl.objectives import DTLoss

from tests.shapes.parts import DATASET, Attention, Learner, Losses, make_env


def make_data(frames: int) -> D4RLExperienceReplay:
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


def main() -> Losses:
    env = make_env("Door")
    spec = Composite(action=env.action_spec_unbatched)
    network = Attention(39, 28, 28)
    actor = ProbabilisticActor(
        spec=spec,
        module=TensorDictModule(
            network, ["observation_cat", "action_cat", "return_to_go_cat"], ["param"]
        ),
        in_keys=["param"],
        out_keys=["action"],
        distribution_class=TanhDelta,
        distribution_kwargs={"low": -1.0, "high": 1.0},
    )
    data = make_data(frames=5)
    loss = DTLoss(actor, loss_function="l2")
    loss.set_keys(action_target="action_cat")
    learner = Learner(loss)
    for _ in range(4):
        learner.learn(data.sample())
    return learner.losses
