"""The datasets of Farama and the community on Hugging Face, and their files.

The table ``catalogue.tsv`` is from Minari's documentation of April 2026. The first part of a name
is a repository on Hugging Face, the rest a folder in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from datasets_cli.recipe import (
    HDF5_MAGIC,
    AccessError,
    CatalogueEntry,
    Entries,
    NetworkError,
    Place,
    Resource,
    SourceError,
    UsageError,
    Web,
    install_extra,
    may_lack_list,
    read_bibtex,
    read_tsv,
)

HUGGING_FACE = "https://huggingface.co/"
OWNER = "farama-minari"
METADATA = "metadata.json"
DATA = "main_data.hdf5"
HDF5 = "hdf5"
ARROW_FORMATS = {"arrow": b"ARROW1", "parquet": b"PAR1"}
"""The formats of the form with a folder for each episode, and the first bytes of their files."""


def datasets(web: Web | None) -> Iterable[CatalogueEntry]:
    """Return the documented datasets; online, Farama's current ones and the community's."""
    known = Entries(_table(), _entry)
    if web is None:
        return known
    found = {entry.name: entry for entry in known if entry.name.startswith("community/")}
    pages = web.pages(f"{HUGGING_FACE}api/datasets?author={OWNER}")
    for repository in chain.from_iterable(pages):
        found |= {entry.name: entry for entry in _published(str(repository["id"]), web)}
    return [known.get(name) or entry for name, entry in sorted(found.items())]


def resources(name: str, web: Web | None) -> list[Resource]:
    """Return the dataset's files, pinned to a commit if Hugging Face answers."""
    repository, folder = _remote(name)
    listing = f"{HUGGING_FACE}api/datasets/{repository}"
    revision = "main"
    files: dict[str, Any] | None = None
    if web is not None:
        try:
            revision = web.json(listing)["sha"]
            files = _list(listing, revision, f"{folder}data", web)
        except (AccessError, NetworkError) as error:
            if not may_lack_list(error, f"{HUGGING_FACE}datasets/{repository}/", web):
                raise
            revision = "main"  # a plain mirror of the files has no API
        except (KeyError, TypeError) as error:
            raise SourceError(
                f"{listing} did not answer like Hugging Face.", advice="Check --mirror."
            ) from error
    # A mirror may have only the files of the main branch; size and sha256 reveal a change.
    bases = [
        f"{HUGGING_FACE}datasets/{repository}/resolve/{name}/{folder}data/"
        for name in dict.fromkeys((revision, "main"))
    ]
    if web is None or DATA in (files or ()):
        return _hdf5_resources(bases, files or {})
    if files is None:
        try:
            published = web.json(f"{bases[-1]}{METADATA}")
        except (AccessError, NetworkError):
            published = None  # the download reports the problem
        return _resources_of(name, published, bases)
    if METADATA not in files or not any(file.isdecimal() for file in files):
        raise _of_another_form(name, sorted(files)[:5])
    # With the files in the folders of the episodes.
    files = _list(listing, revision, f"{folder}data", web, "?recursive=true")
    return _arrow_resources(name, web.json(f"{bases[0]}{METADATA}"), bases, files)


def _of_another_form(name: str, found: list[str]) -> SourceError:
    return SourceError(
        f"minari/{name} is not published as HDF5, nor in Minari's Arrow form: expected {DATA}, or "
        f"{METADATA} and a folder for each episode, found {', '.join(found) or 'nothing'}.",
        id=f"minari/{name}",
        expected=[DATA, METADATA],
        found=found,
    )


def resources_at(name: str, place: Place) -> list[Resource]:
    """Return the files of the form that ``metadata.json`` names in the place of ``--source``."""
    try:
        published = place.json(METADATA)
    except (ValueError, NetworkError):
        published = None  # not JSON: the check of its first bytes reports it better
    return _resources_of(name, published, [])


@cache
def _table() -> dict[str, dict[str, str]]:
    return {row["name"]: row for row in read_tsv(Path(__file__).with_suffix(".tsv"))}


def _entry(name: str) -> CatalogueEntry:
    row = _table()[name]
    details = ("remote", "observation_space", "action_space", "env", "algorithm", "author")
    return CatalogueEntry(
        name=name,
        num_transitions=int(row["num_transitions"]) if row["num_transitions"] else None,
        num_trajectories=int(row["num_trajectories"]) if row["num_trajectories"] else None,
        details={key: row[key] or None for key in (*details, "minari_version")},
    )


def _published(repository: str, web: Web) -> list[CatalogueEntry]:
    """Return a repository's datasets; none for any other repository."""
    files = f"{HUGGING_FACE}datasets/{repository}/resolve/main/"
    try:
        names = web.json(f"{files}namespace_metadata.json").get("datasets", [])
        return [CatalogueEntry(name, details={"remote": f"{OWNER}/{name}"}) for name in names]
    except AccessError:
        pass
    try:
        found = web.json(f"{files}data/{METADATA}")
    except AccessError:
        return []
    name = repository.partition("/")[2]
    details = {"remote": repository, "minari_version": found.get("minari_version")}
    return [
        CatalogueEntry(name, None, found.get("total_steps"), found.get("total_episodes"), details)
    ]


def _remote(name: str) -> tuple[str, str]:
    """Return a dataset's repository and the folder in it, empty or ending in a slash."""
    row = _table().get(name)
    owner, repository, *folder = (row["remote"] if row else f"{OWNER}/{name}").split("/")
    return f"{owner}/{repository}", "".join(f"{part}/" for part in folder)


def _list(
    listing: str, revision: str, folder: str, web: Web, query: str = ""
) -> dict[str, dict[str, Any]]:
    """Return the files and folders of a folder on Hugging Face, by path within it."""
    pages = web.pages(f"{listing}/tree/{revision}/{folder}{query}")
    return {entry["path"].removeprefix(f"{folder}/"): entry for page in pages for entry in page}


def _resources_of(name: str, published: Any, bases: list[str]) -> list[Resource]:
    """Return the files of the form that ``metadata.json`` names, without a list of them."""
    if not _is_arrow(published):
        return _hdf5_resources(bases, {})
    return _arrow_resources(name, published, bases, {})


def _hdf5_resources(bases: list[str], files: dict[str, Any]) -> list[Resource]:
    return [
        _resource(bases, METADATA, b"{", files.get(METADATA, {})),
        _resource(bases, DATA, HDF5_MAGIC, files.get(DATA, {})),
    ]


def _is_arrow(published: Any) -> bool:
    return isinstance(published, dict) and published.get("data_format") in ARROW_FORMATS


def _arrow_resources(
    name: str, published: Any, bases: list[str], files: dict[str, Any]
) -> list[Resource]:
    """Return the files of the Arrow form: like Minari's reader, count the episodes from 0."""
    count = published.get("total_episodes") if isinstance(published, dict) else None
    if not _is_arrow(published) or not isinstance(count, int):
        raise SourceError(
            f"minari/{name} has no {DATA}, and its {METADATA} is not that of Minari's Arrow form: "
            f"expected total_episodes, and {', '.join(ARROW_FORMATS)} as data_format.",
            id=f"minari/{name}",
            path=METADATA,
            expected=[*ARROW_FORMATS],
        )
    if find_spec("pyarrow") is None:
        raise UsageError(
            f"minari/{name} is in Minari's Arrow form, which needs pyarrow.",
            id=f"minari/{name}",
            advice=install_extra("parquet"),
        )
    format = published["data_format"]
    parts = [f"{number}/part-0.{format}" for number in range(count)]
    return [
        _resource(bases, METADATA, b"{", files.get(METADATA, {})),
        *(_resource(bases, part, ARROW_FORMATS[format], files.get(part, {})) for part in parts),
    ]


def _resource(bases: list[str], filename: str, magic: bytes, entry: dict[str, Any]) -> Resource:
    large = entry.get("lfs") or {}  # small files have only a git hash, not of their bytes
    return Resource(
        urls=tuple(base + filename for base in bases),
        filename=filename,
        size=large.get("size", entry.get("size")),
        checksums={"sha256": large["oid"]} if "oid" in large else {},
        magic=magic,
    )


def references(name: str) -> dict[str, str]:
    """Return Minari's software entry, and D4RL's paper for the remakes of D4RL's datasets."""
    entries = read_bibtex(Path(__file__).with_name("references.bib"))
    return (
        entries if name.startswith("D4RL/") else {"younis2024minari": entries["younis2024minari"]}
    )
