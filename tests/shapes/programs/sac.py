"""SAC: one environment of a batched kind, random frames first, a buffer in memory."""

import functools

from torchrl.collectors import Collector
from torchrl.data import Composite, LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import EnvCreator, ExplorationType, ParallelEnv, set_exploration_type
from torchrl.objectives import SACLoss, SoftUpdate

from tests.shapes.parts import SEED, Learner, Losses, gaussian_actor, make_env, value


def main() -> Losses:
    env = ParallelEnv(1, EnvCreator(lambda: make_env("Pendulum-v1")), serial_for_single=True)
    env.set_seed(SEED)
    spec = Composite(action=env.action_spec_unbatched)
    actor = gaussian_actor(spec, 3)
    critic = value(4, "action", "observation", out_key="state_action_value")
    collector = Collector(
        env,
        actor,
        init_random_frames=40,
        frames_per_batch=40,
        total_frames=160,
        device="cpu",
        compile_policy=False,
        cudagraph_policy=False,
    )
    storage_cls = functools.partial(LazyTensorStorage, device="cpu", compilable=False)
    buffer = TensorDictReplayBuffer(
        pin_memory=False,
        prefetch=None,
        storage=storage_cls(1000),
        batch_size=16,
        compilable=False,
    )
    loss = SACLoss(
        actor_network=actor,
        qvalue_network=critic,
        num_qvalue_nets=2,
        loss_function="l2",
        delay_actor=False,
        delay_qvalue=True,
        alpha_init=1.0,
    )
    loss.make_value_estimator(gamma=0.99)
    learner = Learner(loss, SoftUpdate(loss, eps=0.995))
    frames = 0
    for data in collector:
        collector.update_policy_weights_()
        frames += data.numel()
        buffer.extend(data.reshape(-1))
        if frames < 40:
            continue
        for _ in range(2):
            learner.learn(buffer.sample().to("cpu").clone())
        with set_exploration_type(ExplorationType.DETERMINISTIC):
            make_env("Pendulum-v1").rollout(
                5, actor, auto_cast_to_device=True, break_when_any_done=True
            )
    collector.shutdown()
    return learner.losses
