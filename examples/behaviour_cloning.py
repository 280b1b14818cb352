"""Behaviour cloning of human demonstrations, a fifth of which is held out.

python examples/behaviour_cloning.py --dataset minari/D4RL/door/human-v2 --epochs 50

It shows views by trajectory (``split``), numbers to normalise with that are those of the training
part alone, types made equal by a transform, and epochs in which every row comes once. The error on
demonstrations that were never trained on is compared with that of the mean action, which is what a
policy that learns nothing from its observation can do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import nn
from tqdm import tqdm

from datasets_cli import Compose, DoubleToFloat, ExperienceReplay, ObservationNorm, RldsError


def open_parts(
    dataset: str, batch_size: int, seed: int
) -> tuple[ExperienceReplay, ExperienceReplay, ObservationNorm]:
    """Return the trajectories to train on and those held out, and what normalises both."""
    replay = ExperienceReplay(dataset, batch_size, replacement=False, seed=seed)
    if not replay[0]["action"].is_floating_point():
        raise RldsError(f"{dataset} has discrete actions, and a mean is taken of these here.")
    training, held_out = replay.split(0.8, seed=seed)
    print(f"{dataset}: {len(training)} rows to train on, {len(held_out)} held out")
    norm = ObservationNorm.from_dataset(training, ["observation"])
    for part in (training, held_out):
        part.append_transform(Compose(norm, DoubleToFloat()))
    return training, held_out, norm


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
    dataset: Annotated[str, typer.Option(help="Id of the dataset.")] = "minari/D4RL/door/human-v2",
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the rows.")] = 50,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows of a batch.")] = 256,
    learning_rate: Annotated[float, typer.Option(min=0, help="Of Adam.")] = 1e-3,
    seed: Annotated[int, typer.Option(help="Of the split, the network and batches.")] = 0,
    save: Annotated[
        Path, typer.Option(dir_okay=False, writable=True, help="File for the policy.")
    ] = Path("behaviour_cloning.pt"),
) -> tuple[float, float]:
    """Train for seconds, save the policy; return its held-out error and the mean action's."""
    torch.manual_seed(seed)
    training, held_out, norm = open_parts(dataset, batch_size, seed)
    test = held_out[:]
    mean_action = training[:]["action"].mean(0)
    of_mean = nn.functional.mse_loss(mean_action.expand_as(test["action"]), test["action"]).item()

    policy = make_policy(test["observation"].shape[-1], test["action"].shape[-1])
    optimizer = torch.optim.Adam(policy.parameters(), lr=learning_rate)
    error = float("nan")
    bar = tqdm(range(1, epochs + 1), "epochs", disable=None)  # None: no bar but in a terminal
    for epoch in bar:
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
        bar.write(f"epoch {epoch}: training {trained:.4f}, held out {error:.4f}")
    torch.save({"policy": policy.state_dict(), "loc": norm.loc, "scale": norm.scale}, save)
    print(f"the policy is in {save}")
    print(f"held out: {error:.4f}; the mean action: {of_mean:.4f}")
    return error, of_mean


if __name__ == "__main__":
    try:
        typer.run(main)
    except RldsError as error:
        raise SystemExit(f"{error}") from None
