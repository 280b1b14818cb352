"""RL Unplugged's copy of the DQN Replay runs: a TFRecord file a checkpoint, a record an episode.

All files are read three times: to check and count the records, for the steps, and for the pictures.
Decoding the pictures takes most of the time, and is done file by file, in any number of processes.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from datasets_cli.recipe import (
    AccessError,
    Block,
    Description,
    Key,
    NetworkError,
    Pictures,
    Resource,
    Source,
    SourceError,
    Web,
    may_lack_list,
    rows_per_block,
)

from ._atari_order import FRAME
from ._gcs import list_objects, object_url
from ._gzip import GZIP_MAGIC
from ._png import decode_pictures
from ._unplugged_episode import Episode, read_episodes
from ._unplugged_survey import survey

if TYPE_CHECKING:
    import numpy as np

BUCKET = "rl_unplugged"
FOLDER = "atari_episodes_ordered"
_GAMES = """
Alien Amidar Assault Asterix Atlantis BankHeist BattleZone BeamRider Boxing Breakout Carnival
Centipede ChopperCommand CrazyClimber DemonAttack DoubleDunk Enduro FishingDerby Freeway Frostbite
Gopher Gravitar Hero IceHockey Jamesbond Kangaroo Krull KungFuMaster MsPacman NameThisGame Phoenix
Pong Pooyan Qbert Riverraid RoadRunner Robotank Seaquest SpaceInvaders StarGunner TimePilot UpNDown
VideoPinball WizardOfWor YarsRevenge Zaxxon
"""
GAMES = tuple(_GAMES.split())
FILES = 50
FILES_LESS_ONE = ("Carnival", "Gravitar", "StarGunner")
ROW_BYTES = 24  # of a step without its picture

STEPS: dict[str, Key] = {"actions": ("action",), "clipped_rewards": ("next", "reward")}
EXTRA: dict[str, Key] = {
    "unclipped_rewards": ("info", "unclipped_reward"),
    "discounts": ("info", "discount"),
}
"""Columns that are kept only where they say something that reward and flags do not."""


class Part(NamedTuple):
    """The pictures of one file.

    Args:
        path: the file.
        first_step: number of its first step in the whole run.
    """

    path: Path
    first_step: int


def resources(game: str, run: int, web: Web | None) -> list[Resource]:
    """Return the files of a run, a checkpoint each and in their order.

    Sizes and checksums come from the bucket's list; a plain mirror of the files has none.

    Raises:
        AccessError: the game is none of the 46, or the bucket has nothing of this run.
        SourceError: the list lacks a file.
        NetworkError: no answer.
    """
    if game not in GAMES:
        raise AccessError(
            f"RL Unplugged has {len(GAMES)} of the 60 games of the DQN Replay, and {game} is not "
            "one of them. Use --mirror or --source if you have a copy of the DQN Replay itself."
        )
    prefix = f"{FOLDER}/{game}/run_{run}-"
    listed = {}
    if web is not None:
        try:
            listed = {item.name: item for item in list_objects(BUCKET, prefix, web)}
        except (AccessError, NetworkError) as error:
            if not may_lack_list(error, object_url(BUCKET, prefix), web):
                raise
            web = None  # a mirror may have the files alone; a closed bucket will refuse them too
    total = FILES - (game in FILES_LESS_ONE) if web is None else _num_files(prefix, listed)
    names = [f"{prefix}{number:05d}-of-{total:05d}" for number in range(total)]
    return [
        Resource(
            urls=(object_url(BUCKET, name),),
            filename=name.rpartition("/")[2],
            size=listed[name].size if name in listed else None,
            checksums=listed[name].checksums if name in listed else {},
            magic=GZIP_MAGIC,
        )
        for name in names
    ]


def _num_files(prefix: str, names: Iterable[str]) -> int:
    """Return how many files a run has, all of which are among these names."""
    found = [match for name in names if (match := re.search(r"-(\d{5})-of-(\d{5})$", name))]
    if not found:
        raise AccessError(
            f"gs://{BUCKET}/{prefix}* cannot be had: the bucket has no such files (any more). "
            "Use --mirror or --source if you have a copy."
        )
    total = int(found[0][2])
    missing = set(range(total)) - {int(match[1]) for match in found if int(match[2]) == total}
    if missing:
        raise SourceError(
            f"gs://{BUCKET}/{prefix}* lacks {len(missing)} of {total} files, the first of them "
            f"number {min(missing)}. Try another --mirror or --source."
        )
    return total


def describe(source: Source) -> Description:
    """Return what the first reading finds, and a table of the episodes.

    Raises:
        SourceError: a file is damaged, or a record is not an episode.
    """
    return survey(_paths(source)).description()


def blocks(source: Source) -> Iterator[Block]:
    """Yield the steps of all episodes, as they are stored, without their pictures.

    Raises:
        SourceError: a file is damaged, or a record is not an episode.
    """
    paths = _paths(source)
    telling = survey(paths).telling
    columns = STEPS | {name: key for name, key in EXTRA.items() if name in telling}
    ready: list[dict[Key, np.ndarray]] = []
    num_ready = 0
    for path in paths:
        for episode in read_episodes(path):
            ready.append(_steps(episode, columns))
            num_ready += episode.num_steps
            if num_ready >= rows_per_block(ROW_BYTES):
                yield _joined(ready)
                ready, num_ready = [], 0
    if ready:
        yield _joined(ready)


def _steps(episode: Episode, columns: Mapping[str, Key]) -> dict[Key, np.ndarray]:
    import numpy as np

    ends = np.arange(1, episode.num_steps + 1) == episode.num_steps
    return {key: episode.columns[name] for name, key in columns.items()} | {
        ("next", "terminated"): ends & episode.terminated,
        ("next", "truncated"): ends & (not episode.terminated),
    }


def _joined(parts: list[dict[Key, np.ndarray]]) -> Block:
    import numpy as np

    return Block({key: np.concatenate([part[key] for part in parts]) for key in parts[0]})


def pictures(source: Source) -> Pictures:
    """Return the screens before all steps, a part a file.

    Raises:
        SourceError: a file is damaged, or a record is not an episode.
    """
    parts, num_steps = [], 0
    paths = _paths(source)
    for path, checkpoint in zip(paths, survey(paths).checkpoints, strict=True):
        parts.append(Part(path, num_steps))
        num_steps += checkpoint["steps"]
    return Pictures(("observation",), FRAME, parts, read_pictures)


def read_pictures(part: Part) -> Generator[Block, None, None]:
    """Yield the screens of a file.

    Raises:
        SourceError: one is damaged.
    """
    num_rows = rows_per_block(FRAME[0] * FRAME[1])
    first = part.first_step
    for episode in read_episodes(part.path):
        for start in range(0, episode.num_steps, num_rows):
            some = episode.pictures[start : start + num_rows]
            frames = decode_pictures(some, FRAME, episode.where, start)
            yield Block({("observation",): frames}, first + start)
        first += episode.num_steps


def _paths(source: Source) -> tuple[Path, ...]:
    return tuple(path for _, path in sorted(source.files.items()))
