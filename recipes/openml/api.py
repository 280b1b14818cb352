"""OpenML's API. It was XML once: numbers are texts, and a list of one element may be that element.

HTTP 412 with an error text means that the data do not exist. A file's address names one of several
hosts of openml.org, which have changed over the years and redirect to each other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from datasets_cli.formats.limits import read_json_file
from datasets_cli.recipe import CatalogueEntry, SourceError, UnknownDataset, Web

SITE = "https://www.openml.org/"
API = f"{SITE}api/v1/json/data"
SEARCH = f"{SITE}search?type=data"
HOSTS = ("www.openml.org", "api.openml.org")
PAGE = 1000
NO_SUCH_DATA = 412

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=-]*")  # a part of an id

Entry = Mapping[str, Any]


def as_list(value: Any) -> list[Any]:
    """Return a list from a list, its only element, or None."""
    if isinstance(value, list):
        return value
    return [] if value is None else [value]


def text(entry: Entry, key: str) -> str:
    """Return a field as text, several values joined; empty if it is missing."""
    return ", ".join(str(value) for value in as_list(entry.get(key)))


def is_true(entry: Entry, key: str) -> bool:
    """Return whether a flag is set."""
    return str(entry.get(key)).lower() == "true"


def no_such_data(status: int, body: bytes) -> str | None:
    """Return OpenML's error text for unknown data; None for any other refusal."""
    # A 412 without this text is an ordinary failure of another server.
    if status != NO_SUCH_DATA:
        return None
    try:
        return str(json.loads(body)["error"]["message"])
    except (KeyError, TypeError, ValueError):
        return None


def description(data_id: str, web: Web) -> Entry:
    """Return OpenML's description of a dataset."""
    url = f"{API}/{data_id}"
    try:
        return content(web.json(url, no_such_data), "data_set_description", url)
    except UnknownDataset as error:
        raise UnknownDataset(
            f"openml/{data_id} is not a known dataset: {error}",
            id=f"openml/{data_id}",
            advice=f"Search: {SEARCH}",
        ) from error


def content(document: Any, key: str, where: str) -> Entry:
    """Return the object below the only key of an answer of the API."""
    try:
        return dict(document[key])
    except (KeyError, TypeError, ValueError) as error:
        raise SourceError(
            f"{where} is not OpenML's: expected an object {key!r}.",
            path=where,
            key=key,
            advice="Check --mirror or --source.",
        ) from error


def column_entries(path: Path) -> list[Entry]:
    """Return OpenML's description of each column, sorted by number."""
    where = path.name
    entries = as_list(content(read_json_file(path), "data_features", where).get("feature"))
    try:
        by_number = {
            int(entry["index"]): {**entry, "name": str(entry["name"])} for entry in entries
        }
    except (KeyError, TypeError, ValueError) as error:
        raise SourceError(f"{where} is not OpenML's: {error!r} of a column.", path=where) from error
    if sorted(by_number) != list(range(len(entries))):
        found = [str(entry["index"]) for entry in entries]
        raise SourceError(
            f"{where} is damaged: expected the columns 0 to {len(entries) - 1}, found "
            f"{shown(found)}.",
            path=where,
            expected=len(entries),
            found=found,
        )
    return [by_number[number] for number in range(len(entries))]


def shown(names: Sequence[str]) -> str:
    """Return the first ten names and the number of further names."""
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(names[:10]) + more


def data_id(name: str, version: str, web: Web) -> str:
    """Return the id of one version of a name, active or deactivated."""
    named = f"data_name/{quote(name.lower())}/limit/2/data_version/{version}"
    found = search(named, web) or search(f"{named}/status/deactivated", web)
    if found:
        return str(found[0]["did"])
    others = ", ".join(f"openml/{name}@{number}" for number in versions(name, "active", web))
    raise UnknownDataset(
        f"openml/{name}@{version} is not a known dataset: OpenML has "
        f"{others or 'no active dataset of that name'}.",
        id=f"openml/{name}@{version}",
        found=others,
        advice=f"Search: {SEARCH}",
    )


def versions(name: str, status: str, web: Web) -> list[int]:
    """Return the versions of a name with status ``active`` or ``deactivated``, sorted."""
    found = search(f"data_name/{quote(name.lower())}/limit/{PAGE}/status/{status}", web)
    return sorted(entry["version"] for entry in found)


def search(filters: str, web: Web) -> list[Entry]:
    """Return the datasets that match the filters. OpenML answers 412 if no dataset matches."""
    url = f"{API}/list/{filters}"
    try:
        return [
            {**entry, "did": str(entry["did"]), "version": int(entry["version"])}
            for entry in as_list(web.json(url, no_such_data)["data"]["dataset"])
        ]
    except UnknownDataset:
        return []
    except (KeyError, TypeError, ValueError) as error:
        raise SourceError(f"{url} did not answer like OpenML.", advice="Check --mirror.") from error


def published(web: Web) -> Iterator[CatalogueEntry]:
    """Yield every active dataset of OpenML."""
    offset = 0
    while page := search(f"limit/{PAGE}/offset/{offset}/status/active", web):
        yield from map(_entry, page)
        offset += len(page)


def file_urls(url: str) -> tuple[str, ...]:
    """Return the addresses of a file: its stated one, then the same at OpenML's other hosts."""
    parts = urlsplit(url)
    if not (parts.hostname or "").endswith("openml.org"):
        return (url,)
    hosts = dict.fromkeys((parts.hostname, *HOSTS))
    return tuple(parts._replace(scheme="https", netloc=str(host)).geturl() for host in hosts)


def _entry(entry: Entry) -> CatalogueEntry:
    qualities = {quality["name"]: quality["value"] for quality in as_list(entry.get("quality"))}
    rows = qualities.get("NumberOfInstances")
    count = int(float(rows)) if rows else None
    details = {"openml_name": entry["name"], "version": entry["version"], "data_id": entry["did"]}
    name = f"{entry['name']}@{entry['version']}" if _NAME.fullmatch(entry["name"]) else entry["did"]
    return CatalogueEntry(name, None, count, count, details)
