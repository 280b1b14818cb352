"""Minari: Farama's standard for offline datasets, one HDF5 group an episode.

Facts of the format: Minari's own storage code up to 0.5.4, and the complete D4RL/door/human-v2.
The catalogue in ``minari.tsv`` is that of Minari's documentation of April 2026. The data lies on
Hugging Face, where the first part of a name is a repository and the rest a folder in it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from datasets_cli.recipe import (
    HDF5_MAGIC,
    AccessError,
    Block,
    CatalogueEntry,
    Description,
    NetworkError,
    Recipe,
    Resource,
    Source,
    SourceError,
    Web,
    may_lack_list,
    open_hdf5,
    read_tsv,
)

from ._minari_hdf5 import read_blocks
from ._minari_layout import Layout, read_layout
from ._minari_spaces import Space, parse_space, torchrl_form

HUGGING_FACE = "https://huggingface.co/"
OWNER = "farama-minari"
METADATA = "metadata.json"
DATA = "main_data.hdf5"
NEWEST = (0, 5, 4)

SPEC = ("dataset_id", "combined_datasets", "total_episodes", "total_steps", "minari_version")
"""What TorchRL's ``env_metadata.json`` repeats as it is."""


def datasets(web: Web | None) -> list[CatalogueEntry]:
    """Return the documented datasets; online those that Farama publishes now, and the community's.

    Raises:
        AccessError, NetworkError: the list of repositories cannot be had.
    """
    known = {row["name"]: _row(row) for row in read_tsv(Path(__file__).with_suffix(".tsv"))}
    if web is None:
        return list(known.values())
    rows = {name: row for name, row in known.items() if name.startswith("community/")}
    for repository in web.json(f"{HUGGING_FACE}api/datasets?author={OWNER}"):
        rows |= {row.name: row for row in _published(str(repository["id"]), web)}
    return [known.get(name, row) for name, row in sorted(rows.items())]


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


def describe(source: Source) -> Description:
    """Return what ``metadata.json`` says, what is left out of the file, and TorchRL's metadata."""
    published, spaces = _read_metadata(source)
    with open_hdf5(source.files[DATA]) as file:
        layout = read_layout(file, spaces, jpeg=published.get("jpeg_encoding") is not False)
    metadata = _finite(published)
    notes = list(layout.notes)
    frames = [".".join(leaf.key) for leaf in layout.leaves if leaf.jpeg]
    if frames:
        metadata["jpeg_frames"] = frames
        notes.append(f"decoded from JPEG, not the pixels as recorded: {', '.join(frames)}")
    if layout.num_empty:
        metadata["empty_episodes"] = layout.num_empty
        notes.append(f"{layout.num_empty} episodes without a step are left out")
    notes += _doubts(source, published, layout)
    form = json.dumps(_torchrl_metadata(published, spaces))
    return Description(metadata, tuple(notes), {"env_metadata.json": form.encode()})


def blocks(source: Source) -> Iterator[Block]:
    """Yield the transitions of all episodes, in the order of their numbers."""
    published, spaces = _read_metadata(source)
    with open_hdf5(source.files[DATA]) as file:
        layout = read_layout(file, spaces, jpeg=published.get("jpeg_encoding") is not False)
        yield from read_blocks(file, layout.episodes, layout.leaves)


def _row(row: dict[str, str]) -> CatalogueEntry:
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
    rows = {row["name"]: row["remote"] for row in read_tsv(Path(__file__).with_suffix(".tsv"))}
    owner, repository, *folder = rows.get(name, f"{OWNER}/{name}").split("/")
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


def _read_metadata(source: Source) -> tuple[dict[str, Any], dict[str, Space | None]]:
    """Return ``metadata.json``, and the spaces of ``observations`` and ``actions`` from it."""
    published = json.loads(source.files[METADATA].read_bytes())
    if not isinstance(published, dict):
        raise SourceError(f"{METADATA} is not Minari's: expected an object, found {published!r}.")
    if (found := published.get("data_format", "hdf5")) != "hdf5":
        raise SourceError(
            f"{METADATA} says that the data is in the format {found}; only hdf5 is read. "
            "Load it with the minari package."
        )
    return published, {
        f"{name}s": parse_space(published.get(f"{name}_space"), f"{name}_space")
        for name in ("observation", "action")
    }


def _doubts(source: Source, published: dict[str, Any], layout: Layout) -> list[str]:
    """Return notes on what ``metadata.json`` says otherwise than the file or this program."""
    name = source.name
    notes = []
    counted = {
        "total_episodes": len(layout.episodes) + layout.num_empty,
        "total_steps": sum(episode.steps for episode in layout.episodes),
    }
    for key, number in counted.items():
        if published.get(key, number) != number:
            notes.append(f"{METADATA} says {key} {published[key]}; the file has {number}")
    version = str(published.get("minari_version", ""))
    if tuple(int(part) for part in re.findall(r"\d+", version)[:3]) > NEWEST:
        newest = ".".join(map(str, NEWEST))
        notes.append(f"written by Minari {version}, newer than the {newest} that is known here")
    if not name.endswith(found := str(published.get("dataset_id", name))):
        if source.row is not None:
            raise SourceError(
                f"{METADATA} is that of another dataset: expected {name}, found {found}. "
                "Check --source, or use another name for a dataset of your own."
            )
        notes.append(f"{METADATA} names another dataset: {found}")
    return notes


def _finite(value: Any) -> Any:
    """Return JSON values without NaN and infinities, which JSON has not; they become None."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _torchrl_metadata(published: dict[str, Any], spaces: dict[str, Space | None]) -> dict[str, Any]:
    """Return what TorchRL's loader of a converted folder reads beside the data."""
    env = published.get("env_spec")
    return {
        "env_spec": json.loads(env) if isinstance(env, str) else env,
        **{key: published.get(key) for key in SPEC},
        "observation_space": torchrl_form(spaces["observations"]),
        "action_space": torchrl_form(spaces["actions"]),
    }


RECIPE = Recipe(
    family="minari",
    version=1,
    title="Minari: Farama's datasets for offline reinforcement learning",
    licence="each dataset's own, see its card on Hugging Face; the remakes of D4RL derive from "
    "CC BY 4.0 and Apache-2.0 material",
    citation="Younis, Perez-Vicente, Balis, Dudley, Davey, Terry. Minari. Zenodo, "
    "doi:10.5281/zenodo.13767625, 2024.",
    homepage="https://minari.farama.org",
    datasets=datasets,
    resources=resources,
    blocks=blocks,
    describe=describe,
    unlisted=True,
    dynamic=True,
)
