"""TQC: quantiles of values, the largest of which are dropped."""

from torchrl.collectors import Collector
from torchrl.data import Composite, LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import SerialEnv
from torchrl.objectives import SoftUpdate, TQCLoss

from tests.shapes.parts import SEED, Learner, Losses, gaussian_actor, make_env, value


def main() -> Losses:
    env = SerialEnv(2, lambda: make_env("Pendulum-v1"))
    env.set_seed(SEED)
    spec = Composite(action=env.action_spec_unbatched)
    actor = gaussian_actor(spec, 3)
    collector = Collector(
        env,
        actor,
        init_random_frames=40,
        frames_per_batch=40,
        total_frames=160,
        device="cpu",
        compile_policy=False,
    )
    buffer = TensorDictReplayBuffer(
        pin_memory=False,
        prefetch=None,
        storage=LazyTensorStorage(1000, device="cpu"),
        batch_size=16,
    )
    loss = TQCLoss(
        actor_network=actor,
        qvalue_network=value(4, "observation", "action", out=8, out_key="state_action_value"),
        num_qvalue_nets=3,
        top_quantiles_to_drop_per_net=2,
        action_spec=spec["action"],
    )
    loss.make_value_estimator(gamma=0.99)
    learner = Learner(loss, SoftUpdate(loss, tau=0.005))
    for data in collector:
        collector.update_policy_weights_()
        buffer.extend(data.reshape(-1))
        for _ in range(2):
            learner.learn(buffer.sample())
    collector.shutdown()
    return learner.losses
