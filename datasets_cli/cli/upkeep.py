"""``rlds repair``, ``prune``, ``du`` and ``scan``: keeping a cache root in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

import datasets_cli
from datasets_cli.cli.parser.arguments import AnyInstalledIds, DryRun, Limits, Yes
from datasets_cli.cli.state import state_of
from datasets_cli.cli.terminal import fitted, table
from datasets_cli.errors import PartialFailure
from datasets_cli.quantities import human_bytes

if TYPE_CHECKING:
    from datasets_cli import DiskUsage, FoundData, Leftover, RepairedDataset


def repair(
    context: typer.Context,
    ids: AnyInstalledIds = None,
    limit: Limits = None,
    dry_run: DryRun = False,
) -> None:
    """Verify installed datasets, and install those again that are damaged.

    A sound dataset is not touched, and raw files that are still there and sound are not fetched
    again. Of derived data the command is named that makes it again.
    """
    state = state_of(context).with_limits(limit)
    failure = None
    try:
        results = datasets_cli.repair(
            ids or "*", dry_run=dry_run, progress=state.progress(), config=state.config
        )
    except PartialFailure as error:
        failure, results = error, error.results
    lines = fitted((line for each in results for line in _repaired(each)), state.width)
    brief = [each.id for each in results if each.outcome != "sound"]
    state.emit([each.to_json() for each in results], lines or ["Nothing is installed."], brief)
    if failure:
        raise failure


def _repaired(result: RepairedDataset) -> list[str]:
    is_repaired = result.outcome == "repaired"
    lines = [f"{result.id}: {result.outcome if is_repaired or not result.damage else 'damaged'}"]
    if result.damage:
        lines.append(f"  {'it was damaged: ' * is_repaired}{result.damage}")
    if result.same_content is False:
        lines.append("  its data are not those that were there: the publisher's files changed")
    if result.error and str(result.error) != result.damage:
        lines.append(f"  {result.error}")
    return lines


def prune(
    context: typer.Context,
    older_than: Annotated[
        float,
        typer.Option(
            metavar="DAYS", help="Interrupted downloads and preprocess runs that rested so long."
        ),
    ] = 7.0,
    raw: Annotated[
        bool, typer.Option("--raw", help="Also raw files of installed datasets.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete what killed work left: half-written copies, old partial downloads, stray tables.

    No installed dataset is touched. A copy that was being replaced when a run was killed is brought
    back.
    """
    state = state_of(context)
    found = datasets_cli.prune(
        older_than_days=older_than, raw=raw, dry_run=True, config=state.config
    )
    due = [each for each in found if not each.kept]
    if not dry_run and any(not each.kept or each.kind == "trash" for each in found):
        size = human_bytes(sum(each.size_bytes for each in due))
        if due and not yes:
            for line in _left(found):
                state.note(line)
            state.confirm(f"Delete {len(due)} of these, {size}?", yes=yes)
        found = datasets_cli.prune(older_than_days=older_than, raw=raw, config=state.config)
    lines = fitted([*_left(found), _sum(found, dry_run)], state.width)
    gone = [str(each.path) for each in found if each.deleted or (dry_run and not each.kept)]
    state.emit([each.to_json() for each in found], lines, gone)


def _left(found: Sequence[Leftover]) -> list[str]:
    lines = []
    for each in found:
        size = human_bytes(each.size_bytes)
        kept = f"; kept: {each.kept}" if each.kept else ""
        lines.append(f"{each.path}: {each.kind}, {size}{kept}")
    return lines


def _sum(found: Sequence[Leftover], dry_run: bool) -> str:
    due = [each for each in found if (not each.kept if dry_run else each.deleted)]
    if not due:
        return "Nothing to delete."
    word = "would be deleted" if dry_run else "deleted"
    return f"{human_bytes(sum(each.size_bytes for each in due))} {word}, {len(due)} in all."


def du(context: typer.Context, ids: AnyInstalledIds = None) -> None:
    """Show how much of the disk each installed dataset takes, and what killed work left."""
    state = state_of(context)
    usage = datasets_cli.disk_usage(ids or (), config=state.config)
    state.emit(usage.to_json(), _usage_lines(usage, state.width), [str(usage.size_bytes)])


def _usage_lines(usage: DiskUsage, width: int | None) -> list[str]:
    rows = [
        {
            ">SIZE": human_bytes(each.size_bytes),
            "ID": each.id,
            ">RAW": human_bytes(each.raw_bytes) if each.raw_bytes else "",
            "STATE": each.state,
        }
        for each in usage.datasets
    ]
    lines = table(rows, width, (">RAW", "STATE"))
    left = usage.leftovers
    if left:
        size = human_bytes(sum(each.size_bytes for each in left))
        text = f"{size} are left of killed or unfinished work. See: rlds prune --dry-run"
        lines += fitted([text], width)
    free, total = human_bytes(usage.free_bytes), human_bytes(usage.size_bytes)
    return [*lines, *fitted([f"{total} in {usage.root}; {free} are free there"], width)]


def scan(
    context: typer.Context,
    folders: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FOLDER",
            help="Where to look; by default the caches of Minari, D4RL and TorchRL.",
        ),
    ] = None,
) -> None:
    """Find raw files on this disk that can be installed without a download."""
    state = state_of(context)
    found = datasets_cli.scan(folders or (), config=state.config)
    lines = [line for each in found for line in _found_lines(each, state.width)]
    commands = [each.command for each in found if each.command]
    state.emit([each.to_json() for each in found], lines or ["Nothing was found."], commands)


def _found_lines(found: FoundData, width: int | None) -> list[str]:
    size = human_bytes(found.size_bytes)
    if found.command:  # whole, to be copied
        head = f"{found.id}: {size} in {found.path}"
        return [*fitted([head], width), f"  {found.command}"]
    if found.installed:
        return fitted([f"{found.id}: {size} in {found.path}; it is installed"], width)
    return fitted([f"{found.path}: {size}, {found.kind}", f"  {found.reason}"], width)
