"""Ids of datasets: resolved, selected by globs, and ``ID~repaired`` with exact repairs."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from datasets_cli.catalogue.entries import catalogue, catalogues, families, load_recipe
from datasets_cli.config import Config, RootOptions
from datasets_cli.errors import (
    DatasetNotInstalled,
    OfflineError,
    RldsError,
    UnknownDataset,
    UsageError,
    argument,
)
from datasets_cli.recipe import Block, CatalogueEntry, Description, Recipe, Source, Web
from datasets_cli.store.cache_root import CacheRoot, check_id, folder_advice, refuse_id

if TYPE_CHECKING:
    from datasets_cli.audit.repairs import Repairs


SUFFIX = "~repaired"
REPAIRS = "repairs"
"""Where a manifest lists them: rule, version, what decided, and the steps of the file in runs."""


def recipe_of(recipe: Recipe, name: str) -> Recipe:
    """Return the recipe for a name; that of ``NAME~repaired`` repairs the rows that it reads."""
    if not name.endswith(SUFFIX):
        return recipe
    repaired, look = _Repaired(recipe), recipe.resources_at
    return replace(
        recipe,
        resources=lambda name, web: recipe.resources(name.removesuffix(SUFFIX), web),
        resources_at=look and (lambda name, place: look(name.removesuffix(SUFFIX), place)),
        references=lambda name: recipe.references(name.removesuffix(SUFFIX)),
        variant=lambda name, options: recipe.variant(name.removesuffix(SUFFIX), options) + SUFFIX,
        fallback=Recipe.fallback,
        describe=repaired.describe,
        blocks=repaired.blocks,
        deferred_frames=Recipe.deferred_frames,  # rows that have some are not repaired
        identity=(*recipe.identity, REPAIRS),
    )


@dataclass
class _Repaired:
    """The functions of a recipe for the datasets that are repaired."""

    recipe: Recipe
    _known: tuple[Source, Repairs] | None = None

    def describe(self, source: Source) -> Description:
        published, repairs = self._published(source), self._repairs(source)
        description = self.recipe.describe(published)
        notes = (*description.notes, *(f"repaired: {each}" for each in repairs.sentences))
        metadata = {**description.metadata, REPAIRS: repairs.entries}
        return replace(description, metadata=metadata, notes=notes)

    def blocks(self, source: Source) -> Iterator[Block]:
        return self._repairs(source).applied(self.recipe.blocks(self._published(source)))

    def _published(self, source: Source) -> Source:
        return replace(source, name=source.name.removesuffix(SUFFIX))

    def _repairs(self, source: Source) -> Repairs:
        """Return the repairs of a dataset, found in a pass over all rows."""
        from datasets_cli.audit.repairs import repairs_of  # with numpy

        if self._known is None or self._known[0] != source:
            self._known = source, repairs_of(self.recipe, self._published(source))
        return self._known[1]


_VERSION = re.compile(r"-v(\d+)$")
_NUMBER = re.compile(r"[-/]v?\d+$")
OWN = {"recorded": "record", "derived": "preprocess"}
"""Families of users' datasets, and the command that writes them."""

CLOSE = 0.6
"""The least similarity of a name that is suggested; `nope` and `gopher` have 0.5."""

GetWeb = Callable[[], Web]
"""Returns the network, which is imported when it is first needed."""


@dataclass(frozen=True)
class Resolved:
    """One dataset that a recipe knows."""

    recipe: Recipe
    name: str
    entry: CatalogueEntry | None

    @cached_property
    def id(self) -> str:
        """``family/name``."""
        return f"{self.recipe.family}/{self.name}"


def resolve(
    text: str,
    root: CacheRoot,
    *,
    unlisted: bool = False,
    web: GetWeb | None = None,
    options: Mapping[str, str] | None = None,
) -> Resolved:
    """Return the dataset that a text names."""
    options = options or {}
    resolved = _find(text, root, unlisted, web)
    known = {option.name: f"{option.name}={option.value}" for option in resolved.recipe.options}
    if unknown := [name for name in options if name not in known]:
        raise UsageError(
            f"The family {resolved.recipe.family} has no option {', '.join(unknown)}. "
            f"Expected: {', '.join(known.values()) or 'none, for it has no options'}.",
            argument="options",
            id=resolved.id,
            expected=tuple(known),
            found=tuple(unknown),
        )
    return replace(resolved, name=resolved.recipe.variant(resolved.name, options))


def _find(text: str, root: CacheRoot, unlisted: bool, web: GetWeb | None) -> Resolved:
    check_id(text)
    if text in families():
        raise UnknownDataset(
            f"{text} is a family of datasets, and one dataset is needed here.",
            id=text,
            advice=f"Give one id; rlds list '{text}/*' shows them.",
        )
    family, _, name = text.partition("/")
    if family in families() and name:
        return _find_in(load_recipe(family), name, root, unlisted, web)
    name, tilde, variant = text.partition("~")
    # A name alone never means data that ships with us, such as demo/iris for openml's iris.
    by_family = {
        recipe.family: entries for recipe, entries in catalogues(root) if not recipe.folder
    }
    found_in = {}
    for family, entries in by_family.items():
        if newest := _newest(name, entries):
            found_in[family] = newest
        # It stands for its versions name@N; which one, its publisher says.
        elif any(known.startswith(f"{name}@") for known in entries):
            found_in[family] = name
    if len(found_in) > 1:
        listed = " or ".join(f"{family}/{name}" for family, name in found_in.items())
        raise UsageError(
            f"{text} could be {listed}.",
            id=text,
            found=tuple(f"{family}/{name}" for family, name in found_in.items()),
            advice="Write the family too.",
        )
    if not found_in:
        ids = [f"{family}/{name}" for family, entries in by_family.items() for name in entries]
        raise _unknown(text, ids, root)
    (family, name), *_ = found_in.items()
    return _find_in(load_recipe(family), f"{name}{tilde}{variant}", root, unlisted, web)


def _find_in(
    recipe: Recipe, name: str, root: CacheRoot, unlisted: bool, web: GetWeb | None
) -> Resolved:
    """Return the dataset of a family by its name: a listed one, or one that the recipe finds."""
    if name.endswith(SUFFIX):
        base = name.removesuffix(SUFFIX)
        if base.endswith(SUFFIX):
            raise UsageError(
                f"{recipe.family}/{base} is repaired already.",
                id=f"{recipe.family}/{name}",
                advice=f"Write {recipe.family}/{base}.",
            )
        published = _find_in(recipe, base, root, unlisted, web)
        name = f"{published.name}{SUFFIX}"
        return replace(published, recipe=recipe_of(recipe, name), name=name)
    entries = catalogue(recipe, root)
    listed = _newest(name, entries)
    if listed is not None:
        return Resolved(recipe, listed, entries[listed])
    entry = recipe.find(name, None)
    if entry is None and unlisted and recipe.unlisted:
        return Resolved(recipe, name, None)
    if entry := entry or _find_unlisted(recipe, name, web, entries, root):
        return Resolved(recipe, entry.name, entry)
    ids = [f"{recipe.family}/{known}" for known in entries]
    raise _unknown(f"{recipe.family}/{name}", ids, root)


def _find_unlisted(
    recipe: Recipe, name: str, web: GetWeb | None, entries: Iterable[str], root: CacheRoot
) -> CatalogueEntry | None:
    """Return the entry of an unlisted name; offline, that of its highest version ``@N``."""
    try:
        return recipe.find(name, web()) if web else _highest(recipe, name, entries, root)
    except OfflineError:
        if entry := _highest(recipe, name, entries, root):
            return entry
        raise


def _highest(
    recipe: Recipe, name: str, entries: Iterable[str], root: CacheRoot
) -> CatalogueEntry | None:
    """Return the highest version ``name@N`` in the catalogue or installed."""
    family = f"{recipe.family}/"
    here = (id.removeprefix(family) for id in root.installed() if id.startswith(family))
    parts = (known.rpartition("@") for known in (*entries, *here))
    versions = [int(version) for base, _, version in parts if base == name and version.isdecimal()]
    return recipe.find(f"{name}@{max(versions)}", None) if versions else None


def match(patterns: Iterable[str], ids: Iterable[str]) -> list[str]:
    """Return the ids that fit any of the globs, with or without their family, in order."""
    patterns = list(patterns)
    return [
        id
        for id in ids
        if any(
            fnmatch.fnmatchcase(id, pattern) or fnmatch.fnmatchcase(id.partition("/")[2], pattern)
            for pattern in patterns
        )
    ]


def known_ids(root: CacheRoot) -> list[str]:
    """Return all ids of the catalogues, in order."""
    return [
        f"{recipe.family}/{name}" for recipe, names in catalogues(root) for name in sorted(names)
    ]


def is_glob(text: str) -> bool:
    """Return whether a text is a pattern rather than a name."""
    return any(character in text for character in "*?[")


def _newest(name: str, entries: Collection[str]) -> str | None:
    """Return the name itself, or its highest version ``name-vN``."""
    if name in entries:
        return name
    if _VERSION.search(name):
        return None
    versions = [
        (int(match[1]), other)
        for other in entries
        if (match := _VERSION.search(other)) and other[: match.start()] == name
    ]
    return max(versions)[1] if versions else None


def _unknown(text: str, listed: list[str], root: CacheRoot) -> UnknownDataset | UsageError:
    base = text.removesuffix(SUFFIX)
    family, _, rest = base.partition("/")
    here = [id for id in root.installed() if id != text and not id.startswith("demo/")]
    if base != text and base in (*here, *(id.partition("/")[2] for id in here)):
        return UsageError(
            f"{text} has no meaning: {base} was not read by a recipe, and only files that a recipe "
            "reads are repaired.",
            id=text,
            advice=f"Its defects: rlds audit {base}",
        )
    ids = list(dict.fromkeys((*here, *listed)))
    word = (rest if family in {id.partition("/")[0] for id in ids} else base).lower()
    containing = sorted((id for id in ids if word in id.lower()), key=lambda id: _rank(word, id))
    near = _nearest(base.lower(), word, ids, containing)
    hints = [f"Did you mean {', '.join(near)}?"] if near else []
    hint = "".join(f" {each}" for each in (*hints, folder_advice(text)) if each)
    # In the case of the ids: rlds list is case-sensitive.
    start = containing[0].lower().index(word) if containing[3:] else 0
    more = f" {containing[0][start : start + len(word)]}" if containing[3:] else ""
    if verb := OWN.get(family):
        return UnknownDataset(
            f"No recipe reads {text}: {family} datasets are written by rlds {verb}.{hint}",
            id=text,
            found=tuple(near),
            advice=f"See: rlds list --installed '{family}/*'",
        )
    return UnknownDataset(
        f"{text} is not a known dataset.{hint}",
        id=text,
        found=tuple(near),
        advice=f"See: rlds list{more}",
    )


def _nearest(text: str, word: str, ids: list[str], containing: list[str]) -> list[str]:
    """Return up to three ids that resemble a text; of several versions one, unless it has one."""
    base = _NUMBER.sub("", text)
    groups = {id: _NUMBER.sub("", id) for id in ids}
    versions = {  # of the name that the text has with another version
        id
        for id, group in groups.items()
        if base in (group.lower(), group.partition("/")[2].lower())
    }
    matches = dict.fromkeys(versions, 1.0)  # how well each id matches
    for id in groups.keys() - versions:
        name = id.partition("/")[2].lower()
        for wanted, found in ((text, name), (text, id.lower()), *_words(word, name)):
            matcher = difflib.SequenceMatcher(None, found, wanted)
            if matcher.real_quick_ratio() >= CLOSE and matcher.quick_ratio() >= CLOSE:
                matches[id] = max(matches.get(id, 0), matcher.ratio())
    close = sorted(
        (id for id, match in matches.items() if match >= CLOSE),
        key=lambda id: (-matches[id], _rank(word, id)),
    )
    first: dict[str, str] = {}
    family = text.partition("/")[0]
    for id in sorted((*containing, *close), key=lambda id: id.partition("/")[0] != family):
        first.setdefault(id if id in versions else groups[id], id)
    return list(first.values())[:3]


def _words(word: str, name: str) -> list[tuple[str, str]]:
    """Return a word beside the first word of each part of a name."""
    return [(word, first) for first in re.findall(r"(?:^|/)([a-z0-9]+)", name)]


def _rank(word: str, id: str) -> tuple[bool, bool, int, int, str]:
    """Return a sort key of ids that contain a word, the likeliest first."""
    # Names that begin with the word, then names with a part that does; short and new ones first.
    name = id.partition("/")[2].lower()
    version = _VERSION.search(name)
    return (
        not name.startswith(word),
        not re.search(rf"(?<![a-z0-9]){re.escape(word)}", name),
        len(name),
        -int(version[1]) if version else 0,
        id,
    )


KNOWN_IDS = {"argument": True, "metavar": "ID", "complete": "known_ids"}
INSTALLED_IDS = {"argument": True, "metavar": "ID", "complete": "installed_ids"}
"""Fields of the command line for ids of the catalogue, and of installed datasets."""


@dataclass(frozen=True)
class KnownIds(RootOptions):
    """Datasets, installed or not.

    Args:
        ids: an id, a name that resolves to one, a glob, or several of them.
    """

    ids: str | Iterable[str] = field(
        metadata={**KNOWN_IDS, "help": "Ids or globs of datasets, e.g. 'd4rl/hopper-*'."}
    )


@dataclass(frozen=True)
class KnownId(RootOptions):
    """One dataset, installed or not.

    Args:
        id: ``family/name``; the family may be left out where the name is unique.
    """

    id: str = field(metadata={**KNOWN_IDS, "help": "Id of a dataset."})


@dataclass(frozen=True)
class InstalledIds(RootOptions):
    """Datasets that are installed.

    Args:
        ids: an id, a name that resolves to one, a glob, or several of them; all by default.
    """

    ids: str | Iterable[str] = field(
        default="*",
        metadata={
            **INSTALLED_IDS,
            "default": "",
            "help": "Ids or globs of installed datasets; all of them by default.",
        },
    )


@dataclass(frozen=True)
class InstalledId(RootOptions):
    """One dataset that is installed.

    Args:
        id: ``family/name``; the family may be left out where the name is unique.
    """

    id: str = field(metadata={**INSTALLED_IDS, "help": "Id of an installed dataset."})


def as_list(texts: str | Iterable[str]) -> list[str]:
    """Return one text, or several, as a list."""
    several = [texts] if isinstance(texts, str) else texts
    return [text if isinstance(text, str) else refuse_id(text) for text in several]


def named_ids(ids: str | Iterable[str]) -> list[str]:
    """Return ids as a list; reject an empty one, which may be a mistake and never means all."""
    if not (texts := as_list(ids)):
        raise UsageError(
            f"{argument('ids')} is empty: no dataset is named.",
            argument="ids",
            advice="Give an id or a glob, such as 'd4rl/hopper-*'; '*' stands for all.",
        )
    return texts


def select_known(ids: str | Iterable[str], config: Config) -> list[str]:
    """Return the ids with every glob replaced by its matches in the catalogue."""
    texts = named_ids(ids)
    known = known_ids(CacheRoot(config.root)) if any(map(is_glob, texts)) else []
    return select_each(texts, partial(_matching, known, "known", "rlds list"))


def select_installed(ids: str | Iterable[str], config: Config) -> list[str]:
    """Return the ids with every glob replaced by its matches among installed datasets."""
    installed = list(CacheRoot(config.root).installed())
    return select_each(named_ids(ids), partial(_installed, installed))


def select_each(texts: Iterable[str], select: Callable[[str], Iterable[str]]) -> list[str]:
    """Return the ids that texts select, each id once."""
    selected: list[str] = []
    errors: list[RldsError] = []
    for text in texts:
        try:
            selected += select(text)
        except (UnknownDataset, DatasetNotInstalled) as error:
            errors.append(error)
    if errors:
        raise together(errors)
    return list(dict.fromkeys(selected))


def together(errors: list[RldsError]) -> RldsError:
    """Join errors into one; a single error is unchanged."""
    first = errors[0]
    if not errors[1:]:
        return first
    kind = type(first) if len({type(error) for error in errors}) == 1 else DatasetNotInstalled
    # The same text twice is one mistake.
    numbered = enumerate(dict.fromkeys(map(str, errors)), 1)
    return kind("".join(["Not found:", *(f"\n  {number}. {text}" for number, text in numbered)]))


def _installed(installed: list[str], text: str) -> list[str]:
    if text == "*":
        return installed
    return _matching(installed, "installed", "rlds list --installed", text)


def _matching(ids: list[str], which: str, command: str, text: str) -> list[str]:
    """Return the ids that a glob matches; any other text unchanged."""
    matched = match([text], ids) if is_glob(text) else [text]
    if not matched:
        raise UnknownDataset(
            f"No {which} dataset matches {text!r}.", id=text, advice=f"See: {command}"
        )
    return matched
