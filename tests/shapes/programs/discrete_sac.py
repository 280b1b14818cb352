"""Discrete SAC: two environments, a policy over categories, a storage in temporary files."""

from torchrl.collectors import Collector
from torchrl.data import Composite, LazyMemmapStorage, TensorDictReplayBuffer
from torchrl.envs import SerialEnv
from torchrl.objectives import DiscreteSACLoss, SoftUpdate

from tests.shapes.parts import SEED, Learner, Losses, categorical_actor, make_env, value


def main() -> Losses:
    env = SerialEnv(2, lambda: make_env("CartPole-v1"))
    env.set_seed(SEED)
    spec = Composite(action=env.action_spec_unbatched)
    actor = categorical_actor(spec, 4)
    collector = Collector(
        env,
        actor,
        init_random_frames=40,
        frames_per_batch=40,
        total_frames=160,
        device="cpu",
        reset_at_each_iter=True,
        compile_policy=False,
    )
    buffer = TensorDictReplayBuffer(
        pin_memory=False,
        prefetch=None,
        storage=LazyMemmapStorage(1000, scratch_dir=None, device="cpu"),
        batch_size=16,
    )
    buffer.append_transform(lambda rows: rows.to("cpu"))
    loss = DiscreteSACLoss(
        actor_network=actor,
        qvalue_network=value(4, "observation", out=2, out_key="action_value"),
        action_space=spec["action"],
        num_actions=spec["action"].space.n,
        num_qvalue_nets=2,
        target_entropy_weight=0.2,
        loss_function="smooth_l1",
    )
    loss.make_value_estimator(gamma=0.99)
    learner = Learner(loss, SoftUpdate(loss, eps=0.995))
    for data in collector:
        collector.update_policy_weights_()
        buffer.extend(data.reshape(-1))
        for _ in range(2):
            learner.learn(buffer.sample())
    collector.shutdown()
    return learner.losses
