"""The datasets of robomimic, MimicGen and LIBERO, and their files.

Sizes and sha256 of robomimic 0.1 in ``catalogue.tsv`` are tensorflow/datasets' records of
Stanford's server. Hugging Face states those of all other files.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from datasets_cli.recipe import (
    HDF5_MAGIC,
    AccessError,
    CatalogueEntry,
    Entries,
    Resource,
    Web,
    read_bibtex,
    read_tsv,
)

STANFORD = "http://downloads.cs.stanford.edu/downloads/rt_benchmark/"
HUGGING_FACE = "https://huggingface.co/"
REPOSITORIES = {
    "v1.5/": ("robomimic/robomimic_datasets", "v1.5/"),
    "mimicgen/": ("amandlek/mimicgen_datasets", ""),
    "libero/": ("yifengzhu-hf/LIBERO-datasets", ""),
}
"""For the start of a name, the repository on Hugging Face and the folder in it."""
PAPERS = {"mimicgen": "mandlekar2023mimicgen", "libero": "liu2023libero"}
SUFFIX = ".hdf5"


def datasets(web: Web | None) -> Iterable[CatalogueEntry]:
    """Return the datasets of robomimic 0.1; online, those on Hugging Face too."""
    known = Entries(_table(), _entry)
    if web is None:
        return known
    files = (_list(start, "", web, "?recursive=true") for start in REPOSITORIES)
    return [*known, *(_entry_of(*each) for found in files for each in sorted(found.items()))]


def _entry(name: str) -> CatalogueEntry:
    row = _table()[name]
    horizon = {"horizon": int(row["horizon"])} if row["horizon"] else {}
    details = {"url": f"{STANFORD}{name}{SUFFIX}", **horizon}
    return CatalogueEntry(name, size=int(row["bytes"]), details=details)


def find(name: str, web: Web | None) -> CatalogueEntry | None:
    """Return the entry of a file on Hugging Face."""
    file = _file(name, web) if web else None
    return _entry_of(name, file) if file else None


def resources(name: str, web: Web | None) -> list[Resource]:
    """Return the dataset's one file; with ``--source``, no checksum of an unlisted one is known."""
    row, filename = _table().get(name), f"{name.rpartition('/')[2]}{SUFFIX}"
    if row:
        url, size, checksums = (
            f"{STANFORD}{name}{SUFFIX}",
            int(row["bytes"]),
            {"sha256": row["sha256"]},
        )
        return [Resource((url,), filename, size, checksums, magic=HDF5_MAGIC)]
    if web is None or not (file := _file(name, web)):
        return [Resource((), filename, magic=HDF5_MAGIC)]
    checksums = {"sha256": file["lfs"]["oid"]} if file.get("lfs") else {}
    return [Resource((_url(name),), filename, int(file["size"]), checksums, magic=HDF5_MAGIC)]


def _file(name: str, web: Web) -> dict[str, Any] | None:
    """Return what Hugging Face states of a dataset's file."""
    start = next(filter(name.startswith, REPOSITORIES), None)
    if start is None:
        return None
    folder = name.removeprefix(start).rpartition("/")[0]
    try:
        return _list(start, folder, web).get(name)
    except AccessError as error:
        if error.missing:
            return None
        raise


def _list(start: str, folder: str, web: Web, query: str = "") -> dict[str, dict[str, Any]]:
    """Return the files of a folder on Hugging Face, by the names of datasets."""
    repository, top = REPOSITORIES[start]
    address = f"{HUGGING_FACE}api/datasets/{repository}/tree/main/{top}{folder}".rstrip("/")
    entries = chain.from_iterable(web.pages(f"{address}{query}"))
    files = {str(entry["path"]): entry for entry in entries}
    return {
        start + path.removeprefix(top).removesuffix(SUFFIX): entry
        for path, entry in files.items()
        if path.endswith(SUFFIX)
    }


def _entry_of(name: str, file: dict[str, Any]) -> CatalogueEntry:
    return CatalogueEntry(name, size=int(file["size"]), details={"url": _url(name)})


def _url(name: str) -> str:
    start = next(filter(name.startswith, REPOSITORIES))
    repository, top = REPOSITORIES[start]
    path = f"{top}{name.removeprefix(start)}{SUFFIX}"
    return f"{HUGGING_FACE}datasets/{repository}/resolve/main/{path}"


@cache
def _table() -> dict[str, dict[str, str]]:
    return {row["name"]: row for row in read_tsv(Path(__file__).with_suffix(".tsv"))}


def references(name: str) -> dict[str, str]:
    """Return the paper of the publisher."""
    entries = read_bibtex(Path(__file__).with_name("references.bib"))
    key = PAPERS.get(name.partition("/")[0], "mandlekar2021robomimic")
    return {key: entries[key]}
