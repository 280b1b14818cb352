"""CQL online: conservative values of rows that the policy collects."""

from torchrl.collectors import Collector
from torchrl.data import Composite, LazyMemmapStorage, TensorDictReplayBuffer
from torchrl.envs import EnvCreator, ParallelEnv
from torchrl.objectives import CQLLoss, SoftUpdate

from tests.shapes.parts import SEED, Learner, Losses, gaussian_actor, make_env, value


def main() -> Losses:
    env = ParallelEnv(
        1, EnvCreator(lambda: make_env("Pendulum-v1", max_steps=None)), serial_for_single=True
    )
    env.set_seed(SEED)
    spec = Composite(action=env.action_spec_unbatched)
    actor = gaussian_actor(spec, 3)
    collector = Collector(
        env,
        actor,
        frames_per_batch=40,
        init_random_frames=40,
        max_frames_per_traj=15,
        total_frames=160,
        device="cpu",
        compile_policy=False,
        cudagraph_policy=False,
    )
    buffer = TensorDictReplayBuffer(
        pin_memory=False,
        prefetch=None,
        storage=LazyMemmapStorage(1000, device="cpu"),
        batch_size=16,
    )
    loss = CQLLoss(
        actor,
        value(4, "observation", "action", out_key="state_action_value"),
        action_spec=spec["action"],
        num_random=4,
    )
    loss.make_value_estimator(gamma=0.99)
    learner = Learner(loss, SoftUpdate(loss, tau=0.005))
    for data in collector:
        collector.update_policy_weights_()
        buffer.extend(data.reshape(-1).cpu())
        for _ in range(2):
            learner.learn(buffer.sample().to("cpu"))
    collector.shutdown()
    return learner.losses
