"""``rlds repair``, ``prune``, ``du`` and ``scan``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import typer

import datasets_cli
from datasets_cli.cli.parser.fields import GivenOptions, Limits, Yes, options_of
from datasets_cli.cli.state import COUNTED, state_of
from datasets_cli.cli.terminal import fitted, table
from datasets_cli.core.quantities import human_bytes

if TYPE_CHECKING:
    from datasets_cli.results import DiskUsage, FoundData, Leftover, RepairedDataset


@options_of(call="repair")
def repair(context: typer.Context, *, call: GivenOptions, limit: Limits = None) -> None:
    """Verify installed datasets and reinstall damaged ones.

    Intact datasets are not changed, and intact raw files are not downloaded again. For derived
    datasets, the output includes the command that recreates them.

    Examples:
        rlds repair
        rlds repair 'd4rl/*' --dry-run
    """
    state = state_of(context).with_limits(limit)

    def emit(results: list[RepairedDataset]) -> None:
        lines = fitted((line for each in results for line in _repaired(each)), state.width)
        brief = [each.id for each in results if each.outcome != "sound"]
        state.emit([each.to_json() for each in results], lines or ["Nothing is installed."], brief)

    state.emit_all(partial(datasets_cli.repair, **call, **state.settings), emit)


def _repaired(result: RepairedDataset) -> list[str]:
    is_repaired = result.outcome == "repaired"
    lines = [f"{result.id}: {result.outcome if is_repaired or not result.damage else 'damaged'}"]
    if result.damage:
        lines.append(f"  {'it was damaged: ' * is_repaired}{result.damage}")
    if result.same_content is False:
        lines.append("  its data differs from before: the publisher's files have changed")
    if result.error and str(result.error) != result.damage:
        lines.append(f"  {result.error}")
    return lines


@options_of(call="prune")
def prune(context: typer.Context, *, call: GivenOptions, yes: Yes = False) -> None:
    """Delete leftovers of interrupted runs.

    Leftovers are half-written copies, old partial downloads and rows in shared memory. Installed
    datasets are not changed. A copy that an interrupted run was replacing is restored.

    Examples:
        rlds prune --dry-run
        rlds prune --older-than 0
    """
    state, is_dry_run = state_of(context), call.pop("dry_run", False)
    leftovers = datasets_cli.prune(**call, dry_run=True, config=state.config)
    due = [each for each in leftovers if not each.reason]
    if not is_dry_run and any(not each.reason or each.kind == "trash" for each in leftovers):
        size = human_bytes(sum(each.size_bytes for each in due))
        if due and not yes:
            for line in _leftover_lines(leftovers):
                state.note(line)
            state.confirm(f"Delete {len(due)} of these, {size}?", yes=yes)
        leftovers = datasets_cli.prune(**call, config=state.config)
    lines = fitted([*_leftover_lines(leftovers), _sum(leftovers, is_dry_run)], state.width)
    paths = [
        str(each.path) for each in leftovers if each.deleted or (is_dry_run and not each.reason)
    ]
    state.emit([each.to_json() for each in leftovers], lines, paths)


def _leftover_lines(leftovers: Sequence[Leftover]) -> list[str]:
    lines = []
    for each in leftovers:
        size = human_bytes(each.size_bytes)
        reason = f"; kept: {each.reason}" if each.reason else ""
        lines.append(f"{each.path}: {each.kind}, {size}{reason}")
    return lines


def _sum(leftovers: Sequence[Leftover], is_dry_run: bool) -> str:
    due = [each for each in leftovers if (not each.reason if is_dry_run else each.deleted)]
    if not due:
        return "Nothing to delete."
    word = "would be deleted" if is_dry_run else "deleted"
    return f"{human_bytes(sum(each.size_bytes for each in due))} {word}, {len(due)} in all."


@options_of(call="disk_usage")
def du(context: typer.Context, *, call: GivenOptions) -> None:
    """Show the disk usage of installed datasets and running work.

    The size includes the manifest, tables and raw files; rlds list and rlds info show only the
    size of the data. Running and interrupted downloads, conversions and preprocess runs come last;
    repeat a command to resume it.

    Examples:
        rlds du
    """
    state = state_of(context)
    usage = datasets_cli.disk_usage(**call, config=state.config)
    state.emit(usage.to_json(), _usage_lines(usage, state.width), [str(usage.size_bytes)])


def _usage_lines(usage: DiskUsage, width: int | None) -> list[str]:
    rows = [
        {
            ">SIZE": human_bytes(each.size_bytes),
            "ID": each.id,
            ">RAW": human_bytes(each.raw_bytes) if each.raw_bytes else "",
            ">TABLES": human_bytes(each.table_bytes) if each.table_bytes else "",
            "STATE": each.state,
        }
        for each in usage.datasets
    ]
    lines = table(rows, width, (">TABLES", ">RAW", "STATE"))
    left = usage.leftovers
    if left:
        size = human_bytes(sum(each.size_bytes for each in left))
        text = f"{size} are leftovers of interrupted runs. See: rlds prune --dry-run"
        lines += fitted([text], width)
    lines += _activity_lines(usage, width)
    free, total = human_bytes(usage.free_bytes), human_bytes(usage.size_bytes)
    return [*lines, *fitted([f"{total} in {usage.root}, {COUNTED}; {free} are free there"], width)]


def _activity_lines(usage: DiskUsage, width: int | None) -> list[str]:
    rows = [
        {
            "ACTIVITY": "running" if each.running else "interrupted",
            "WORK": each.kind,
            "ID": each.id,
            ">SO FAR": human_bytes(each.size_bytes),
            ">OF": human_bytes(each.expected_bytes) if each.expected_bytes else "",
            ">LAST WRITTEN": f"{each.rested_seconds:,} s ago",
        }
        for each in usage.activity
    ]
    return ["", *table(rows, width, (">LAST WRITTEN", ">OF")), ""] if rows else []


@options_of(call="scan")
def scan(context: typer.Context, *, call: GivenOptions) -> None:
    """Find local files that can be installed without downloading.

    Examples:
        rlds scan
        rlds scan /data/minari
    """
    state = state_of(context)
    folders = datasets_cli.scan(**call, config=state.config)
    lines = [line for each in folders for line in _folder_lines(each, state.width)]
    if not folders:
        state.note("Nothing found.")
    commands = [each.command for each in folders if each.command]
    state.emit([each.to_json() for each in folders], lines, commands)


def _folder_lines(folder: FoundData, width: int | None) -> list[str]:
    size = human_bytes(folder.size_bytes)
    if folder.command:  # whole, to be copied
        head = f"{folder.id}: {size} in {folder.path}"
        return [*fitted([head], width), f"  {folder.command}"]
    if folder.installed:
        return fitted([f"{folder.id}: {size} in {folder.path}; it is installed"], width)
    return fitted([f"{folder.path}: {size}, {folder.kind}", f"  {folder.reason}"], width)
