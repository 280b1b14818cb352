"""``rlds list`` and ``rlds info``: what there is, without opening any data."""

from __future__ import annotations

import textwrap
from typing import Annotated, Any

import typer

from datasets_cli.catalogue.entries import all_entries, refresh
from datasets_cli.catalogue.names import is_glob, match, resolve
from datasets_cli.catalogue.registry import families, recipes
from datasets_cli.cli.state import State, human_bytes, human_count, state_of, table
from datasets_cli.errors import DamagedDataset, UnknownDataset, UsageError
from datasets_cli.recipe import CatalogueEntry, Recipe
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.check import check_sizes
from datasets_cli.store.manifest import UNVERIFIED, Manifest, read_manifest

ABSENT = "not installed"


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("list")(list_datasets)
    app.command("info")(info)


def list_datasets(
    context: typer.Context,
    patterns: Annotated[
        list[str] | None, typer.Argument(metavar="[GLOB]...", help="Such as 'hopper-*'.")
    ] = None,
    family: Annotated[str | None, typer.Option(help="Only this family.")] = None,
    installed: Annotated[
        bool, typer.Option("--installed", help="Only what is installed under the root.")
    ] = False,
    update: Annotated[
        bool, typer.Option("--refresh", help="Ask publishers for their newest catalogues first.")
    ] = False,
) -> None:
    """List every known dataset and whether it is installed; works offline."""
    state = state_of(context)
    root = CacheRoot(state.config.root)
    if family is not None and family not in families():
        raise UsageError(f"There is no family {family!r}. Known: {', '.join(families())}.")
    if update:
        _refresh_all(state, root, family)
    here = {id: _manifest_or_none(root, id) for id in root.installed()}
    known = all_entries(root)
    ids = sorted(here if installed else known.keys() | here.keys())
    ids = [id for id in ids if family in (None, id.partition("/")[0])]
    if patterns:
        ids = match([_as_glob(pattern) for pattern in patterns], ids)
    records = [_record(id, known.get(id), id in here, here.get(id)) for id in ids]
    lines = table([_cells(record) for record in records])
    state.emit(records, lines or ["Nothing found."], ids)


def info(
    context: typer.Context,
    id: Annotated[str, typer.Argument(metavar="ID", help="A dataset.")],
) -> None:
    """Show what is known about a dataset, installed or not."""
    state = state_of(context)
    root = CacheRoot(state.config.root)
    manifest = None
    if id in root.installed():
        manifest = read_manifest(root.dataset(id))
        entry = _entry(id, root)
    else:
        resolved = resolve(id, root)
        id = resolved.id
        assert resolved.entry is not None
        entry = resolved.recipe, resolved.entry
        if id in root.installed():
            manifest = read_manifest(root.dataset(id))
    document = _card(id, root, entry, manifest)
    state.emit(document, _lines(document), [id])


def _entry(id: str, root: CacheRoot) -> tuple[Recipe, CatalogueEntry] | None:
    """Return what the catalogue has on an installed dataset; its recipe may be gone."""
    try:
        resolved = resolve(id, root)
    except (UnknownDataset, UsageError):
        return None
    return (resolved.recipe, resolved.entry) if resolved.entry and resolved.id == id else None


def _refresh_all(state: State, root: CacheRoot, family: str | None) -> None:
    from datasets_cli.sources.http import Http

    http = Http(state.config)
    for recipe in recipes():
        if recipe.dynamic and family in (None, recipe.family):
            count = refresh(recipe, root, http)
            state.note(f"{recipe.family}: {count} datasets")


def _state(present: bool, manifest: Manifest | None) -> str:
    """Return the word for a dataset's state."""
    if not present:
        return ABSENT
    if manifest is None:
        return "damaged"
    return "unverified" if manifest.unverified else "installed"


def _manifest_or_none(root: CacheRoot, id: str) -> Manifest | None:
    """Return the manifest, or None where it is damaged: it must not hide the others."""
    try:
        manifest = read_manifest(root.dataset(id))
        check_sizes(root.dataset(id), manifest)
    except DamagedDataset:
        return None
    return manifest


def _as_glob(pattern: str) -> str:
    """A plain word finds every id that contains it."""
    return pattern if is_glob(pattern) else f"*{pattern}*"


def _record(
    id: str, known: tuple[Recipe, CatalogueEntry] | None, present: bool, here: Manifest | None
) -> dict[str, Any]:
    """Return what list and info both say; ``here`` is the manifest of a copy without damage."""
    row = known[1] if known else CatalogueEntry(id)
    return {
        "id": id,
        "state": _state(present, here),
        "installed": here is not None,
        "download_bytes": row.size,
        "bytes": here.size_bytes if here else None,
        "num_transitions": here.num_transitions if here else row.num_transitions,
        "num_trajectories": here.num_trajectories if here else row.num_trajectories,
    }


def _cells(record: dict[str, Any]) -> dict[str, str]:
    return {
        "ID": record["id"],
        "STATE": "-" if record["state"] == ABSENT else record["state"],
        ">STEPS": human_count(record["num_transitions"]),
        ">EPISODES": human_count(record["num_trajectories"]),
        ">DOWNLOAD": human_bytes(record["download_bytes"]),
        ">ON DISK": human_bytes(record["bytes"]) if record["installed"] else "-",
    }


def _card(
    id: str, root: CacheRoot, known: tuple[Recipe, CatalogueEntry] | None, manifest: Manifest | None
) -> dict[str, Any]:
    document = _record(id, known, manifest is not None, manifest and _manifest_or_none(root, id))
    if known:
        recipe, row = known
        document |= recipe.to_json() | {"title": recipe.title, "details": dict(row.details)}
    if manifest:
        document["path"] = str(root.dataset(id))
        document["manifest"] = manifest.to_json()
        said = manifest.metadata  # of this dataset; a recipe speaks of its whole family
        document |= {key: said[key] for key in ("licence", "citation") if said.get(key)}
    return document


def _lines(document: dict[str, Any]) -> list[str]:
    present = "manifest" in document
    cells = {
        "id": document["id"],
        "title": document.get("title"),
        "state": document["state"] + (f" in {document['path']}" if present else ""),
        "steps": human_count(document["num_transitions"]),
        "episodes": human_count(document["num_trajectories"]),
        "download": human_bytes(document["download_bytes"]),
        "on disk": human_bytes(document["bytes"]) if document["installed"] else None,
        **document.get("details", {}),
        "licence": document.get("licence"),
        "citation": document.get("citation"),
        "homepage": document.get("homepage"),
    }
    # A space of images is written out bound by bound; --json has it whole.
    texts = {
        name: textwrap.shorten(str(value), 400)
        for name, value in cells.items()
        if value not in (None, "")
    }
    lines = [f"{name:18} {text}" for name, text in texts.items()]
    if present:
        lines += _manifest_lines(document["manifest"])
    else:
        lines.append(f"{'install':18} rlds download {document['id']}")
    return lines


def _manifest_lines(manifest: dict[str, Any]) -> list[str]:
    doubted: dict[str, list[str]] = {}
    for resource in manifest["resources"]:
        if str(resource.get("checked", "")).startswith(UNVERIFIED):
            doubted.setdefault(resource["checked"], []).append(resource["filename"])
    lines = []
    for why, (name, *others) in doubted.items():
        more = f" and {len(others)} more" if others else ""
        lines.append(f"{'NOT VERIFIED':18} {name}{more}: {why}")
    lines += [f"{'successors':18} {manifest['successors'].get('rule', 'as in the parent')}"]
    lines += [f"{'note':18} {note}" for note in manifest["metadata"].get("notes", ())]
    for name, spread in manifest["statistics"].items():
        numbers = ", ".join(
            f"{key} {value:.6g}" for key, value in spread.items() if value is not None
        )
        lines.append(f"{name:18} {numbers}")
    lines.append("columns")
    lines += [
        f"  {'.'.join(column['key']):28} {column['dtype']:8} {column['shape']}"
        for column in manifest["columns"]
    ]
    return lines
