"""Recipes: the files of the datasets of one family, and functions that read them.

A recipe imports only this module and the readers of ``datasets_cli.formats``. It is a frozen object
of plain functions:

    datasets(web)             -> the entries of the catalogue; offline if web is None
    resources(name, web)      -> the remote files of one dataset
    blocks(source)            -> the content of the files as a stream of Blocks, in TED names
    deferred_frames(source)   -> a column that is read in parts, in any order
    describe(source)          -> the publisher's metadata, for the manifest

The core does everything else: ids, downloads, checks, the successor rule, episodes, root flags,
files, commit.
"""

from __future__ import annotations

import csv
import importlib
import re
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets_cli.core.checked_json import JsonForm
from datasets_cli.errors import (
    AccessError,
    NetworkError,
    SourceError,
    UnknownDataset,
    UsageError,
    install_extra,
)
from datasets_cli.schema.columns import TRAJECTORY_END, Key, can_store, rows_per_block
from datasets_cli.schema.texts import LANGUAGE, SPLIT
from datasets_cli.sources.buckets import (
    BucketObject,
    count_shards,
    list_objects,
    may_lack_list,
    object_url,
)
from datasets_cli.sources.resource import HDF5_MAGIC, ZIP_MAGIC, Content, Place, Resource, Web

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "HDF5_MAGIC",
    "LANGUAGE",
    "SPLIT",
    "TRAJECTORY_END",
    "ZIP_MAGIC",
    "AccessError",
    "Block",
    "BucketObject",
    "CatalogueEntry",
    "Content",
    "DeferredFrames",
    "Description",
    "Entries",
    "Key",
    "NetworkError",
    "Option",
    "Place",
    "Recipe",
    "Resource",
    "Source",
    "SourceError",
    "UnknownDataset",
    "UsageError",
    "Web",
    "can_store",
    "count_shards",
    "deferred",
    "install_extra",
    "list_objects",
    "may_lack_list",
    "object_url",
    "read_bibtex",
    "read_tsv",
    "rows_per_block",
]


def _no_deferred_frames(source: Source) -> DeferredFrames | None:
    return None


@dataclass(frozen=True)
class CatalogueEntry:
    """One dataset of the catalogue.

    Args:
        name: the id without the family.
        size: bytes to download, or None where unknown.
        num_transitions: number of steps according to the publisher, or None.
        num_trajectories: number of episodes according to the publisher, or None.
        details: further entries for ``rlds info``. ``known_traps`` is a list of lines;
            ``trap_rules`` maps some of these lines to the audit rules that detect them.
    """

    name: str
    size: int | None = None
    num_transitions: int | None = None
    num_trajectories: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Entries:
    """The entries of a catalogue, each built on access.

    Args:
        names: the names of the datasets.
        build: returns the entry of a name.
    """

    names: Collection[str]
    build: Callable[[str], CatalogueEntry]

    def __iter__(self) -> Iterator[CatalogueEntry]:
        return map(self.build, self.names)

    def get(self, name: str) -> CatalogueEntry | None:
        """Return the entry of a name, or None for an unknown name."""
        return self.build(name) if name in self.names else None


@dataclass(frozen=True)
class Source:
    """The local files of one dataset.

    Args:
        name: the name of the dataset within its family.
        files: ``{resource filename: local path}``.
        entry: the catalogue entry, or None for an unlisted dataset from ``--source``.
    """

    name: str
    files: Mapping[str, Path]
    entry: CatalogueEntry | None = None


@dataclass(frozen=True)
class Block:
    """A run of rows in TED names.

    Args:
        columns: ``{key: array [n, ...]}`` with one leading dimension: ``observation``, ``action``
            (or keys below them) and ``("next", "reward")`` ``[n]`` or ``[n, 1]``. If known, also
            ``("next", "terminated")``, ``("next", "truncated")``, ``("next", "observation")``,
            ``info``, ``("next", "info")`` and ``TRAJECTORY_END``. A recipe with
            ``has_rewards=False`` may omit the reward.
        start: number of the first step in a part of ``DeferredFrames``; None for blocks in order.
        total_rows: number of rows of all blocks, if the files state it. The free disk space is
            checked before the first block is written.
    """

    columns: Mapping[Key, np.ndarray]
    start: int | None = None
    total_rows: int | None = None


@dataclass(frozen=True)
class DeferredFrames:
    """Frames that a source stores separately from its steps, read in parts, in any order.

    The Blocks of ``blocks`` lack this column. The core numbers their steps from 0. The frame of
    every step that a row needs must be in exactly one part.

    Args:
        key: the column of the frames, such as ``("observation",)``, without recorded successors.
        shape: the shape of one frame, uint8.
        parts: a picklable object for each part.
        read: a function of a module that yields the Blocks of one part, with only this column and
            ``start``. A block is processed before the next one is read, so they may share memory.
    """

    key: Key
    shape: tuple[int, ...]
    parts: Sequence[Any]
    read: Callable[[Any], Generator[Block, None, None]]


@dataclass(frozen=True)
class Description:
    """The metadata of one dataset.

    Args:
        metadata: JSON values for the manifest.
        notes: lines for the user, such as known traps and skipped fields.
        files: ``{name: bytes}`` of small files to store with the data.
        names: the publisher's name of each column, by its key in the Blocks, for ``recorded()``.
    """

    metadata: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    names: Mapping[Key, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Option:
    """An option of a family that selects a variant of a dataset: ``-o name=value``.

    Args:
        name: the name, such as ``checkpoints``.
        value: the form of the value, such as ``A:B``.
        help: one line for the help.
    """

    name: str
    value: str
    help: str


@dataclass(frozen=True)
class Recipe(JsonForm):
    """One family of datasets.

    Args:
        family: the first part of every id.
        version: incremented whenever the same source files would convert to other values.
        title: a title of one line.
        licence: the licence of the data, as the publisher states it.
        citation: a citation of the data, in one line.
        homepage: the publisher's page about the data.
        datasets: returns the catalogue; without a web, only the entries that ship with the package.
            ``Entries`` build a single entry on access, which is faster than a list.
        resources: returns the files of one dataset.
        blocks: yields the content of these files.
        describe: returns metadata and notes; called before ``blocks``.
        deferred_frames: returns a column of separately stored frames, or None.
        references: returns the BibTeX entries of the papers to cite for one dataset, as
            ``read_bibtex`` does; empty by default.
        options: the options for ``-o name=value``; their values are passed to ``variant`` and
            ``fallback``. Other names are rejected.
        unlisted: whether ``--source`` may name a dataset that is not in the catalogue.
        dynamic: whether ``datasets`` can request a newer catalogue from the publisher.
        find: returns the entry of a name outside the catalogue, or None; without a web it must not
            use the network.
        resources_at: returns the files of one dataset at the place of ``--source``, for a family
            whose files must be listed first; by default ``resources`` without a web.
        variant: returns the name for a name and options, such as ``Pong/5~ckpt0-5``; also called
            without options. Rejects invalid values.
        folder: the folder with the files of all datasets, by the names of their resources, if they
            ship with the recipe; otherwise None.
        fallback: returns the name of the dataset to use instead if the publisher denies access, or
            if only that one is installed; None without a fallback.
        has_rewards: whether every dataset has rewards. If False, blocks may lack
            ``("next", "reward")``, as demonstrations do, and the dataset has no rewards either.
        identity: names of metadata that determine values, but come from files that only describe
            the data (``Resource.describes``), such as the order of classes. They belong to the
            identity of the data, like the sha256 of all other files.
    """

    JSON = "family version licence citation homepage identity|null?"

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
    deferred_frames: Callable[[Source], DeferredFrames | None] = _no_deferred_frames
    references: Callable[[str], Mapping[str, str]] = lambda name: {}
    options: tuple[Option, ...] = ()
    unlisted: bool = False
    dynamic: bool = False
    find: Callable[[str, Web | None], CatalogueEntry | None] = lambda name, web: None
    resources_at: Callable[[str, Place], list[Resource]] | None = None
    variant: Callable[[str, Mapping[str, str]], str] = lambda name, options: name
    fallback: Callable[[str, Mapping[str, str]], str | None] = lambda name, options: None
    has_rewards: bool = True
    identity: tuple[str, ...] = ()
    folder: Path | None = None

    @property
    def has_deferred_frames(self) -> bool:
        """Whether datasets of the family may have separately stored frames."""
        return self.deferred_frames is not _no_deferred_frames


def deferred(address: str) -> Callable[..., Any]:
    """Return a function that imports another function at the first call, and calls it.

    ``rlds list`` imports every recipe, but not the readers of datasets, which import numpy.

    Args:
        address: ``module:function``, such as ``datasets_cli.recipes.d4rl.reader:blocks``.
    """
    module, _, name = address.partition(":")

    def call(*arguments: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*arguments)

    return call


def read_tsv(path: Path) -> list[dict[str, str]]:
    """Return the rows of a tab-separated table with a header line."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def read_bibtex(path: Path) -> dict[str, str]:
    """Return the entries of a BibTeX file by their keys; each begins with ``@`` in column 0.

    Args:
        path: the file, such as ``references.bib`` in the folder of the recipe.
    """
    entries = re.split(r"^(?=@)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {entry.partition("{")[2].partition(",")[0]: entry.strip() for entry in entries}
