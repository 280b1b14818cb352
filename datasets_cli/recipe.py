"""A recipe: which files make a dataset of one family, and how to read them.

This is the one module that a recipe imports, beside the readers of ``datasets_cli.formats``. A
recipe is a frozen object of plain functions:

    datasets(web)             -> entries of the catalogue; web is None for those that ship with it
    resources(name, web)      -> the remote files of one dataset
    blocks(source)            -> the files' content as a stream of bounded Blocks, in TED names
    deferred_frames(source)   -> a column that cannot be read in their order, by parts
    describe(source)          -> what the publisher says of it, for the manifest

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
from datasets_cli.errors import AccessError, NetworkError, SourceError, UnknownDataset, UsageError
from datasets_cli.schema.columns import TRAJECTORY_END, Key, can_store, rows_per_block
from datasets_cli.sources.buckets import BucketObject, list_objects, may_lack_list, object_url
from datasets_cli.sources.resource import HDF5_MAGIC, Content, Place, Resource, Web

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "HDF5_MAGIC",
    "TRAJECTORY_END",
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
    "deferred",
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
        num_transitions: steps that the publisher states, or None.
        num_trajectories: episodes that the publisher states, or None.
        details: anything else worth showing in ``rlds info``; ``known_traps`` is a list of lines,
            and ``trap_rules`` the rules of the audit that find one of them, by its line.
    """

    name: str
    size: int | None = None
    num_transitions: int | None = None
    num_trajectories: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Entries:
    """The entries of a catalogue, each built when it is asked for.

    Args:
        names: of the datasets.
        build: returns the entry of one of them.
    """

    names: Collection[str]
    build: Callable[[str], CatalogueEntry]

    def __iter__(self) -> Iterator[CatalogueEntry]:
        return map(self.build, self.names)

    def get(self, name: str) -> CatalogueEntry | None:
        """Return the entry of a name; None where there is none."""
        return self.build(name) if name in self.names else None


@dataclass(frozen=True)
class Source:
    """What a recipe reads.

    Args:
        name: the dataset's name within its family.
        files: ``{resource filename: local path}``.
        entry: its catalogue entry, or None for an unlisted dataset given by ``--source``.
    """

    name: str
    files: Mapping[str, Path]
    entry: CatalogueEntry | None = None


@dataclass(frozen=True)
class Block:
    """A run of rows in TED names.

    Args:
        columns: ``{key: array [n, ...]}`` with one leading dimension: ``observation``, ``action``
            (or keys below them), ``("next", "reward")`` ``[n]`` or ``[n, 1]``, which a recipe
            without ``has_rewards`` may leave out, and where known
            ``("next", "terminated")``, ``("next", "truncated")``, ``("next", "observation")``,
            ``info``, ``("next", "info")``, and ``TRAJECTORY_END``.
        start: number of the first step, in a part of ``DeferredFrames``; None in all else, which
            comes in order.
        total_rows: of all blocks, where the files say so: room for them is looked for on the disk
            before the first one is written.
    """

    columns: Mapping[Key, np.ndarray]
    start: int | None = None
    total_rows: int | None = None


@dataclass(frozen=True)
class DeferredFrames:
    """Frames that a source keeps apart from its steps, read part by part, in any order.

    The Blocks of ``blocks`` then lack this one column. The core numbers their steps from 0, and
    the frame of every step that a row needs must be in exactly one part.

    Args:
        key: the column that they are, such as ``("observation",)``; it has no recorded successor.
        shape: of one frame, uint8.
        parts: what each part is, as anything that can be pickled.
        read: a module's function that yields the Blocks of one part: this column alone, and
            ``start``. The core uses up a block before it asks for the next one, so both may share
            their memory.
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
        files: ``{name: bytes}`` of small extra files to store beside the data.
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


@dataclass(frozen=True)
class Recipe(JsonForm):
    """One family of datasets.

    Args:
        family: first part of every id.
        version: raised whenever the same source files would convert to other values.
        title: one line for people.
        licence: of the data, as the publisher states it.
        citation: how to cite the data, in one line.
        homepage: where the publisher describes it.
        datasets: the catalogue; given None it returns the entries that ship with the package, at
            best as ``Entries``, so that not all of them are built where one is asked for.
        resources: the files of one dataset.
        blocks: the content of those files.
        describe: metadata and notes; called before ``blocks``.
        deferred_frames: a column of frames that is read apart, or None.
        references: the BibTeX entries of the papers that users of one dataset cite, as
            ``read_bibtex`` returns them; by default there are none.
        options: what ``-o name=value`` may name; the core refuses every other name, and gives the
            values to ``variant`` and ``fallback``.
        unlisted: whether ``--source`` may name a dataset that is not in the catalogue.
        dynamic: whether ``datasets`` can ask the publisher for a newer catalogue.
        find: the dataset that a name outside the catalogue means, or None; given no web it must
            not need the network.
        resources_at: the files of one dataset in the place that ``--source`` says, for a family
            whose files are known only by looking; by default those of ``resources``, given no web.
        variant: the name of what options make of a name, such as ``Pong/5~ckpt0-5``; called also
            without any, and refuses values that have no meaning.
        folder: that has the files of all datasets, by the names of their resources, where they
            ship with the recipe; None where they are downloaded.
        fallback: the name of the dataset that is taken where the publisher of another one, with
            these options, refuses it, or where it alone is installed; None where there is none.
        has_rewards: whether every dataset has rewards; where False, blocks may lack
            ``("next", "reward")``, as of demonstrations, and the dataset then has none.
        identity: names of metadata that decide values and come from files that only describe the
            data (``Resource.describes``), such as the order of classes; the data are known by them
            and by the sha256 of all other files.
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
        """Whether some dataset of the family may have frames that are read apart."""
        return self.deferred_frames is not _no_deferred_frames


def deferred(address: str) -> Callable[..., Any]:
    """Return a function that imports another one when it is called first, and calls it.

    ``rlds list`` imports every recipe; what reads a dataset imports numpy, which this puts off.

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
        path: of the file, such as ``references.bib`` beside the recipe.
    """
    entries = re.split(r"^(?=@)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {entry.partition("{")[2].partition(",")[0]: entry.strip() for entry in entries}
