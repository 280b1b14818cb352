"""Everything known about one dataset, without opening its data, and its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets_cli.audit.report import AuditReport, load_report
from datasets_cli.catalogue.entries import families, load_recipe
from datasets_cli.catalogue.names import InstalledId, KnownId, Resolved, resolve
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import takes_fields
from datasets_cli.errors import UnknownDataset, UsageError
from datasets_cli.install.find import (
    condition_of,
    id_without_family,
    installed_id,
    is_installed,
)
from datasets_cli.recipe import Option
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.deep_report import TABLE, DeepReport, report_from_json
from datasets_cli.store.manifest import Manifest
from datasets_cli.store.tables import load_summary, load_table
from datasets_cli.verbs.list import DatasetRecord, Known, record_fields


@dataclass(frozen=True)
class DatasetInfo(DatasetRecord):
    """The metadata of a dataset.

    Args:
        family: the first part of the id; None, like all fields up to ``options``, for a dataset
            without a recipe.
        version: the version of the recipe.
        title: one line about the family.
        licence: the licence of the data, as the publisher states it.
        citation: how to cite the data.
        homepage: where the publisher describes the family.
        details: other facts in the catalogue.
        options: the options of the family, which select variants.
        path: the folder of the installed dataset.
        manifest: the manifest of the installed dataset; None if it is damaged.
        report: the report of the last deep check, or None.
        summary: cached statistics of columns and trajectories, or None.
        audited: the findings of the last audit, or None.
    """

    JSON = (
        DatasetRecord.JSON
        + " family? version? licence? citation? homepage? title? details? options|null? path? "
        "content=manifest.content? layout=manifest.layout? manifest? deep=report? summary? audited?"
    )

    family: str | None = None
    version: int | None = None
    title: str | None = None
    licence: str | None = None
    citation: str | None = None
    homepage: str | None = None
    details: Mapping[str, Any] | None = None
    options: tuple[Option, ...] = ()
    path: Path | None = None
    manifest: Manifest | None = None
    report: DeepReport | None = None
    summary: Mapping[str, Any] | None = None
    audited: AuditReport | None = None

    @property
    def known_traps(self) -> list[str]:
        """The defects that the newest catalogue lists, then others that were found in the file."""
        found = self.manifest.metadata.get("known_traps", ()) if self.manifest else ()
        return list(dict.fromkeys([*(self.details or {}).get("known_traps", ()), *found]))


@takes_fields(KnownId)
def dataset_info(call: KnownId) -> DatasetInfo:
    """Return everything known about a dataset, installed or not; works offline.

    Raises:
        UnknownDataset: no recipe and no folder has that name; the message has the nearest ones.
        UsageError: the name exists in several families.
    """
    id, place = call.id, CacheRoot(call.chosen_config().root)
    known: Known | None
    if is_installed(place, id):
        known = _known(id, place)
    elif resolved := _resolved(id, place):
        id = resolved.id
        assert resolved.entry is not None, "only unlisted datasets lack one, and none is asked for"
        known = resolved.recipe, resolved.entry
    else:
        id, known = id_without_family(id, place) or id, None
    condition = condition_of(place.dataset(id), id) if is_installed(place, id) else None
    facts: dict[str, Any] = record_fields(id, known, condition, place)
    if known:
        facts |= _published(known)
    if condition:
        facts |= {"path": place.dataset(id)}
    if condition and condition.manifest:
        facts |= _copied(condition.manifest, place)
    return DatasetInfo(**facts)


def _resolved(id: str, root: CacheRoot) -> Resolved | None:
    """Return the dataset of the catalogue, or None if it is only installed."""
    try:
        return resolve(id, root)
    except UnknownDataset:
        if id_without_family(id, root) is None:
            raise
        return None


def _known(id: str, root: CacheRoot) -> Known | None:
    """Return the catalogue entry of an installed dataset, whose recipe may be missing."""
    try:
        resolved = resolve(id, root)
    except (UnknownDataset, UsageError):
        return None
    return (resolved.recipe, resolved.entry) if resolved.entry and resolved.id == id else None


def _published(known: Known) -> dict[str, Any]:
    recipe, entry = known
    described = recipe.to_json()
    described.pop("identity", None)  # of the manifest alone
    return described | {"title": recipe.title, "details": entry.details, "options": recipe.options}


def _copied(manifest: Manifest, root: CacheRoot) -> dict[str, Any]:
    """Return the manifest of an installed dataset and the report of its deep check."""
    # The manifest speaks of this dataset; a recipe speaks of its whole family, and of nothing
    # that was derived, which has its parent's licence.
    own = {**manifest.recipe, **{key: text for key, text in manifest.metadata.items() if text}}
    published = str(own.get("sample_of")).partition("/")[0]
    if published in families():  # of the demo, whose recipe has no citation
        own["citation"] = load_recipe(published).citation
    table = load_table(root, manifest.content, TABLE)
    report = None if table is None else report_from_json(table)
    terms = {key: own[key] for key in ("licence", "citation") if own.get(key)}
    summary, audited = (load(root, manifest.content) for load in (load_summary, load_report))
    tables = {"report": report, "summary": summary, "audited": audited}
    return terms | {"manifest": manifest, **tables}


@dataclass(frozen=True)
class DatasetFolder(JsonForm):
    """The folder of an installed dataset, for ``open``, ``Path`` and ``str``.

    Args:
        id: the full id.
        path: the folder.
        state: ``"installed"``, ``"unchecked"``, ``"unverified"`` or ``"damaged"``.
        problem: the reason why it is damaged, or empty.
    """

    JSON = "id path state"

    id: str
    path: Path
    state: str = "installed"
    problem: str = ""

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)


@takes_fields(InstalledId)
def dataset_path(call: InstalledId) -> DatasetFolder:
    """Return the folder of an installed dataset, which ``Path`` and ``open`` accept.

    Raises:
        DatasetNotInstalled: the dataset is not installed under this root.
        UnknownDataset: no recipe and no folder has that name.
    """
    config = call.chosen_config()
    id = installed_id(call.id, config)
    folder = CacheRoot(config.root).dataset(id)
    condition = condition_of(folder, id)
    return DatasetFolder(id, folder, condition.state, condition.problem)
