"""``rlds path``, ``verify``, ``delete`` and ``convert``: what is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

import datasets_cli
from datasets_cli.cli.parser.arguments import (
    AnyInstalledIds,
    DryRun,
    InstalledId,
    InstalledIds,
    Yes,
)
from datasets_cli.cli.parser.completion import layouts
from datasets_cli.cli.state import state_of
from datasets_cli.cli.terminal import fitted
from datasets_cli.errors import IntegrityError, PartialFailure
from datasets_cli.quantities import human_bytes, human_count

if TYPE_CHECKING:
    from datasets_cli import DeepReport, VerifiedDataset


def path(context: typer.Context, id: InstalledId) -> None:
    """Print the folder of an installed dataset."""
    state = state_of(context)
    folder = datasets_cli.dataset_path(id, config=state.config)
    if folder.problem:
        state.note(f"{folder.id} is {folder.state}: {folder.problem}")
    state.emit(folder.to_json(), [str(folder)], [str(folder)])


def verify(
    context: typer.Context,
    ids: AnyInstalledIds = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Compare sizes only, not checksums; open nothing.")
    ] = False,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Also read every value: offsets, rules of the format, NaN."),
    ] = False,
) -> None:
    """Check installed datasets against their manifests: every file's sha256; and open them."""
    state = state_of(context)
    failure = None
    try:
        results = datasets_cli.verify(
            ids or "*", quick=quick, deep=deep, progress=state.progress(), config=state.config
        )
    except (IntegrityError, PartialFailure) as error:
        failure, results = error, error.results
    lines = fitted((line for each in results for line in _verified(each, quick)), state.width)
    failed = [result.id for result in results if not result.ok]
    documents = [result.to_json() for result in results]
    state.emit(documents, lines or ["Nothing is installed."], failed)
    if failure:
        raise failure


def _verified(result: VerifiedDataset, quick: bool) -> list[str]:
    if result.state == "not installed":
        return [str(result.error)]
    if result.error:
        return [f"{result.id}: {result.state}: {result.error}"]
    how = "sizes" if quick else "sha256"
    opens = "; it opens" if result.opened else ""
    lines = [f"{result.id}: {result.num_files} files as in the manifest ({how}){opens}"]
    if result.state == "unchecked":
        lines.append("  no checksum was known for some of its source when it was installed")
    lines += [f"  its source was {reason}" for reason in result.unverified]
    return lines + (_deep(result.report) if result.report else [])


def _deep(report: DeepReport) -> list[str]:
    frames = f", {human_count(report.num_frames)} frames decoded" if report.num_frames else ""
    lines = [
        f"  {human_count(report.num_transitions)} rows in "
        f"{human_count(report.num_trajectories)} trajectories keep the rules of the format{frames}"
    ]
    return [*lines, *(f"  {line}" for line in report.remarks)]


def delete(
    context: typer.Context,
    ids: InstalledIds,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Delete installed datasets and what is left of their downloads."""
    state = state_of(context)
    found = datasets_cli.delete(ids, dry_run=True, config=state.config)
    names = [each.id for each in found]
    if not dry_run:
        size = human_bytes(sum(each.size_bytes for each in found))
        state.confirm(f"Delete {', '.join(names)} ({size})?", yes=yes)
        found = datasets_cli.delete(names, config=state.config)
    word = "would delete" if dry_run else "deleted"
    lines = [f"{word} {each.id}: {human_bytes(each.size_bytes)}" for each in found]
    state.emit([each.to_json() for each in found], fitted(lines, state.width), names)


def convert(
    context: typer.Context,
    id: InstalledId,
    layout: Annotated[
        str,
        typer.Option(
            metavar="ted|compact", help="How rows are stored on disk.", autocompletion=layouts
        ),
    ],
) -> None:
    """Change the layout of an installed dataset; every value stays the same bit for bit."""
    state = state_of(context)
    found = datasets_cli.convert(id, layout, progress=state.progress(), config=state.config)
    state.note(f"{found.id}: {found.layout}, {human_bytes(found.size_bytes)} on disk")
    if found.unverified:
        state.note(f"{found.id} is unverified: {found.unverified[0]}")
    state.emit(found.to_json(), [str(found.path)], [str(found.path)])
