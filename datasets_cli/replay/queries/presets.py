"""View presets: rows that published data are better read without, by a name with arguments.

    no-idle:epsilon=0.01,length=5    means    no-idle:epsilon=0.01,length=5,of=observation

Columns are read in blocks, so that memory grows with trajectories and runs, and not with rows.
"""

from __future__ import annotations

import difflib
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from datasets_cli.errors import UsageError
from datasets_cli.replay.queries.trajectory import leaves_below
from datasets_cli.replay.trajectories.reductions import BLOCK_ROWS
from datasets_cli.schema.columns import TERMINATED, TRUNCATED, Key, rows_per_block, successor_of
from datasets_cli.schema.trajectories import lengths_of, runs_of
from datasets_cli.store.arrays import Columns, plain_numbers
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.selection import Selection


@dataclass(frozen=True)
class FirstSuccess:
    """Trajectories up to their first success; those that begin right after one are left out."""

    flag: str = "next.terminated"

    def runs(self, dataset: Dataset, selection: Selection) -> tuple[np.ndarray, np.ndarray]:
        offsets, whole = dataset.starts, dataset.whole
        key, *others = leaves_below(dataset, [self.flag])
        if others:
            raise UsageError(
                f"first-success:flag={self.flag} names {1 + len(others)} columns; expected one."
            )
        first = np.full(len(selection), len(dataset))
        for start, rows in _blocks(dataset, [key]):
            flagged = np.flatnonzero(_numbers(rows[key]).any(1)) + start
            np.minimum.at(first, np.searchsorted(offsets, flagged, "right") - 1, flagged)
        if (first == len(dataset)).all() or (lengths_of(whole.starts) == 1).all():
            raise UsageError(
                f"first-success: no step of {dataset.id} has {self.flag}, or all trajectories are "
                "single steps. Name a flag of success: first-success:flag=next.info.success."
            )
        # One that begins with a success goes where the row before it in the dataset is one, too.
        before = whole.starts[selection.numbers] + selection.firsts - 1
        rows = whole.arrays_of(frozenset([key])).gather(before.clip(0))
        follows = _numbers(rows[key]).any(1) & (before >= 0)
        kept = ~(follows & (first == offsets[:-1]))
        lengths = np.minimum(first + 1, offsets[1:]) - offsets[:-1]
        return offsets[:-1][kept], lengths[kept]


@dataclass(frozen=True)
class NoTimeouts:
    """Trajectories without a last step that is truncated alone, or none that have one."""

    whole: int = 0

    def runs(self, dataset: Dataset, selection: Selection) -> tuple[np.ndarray, np.ndarray]:
        offsets, keys = dataset.starts, (TRUNCATED, TERMINATED)
        leaves_below(dataset, keys)  # which says what is missing
        last = dataset.arrays_of(frozenset(keys)).gather(offsets[1:] - 1)
        truncated, terminated = (_numbers(last[key]).any(1) for key in keys)
        is_cut = truncated & ~terminated
        if not is_cut.any():
            raise UsageError(
                f"no-timeouts: no trajectory of {dataset.id} ends with a step that is truncated "
                "and not terminated. There is nothing to leave out."
            )
        lengths = lengths_of(offsets) - is_cut
        kept = ~is_cut if self.whole else lengths > 0
        return offsets[:-1][kept], lengths[kept]


@dataclass(frozen=True)
class NoIdle:
    """Without runs of ``length`` or more steps in which ``of`` changes by at most ``epsilon``."""

    epsilon: float = 0.0
    length: int = 1
    of: str = "observation"

    def runs(self, dataset: Dataset, selection: Selection) -> tuple[np.ndarray, np.ndarray]:
        offsets = dataset.starts
        first, lengths = runs_of(offsets, self._idle(dataset, offsets))
        first, lengths = first[lengths >= self.length], lengths[lengths >= self.length]
        # Rows that are left begin where a trajectory does, or idle ones end; and end likewise.
        starts = np.sort(np.concatenate((offsets[:-1], first + lengths)))
        lengths = np.sort(np.concatenate((offsets[1:], first))) - starts
        return starts[lengths > 0], lengths[lengths > 0]

    def _idle(self, dataset: Dataset, offsets: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the numbers of the steps without a change, int64 ``[k]``, block by block."""
        keys = leaves_below(dataset, [self.of])
        known = leaves_below(dataset, None)
        after = {key: successor_of(key) for key in keys if successor_of(key) in known}
        for start, rows in _blocks(dataset, [*keys, *after.values()]):
            squares: np.ndarray | float = 0.0
            for key in keys:
                values = _numbers(rows[key])
                if key in after:
                    changes = _numbers(rows[after[key]]) - values
                else:  # since the step before, which the first one of a trajectory does not have
                    changes = np.diff(values, axis=0, prepend=np.nan)
                    low, high = np.searchsorted(offsets, (start, start + len(values)))
                    changes[offsets[low:high] - start] = np.nan
                squares = squares + np.square(changes).sum(1)
            first = int(start > 0)  # beside the row of the block before
            yield np.flatnonzero(np.sqrt(squares)[first:] <= self.epsilon) + start + first


Preset = FirstSuccess | NoTimeouts | NoIdle
PRESETS: dict[str, type[Preset]] = {
    "first-success": FirstSuccess,
    "no-timeouts": NoTimeouts,
    "no-idle": NoIdle,
}
FLOAT_BYTES = 8
NAMED = re.compile(r"\s*[a-z]+(-[a-z]+)+\s*(:|$)")
"""How a text begins that names a preset, and is no condition."""
RANGES = {"whole": (0, 1), "epsilon": (0, sys.float_info.max), "length": (1, 2**62)}


def preset_of(text: str) -> tuple[str, Preset]:
    """Return a preset, after its name with all arguments."""
    name, _, rest = "".join(text.split()).partition(":")
    if name == "relabel-goal":
        raise UsageError(
            "relabel-goal changes rewards and ends, and a view only chooses rows. It is a "
            "transform, RelabelGoal(GoalRule.sparse(0.5)), also for preprocess."
        )
    if name not in PRESETS:
        near = difflib.get_close_matches(name, [*PRESETS, "relabel-goal"], 1) or PRESETS
        raise UsageError(f"There is no view {name!r}. Did you mean {' or '.join(near)}?")
    given = vars(PRESETS[name]()).copy()
    try:
        texts = [each.partition("=")[::2] for each in filter(None, rest.split(","))]
        for key, value in texts:
            given[key] = type(given[key])(value)
        if len(dict(texts)) < len(texts) or not all(
            low <= given.get(key, low) <= high for key, (low, high) in RANGES.items()
        ):
            raise ValueError(rest)
    except (KeyError, ValueError) as error:
        raise UsageError(
            f"{name} takes {', '.join(given)}, each once: numbers from 0 on, length from 1 on, "
            f"whole 0 or 1; found {rest!r}."
        ) from error
    arguments = ",".join(f"{key}={value}" for key, value in given.items())
    return f"{name}:{arguments}", PRESETS[name](**given)


def _numbers(rows: np.ndarray) -> np.ndarray:
    """Return rows as numbers float64 ``[n, m]``."""
    numbers = plain_numbers(rows)
    assert numbers is not None, "a leaf of numbers"
    return numbers.reshape(len(numbers), -1).astype(np.float64)


def _blocks(dataset: Dataset, keys: list[Key]) -> Iterator[tuple[int, Columns]]:
    """Yield the first row of each block, which is the last of the one before, and its columns."""
    rows = dataset.arrays_of(frozenset(keys))
    # They are read whatever columns a user chose, and become float64.
    numbers = sum(math.prod(each.shape) for each in dataset.manifest.columns if each.key in keys)
    step = min(BLOCK_ROWS, rows_per_block(numbers * FLOAT_BYTES))
    for start in range(0, len(dataset), step):
        first = max(0, start - 1)
        yield first, rows.run(first, min(start + step, len(dataset)))
