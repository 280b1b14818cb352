"""A recipe: which files make a dataset of one family, and how to read them.

This is the one module that a recipe imports. A recipe is a frozen object of plain functions:

    datasets(web)             -> rows of the catalogue; web is None for the rows that ship with it
    resources(name, web)      -> the remote files of one dataset
    blocks(source)            -> the files' content as a stream of bounded Blocks, in TED names
    pictures(source)          -> a column that cannot be read in their order, by parts
    describe(source)          -> what the publisher says of it, for the manifest

The core does everything else: ids, downloads, checks, the successor rule, episodes, root flags,
files, commit.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets_cli.errors import (
    AccessError,
    NetworkError,
    OfflineError,
    RldsError,
    SourceError,
    UnknownDataset,
    UsageError,
)
from datasets_cli.sources.hdf5 import fastest_zlib, open_hdf5, read_rows
from datasets_cli.sources.resource import HDF5_MAGIC, Content, Place, Resource, Web
from datasets_cli.store.schema.columns import TRAJECTORY_END, Key, can_store, rows_per_block

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "HDF5_MAGIC",
    "TRAJECTORY_END",
    "AccessError",
    "Block",
    "CatalogueEntry",
    "Content",
    "Description",
    "Key",
    "NetworkError",
    "Option",
    "Pictures",
    "Place",
    "Recipe",
    "Resource",
    "Source",
    "SourceError",
    "UnknownDataset",
    "UsageError",
    "Web",
    "can_store",
    "fastest_zlib",
    "may_lack_list",
    "open_hdf5",
    "read_rows",
    "read_tsv",
    "rows_per_block",
]


@dataclass(frozen=True)
class CatalogueEntry:
    """One dataset of the catalogue.

    Args:
        name: the id without the family.
        size: bytes to download, or None where unknown.
        num_transitions: steps that the publisher states, or None.
        num_trajectories: episodes that the publisher states, or None.
        details: anything else worth showing in ``rlds info``.
    """

    name: str
    size: int | None = None
    num_transitions: int | None = None
    num_trajectories: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """What a recipe reads.

    Args:
        name: the dataset's name within its family.
        files: ``{resource filename: local path}``.
        row: its row of the catalogue, or None for an unlisted dataset given by ``--source``.
    """

    name: str
    files: Mapping[str, Path]
    row: CatalogueEntry | None = None


@dataclass(frozen=True)
class Block:
    """A run of rows in TED names.

    Args:
        columns: ``{key: array [n, ...]}`` with one leading dimension: ``observation``, ``action``
            (or keys below them), ``("next", "reward")`` ``[n]`` or ``[n, 1]``, and where known
            ``("next", "terminated")``, ``("next", "truncated")``, ``("next", "observation")``,
            ``info``, ``("next", "info")``, and ``TRAJECTORY_END``.
        start: number of the first step, in a part of ``Pictures``; None in all else, which comes in
            order.
    """

    columns: Mapping[Key, np.ndarray]
    start: int | None = None


@dataclass(frozen=True)
class Pictures:
    """Pictures that a source keeps apart from its steps, read part by part, in any order.

    The Blocks of ``blocks`` then lack this one column. The core numbers their steps from 0 on, and
    every number but those of steps that no row needs must come here exactly once.

    Args:
        key: the column that they are, such as ``("observation",)``; it has no recorded successor.
        shape: of one picture, uint8.
        parts: what each part is, as anything that can be pickled.
        read: a module's function that yields the Blocks of one part: this column alone, and
            ``start``. A block is used up before the next one is asked for, which may lie in the
            same memory.
    """

    key: Key
    shape: tuple[int, ...]
    parts: Sequence[Any]
    read: Callable[[Any], Generator[Block, None, None]]


@dataclass(frozen=True)
class Description:
    """What a recipe knows about one dataset beside its rows.

    Args:
        metadata: JSON values for the manifest.
        notes: lines that a person should see: known traps, skipped fields.
        files: ``{name: bytes}`` of small extra files to lay beside the data.
    """

    metadata: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Option:
    """An option of a family, which makes a variant of a dataset: ``-o name=value``.

    Args:
        name: such as ``checkpoints``.
        value: what is to be written for the value, such as ``A:B``.
        help: one line for people.
    """

    name: str
    value: str
    help: str


def _without_options(name: str, options: Mapping[str, str]) -> str:
    if options:
        listed = ", ".join(f"--{option}" for option in options)
        raise UsageError(f"{name}: its family has no {listed}.")
    return name


@dataclass(frozen=True)
class Recipe:
    """One family of datasets.

    Args:
        family: first part of every id.
        version: raised whenever the same source files would convert to other values.
        title: one line for people.
        licence: of the data, as the publisher states it.
        citation: how to cite the data.
        homepage: where the publisher describes it.
        datasets: the catalogue; given None it returns the rows that ship with the package.
        resources: the files of one dataset.
        blocks: the content of those files.
        describe: metadata and notes; called before ``blocks``.
        pictures: a column of pictures that is read apart, or None.
        options: what ``-o name=value`` may name; ``variant`` and ``fallback`` take the values.
        unlisted: whether ``--source`` may name a dataset that is not in the catalogue.
        dynamic: whether ``datasets`` can ask the publisher for a newer catalogue.
        resources_at: the files of one dataset that lies where ``--source`` says, for a family whose
            files are known only by looking; by default those of ``resources``, given no web.
        variant: the name of what options make of a name, such as ``Pong/5~ckpt0-5``; called also
            without any, and refuses those it does not know.
        fallback: the name that stands in for another one with these options where its publisher
            refuses it, and where it alone is installed; None where nothing does.
        find: the dataset that a name outside the catalogue means, or None; given no web it must
            not need the network.
    """

    family: str
    version: int
    title: str
    licence: str
    citation: str
    homepage: str
    datasets: Callable[[Web | None], Iterable[CatalogueEntry]]
    resources: Callable[[str, Web | None], list[Resource]]
    blocks: Callable[[Source], Iterator[Block]]
    describe: Callable[[Source], Description] = lambda source: Description()
    pictures: Callable[[Source], Pictures | None] = lambda source: None
    options: tuple[Option, ...] = ()
    unlisted: bool = False
    dynamic: bool = False
    find: Callable[[str, Web | None], CatalogueEntry | None] = lambda name, web: None
    resources_at: Callable[[str, Place], list[Resource]] | None = None
    variant: Callable[[str, Mapping[str, str]], str] = _without_options
    fallback: Callable[[str, Mapping[str, str]], str | None] = lambda name, options: None

    def to_json(self) -> dict[str, Any]:
        """Return the manifest's entry."""
        return {
            "family": self.family,
            "version": self.version,
            "licence": self.licence,
            "citation": self.citation,
            "homepage": self.homepage,
        }


def may_lack_list(error: RldsError, url: str, web: Web) -> bool:
    """Tell whether files may be had although their list cannot.

    Args:
        error: why the list cannot be had.
        url: of the files, or the beginning of it.
        web: who was asked for the list.

    Returns:
        True where the list is refused, or where its server does not answer but the user has a
        mirror of the files, which need not have any list.
    """
    if isinstance(error, NetworkError) and not isinstance(error, OfflineError):
        return len(web.candidates(url)) > 1
    return isinstance(error, AccessError)


def read_tsv(path: Path) -> list[dict[str, str]]:
    """Return the rows of a tab-separated table with a header line."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))
