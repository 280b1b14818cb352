"""``rlds list`` and ``info``: known datasets, without opening any data."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

import datasets_cli
from datasets_cli.catalogue.names import KnownIds
from datasets_cli.cli.parser.fields import GivenOptions, options_of
from datasets_cli.cli.state import State, state_of
from datasets_cli.cli.terminal import coloured, fact, fitted, table, wrapped
from datasets_cli.core.quantities import channels, human_bytes, human_count, splits_and_counts
from datasets_cli.errors import DamagedDataset, DatasetNotInstalled, wrong_value

if TYPE_CHECKING:
    from datasets_cli.results import DatasetInfo, DatasetRecord, Manifest

# The columns that a narrow terminal omits, in this order.
SPARE = (">TRAJECTORIES", ">ON DISK", ">DOWNLOAD", ">TRANSITIONS")

HEADINGS = {
    **{"id": "ID", "family": "FAMILY", "state": "STATE", "size": ">SIZE"},
    **{"transitions": ">TRANSITIONS", "trajectories": ">TRAJECTORIES"},
    **{"download": ">DOWNLOAD", "disk": ">ON DISK", "splits": "SPLITS", "audit": "AUDIT"},
}
LISTED = ("ID", "STATE", ">TRANSITIONS", ">TRAJECTORIES", "SPLITS", ">DOWNLOAD", ">ON DISK", "")

OF_TRAPS = ("known_traps", "trap_rules")
"""Facts about a dataset that get their own lines."""

Fact = tuple[str, str]  # name and text

ColumnNames = Annotated[
    str | None,
    typer.Option(
        "--columns", metavar="NAMES", help="Names of the columns to show, e.g. id,size,transitions."
    ),
]


@options_of(call="list_datasets")
def list_datasets(
    context: typer.Context, *, call: GivenOptions, columns: ColumnNames = None
) -> None:
    """List every known dataset and its state.

    Works offline. On a terminal and without a glob, it lists the families with the numbers
    of their known and installed datasets, and then the installed datasets.

    States: installed; unchecked (the publisher states no checksum for some file); unverified (some
    file may differ from the publisher's, after --no-verify or rlds demo --keep); newer (written by
    a newer version of rlds); damaged (files differ from the manifest); - (not installed). ON DISK
    is the size of the data only; rlds du adds manifests, tables and raw files.

    --json prints every field, regardless of --columns, under its name in the Python API.

    --search finds words in any order; the best matches come first.

    --filter and --sort accept id, family, state, size (on disk, else the download), download,
    disk, transitions, trajectories and audit (the most severe finding: wrong, suspicious, note,
    clean, or -), e.g. --filter 'size>1GB' --filter audit=wrong --sort -transitions.

    Examples:
        rlds list
        rlds list 'hopper-*'
        rlds list --installed
        rlds list --filter 'size>1GB' --sort -size -n 10
        rlds list --search 'hopper expert'
    """
    state = state_of(context)
    headings = _headings(columns)
    search = partial(datasets_cli.list_datasets, config=state.config)
    records = search(**call, progress=state.progress())
    patterns, _ = call.pop("patterns", []), call.pop("refresh", None)
    # Each glob without a match is named.
    is_each = records and patterns[1:]
    vain = [text for text in patterns if not records or (is_each and not search(text, **call))]
    if vain or not records:
        matches = f"matches {', '.join(map(repr, vain))}" if vain else "found"
        state.note(f"Nothing {matches}.")
    if state.width is None or patterns or call or headings:
        lines = _rows(records, state, headings)
    else:
        lines = _overview(records, state, state.width)
    state.emit([record.to_json() for record in records], lines, [record.id for record in records])


@options_of(call="dataset_info")
def info(
    context: typer.Context,
    *,
    call: GivenOptions,
    files: Annotated[
        bool,
        typer.Option("--files", help="Show the installed and published files with their sha256."),
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Show only the columns: key, dtype, shape.")
    ] = False,
) -> None:
    """Show the metadata of a dataset, installed or not.

    Examples:
        rlds info hopper-medium-v2
        rlds info hopper-medium-v2 --files
    """
    state = state_of(context)
    about = datasets_cli.dataset_info(**call, config=state.config)
    if about.problem and (files or schema):
        raise DamagedDataset(about.problem, id=about.id)
    if not (files or schema):
        lines = _facts(about, state.width)
    elif about.manifest is None:
        raise DatasetNotInstalled(
            f"{about.id} is {about.state}; only an installed dataset has files and columns.",
            id=about.id,
            advice=f"Run: rlds download {about.id}",
        )
    else:
        lines = [text for text in _columns(about) if schema]
        lines += _files(about, about.manifest, state.width) if files else []
    state.emit(about.to_json(), lines, [about.id])


def _facts(about: DatasetInfo, width: int | None) -> list[str]:
    lines = []
    for name, text in (*_card(about), *_rest(about)):
        shown = fact(name, text, width)
        if name == "state":  # colour comes last: its codes have no width
            shown[0] = shown[0].replace(about.state, coloured(about.state), 1)
        lines += shown
    columns = (wrapped(text, width, "", "      ") for text in _columns(about))
    return [*lines, *(line for text in columns for line in text)]


def _files(about: DatasetInfo, manifest: Manifest, width: int | None) -> list[str]:
    published = [
        (f"{each['filename']} ({'published' if each.get('url') else 'source'})", each)
        for each in manifest.resources
    ]
    rows = [
        {"FILE": name, ">BYTES": human_count(each.get("bytes")), "SHA256": each.get("sha256", "")}
        for name, each in (*manifest.files.items(), *published)
    ]
    return [f"{about.path}", *fitted(table(rows), width)]  # digests are not cut


def _overview(records: list[DatasetRecord], state: State, width: int) -> list[str]:
    here = [record for record in records if record.state != "not installed"]
    known = Counter(record.id.partition("/")[0] for record in records)
    installed = Counter(record.id.partition("/")[0] for record in records if record.installed)
    families = [
        {
            "FAMILY": family,
            ">DATASETS": f"{count:,}",
            ">INSTALLED": f"{installed[family]:,}" if installed[family] else "-",
        }
        for family, count in known.items()
    ]
    lines = table(families, width)
    lines += ["", *_rows(here, state)] if here else []
    hints = ("Of a family: rlds list 'd4rl/*'", "With a word: rlds list hopper")
    return [*lines, "", *(line for hint in hints for line in wrapped(hint, width))]


def _headings(columns: str | None) -> list[str]:
    """Return the headings for names of columns."""
    headings = [HEADINGS.get(name.strip(), "") for name in columns.split(",")] if columns else []
    if not all(headings) or columns == "":
        raise wrong_value("columns", f"some of {', '.join(HEADINGS)}", columns)
    return headings


def _rows(records: list[DatasetRecord], state: State, headings: Sequence[str] = ()) -> list[str]:
    # Most datasets have no splits.
    has_splits = any(record.splits for record in records)
    listed = [heading for heading in LISTED if has_splits or heading != "SPLITS"]
    rows = [_cells(record, headings or listed) for record in records]
    return state.table(rows, () if headings else SPARE)


def _cells(record: DatasetRecord, headings: Sequence[str]) -> dict[str, str]:
    cells = {
        "FAMILY": record.id.partition("/")[0],
        ">SIZE": human_bytes(record.size_bytes or record.download_bytes),
        "ID": record.id,
        "STATE": "-" if record.state == "not installed" else record.state,
        ">TRANSITIONS": human_count(record.num_transitions),
        ">TRAJECTORIES": human_count(record.num_trajectories),
        ">DOWNLOAD": human_bytes(record.download_bytes),
        ">ON DISK": human_bytes(record.size_bytes) if record.installed else "-",
        "SPLITS": ", ".join(filter(None, record.splits)) or "-",
        "AUDIT": record.audit or "-",
        # The reason of the damage; without a heading, because most lists do not need it.
        "": f"{record.state}: {record.problem}" if record.problem else "",
    }
    return {heading: cells[heading] for heading in headings}


def _card(about: DatasetInfo) -> Iterator[Fact]:
    details = about.details or {}
    cells = {
        "id": about.id,
        "title": about.title,
        "state": about.state + (f" in {about.path}" if about.path else ""),
        **({about.state: about.problem} if about.problem else {}),
        "transitions": human_count(about.num_transitions),
        "trajectories": human_count(about.num_trajectories),
        "splits": splits_and_counts(about.splits),
        "download": human_bytes(about.download_bytes) if about.download_bytes else None,
        "on disk": human_bytes(about.size_bytes) if about.installed else None,
        **{name: value for name, value in details.items() if name not in OF_TRAPS},
        "licence": about.licence,
        "citation": about.citation,
        "homepage": about.homepage,
    }
    for name, value in cells.items():
        if value not in (None, ""):
            # The bounds of an image space are thousands of numbers; --json has them all. A problem
            # ends with advice.
            yield name, value if name == about.state else textwrap.shorten(str(value), 400)
    yield from (("option", f"-o {o.name}={o.value}: {o.help}") for o in about.options)


def _rest(about: DatasetInfo) -> Iterator[Fact]:
    manifest = about.manifest
    traps = about.known_traps
    yield from _defects(about, traps)
    if manifest is None:
        if not about.problem:  # which ends with advice
            yield "install", f"rlds download {about.id}"
        return
    yield "content", manifest.content[:16]
    yield "layout", manifest.layout
    if manifest.layout == "compact":
        # tensordict reads only the other layout.
        yield "for load_memmap", f"rlds convert --layout ted {about.id}"
    yield from _origin(manifest)
    for note in manifest.metadata.get("notes", ()):
        if not note.endswith(tuple(traps)):  # written by an older version
            yield "note", note
    for name, statistics in manifest.statistics.items():
        yield name, ", ".join(f"{key} {x:.6g}" for key, x in statistics.items() if x is not None)
    for line in about.report.remarks if about.report else ():
        yield "deep check", line


def _defects(about: DatasetInfo, traps: Sequence[str]) -> Iterator[Fact]:
    """Yield known pitfalls and the findings of the audit, without repetition."""
    rules = (about.details or {}).get("trap_rules", {})
    report = about.audited
    findings = {finding.rule: finding for finding in report.findings} if report else {}
    for trap in traps:
        names = rules.get(trap, ())
        places = "; ".join(findings.pop(name).where for name in names if name in findings)
        if places:
            yield "known trap", f"{trap}. Seen in your copy: {places}"
        else:
            is_known = report and any(name in report.rules for name in names)
            yield "known trap", f"{trap}. Not seen in this copy" if is_known else trap
    for finding in findings.values():
        yield f"audit, {finding.severity}", f"{finding.rule}: {finding}"


def _columns(about: DatasetInfo) -> Iterator[str]:
    if about.manifest is None:
        return
    yield "columns"
    summary = about.summary or {"columns": {}, "frames": {}}
    for column in about.manifest.all_columns:
        name = ".".join(column.key)
        line = f"  {name:28} {column.dtype:8} {list(column.shape)!s:12}"
        formats = {"columns": _range, "frames": channels}
        known = [show(summary[of][name]) for of, show in formats.items() if name in summary[of]]
        yield f"{line} {''.join(known)}".rstrip()


def _range(measures: Mapping[str, Any]) -> str:
    """Return the cached statistics of a column."""
    if measures["constant"] and measures["count"]:
        return f"always {measures['min']:.6g}"
    labels = {"nan": "NaN", "infinite": "infinite"}  # only if the column has any
    parts = [f"{measures[name]:,} {label}" for name, label in labels.items() if measures[name]]
    moments = [f"{n} {measures[n]:.6g}" for n in ("mean", "std") if measures[n] is not None]
    range_ = [f"{measures['min']:.6g} to {measures['max']:.6g}"] if measures["count"] else []
    range_ = range_ or ["no finite number"]
    return ", ".join([*range_, *moments, *parts])


def _origin(manifest: Manifest) -> Iterator[Fact]:
    for reason in manifest.unverified:
        resources = (each for each in manifest.resources if each.get("checked") == reason)
        name, *others = [resource["filename"] for resource in resources] or [manifest.id]
        more = f"; and {len(others)} more" if others else ""
        why = reason.partition(": ")[2]
        yield "NOT VERIFIED", f"{why if name in why else f'{name}: {why}'}{more}"
    if manifest.parent is None:
        yield "successors", manifest.successors.get("rule", "not stated")
    if manifest.final_steps:
        yield "steps", manifest.recorded_steps
    if manifest.parent is None:
        return
    content = str(manifest.parent.get("content", "not stated"))[:16]
    yield "parent", f"{manifest.parent['id']}, content {content}"
    if dropped := manifest.parent.get("dropped"):
        yield "dropped", f"{dropped}"
    if "view" in manifest.parent:
        yield "read of it", str(manifest.parent["view"])
    if manifest.function:
        arguments = [f"{name} {value}" for name, value in manifest.arguments.items()]
        called = ", ".join([*arguments, f"seed {manifest.seed}"])
        digest = manifest.function["digest"][:16]
        yield "function", f"{manifest.function['name']} ({called}), digest {digest}"


@options_of(call=KnownIds)
def cite(context: typer.Context, *, call: GivenOptions) -> None:
    """Print BibTeX entries of datasets and of their papers.

    Each entry is printed once. The entry of an installed dataset contains its content digest.

    Examples:
        rlds cite hopper-medium-v2 >> references.bib
    """
    state = state_of(context)
    ids = datasets_cli.match_datasets(**call, config=state.config)
    citations = [datasets_cli.cite(id, config=state.config) for id in ids]
    entries = {key: text for citation in citations for key, text in citation.entries.items()}
    lines = "\n\n".join(entries.values()).split("\n")
    state.emit([citation.to_json() for citation in citations], lines, lines)
