"""IQL on a dataset: every row once an epoch, then an evaluation of the policy."""

from torchrl.data import Composite
from torchrl.data.datasets.d4rl import D4RLExperienceReplay
from torchrl.data.replay_buffers import SamplerWithoutReplacement
from torchrl.envs import DoubleToFloat
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.objectives import IQLLoss, SoftUpdate

from tests.shapes.parts import DATASET, Learner, Losses, gaussian_actor, make_env, value


def main() -> Losses:
    env = make_env("Door")
    data = D4RLExperienceReplay(
        dataset_id=DATASET,
        split_trajs=False,
        batch_size=256,
        sampler=SamplerWithoutReplacement(drop_last=False),
        prefetch=None,
        direct_download=True,
    )
    data.append_transform(DoubleToFloat())
    spec = Composite(action=env.action_spec_unbatched)
    actor = gaussian_actor(spec, 39)
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
    for batch in data:
        learner.learn(batch)
        with set_exploration_type(ExplorationType.DETERMINISTIC):
            env.rollout(5, actor, auto_cast_to_device=True)
    return learner.losses
