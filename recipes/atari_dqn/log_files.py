"""The files of a DQN Replay run: a numbered log each time its replay buffer was full.

Facts: batch_rl's ``logged_replay_buffer.py`` and dopamine's ``circular_replay_buffer.py`` of 2019.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

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
"""The number of the last log; some runs end with the one before."""
EVERY = range(LAST)
"""The numbers of the logs that every run has."""

_FILE = re.compile(rf"(?:{COUNT}|\$store\$_(?:{'|'.join(STORES)}))_ckpt\.(\d+)\.gz")


def filename(what: str, number: int) -> str:
    """Return the name of a log's file of ``COUNT`` or one of ``STORES``."""
    return f"{what if what == COUNT else f'$store$_{what}'}_ckpt.{number}.gz"


def log_numbers(names: Collection[str]) -> list[int]:
    """Return the numbers of the logs that these file names belong to, sorted."""
    return sorted({int(match[1]) for name in names if (match := _FILE.fullmatch(name))})


def published(game: str, run: int, chosen: range | None, web: Web) -> list[Resource]:
    """Return the files of a run in the bucket, from its list or by requesting each."""
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
            numbers = _probe(chosen, lambda name: web.has(object_url(BUCKET, folder + name)))
        except AccessError:
            numbers = []
        if not numbers:
            raise refusal
    if not numbers:
        raise AccessError(
            f"gs://{BUCKET}/{folder} is empty: the bucket does not have this run.",
            path=f"gs://{BUCKET}/{folder}",
        )
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
    """Return the files of a run in a folder, or below an address, of the user."""
    names = place.names()
    numbers = _probe(chosen, place.has) if names is None else log_numbers(names)
    if not numbers:
        first = filename(COUNT, chosen.start if chosen else 0)
        raise UsageError(
            f"{place} has no {first}.",
            argument="source",
            path=str(place),
            expected=first,
            advice="Pass the folder of a run's files under their published names (replay_logs).",
        )
    return [
        Resource(urls=(name,), filename=name, magic=GZIP_MAGIC)
        for name in _files(numbers, chosen, names or (), str(place))
    ]


def _probe(chosen: range | None, has: Callable[[str], bool]) -> list[int]:
    """Return the numbers of the existing logs by requesting each."""
    # A choice may be long: it is requested up to the first missing log. Without a choice, all are
    # requested, so that the message can name the missing ones.
    numbers: list[int] = []
    for number in range(LAST + 1) if chosen is None else chosen:
        try:
            found = has(filename(COUNT, number))
        except AccessError:
            if not numbers:
                raise
            found = False  # the mirror does not have it, and the bucket denies access
        if found:
            numbers.append(number)
        elif chosen is not None:
            break
    return numbers


def _check_whole(numbers: list[int], names: Collection[str], where: str) -> None:
    """Reject an incomplete run."""
    lacking = [number for number in EVERY if number not in numbers]
    surplus = [number for number in numbers if number > LAST]
    if not (lacking or surplus):
        return
    differs = [f"does not have {_ranges(lacking)}"] if lacking else []
    differs += [f"has {_ranges(surplus)}"] if surplus else []
    complete = [
        number
        for number in numbers
        if number <= LAST and not (names and _missing_files([number], names))
    ]
    remedy = "Complete it"
    if complete:
        longest = max(_runs(complete), key=len)
        remedy += (
            ", or install the existing checkpoints as a separate dataset: --checkpoints "
            f"{longest.start}:{longest.stop}"
        )
    raise SourceError(
        f"{where} {' and '.join(differs)} of the checkpoints; a whole run has 0 to "
        f"{EVERY[-1]}, and some have {LAST}.",
        path=where,
        expected=list(EVERY),
        found=numbers,
        advice=f"{remedy}.",
    )


def _runs(numbers: list[int]) -> list[range]:
    """Return sorted numbers as contiguous ranges."""
    found: list[range] = []
    for number in numbers:
        if found and number == found[-1].stop:
            found[-1] = range(found[-1].start, number + 1)
        else:
            found.append(range(number, number + 1))
    return found


def _ranges(numbers: list[int]) -> str:
    """Return sorted numbers as text: ``3, 5 to 9``."""
    return ", ".join(
        str(run.start) if len(run) == 1 else f"{run.start} to {run.stop - 1}"
        for run in _runs(numbers)
    )


def _missing_files(numbers: list[int], names: Collection[str]) -> list[str]:
    """Return the files of some logs that are not among ``names``, sorted."""
    files = {filename(what, number) for number in numbers for what in (COUNT, *STORES)}
    return sorted(files - set(names))


def _files(
    numbers: list[int], chosen: range | None, names: Collection[str], where: str
) -> list[str]:
    """Return the names of the files to fetch; ``names`` are the files in a list, if any."""
    if chosen is None:
        _check_whole(numbers, names, where)
    wanted = [number for number in numbers if chosen is None or number in chosen]
    sought = range(chosen.start, min(chosen.stop, LAST + 2)) if chosen else ()
    lacking = [number for number in sought if number not in (*wanted, LAST)]
    if lacking or not wanted:
        assert chosen is not None
        listed = ", ".join(map(str, lacking[:5])) + (" …" if lacking[5:] else "")
        raise UsageError(
            f"{where} has the checkpoints {numbers[0]} to {numbers[-1]}, and lacks "
            f"{listed or chosen.start} of --checkpoints {chosen.start}:{chosen.stop}.",
            argument="checkpoints",
            path=where,
            expected=list(chosen[:LAST]),
            found=numbers,
            advice="Choose fewer, or complete it.",
        )
    files = [filename(what, number) for number in wanted for what in (COUNT, *STORES)]
    if names and (missing := _missing_files(wanted, names)):
        raise SourceError(
            f"{where} lacks {missing[0]}"
            + (f" and {len(missing) - 1} more files" if missing[1:] else "")
            + ", though it has others of the same checkpoint.",
            path=where,
            expected=missing[0],
            advice="Complete it, or choose other checkpoints with --checkpoints.",
        )
    return files
