"""REDQ: TorchRL's own trainer joins the collector, the buffer and the loss."""

import torch
from torchrl.collectors import Collector
from torchrl.data import Composite, LazyMemmapStorage, TensorDictReplayBuffer
from torchrl.objectives import REDQLoss, SoftUpdate
from torchrl.trainers import ReplayBufferTrainer, Trainer, UpdateWeights

from tests.shapes.parts import SEED, Losses, gaussian_actor, make_env, value


def main() -> Losses:
    env = make_env("Pendulum-v1")
    env.set_seed(SEED)
    spec = Composite(action=env.action_spec)
    actor = gaussian_actor(spec, 3)
    loss = REDQLoss(
        actor,
        value(4, "observation", "action", out_key="state_action_value"),
        num_qvalue_nets=3,
        sub_sample_len=2,
        action_spec=spec["action"],
    )
    loss.make_value_estimator(gamma=0.99)
    collector = Collector(
        lambda: env,
        actor,
        frames_per_batch=40,
        init_random_frames=40,
        total_frames=160,
        split_trajs=False,
        device="cpu",
    )
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
    buffer = TensorDictReplayBuffer(
        batch_size=16,
        pin_memory=False,
        prefetch=None,
        storage=LazyMemmapStorage(100, device="cpu"),
    )
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
