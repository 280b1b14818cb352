"""RL Unplugged's datasets, DROID and Open X-Embodiment's, and their files in public buckets.

No list of all datasets is published, so ``tfds/bridge`` is found in the bucket: the newest version.
Sizes and checksums are those of the bucket's list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from datasets_cli.formats.gzip import GZIP_MAGIC
from datasets_cli.recipe import (
    AccessError,
    BucketObject,
    CatalogueEntry,
    Entries,
    NetworkError,
    Place,
    Resource,
    SourceError,
    Web,
    count_shards,
    list_objects,
    may_lack_list,
    object_url,
    read_bibtex,
)

FEATURES, DATASET_INFO = "features.json", "dataset_info.json"
BUCKETS = {"gresearch": "robotics/", "gdm-robotics-open-x-embodiment": ""}
"""The buckets of Open X-Embodiment, each with the folder of its datasets."""
UNPLUGGED = "rl_unplugged"
SUITE, LOCOMOTION, REAL_WORLD = "rlu_control_suite", "rlu_locomotion", "rlu_rwrl"
PLACES = {
    SUITE: ("dm_control_suite_episodes", "train"),
    LOCOMOTION: ("dm_locomotion_episodes", "train"),
    REAL_WORLD: ("rwrl", "episodes.tfrecord"),
}
"""The folder of each part of RL Unplugged, and the beginning of its files."""
NUM_FILES = 100
"""The number of files of each dataset of the control suite and of locomotion."""
TASKS = {
    SUITE: "cartpole_swingup cheetah_run finger_turn_hard fish_swim humanoid_run "
    "manipulator_insert_ball manipulator_insert_peg walker_stand walker_walk",
    LOCOMOTION: "humanoid_corridor humanoid_gaps humanoid_walls rodent_bowl_escape rodent_gaps "
    "rodent_mazes rodent_two_touch",
    REAL_WORLD: " ".join(
        f"combined_challenge_{difficulty}/{task}/{percent}_percent"
        for difficulty in ("none", "easy")
        for task in ("cartpole/swingup", "quadruped/walk", "walker/walk", "humanoid/walk")
        for percent in (1, 5, 20, 40, 100)
    ),
}
DROID = ("droid/1.0.0", "droid_100/1.0.0")
NAMES = (*DROID, *(f"{part}/{task}" for part, tasks in TASKS.items() for task in tasks.split()))
VERSION = r"\d+\.\d+\.\d+"
CHECKSUM = "none in the catalogue; size and MD5 are those of the bucket's list at the download"
TRAPS = {
    "droid": "about a third of the episodes has no instruction, and about 70 % of the frames are "
    "idle (droid-dataset/droid issues 3 and 82); only the path states failures: info.success",
    LOCOMOTION: "an episode ends with a discount of 1 even if the walker fell",
    REAL_WORLD: "TFDS marks every episode as terminal; all of 1,000 steps are time limits",
}


def is_unplugged(name: str) -> bool:
    """Return whether a dataset is one of RL Unplugged's."""
    return name.partition("/")[0] in PLACES


def datasets(web: Web | None) -> Entries:
    """Return DROID and RL Unplugged's datasets; ``find`` has all others."""
    return Entries(NAMES, _entry)


def _entry(name: str) -> CatalogueEntry:
    head = name.partition("/")[0]
    trap = TRAPS.get(head.partition("_")[0] if head.startswith("droid") else head)
    return CatalogueEntry(
        name, details={"checksum": CHECKSUM} | ({"known_traps": [trap]} if trap else {})
    )


def find(name: str, web: Web | None) -> CatalogueEntry | None:
    """Return the entry of ``bridge/0.1.0``, or of the newest version of ``bridge``."""
    if re.fullmatch(rf"\w+/{VERSION}", name) and not is_unplugged(name):
        return _entry(name)
    if web is None or not re.fullmatch(r"\w+", name):
        return None
    lists = [_listed(bucket, f"{folder}{name}/", web) for bucket, folder in BUCKETS.items()]
    if lists == [None] * len(BUCKETS):
        raise AccessError(
            f"The newest version of {name} is unknown: the buckets deny access to their lists.",
            advice=f"Write a version, such as tfds/{name}/1.0.0.",
        )
    found = {each.partition("/")[0] for listed in lists for each in listed or ()}
    versions = [version for version in found if re.fullmatch(VERSION, version)]
    newest = max(versions, key=lambda text: [*map(int, text.split("."))], default=None)
    return _entry(f"{name}/{newest}") if newest else None


def resources(name: str, web: Web | None) -> list[Resource]:
    """Return the files of a dataset that its bucket lists, or that its own documents name."""
    assert web is not None, "files under --source are found by resources_at"
    if is_unplugged(name):
        return _unplugged(name, _listed(UNPLUGGED, _prefix(name), web))
    for bucket, folder in BUCKETS.items():
        prefix = f"{folder}{name}/"
        listed = _listed(bucket, prefix, web)
        try:
            names = _names(web.json(object_url(bucket, f"{prefix}{DATASET_INFO}")))
        except AccessError:
            if bucket == [*BUCKETS][-1]:
                raise
        else:
            break
    return [_resource(bucket, prefix, each, listed) for each in names]


def _names(info: Any) -> list[str]:
    """Return the names of all files, given the content of ``dataset_info.json``."""
    return [DATASET_INFO, FEATURES, *(name for _, name, _ in shards_of(info))]


def resources_at(name: str, place: Place) -> list[Resource]:
    """Return the files of a dataset under ``--source``."""
    if is_unplugged(name):
        names = place.names()
        return _unplugged(name, None if names is None else dict.fromkeys(names))
    info = place.json(DATASET_INFO)
    filenames = _names(info)
    _check_name(name, info)
    return [Resource(urls=(), filename=each) for each in filenames]


def _check_name(name: str, info: Mapping[str, str]) -> None:
    """Reject the document of another dataset, or of another version."""
    expected = dict(zip(("name", "version"), name.split("/"), strict=True))
    found = {key: info[key] for key in expected if info.get(key, expected[key]) != expected[key]}
    if found:
        listed = ", ".join(f"{key} {value!r}" for key, value in found.items())
        raise SourceError(
            f"{DATASET_INFO} under --source is not that of {name}: found {listed}.",
            path=DATASET_INFO,
            expected={key: expected[key] for key in found},
            found=found,
            advice="Use the name and the version of this file, or choose another folder.",
        )


def shards_of(info: Any) -> list[tuple[str, str, int]]:
    """Return split, name and number of records of each file that ``dataset_info.json`` names."""
    try:
        if (format := info.get("fileFormat", "tfrecord")) != "tfrecord":
            raise SourceError(
                f"The files of this dataset are {format} files; expected TFRecord files.",
                path=DATASET_INFO,
                expected="tfrecord",
                found=format,
                advice="Write it again with tensorflow_datasets and file_format='tfrecord'.",
            )
        return [
            (str(split["name"]), f"{info['name']}-{split['name']}.tfrecord-{part}", int(length))
            for split in info["splits"]
            for part, length in _parts(split["shardLengths"])
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SourceError(
            f"{DATASET_INFO} is not that of an RLDS dataset: expected name, and splits with name "
            f"and shardLengths ({type(error).__name__}: {error}).",
            path=DATASET_INFO,
            expected=["name", "splits"],
            found=str(error),
        ) from error


def _parts(lengths: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the end of each file's name, and its number of records."""
    for number, length in enumerate(lengths):
        yield f"{number:05d}-of-{len(lengths):05d}", length


def _prefix(name: str) -> str:
    part, _, task = name.partition("/")
    folder, file = PLACES[part]
    return f"{folder}/{task}/{file}-"


def _listed(bucket: str, prefix: str, web: Web) -> dict[str, BucketObject] | None:
    """Return the files of a folder by name; None if they may exist, but not their list."""
    try:
        listed = list_objects(bucket, prefix, web)
    except (AccessError, NetworkError) as error:
        if not may_lack_list(error, object_url(bucket, prefix), web):
            raise
        return None
    folder = prefix.rpartition("/")[0]
    return {item.name.removeprefix(f"{folder}/"): item for item in listed}


def _unplugged(name: str, listed: Mapping[str, BucketObject | None] | None) -> list[Resource]:
    folder, _, start = _prefix(name).rpartition("/")
    names = [each for each in listed or () if re.fullmatch(rf"{re.escape(start)}\d+-of-\d+", each)]
    if listed is None and name.startswith(REAL_WORLD):
        raise AccessError(
            f"gs://{UNPLUGGED}/{folder} has no list of its files, whose number is not published.",
            advice="Use --source with a folder that contains the files.",
        )
    total = (
        NUM_FILES if listed is None else count_shards(names, f"gs://{UNPLUGGED}/{_prefix(name)}")
    )
    names = [f"{start}{number:05d}-of-{total:05d}" for number in range(total)]
    magic = b"" if name.startswith(REAL_WORLD) else GZIP_MAGIC
    return [
        replace(_resource(UNPLUGGED, f"{folder}/", each, listed), magic=magic) for each in names
    ]


def _resource(
    bucket: str, prefix: str, name: str, listed: Mapping[str, BucketObject | None] | None
) -> Resource:
    item = (listed or {}).get(name)
    return Resource(
        urls=(object_url(bucket, f"{prefix}{name}"),),
        filename=name,
        size=item.size if item else None,
        checksums=item.checksums if item else {},
    )


def references(name: str) -> dict[str, str]:
    """Return the paper of RL Unplugged, DROID, or Open X-Embodiment."""
    papers = read_bibtex(Path(__file__).with_name("references.bib"))
    head = name.partition("/")[0]
    key = "rlunplugged" if is_unplugged(name) else "droid" if "droid" in head else "openx"
    return {cite: text for cite, text in papers.items() if key in cite}
