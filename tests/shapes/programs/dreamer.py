"""Dreamer: pixels of two environments, slices of their trajectories, learning in imagination."""

from typing import Any

import torch
from tensordict.nn import ProbabilisticTensorDictModule, ProbabilisticTensorDictSequential
from tensordict.nn import TensorDictModule as Module
from tensordict.nn import TensorDictSequential as Sequential
from torchrl.collectors import Collector
from torchrl.data import (
    Composite,
    LazyMemmapStorage,
    SliceSampler,
    TensorDictReplayBuffer,
    Unbounded,
)
from torchrl.envs import Compose, SerialEnv, TensorDictPrimer, ToTensorImage, Transform
from torchrl.envs.model_based.dreamer import DreamerEnv
from torchrl.modules import (
    MLP,
    DreamerActor,
    ObsDecoder,
    ObsEncoder,
    RSSMPosterior,
    RSSMPrior,
    RSSMRollout,
    TanhNormal,
    WorldModelWrapper,
)
from torchrl.objectives import DreamerActorLoss, DreamerModelLoss, DreamerValueLoss

from tests.shapes.parts import SEED, Learner, Losses, make_env

STATE, BELIEF, STEPS = 4, 8, 5


class Drawn(Transform):
    """Grey pixels, bright as the pendulum is high."""

    def __init__(self) -> None:
        super().__init__(in_keys=["observation"], out_keys=["pixels"])

    def _apply_transform(self, observation: torch.Tensor) -> torch.Tensor:
        bright = (observation[..., :1] + 1).mul(100).to(torch.uint8)
        return bright[..., None, None].expand(*bright.shape[:-1], 64, 64, 3).contiguous()

    def _reset(self, before: Any, rows: Any) -> Any:
        return self._call(rows)

    def transform_observation_spec(self, spec: Any) -> Any:
        shape = (*spec.shape, 64, 64, 3)
        spec["pixels"] = Unbounded(shape=shape, dtype=torch.uint8)
        return spec


def make_pixels() -> Any:
    first = {"state": Unbounded(shape=(STATE,)), "belief": Unbounded(shape=(BELIEF,))}
    primer = TensorDictPrimer(random=False, default_value=0, **first)
    return make_env("Pendulum-v1", Drawn(), primer)


def dreamer() -> Losses:
    env = SerialEnv(2, make_pixels)
    env.set_seed(SEED)
    single = make_pixels()
    spec = Composite(action=single.action_spec)
    encoder, decoder = ObsEncoder(channels=2), ObsDecoder(channels=2)
    prior = RSSMPrior(spec["action"], hidden_dim=8, rnn_hidden_dim=BELIEF, state_dim=STATE)
    posterior = RSSMPosterior(hidden_dim=8, state_dim=STATE)
    rewards = MLP(out_features=1, depth=1, num_cells=8)
    rollout = RSSMRollout(
        Module(
            prior,
            ["state", "belief", "action"],
            [("next", "prior_mean"), ("next", "prior_std"), "_", ("next", "belief")],
        ),
        Module(
            posterior,
            [("next", "belief"), ("next", "encoded_latents")],
            [("next", "posterior_mean"), ("next", "posterior_std"), ("next", "state")],
        ),
    )
    latent = [("next", "state"), ("next", "belief")]
    world = WorldModelWrapper(
        Sequential(
            Module(encoder, [("next", "pixels")], [("next", "encoded_latents")]),
            rollout,
            Module(decoder, latent, [("next", "reco_pixels")]),
        ),
        Module(rewards, latent, [("next", "reward")]),
    )
    act = Module(
        DreamerActor(out_features=1, depth=1, num_cells=8), ["state", "belief"], ["loc", "scale"]
    )
    draw = ProbabilisticTensorDictModule(
        in_keys=["loc", "scale"],
        out_keys=["action"],
        distribution_class=TanhNormal,
        distribution_kwargs={"low": spec["action"].space.low, "high": spec["action"].space.high},
        default_interaction_type="random",
    )
    imagined = ProbabilisticTensorDictSequential(act, draw)
    policy = Sequential(
        Module(lambda pixels: encoder(pixels_first(pixels)), ["pixels"], ["encoded_latents"]),
        Module(posterior, ["belief", "encoded_latents"], ["_", "_", "state"]),
        imagined,
        Module(prior, ["state", "belief", "action"], ["_", "_", "_", ("next", "belief")]),
    )
    policy(env.reset())  # lazy layers get their sizes
    dream = DreamerEnv(
        world_model=WorldModelWrapper(
            Module(prior, ["state", "belief", "action"], ["_", "_", "state", "belief"]),
            Module(rewards, ["state", "belief"], ["reward"]),
        ),
        prior_shape=torch.Size([STATE]),
        belief_shape=torch.Size([BELIEF]),
    )
    dream.set_specs_from_env(single)
    values = Module(MLP(out_features=1, depth=1, num_cells=8), ["state", "belief"], ["state_value"])
    values(dream.rollout(2, imagined))
    collector = Collector(
        env,
        policy,
        init_random_frames=40,
        frames_per_batch=40,
        total_frames=120,
        policy_device="cpu",
        env_device="cpu",
        storing_device="cpu",
    )
    buffer = TensorDictReplayBuffer(
        pin_memory=False,
        prefetch=None,
        storage=LazyMemmapStorage(1000, scratch_dir=None, device="cpu", ndim=2),
        sampler=SliceSampler(
            slice_len=STEPS,
            strict_length=False,
            traj_key=("collector", "traj_ids"),
            cache_values=False,
        ),
        transform=Compose(ToTensorImage(in_keys=["pixels", ("next", "pixels")])),
        batch_size=4 * STEPS,
    )
    return learn(collector, buffer, world, imagined, values, dream)


def pixels_first(pixels: torch.Tensor) -> torch.Tensor:
    return pixels.movedim(-1, -3) / 255


def learn(collector: Any, buffer: Any, world: Any, policy: Any, values: Any, dream: Any) -> Losses:
    model_loss = DreamerModelLoss(world)
    actor_loss = DreamerActorLoss(policy, values, dream, imagination_horizon=3)
    actor_loss.make_value_estimator(gamma=0.99, lmbda=0.95)
    learners = [
        Learner(loss, of=module)
        for loss, module in (
            (model_loss, world),
            (actor_loss, policy),
            (DreamerValueLoss(values), values),
        )
    ]
    for data in collector:
        buffer.extend(data)
        for _ in range(2):
            batch = buffer.sample().reshape(-1, STEPS)
            rows = learners[0].learn(batch)[1].reshape(-1)
            for learner in learners[1:]:
                rows = learner.learn(rows)[1]
        collector.update_policy_weights_()
    collector.shutdown()
    return [loss for learner in learners for loss in learner.losses]
