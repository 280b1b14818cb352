"""Discrete CQL: epsilon-greedy exploration, trajectories drawn in slices."""

from tensordict.nn import TensorDictSequential
from torchrl.collectors import Collector
from torchrl.data import Composite, LazyMemmapStorage, SliceSampler, TensorDictReplayBuffer
from torchrl.modules import EGreedyModule
from torchrl.objectives import DiscreteCQLLoss, SoftUpdate

from tests.shapes.parts import SEED, Learner, Losses, make_env, q_actor


def main() -> Losses:
    env = make_env("CartPole-v1")
    env.set_seed(SEED)
    spec = Composite(action=env.action_spec)
    actor = q_actor(spec, 4)
    greedy = EGreedyModule(spec=spec, eps_init=0.9, eps_end=0.1, annealing_num_steps=200)
    explore = TensorDictSequential(actor, greedy)
    collector = Collector(
        env,
        explore,
        frames_per_batch=40,
        init_random_frames=40,
        max_frames_per_traj=-1,
        total_frames=160,
        device="cpu",
    )
    buffer = TensorDictReplayBuffer(
        pin_memory=False,
        prefetch=None,
        storage=LazyMemmapStorage(1000, device="cpu"),
        sampler=SliceSampler(slice_len=4, traj_key=("collector", "traj_ids"), strict_length=False),
        batch_size=16,
    )
    loss = DiscreteCQLLoss(actor, loss_function="l2", delay_value=True, action_space="one-hot")
    loss.make_value_estimator(gamma=0.99)
    learner = Learner(loss, SoftUpdate(loss, tau=0.005))
    for data in collector:
        greedy.step(data.numel())
        buffer.extend(data.reshape(-1))
        for _ in range(2):
            learner.learn(buffer.sample())
        collector.update_policy_weights_()
    collector.shutdown()
    return learner.losses
