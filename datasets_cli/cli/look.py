"""``rlds peek``, ``sample``, ``diff``, ``plot`` and others: what is in datasets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

import datasets_cli
from datasets_cli.cli.parser.fields import GivenOptions, options_of
from datasets_cli.cli.state import state_of, write
from datasets_cli.cli.terminal import cut, fact, fitted, has_colour, table
from datasets_cli.errors import UsageError
from datasets_cli.look.card import CardCall
from datasets_cli.look.compare import CompareCall
from datasets_cli.look.frames.render import RenderCall
from datasets_cli.look.peek import PeekCall
from datasets_cli.look.plots.plot import PlotCall
from datasets_cli.look.sample import SampleCall
from datasets_cli.look.score import ScoreCall
from datasets_cli.look.stats import StatsCall
from datasets_cli.look.trajectories.listing import TrajectoriesCall
from datasets_cli.quantities import counted, human_count, printable

if TYPE_CHECKING:
    from datasets_cli import (
        ColumnDifference,
        DatasetDifference,
        PeekedColumn,
        PeekedRows,
        SampledBatch,
    )

MOST_NUMBERS, MOST_CHARACTERS = 8, 60
"""Of an array and of a text, beyond which a row shows a part of it."""
SHOWN_CHARACTERS = 40  # of a text that differs; --json has all of it
SHOWN_ROWS = 300  # characters, of rows that differ; --json has all
DIFFERENT = 10
"""What ``rlds diff`` exits with where two datasets are not equal; it is no error."""


def _with_columns(call: GivenOptions) -> GivenOptions:
    """Return what was given, with columns as one text: each option may have several, by commas."""
    return call | ({"columns": ",".join(call["columns"])} if "columns" in call else {})


@options_of(call=PeekCall)
def peek(context: typer.Context, *, call: GivenOptions) -> None:
    """Show some rows of an installed dataset, in their order.

    Numbers have 6 digits, arrays of more than 8 numbers and long texts are cut, and a frame is its
    type and shape; --json has every value. Where the table is wider than the terminal, each column
    of a row has a line.
    """
    state = state_of(context)
    peeked = datasets_cli.peek(**_with_columns(call), config=state.config)
    lines = row_lines(peeked, state.width)
    last = peeked.start + len(peeked.trajectories) - 1
    shown = f"row{'s' * (last > peeked.start)} {peeked.start:,}"
    shown += f" to {last:,}" if last > peeked.start else ""
    left_out = {
        "what … stands for": any("…" in line for line in lines),
        "frames": any(each.is_frame for each in peeked.columns),
        "digits after the sixth": any(map(_is_rounded, peeked.columns)),
    }
    names = ", ".join(name for name, is_so in left_out.items() if is_so)
    more = f" Not shown: {names}; --json has all of it." if names else ""
    state.note(f"{peeked.id}: {shown} of {peeked.num_transitions:,}.{more}")
    state.emit(peeked.to_json() if state.json else None, lines, [peeked.id])


def row_lines(peeked: PeekedRows, width: int | None) -> list[str]:
    """Return a table with a line a row; where that is too wide, a line for each of its cells."""
    rows = [
        {
            ">ROW": str(peeked.start + place),
            ">TRAJECTORY": str(trajectory),
            **{printable(each.name): _cell(each, place) for each in peeked.columns},
        }
        for place, trajectory in enumerate(peeked.trajectories)
    ]
    lines = table(rows)
    if width is None or max(map(len, lines)) <= width:
        return lines
    turned = []
    for row in rows:
        turned.append(f"row {row.pop('>ROW')}, trajectory {row.pop('>TRAJECTORY')}")
        cells = (line for name, cell in row.items() for line in fact(name, cell, width - 2))
        turned += [f"  {line}" for line in cells]
    return fitted(turned, width)


def _cell(column: PeekedColumn, place: int) -> str:
    """Return a row of a column in a few words."""
    import numpy as np

    shape = f"{list(column.shape)}"
    if column.is_frame:
        return f"{column.dtype} {shape}"
    dtype = object if column.dtype == "text" else None
    items = np.array(column.values[place], dtype).ravel().tolist()
    if len(items) > MOST_NUMBERS:
        shown = [*map(_item, items[:3]), "…", _item(items[-1])]
        return f"[{', '.join(shown)}] of {shape}"
    shown = [*map(_item, items)]
    if len(shown) == 1:
        return shown[0]
    return f"[{', '.join(shown)}]" + (f" of {shape}" if len(column.shape) > 1 else "")


def _is_rounded(column: PeekedColumn) -> bool:
    """Return whether some number has more digits than a row shows."""
    import numpy as np

    values = np.asarray(column.values)
    if values.dtype.kind not in "fc":
        return False
    shown = values.reshape(len(values), -1)[:, :MOST_NUMBERS].ravel()  # of more, … is told
    read = np.array([*map(_item, shown.tolist())]).astype(values.dtype)
    return not np.array_equal(read, shown, equal_nan=True)


def _item(item: object) -> str:
    if isinstance(item, str):
        return cut(repr(item), MOST_CHARACTERS)
    return f"{item:.6g}" if isinstance(item, float | complex) else str(item)


@options_of(call=TrajectoriesCall)
def trajectories(context: typer.Context, *, call: GivenOptions) -> None:
    """Show trajectories of an installed dataset, in any order of their columns.

    They have where each begins, its length and return, how it ended, and whether it succeeded.
    Where returns are not kept yet, all rows are read once. NaN comes last, and is shown as -.
    """
    state = state_of(context)
    listed = datasets_cli.list_trajectories(**call, config=state.config)
    rows = [
        {
            f">{name.upper()}": _trajectory_cell(value)
            for name, value in zip(listed.columns, each, strict=True)
        }
        for each in zip(*listed.columns.values(), strict=True)
    ]
    state.emit(listed.to_json(), table(rows, state.width), [listed.id])
    if len(rows) < listed.num_trajectories:
        state.note(f"{len(rows):,} of {counted(listed.num_trajectories, 'trajectory')}.")


def _trajectory_cell(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_trajectory_cell, value))
    words = {None: "-", True: "yes", False: ""}
    return words[value] if value is None or isinstance(value, bool) else _item(value)


@options_of(call=SampleCall)
def sample(context: typer.Context, *, call: GivenOptions) -> None:
    """Draw a batch of an installed dataset; show its keys, element types and shapes.

    It is what ExperienceReplay gives to a training loop. --bench counts such batches: the first,
    and then how many come a second, as the median of 5 runs.
    """
    state = state_of(context)
    made = datasets_cli.sample_batch(**call, config=state.config)
    state.emit(made.to_json(), fitted(_batch_lines(made, state.width), state.width), [made.id])
    if (num_rows := max(shape[0] for _, shape in made.batch.values())) < made.batch_size:
        state.note(
            f"{made.id}: a batch of {made.batch_size:,} has {num_rows:,}: an epoch has no more."
        )
    if made.num_short:
        count = counted(made.num_short, "trajectory")
        state.note(f"{made.id}: slices leave out {count} that are shorter.")
    if made.texts:
        names = ", ".join(made.texts)
        state.note(f"{made.id}: text is left out ({names}); in Python text=True reads it.")


def _batch_lines(made: SampledBatch, width: int | None) -> list[str]:
    lines = table(
        [
            {"KEY": printable(key), "TYPE": dtype, "SHAPE": f"{list(shape)}"}
            for key, (dtype, shape) in made.batch.items()
        ]
    )
    if made.batches_per_second is None:
        return lines
    cold = f"{made.cold_seconds * 1e3:,.2f} ms for the first batch; files may be in memory already"
    range_ = f"{min(made.runs):,.0f} to {max(made.runs):,.0f}"
    warm = (
        f"{made.batches_per_second:,.0f} batches a second, the median of {len(made.runs)} runs "
        f"({range_})"
    )
    return [*lines, *fact("cold", cold, width), *fact("warm", warm, width)]


@options_of(call=CompareCall)
def diff(context: typer.Context, *, call: GivenOptions) -> None:
    """Compare two installed datasets, value by value, and their columns and trajectories.

    It also says how many whole trajectories of one are in the other, wherever, by observation and
    action: those that a test set should not have of a training set. Layouts may differ. Exit code
    10 where the two are not equal.
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
        yield f"{id}: {rows} in {trajectories}, {about}"
        if found.num_shared:
            yield f"  trajectories that the other one has, too: {found.num_shared[place]:,}"
        for column in found.only[place]:
            if not (column.key in first and column.key in second):
                yield f"  only here: {'.'.join(column.key)} {column.dtype} {list(column.shape)}"
    for key in first.keys() & second.keys():
        types = [f"{each[key].dtype} {list(each[key].shape)}" for each in (first, second)]
        yield f"{'.'.join(key)}: {' and '.join(types)}"
    if not found.num_shared:
        yield "Trajectories that both have are not told: observation and action are not the same."
    if found.num_compared is None:
        yield "No row is read: both have one content. Whether the files are sound: rlds verify"
        return
    if found.only_rows is None and len({*found.num_transitions}) > 1:
        rows = counted(found.num_compared, "row").removeprefix("1 ")
        yield f"Only the first {rows} of both {'is' if rows == 'row' else 'are'} compared."
    if found.trajectory is not None:
        yield f"Trajectory {found.trajectory:,} is the first that has not the same rows in both."
    num_equal = sum(not each.num_different for each in found.columns)
    yield f"{num_equal} of {counted(len(found.columns), 'column')} of both are equal bit for bit."


def _cells(each: ColumnDifference) -> dict[str, str]:
    largest = each.largest_difference
    values = " and ".join(cut(value, SHOWN_CHARACTERS) for value in each.values)
    return {
        "COLUMN": ".".join(each.column.key),
        ">ROWS": human_count(each.num_different),
        ">FIRST ROW": human_count(each.row),
        ">TRAJECTORY": human_count(each.trajectory),
        ">LARGEST": "-" if largest is None else f"{largest:.6g}",
        "VALUES": f"{list(each.index)}: {values}" if each.index else values,
    }


@options_of(call=PlotCall)
def plot(context: typer.Context, *, call: GivenOptions) -> None:
    """Plot what is in a dataset, or in two, one over the other: into a file or this terminal."""
    state = state_of(context)
    if state.width is None and "out" not in call and not state.json:
        for id in filter(None, (call["id"], call.get("other"))):
            if id[:1] not in ("/", "."):  # no folder: an unknown one is told first
                datasets_cli.dataset_path(id, config=state.config)
        raise UsageError(
            "There is no terminal to plot in. Name a file with --out FILE.png or --out FILE.svg, "
            "or have the numbers with --json."
        )
    chart = datasets_cli.plot(**call, config=state.config)
    for note in chart.notes:
        state.note(note)
    if state.width is None or chart.path:
        state.emit(chart.to_json(), [str(chart.path)], [str(chart.path)])
        return
    write("\n".join(chart.lines(state.width, has_colour())))


@options_of(call=RenderCall)
def render(context: typer.Context, *, call: GivenOptions) -> None:
    """Show a trajectory as a GIF, a sheet of pictures or a video: a picture for each row.

    Frames are the stored ones. A dataset without frames is shown by its environment, which is set
    to each recorded qpos and qvel: its specification names code to import, so do it only with data
    of people whom you trust.
    """
    state = state_of(context)
    made = datasets_cli.render(**call, config=state.config)
    for note in (counted(made.num_frames, "picture"), *made.notes):
        state.note(note)
    state.emit(made.to_json(), [str(made.path)], [str(made.path)])


# What a narrow terminal does without, in this order.
SPARE = ("CONSTANT", "INFINITE", "COUNT", "Q50", "STD", "NAN")


@options_of(call=StatsCall)
def stats(context: typer.Context, *, call: GivenOptions) -> None:
    """Show statistics of columns, returns and lengths.

    Where none are kept, every row is read once, and they are kept for the next time; quantiles are
    of a sample of rows where there are more than 100,000. --columns shows each number of a column,
    too, up to 64. Names are those of rlds info; next stands for all below it.

    --recompute reads the rows again, and names the columns whose statistics were others.
    """
    state = state_of(context)
    found = datasets_cli.dataset_stats(**_with_columns(call), **state.settings)
    width = state.width
    rows = counted(found.num_transitions, "transition")
    head = f"{found.id}: {rows} in {counted(found.num_trajectories, 'trajectory')}"
    lines = fitted([head], width)
    for each in (found.table(), found.trajectory_table()):
        lines += ["", *_numbers(each, width)] if each else []
    remarks = [*found.remarks]
    if found.changed:
        remarks.append(f"These had other statistics until now: {', '.join(found.changed)}.")
    elif "recompute" in call:
        remarks.append("All rows were read again: no kept statistics were others.")
    lines += ["", *fitted(remarks, width)] if remarks else []
    state.emit(found.to_json(), lines, [*found.columns, *found.frames])


def _numbers(rows: list[dict[str, str]], width: int | None) -> list[str]:
    """Return the lines of a table, whose columns are aligned to the right but for the first."""
    first, *others = rows[0]
    kept = [head for head in others if any(row[head] for row in rows)]
    shown = [{first: row[first], **{f">{head}": row[head] for head in kept}} for row in rows]
    return table(shown, width, [f">{head}" for head in SPARE if head in kept])


@options_of(call=CardCall)
def card(context: typer.Context, *, call: GivenOptions) -> None:
    """Print a dataset's card, in Markdown or HTML, or for Hugging Face.

    It has what the dataset is, its columns, statistics, licence, citation, and how to load it. Of
    what is not installed it has what the catalogue knows. The page in HTML needs nothing else;
    --format hf begins with what Hugging Face reads of a README.
    """
    state = state_of(context)
    made = datasets_cli.dataset_card(**call, **state.settings)
    lines = made.text.rstrip("\n").split("\n")
    state.emit(made.to_json(), lines, lines)


@options_of(call=ScoreCall)
def score(context: typer.Context, *, call: GivenOptions) -> None:
    """Print normalised scores of returns.

    0 is what a random policy gets, 100 what an expert does. The two reference scores are those that
    the publisher states, of D4RL's tasks above all.
    """
    state = state_of(context)
    found = datasets_cli.normalised_scores(**call, config=state.config)
    scores = [f"{score:.6g}" for score in found.scores]
    pairs = zip(found.returns, scores, strict=True)
    lines = table([{">RETURN": f"{each:.6g}", ">SCORE": score} for each, score in pairs])
    ends = f"{found.random:.6g} (random), score 100 = return {found.expert:.6g} (expert)"
    lines += fitted([f"score 0 = return {ends}, by {found.source}"], state.width)
    state.emit(found.to_json(), lines, scores)
