"""Files of a DQN Replay run in the publisher's format, and what must become of them.

``Logger`` does what batch_rl's replay buffer did, rule by rule, at a capacity of our choice; it
notes beside each log which row lies in which slot, so that ``expected`` can work out by a plain
loop over the environment's own record which transitions must come out.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.support.ale_games import Episode

Key = tuple[str, ...]
CAP = 27_000
NUM_EMPTY = 3
GARBAGE = {"observation": 173, "action": 7, "reward": 0.5, "terminal": 207}


class Written(NamedTuple):
    """One row that was written: a step of an episode, or an empty one where the episode is -1."""

    number: int
    episode: int
    step: int


EMPTY = -1


@dataclass
class Logger:
    """The ring that the agent writes to, and the logs that it leaves.

    ``slots`` says what lies where, ``logged`` which rows are in any log, ``firsts`` which row lay
    in the last slot of each log: it comes before that log's slot 0.
    """

    folder: Path
    capacity: int
    add_count: int = 0
    num_logs: int = 0
    store: dict[str, np.ndarray] = field(default_factory=dict)
    slots: dict[int, Written] = field(default_factory=dict)
    logged: dict[int, Written] = field(default_factory=dict)
    firsts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        shapes = {"observation": (84, 84), "action": (), "reward": (), "terminal": ()}
        dtypes = {"observation": "u1", "action": "i4", "reward": "f4", "terminal": "u1"}
        for name, shape in shapes.items():  # memory that nobody has written to yet
            self.store[name] = np.full((self.capacity, *shape), GARBAGE[name], dtypes[name])

    def play(self, episode: Episode, number: int, *, ends: bool = True) -> None:
        """Add the steps of an episode as the agent does; ``ends`` where its end was seen."""
        last = len(episode.actions) - 1
        for step, (action, reward) in enumerate(zip(episode.actions, episode.rewards, strict=True)):
            row = (episode.frames[step], action, reward, ends and step == last)
            self.add(row, Written(0, number, step))

    def add(self, row: tuple[Any, ...], written: Written) -> None:
        """Add a step, and three empty rows before it where an episode begins."""
        before = (self.add_count - 1) % self.capacity
        if self.add_count == 0 or self.store["terminal"][before] == 1:
            for _ in range(NUM_EMPTY):
                self._fill((0, 0, 0, 0), Written(0, EMPTY, 0))
        self._fill(row, written)
        if self.add_count % self.capacity == self.capacity - 1:
            self.log(self.add_count)

    def _fill(self, row: tuple[Any, ...], written: Written) -> None:
        slot = self.add_count % self.capacity
        for name, value in zip(self.store, row, strict=True):
            self.store[name][slot] = value
        self.slots[slot] = written._replace(number=self.add_count)
        self.add_count += 1

    def log(self, add_count: int) -> None:
        """Write all slots, whatever is in them."""
        files = {f"$store$_{name}": values for name, values in self.store.items()}
        files["add_count"] = np.array(add_count)
        cursor = add_count % self.capacity
        files["invalid_range"] = np.arange(cursor - 1, cursor + 4) % self.capacity
        for name, values in files.items():
            save(self.folder / f"{name}_ckpt.{self.num_logs}.gz", values)
        self.logged |= {written.number: written for written in self.slots.values()}
        last = self.slots.get(self.capacity - 1)
        self.firsts.append(last.number if last else 0)
        self.num_logs += 1

    def logged_from(self, log: int) -> dict[int, Written]:
        """Return the rows of a log and those after it, but for what logs before it have too."""
        rows = self.logged.items()
        return {number: row for number, row in rows if number >= self.firsts[log]}

    def log_final(self) -> None:
        """Write all slots at the end of training, with the next slot in place of the count."""
        self.log(self.add_count % self.capacity)


def save(path: Path, values: np.ndarray) -> None:
    """Write an array as dopamine does: ``np.save`` into a gzip stream."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file, gzip.GzipFile(fileobj=file, mode="wb", compresslevel=1) as stream:
        np.save(stream, values, allow_pickle=False)


def record(folder: Path, episodes: list[Episode], capacity: int, *, final: bool = True) -> Logger:
    """Write the logs of some episodes, the last of which may have no end."""
    logger = Logger(folder, capacity)
    for number, episode in enumerate(episodes):
        ends = episode.terminated or len(episode.actions) == CAP
        logger.play(episode, number, ends=ends)
    if final:
        logger.log_final()
    return logger


def every(folder: Path) -> str:
    """Return the choice of all checkpoints in a folder that has them from 0 on, without a gap."""
    return f"0:{len(list(folder.glob('add_count_ckpt.*.gz')))}"


def runs(logged: dict[int, Written]) -> Iterator[list[Written]]:
    """Yield the steps that were logged, split wherever the next row is not the following step."""
    run: list[Written] = []
    for _, written in sorted(logged.items()):
        if written.episode == EMPTY:
            continue
        last = run[-1] if run else None
        if last and (written.number, written.step) != (last.number + 1, last.step + 1):
            yield run
            run = []
        run.append(written)
    if run:
        yield run


def expected(
    episodes: list[Episode], logged: dict[int, Written], *, frames: bool = True
) -> dict[Key, np.ndarray]:
    """Return the leaves that the environment's own record and the logged rows call for."""
    rows: dict[Key, list[Any]] = {}
    number = 0
    for run in runs(logged):
        episode, first, last = episodes[run[0].episode], run[0].step, run[-1].step
        at_end = last == len(episode.actions) - 1
        terminated = at_end and (episode.terminated or (first > 0 and last == CAP - 1))
        steps = range(first, last + terminated)  # without an end, its last row has no successor
        for step in steps:
            is_last = step == steps[-1]
            following = episode.frames[step + 1]
            values = {
                ("observation",): episode.frames[step],
                ("action",): episode.actions[step],
                ("episode",): np.int64(number),
                ("next", "observation"): following * 0 if is_last and terminated else following,
                ("next", "reward"): episode.rewards[step : step + 1],
                ("next", "terminated"): np.array([is_last and terminated]),
                ("next", "truncated"): np.array([is_last and not terminated]),
                ("next", "done"): np.array([is_last]),
            } | {(name,): np.array([False]) for name in ("done", "terminated", "truncated")}
            for key, value in values.items():
                if key[-1] == "observation" and not frames:
                    continue
                rows.setdefault(key, []).append(value)
        number += len(steps) > 0
    return {key: np.stack(values) for key, values in rows.items()}
