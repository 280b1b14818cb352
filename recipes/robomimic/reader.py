"""Reading robomimic's HDF5 files, and those of MimicGen and LIBERO, which have the same layout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from datasets_cli.formats.hdf5_episodes import HDF5Episodes, read_episodes
from datasets_cli.recipe import Block, Description, Source, SourceError

ATTRIBUTES = "attributes.json.xz"
UPSIDE_DOWN = ("obs/agentview_rgb", "obs/eye_in_hand_rgb")


def describe(source: Source) -> Description:
    """Return the attributes of the file, notes, and a file with the attributes of each episode."""
    episodes = _episodes(source)
    notes = [
        *episodes.notes,
        *(f"left out: {name}: {why}" for name, why in episodes.dropped.items()),
    ]
    if images := [name for name in UPSIDE_DOWN if name in episodes.columns]:
        notes.append(f"LIBERO's images are upside down, as in the file: {', '.join(images)}")
    total, found = episodes.attributes.get("total"), episodes.num_steps
    if total not in (None, found):
        notes.append(f"the file states {total} steps in total; it has {found:,}")
    metadata: dict[str, Any] = {**source.entry.details} if source.entry else {}
    if episodes.attributes:
        metadata["attributes"] = episodes.attributes
    files = {ATTRIBUTES: episodes.attributes_file}
    return Description(metadata, tuple(notes), files, names=episodes.keys())


def blocks(source: Source) -> Iterator[Block]:
    """Yield the steps of all episodes, in the order of their numbers."""
    episodes = _episodes(source)
    for columns in episodes.blocks(episodes.keys()):
        yield Block(columns, total_rows=episodes.num_steps)


def _episodes(source: Source) -> HDF5Episodes:
    episodes = read_episodes(*source.files.values())
    if episodes.missing:
        missing, found = episodes.missing[0], [*episodes.columns][:10]
        raise SourceError(
            f"{episodes.filename} has no {missing}; found {', '.join(found) or 'nothing'}.",
            path=episodes.filename,
            key=missing,
            found=found,
            advice="robomimic's scripts/dataset_states_to_obs.py adds observations to raw "
            "demonstrations.",
        )
    return episodes
