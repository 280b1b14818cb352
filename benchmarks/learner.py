"""A learner of torch: TD3+BC, with two layers of 256, as people train it on a processor.

    python benchmarks/learner.py

As a command it trains on one batch until it is killed: a neighbour that has all cores.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import nn

SIZES = {"observation": 17, "action": 6}
GAMMA, ALPHA, EVERY, TAU = 0.99, 2.5, 2, 0.005


def layers(inputs: int, outputs: int) -> nn.Sequential:
    """Return a network with two hidden layers."""
    hidden = [nn.Linear(inputs, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(256, outputs))


class Learner:
    """Two critics and an actor, and slow copies of them."""

    def __init__(self) -> None:
        observation, action = SIZES.values()
        self._actor = layers(observation, action)
        self._critics = [layers(observation + action, 1) for _ in range(2)]
        networks = [self._actor, *self._critics]
        self._slow = [layers(observation, action), *(layers(23, 1) for _ in range(2))]
        for slow, network in zip(self._slow, networks, strict=True):
            slow.load_state_dict(network.state_dict())
        self._networks = networks
        critics = itertools.chain(*(critic.parameters() for critic in self._critics))
        self._critics_optimizer = torch.optim.Adam(critics, 3e-4)
        self._actor_optimizer = torch.optim.Adam(self._actor.parameters(), 3e-4)
        self._count = 0

    def step(self, batch: Any) -> None:
        """Learn from a batch with TED's keys."""
        observation, action, following = batch["observation"], batch["action"], batch["next"]
        with torch.no_grad():
            noise = (torch.randn_like(action) * 0.2).clamp(-0.5, 0.5)
            next_action = (self._slow[0](following["observation"]).tanh() + noise).clamp(-1, 1)
            pair = torch.cat((following["observation"], next_action), 1)
            value = torch.minimum(*(critic(pair) for critic in self._slow[1:]))
            goal = following["reward"] + GAMMA * value * ~following["terminated"]
        pair = torch.cat((observation, action), 1)
        loss = sum(nn.functional.mse_loss(critic(pair), goal) for critic in self._critics)
        _descend(self._critics_optimizer, loss)
        self._count += 1
        if self._count % EVERY:
            return
        chosen = self._actor(observation).tanh()
        value = self._critics[0](torch.cat((observation, chosen), 1))
        weight = ALPHA / value.abs().mean().detach()
        _descend(
            self._actor_optimizer, nn.functional.mse_loss(chosen, action) - weight * value.mean()
        )
        with torch.no_grad():
            for slow, network in zip(self._slow, self._networks, strict=True):
                for old, new in zip(slow.parameters(), network.parameters(), strict=True):
                    old.lerp_(new, TAU)


def _descend(optimizer: torch.optim.Optimizer, loss: Any) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def random_batch(size: int) -> dict[str, Any]:
    """Return a batch of random rows."""
    return {
        "observation": torch.randn(size, SIZES["observation"]),
        "action": torch.rand(size, SIZES["action"]),
        "next": {
            "observation": torch.randn(size, SIZES["observation"]),
            "reward": torch.randn(size, 1),
            "terminated": torch.zeros(size, 1, dtype=torch.bool),
        },
    }


def main() -> None:
    """Train until the process is killed."""
    learner, batch = Learner(), random_batch(256)
    print("learning", flush=True)
    while True:
        learner.step(batch)


if __name__ == "__main__":
    main()
