"""The datasets that ship with the package, each a sample of a published one.

``catalogue.tsv`` lists every file: its dataset, its path in the package, its name in the recipe of
its family, its size in bytes and its sha256.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from datasets_cli.recipe import CatalogueEntry, Entries, Resource, Web, read_tsv


class Sample(NamedTuple):
    """One dataset of the demo."""

    id: str
    about: str
    licence: str
    num_transitions: int
    num_trajectories: int


SAMPLES = {
    "door-human": Sample(
        "d4rl/door-human-v0",
        "the first demonstration of D4RL's file, 300 steps",
        "CC BY 4.0",
        299,
        2,
    ),
    "door-minari": Sample(
        "minari/D4RL/door/human-v2",
        "3 of the 25 episodes of Minari's dataset",
        "Apache-2.0; derives from CC BY 4.0 material",
        900,
        3,
    ),
    "iris": Sample("openml/61", "the complete iris table as served by OpenML", "Public", 150, 150),
    "pong": Sample(
        "atari_dqn/Pong/5~ckpt0-3",
        "1,000 steps of a random player in the format of DQN Replay, 400 per checkpoint",
        "that of this package",
        999,
        2,
    ),
}


FOLDER = Path(__file__).parent / "data"


def datasets(web: Web | None) -> Entries:
    """Return the datasets that ship with the package."""
    return Entries(SAMPLES, _entry)


def _entry(name: str) -> CatalogueEntry:
    sample = SAMPLES[name]
    return CatalogueEntry(
        name,
        sum(int(row["bytes"]) for row in files_of(name)),
        sample.num_transitions,
        sample.num_trajectories,
        {"about": sample.about, "sample_of": sample.id, "licence": sample.licence},
    )


def resources(name: str, web: Web | None) -> list[Resource]:
    """Return the files of a dataset, by their paths in the package."""
    return [
        Resource((), row["path"], int(row["bytes"]), {"sha256": row["sha256"]})
        for row in files_of(name)
    ]


@cache
def files_of(name: str) -> list[dict[str, str]]:
    """Return the rows of the table for a dataset."""
    return [row for row in _table() if row["name"] == name]


@cache
def _table() -> list[dict[str, str]]:
    return read_tsv(Path(__file__).with_suffix(".tsv"))
