"""TD3: two environments, noise by a module, a storage in files, every other update of the actor."""

import tempfile

from tensordict.nn import TensorDictSequential
from torchrl.collectors import Collector
from torchrl.data import Composite, LazyMemmapStorage, TensorDictReplayBuffer
from torchrl.envs import EnvCreator, SerialEnv
from torchrl.modules import AdditiveGaussianModule
from torchrl.objectives import SoftUpdate, TD3Loss

from tests.shapes.parts import SEED, Learner, Losses, exact_actor, make_env, value


def main() -> Losses:
    env = SerialEnv(2, EnvCreator(lambda: make_env("Pendulum-v1")))
    env.set_seed(SEED)
    spec = Composite(action=env.action_spec_unbatched)
    actor = exact_actor(spec, 3)
    noise = AdditiveGaussianModule(spec, sigma_init=1.0, sigma_end=1.0, mean=0.0, std=0.1)
    explore = TensorDictSequential(actor, noise)
    critic = value(4, "action", "observation", out_key="state_action_value")
    with tempfile.TemporaryDirectory() as folder:
        collector = Collector(
            env,
            explore,
            init_random_frames=40,
            reset_at_each_iter=False,
            frames_per_batch=40,
            total_frames=160,
            device="cpu",
            compile_policy=False,
        )
        buffer = TensorDictReplayBuffer(
            pin_memory=False,
            prefetch=None,
            storage=LazyMemmapStorage(1000, scratch_dir=f"{folder}/rows", device="cpu"),
            batch_size=16,
        )
        buffer.append_transform(lambda rows: rows.to("cpu"))
        loss = TD3Loss(
            actor_network=actor,
            qvalue_network=critic,
            num_qvalue_nets=2,
            loss_function="l2",
            delay_actor=True,
            delay_qvalue=True,
            action_spec=spec["action"],
            policy_noise=0.2,
            noise_clip=0.5,
        )
        loss.make_value_estimator(gamma=0.99)
        learner = Learner(loss, SoftUpdate(loss, eps=0.995))
        for data in collector:
            noise.step(data.numel())
            collector.update_policy_weights_()
            buffer.extend(data.reshape(-1))
            for _ in range(2):
                learner.learn(buffer.sample())
        collector.shutdown()
    return learner.losses
