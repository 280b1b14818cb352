"""Each rule finds what is planted, is silent about near misses, and holds little in memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datasets_cli.audit.rules.facts import facts_of
from datasets_cli.audit.rules.finding import Finding
from datasets_cli.audit.rules.registry import RULES
from datasets_cli.audit.rules.rows import AuditedRows, streamed_rows
from datasets_cli.audit.rules.rule import About, Rule
from datasets_cli.audit.run import findings_of
from datasets_cli.schema.columns import Key, column_of
from datasets_cli.schema.texts import is_text

Columns = dict[Key, np.ndarray]
OBSERVATION, ACTION, QPOS = ("observation",), ("action",), ("info", "qpos")
REWARD, FOLLOWING = ("next", "reward"), ("next", "observation")
DONE, TERMINATED, TRUNCATED = (("next", name) for name in ("done", "terminated", "truncated"))
GOAL, UNCLIPPED, TIMESTAMP = ("info", "goal"), ("info", "unclipped_reward"), ("info", "timestamp")
POSE = np.array([0.75, 1, *[0.0] * 11])


@dataclass
class Made:
    """Rows, and which trajectory each is in."""

    columns: Columns
    episode: np.ndarray
    metadata: dict[str, Any] = field(default_factory=lambda: {"max_episode_steps": 12, "fps": 1})

    @property
    def firsts(self) -> np.ndarray:
        return np.flatnonzero(np.diff(self.episode, prepend=-1))

    @property
    def lasts(self) -> np.ndarray:
        return np.flatnonzero(np.diff(self.episode, append=-1))

    @property
    def inner(self) -> np.ndarray:
        """Rows that are neither the first nor the last two of their trajectory."""
        around = [np.roll(self.episode, by) for by in (1, -1, -2)]
        same = np.all([each == self.episode for each in around], axis=0)
        same[[0, -1, -2]] = False
        return np.flatnonzero(same)


def made(rng: np.random.Generator) -> Made:
    """Return sound rows: a walk of small steps in each trajectory, which begins elsewhere."""
    lengths = rng.integers(6, 12, rng.integers(4, 9))
    episode = np.repeat(np.arange(len(lengths)), lengths)
    count, last = len(episode), np.cumsum(lengths) - 1
    begins = np.repeat(np.arange(len(lengths))[:, None] * 9.0 + rng.normal(0, 0.1, 3), lengths, 0)
    walk = begins + np.cumsum(rng.uniform(-0.1, 0.1, (count, 3)), 0)
    ends = np.zeros((count, 1), bool)
    ends[last] = True
    reward = rng.normal(size=(count, 1)).astype(np.float32)
    return Made(
        {
            OBSERVATION: rng.normal(3, 1, (count, 111)).astype(np.float32),
            ACTION: rng.normal(size=(count, 2)).astype(np.float32),
            QPOS: walk,
            REWARD: reward,
            TERMINATED: np.zeros_like(ends),
            TRUNCATED: ends,
            TIMESTAMP: np.arange(count) - np.repeat(last - lengths, lengths) + 0.0,
        },
        episode,
    )


def findings(rows: Made, id: str, rng: np.random.Generator) -> list[Finding]:
    """Return what all rules find in rows, given in runs that are cut anywhere."""
    columns = rows.columns | {DONE: rows.columns[TERMINATED] | rows.columns[TRUNCATED]}
    cuts = [0, *np.sort(rng.integers(1, len(rows.episode), 3)).tolist(), len(rows.episode)]
    texts = tuple(key for key, each in columns.items() if is_text(each))
    numbers = tuple(column_of(key, each) for key, each in columns.items() if key not in texts)
    about = About(numbers, rows.metadata, facts_of(id), True, texts, True)

    def rows_of(keys: frozenset[Key]) -> Iterator[AuditedRows]:
        runs = (
            {key: each[start:stop] for key, each in columns.items()}
            for start, stop in pairwise(cuts)
            if stop > start
        )
        return streamed_rows(runs, keys)

    return findings_of(about, RULES, rows_of)


def split(rows: Made, row: int) -> None:
    """End a trajectory after a row, though the next row goes on."""
    rows.columns[TRUNCATED][row] = True
    rows.episode[row + 1 :] += 1


def join(rows: Made, row: int) -> None:
    """Take the end of a trajectory away."""
    rows.columns[TRUNCATED][row] = False
    rows.episode[row + 1 :] -= 1


def stand(rows: Made, at: np.ndarray, rng: np.random.Generator, first: int = 0) -> None:
    """Put the ant where a reset puts it; its pose begins with this number of an observation."""
    rows.columns[OBSERVATION][at, first : first + 13] = POSE + rng.uniform(-0.1, 0.1, (len(at), 13))
    rows.columns[OBSERVATION][at, first + 13 : first + 27] = rng.uniform(-0.3, 0.3, (len(at), 14))


def false_end(rows: Made, row: int, rng: np.random.Generator) -> list[int]:
    row = int(rng.choice(rows.inner[rows.episode[rows.inner] > 0]))  # far from the first row
    split(rows, row)
    return [row]


def true_end(rows: Made, row: int, rng: np.random.Generator) -> None:
    split(rows, row)
    rows.columns[QPOS][row + 1 :] += 9  # where a reset leads, however smooth the way to it was


def reset_at_the_end(rows: Made, row: int, rng: np.random.Generator) -> None:
    """The robot hardly leaves where it began, so that a reset is as near as a step goes."""
    place, first, second = rows.columns[QPOS], rows.episode == 0, rows.episode == 1
    place[first] = place[0] + rng.uniform(-0.05, 0.05, (first.sum(), 3))
    place[second] += place[0] - place[rows.firsts[1]]


def ant_reset_at_the_end(rows: Made, row: int, rng: np.random.Generator) -> None:
    """The ant of a maze is reset where its last step led, and its poses alone tell."""
    rows.columns[OBSERVATION][:, :2] = rows.columns[QPOS][:, :2]
    split(rows, row)
    stand(rows, rows.firsts, rng, first=2)


def terminal(rows: Made, row: int, rng: np.random.Generator) -> list[int]:
    last = int(rows.firsts[1]) - 1
    rows.columns[TERMINATED][last] = True
    return [last]


def nothing(rows: Made, row: int, rng: np.random.Generator) -> None:
    rows.columns[QPOS][:] = rows.columns[QPOS][row]  # a robot that stands still


def ant(rows: Made, row: int, rng: np.random.Generator) -> None:
    stand(rows, rows.firsts, rng)


def reset(rows: Made, row: int, rng: np.random.Generator) -> list[int]:
    stand(rows, np.append(rows.firsts, row), rng)
    return [row]


def jump(rows: Made, row: int, rng: np.random.Generator) -> list[int]:
    rows.columns[OBSERVATION][:, :2] = rows.columns[QPOS][:, :2]
    rows.columns[OBSERVATION][row + 1 :, :2] += 30
    return [row]


def long_step(rows: Made, row: int, rng: np.random.Generator) -> None:
    rows.columns[OBSERVATION][:, :2] = rows.columns[QPOS][:, :2]
    rows.columns[OBSERVATION][row + 1 :, 0] += 0.6  # far for a step, and less than the bound


def run(rows: Made, row: int, rng: np.random.Generator) -> list[int]:
    rows.columns[TERMINATED][row : row + 2] = True
    rows.columns[TRUNCATED][row : row + 2] = False
    rows.episode[row + 1 :] += 1
    rows.episode[row + 2 :] += 1
    return [row + 1]


def once(rows: Made, row: int, rng: np.random.Generator) -> None:
    rows.columns[TERMINATED][row] = True
    rows.columns[TRUNCATED][row] = False
    rows.episode[row + 1 :] += 1


def frozen(rows: Made, row: int, rng: np.random.Generator) -> list[int]:
    rows.columns[QPOS] = rows.columns[QPOS][rows.firsts][rows.episode]
    return rows.firsts.tolist()


def almost_frozen(rows: Made, row: int, rng: np.random.Generator) -> None:
    frozen(rows, row, rng)
    rows.columns[QPOS][row, 0] += 1e-9


def constant(rows: Made, row: int, rng: np.random.Generator) -> list[int]:
    rows.columns[ACTION][:] = rows.columns[ACTION][row]
    return [*range(len(rows.episode))]


def constant_in_one(rows: Made, row: int, rng: np.random.Generator) -> None:
    rows.columns[ACTION][rows.episode == rows.episode[row]] = 0.5


def zeros(rows: Made, row: int, rng: np.random.Generator) -> list[int]:
    rows.columns[OBSERVATION][row] = 0
    return [row]


def almost_zeros(rows: Made, row: int, rng: np.random.Generator) -> None:
    rows.columns[OBSERVATION][row, 1:] = 0


def nan(rows: Made, row: int, rng: np.random.Generator) -> list[int]:
    rows.columns[REWARD][row] = rng.choice([np.nan, np.inf, -np.inf])
    return [row]


def largest(rows: Made, row: int, rng: np.random.Generator) -> None:
    rows.columns[REWARD][row] = np.finfo(np.float32).max


def own_reward(rows: Made, row: int, rng: np.random.Generator) -> list[int]:
    place = rows.columns[QPOS][:, :2]
    rows.columns[OBSERVATION], rows.columns[FOLLOWING] = place, np.roll(place, -1, 0)
    rows.columns[GOAL] = np.repeat(place[row : row + 1] + np.array([0.0, 0.55]), len(place), 0)
    rows.columns[FOLLOWING][row] = rows.columns[GOAL][row]
    near = [
        np.linalg.norm(rows.columns[key] - rows.columns[GOAL], axis=1) <= 0.5
        for key in (OBSERVATION, FOLLOWING)
    ]
    rows.columns[REWARD] = near[0][:, None].astype(np.float32)
    return np.flatnonzero(near[0] != near[1]).tolist()


def next_reward(rows: Made, row: int, rng: np.random.Generator) -> None:
    own_reward(rows, row, rng)
    near = np.linalg.norm(rows.columns[FOLLOWING] - rows.columns[GOAL], axis=1) <= 0.5
    rows.columns[REWARD] = near[:, None].astype(np.float32)


def clipped(rows: Made, row: int, rng: np.random.Generator) -> list[int]:
    rows.columns[REWARD] = np.sign(rows.columns[REWARD])
    rows.columns[REWARD][row] = 0
    rows.columns[UNCLIPPED] = rows.columns[REWARD].copy()
    return np.flatnonzero(rows.columns[REWARD][:, 0]).tolist()


def clipped_but_one(rows: Made, row: int, rng: np.random.Generator) -> None:
    clipped(rows, row, rng)
    rows.columns[UNCLIPPED][row] = 5


def twice(rows: Made, row: int, rng: np.random.Generator) -> list[int]:
    first = rows.episode == 0
    rows.columns = {key: np.concatenate((e, e[first])) for key, e in rows.columns.items()}
    rows.episode = np.concatenate((rows.episode, np.full(first.sum(), rows.episode[-1] + 1)))
    return [len(first)]


def twice_but_a_bit(rows: Made, row: int, rng: np.random.Generator) -> None:
    [again] = twice(rows, row, rng)
    rows.columns[ACTION][again + int(rng.integers(6)), 0] += 1


def back(rows: Made, row: int, rng: np.random.Generator) -> list[int]:
    rows.columns[TIMESTAMP][row] = rows.columns[TIMESTAMP][row - 1] - 0.5
    return [row]


def same_time(rows: Made, row: int, rng: np.random.Generator) -> None:
    rows.columns[TIMESTAMP][row] = rows.columns[TIMESTAMP][row - 1]


def limits(rows: Made, row: int, rng: np.random.Generator) -> list[int]:
    count = len(rows.episode) // 4 * 4
    rows.columns = {key: each[:count] for key, each in rows.columns.items()}
    rows.columns = {key: np.concatenate([e] * 3) for key, e in rows.columns.items()}
    rows.episode = np.arange(3 * count) // 4
    rows.columns[TERMINATED] = (np.arange(3 * count) % 4 == 3)[:, None]
    rows.columns[TRUNCATED] = np.zeros((3 * count, 1), bool)
    rows.columns[OBSERVATION] = rng.normal(size=(3 * count, 5))  # else trajectories are equal
    return [*range(3, 3 * count, 4)]


def limits_but_one(rows: Made, row: int, rng: np.random.Generator) -> None:
    limits(rows, row, rng)
    rows.columns[TERMINATED][3], rows.columns[TRUNCATED][3] = False, True


def beyond(rows: Made, row: int, rng: np.random.Generator) -> list[int]:
    last = int(rows.firsts[1]) - 1
    join(rows, last)
    rows.metadata["max_episode_steps"] = 11
    return rows.firsts[np.bincount(rows.episode) > 11].tolist()


def skip(rows: Made, row: int, rng: np.random.Generator) -> list[int]:
    rows.columns[TIMESTAMP][row:] += rng.uniform(0.6, 9)
    rows.columns[TIMESTAMP][rows.episode > rows.episode[row]] -= 5  # each has a time of its own
    return [row]


def late(rows: Made, row: int, rng: np.random.Generator) -> None:
    rows.columns[TIMESTAMP][row:] += 0.4  # less than half a frame


def same_number(rows: Made, row: int, rng: np.random.Generator) -> list[int]:
    numbers = np.stack((rows.episode // 2, rows.episode), 1)
    again = max(int(rows.episode[row]), 1)
    numbers[rows.episode == again] = numbers[0]
    for at, name in enumerate(("checkpoint_idx", "episode_idx")):
        rows.columns["info", name] = numbers[:, at : at + 1]
    return [int(rows.firsts[again])]


def same_number_elsewhere(rows: Made, row: int, rng: np.random.Generator) -> None:
    same_number(rows, row, rng)
    rows.columns["info", "checkpoint_idx"] = rows.episode[:, None]  # of another file


def still(rows: Made, row: int, rng: np.random.Generator) -> list[int]:
    place, count = rows.columns[OBSERVATION], len(rows.episode)
    idle = rng.choice(np.setdiff1d(np.arange(count), rows.firsts), count // 4, replace=False)
    for each in np.sort(idle):
        place[each] = place[each - 1] + rng.uniform(-4e-4, 4e-4, place.shape[1])
    return np.sort(idle).tolist()


def almost_still(rows: Made, row: int, rng: np.random.Generator) -> None:
    still(rows, row, rng)
    rows.columns[OBSERVATION][::2, int(rng.integers(111))] += 2e-3


def no_text(rows: Made, row: int, rng: np.random.Generator) -> list[int]:
    rows.columns["info", "instruction"] = np.array(["open"] * len(rows.episode), object)
    rows.columns["info", "instruction"][[row, 0]] = ""
    return [0, row]


def blank(rows: Made, row: int, rng: np.random.Generator) -> None:
    no_text(rows, row, rng)
    rows.columns["info", "instruction"][[row, 0]] = " "


def stated(rows: Made) -> list[int]:
    """Return the steps of each trajectory, with the last one, which is no row where it was cut."""
    return (np.bincount(rows.episode) + ~rows.columns[TERMINATED][rows.lasts, 0]).tolist()


def other_length(rows: Made, row: int, rng: np.random.Generator) -> list[int]:
    rows.columns[TERMINATED][rows.lasts[1]] = True
    rows.metadata["trajectory_lengths"] = stated(rows)
    rows.metadata["trajectory_lengths"][rows.episode[row]] += rng.choice([-1, 1, 40])
    return [int(rows.firsts[rows.episode[row]])]


def no_row(rows: Made, row: int, rng: np.random.Generator) -> list[int]:
    """One trajectory is stated and not there."""
    missing, first = int(rows.episode[row]), int(rows.firsts[rows.episode[row]])
    rows.metadata["trajectory_lengths"] = [*stated(rows)]
    rows.metadata["trajectory_lengths"].insert(missing, 7)
    rows.columns["info", "episode_index"] = (rows.episode + (rows.episode >= missing))[:, None]
    return [first]


def one_step(rows: Made, row: int, rng: np.random.Generator) -> None:
    """The only step of a trajectory that was cut off is no row."""
    no_row(rows, row, rng)
    rows.metadata["trajectory_lengths"][rows.episode[row]] = 1


def unfinished(rows: Made, row: int, rng: np.random.Generator) -> list[int]:
    rows.metadata["without_last_observation"] = {"rows": [int(rows.lasts[1])], "episodes": 5}
    return [int(rows.lasts[1])]


def summary(rows: Made) -> dict[str, np.ndarray]:
    """Return the statistics of an action."""
    actions, shares = rows.columns[ACTION], {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9}
    quantiles = {name: np.quantile(actions, share, 0) for name, share in shares.items()}
    return {"min": actions.min(0), "max": actions.max(0), **quantiles}


def beyond_stated(rows: Made, row: int, rng: np.random.Generator) -> list[int]:
    rows.metadata["stats"] = {"action": summary(rows)}
    rows.columns[ACTION][row, rng.integers(2)] = rng.choice([-9, 9])
    return [row]


def mean_of_quantiles(rows: Made, row: int, rng: np.random.Generator) -> list[int]:
    """The median of all is that of one trajectory, which is elsewhere."""
    rows.columns[ACTION] += rows.episode[:, None] * np.float32(4)
    rows.metadata["stats"] = {"action": summary(rows)}
    rows.metadata["stats"]["action"]["q50"] = np.median(rows.columns[ACTION][:6], 0)
    return [*range(len(rows.episode))]


def as_stated(rows: Made, row: int, rng: np.random.Generator) -> None:
    numbers = {name: [round(x, 8) for x in each.tolist()] for name, each in summary(rows).items()}
    rows.metadata["stats"] = {"action": numbers, "no.such.column": {"min": [9]}}


Plant = Callable[[Made, int, np.random.Generator], list[int]]
Miss = Callable[[Made, int, np.random.Generator], None]
MINE = "mine/data"
KINDS: dict[str, tuple[str, Plant, tuple[Miss, ...]]] = {
    "false-end": ("d4rl/door-human-v0", false_end, (true_end, nothing, reset_at_the_end)),
    "impossible-terminal": ("d4rl/halfcheetah-medium-v0", terminal, (nothing,)),
    "unflagged-reset": ("d4rl/ant-medium-v0", reset, (ant,)),
    "unflagged-jump": ("d4rl/antmaze-large-play-v0", jump, (long_step,)),
    "terminal-run": (MINE, run, (once,)),
    "frozen-state": (MINE, frozen, (almost_frozen,)),
    "constant-action": (MINE, constant, (constant_in_one,)),
    "zero-observation": (MINE, zeros, (almost_zeros,)),
    "not-finite": (MINE, nan, (largest,)),
    "reward-of-wrong-row": ("d4rl/maze2d-umaze-v1", own_reward, (next_reward,)),
    "clipped-rewards": (MINE, clipped, (clipped_but_one,)),
    "duplicate-trajectory": (MINE, twice, (twice_but_a_bit,)),
    "timestamp-back": (MINE, back, (same_time,)),
    "time-limit-terminal": (MINE, limits, (limits_but_one,)),
    "beyond-limit": (MINE, beyond, (nothing,)),
    "timestamp-skip": (MINE, skip, (late,)),
    "duplicate-number": (MINE, same_number, (same_number_elsewhere,)),
    "idle": (MINE, still, (almost_still,)),
    "empty-text": (MINE, no_text, (blank,)),
    "stated-length": (MINE, other_length, (one_step,)),
    "no-last-observation": (MINE, unfinished, (nothing,)),
    "stated-statistics": (MINE, beyond_stated, (as_stated,)),
}
EVERY = settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)


def test_every_rule_has_a_kind() -> None:
    assert {*KINDS} == {rule.name for rule in RULES}


PLANTS = [(rule, id, plant) for rule, (id, plant, _) in KINDS.items()]
PLANTS += [("stated-length", MINE, no_row), ("stated-statistics", MINE, mean_of_quantiles)]


@pytest.mark.parametrize(("rule", "id", "plant"), PLANTS)
@EVERY
@given(seed=st.integers(0, 2**32 - 1))
def test_what_is_planted_is_found(rule: str, id: str, plant: Plant, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = made(rng)
    planted = plant(rows, int(rng.choice(rows.inner)), rng)
    found = {each.rule: [*each.rows] for each in findings(rows, id, rng)}
    assert found.get(rule, []) == planted


MISSES = [(rule, id, miss) for rule, (id, _, misses) in KINDS.items() for miss in misses]
MISSES += [("false-end", "d4rl/antmaze-large-play-v0", ant_reset_at_the_end)]


@pytest.mark.parametrize(("rule", "id", "miss"), MISSES)
@EVERY
@given(seed=st.integers(0, 2**32 - 1))
def test_a_near_miss_is_silent(rule: str, id: str, miss: Miss, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = made(rng)
    miss(rows, int(rng.choice(rows.inner)), rng)
    found = findings(rows, id, rng)
    assert rule not in {each.rule for each in found}


@pytest.mark.parametrize("id", sorted({id for id, *_ in KINDS.values()}))
def test_rows_that_are_not_of_this_environment_are_never_called_wrong(id: str) -> None:
    """A file of noise under a published name: what is ordinary in it is not known."""
    rng = np.random.default_rng(0)
    rows = made(rng)
    rows.columns[QPOS] = rng.normal(0, 9, rows.columns[QPOS].shape)
    rows.columns[OBSERVATION] = rng.normal(0, 9, rows.columns[OBSERVATION].shape)
    found = {each.rule: each.severity for each in findings(rows, id, rng)}
    assert "wrong" not in found.values()
    assert not {"false-end", "unflagged-jump"} <= {*found}, "one cause is told once"


@pytest.mark.parametrize(
    "told", [9, "9", None, [], [[1], [2, 3]], {"action": 3}, {"action": {"min": [1], "q50": "x"}}]
)
def test_metadata_that_is_not_of_a_rule_is_not_looked_at(told: object) -> None:
    """Publishers write what they like under these names."""
    rng = np.random.default_rng(0)
    rows = made(rng)
    names = ("fps", "stats", "without_last_observation", "max_episode_steps")
    rows.metadata |= dict.fromkeys(names, told)
    assert not findings(rows, MINE, rng) or told == 9  # nine steps, which some are longer than


MOST_BYTES = 8 << 20
NUM_ROWS, BLOCK = 1_000_000, 1 << 16
ROWS_BY_KEY = {
    ("observation",): np.zeros((BLOCK, 27), np.float32),
    ("action",): np.ones((BLOCK, 2), np.float32),
    ("info", "qpos"): np.arange(3.0 * BLOCK).reshape(BLOCK, 3),
    ("info", "goal"): np.ones((BLOCK, 2), np.float32),
    UNCLIPPED: np.ones((BLOCK, 1), np.float32),
    ("info", "timestamp"): -np.arange(float(BLOCK)),
    ("info", "episode_index"): np.ones((BLOCK, 1), np.int64),
    ("info", "instruction"): np.array([""] * BLOCK, object),
    ("next", "observation"): np.ones((BLOCK, 27), np.float32),
    ("next", "reward"): np.ones((BLOCK, 1), np.float32),
    ("next", "terminated"): np.ones((BLOCK, 1), np.bool_),
}

METADATA = {
    "fps": 30,
    "trajectory_lengths": [9] * (NUM_ROWS // 4),
    "without_last_observation": {"rows": [0, 5], "episodes": 2},
    "stats": {"observation": {"min": [1] * 27, "q01": [0] * 27}},
}


def blocks(length: int, is_terminated: bool) -> Iterator[AuditedRows]:
    """Yield trajectories of so many rows, in blocks as an audit reads them."""
    columns = dict(ROWS_BY_KEY) | {("next", "terminated"): np.full((BLOCK, 1), is_terminated)}
    starts = np.arange(0, NUM_ROWS + BLOCK + length, length)
    for first in range(0, NUM_ROWS, BLOCK):
        yield AuditedRows(first, columns, starts)


@pytest.mark.parametrize(
    ("length", "is_terminated"), [(1, True), pytest.param(4, False, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_what_a_rule_keeps_is_bounded(rule: Rule, length: int, is_terminated: bool) -> None:
    texts = tuple(key for key, rows in ROWS_BY_KEY.items() if is_text(rows))
    columns = tuple(column_of(key, r) for key, r in ROWS_BY_KEY.items() if key not in texts)
    metadata = METADATA | {"max_episode_steps": length // 2 or 1}
    about = About(columns, metadata, facts_of(KINDS[rule.name][0]), True, texts, True)
    state = rule.begin(about)
    assert state is not None, "the columns here are what it looks at"
    tracemalloc.start()
    try:
        for rows in blocks(length, is_terminated):
            state.observe(rows)
        del rows
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < MOST_BYTES
