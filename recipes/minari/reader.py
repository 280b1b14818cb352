"""Reading a Minari dataset: its ``metadata.json`` and its episodes, in one of Minari's forms.

Facts of the format: Minari's own storage code up to 0.5.4, and the complete D4RL/door/human-v2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from datasets_cli.formats.hdf5 import open_hdf5
from datasets_cli.formats.limits import finite, read_json, read_json_file
from datasets_cli.recipe import Block, Description, Source, SourceError

from .catalogue import ARROW_FORMATS, DATA, HDF5, METADATA
from .episodes import read_blocks
from .hdf5_storage import Hdf5Storage
from .spaces import Space, parse_space, torchrl_form
from .storage import EpisodeStorage
from .structure import Structure, note_inner_ends, read_structure

NEWEST = (0, 5, 4)

SPEC = ("dataset_id", "combined_datasets", "total_episodes", "total_steps", "minari_version")
"""The fields that TorchRL's ``env_metadata.json`` repeats unchanged."""


def describe(source: Source) -> Description:
    """Return the content of ``metadata.json``, notes on omitted arrays, and TorchRL's metadata."""
    published, spaces = _read_metadata(source)
    with _open(source, published, spaces) as storage:
        structure = read_structure(storage)
        inner_ends = note_inner_ends(storage, structure.episodes)
    metadata = finite(published)
    notes = [*structure.notes, *filter(None, [inner_ends])]
    frames = [".".join(leaf.key) for leaf in structure.leaves if leaf.jpeg]
    if frames:
        metadata["jpeg_frames"] = frames
        notes.append(f"decoded from JPEG, not the pixels as recorded: {', '.join(frames)}")
    if lasts := structure.last_rows_of_short:
        metadata["without_last_observation"] = {"rows": lasts, "episodes": structure.num_episodes}
    if structure.num_empty:
        metadata["empty_episodes"] = structure.num_empty
        notes.append(f"{structure.num_empty} episodes without steps are left out")
    notes += _differences(source, published, structure)
    torchrls = json.dumps(_torchrl_metadata(published, spaces))
    return Description(metadata, tuple(notes), {"env_metadata.json": torchrls.encode()})


def blocks(source: Source) -> Iterator[Block]:
    """Yield the transitions of all episodes, in the order of their numbers."""
    published, spaces = _read_metadata(source)
    with _open(source, published, spaces) as storage:
        structure = read_structure(storage)
        yield from read_blocks(storage, structure.episodes, structure.leaves)


@contextmanager
def _open(
    source: Source, published: dict[str, Any], spaces: dict[str, Space | None]
) -> Iterator[EpisodeStorage]:
    """Open a dataset's episodes in the form that ``metadata.json`` names."""
    jpeg = published.get("jpeg_encoding") is not False
    format = published.get("data_format", HDF5)
    if format in ARROW_FORMATS:
        from .arrow_storage import ArrowStorage  # pyarrow is optional

        yield ArrowStorage(source.files, format, spaces, jpeg=jpeg)
        return
    with open_hdf5(source.files[DATA]) as file:
        yield Hdf5Storage(file, spaces, jpeg=jpeg)


def _read_metadata(source: Source) -> tuple[dict[str, Any], dict[str, Space | None]]:
    """Return ``metadata.json``, and the spaces of ``observations`` and ``actions`` from it."""
    published = read_json_file(source.files[METADATA])
    if not isinstance(published, dict):
        raise SourceError(
            f"{METADATA} is not Minari's: expected an object, found {published!r}.",
            path=METADATA,
            expected="an object",
            found=published,
        )
    if (found := published.get("data_format", HDF5)) not in (HDF5, *ARROW_FORMATS):
        raise SourceError(
            f"{METADATA} names the data format {found}; expected one of "
            f"{', '.join((HDF5, *ARROW_FORMATS))}.",
            path=METADATA,
            key="data_format",
            expected=[HDF5, *ARROW_FORMATS],
            found=found,
            advice="Load it with the minari package.",
        )
    return published, {
        f"{name}s": parse_space(published.get(f"{name}_space"), f"{name}_space")
        for name in ("observation", "action")
    }


def _differences(source: Source, published: dict[str, Any], structure: Structure) -> list[str]:
    """Return notes on the differences between ``metadata.json`` and the file."""
    name = source.name
    notes = []
    counted = {"total_episodes": structure.num_episodes, "total_steps": structure.num_steps}
    for key, number in counted.items():
        if published.get(key, number) != number:
            notes.append(f"{METADATA} says {key} {published[key]}; the file has {number}")
    version = str(published.get("minari_version", ""))
    if tuple(int(part) for part in re.findall(r"\d+", version)[:3]) > NEWEST:
        newest = ".".join(map(str, NEWEST))
        notes.append(f"written by Minari {version}, but rlds knows only versions up to {newest}")
    if not name.endswith(found := str(published.get("dataset_id", name))):
        if source.entry is not None:
            raise SourceError(
                f"{METADATA} belongs to another dataset: expected {name}, found {found}.",
                path=METADATA,
                key="dataset_id",
                expected=name,
                found=found,
                advice="Check --source, or use another name for your own dataset.",
            )
        notes.append(f"{METADATA} names another dataset: {found}")
    return notes


def _torchrl_metadata(published: dict[str, Any], spaces: dict[str, Space | None]) -> dict[str, Any]:
    """Return the metadata that TorchRL's loader reads beside the data."""
    env = published.get("env_spec")
    return {
        "env_spec": read_json(env, f"env_spec of {METADATA}") if isinstance(env, str) else env,
        **{key: published.get(key) for key in SPEC},
        "observation_space": torchrl_form(spaces["observations"]),
        "action_space": torchrl_form(spaces["actions"]),
    }
