"""The columns that OGBench's loader computes from the simulator's state: rewards and goals.

The rules are taken from ``relabel_utils.py`` of ogbench 1.2.2, which reads the targets from the
environment. Here the targets are in ``facts.tsv``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .catalogue import Variant, task_of

CUBES, CUBE = 14, 7
"""The first number of the first cube in ``qpos``, and the numbers of a cube."""
BALL = 15
"""The first number of antsoccer's ball in ``qpos``."""
CENTER = np.array([0.425, 0.0, 0.0])
CUBE_SCALE, SLIDE_SCALES = 10.0, (18.0, 15.0)

State = Mapping[str, np.ndarray]
"""The arrays ``qpos [n, Q]`` and ``button_states [n, B]`` of a file, as far as it has them."""


@dataclass(frozen=True)
class Task:
    """The targets of all objects of an environment; None or empty if it lacks such objects."""

    # tolerance: the largest distance to a target, in metres.
    # xy: the goal of the agent or of the ball, `[2]`; xy_start: its first number in qpos.
    # cubes: positions `[C, 3]`; buttons: states `[B]`; slides: positions of drawer and window.

    tolerance: float
    xy: np.ndarray | None
    xy_start: int
    cubes: np.ndarray
    buttons: np.ndarray
    slides: tuple[float, ...]

    @classmethod
    def of(cls, variant: Variant) -> Task:
        """Return the task of a variant, or some task of its environment."""
        row = task_of(variant)
        return cls(
            tolerance=float(row["tolerance"] or 0),
            xy=_numbers(row["xy"]) if row["xy"] else None,
            xy_start=BALL if variant.environment.startswith("antsoccer") else 0,
            cubes=_numbers(row["cubes"]).reshape(-1, 3),
            buttons=np.array([*map(int, row["buttons"])], dtype=np.int64),
            slides=tuple(float(row[name]) for name in ("drawer", "window") if row[name]),
        )

    @property
    def widths(self) -> dict[str, int]:
        """The arrays that the rules read, and how many numbers each row must contain at least."""
        if self.xy is not None:
            return {"qpos": self.xy_start + 2}
        qpos = {"qpos": self._slides + len(self.slides)} if len(self.cubes) else {}
        return qpos | ({"button_states": len(self.buttons)} if len(self.buttons) else {})

    def rewards(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """Return the rewards float32 ``[n]``, and whether all targets are reached, bool ``[n]``."""
        successes = self._successes(state)
        rewards = successes.sum(axis=-1) - successes.shape[-1]
        return rewards.astype(np.float32), np.asarray(successes.all(axis=-1))

    def oracle_reps(self, state: State) -> np.ndarray:
        """Return the goal that each state reaches, float32 ``[n, G]``."""
        if self.xy is not None:
            return state["qpos"][:, self.xy_start : self.xy_start + 2].astype(np.float32)
        parts = []
        if len(self.cubes):
            cubes = (self._positions(state) - CENTER) * CUBE_SCALE
            parts.append(cubes.reshape(len(cubes), -1))
        if len(self.buttons):
            parts.append(state["button_states"])
        for number, scale in zip(self._slide_numbers, SLIDE_SCALES, strict=False):
            parts.append(state["qpos"][:, [number]] * scale)
        return np.concatenate(parts, axis=-1).astype(np.float32)

    def _successes(self, state: State) -> np.ndarray:
        """Return which targets are reached, bool ``[n, K]``."""
        parts = []
        if self.xy is not None:
            xy = state["qpos"][:, self.xy_start : self.xy_start + 2]
            parts.append(np.linalg.norm(xy - self.xy, axis=-1, keepdims=True) <= self.tolerance)
        if len(self.cubes):
            distances = np.linalg.norm(self.cubes - self._positions(state), axis=-1)
            parts.append(distances <= self.tolerance)
        if len(self.buttons):
            parts.append(state["button_states"] == self.buttons)
        for number, target in zip(self._slide_numbers, self.slides, strict=True):
            # In the dtype of the file, as in OGBench: the target is not an array.
            parts.append(np.abs(state["qpos"][:, [number]] - target) <= self.tolerance)
        return np.concatenate(parts, axis=-1)

    @property
    def _slides(self) -> int:
        """The number of the drawer in ``qpos``: after cubes and buttons."""
        return CUBES + len(self.cubes) * CUBE + len(self.buttons)

    @property
    def _slide_numbers(self) -> range:
        return range(self._slides, self._slides + len(self.slides))

    def _positions(self, state: State) -> np.ndarray:
        """Return the positions of the cubes ``[n, C, 3]``."""
        cubes = state["qpos"][:, CUBES : CUBES + len(self.cubes) * CUBE]
        return cubes.reshape(len(cubes), -1, CUBE)[:, :, :3]


def _numbers(text: str) -> np.ndarray:
    return np.array([float(each) for each in text.split()])
