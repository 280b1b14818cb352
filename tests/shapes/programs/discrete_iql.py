"""Discrete IQL: a policy over categories, one-hot actions, values for each of them."""

from torchrl.collectors import Collector
from torchrl.data import Composite, LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import SerialEnv
from torchrl.objectives import DiscreteIQLLoss, SoftUpdate

from tests.shapes.parts import SEED, Learner, Losses, categorical_actor, make_env, value


def main() -> Losses:
    env = SerialEnv(2, lambda: make_env("CartPole-v1"))
    env.set_seed(SEED)
    spec = Composite(action=env.action_spec_unbatched)
    actor = categorical_actor(spec, 4)
    collector = Collector(
        env,
        actor,
        frames_per_batch=40,
        init_random_frames=40,
        total_frames=160,
        device="cpu",
    )
    buffer = TensorDictReplayBuffer(
        pin_memory=False,
        prefetch=None,
        storage=LazyTensorStorage(100, device="cpu"),
        batch_size=16,
    )
    loss = DiscreteIQLLoss(
        actor_network=actor,
        qvalue_network=value(4, "observation", out=2, out_key="state_action_value"),
        value_network=value(4, "observation", out_key="state_value"),
        loss_function="l2",
        action_space="one-hot",
        temperature=3.0,
        expectile=0.7,
    )
    loss.make_value_estimator(gamma=0.99)
    learner = Learner(loss, SoftUpdate(loss, tau=0.005))
    for data in collector:
        buffer.extend(data.reshape(-1).cpu())
        collector.update_policy_weights_()
        for _ in range(2):
            learner.learn(buffer.sample())
    collector.shutdown()
    return learner.losses
