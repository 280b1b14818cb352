"""Behaviour cloning of human demonstrations, a fifth of which is held out.

python examples/behaviour_cloning.py --dataset minari/D4RL/door/human-v2 --epochs 50

It shows views by trajectory (``split``), numbers to normalise with that are those of the training
part alone, types made equal by a transform, and epochs in which every row comes once. The error on
demonstrations that were never trained on is compared with that of the mean action, which is what a
policy that learns nothing from its observation can do.
"""

from __future__ import annotations

import torch
import typer
from torch import nn

from datasets_cli import Compose, DoubleToFloat, ExperienceReplay, ObservationNorm, RldsError


def open_parts(
    dataset: str, batch_size: int, seed: int
) -> tuple[ExperienceReplay, ExperienceReplay]:
    """Return the trajectories to train on and those held out, normalised alike."""
    replay = ExperienceReplay(dataset, batch_size, replacement=False, seed=seed)
    if not replay[0]["action"].is_floating_point():
        raise RldsError(f"{dataset} has discrete actions, and a mean is taken of these here.")
    training, held_out = replay.split(0.8, seed=seed)
    print(f"{dataset}: {len(training)} rows to train on, {len(held_out)} held out")
    norm = ObservationNorm.from_dataset(training, ["observation"])
    for part in (training, held_out):
        part.append_transform(Compose(norm, DoubleToFloat()))
    return training, held_out


def make_policy(num_inputs: int, num_actions: int, width: int = 256) -> nn.Sequential:
    """Return a network from observations ``[B, num_inputs]`` to actions ``[B, num_actions]``."""
    return nn.Sequential(
        nn.Linear(num_inputs, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, num_actions),
    )


def main(
    dataset: str = "minari/D4RL/door/human-v2",
    epochs: int = 50,
    batch_size: int = 256,
    learning_rate: float = 1e-3,
    seed: int = 0,
) -> tuple[float, float]:
    """Train, for seconds, and return the held-out errors of the policy and of the mean action."""
    torch.manual_seed(seed)
    training, held_out = open_parts(dataset, batch_size, seed)
    test = held_out[:]
    mean_action = training[:]["action"].mean(0)
    of_mean = nn.functional.mse_loss(mean_action.expand_as(test["action"]), test["action"]).item()

    policy = make_policy(test["observation"].shape[-1], test["action"].shape[-1])
    optimizer = torch.optim.Adam(policy.parameters(), lr=learning_rate)
    error = float("nan")
    for epoch in range(1, epochs + 1):
        losses = []
        for batch in training:  # every row once
            loss = nn.functional.mse_loss(policy(batch["observation"]), batch["action"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        with torch.no_grad():
            error = nn.functional.mse_loss(policy(test["observation"]), test["action"]).item()
        trained = sum(losses) / len(losses)
        print(f"epoch {epoch}: training {trained:.4f}, held out {error:.4f}")
    print(f"held out: {error:.4f}; the mean action: {of_mean:.4f}")
    return error, of_mean


if __name__ == "__main__":
    try:
        typer.run(main)
    except RldsError as error:
        raise SystemExit(f"{error}") from None
