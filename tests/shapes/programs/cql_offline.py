"""CQL on a dataset: one batch after the other, whole batches only."""

from torchrl.data import Composite
from torchrl.data.datasets.d4rl import D4RLExperienceReplay
from torchrl.data.replay_buffers import SamplerWithoutReplacement
from torchrl.envs import DoubleToFloat
from torchrl.objectives import CQLLoss, SoftUpdate

from tests.shapes.parts import DATASET, Learner, Losses, gaussian_actor, make_env, value


def main() -> Losses:
    spec = Composite(action=make_env("Door").action_spec_unbatched)
    data = D4RLExperienceReplay(
        dataset_id=DATASET,
        split_trajs=False,
        batch_size=64,
        sampler=SamplerWithoutReplacement(drop_last=True),
        prefetch=None,
        direct_download=True,
    )
    data.append_transform(DoubleToFloat())
    actor = gaussian_actor(spec, 39)
    loss = CQLLoss(
        actor,
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
