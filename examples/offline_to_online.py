"""From offline to online: half of each batch is recorded, half is what the agent collects.

python examples/offline_to_online.py --frames 10000

It shows ``OfflineToOnline`` in a training loop: a collector steps the environment, a trainer stores
what it gives, and each update draws from the dataset and from those rows (RLPD, Ball et al., 2023).
The dataset is 5,000 random steps of CartPole, the agent a double DQN that explores with
probability 0.1. ``--fraction 0`` learns without the dataset.
"""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Annotated

import torch
import typer
from tensordict import TensorDict
from torch import nn

from datasets_cli import (
    DoubleToFloat,
    ExperienceReplay,
    LazyTensorStorage,
    OfflineToOnline,
    ReplayBufferTrainer,
    RldsError,
    TensorDictReplayBuffer,
    Trainer,
    record,
)

ENV = "CartPole-v1"
NEXT = [("next", key) for key in ("observation", "reward", "terminated")]
KEYS: list[str | tuple[str, ...]] = ["observation", "action", *NEXT]  # that both have


class DoubleDQN:
    """The network, the target that follows it, and their loss."""

    def __init__(self) -> None:
        hidden = [nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()]
        self.network = nn.Sequential(*hidden, nn.Linear(64, 2))
        self.target = copy.deepcopy(self.network)

    def __call__(self, batch: TensorDict) -> TensorDict:
        """Return the loss of a batch."""
        after = batch["next"]
        with torch.no_grad():
            best = self.network(after["observation"]).argmax(-1, keepdim=True)
            next_value = self.target(after["observation"]).gather(-1, best)
            goal = after["reward"] + 0.99 * next_value * ~after["terminated"]
        value = self.network(batch["observation"]).gather(-1, batch["action"].unsqueeze(-1))
        return TensorDict({"loss_value": nn.functional.smooth_l1_loss(value, goal)})

    def follow(self) -> None:
        """Move the target a little towards the network."""
        for old, new in zip(self.target.parameters(), self.network.parameters(), strict=True):
            old.data.lerp_(new.data, 0.005)

    def act(self, rows: TensorDict) -> torch.Tensor:
        """Return the best actions."""
        values: torch.Tensor = self.network(rows["observation"])
        return values.argmax(-1)

    def explore(self, rows: TensorDict) -> torch.Tensor:
        """Return the best actions, or a random one with probability 0.1."""
        best = self.act(rows)
        return torch.where(torch.rand(best.shape) < 0.1, torch.randint_like(best, 2), best)


def open_both(recorded_steps: int, frames: int, fraction: float, seed: int) -> OfflineToOnline:
    """Return recorded steps and room for collected ones, sampled as one."""
    dataset = record(ENV, f"cartpole-random-{recorded_steps}", num_steps=recorded_steps, num_envs=8)
    offline = ExperienceReplay(dataset.id, transform=DoubleToFloat())
    online = TensorDictReplayBuffer(storage=LazyTensorStorage(frames))
    return OfflineToOnline(offline, online, fraction=fraction, keys=KEYS, batch_size=128, seed=seed)


def main(
    frames: Annotated[int, typer.Option(min=100, help="Steps to collect.")] = 10_000,
    recorded_steps: Annotated[int, typer.Option(min=1, help="Steps to record.")] = 5_000,
    fraction: Annotated[float, typer.Option(min=0, max=1, help="Recorded part of a batch.")] = 0.5,
    seed: Annotated[int, typer.Option(help="Of the agent, the collector and batches.")] = 0,
    save: Annotated[
        Path, typer.Option(dir_okay=False, writable=True, help="File for the policy.")
    ] = Path("offline_to_online.pt"),
) -> list[float]:
    """Learn for a minute; return the greedy policy's mean return every 1,000 frames and last."""
    from datasets_cli import Collector, GymEnv  # of the extra [collect]

    torch.manual_seed(seed)
    agent = DoubleDQN()
    env, test_env = (GymEnv(ENV, categorical_action_encoding=True) for _ in range(2))
    trainer = Trainer(
        collector=Collector(env, agent.explore, frames_per_batch=100, total_frames=frames),
        total_frames=frames,
        optim_steps_per_batch=100,
        loss_module=agent,
        optimizer=torch.optim.Adam(agent.network.parameters(), 1e-3),
        progress_bar=sys.stderr.isatty(),
        seed=seed,
    )
    ReplayBufferTrainer(open_both(recorded_steps, frames, fraction, seed)).register(trainer)
    trainer.register_op("post_optim", agent.follow)

    returns = []

    def evaluate(batch: TensorDict) -> None:
        if trainer.collected_frames % 1000 == 0 or trainer.collected_frames == frames:
            test_env.set_seed(10_000)
            found = [test_env.rollout(500, agent.act)["next", "reward"].sum() for _ in range(10)]
            returns.append(float(sum(found)) / 10)
            print(f"{trainer.collected_frames} frames: mean return {returns[-1]:.1f}")

    trainer.register_op("post_steps_log", evaluate)
    trainer.train()
    torch.save(agent.network.state_dict(), save)
    print(f"the policy is in {save}")
    return returns


if __name__ == "__main__":
    torch.set_num_threads(1)  # more of them make so small a network slower
    try:
        typer.run(main)
    except RldsError as error:
        raise SystemExit(f"{error}") from None
