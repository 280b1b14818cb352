"""TD3+BC (Fujimoto & Gu, 2021): offline reinforcement learning with one term of imitation.

python examples/td3_bc.py --dataset d4rl/hopper-medium-v2 --env Hopper-v5

It shows observations normalised by a transform, and D4RL's scores where the dataset has them.
The environment is made before the training: where a dataset does not state its own, give ``--env``
or ``--no-evaluate``. The policy is saved with what it normalises by.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from tensordict import TensorDict
from torch import nn
from tqdm import tqdm

from datasets_cli import Compose, DoubleToFloat, ExperienceReplay, ObservationNorm, RldsError


def layers(num_inputs: int, num_outputs: int, width: int) -> nn.Sequential:
    """Return a network with two hidden layers."""
    hidden = [nn.Linear(num_inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(width, num_outputs))


def values(critics: nn.ModuleList, state: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Return what both critics say of actions, ``[2, B, 1]``."""
    return torch.stack([critic(torch.cat([state, action], -1)) for critic in critics])


def train(
    actor: nn.Module, critics: nn.ModuleList, replay: ExperienceReplay, steps: int, alpha: float
) -> None:
    """Do the updates of the paper; ``alpha`` weighs the values against the imitation."""
    old_actor, old_critics = copy.deepcopy((actor, critics))
    of_actor, of_critics = (torch.optim.Adam(each.parameters(), 3e-4) for each in (actor, critics))
    updates = tqdm(range(1, steps + 1), "updates", disable=None)  # None: no bar but in a terminal
    for step in updates:
        batch = replay.sample()
        state, action, after = batch["observation"], batch["action"], batch["next"]
        with torch.no_grad():
            noise = (0.2 * torch.randn_like(action)).clamp(-0.5, 0.5)
            next_action = (old_actor(after["observation"]) + noise).clamp(-1, 1)
            next_value = values(old_critics, after["observation"], next_action).amin(0)
            # Nothing follows a step that terminated; one that was truncated has a future.
            goal = after["reward"] + 0.99 * next_value * ~after["terminated"]
        critics_loss = (values(critics, state, action) - goal).square().mean()
        of_critics.zero_grad()
        critics_loss.backward()
        of_critics.step()
        if step % 2 == 0:
            chosen = actor(state)
            value = values(critics, state, chosen)[0]
            imitation = (chosen - action).square().mean()
            actor_loss = imitation - alpha * value.mean() / value.abs().mean().detach()
            of_actor.zero_grad()
            actor_loss.backward()
            of_actor.step()
            for old, new in ((old_actor, actor), (old_critics, critics)):
                for slow, fast in zip(old.parameters(), new.parameters(), strict=True):
                    slow.data.lerp_(fast.data, 0.005)
        if step % 1000 == 0:
            updates.write(f"step {step}: loss of the critics {critics_loss.item():.3f}")


def score(replay: ExperienceReplay, value: float) -> str:
    """Return what a return is worth, in words."""
    try:
        return f"{100 * replay.get_normalized_score(value):.1f} of 100 (return {value:.1f})"
    except RldsError:
        return f"return {value:.1f}"


def environment_of(replay: ExperienceReplay, name: str | None) -> Any:
    """Return the named environment, or the one that the dataset states."""
    from datasets_cli import GymEnv  # of the extra [collect]

    try:
        return GymEnv(name or replay.recover_environment())
    except RldsError as error:
        raise RldsError(f"{error} Name one by --env, or train only: --no-evaluate.") from error


def main(
    dataset: Annotated[str, typer.Option(help="Id of the dataset.")] = "d4rl/hopper-medium-v2",
    env: Annotated[
        str | None, typer.Option(help="Environment to evaluate in; by default the dataset's.")
    ] = None,
    evaluate: Annotated[bool, typer.Option(help="Run ten episodes at the end.")] = True,
    steps: Annotated[int, typer.Option(min=1, help="Updates.")] = 1_000_000,
    width: Annotated[int, typer.Option(min=1, help="Units of a hidden layer.")] = 256,
    alpha: Annotated[float, typer.Option(min=0, help="Weight of the critic; 0 imitates.")] = 2.5,
    seed: Annotated[int, typer.Option(help="Of networks and batches.")] = 0,
    save: Annotated[
        Path, typer.Option(dir_okay=False, writable=True, help="File for the policy.")
    ] = Path("td3_bc.pt"),
) -> float | None:
    """Train for two hours, save the policy, and return its mean return if it is evaluated."""
    torch.manual_seed(seed)
    replay = ExperienceReplay(dataset, batch_size=256, seed=seed)
    if not replay[0]["action"].is_floating_point():
        raise RldsError(f"{dataset} has discrete actions, and TD3+BC needs continuous ones.")
    environment = environment_of(replay, env) if evaluate else None
    print(f"the recorded policy: {score(replay, replay.trajectories['return'].mean())}")
    norm = ObservationNorm.from_dataset(replay, ["observation", ("next", "observation")])
    bound = replay["action"].abs().max().item()
    to_units = ObservationNorm(0.0, 1 / bound, ["action"])  # from -1 to 1, as the actor's
    replay.append_transform(Compose(norm, to_units, DoubleToFloat()))
    num_states, num_actions = len(replay[0]["observation"]), len(replay[0]["action"])
    actor = nn.Sequential(layers(num_states, num_actions, width), nn.Tanh())
    critics = nn.ModuleList(layers(num_states + num_actions, 1, width) for _ in range(2))
    train(actor, critics, replay, steps, alpha)
    numbers = {"loc": norm.loc, "scale": norm.scale, "bound": bound}
    torch.save({"actor": actor.state_dict(), **numbers}, save)
    print(f"the policy is in {save}")
    if environment is None:
        return None

    def act(rows: TensorDict) -> torch.Tensor:
        state = (rows["observation"] - norm.loc) / norm.scale
        return torch.mul(actor(state.float()), bound)

    environment.set_seed(10_000)
    returns = [environment.rollout(1000, act)["next", "reward"].sum().item() for _ in range(10)]
    found = sum(returns) / len(returns)
    print(f"this policy: {score(replay, found)}")
    return float(found)


if __name__ == "__main__":
    try:
        typer.run(main)
    except RldsError as error:
        raise SystemExit(f"{error}") from None
