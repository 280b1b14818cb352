"""GAIL: PPO's epochs over what was collected, and an expert's dataset for the discriminator."""

from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import (
    Composite,
    LazyTensorStorage,
    SamplerWithoutReplacement,
    TensorDictReplayBuffer,
)
from torchrl.data.datasets.d4rl import D4RLExperienceReplay
from torchrl.envs import DoubleToFloat
from torchrl.objectives import ClipPPOLoss, GAILLoss
from torchrl.objectives.value import GAE

from tests.shapes.parts import (
    DATASET,
    SEED,
    Joined,
    Learner,
    Losses,
    gaussian_actor,
    make_env,
    value,
)


def gail() -> Losses:
    env = make_env("Door")
    env.set_seed(SEED)
    spec = Composite(action=env.action_spec)
    expert = D4RLExperienceReplay(
        dataset_id=DATASET,
        split_trajs=False,
        batch_size=32,
        sampler=SamplerWithoutReplacement(drop_last=False),
        prefetch=None,
        direct_download=True,
    )
    expert.append_transform(DoubleToFloat())
    actor, critic = gaussian_actor(spec, 39, return_log_prob=True), value(39, "observation")
    collector = Collector(
        create_env_fn=env,
        policy=actor,
        frames_per_batch=64,
        total_frames=128,
        device="cpu",
        max_frames_per_traj=-1,
        compile_policy=False,
        cudagraph_policy=False,
    )
    collector.set_seed(SEED)
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(64),
        sampler=SamplerWithoutReplacement(),
        batch_size=16,
    )
    advantage = GAE(gamma=0.99, lmbda=0.95, value_network=critic, average_gae=False)
    judge = TensorDictModule(Joined(67, 1, nn.Sigmoid()), ["observation", "action"], ["d_logits"])
    imitation = Learner(GAILLoss(judge, use_grad_penalty=True, gp_lambda=10))
    policy = Learner(ClipPPOLoss(actor, critic, clip_epsilon=0.2, normalize_advantage=True))
    for data in collector:
        for _ in range(2):
            batch = expert.sample().select("observation", "action")
            chosen = data.reshape(-1)[:32]
            for key in ("observation", "action"):
                batch[f"collector_{key}"] = chosen[key]
            imitation.learn(batch)
        data["next", "reward"] = judge(data.clone())["d_logits"].detach()
        for _ in range(2):
            advantage(data)
            buffer.extend(data.reshape(-1))
            for batch in buffer:
                policy.learn(batch)
        collector.update_policy_weights_()
    collector.shutdown()
    return imitation.losses + policy.losses
