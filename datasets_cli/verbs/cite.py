"""Citations of a dataset: BibTeX entries of the data and of the papers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from datasets_cli.catalogue.entries import families, load_recipe
from datasets_cli.catalogue.names import KnownId, recipe_of
from datasets_cli.config import Config
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import takes_fields
from datasets_cli.errors import UnknownDataset
from datasets_cli.store.manifest import Manifest
from datasets_cli.verbs.info import DatasetInfo, dataset_info

_SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_SPECIAL |= {character: f"\\{character}" for character in "&%$#_{}"}


@dataclass(frozen=True)
class Citation(JsonForm):
    """The citation of a dataset; ``str`` returns the text of a BibTeX file.

    Args:
        id: the full id.
        entries: ``{key: BibTeX}`` of the dataset, its sources, and the papers.
    """

    id: str
    entries: Mapping[str, str]

    def __str__(self) -> str:
        return "\n\n".join(self.entries.values())


@takes_fields(KnownId)
def cite(call: KnownId) -> Citation:
    """Return the citation of a dataset, installed or not; works offline.

    The entry of an installed dataset has its ``content``, which names the values.

    Raises:
        UnknownDataset: no recipe and no folder has that name; the message has the nearest ones.
        UsageError: the name exists in several families.
    """
    config = call.chosen_config()
    info = dataset_info(call.id, config=config)
    return Citation(info.id, dict(_entries(info, config)))


def _entries(info: DatasetInfo, config: Config) -> Iterator[tuple[str, str]]:
    """Yield the entries of a dataset, of its parents, and of the papers, by their keys."""
    key = re.sub(r"[^\w:./+-]", "-", info.id, flags=re.ASCII)
    papers: Mapping[str, str] = {}
    family, _, name = info.id.partition("/")
    if family in families():
        papers = recipe_of(load_recipe(family), name).references(name)
    parent = info.manifest and info.manifest.parent
    yield key, _dataset_entry(key, info, has_others=bool(papers or parent))
    if parent:
        with suppress(UnknownDataset):  # deleted since, and no recipe knows it; the note names it
            yield from _entries(dataset_info(parent["id"], config=config), config)
    yield from papers.items()


def _dataset_entry(key: str, info: DatasetInfo, *, has_others: bool) -> str:
    published = info.manifest.metadata if info.manifest else {}
    authors = published.get("author") or published.get("creator") or ()
    own = published.get("citation")
    fields = {
        "title": f"{{{_escaped(info.id)}}}",
        "author": " and ".join(f"{{{_escaped(name)}}}" for name in _texts(authors)),
        "howpublished": f"\\url{{{info.homepage}}}" if info.homepage else "",
        "note": _escaped(" ".join(_remarks(info, own if has_others else own or info.citation))),
    }
    width = max(map(len, fields))
    lines = [f"  {name:{width}} = {{{text}}},\n" for name, text in fields.items() if text]
    return f"@misc{{{key},\n{''.join(lines)}}}"


def _remarks(info: DatasetInfo, citation: str | None) -> Iterator[str]:
    manifest = info.manifest
    yield from origin(manifest)
    if citation:
        yield f"Cite as: {citation.rstrip('.')}."
    if info.licence:
        yield f"Licence: {info.licence.rstrip('.')}."
    if manifest:
        yield f"Content {manifest.content}, by rlds."


def origin(manifest: Manifest | None) -> Iterator[str]:
    """Yield the source of a derived dataset and the derivation."""
    if manifest and manifest.parent:
        function = f" by {manifest.function['name']}" if manifest.function else ""
        yield f"Derived from {manifest.parent['id']}{function}."


def _texts(names: Any) -> list[str]:
    return [str(name) for name in ([names] if isinstance(names, str) else names)]


def _escaped(text: str) -> str:
    """Return a text in one line, with LaTeX commands escaped."""
    return "".join(_SPECIAL.get(character, character) for character in " ".join(text.split()))
