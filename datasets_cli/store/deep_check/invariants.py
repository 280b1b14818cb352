"""Rules for every row of a dataset that is not derived, checked block by block.

    next.done is next.terminated or next.truncated, and true only in the last row of a trajectory
    done, terminated and truncated at the root are false: an ended trajectory has no further step
    episode is the number of the trajectory
    next.observation is the observation of the following row, and zeros after a terminated step, if
    the successor rule computed it (see ``schema.transitions``)

The function of a derived dataset may return any values.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from datasets_cli.schema.bits import bytes_of
from datasets_cli.schema.columns import (
    DONE,
    EPISODE,
    TERMINATED,
    TRUNCATED,
    Key,
    show_key,
    successor_of,
)
from datasets_cli.schema.steps import ROOT_FLAGS
from datasets_cli.schema.trajectories import ends_of, numbers_of
from datasets_cli.schema.transitions import SHIFTED
from datasets_cli.store.manifest import Manifest

Leaves = dict[Key, torch.Tensor]
"""Columns of consecutive rows, each ``[n, *shape]``."""

FLAGS = (DONE, TERMINATED, TRUNCATED)
SCHEMA = "schema"


class Invariants:
    """Checks the rules of one dataset, and collects the violations."""

    # offsets: of the trajectories, int64 `[K + 1]`.

    def __init__(self, manifest: Manifest, offsets: np.ndarray) -> None:
        self._offsets = offsets
        self._is_shifted = manifest.successors.get("rule") == SHIFTED
        self._binds = manifest.parent is None
        keys = {column.key for column in manifest.columns}
        self._shared = sorted(
            key for key in keys if key[0] == "observation" and successor_of(key) in keys
        )
        self.problems: dict[str, str] = {}
        """The first violation of each rule."""
        if self._binds:
            self._check_columns(manifest)

    def check(self, start: int, leaves: Leaves) -> None:
        """Check consecutive rows."""
        if not self._binds or SCHEMA in self.problems:
            return
        num_rows = int(self._offsets[-1])
        num_given = len(next(iter(leaves.values())))
        num_checked = num_given if start + num_given == num_rows else num_given - 1
        rows = {key: leaf[:num_checked] for key, leaf in leaves.items()}
        for rule, wrong in self._flags(start, rows):
            self._note(rule, start, wrong)
        for key in ROOT_FLAGS:
            self._note(f"{show_key(key)} is false", start, rows[key].numpy()[:, 0])
        numbers = numbers_of(self._offsets, start, start + num_checked)
        wrong = rows[EPISODE].numpy() != numbers
        self._note("episode is the number of the trajectory", start, wrong)
        if self._is_shifted:
            for key in self._shared:
                self._successors(start, key, leaves, num_checked)

    def _check_columns(self, manifest: Manifest) -> None:
        """Check the dtypes and shapes of the columns that the rules read."""
        kinds = {column.key: (column.dtype, column.shape) for column in manifest.columns}
        expected: dict[Key, tuple[str, tuple[int, ...]]] = {EPISODE: ("int64", ())}
        expected |= dict.fromkeys((*FLAGS, *ROOT_FLAGS), ("bool", (1,)))
        for key, (dtype, shape) in expected.items():
            if kinds.get(key) != (dtype, shape):
                self.problems[SCHEMA] = (
                    f"{show_key(key)} is {kinds.get(key, 'missing')}; expected {dtype} "
                    f"{list(shape)}"
                )

    def _flags(self, start: int, rows: Leaves) -> Iterator[tuple[str, np.ndarray]]:
        done, terminated, truncated = (rows[key].numpy()[:, 0] for key in FLAGS)
        ends = ends_of(self._offsets, start, start + len(done))
        yield "next.done is next.terminated or next.truncated", done != (terminated | truncated)
        yield "every trajectory ends with next.done", ends & ~done
        yield "next.done is false before the end of a trajectory", done & ~ends

    def _successors(self, start: int, key: Key, leaves: Leaves, num_checked: int) -> None:
        following = bytes_of(leaves[key])[1:]
        successors = bytes_of(leaves[successor_of(key)])
        ends = ends_of(self._offsets, start, start + num_checked)
        # The last row of the dataset ends a trajectory, so every other row has a row after it.
        inner = np.flatnonzero(~ends)
        differs = np.zeros(num_checked, np.bool_)
        differs[inner] = (following[inner] != successors[inner]).any(dim=1).numpy()
        name = show_key(successor_of(key))
        self._note(f"{name} is the following row's", start, differs)
        terminated = np.flatnonzero(leaves[TERMINATED].numpy()[:num_checked, 0])
        differs = np.zeros(num_checked, np.bool_)
        differs[terminated] = successors[terminated].any(dim=1).numpy()
        self._note(f"{name} is zero after a terminated step", start, differs)

    def _note(self, rule: str, start: int, wrong: np.ndarray) -> None:
        if rule not in self.problems and wrong.any():
            self.problems[rule] = f"row {start + int(wrong.argmax())} breaks the rule that {rule}"
