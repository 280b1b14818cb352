"""The data path of a Decision Transformer (Chen et al., 2021), and a small one that learns from it.

python examples/decision_transformer.py --dataset d4rl/hopper-medium-v2 --steps 10000

``replay.sequences`` gives runs of 20 rows of one trajectory with ``returns_to_go``, ``timesteps``
and ``attention_mask``. A model reads them as return, state, action, return, state, action, ... and
tells each action from what is before it. Padding is on the right, so that causal attention sees
none, and the loss leaves it out by the mask.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer
from tensordict import TensorDict
from torch import nn
from tqdm import tqdm

from datasets_cli import (
    Compose,
    DoubleToFloat,
    ExperienceReplay,
    ObservationNorm,
    RewardScaling,
    RldsError,
    TensorDictReplayBuffer,
)


def open_sequences(
    replay: ExperienceReplay, length: int, batch_size: int, seed: int
) -> TensorDictReplayBuffer:
    """Return sequences with normalised observations, and returns to go of about 1 at most."""
    largest = max(abs(replay.trajectories["return"]).max(), 1.0)
    norm = ObservationNorm.from_dataset(replay, ["observation"])
    scale = RewardScaling(0.0, 1 / largest, ["returns_to_go"])
    return replay.sequences(
        length,
        batch_size,
        padding="right",
        transform=Compose(norm, scale, DoubleToFloat()),
        seed=seed,
    )


class DecisionTransformer(nn.Module):
    """Tells the action of each row from its return to go, its state, and the rows before it.

    Args:
        num_states: numbers of an observation.
        num_actions: numbers of an action.
        num_timesteps: rows of the longest trajectory.
        width: numbers of a token.
    """

    def __init__(self, num_states: int, num_actions: int, num_timesteps: int, width: int) -> None:
        super().__init__()
        self.of_return, self.of_state = nn.Linear(1, width), nn.Linear(num_states, width)
        self.of_action, self.to_action = (
            nn.Linear(num_actions, width),
            nn.Linear(width, num_actions),
        )
        self.of_time = nn.Embedding(num_timesteps, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, 3)

    def forward(self, batch: TensorDict) -> torch.Tensor:
        """Return actions ``[B, T, num_actions]`` for sequences ``[B, T]``."""
        returns, states = (
            self.of_return(batch["returns_to_go"]),
            self.of_state(batch["observation"]),
        )
        tokens = torch.stack([returns, states, self.of_action(batch["action"])], dim=2)
        tokens = tokens + self.of_time(batch["timesteps"]).unsqueeze(2)
        tokens = tokens.flatten(1, 2)  # [B, 3 T, width]: R0 s0 a0 R1 s1 a1 ...
        causal = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        found = self.blocks(tokens, mask=causal, is_causal=True)
        actions: torch.Tensor = self.to_action(found[:, 1::3])  # after each state
        return actions


def main(
    dataset: Annotated[str, typer.Option(help="Id of the dataset.")] = "d4rl/hopper-medium-v2",
    steps: Annotated[int, typer.Option(min=1, help="Updates.")] = 10_000,
    batch_size: Annotated[int, typer.Option(min=1, help="Sequences of a batch.")] = 64,
    length: Annotated[int, typer.Option(min=1, help="Rows of a sequence.")] = 20,
    width: Annotated[int, typer.Option(min=4, help="Numbers of a token, four a head.")] = 128,
    learning_rate: Annotated[float, typer.Option(min=0, help="Of AdamW.")] = 1e-3,
    seed: Annotated[int, typer.Option(help="Of the network and batches.")] = 0,
    save: Annotated[
        Path, typer.Option(dir_okay=False, writable=True, help="File for the weights.")
    ] = Path("decision_transformer.pt"),
) -> list[float]:
    """Train on sequences for 45 minutes, save the weights, and return the loss of each step."""
    torch.manual_seed(seed)
    replay = ExperienceReplay(dataset)
    if not replay[0]["action"].is_floating_point():
        raise RldsError(f"{dataset} has discrete actions; this model is of continuous ones.")
    sequences = open_sequences(replay, length, batch_size, seed)
    longest = int(replay.trajectories["length"].max())
    row = replay[0]
    model = DecisionTransformer(len(row["observation"]), len(row["action"]), longest, width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=1e-4)
    losses = []
    updates = tqdm(range(1, steps + 1), "updates", disable=None)  # None: no bar but in a terminal
    for step in updates:
        batch = sequences.sample()
        error = (model(batch) - batch["action"])[batch["attention_mask"]]
        loss = error.square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        losses.append(loss.item())
        if step % 100 == 0:
            updates.write(f"step {step}: loss {sum(losses[-100:]) / 100:.4f}")
    torch.save(model.state_dict(), save)
    print(f"the weights are in {save}")
    return losses


if __name__ == "__main__":
    try:
        typer.run(main)
    except RldsError as error:
        raise SystemExit(f"{error}") from None
