"""``rlds path``, ``verify`` and ``delete``: what is installed."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from datasets_cli.catalogue.names import is_glob, match
from datasets_cli.cli.state import State, error_document, human_bytes, state_of
from datasets_cli.errors import IntegrityError, UnknownDataset
from datasets_cli.store.cache_root import CacheRoot

Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids or globs.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("path")(path)
    app.command("verify")(verify)
    app.command("delete")(delete)
    app.command("convert")(convert)


def path(
    context: typer.Context, id: Annotated[str, typer.Argument(metavar="ID", help="A dataset.")]
) -> None:
    """Print the folder of an installed dataset."""
    from datasets_cli.install.installed import installed_id

    state = state_of(context)
    id = installed_id(id, state.config)
    folder = str(CacheRoot(state.config.root).dataset(id))
    state.emit({"id": id, "path": folder}, [folder], [folder])


def verify(
    context: typer.Context,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Ids or globs; all by default.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Compare sizes only, not checksums.")
    ] = False,
) -> None:
    """Check installed datasets against their manifests: sizes and sha256 of every file."""
    from datasets_cli.install.installed import verify

    state = state_of(context)
    records: list[dict[str, Any]] = []
    lines, failed = [], []
    for id in _expand(state, ids or ["*"]):
        try:
            manifest = verify(id, state.config, quick=quick)
        except IntegrityError as error:
            failed.append(id)
            records.append({"id": id, "ok": False, **error_document(error)})
            lines.append(f"{id}: DAMAGED. {error}")
        else:
            records.append({"id": manifest.id, "ok": True, "files": len(manifest.files)})
            how = "sizes" if quick else "sha256"
            lines.append(f"{manifest.id}: {len(manifest.files)} files as in the manifest ({how})")
            lines += [f"  its source was {text}" for text in manifest.unverified]
    state.emit(records, lines or ["Nothing is installed."], failed)
    if failed:
        raise IntegrityError(f"Damaged: {', '.join(failed)}. Install again with download --force.")


def delete(
    context: typer.Context,
    ids: Ids,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
) -> None:
    """Delete installed datasets and what is left of their downloads."""
    from datasets_cli.install.installed import installed_id, remove
    from datasets_cli.store.check import folder_size

    state = state_of(context)
    root = CacheRoot(state.config.root)
    found = [installed_id(id, state.config, accept_fallback=False) for id in _expand(state, ids)]
    sizes = {id: folder_size(root.dataset(id)) + folder_size(root.downloads(id)) for id in found}
    lines = [f"{id}: {human_bytes(size)}" for id, size in sizes.items()]
    if not dry_run:
        state.confirm(f"Delete {', '.join(found)} ({human_bytes(sum(sizes.values()))})?", yes=yes)
        for id in found:
            remove(id, state.config)
    records = [{"id": id, "bytes": size, "deleted": not dry_run} for id, size in sizes.items()]
    state.emit(
        records, [f"{'would delete' if dry_run else 'deleted'} {line}" for line in lines], found
    )


def _expand(state: State, ids: list[str]) -> list[str]:
    """Return the ids with every glob replaced by the installed datasets it matches."""
    installed = list(CacheRoot(state.config.root).installed())
    expanded: list[str] = []
    for id in ids:
        found = match([id], installed) if is_glob(id) else [id]
        if not found and id != "*":
            raise UnknownDataset(f"No installed dataset matches {id!r}. See: rlds list --installed")
        expanded += found
    return list(dict.fromkeys(expanded))


def convert(
    context: typer.Context,
    id: Annotated[str, typer.Argument(metavar="ID", help="An installed dataset.")],
    layout: Annotated[str, typer.Option(help="ted or compact.")],
) -> None:
    """Change how an installed dataset lies on disk; every value stays the same bit for bit."""
    from datasets_cli.install.change_layout import change_layout
    from datasets_cli.store.manifest import read_manifest

    state = state_of(context)
    with state.progress() as progress:
        folder = change_layout(id, layout, state.config, progress)
    manifest = read_manifest(folder)
    state.note(f"{manifest.id}: {layout}, {human_bytes(manifest.size_bytes)} on disk")
    document = {"id": manifest.id, "path": str(folder), "layout": layout}
    state.emit(document | {"bytes": manifest.size_bytes}, [str(folder)], [str(folder)])
