"""``rlds diff``, ``plot``, ``render``, ``stats``, ``card``, ``score`` and ``ui``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

import datasets_cli
from datasets_cli.cli.parser.fields import GivenOptions, options_of
from datasets_cli.cli.rows import with_columns
from datasets_cli.cli.state import State, state_of, write
from datasets_cli.cli.terminal import cut, fitted, has_colour, table
from datasets_cli.core.quantities import counted, human_bytes, human_count
from datasets_cli.errors import UsageError

if TYPE_CHECKING:
    from datasets_cli.results import ColumnDifference, DatasetDifference

SHOWN_CHARACTERS = 40  # of a text that differs; --json has all of it
SHOWN_ROWS = 300  # characters, of rows that differ; --json has all
DIFFERENT = 10
"""The exit code of ``rlds diff`` for different datasets, which is not an error."""


@options_of(call="compare_datasets")
def diff(context: typer.Context, *, call: GivenOptions) -> None:
    """Compare two installed datasets value by value.

    Also compares their columns, and counts the whole trajectories of one dataset that the other
    contains, by observation and action: a test set should share no trajectory with its training
    set. Layouts may differ. The exit code is 10 if the datasets differ.

    Examples:
        rlds diff hopper-medium-v2 derived/scaled
    """
    state = state_of(context)
    found = datasets_cli.compare_datasets(**call, **state.settings)
    unequal = [each for each in found.columns if each.num_different]
    changed = (cut(line, SHOWN_ROWS) for line in found.changed_rows)
    lines = fitted([*_differences(found), *changed], state.width)
    lines += table([_cells(each) for each in unequal], state.width, (">LARGEST", "VALUES"))
    keys = [*(each.column.key for each in unequal), *(each.key for each in sum(found.only, ()))]
    state.emit(found.to_json(), lines, [".".join(key) for key in dict.fromkeys(keys)])
    if not found.equal:
        raise typer.Exit(DIFFERENT)


def _differences(found: DatasetDifference) -> Iterator[str]:
    yield f"{' and '.join(found.ids)} are {'equal' if found.equal else 'different'}."
    first, second = ({each.key: each for each in columns} for columns in found.only)
    for place, id in enumerate(found.ids):
        rows = counted(found.num_transitions[place], "transition")
        trajectories = counted(found.num_trajectories[place], "trajectory")
        about = f"{found.layouts[place]}, content {found.contents[place][:16]}"
        final = found.final_steps[place]
        steps = f", {counted(final, 'final step')}" if final else ""
        yield f"{id}: {rows} in {trajectories}{steps}, {about}"
        if found.num_shared:
            yield f"  trajectories that the other contains: {found.num_shared[place]:,}"
        for column in found.only[place]:
            if not (column.key in first and column.key in second):
                yield f"  only here: {'.'.join(column.key)} {column.dtype} {list(column.shape)}"
    for key in first.keys() & second.keys():
        types = [f"{each[key].dtype} {list(each[key].shape)}" for each in (first, second)]
        yield f"{'.'.join(key)}: {' and '.join(types)}"
    if not found.num_shared:
        yield "Shared trajectories are not counted: the columns of observation and action differ."
    if found.num_compared is None:
        yield "Nothing was read: the content digests are equal. To check the files: rlds verify"
        return
    if found.only_rows is None and len({*found.num_transitions}) > 1:
        rows = counted(found.num_compared, "transition").removeprefix("1 ")
        yield f"Only the first {rows} of both {'is' if rows == 'transition' else 'are'} compared."
    if found.trajectory is not None:
        yield f"Trajectory {found.trajectory:,} is the first that differs."
    if found.final_difference is not None:
        step, key = found.final_difference
        yield f"Final step {step:,} is the first that differs, in {'.'.join(key)}."
    num_equal = sum(not each.num_different for each in found.columns)
    yield f"{num_equal} of {counted(len(found.columns), 'column')} of both are equal bit for bit."


def _cells(each: ColumnDifference) -> dict[str, str]:
    largest = each.largest_difference
    values = " and ".join(cut(value, SHOWN_CHARACTERS) for value in each.values)
    return {
        "COLUMN": ".".join(each.column.key),
        ">TRANSITIONS": human_count(each.num_different),
        ">FIRST": human_count(each.row),
        ">TRAJECTORY": human_count(each.trajectory),
        ">LARGEST": "-" if largest is None else f"{largest:.6g}",
        "VALUES": f"{list(each.index)}: {values}" if each.index else values,
    }


@options_of(call="plot")
def plot(context: typer.Context, *, call: GivenOptions) -> None:
    """Plot one dataset, or two overlaid.

    Draws in the terminal, or into a file with --out.

    Examples:
        rlds plot hopper-medium-v2
        rlds plot hopper-medium-v2 hopper-expert-v2 --kind lengths --out lengths.svg
    """
    state = state_of(context)
    if state.width is None and "out" not in call and not state.json:
        for id in filter(None, (call["id"], call.get("other"))):
            if id[:1] not in ("/", "."):  # not a folder: report an unknown id first
                datasets_cli.dataset_path(id, config=state.config)
        raise UsageError(
            "stdout is not a terminal to plot in.",
            argument="out",
            advice="Name a file with --out FILE.png or --out FILE.svg, or print the numbers with "
            "--json.",
        )
    chart = datasets_cli.plot(**call, config=state.config)
    for note in chart.notes:
        state.note(note)
    if state.width is None or chart.path:
        state.emit(chart.to_json(), [str(chart.path)], [str(chart.path)])
        return
    write("\n".join(chart.lines(state.width, has_colour())))


@options_of(call="render")
def render(context: typer.Context, *, call: GivenOptions) -> None:
    """Render a trajectory as a GIF, a contact sheet or a video.

    Each transition is one frame. Stored frames are used unchanged. A dataset without frames is
    rendered by its environment, which is set to each recorded qpos and qvel. The specification of
    the environment can import code: render only data from people you trust.

    Examples:
        rlds render Pong/5 --trajectory 0 --out pong.gif
    """
    state = state_of(context)
    made = datasets_cli.render(**call, config=state.config)
    for note in (counted(made.num_frames, "picture"), *made.notes):
        state.note(note)
    state.emit(made.to_json(), [str(made.path)], [str(made.path)])


# The columns that a narrow terminal leaves out, in this order.
SPARE = ("CONSTANT", "INFINITE", "COUNT", "Q50", "STD", "NAN")


@options_of(call="dataset_stats")
def stats(context: typer.Context, *, call: GivenOptions) -> None:
    """Show statistics of columns, returns and lengths.

    Missing statistics are computed from all transitions once, and cached; quantiles use a sample if
    there are more than 100,000 transitions. --columns also shows each number of a column, up to 64.
    Use the column names of rlds info; next selects the whole group.

    Examples:
        rlds stats hopper-medium-v2
        rlds stats hopper-medium-v2 --columns action,next.reward
    """
    state = state_of(context)
    found = datasets_cli.dataset_stats(**with_columns(call), **state.settings)
    width = state.width
    rows = counted(found.num_transitions, "transition")
    head = f"{found.id}: {rows} in {counted(found.num_trajectories, 'trajectory')}"
    lines = fitted([head], width)
    for each in (found.table(), found.trajectory_table()):
        lines += ["", *_numbers(each, width)] if each else []
    remarks = [*found.remarks]
    if found.changed:
        remarks.append(f"The statistics of these columns have changed: {', '.join(found.changed)}.")
    elif "recompute" in call:
        remarks.append("All rows were read again; the cached statistics are unchanged.")
    lines += ["", *fitted(remarks, width)] if remarks else []
    state.emit(found.to_json(), lines, [*found.columns, *found.frames])


def _numbers(rows: list[dict[str, str]], width: int | None) -> list[str]:
    """Return the lines of a table, whose columns are aligned to the right but for the first."""
    first, *others = rows[0]
    filled = [head for head in others if any(row[head] for row in rows)]
    shown = [{first: row[first], **{f">{head}": row[head] for head in filled}} for row in rows]
    return table(shown, width, [f">{head}" for head in SPARE if head in filled])


@options_of(call="dataset_card")
def card(context: typer.Context, *, call: GivenOptions) -> None:
    """Print a dataset card in Markdown or for Hugging Face.

    Describes the dataset, its columns, statistics, licence and citation, and how to load it. If the
    dataset is not installed, the card contains only facts from the catalogue. --format hf adds the
    metadata that Hugging Face reads from a README.

    Examples:
        rlds card hopper-medium-v2
        rlds card hopper-medium-v2 --format hf > README.md
    """
    state = state_of(context)
    made = datasets_cli.dataset_card(**call, **state.settings)
    lines = made.text.rstrip("\n").split("\n")
    state.emit(made.to_json(), lines, lines)


@options_of(call="normalised_scores")
def score(context: typer.Context, *, call: GivenOptions) -> None:
    """Print normalised scores of returns.

    0 is the score of a random policy, 100 the score of an expert. Both reference
    returns come from the publisher; mainly D4RL datasets have them.

    Examples:
        rlds score hopper-medium-v2 3000 3200.5
    """
    state = state_of(context)
    found = datasets_cli.normalised_scores(**call, config=state.config)
    scores = [f"{score:.6g}" for score in found.scores]
    pairs = zip(found.returns, scores, strict=True)
    lines = table([{">RETURN": f"{each:.6g}", ">SCORE": score} for each, score in pairs])
    ends = f"{found.random:.6g} (random), score 100 = return {found.expert:.6g} (expert)"
    lines += fitted([f"score 0 = return {ends}, by {found.source}"], state.width)
    state.emit(found.to_json(), lines, scores)


@options_of(pages="export_pages", call="serve_page")
def ui(context: typer.Context, *, pages: GivenOptions, call: GivenOptions) -> None:
    """Browse datasets in a read-only web page.

    Prints a local address that ends with a token; only a browser with the token can read the page.
    Ctrl-C stops the server. --export writes the pages as files that need no server, with the first
    20 trajectories and 200 frames of each dataset. Requires the extra ui.

    Examples:
        rlds ui
        rlds ui hopper-medium-v2 --port 8000
        rlds ui hopper-medium-v2 Pong/5 --export pages
    """
    state, ids = state_of(context), pages.get("ids", [])
    if "dest" in pages:
        return _export(state, pages, call)
    if len(ids) > 1:
        raise UsageError(
            f"The page opens at one dataset, but {len(ids)} are named: {', '.join(ids)}.",
            argument="ids",
            expected=1,
            found=ids,
        )
    if "trajectories" in pages:
        raise UsageError(
            "--trajectories requires --export; a served page shows all trajectories.",
            argument="trajectories",
        )
    if ids:
        call |= {"id": ids[0]}
    with datasets_cli.serve_page(**call, config=state.config) as page:
        state.emit(page.to_json(), [page.address], [page.address])
        state.note(f"{page.readers} Ctrl-C ends it.")
        page.wait()
    return None


def _export(state: State, pages: GivenOptions, call: GivenOptions) -> None:
    """Write pages as files."""
    if call:
        raise UsageError(
            f"--{min(call)} configures a server, but --export does not start one.",
            argument=min(call),
        )
    options: GivenOptions = {"ids": [], **pages}
    made = datasets_cli.export_pages(**options, config=state.config)
    files = f"{counted(made.num_files, 'file')}, {human_bytes(made.size_bytes)}"
    state.emit(made.to_json(), [f"{made.path / 'index.html'} ({files})"], [f"{made.path}"])
    for note in made.notes:
        state.note(note)
