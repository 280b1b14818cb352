"""Reading robomimic's HDF5 files, and those of MimicGen and LIBERO, which have the same layout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from datasets_cli.formats.hdf5 import open_hdf5
from datasets_cli.formats.hdf5_episodes import HDF5Episodes
from datasets_cli.recipe import Block, Description, Source, SourceError

ATTRIBUTES = "attributes.json.xz"
UPSIDE_DOWN = ("obs/agentview_rgb", "obs/eye_in_hand_rgb")


def describe(source: Source) -> Description:
    """Return the attributes of the file, notes, and a file with the attributes of each episode."""
    with open_hdf5(*source.files.values()) as file:
        episodes = HDF5Episodes(file)
        _check(episodes)
        notes = list(episodes.notes)
        notes += [f"left out: {path}: {why}" for path, why in episodes.dropped.items()]
        if images := [name for name in UPSIDE_DOWN if name in episodes.columns]:
            notes.append(f"LIBERO's images are upside down, as in the file: {', '.join(images)}")
        published = episodes.attributes()
        total = published.get("total", episodes.num_steps)
        if total != episodes.num_steps:
            notes.append(f"the file states {total:,} steps in total; it has {episodes.num_steps:,}")
        details: dict[str, Any] = {**source.entry.details} if source.entry else {}
        metadata = {**details, **({"attributes": published} if published else {})}
        return Description(
            metadata,
            tuple(notes),
            {ATTRIBUTES: episodes.attributes_file()},
            names=episodes.keys(),
        )


def blocks(source: Source) -> Iterator[Block]:
    """Yield the steps of all episodes, in the order of their numbers."""
    with open_hdf5(*source.files.values()) as file:
        episodes = HDF5Episodes(file)
        _check(episodes)
        for columns in episodes.blocks(episodes.keys()):
            yield Block(columns, total_rows=episodes.num_steps)


def _check(episodes: HDF5Episodes) -> None:
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
