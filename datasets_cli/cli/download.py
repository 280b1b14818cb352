"""``rlds download``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from datasets_cli.cli.state import State, error_document, human_bytes, human_count, state_of
from datasets_cli.errors import PartialFailure, RldsError, UnknownDataset, UsageError

Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids or globs ('d4rl/hopper-*').")]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("download")(download)


def download(
    context: typer.Context,
    ids: Ids,
    force: Annotated[bool, typer.Option("--force", help="Install anew what is installed.")] = False,
    layout: Annotated[
        str | None, typer.Option(help="How rows lie on disk: ted or compact.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Folder or URL with this dataset's raw files.")
    ] = None,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Take files whose size or checksum differs.")
    ] = False,
    keep_raw: Annotated[
        bool, typer.Option("--keep-raw", help="Keep the downloaded files.")
    ] = False,
    checkpoints: Annotated[
        str | None, typer.Option(metavar="A:B", help="Atari DQN: only the checkpoints A to B - 1.")
    ] = None,
    upstream: Annotated[
        str | None,
        typer.Option(help="Atari DQN: dqn_replay, rl_unplugged, or auto, the first that answers."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes that convert; all cores by default, 0 for none.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before a glob.")] = False,
) -> None:
    """Download, verify and convert datasets; print where they lie.

    Does nothing for a dataset that is installed. A run that was interrupted goes on where it was.
    """
    from datasets_cli.install.options import InstallOptions

    state = state_of(context)
    wished = {"checkpoints": checkpoints, "upstream": upstream}
    options = {name: value for name, value in wished.items() if value is not None}
    wish = InstallOptions(layout, force, source, no_verify, keep_raw, options, workers)
    wanted = expand(state, ids)
    if source is not None and len(wanted) > 1:
        raise UsageError(
            f"--source holds the files of one dataset, but {len(wanted)} are asked for: "
            f"{', '.join(wanted[:5])}{' …' if wanted[5:] else ''}. Download them one by one."
        )
    if dry_run:
        _show_plans(state, wanted, wish)
        return
    if wanted != ids and state.interactive:
        state.confirm(f"Download {len(wanted)} datasets?", yes=yes)
    results, failures = [], []
    for id in wanted:
        try:
            results.append(_get(state, id, wish))
        except RldsError as error:
            if len(wanted) == 1:
                raise
            failures.append({"id": id, **error_document(error)})
            state.note(f"rlds: {error}")
    lines = [result["path"] for result in results]
    state.emit({"datasets": results, "failures": failures}, lines, lines)
    if failures:
        raise PartialFailure(
            f"{len(failures)} of {len(wanted)} datasets failed: "
            + ", ".join(str(failure["id"]) for failure in failures)
        )


def expand(state: State, ids: list[str]) -> list[str]:
    """Return the ids with every glob replaced by what it matches in the catalogue.

    Raises:
        UnknownDataset: a glob matches nothing.
    """
    from datasets_cli.catalogue.entries import all_entries
    from datasets_cli.catalogue.names import is_glob, match
    from datasets_cli.store.cache_root import CacheRoot

    expanded: list[str] = []
    for id in ids:
        if not is_glob(id):
            expanded.append(id)
            continue
        found = match([id], all_entries(CacheRoot(state.config.root)))
        if not found:
            raise UnknownDataset(f"No known dataset matches {id!r}. See: rlds list")
        expanded += found
    return list(dict.fromkeys(expanded))


def _get(state: State, id: str, wish: Any) -> dict[str, Any]:
    from datasets_cli.install.install import install_dataset
    from datasets_cli.store.manifest import read_manifest

    with state.progress() as progress:
        folder = install_dataset(id, state.config, wish, progress=progress)
    manifest = read_manifest(folder)
    state.note(
        f"{manifest.id}: {human_count(manifest.num_transitions)} transitions in "
        f"{human_count(manifest.num_trajectories)} trajectories, "
        f"{human_bytes(manifest.size_bytes)} on disk"
    )
    if manifest.unverified and not wish.accept_any:
        state.note(
            f"{manifest.id} is installed, but {manifest.unverified[0]} "
            "(--force installs the published one)"
        )
    return {
        "id": manifest.id,
        "path": str(folder),
        "num_transitions": manifest.num_transitions,
        "num_trajectories": manifest.num_trajectories,
        "bytes": manifest.size_bytes,
        "layout": manifest.layout,
    }


def _show_plans(state: State, ids: list[str], wish: Any) -> None:
    from datasets_cli.install.install import plan_install
    from datasets_cli.sources.http import Http

    http = Http(state.config)
    plans = [plan_install(id, state.config, wish, http) for id in ids]
    lines = []
    for plan in plans:
        if plan.fallback_for:
            state.note(
                f"{plan.fallback_for} is refused by its publisher; {plan.id} is taken instead"
            )
        if plan.installed:
            lines.append(f"{plan.id}: installed in {plan.folder}")
            continue
        lines.append(f"{plan.id}: {human_bytes(plan.size)} into {plan.folder}")
        lines += [f"  {resource.urls[0]}" for resource in plan.resources]
    state.emit([plan.to_json() for plan in plans], lines, [plan.id for plan in plans])
