"""``rlds path``, ``verify``, ``audit``, ``delete`` and ``convert``: installed datasets."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

import datasets_cli
from datasets_cli.cli.parser.fields import GivenOptions, Yes, options_of
from datasets_cli.cli.rows import row_lines
from datasets_cli.cli.state import COUNTED, State, state_of
from datasets_cli.cli.terminal import fitted, wrapped
from datasets_cli.core.quantities import counted, human_bytes
from datasets_cli.errors import IntegrityError, UsageError

if TYPE_CHECKING:
    from datasets_cli.results import AuditedDataset, DatasetOverlap, DeepReport, VerifiedDataset


@options_of(call="dataset_path")
def path(context: typer.Context, *, call: GivenOptions) -> None:
    """Print the folder of an installed dataset.

    Examples:
        cd "$(rlds path hopper-medium-v2)"
    """
    state = state_of(context)
    folder = datasets_cli.dataset_path(**call, config=state.config)
    if folder.problem:
        state.note(f"{folder.id} is {folder.state}: {folder.problem}")
    state.emit(folder.to_json(), [str(folder)], [str(folder)])


@options_of(call="verify")
def verify(context: typer.Context, *, call: GivenOptions) -> None:
    """Check installed datasets against their manifests.

    Computes the sha256 of every file and opens each dataset.

    Examples:
        rlds verify
        rlds verify hopper-medium-v2 --deep
        rlds list -q --installed 'hopper-*' | rlds verify -
    """
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
        lines.append("  some source files had no published checksum when it was installed")
    lines += [f"  its source was {reason}" for reason in result.unverified]
    return lines + (_deep(result.report) if result.report else [])


def _deep(report: DeepReport) -> list[str]:
    frames = f", {counted(report.num_frames, 'frame')} decoded" if report.num_frames else ""
    rows = counted(report.num_transitions, "transition")
    trajectories = counted(report.num_trajectories, "trajectory")
    lines = [f"  every value is valid: {rows} in {trajectories}{frames}"]
    return [*lines, *(f"  {line}" for line in report.remarks)]


@options_of(call="audit_datasets")
def audit(
    context: typer.Context,
    *,
    call: GivenOptions,
    show: Annotated[
        int,
        typer.Option(
            "--show", metavar="N", min=0, help="Show N transitions before and after each finding."
        ),
    ] = 0,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with code 4 if a finding is wrong.")
    ] = False,
    overlap: Annotated[
        bool,
        typer.Option("--overlap", help="Show the transitions that each pair of datasets shares."),
    ] = False,
) -> None:
    """Find defects in installed datasets with rules.

    Each rule has a name and a version that a paper can cite. Findings are wrong (proved by the data
    or by a fact of the environment, without a threshold), suspicious (they depend on a printed
    measure, or may be harmless) or notes. The data is not changed.

    Examples:
        rlds audit
        rlds audit door-human-v0 --show 2
        rlds audit 'd4rl/*' --severity wrong --strict
        rlds audit door-human-v0 door-cloned-v0 --overlap
    """
    state = state_of(context)
    if overlap:
        if {*call} - {"ids"} or show or strict:
            raise UsageError(
                "--overlap accepts only ids: it does not run rules.", argument="overlap"
            )
        overlaps = datasets_cli.find_overlap(**call, **state.settings)
        lines = [line for each in overlaps for line in _overlapping(each)]
        shared = [
            " ".join(each.ids)
            for each in overlaps
            if each.transitions and any(each.transitions.counts)
        ]
        state.emit([each.to_json() for each in overlaps], lines, shared)
        return

    def emit(results: list[AuditedDataset]) -> None:
        lines = [line for each in results for line in _audited(each, state, show)]
        lines += _limits(results, state)
        wrong = [each.id for each in results if _is_wrong(each)]
        shown = lines or ["Nothing is installed."]
        state.emit([each.to_json() for each in results], shown, wrong)
        if strict and wrong:
            raise IntegrityError(f"The audit found defects in {', '.join(wrong)}.", found=wrong)

    state.emit_all(partial(datasets_cli.audit_datasets, **call, **state.settings), emit)


def _is_wrong(audited: AuditedDataset) -> bool:
    return any(finding.severity == "wrong" for finding in audited.findings)


def _audited(audited: AuditedDataset, state: State, show: int) -> Iterator[str]:
    if audited.error:
        yield f"{audited.id}: {audited.error}"
        return
    rules = counted(len(audited.rules), "rule")
    yield f"{audited.id}: {counted(len(audited.findings), 'finding')} of {rules}"
    for finding in audited.findings:
        yield from wrapped(
            f"{finding.severity}: {finding.rule}: {finding}", state.width, "  ", "    "
        )
        for row in finding.rows[:1] if show else ():
            start = max(0, row - show)
            rows = datasets_cli.peek(
                audited.id, start=start, n=row + show + 1 - start, config=state.config
            )
            yield from (f"    {line}" for line in row_lines(rows, state.width))


def _limits(results: list[AuditedDataset], state: State) -> Iterator[str]:
    """Yield the limit of each rule once, below a heading."""
    limits = {name: limit for each in results for name, limit in each.limits.items()}
    if limits:
        yield "Not detected by these rules:"
    for name, limit in limits.items():
        yield from wrapped(f"{name}: {limit}", state.width, "  ", "    ")


def _overlapping(overlap: DatasetOverlap) -> Iterator[str]:
    one, other = overlap.ids
    left_out = ", ".join(".".join(key) for key in overlap.left_out)
    reason = f". Not compared, because the columns differ: {left_out}"
    yield f"{one} and {other}{reason * bool(left_out)}"
    if overlap.transitions is None or overlap.trajectories is None:
        yield "  they have no observations with the same name, dtype and shape"
        return
    for unit, common in (("trajectory", overlap.trajectories), ("transition", overlap.transitions)):
        for id, count, total in zip(overlap.ids, common.counts, common.totals, strict=True):
            yield f"  {count:,} of {counted(total, unit)} of {id}"
        if places := ", ".join(f"{first:,} is {second:,}" for first, second in common.examples):
            yield f"    {unit} {places}"


@options_of(call="delete")
def delete(context: typer.Context, *, call: GivenOptions, yes: Yes = False) -> None:
    """Delete installed datasets and leftovers of their downloads.

    Examples:
        rlds delete hopper-medium-v2
        rlds delete 'derived/*' --dry-run
    """
    state, is_dry_run = state_of(context), "dry_run" in call
    deleted = datasets_cli.delete(call["ids"], dry_run=True, config=state.config)
    ids = [each.id for each in deleted]
    if not is_dry_run:
        size = human_bytes(sum(each.size_bytes for each in deleted))
        state.confirm(f"Delete {', '.join(ids)} ({size})?", yes=yes)
        deleted = datasets_cli.delete(ids, expected=deleted, config=state.config)
    word = "would delete" if is_dry_run else "deleted"
    lines = [f"{word} {each.id}: {human_bytes(each.size_bytes)}, {COUNTED}" for each in deleted]
    state.emit([each.to_json() for each in deleted], fitted(lines, state.width), ids)


@options_of(call="convert")
def convert(context: typer.Context, *, call: GivenOptions) -> None:
    """Change the layout of an installed dataset.

    Every value stays the same, bit for bit.

    Examples:
        rlds convert hopper-medium-v2 --layout compact
    """
    state = state_of(context)
    made = datasets_cli.convert(**call, **state.settings)
    state.note(f"{made.id}: {made.layout}, {human_bytes(made.size_bytes)} on disk")
    if made.unverified:
        state.note(f"{made.id} is unverified: {made.unverified[0]}")
    state.emit(made.to_json(), [str(made.path)], [str(made.path)])
