"""What Farama and the community publish on Hugging Face, and which files a dataset has there.

The table ``catalogue.tsv`` is that of Minari's documentation of April 2026. The first part of a
name is a repository on Hugging Face, the rest a folder in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from datasets_cli.recipe import (
    HDF5_MAGIC,
    AccessError,
    CatalogueEntry,
    NetworkError,
    Resource,
    SourceError,
    Web,
    may_lack_list,
    read_tsv,
)

HUGGING_FACE = "https://huggingface.co/"
OWNER = "farama-minari"
METADATA = "metadata.json"
DATA = "main_data.hdf5"


def datasets(web: Web | None) -> list[CatalogueEntry]:
    """Return the documented datasets; online those that Farama publishes now, and the community's.

    Raises:
        AccessError, NetworkError: the list of repositories is not available.
    """
    known = {row["name"]: _entry(row) for row in _table()}
    if web is None:
        return list(known.values())
    found = {name: entry for name, entry in known.items() if name.startswith("community/")}
    for repository in web.json(f"{HUGGING_FACE}api/datasets?author={OWNER}"):
        found |= {entry.name: entry for entry in _published(str(repository["id"]), web)}
    return [known.get(name, entry) for name, entry in sorted(found.items())]


def resources(name: str, web: Web | None) -> list[Resource]:
    """Return the dataset's two files, pinned to a commit where Hugging Face can be asked.

    Raises:
        SourceError: it is not published as HDF5.
        NetworkError: no answer.
    """
    repository, folder = _remote(name)
    listing = f"{HUGGING_FACE}api/datasets/{repository}"
    revision, files = "main", {}
    if web is not None:
        try:
            revision = web.json(listing)["sha"]
            entries = web.json(f"{listing}/tree/{revision}/{folder}data")
            files = {entry["path"].rpartition("/")[2]: entry for entry in entries}
        except (AccessError, NetworkError) as error:
            if not may_lack_list(error, f"{HUGGING_FACE}datasets/{repository}/", web):
                raise
            revision = "main"  # a plain mirror of the files has no API
        except (KeyError, TypeError) as error:
            raise SourceError(f"{listing} does not answer as Hugging Face does.") from error
        else:
            _check_format(name, files)
    # A mirror may hold only the files of the main branch; size and sha256 still tell a change.
    bases = [
        f"{HUGGING_FACE}datasets/{repository}/resolve/{name}/{folder}data/"
        for name in dict.fromkeys((revision, "main"))
    ]
    return [
        _resource(bases, METADATA, b"{", files.get(METADATA, {})),
        _resource(bases, DATA, HDF5_MAGIC, files.get(DATA, {})),
    ]


def _table() -> list[dict[str, str]]:
    return read_tsv(Path(__file__).with_suffix(".tsv"))


def _entry(row: dict[str, str]) -> CatalogueEntry:
    details = ("remote", "observation_space", "action_space", "env", "algorithm", "author")
    return CatalogueEntry(
        name=row["name"],
        num_transitions=int(row["num_transitions"]) if row["num_transitions"] else None,
        num_trajectories=int(row["num_trajectories"]) if row["num_trajectories"] else None,
        details={key: row[key] or None for key in (*details, "minari_version")},
    )


def _published(repository: str, web: Web) -> list[CatalogueEntry]:
    """Return a repository's datasets; one that is neither a namespace nor a dataset has none."""
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
    remotes = {row["name"]: row["remote"] for row in _table()}
    owner, repository, *folder = remotes.get(name, f"{OWNER}/{name}").split("/")
    return f"{owner}/{repository}", "".join(f"{part}/" for part in folder)


def _check_format(name: str, files: dict[str, Any]) -> None:
    if DATA not in files:
        raise SourceError(
            f"minari/{name} is not published as HDF5: expected {DATA}, found "
            f"{', '.join(sorted(files)[:5]) or 'nothing'}. Arrow and Parquet episodes are not "
            "read; load them with the minari package."
        )


def _resource(bases: list[str], filename: str, magic: bytes, entry: dict[str, Any]) -> Resource:
    large = entry.get("lfs") or {}  # small files have a git hash only, which is not of their bytes
    return Resource(
        urls=tuple(base + filename for base in bases),
        filename=filename,
        size=large.get("size", entry.get("size")),
        checksums={"sha256": large["oid"]} if "oid" in large else {},
        magic=magic,
    )
