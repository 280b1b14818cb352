"""``rlds path``, ``verify``, ``delete`` and ``convert``: what is installed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import typer

import datasets_cli
from datasets_cli.catalogue.selection import InstalledId
from datasets_cli.cli.parser.arguments import Yes
from datasets_cli.cli.parser.fields import GivenOptions, options_of
from datasets_cli.cli.state import COUNTED, state_of
from datasets_cli.cli.terminal import fitted
from datasets_cli.manager.convert import ConvertCall
from datasets_cli.manager.delete import DeleteCall
from datasets_cli.manager.verify import VerifyCall
from datasets_cli.quantities import counted, human_bytes

if TYPE_CHECKING:
    from datasets_cli import DeepReport, VerifiedDataset


@options_of(call=InstalledId)
def path(context: typer.Context, *, call: GivenOptions) -> None:
    """Print the folder of an installed dataset."""
    state = state_of(context)
    folder = datasets_cli.dataset_path(**call, config=state.config)
    if folder.problem:
        state.note(f"{folder.id} is {folder.state}: {folder.problem}")
    state.emit(folder.to_json(), [str(folder)], [str(folder)])


@options_of(call=VerifyCall)
def verify(context: typer.Context, *, call: GivenOptions) -> None:
    """Check installed datasets against their manifests: every file's sha256; and open them."""
    state = state_of(context)

    def emit(results: list[VerifiedDataset]) -> None:
        lines = [line for each in results for line in _verified(each, is_quick="quick" in call)]
        failed = [result.id for result in results if not result.ok]
        shown = fitted(lines, state.width) or ["Nothing is installed."]
        state.emit([result.to_json() for result in results], shown, failed)

    state.emit_all(partial(datasets_cli.verify, **call, **state.settings), emit)


def _verified(result: VerifiedDataset, is_quick: bool) -> list[str]:
    if result.state == "not installed":
        return [str(result.error)]
    if result.error:
        return [f"{result.id}: {result.state}: {result.error}"]
    how = "sizes" if is_quick else "sha256"
    opens = "; it opens" if result.opened else ""
    files = counted(result.num_files or 0, "file")
    lines = [f"{result.id}: {files} as in the manifest ({how}){opens}"]
    if result.state == "unchecked":
        lines.append("  no checksum was known for some of its source when it was installed")
    lines += [f"  its source was {reason}" for reason in result.unverified]
    return lines + (_deep(result.report) if result.report else [])


def _deep(report: DeepReport) -> list[str]:
    frames = f", {counted(report.num_frames, 'frame')} decoded" if report.num_frames else ""
    rows = counted(report.num_transitions, "row")
    trajectories = counted(report.num_trajectories, "trajectory")
    lines = [f"  the rules of the format hold for {rows} in {trajectories}{frames}"]
    return [*lines, *(f"  {line}" for line in report.remarks)]


@options_of(call=DeleteCall)
def delete(context: typer.Context, *, call: GivenOptions, yes: Yes = False) -> None:
    """Delete installed datasets and what is left of their downloads."""
    state, is_tried = state_of(context), "dry_run" in call
    deleted = datasets_cli.delete(call["ids"], dry_run=True, config=state.config)
    ids = [each.id for each in deleted]
    if not is_tried:
        size = human_bytes(sum(each.size_bytes for each in deleted))
        state.confirm(f"Delete {', '.join(ids)} ({size})?", yes=yes)
        deleted = datasets_cli.delete(ids, config=state.config)
    word = "would delete" if is_tried else "deleted"
    lines = [f"{word} {each.id}: {human_bytes(each.size_bytes)}, {COUNTED}" for each in deleted]
    state.emit([each.to_json() for each in deleted], fitted(lines, state.width), ids)


@options_of(call=ConvertCall)
def convert(context: typer.Context, *, call: GivenOptions) -> None:
    """Change the layout of an installed dataset; every value stays the same bit for bit."""
    state = state_of(context)
    made = datasets_cli.convert(**call, **state.settings)
    state.note(f"{made.id}: {made.layout}, {human_bytes(made.size_bytes)} on disk")
    if made.unverified:
        state.note(f"{made.id} is unverified: {made.unverified[0]}")
    state.emit(made.to_json(), [str(made.path)], [str(made.path)])
