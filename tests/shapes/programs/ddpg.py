"""DDPG: noise that depends on the step before, a storage in temporary files."""

from tensordict.nn import TensorDictSequential
from torchrl.collectors import Collector
from torchrl.data import Composite, TensorDictReplayBuffer
from torchrl.data.replay_buffers.storages import LazyMemmapStorage
from torchrl.envs import EnvCreator, ParallelEnv
from torchrl.modules import OrnsteinUhlenbeckProcessModule
from torchrl.objectives import DDPGLoss, SoftUpdate

from tests.shapes.parts import SEED, Learner, Losses, exact_actor, make_env, value


def main() -> Losses:
    env = ParallelEnv(1, EnvCreator(lambda: make_env("Pendulum-v1")), serial_for_single=True)
    env.set_seed(SEED)
    spec = Composite(action=env.action_spec_unbatched)
    actor = exact_actor(spec, 3)
    noise = OrnsteinUhlenbeckProcessModule(
        spec=spec, annealing_num_steps=100, n_steps_annealing=100
    )
    explore = TensorDictSequential(actor, noise)
    collector = Collector(
        env,
        explore,
        frames_per_batch=40,
        init_random_frames=40,
        reset_at_each_iter=True,
        total_frames=160,
        device="cpu",
        compile_policy=False,
    )
    buffer = TensorDictReplayBuffer(
        pin_memory=False,
        prefetch=None,
        storage=LazyMemmapStorage(100, scratch_dir=None),
        batch_size=16,
    )
    loss = DDPGLoss(
        actor_network=actor,
        value_network=value(4, "observation", "action", out_key="state_action_value"),
        loss_function="l2",
        delay_actor=True,
        delay_value=True,
    )
    loss.make_value_estimator(gamma=0.99)
    learner = Learner(loss, SoftUpdate(loss, eps=0.995))
    for data in collector:
        noise.step(data.numel())
        collector.update_policy_weights_()
        buffer.extend(data.reshape(-1))
        for _ in range(2):
            learner.learn(buffer.sample().to("cpu"))
    collector.shutdown()
    return learner.losses
