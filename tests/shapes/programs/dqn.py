"""DQN: epsilon-greedy exploration, a buffer in memory, a copy of the network as the target."""

import torch
from tensordict.nn import TensorDictSequential
from torchrl.collectors import Collector
from torchrl.data import Composite, LazyTensorStorage, TensorDictReplayBuffer
from torchrl.modules import EGreedyModule
from torchrl.objectives import DQNLoss, HardUpdate

from tests.shapes.parts import SEED, Learner, Losses, make_env, q_actor


def main() -> Losses:
    env = make_env("CartPole-v1")
    env.set_seed(SEED)
    spec = Composite(action=env.action_spec)
    actor = q_actor(spec, 4)
    greedy = EGreedyModule(annealing_num_steps=100, eps_init=1.0, eps_end=0.1, spec=actor.spec)
    explore = TensorDictSequential(actor, greedy)
    collector = Collector(
        create_env_fn=env,
        policy=explore,
        frames_per_batch=40,
        total_frames=160,
        device="cpu",
        storing_device="cpu",
        max_frames_per_traj=-1,
        init_random_frames=40,
        compile_policy=False,
    )
    buffer = TensorDictReplayBuffer(
        pin_memory=False, prefetch=None, storage=LazyTensorStorage(100, device="cpu"), batch_size=16
    )
    loss = DQNLoss(value_network=actor, loss_function="l2", delay_value=True)
    loss.make_value_estimator(gamma=0.99)
    learner = Learner(loss, HardUpdate(loss, value_network_update_interval=3))
    places = iter(collector)
    for _ in range(4):
        data = next(places)
        returns = data["next", "episode_reward"][data["next", "done"]]
        assert len(returns) and bool(torch.isfinite(returns).all())
        buffer.extend(data.reshape(-1))
        greedy.step(data.numel())
        for _ in range(2):
            learner.learn(buffer.sample())
        collector.update_policy_weights_()
    collector.shutdown()
    return learner.losses
