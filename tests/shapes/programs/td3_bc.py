"""TD3+BC on a dataset: every second step updates the actor, a policy of one action a state."""

from torchrl.data import Composite, SamplerWithoutReplacement
from torchrl.data.datasets import D4RLExperienceReplay
from torchrl.envs import DoubleToFloat
from torchrl.objectives import SoftUpdate, TD3BCLoss

from tests.shapes.parts import DATASET, Learner, Losses, exact_actor, make_env, value


def main() -> Losses:
    spec = Composite(action=make_env("Door").action_spec_unbatched)
    data = D4RLExperienceReplay(
        dataset_id=DATASET,
        split_trajs=False,
        batch_size=64,
        sampler=SamplerWithoutReplacement(drop_last=False),
        prefetch=None,
        direct_download=True,
    )
    data.append_transform(DoubleToFloat())
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
