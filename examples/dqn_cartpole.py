"""DQN on a dataset of one's own: CartPole is recorded with a poor policy, and then learned from.

python examples/dqn_cartpole.py --seeds 3 --plot docs/dqn_cartpole.svg

It shows ``record`` and, to evaluate in the environment that was recorded, ``recover_environment``.
Of states that the data do not reach DQN believes the best; the term of CQL (Kumar et al., 2020), of
weight 1 by default, holds their values down.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Annotated

import torch
import typer
from tensordict import TensorDict
from torch import nn
from tqdm import tqdm

from datasets_cli import DoubleToFloat, ExperienceReplay, RldsError, list_datasets, record

Curve = list[tuple[int, float]]  # after how many updates there is which mean return


def lean(rows: TensorDict) -> torch.Tensor:
    """Push to the side that the pole leans to, or, as often, to either side."""
    side = (rows["observation"][:, 2] > 0).long()
    return torch.where(torch.rand(side.shape) < 0.5, side, torch.randint_like(side, 2))


def loss_of(
    batch: TensorDict, network: nn.Module, target: nn.Module, conservative: float
) -> torch.Tensor:
    """Return the loss of double DQN, and so much of CQL's term."""
    after = batch["next"]
    with torch.no_grad():
        best = network(after["observation"]).argmax(-1, keepdim=True)
        next_value = target(after["observation"]).gather(-1, best)
        # Nothing follows a step that terminated; one that was truncated has a future.
        goal = after["reward"] + 0.99 * next_value * ~after["terminated"]
    values = network(batch["observation"])
    value = values.gather(-1, batch["action"].unsqueeze(-1))
    gap = (values.logsumexp(-1, keepdim=True) - value).mean()
    loss: torch.Tensor = nn.functional.smooth_l1_loss(value, goal) + conservative * gap
    return loss


def learn(
    dataset: str, steps: int, conservative: float, episodes: int, seed: int
) -> tuple[nn.Module, Curve]:
    """Learn from a dataset, and evaluate the greedy policy ten times."""
    from datasets_cli import GymEnv  # of the extra [collect]

    torch.manual_seed(seed)
    replay = ExperienceReplay(dataset, batch_size=128, transform=DoubleToFloat(), seed=seed)
    env = GymEnv(replay.recover_environment(), categorical_action_encoding=True)
    hidden = [nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()]
    network = nn.Sequential(*hidden, nn.Linear(64, 2))
    target = copy.deepcopy(network)
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, steps)

    def act(rows: TensorDict) -> torch.Tensor:
        values: torch.Tensor = network(rows["observation"])
        return values.argmax(-1)

    curve: Curve = []
    updates = tqdm(range(1, steps + 1), f"seed {seed}", disable=None)  # no bar but in a terminal
    for step in updates:
        loss = loss_of(replay.sample(), network, target, conservative)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()
        for old, new in zip(target.parameters(), network.parameters(), strict=True):
            old.data.lerp_(new.data, 0.005)
        if step % max(1, steps // 10) == 0:
            env.set_seed(10_000)
            returns = [env.rollout(500, act)["next", "reward"].sum() for _ in range(episodes)]
            curve.append((step, float(sum(returns)) / episodes))
            updates.write(f"seed {seed}, step {step}: mean return {curve[-1][1]:.1f}")
    return network, curve


def draw(path: Path, curves: list[Curve], recorded: float) -> None:
    """Write an SVG: the curve of each seed, and a line at the return of what was recorded."""
    last = curves[0][-1][0]
    svg = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 360" style="background:#fff">']
    for level in (0, recorded, 195, 300, 400, 500):
        y = 320 - 0.6 * level  # 500 is at the top, y = 20, and 0 at the bottom, y = 320
        svg.append(f'<path d="M60 {y:.0f}H620" stroke="lightgrey"/>')
        svg.append(f'<text x="50" y="{y + 4:.0f}" text-anchor="end">{level:.0f}</text>')
    for curve in curves:
        points = " ".join(f"{60 + 560 * x / last:.0f},{320 - 0.6 * y:.0f}" for x, y in curve)
        svg.append(f'<polyline fill="none" stroke="steelblue" points="{points}"/>')
    svg.append(f'<text x="60" y="345">mean return after up to {last:,} updates</text></svg>')
    path.write_text("\n".join(svg) + "\n", encoding="utf-8")


def main(
    steps: Annotated[int, typer.Option(min=1, help="Updates of each seed.")] = 10_000,
    recorded_steps: Annotated[int, typer.Option(min=1, help="Steps to record.")] = 50_000,
    conservative: Annotated[float, typer.Option(min=0, help="Weight of CQL's term.")] = 1.0,
    episodes: Annotated[int, typer.Option(min=1, help="Of each of ten evaluations.")] = 20,
    seeds: Annotated[int, typer.Option(min=1, help="How many policies are trained.")] = 1,
    plot: Annotated[Path | None, typer.Option(help="SVG for the curves.")] = None,
    save: Annotated[
        Path, typer.Option(dir_okay=False, writable=True, help="File for the last seed's policy.")
    ] = Path("dqn_cartpole.pt"),
) -> list[Curve]:
    """Record steps, unless that was done; learn from them, a minute a seed; return the curves."""
    dataset = f"recorded/cartpole-lean-{recorded_steps}"
    if not list_datasets(dataset, installed=True):  # else an edit of this file would be refused
        record("CartPole-v1", dataset, policy=lean, num_steps=recorded_steps, num_envs=8)
    returns = ExperienceReplay(dataset).trajectories["return"]
    print(f"{dataset}: {len(returns)} episodes of mean return {returns.mean():.1f}")
    found = [learn(dataset, steps, conservative, episodes, seed) for seed in range(seeds)]
    curves = [curve for _, curve in found]
    torch.save(found[-1][0].state_dict(), save)
    print(f"the policy is in {save}")
    if plot is not None:
        draw(plot, curves, returns.mean())
    return curves


if __name__ == "__main__":
    torch.set_num_threads(1)  # more of them make so small a network slower
    try:
        typer.run(main)
    except RldsError as error:
        raise SystemExit(f"{error}") from None
