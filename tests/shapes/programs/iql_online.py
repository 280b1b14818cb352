"""IQL online: rows of two environments in files, as many random frames as a call has."""

import torch
from torchrl.collectors import Collector
from torchrl.data import Composite, LazyMemmapStorage, TensorDictReplayBuffer
from torchrl.envs import ParallelEnv
from torchrl.objectives import IQLLoss, SoftUpdate

from tests.shapes.parts import SEED, Learner, Losses, gaussian_actor, make_env, value


def main() -> Losses:
    env = ParallelEnv(1, lambda: make_env("Pendulum-v1", max_steps=None), serial_for_single=True)
    env.set_seed(SEED)
    spec = Composite(action=env.action_spec_unbatched)
    actor = gaussian_actor(spec, 3)
    collector = Collector(
        env,
        actor,
        frames_per_batch=40,
        init_random_frames=40,
        total_frames=160,
        max_frames_per_traj=15,
        device=torch.device("cpu"),
    )
    buffer = TensorDictReplayBuffer(
        pin_memory=False,
        prefetch=None,
        storage=LazyMemmapStorage(100, scratch_dir=None, device="cpu"),
        batch_size=16,
    )
    loss = IQLLoss(
        actor,
        value(4, "observation", "action", out_key="state_action_value"),
        value_network=value(3, "observation", out_key="state_value"),
        loss_function="l2",
        temperature=3.0,
        expectile=0.7,
    )
    loss.make_value_estimator(gamma=0.99)
    learner = Learner(loss, SoftUpdate(loss, tau=0.005))
    for data in collector:
        buffer.extend(data.view(-1).cpu())
        collector.update_policy_weights_()
        for _ in range(2):
            learner.learn(buffer.sample().to("cpu"))
    collector.shutdown()
    return learner.losses
