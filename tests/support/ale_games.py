"""Real Atari episodes for tests: what an environment really showed, was told and answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from ale_py import ALEInterface, LoggerMode, roms
from PIL import Image


@dataclass(frozen=True)
class Episode:
    """One episode of T steps, as the environment saw it.

    Args:
        frames: uint8 ``[T + 1, 84, 84]``, the screen before each action, and the last one.
        actions: int32 ``[T]``, numbers within the game's minimal action set.
        rewards: float32 ``[T]``, clipped to [-1, 1].
        terminated: whether the game was over; otherwise the episode was cut off.
    """

    frames: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminated: bool


def play(
    game: str, num_steps: int, seed: int = 0, max_episode_steps: int | None = None
) -> list[Episode]:
    """Play a game by a random policy: frame skip 4, sticky actions 0.25, as the DQN Replay runs."""
    ale = _start(game, seed)
    policy = np.random.default_rng(seed)
    episodes: list[Episode] = []
    left = num_steps
    while left:
        episodes.append(_episode(ale, policy, min(left, max_episode_steps or left)))
        left -= len(episodes[-1].actions)
    return episodes


def _start(game: str, seed: int) -> Any:
    ALEInterface.setLoggerMode(LoggerMode.Error)
    ale = ALEInterface()
    ale.setInt("random_seed", seed)
    ale.setInt("frame_skip", 4)
    ale.setFloat("repeat_action_probability", 0.25)
    ale.loadROM(roms.get_rom_path(game))
    return ale


def _episode(ale: Any, policy: np.random.Generator, max_steps: int) -> Episode:
    ale.reset_game()
    choices = ale.getMinimalActionSet()
    frames, actions, rewards = [_screen(ale)], [], []
    while len(actions) < max_steps and not ale.game_over(with_truncation=False):
        actions.append(int(policy.integers(len(choices))))
        rewards.append(ale.act(choices[actions[-1]]))
        frames.append(_screen(ale))
    return Episode(
        np.stack(frames),
        np.array(actions, np.int32),
        np.clip(np.array(rewards, np.float32), -1, 1),
        bool(ale.game_over(with_truncation=False)),
    )


def _screen(ale: Any) -> np.ndarray:
    """Return the screen shrunk by averaging areas, as dopamine does, uint8 ``[84, 84]``."""
    screen = Image.fromarray(ale.getScreenGrayscale())
    return np.asarray(screen.resize((84, 84), Image.Resampling.BOX))
