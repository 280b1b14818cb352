"""The tasks of NeoRL-2, their two files each, and the part that its loader returns.

The md5 of all 16 files and the scores in ``catalogue.tsv`` come from ``neorl2/envs/info.py``.
The publisher states no sizes; the sizes in the table are of files with the published md5.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from datasets_cli.recipe import (
    ZIP_MAGIC,
    CatalogueEntry,
    Entries,
    Resource,
    UsageError,
    Web,
    read_bibtex,
    read_tsv,
)

HOST = "http://datasets.polixir.site/neorl2/"
SPLITS = ("train", "val")
OFFICIAL = "~official"
CUT = (
    "neorl2's loader returns only the first {train} trajectories of train and {val} of val, so "
    "published scores are of this part: neorl2/{name}~official"
)


def datasets(web: Web | None) -> Entries:
    """Return the eight tasks."""
    return Entries(_table(), _entry)


def _entry(name: str) -> CatalogueEntry:
    base, tilde, _ = name.partition("~")
    row = _table()[base]
    traps = [row["trap"]] if row["trap"] else []
    if not tilde and (cut := cut_of(f"{name}{OFFICIAL}")):
        traps.append(CUT.format(name=name, **cut))
    return CatalogueEntry(
        name,
        details={
            "url": f"{HOST}{base}/",
            "checksum": "the publisher states the md5 of both files, and no sizes",
            "ref_min_score": float(row["ref_min_score"]),
            "ref_max_score": float(row["ref_max_score"]),
            **({"known_traps": traps} if traps else {}),
        },
    )


def cut_of(name: str) -> dict[str, int]:
    """Return the number of trajectories of each split in a variant, or an empty dict for all."""
    base, tilde, _ = name.partition("~")
    most = int(_table()[base]["official"] or 0) if tilde else 0
    return {"train": most, "val": most // 4} if most else {}


def find(name: str, web: Web | None) -> CatalogueEntry | None:
    """Return the entry of the official cut of a task; None for other names."""
    base = name.removesuffix(OFFICIAL)
    return _entry(name) if base in _table() and cut_of(name) else None


def variant(name: str, options: Mapping[str, str]) -> str:
    """Return the name for ``cut=official``: a variant, unless the loader returns all rows."""
    if options.get("cut", "official") != "official":
        raise UsageError(
            f"cut={options['cut']} is not valid for neorl2/{name}. Expected cut=official.",
            argument="cut",
            expected="official",
            found=options["cut"],
        )
    official = f"{name.removesuffix(OFFICIAL)}{OFFICIAL}"
    return official if options and cut_of(official) else name


def resources(name: str, web: Web | None) -> list[Resource]:
    """Return the two files of a task."""
    base = name.partition("~")[0]
    row = _table()[base]
    return [
        Resource(
            urls=(f"{HOST}{base}/{base}-{split}.npz",),
            filename=f"{base}-{split}.npz",
            size=int(row[f"{split}_bytes"]) if row[f"{split}_bytes"] else None,
            checksums={"md5": row[f"{split}_md5"]},
            magic=ZIP_MAGIC,
        )
        for split in SPLITS
    ]


@cache
def _table() -> dict[str, dict[str, str]]:
    return {row["name"]: row for row in read_tsv(Path(__file__).with_suffix(".tsv"))}


def references(name: str) -> dict[str, str]:
    """Return the paper of NeoRL-2."""
    return read_bibtex(Path(__file__).with_name("references.bib"))
