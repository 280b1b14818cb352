"""OpenML: tables of features and labels, each row a trajectory of one step.

``openml/61`` is a dataset by its id, ``openml/adult@2`` a version of a name, ``openml/iris`` the
newest active version of one, and ``openml/adult_num`` a name of ``openml.tsv``, as TorchRL has and
prepares it. The file is ARFF, whose md5 OpenML states. Parquet, of which it states none and which
may declare labels in another order, serves where there is no ARFF.

Facts of the API: ``sklearn.datasets.fetch_openml`` 1.9.1, its captured answers, and openml-python.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from datasets_cli.recipe import (
    Block,
    CatalogueEntry,
    Description,
    Place,
    Recipe,
    Resource,
    Source,
    SourceError,
    UnknownDataset,
    UsageError,
    Web,
    read_tsv,
)

from . import _openml_api as api
from ._openml_parquet import check_reader
from ._openml_table import (
    ARFF,
    DESCRIPTION,
    FEATURES,
    PARQUET,
    Table,
    read_blocks,
    read_table,
    shown,
)
from ._openml_torchrl import Prepared, prepare

IDENTITY = {"data_id": "id", "openml_name": "name", "version": "version"}
DETAILS = ("openml_name", "version", "data_id", "encoding", "target")
STATED = ("name", "version", "status", "licence", "citation", "creator", "upload_date")


def datasets(web: Web | None) -> list[CatalogueEntry]:
    """Return the named datasets; online also every active dataset of OpenML.

    Raises:
        AccessError, NetworkError: the list cannot be had.
    """
    named = [_row(row) for row in read_tsv(Path(__file__).with_suffix(".tsv"))]
    rows = {row.name: row for row in (*(api.published(web) if web else ()), *named)}
    return list(rows.values())


def find(name: str, web: Web | None) -> CatalogueEntry | None:
    """Return what an id, a version of a name, or a bare name means; None where that is nothing.

    Raises:
        UnknownDataset: every version of the name is deactivated.
        AccessError, NetworkError: OpenML is needed and does not answer.
    """
    base, at, version = name.partition("@")
    if _is_number(name):
        same = (row for row in datasets(None) if row.details["data_id"] == name)
        known = next((row for row in same if not row.details["encoding"]), CatalogueEntry(name))
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
            f"openml/{name} has no active version: OpenML has deactivated {ids}, in which problems "
            "were found. Name one of them to take it all the same."
        )
    return None


def resources(name: str, web: Web | None) -> list[Resource]:
    """Return the two documents on a dataset, and its file.

    Args:
        name: of the dataset.
        web: OpenML.

    Raises:
        UnknownDataset: OpenML has it not.
        UsageError: it is Parquet alone, and no reader is installed.
        SourceError, AccessError, NetworkError: what OpenML answers is of no use.
    """
    assert web is not None, "files under --source are found by resources_at"
    number = _data_id(name, web)
    return [
        Resource((f"{api.API}/{number}",), DESCRIPTION, magic=b"{"),
        Resource((f"{api.API}/features/{number}",), FEATURES, magic=b"{"),
        _file(name, api.description(number, web)),
    ]


def resources_at(name: str, place: Place) -> list[Resource]:
    """Return the same three files where ``--source`` says; the ARFF has the md5 that is stated.

    Raises:
        UsageError: the folder has no description, as one that mirrors OpenML's paths has not.
    """
    names = place.names()
    if names is not None and DESCRIPTION not in names:
        raise UsageError(
            f"openml/{name} needs the file {DESCRIPTION}, which is not in {place}. OpenML's files "
            f"have no names of their own: save what {api.API}/ID answers as {DESCRIPTION}, "
            f"{api.API}/features/ID as {FEATURES}, and the url in the former as {ARFF}."
        )
    said = api.content(place.json(DESCRIPTION), "data_set_description", DESCRIPTION)
    documents = [Resource((), DESCRIPTION), Resource((), FEATURES)]
    if not place.has(ARFF) and place.has(PARQUET):
        check_reader(f"openml/{name}")
        return [*documents, Resource((), PARQUET, magic=b"PAR1")]
    return [*documents, Resource((), ARFF, checksums=_md5(said))]


def describe(source: Source) -> Description:
    """Return what OpenML says of the dataset and its columns, and what is left out."""
    table = read_table(source)
    _check_identity(source, table)
    said = table.description
    metadata: dict[str, Any] = {key: api.text(said, key) for key in STATED if said.get(key)}
    metadata |= {"data_id": api.text(said, "id"), "left_out": dict(table.left_out)}
    prepared = _prepared(source, table)
    metadata |= prepared.metadata if prepared else _columns(table)
    notes = [f"left out, {why}: {shown(names)}" for why, names in table.left_out.items()]
    if metadata.get("status") not in (None, "active"):
        notes.append(f"OpenML marks it as {metadata['status']}: problems were found in it")
    notes += [f"OpenML says: {api.text(said, key)}" for key in ("error", "warning") if key in said]
    if not table.targets:
        notes.append("it has no label; the action is empty")
    if prepared is None and table.num_missing_labels:
        notes.append(f"labels missing: {table.num_missing_labels}; the action is NaN there")
    return Description(metadata, tuple(notes))


def blocks(source: Source) -> Iterator[Block]:
    """Yield the rows in the file's order."""
    table = read_table(source)
    prepared = _prepared(source, table)
    yield from prepared.blocks() if prepared else read_blocks(source, table)


def _row(row: dict[str, str]) -> CatalogueEntry:
    count = int(row["num_transitions"]) if row["num_transitions"] else None
    return CatalogueEntry(
        name=row["name"],
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
    rows = {row.name: row for row in datasets(None)}
    row = rows.get(name) or find(name, None)
    assert row is not None, "what resolves has a version"
    return api.data_id(row.details["openml_name"], row.details["version"], web)


def _file(name: str, description: api.Entry) -> Resource:
    url = api.text(description, "url")
    if url and not url.endswith((".pq", ".parquet")):
        return Resource(api.file_urls(url), ARFF, checksums=_md5(description))
    check_reader(f"openml/{name}")
    urls = [url, *(api.text(description, key) for key in ("parquet_url", "minio_url"))]
    return Resource(tuple(dict.fromkeys(filter(None, urls))), PARQUET, magic=b"PAR1")


def _md5(description: api.Entry) -> dict[str, str]:
    md5 = api.text(description, "md5_checksum").lower()
    return {"md5": md5} if md5 else {}


def _check_identity(source: Source, table: Table) -> None:
    """Refuse the files of another dataset than the name says; a bare name says no version."""
    expected = source.row.details if source.row else {"openml_name": source.name}
    for key, field in IDENTITY.items():
        wanted, found = expected.get(key), api.text(table.description, field)
        if wanted and str(wanted).lower() != found.lower():
            raise SourceError(
                f"{DESCRIPTION} is that of another dataset: expected the {field} {wanted}, "
                f"found {found or 'none'}. Check --source."
            )


def _prepared(source: Source, table: Table) -> Prepared | None:
    """Return the table as TorchRL prepares it, where the name asks for that."""
    details = source.row.details if source.row else {}
    if not details.get("encoding"):
        return None
    return prepare(source, table, details["encoding"], details["target"] or "")


def _columns(table: Table) -> dict[str, Any]:
    return {
        "feature_names": [column.name for column in table.features],
        "categories": {c.name: list(c.labels) for c in table.features if c.labels is not None},
        "target_names": [column.name for column in table.targets],
        "classes": {c.name: list(c.labels) for c in table.targets if c.labels is not None},
    }


RECIPE = Recipe(
    family="openml",
    version=1,
    title="OpenML: tables of features and labels",
    licence="each dataset's own, as OpenML states it",
    citation="Vanschoren, van Rijn, Bischl, Torgo. OpenML: networked science in machine learning. "
    "SIGKDD Explorations 15(2), 2014. Each dataset has its own as well.",
    homepage="https://www.openml.org",
    datasets=datasets,
    resources=resources,
    resources_at=resources_at,
    blocks=blocks,
    describe=describe,
    unlisted=True,
    dynamic=True,
    find=find,
)
