"""The datasets that D4RL has published, and their files.

Sizes and sha256 in ``catalogue.tsv`` are tensorflow/datasets' records of the Berkeley server. Any
content of a file without a record is accepted.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from datasets_cli.recipe import (
    HDF5_MAGIC,
    CatalogueEntry,
    Content,
    Entries,
    Resource,
    Web,
    read_bibtex,
    read_tsv,
)

from .traps import trap_rules, traps_of

BERKELEY = "http://rail.eecs.berkeley.edu/datasets/offline_rl/"
HUGGING_FACE = "https://huggingface.co/datasets/imone/D4RL/resolve/main/"
ENVIRONMENTS = {"halfcheetah": "HalfCheetah-v4", "hopper": "Hopper-v4", "walker2d": "Walker2d-v4"}
"""Gymnasium's successors of the recorded ``-v2``; ``-v5`` has other rewards and bodies."""
OLDER = "as first published, before D4RL 1.2.0"


def datasets(web: Web | None) -> Entries:
    """Return the published ids; D4RL has no catalogue online."""
    return Entries(_table(), _entry)


def _entry(name: str) -> CatalogueEntry:
    row = _table()[name]
    return CatalogueEntry(
        name=name,
        size=int(row["bytes"]) if row["bytes"] else None,
        details={
            "url": BERKELEY + row["path"],
            "max_episode_steps": int(row["max_episode_steps"] or 0) or None,
            "ref_min_score": float(row["ref_min_score"]) if row["ref_min_score"] else None,
            "ref_max_score": float(row["ref_max_score"]) if row["ref_max_score"] else None,
            **(
                {"environment": known}
                if (known := ENVIRONMENTS.get(name.partition("-")[0]))
                else {}
            ),
            **({"known_traps": traps} if (traps := traps_of(name)) else {}),
            **({"trap_rules": rules} if (rules := trap_rules(name)) else {}),
        },
    )


def resources(name: str, web: Web | None) -> list[Resource]:
    """Return the dataset's one file, at Berkeley and at its Hugging Face mirror."""
    row = _table()[name]
    filename = row["path"].rpartition("/")[2]
    older = Content(int(row["older_bytes"] or 0), {"sha256": row["older_sha256"]}, OLDER)
    return [
        Resource(
            urls=(BERKELEY + row["path"], HUGGING_FACE + filename),
            filename=filename,
            size=int(row["bytes"]) if row["bytes"] else None,
            checksums={"sha256": row["sha256"]} if row["sha256"] else {},
            older=(older,) if row["older_sha256"] else (),
            magic=HDF5_MAGIC,
        )
    ]


@cache
def _table() -> dict[str, dict[str, str]]:
    return {row["name"]: row for row in read_tsv(Path(__file__).with_suffix(".tsv"))}


def references(name: str) -> dict[str, str]:
    """Return D4RL's paper."""
    return read_bibtex(Path(__file__).with_name("references.bib"))
