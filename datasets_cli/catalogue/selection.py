"""The datasets that the ids and globs of one call select."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from datasets_cli.catalogue.names import is_glob, known_ids, match
from datasets_cli.config import Config, RootOptions
from datasets_cli.errors import (
    DatasetNotInstalled,
    RldsError,
    UnknownDataset,
    UsageError,
    argument,
)
from datasets_cli.store.cache_root import CacheRoot, refuse_id

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
