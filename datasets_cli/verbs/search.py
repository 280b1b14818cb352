"""Search: datasets by words of their ids, titles, environments, tags, licences and notes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from datasets_cli.catalogue.selection import as_list
from datasets_cli.config import RootOptions
from datasets_cli.core.options import takes_fields
from datasets_cli.errors import UsageError
from datasets_cli.install.find import Condition
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.verbs.list import DatasetRecord, Known, all_datasets, record_fields

WEIGHTS = {"id": 8, "title": 4, "environment": 4, "tag": 3, "licence": 2, "note": 1}
"""What a word counts by where it is; twice as much where a word there begins with it."""

PLACES = {
    **dict.fromkeys(("env", "env_id", "env_spec"), "environment"),
    **dict.fromkeys(("about", "openml_name"), "title"),
    **dict.fromkeys(("tags", "algorithm", "algorithm_name", "author", "rl_unplugged"), "tag"),
    "licence": "licence",
}
"""Where what the catalogue and manifests say stands; all else is a note."""


@dataclass(frozen=True)
class FoundDataset(DatasetRecord):
    """A dataset that a search finds.

    Args:
        where: the words are: in its id, title, environment, tags, licence or notes.
        score: the higher, the better it fits.
    """

    JSON = DatasetRecord.JSON + " where score"

    where: tuple[str, ...] = ()
    score: int = 0


@dataclass(frozen=True)
class SearchCall(RootOptions):
    """What ``search_datasets`` takes.

    Args:
        text: words, in any order and case; a dataset has all of them, each somewhere.
    """

    text: str | Iterable[str] = field(
        metadata={"argument": True, "metavar": "TEXT", "help": "Words, all of which it has."}
    )


@takes_fields(SearchCall)
def search_datasets(call: SearchCall) -> list[FoundDataset]:
    """Return the datasets that have all words, those that fit best first; works offline.

    Raises:
        UsageError: there is no word.
    """
    words = " ".join(as_list(call.text)).casefold().split()
    if not words:
        raise UsageError("A search needs a word, such as hopper. All datasets: rlds list")
    found = []
    root = CacheRoot(call.chosen_config().root)
    for id, known in all_datasets(root).items():
        texts = [*_texts(id, *known)]
        best = [_best(word, texts) for word in words]
        if all(score for score, _ in best):
            where = tuple(place for place in WEIGHTS if place in {each[1] for each in best})
            score = sum(each[0] for each in best)
            found.append(FoundDataset(**record_fields(id, *known, root), where=where, score=score))
    return sorted(found, key=lambda each: (-each.score, each.id))


def _best(word: str, texts: Iterable[tuple[str, str]]) -> tuple[int, str]:
    """Return what a word counts, and where; 0 where it is in none of the texts."""
    begins = re.compile(rf"(?<![^\W_]){re.escape(word)}")
    scores = (
        (WEIGHTS[place] * (2 if begins.search(text) else 1), place)
        for place, text in texts
        if word in text
    )
    return max(scores, default=(0, ""))


def _texts(id: str, known: Known | None, condition: Condition | None) -> Iterator[tuple[str, str]]:
    """Yield what is said of a dataset in small letters, each text after its place."""
    yield "id", id.casefold()
    said: list[Mapping[str, Any]] = []
    if known:
        recipe, entry = known
        yield "title", recipe.title.casefold()
        said += [{"licence": recipe.licence, "citation": recipe.citation}, entry.details]
    if manifest := condition and condition.manifest:
        said += [manifest.metadata, manifest.recipe]
    for facts in said:
        for name, value in facts.items():
            if value not in (None, ""):
                yield PLACES.get(name, "note"), str(value).casefold()
