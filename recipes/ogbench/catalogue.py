"""The datasets of OGBench, their files, and their variants that its loader computes.

``catalogue.tsv`` has the numbers of ``data_gen_scripts/commands.sh``: the trajectories of the
training file, and the rows of each. The validation file has a tenth as many trajectories.
``facts.tsv`` has the goals of the tasks, with the line of ogbench 1.2.2 that states each one.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from datasets_cli.recipe import (
    ZIP_MAGIC,
    CatalogueEntry,
    Entries,
    Resource,
    Web,
    read_bibtex,
    read_tsv,
)

BERKELEY = "https://rail.eecs.berkeley.edu/datasets/ogbench/"
HUGGING_FACE = "https://huggingface.co/datasets/zhouzypaul/ogbench_datasets/resolve/main/"
"""A copy that OGBench's author names (issue 49); whether it is complete is not known."""
SPLITS = {"train": "", "val": "-val"}
NO_CHECKSUM = "the publisher states neither sizes nor checksums; any content is accepted"

TARGETS = ("xy", "cubes", "buttons", "drawer", "window", "tolerance")

STATE_OF_THE_ROW = (
    "the reward and the end of a step depend on the state before its action, as in the "
    "environments of ogbench 1.2.0 and later; environments of ogbench 1.1 reward the state after "
    "it (README of ogbench, Caveats)"
)
STAYS_AT_THE_GOAL = (
    "the recording continues at the goal, so each step there is a terminated trajectory of one "
    "step; the dataset without -singletask has the trajectories as collected (README of ogbench)"
)
NEVER_SOLVED = "no row of the data solves this task: no step is terminated (issue 26)"


class Variant(NamedTuple):
    """The meaning of a name: files, and the columns that OGBench's loader computes from them.

    ``environment`` is the name of the environment without ``visual-`` and version, such as
    ``cube-single``. ``task`` is the number of the rewarded task, or None.
    """

    base: str
    environment: str
    task: int | None = None
    has_oracle_reps: bool = False

    @property
    def is_computed(self) -> bool:
        """Whether it has columns that are not in the files."""
        return self.task is not None or self.has_oracle_reps


def datasets(web: Web | None) -> Entries:
    """Return the published names; OGBench has no catalogue online."""
    return Entries(variants(), _entry)


def find(name: str, web: Web | None) -> CatalogueEntry | None:
    """Return the entry of a name without a task number, which means the default task."""
    stem = name.removesuffix("-v0")
    for row in tasks() if stem.endswith("-singletask") else ():
        numbered = f"{stem}-task{row['task']}-v0"
        variant = variants().get(numbered)
        if row["default"] and variant and variant.environment == row["environment"]:
            return _entry(numbered)
    return None


@cache
def variants() -> dict[str, Variant]:
    """Return the meaning of each name; Powderworld has no tasks."""
    found = {}
    for base in _table():
        environment = re.sub("^visual-", "", base).rsplit("-", 2)[0]
        found[base] = Variant(base, environment)
        stem, version = base.rsplit("-", 1)
        for row in tasks():
            if row["environment"] == environment:
                task = int(row["task"])
                name = f"{stem}-singletask-task{task}-{version}"
                found[name] = Variant(base, environment, task)
                found[f"{stem}-oraclerep-{version}"] = Variant(base, environment, None, True)
    return found


def task_of(variant: Variant) -> dict[str, str]:
    """Return the row of ``facts.tsv`` about the task of a variant, or about the first task."""
    number = str(variant.task or 1)
    rows = (row for row in tasks() if row["environment"] == variant.environment)
    return next(row for row in rows if row["task"] == number)


def resources(name: str, web: Web | None) -> list[Resource]:
    """Return the training file and the validation file, at Berkeley and at Hugging Face."""
    filenames = [f"{_stem(name)}{suffix}.npz" for suffix in SPLITS.values()]
    return [
        Resource(
            urls=(BERKELEY + filename, HUGGING_FACE + filename),
            filename=filename,
            magic=ZIP_MAGIC,
        )
        for filename in filenames
    ]


def references(name: str) -> dict[str, str]:
    """Return OGBench's paper."""
    return read_bibtex(Path(__file__).with_name("references.bib"))


def _entry(name: str) -> CatalogueEntry:
    variant = variants()[name]
    row = _table()[variant.base]
    num_train, num_transitions = int(row["train_trajectories"]), int(row["rows_each"]) - 1
    num_trajectories = num_train + num_train // 10
    return CatalogueEntry(
        name=name,
        num_transitions=num_trajectories * num_transitions,
        num_trajectories=None if variant.task else num_trajectories,
        details=_details(name, variant),
    )


def _details(name: str, variant: Variant) -> dict[str, Any]:
    environment, _, version = re.sub("-oraclerep", "", name).rpartition("-")
    data_type = variant.base.rsplit("-", 2)[1]
    details: dict[str, Any] = {
        "url": f"{BERKELEY}{_stem(name)}.npz",
        "checksum": NO_CHECKSUM,
        "environment": f"ogbench:{environment.replace(f'-{data_type}', '', 1)}-{version}",
    }
    if variant.task is None:
        return details
    row = task_of(variant)
    targets = [f"{key} {row[key]}" for key in TARGETS if row[key]]
    details["goal"] = f"{', '.join(targets)} (ogbench 1.2.2, {row['source']})"
    never = [NEVER_SOLVED] if variant.environment == "puzzle-4x4" and variant.task == 1 else []
    details["known_traps"] = [STATE_OF_THE_ROW, STAYS_AT_THE_GOAL, *never]
    details["trap_rules"] = {STAYS_AT_THE_GOAL: ("terminal-run",)}
    return details


def _stem(name: str) -> str:
    return variants()[name].base


@cache
def tasks() -> list[dict[str, str]]:
    """Return the rows of ``facts.tsv``, a task each."""
    return read_tsv(Path(__file__).with_name("facts.tsv"))


@cache
def _table() -> dict[str, dict[str, str]]:
    return {row["name"]: row for row in read_tsv(Path(__file__).with_suffix(".tsv"))}
