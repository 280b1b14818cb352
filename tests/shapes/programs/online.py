"""Off-policy programs: rows that a policy collects go into a buffer, and batches of it teach it."""

import functools
import tempfile
from typing import Any

import torch
from tensordict.nn import TensorDictSequential
from torchrl.collectors import Collector
from torchrl.data import (
    Composite,
    LazyMemmapStorage,
    LazyTensorStorage,
    SliceSampler,
    TensorDictReplayBuffer,
)
from torchrl.envs import EnvCreator, ExplorationType, ParallelEnv, SerialEnv, set_exploration_type
from torchrl.modules import (
    MLP,
    AdditiveGaussianModule,
    BatchRenorm1d,
    EGreedyModule,
    OrnsteinUhlenbeckProcessModule,
    ValueOperator,
)
from torchrl.objectives import (
    CQLLoss,
    CrossQLoss,
    DDPGLoss,
    DiscreteCQLLoss,
    DiscreteIQLLoss,
    DiscreteSACLoss,
    DQNLoss,
    HardUpdate,
    IQLLoss,
    REDQLoss,
    SACLoss,
    SoftUpdate,
    TD3Loss,
    TQCLoss,
)
from torchrl.trainers import ReplayBufferTrainer, Trainer, UpdateWeights

from tests.shapes.parts import (
    SEED,
    Learner,
    Losses,
    categorical_actor,
    exact_actor,
    gaussian_actor,
    make_env,
    q_actor,
    value,
)

PENDULUM, CARTPOLE = "Pendulum-v1", "CartPole-v1"


def one_env(name: str) -> tuple[Any, Composite]:
    env = make_env(name)
    env.set_seed(SEED)
    return env, Composite(action=env.action_spec)


def several_envs(name: str, count: int = 2, **words: Any) -> tuple[Any, Composite]:
    """Make two environments, or one of a batched kind, and the spec of their actions."""
    if count == 1:
        make = EnvCreator(lambda: make_env(name, **words))
        env: Any = ParallelEnv(1, make, serial_for_single=True)
    else:
        env = SerialEnv(count, lambda: make_env(name, **words))
    env.set_seed(SEED)
    return env, Composite(action=env.action_spec_unbatched)


def collected(env: Any, policy: Any, **words: Any) -> Collector:
    frames = {"frames_per_batch": 40, "init_random_frames": 40, "total_frames": 160}
    return Collector(env, policy, **({**frames, "device": "cpu"} | words))


def stored(storage: Any, **words: Any) -> TensorDictReplayBuffer:
    return TensorDictReplayBuffer(
        pin_memory=False, prefetch=None, storage=storage, batch_size=16, **words
    )


def learned(
    collector: Collector, buffer: Any, loss: Any, *updaters: Any, noise: Any = None, least: int = 0
) -> Losses:
    """Collect, write and learn in turns, once as many frames as ``least`` were collected."""
    loss.make_value_estimator(gamma=0.99)
    learner = Learner(loss, *updaters)
    frames = 0
    for data in collector:
        if noise is not None:
            noise.step(data.numel())
        collector.update_policy_weights_()
        frames += data.numel()
        buffer.extend(data.reshape(-1).cpu())
        if frames < least:
            continue
        for _ in range(2):
            learner.learn(buffer.sample().to("cpu").clone())
    collector.shutdown()
    return learner.losses


def sac() -> Losses:
    """One environment of a batched kind, a buffer in memory, an evaluation at the end."""
    env, spec = several_envs(PENDULUM, 1)
    actor = gaussian_actor(spec, 3)
    collector = collected(env, actor, compile_policy=False, cudagraph_policy=False)
    storage_cls = functools.partial(LazyTensorStorage, device="cpu", compilable=False)
    loss = SACLoss(
        actor_network=actor,
        qvalue_network=value(4, "action", "observation", out_key="state_action_value"),
        num_qvalue_nets=2,
        loss_function="l2",
        delay_actor=False,
        delay_qvalue=True,
        alpha_init=1.0,
    )
    buffer = stored(storage_cls(1000), compilable=False)
    losses = learned(collector, buffer, loss, SoftUpdate(loss, eps=0.995), least=40)
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        make_env(PENDULUM).rollout(5, actor, auto_cast_to_device=True, break_when_any_done=True)
    return losses


def td3() -> Losses:
    """Two environments, noise by a module, a storage in files."""
    env, spec = several_envs(PENDULUM)
    actor = exact_actor(spec, 3)
    noise = AdditiveGaussianModule(spec, sigma_init=1.0, sigma_end=1.0, mean=0.0, std=0.1)
    explore = TensorDictSequential(actor, noise)
    loss = TD3Loss(
        actor_network=actor,
        qvalue_network=value(4, "action", "observation", out_key="state_action_value"),
        num_qvalue_nets=2,
        loss_function="l2",
        delay_actor=True,
        delay_qvalue=True,
        action_spec=spec["action"],
        policy_noise=0.2,
        noise_clip=0.5,
    )
    with tempfile.TemporaryDirectory() as folder:
        collector = collected(env, explore, reset_at_each_iter=False, compile_policy=False)
        buffer = stored(LazyMemmapStorage(1000, scratch_dir=f"{folder}/rows", device="cpu"))
        buffer.append_transform(lambda rows: rows.to("cpu"))
        return learned(collector, buffer, loss, SoftUpdate(loss, eps=0.995), noise=noise)


def tqc() -> Losses:
    """Quantiles of values, the largest of which are dropped."""
    env, spec = several_envs(PENDULUM)
    actor = gaussian_actor(spec, 3)
    loss = TQCLoss(
        actor_network=actor,
        qvalue_network=value(4, "observation", "action", out=8, out_key="state_action_value"),
        num_qvalue_nets=3,
        top_quantiles_to_drop_per_net=2,
        action_spec=spec["action"],
    )
    collector = collected(env, actor, compile_policy=False)
    buffer = stored(LazyTensorStorage(1000, device="cpu"))
    return learned(collector, buffer, loss, SoftUpdate(loss, tau=0.005))


def ddpg() -> Losses:
    """Noise that depends on the step before, a storage in temporary files."""
    env, spec = several_envs(PENDULUM, 1)
    actor = exact_actor(spec, 3)
    noise = OrnsteinUhlenbeckProcessModule(
        spec=spec, annealing_num_steps=100, n_steps_annealing=100
    )
    explore = TensorDictSequential(actor, noise)
    loss = DDPGLoss(
        actor_network=actor,
        value_network=value(4, "observation", "action", out_key="state_action_value"),
        loss_function="l2",
        delay_actor=True,
        delay_value=True,
    )
    collector = collected(env, explore, reset_at_each_iter=True, compile_policy=False)
    buffer = stored(LazyMemmapStorage(100, scratch_dir=None))
    return learned(collector, buffer, loss, SoftUpdate(loss, eps=0.995), noise=noise)


def cql_online() -> Losses:
    """Conservative values, trajectories that the collector cuts."""
    env, spec = several_envs(PENDULUM, 1, max_steps=None)
    actor = gaussian_actor(spec, 3)
    critic = value(4, "observation", "action", out_key="state_action_value")
    loss = CQLLoss(actor, critic, action_spec=spec["action"], num_random=4)
    collector = collected(
        env, actor, max_frames_per_traj=15, compile_policy=False, cudagraph_policy=False
    )
    buffer = stored(LazyMemmapStorage(1000, device="cpu"))
    return learned(collector, buffer, loss, SoftUpdate(loss, tau=0.005))


def iql_online() -> Losses:
    """A device that is no text, as many random frames as a call has."""
    env, spec = several_envs(PENDULUM, 1, max_steps=None)
    actor = gaussian_actor(spec, 3)
    loss = IQLLoss(
        actor,
        value(4, "observation", "action", out_key="state_action_value"),
        value_network=value(3, "observation", out_key="state_value"),
        loss_function="l2",
        temperature=3.0,
        expectile=0.7,
    )
    collector = collected(env, actor, max_frames_per_traj=15, device=torch.device("cpu"))
    buffer = stored(LazyMemmapStorage(100, scratch_dir=None, device="cpu"))
    return learned(collector, buffer, loss, SoftUpdate(loss, tau=0.005))


class Critic(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        norm = {"momentum": 0.01, "num_features": 16, "warmup_steps": 10}
        self.network = MLP(4, 1, num_cells=[16], norm_class=BatchRenorm1d, norm_kwargs=norm)

    def forward(self, action: torch.Tensor, observation: torch.Tensor) -> torch.Tensor:
        return self.network(torch.cat([action, observation], -1))


def crossq() -> Losses:
    """Batch renormalization in place of target networks, a collector with a seed."""
    env, spec = several_envs(PENDULUM, 1)
    actor = gaussian_actor(spec, 3)
    collector = collected(
        env, actor, frames_per_batch=20, compile_policy=False, cudagraph_policy=False
    )
    collector.set_seed(SEED)
    loss = CrossQLoss(
        actor_network=actor,
        qvalue_network=ValueOperator(Critic(), in_keys=["action", "observation"]),
        num_qvalue_nets=2,
        loss_function="l2",
        alpha_init=1.0,
    )
    buffer = stored(LazyTensorStorage(1000, device="cpu"), shared=False)
    return learned(collector, buffer, loss, least=40)


def discrete_sac() -> Losses:
    """A policy over categories, a storage in temporary files."""
    env, spec = several_envs(CARTPOLE)
    actor = categorical_actor(spec, 4)
    loss = DiscreteSACLoss(
        actor_network=actor,
        qvalue_network=value(4, "observation", out=2, out_key="action_value"),
        action_space=spec["action"],
        num_actions=spec["action"].space.n,
        num_qvalue_nets=2,
        target_entropy_weight=0.2,
        loss_function="smooth_l1",
    )
    collector = collected(env, actor, reset_at_each_iter=True, compile_policy=False)
    buffer = stored(LazyMemmapStorage(1000, scratch_dir=None, device="cpu"))
    buffer.append_transform(lambda rows: rows.to("cpu"))
    return learned(collector, buffer, loss, SoftUpdate(loss, eps=0.995))


def discrete_iql() -> Losses:
    """One-hot actions, values for each of them."""
    env, spec = several_envs(CARTPOLE)
    actor = categorical_actor(spec, 4)
    loss = DiscreteIQLLoss(
        actor_network=actor,
        qvalue_network=value(4, "observation", out=2, out_key="state_action_value"),
        value_network=value(4, "observation", out_key="state_value"),
        loss_function="l2",
        action_space="one-hot",
        temperature=3.0,
        expectile=0.7,
    )
    buffer = stored(LazyTensorStorage(100, device="cpu"))
    return learned(collected(env, actor), buffer, loss, SoftUpdate(loss, tau=0.005))


def discrete_cql() -> Losses:
    """Epsilon-greedy exploration, trajectories drawn in slices."""
    env, spec = one_env(CARTPOLE)
    actor = q_actor(spec, 4)
    greedy = EGreedyModule(spec=spec, eps_init=0.9, eps_end=0.1, annealing_num_steps=200)
    collector = collected(env, TensorDictSequential(actor, greedy), max_frames_per_traj=-1)
    slices = SliceSampler(slice_len=4, traj_key=("collector", "traj_ids"), strict_length=False)
    buffer = stored(LazyMemmapStorage(1000, device="cpu"), sampler=slices)
    loss = DiscreteCQLLoss(actor, loss_function="l2", delay_value=True, action_space="one-hot")
    return learned(collector, buffer, loss, SoftUpdate(loss, tau=0.005), noise=greedy)


def dqn() -> Losses:
    """The collector's arguments by name, returns of whole trajectories, a copied target."""
    env, spec = one_env(CARTPOLE)
    actor = q_actor(spec, 4)
    greedy = EGreedyModule(annealing_num_steps=100, eps_init=1.0, eps_end=0.1, spec=actor.spec)
    collector = Collector(
        create_env_fn=env,
        policy=TensorDictSequential(actor, greedy),
        frames_per_batch=40,
        total_frames=160,
        device="cpu",
        storing_device="cpu",
        max_frames_per_traj=-1,
        init_random_frames=40,
        compile_policy=False,
    )
    buffer = stored(LazyTensorStorage(100, device="cpu"))
    loss = DQNLoss(value_network=actor, loss_function="l2", delay_value=True)
    loss.make_value_estimator(gamma=0.99)
    learner = Learner(loss, HardUpdate(loss, value_network_update_interval=3))
    calls = iter(collector)
    for _ in range(4):
        data = next(calls)
        returns = data["next", "episode_reward"][data["next", "done"]]
        assert len(returns) and bool(torch.isfinite(returns).all())
        buffer.extend(data.reshape(-1))
        greedy.step(data.numel())
        for _ in range(2):
            learner.learn(buffer.sample())
        collector.update_policy_weights_()
    collector.shutdown()
    return learner.losses


def redq() -> Losses:
    """TorchRL's own trainer joins the collector, the buffer and the loss."""
    env, spec = one_env(PENDULUM)
    actor = gaussian_actor(spec, 3)
    critic = value(4, "observation", "action", out_key="state_action_value")
    loss = REDQLoss(actor, critic, num_qvalue_nets=3, sub_sample_len=2, action_spec=spec["action"])
    loss.make_value_estimator(gamma=0.99)
    collector = collected(lambda: env, actor, split_trajs=False)
    losses: Losses = []
    trainer = Trainer(
        collector=collector,
        total_frames=160,
        frame_skip=1,
        optim_steps_per_batch=2,
        loss_module=loss,
        optimizer=torch.optim.Adam(loss.parameters(), 1e-3),
        clip_grad_norm=True,
        clip_norm=1.0,
        progress_bar=False,
        seed=SEED,
    )
    buffer = stored(LazyMemmapStorage(100, device="cpu"))
    rows = ReplayBufferTrainer(buffer, batch_size=16, flatten_tensordicts=True, memmap=False)
    trainer.register_op("batch_process", rows.extend)
    trainer.register_op("process_optim_batch", rows.sample)
    trainer.register_op("post_loss", rows.update_priority)
    trainer.register_op("post_optim", SoftUpdate(loss, tau=0.005).step)
    trainer.register_op(
        "process_loss", lambda _, loss: losses.append(float(loss["loss_qvalue"])) or loss
    )
    UpdateWeights(collector, 1).register(trainer)
    trainer.train()
    collector.shutdown()
    return losses
