"""The datasets of OpenML, by any of their names, and the files of each.

``openml/61`` is a dataset by its id, ``openml/adult@2`` a version of a name, ``openml/iris`` the
newest active version of a name, and ``openml/adult_num`` a name of ``catalogue.tsv``, in TorchRL's
encoding. The file is ARFF, whose md5 OpenML states. Parquet, whose md5 it does not state and which
may declare labels in another order, is used if ARFF does not exist.

Facts of the API: ``sklearn.datasets.fetch_openml`` 1.9.1, its captured answers, and openml-python.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from datasets_cli.recipe import (
    CatalogueEntry,
    Entries,
    Place,
    Resource,
    UnknownDataset,
    UsageError,
    Web,
    install_extra,
    read_bibtex,
    read_tsv,
)

from . import api

DESCRIPTION = "description.json"
FEATURES = "features.json"
ARFF = "dataset.arff"
PARQUET = "dataset.pq"
DETAILS = ("openml_name", "version", "data_id", "encoding", "target")


def datasets(web: Web | None) -> Iterable[CatalogueEntry]:
    """Return the named datasets; online also every active dataset of OpenML."""
    named = Entries(_table(), _entry)
    if web is None:
        return named
    return {entry.name: entry for entry in (*api.published(web), *named)}.values()


def find(name: str, web: Web | None) -> CatalogueEntry | None:
    """Return the entry of an id, a version of a name, or a bare name; None if it is unknown."""
    base, at, version = name.partition("@")
    if _is_number(name):
        same = (row for row in _table().values() if row["data_id"] == name and not row["encoding"])
        row = next(same, None)
        known = _entry(row["name"]) if row else CatalogueEntry(name)
        return replace(known, name=name, details={**known.details, "data_id": name})
    if at:
        details = {"openml_name": base, "version": version}
        return CatalogueEntry(name, details=details) if _is_number(version) else None
    if web is None:
        return None
    if active := api.versions(name, "active", web):
        return find(f"{name}@{active[-1]}", web)
    if old := api.versions(name, "deactivated", web):
        ids = ", ".join(f"openml/{name}@{version}" for version in old)
        raise UnknownDataset(
            f"openml/{name} has no active version: OpenML has deactivated {ids} because of "
            "problems.",
            id=f"openml/{name}",
            found=ids,
            advice="Name one of them to install it anyway.",
        )
    return None


def resources(name: str, web: Web | None) -> list[Resource]:
    """Return the two documents on a dataset and its file."""
    assert web is not None, "files under --source are found by resources_at"
    number = _data_id(name, web)
    return [
        _document(f"{api.API}/{number}", DESCRIPTION),
        _document(f"{api.API}/features/{number}", FEATURES),
        _file(name, api.description(number, web)),
    ]


def resources_at(name: str, place: Place) -> list[Resource]:
    """Return the same three files under ``--source``; ARFF must have the stated md5."""
    names = place.names()
    if names is not None and DESCRIPTION not in names:
        raise UsageError(
            f"openml/{name} needs the file {DESCRIPTION}, which is not in {place}.",
            argument="source",
            path=str(place),
            expected=DESCRIPTION,
            advice=f"OpenML's files have no names: save {api.API}/ID as {DESCRIPTION}, "
            f"{api.API}/features/ID as {FEATURES}, and the url in the former as {ARFF}.",
        )
    stated = api.content(place.json(DESCRIPTION), "data_set_description", DESCRIPTION)
    documents = [Resource((), page, describes=True) for page in (DESCRIPTION, FEATURES)]
    if not place.has(ARFF) and place.has(PARQUET):
        _check_parquet_reader(name)
        return [*documents, Resource((), PARQUET, magic=b"PAR1")]
    return [*documents, Resource((), ARFF, checksums=_md5(stated))]


@cache
def _table() -> dict[str, dict[str, str]]:
    return {row["name"]: row for row in read_tsv(Path(__file__).with_suffix(".tsv"))}


def _entry(name: str) -> CatalogueEntry:
    row = _table()[name]
    count = int(row["num_transitions"]) if row["num_transitions"] else None
    return CatalogueEntry(
        name=name,
        size=int(row["size"]) if row["size"] else None,
        num_transitions=count,
        num_trajectories=count,
        details={key: row[key] or None for key in DETAILS},
    )


def _is_number(text: str) -> bool:
    return re.fullmatch("[1-9][0-9]*", text) is not None


def _data_id(name: str, web: Web) -> str:
    if _is_number(name):
        return name
    entry = _entry(name) if name in _table() else find(name, None)
    assert entry is not None, "resolved names have a version"
    return api.data_id(entry.details["openml_name"], entry.details["version"], web)


def _document(url: str, filename: str) -> Resource:
    return Resource((url,), filename, magic=b"{", no_such_data=api.no_such_data, describes=True)


def _file(name: str, description: api.Entry) -> Resource:
    url = api.text(description, "url")
    if url and not url.endswith((".pq", ".parquet")):
        return Resource(api.file_urls(url), ARFF, checksums=_md5(description))
    _check_parquet_reader(name)
    urls = [url, *(api.text(description, key) for key in ("parquet_url", "minio_url"))]
    return Resource(tuple(dict.fromkeys(filter(None, urls))), PARQUET, magic=b"PAR1")


def _md5(description: api.Entry) -> dict[str, str]:
    md5 = api.text(description, "md5_checksum").lower()
    return {"md5": md5} if md5 else {}


def _check_parquet_reader(name: str) -> None:
    if find_spec("pyarrow") is None:
        raise UsageError(
            f"openml/{name} is published only as Parquet, which needs pyarrow.",
            id=f"openml/{name}",
            advice=install_extra("parquet"),
        )


def references(name: str) -> dict[str, str]:
    """Return OpenML's paper."""
    return read_bibtex(Path(__file__).with_name("references.bib"))
