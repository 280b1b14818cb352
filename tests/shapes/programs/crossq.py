"""CrossQ: batch renormalization in place of target networks."""

import torch
from torchrl.collectors import Collector
from torchrl.data import Composite, LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import EnvCreator, ParallelEnv
from torchrl.modules import MLP, BatchRenorm1d, ValueOperator
from torchrl.objectives import CrossQLoss

from tests.shapes.parts import SEED, Learner, Losses, gaussian_actor, make_env


class Critic(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        norm = {"momentum": 0.01, "num_features": 16, "warmup_steps": 10}
        self.network = MLP(4, 1, num_cells=[16], norm_class=BatchRenorm1d, norm_kwargs=norm)

    def forward(self, action: torch.Tensor, observation: torch.Tensor) -> torch.Tensor:
        return self.network(torch.cat([action, observation], -1))


def main() -> Losses:
    env = ParallelEnv(1, EnvCreator(lambda: make_env("Pendulum-v1")), serial_for_single=True)
    env.set_seed(SEED)
    spec = Composite(action=env.action_spec_unbatched)
    actor = gaussian_actor(spec, 3)
    collector = Collector(
        env,
        actor,
        init_random_frames=40,
        frames_per_batch=20,
        total_frames=160,
        device="cpu",
        compile_policy=False,
        cudagraph_policy=False,
    )
    collector.set_seed(SEED)
    buffer = TensorDictReplayBuffer(
        pin_memory=False,
        prefetch=None,
        storage=LazyTensorStorage(1000, device="cpu"),
        batch_size=16,
        shared=False,
    )
    loss = CrossQLoss(
        actor_network=actor,
        qvalue_network=ValueOperator(Critic(), in_keys=["action", "observation"]),
        num_qvalue_nets=2,
        loss_function="l2",
        alpha_init=1.0,
    )
    loss.make_value_estimator(gamma=0.99)
    learner = Learner(loss)
    frames = 0
    for data in collector:
        collector.update_policy_weights_()
        frames += data.numel()
        buffer.extend(data.reshape(-1).cpu())
        if frames >= 40:
            learner.learn(buffer.sample().to("cpu"))
    collector.shutdown()
    return learner.losses
