"""Chunks of a recording: episodes that one worker records into a folder.

<folder>/<number>/00000012.000.npz    the steps of episode 12 and of short episodes after it, or the
                                      first piece of a long episode
<folder>/<number>/chunk.json          the numbers of episodes and steps

The folder gets its name when all of its files are written.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import torch

from datasets_cli.environments.actions import CheckActions
from datasets_cli.environments.record.episodes import EpisodePiece, StepColumns, SteppedEpisodes
from datasets_cli.environments.record.options import Recording, seed_of
from datasets_cli.sources.new_files import replacing

CHUNK = "chunk.json"


@dataclass(frozen=True)
class ChunkTask:
    """A range of episodes to record, with all that a worker needs."""

    options: Recording
    number: int
    first: int
    stop: int
    folder: Path
    policy: bytes | None
    policy_name: str
    check_actions: CheckActions

    @property
    def chunk_folder(self) -> Path:
        """The folder of the finished chunk."""
        return self.folder / f"{self.number:06}"

    @property
    def label(self) -> str:
        """The episodes, for messages."""
        last = self.stop - 1
        return f"episode {self.first}" if self.first == last else f"episodes {self.first} to {last}"


def record_chunk(task: ChunkTask) -> None:
    """Record the episodes of a chunk; runs in a worker."""
    options = task.options
    with replacing(task.chunk_folder) as new, _preserved_random_state():
        new.mkdir()
        function = None if task.policy is None else cloudpickle.loads(task.policy)
        episodes = range(task.first, task.stop)
        with closing(SteppedEpisodes(options, episodes, task.check_actions)) as stepped:
            actor = stepped.actor(function, task.policy_name)
            if function is not None:  # its random numbers must not depend on the worker
                chunk_seed = seed_of(options.seed, task.number, 2)
                torch.manual_seed(chunk_seed)
                np.random.seed(chunk_seed)
            num_steps = _write(new, stepped.pieces(actor))
        summary = {"episodes": len(episodes), "steps": num_steps}
        (new / CHUNK).write_text(json.dumps(summary), encoding="ascii")


@contextmanager
def _preserved_random_state() -> Iterator[None]:
    """Restore the generators of torch and numpy, because this may be the caller's process."""
    numpy_state: Any = np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        np.random.set_state(numpy_state)


def num_steps_in(folder: Path) -> int:
    """Return the number of steps in a finished chunk."""
    return int(json.loads((folder / CHUNK).read_text(encoding="ascii"))["steps"])


def read_chunk(folder: Path) -> Iterator[StepColumns]:
    """Yield the steps of a finished chunk, in the order of its episodes."""
    for path in sorted(folder.glob("*.npz")):
        with np.load(path, allow_pickle=False) as stored:
            columns: StepColumns = {}
            for name in stored.files:
                is_text, key = json.loads(name)
                columns[tuple(key)] = stored[name].astype(object) if is_text else stored[name]
            yield columns


def _write(folder: Path, pieces: Iterator[EpisodePiece]) -> int:
    """Write the steps of all episodes, and return their number; short episodes share a file."""
    whole: dict[int, StepColumns] = {}
    num_pieces: Counter[int] = Counter()
    num_steps = 0
    for piece in pieces:
        num_steps += len(next(iter(piece.columns.values())))
        if piece.is_last and piece.episode not in num_pieces:
            whole[piece.episode] = piece.columns
            continue
        _save(folder, piece.episode, num_pieces[piece.episode], [piece.columns])
        num_pieces[piece.episode] += 1
    # Whole episodes between two in pieces share a file: the order of file names is their order.
    for is_whole, group in groupby(sorted({*whole, *num_pieces}), whole.__contains__):
        if is_whole:
            episodes = [*group]
            _save(folder, episodes[0], 0, [whole[each] for each in episodes])
    return num_steps


def _save(folder: Path, episode: int, number: int, parts: list[StepColumns]) -> None:
    columns: dict[str, Any] = {}
    for key in parts[0]:
        values = np.concatenate([part[key] for part in parts])
        is_text = values.dtype == object
        # numpy would pickle objects. The JSON is a name in the archive, of any characters.
        columns[json.dumps([is_text, key])] = values.astype(str) if is_text else values
    np.savez(folder / f"{episode:08}.{number:03}.npz", **columns)
