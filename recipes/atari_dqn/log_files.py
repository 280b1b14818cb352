"""The files of a DQN Replay run: a numbered log each time its replay buffer was full.

Facts: batch_rl's ``logged_replay_buffer.py`` and dopamine's ``circular_replay_buffer.py`` of 2019.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from itertools import count

from datasets_cli.formats.gzip import GZIP_MAGIC
from datasets_cli.recipe import (
    AccessError,
    BucketObject,
    NetworkError,
    Place,
    Resource,
    SourceError,
    UsageError,
    Web,
    list_objects,
    may_lack_list,
    object_url,
)

BUCKET = "atari-replay-datasets"
COUNT = "add_count"
STORES = ("observation", "action", "reward", "terminal")
LAST = 50
"""Number of the last log that any run has; some end with the one before."""

_FILE = re.compile(rf"(?:{COUNT}|\$store\$_(?:{'|'.join(STORES)}))_ckpt\.(\d+)\.gz")


def filename(what: str, number: int) -> str:
    """Return the name of a log's file of ``COUNT`` or one of ``STORES``."""
    return f"{what if what == COUNT else f'$store$_{what}'}_ckpt.{number}.gz"


def log_numbers(names: Collection[str]) -> list[int]:
    """Return the numbers of the logs that these file names belong to, sorted."""
    return sorted({int(match[1]) for name in names if (match := _FILE.fullmatch(name))})


def published(game: str, run: int, chosen: range | None, web: Web) -> list[Resource]:
    """Return the files of a run in the bucket: those of its list, or found by asking for them.

    Args:
        game: its name in the bucket.
        run: 1 to 5.
        chosen: numbers of the logs that are wanted; all where None.
        web: the network; a mirror may have the files alone, and no list.

    Raises:
        AccessError: the bucket is closed, or has nothing of this run.
        NetworkError: no answer.
        SourceError: a log is not complete.
        UsageError: it has logs, but not all of the chosen ones.
    """
    folder = f"dqn/{game}/{run}/replay_logs/"
    listed: dict[str, BucketObject] = {}
    try:
        objects = list_objects(BUCKET, folder, web)
        listed = {item.name.removeprefix(folder): item for item in objects}
        numbers = log_numbers(listed)
    except (AccessError, NetworkError) as refusal:
        if not may_lack_list(refusal, object_url(BUCKET, folder), web):
            raise
        try:
            numbers = _ask(chosen, lambda name: web.has(object_url(BUCKET, folder + name)))
        except AccessError:
            numbers = []
        if not numbers:
            raise refusal
    if not numbers:
        raise AccessError(f"gs://{BUCKET}/{folder} is empty: the bucket has no such run.")
    return [
        Resource(
            urls=(object_url(BUCKET, folder + name),),
            filename=name,
            size=listed[name].size if name in listed else None,
            checksums=listed[name].checksums if name in listed else {},
            magic=GZIP_MAGIC,
        )
        for name in _files(numbers, chosen, listed, f"gs://{BUCKET}/{folder}")
    ]


def placed(place: Place, chosen: range | None) -> list[Resource]:
    """Return the files of a run in a folder, or below a URL, of the user's own.

    Raises:
        SourceError: a log is not complete.
        UsageError: there is no log, or not all of the chosen ones.
    """
    names = place.names()
    numbers = _ask(chosen, place.has) if names is None else log_numbers(names)
    if not numbers:
        first = filename(COUNT, chosen.start if chosen else 0)
        raise UsageError(
            f"{place} has no {first}. Give the place that holds a run's files under their own "
            "names, which the publisher calls replay_logs."
        )
    return [
        Resource(urls=(name,), filename=name, magic=GZIP_MAGIC)
        for name in _files(numbers, chosen, names or (), str(place))
    ]


def _ask(chosen: range | None, has: Callable[[str], bool]) -> list[int]:
    """Return the numbers of the logs up to the first that is not there."""
    numbers: list[int] = []
    for number in chosen or count():
        try:
            if not has(filename(COUNT, number)):
                break
        except AccessError:
            if not numbers:
                raise
            break  # the mirror has no more, and after it the bucket is asked, which is closed
        numbers.append(number)
    return numbers


def _files(
    numbers: list[int], chosen: range | None, names: Collection[str], where: str
) -> list[str]:
    """Return the names of the files to fetch; ``names`` are those known to be there, if any."""
    wanted = [number for number in numbers if chosen is None or number in chosen]
    sought = range(chosen.start, min(chosen.stop, LAST + 2)) if chosen else ()
    lacking = [number for number in sought if number not in (*wanted, LAST)]
    if lacking or not wanted:
        assert chosen is not None
        listed = ", ".join(map(str, lacking[:5])) + (" …" if lacking[5:] else "")
        raise UsageError(
            f"{where} has the checkpoints {numbers[0]} to {numbers[-1]}, and lacks "
            f"{listed or chosen.start} of --checkpoints {chosen.start}:{chosen.stop}. Take fewer, "
            "or complete it."
        )
    files = [filename(what, number) for number in wanted for what in (COUNT, *STORES)]
    if names and (missing := sorted(set(files) - set(names))):
        raise SourceError(
            f"{where} lacks {missing[0]}"
            + (f" and {len(missing) - 1} more files" if missing[1:] else "")
            + ", though others of the same checkpoint are there. Complete it, or take other "
            "checkpoints with --checkpoints."
        )
    return files
