"""The datasets of robomimic 0.1, and their files.

Sizes and sha256 in ``catalogue.tsv`` are tensorflow/datasets' records of Stanford's server.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from datasets_cli.recipe import (
    HDF5_MAGIC,
    CatalogueEntry,
    Entries,
    Resource,
    Web,
    read_bibtex,
    read_tsv,
)

STANFORD = "http://downloads.cs.stanford.edu/downloads/rt_benchmark/"


def datasets(web: Web | None) -> Entries:
    """Return the published ids; robomimic has no catalogue online."""
    return Entries(_table(), _entry)


def _entry(name: str) -> CatalogueEntry:
    row = _table()[name]
    horizon = {"horizon": int(row["horizon"])} if row["horizon"] else {}
    details = {"url": f"{STANFORD}{name}.hdf5", **horizon}
    return CatalogueEntry(name, size=int(row["bytes"]), details=details)


def resources(name: str, web: Web | None) -> list[Resource]:
    """Return the dataset's one file; a file of another name has no known checksum."""
    row, filename = _table().get(name), f"{name.rpartition('/')[2]}.hdf5"
    if row is None:
        return [Resource((), filename, magic=HDF5_MAGIC)]
    url, checksums = f"{STANFORD}{name}.hdf5", {"sha256": row["sha256"]}
    return [Resource((url,), filename, int(row["bytes"]), checksums, magic=HDF5_MAGIC)]


@cache
def _table() -> dict[str, dict[str, str]]:
    return {row["name"]: row for row in read_tsv(Path(__file__).with_suffix(".tsv"))}


def references(name: str) -> dict[str, str]:
    """Return robomimic's paper."""
    return read_bibtex(Path(__file__).with_name("references.bib"))
