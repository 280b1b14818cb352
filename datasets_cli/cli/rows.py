"""``rlds peek``, ``trajectories`` and ``sample``: rows, trajectories and batches of a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

import datasets_cli
from datasets_cli.cli.parser.fields import GivenOptions, options_of
from datasets_cli.cli.state import state_of
from datasets_cli.cli.terminal import cut, fact, fitted, table
from datasets_cli.core.quantities import counted, printable

if TYPE_CHECKING:
    from datasets_cli.results import PeekedColumn, PeekedRows, SampledBatch

MOST_NUMBERS, MOST_CHARACTERS = 8, 60
"""The maximum size of an array and of a text that a row shows whole."""


def with_columns(call: GivenOptions) -> GivenOptions:
    """Return the options with all columns in one text; each option may list several."""
    return call | ({"columns": ",".join(call["columns"])} if "columns" in call else {})


@options_of(call="peek")
def peek(context: typer.Context, *, call: GivenOptions) -> None:
    """Show some rows of an installed dataset.

    Numbers are rounded to 6 digits; arrays of more than 8 numbers and long texts are shortened; a
    frame is shown as its dtype and shape. --json prints every value. If the table is wider than the
    terminal, each column of a row gets its own line.

    Examples:
        rlds peek hopper-medium-v2
        rlds peek hopper-medium-v2 --trajectory 3 -n 10 --columns action,next.reward
        rlds peek door-human-v1 --final
    """
    state = state_of(context)
    peeked = datasets_cli.peek(**with_columns(call), config=state.config)
    lines = row_lines(peeked, state.width)
    last = peeked.start + len(peeked.trajectories) - 1
    noun, count = "row", peeked.num_transitions
    if peeked.steps is not None:
        noun, count = "final step", peeked.final_steps
    shown = f"{noun}{'s' * (last > peeked.start)} {peeked.start:,}"
    shown += f" to {last:,}" if last > peeked.start else ""
    left_out = {
        "values (…)": any("…" in line for line in lines),
        "frames": any(each.is_frame for each in peeked.columns),
        "digits after the sixth": any(map(_is_rounded, peeked.columns)),
    }
    names = ", ".join(name for name, is_so in left_out.items() if is_so)
    more = f" Abbreviated: {names}; --json prints every value." if names else ""
    state.note(f"{peeked.id}: {shown} of {count:,}.{more}")
    state.emit(peeked.to_json() if state.json else None, lines, [peeked.id])


def row_lines(peeked: PeekedRows, width: int | None) -> list[str]:
    """Return a table with a line for each row, or for each cell if rows are too wide."""
    head = ">ROW" if peeked.steps is None else ">STEP"
    numbers = peeked.steps or range(peeked.start, peeked.start + len(peeked.trajectories))
    rows = [
        {
            head: str(numbers[place]),
            ">TRAJECTORY": "-" if trajectory < 0 else str(trajectory),
            **{printable(each.name): _cell(each, place) for each in peeked.columns},
        }
        for place, trajectory in enumerate(peeked.trajectories)
    ]
    lines = table(rows)
    if width is None or max(map(len, lines)) <= width:
        return lines
    turned = []
    for row in rows:
        turned.append(f"{head[1:].lower()} {row.pop(head)}, trajectory {row.pop('>TRAJECTORY')}")
        cells = (line for name, cell in row.items() for line in fact(name, cell, width - 2))
        turned += [f"  {line}" for line in cells]
    return fitted(turned, width)


def _cell(column: PeekedColumn, place: int) -> str:
    """Return a short text of a row of a column."""
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
    """Return whether a number has more digits than a row shows."""
    import numpy as np

    values = np.asarray(column.values)
    if values.dtype.kind not in "fc":
        return False
    shown = values.reshape(len(values), -1)[:, :MOST_NUMBERS].ravel()  # … stands for the rest
    read = np.array([*map(_item, shown.tolist())]).astype(values.dtype)
    return not np.array_equal(read, shown, equal_nan=True)


def _item(item: object) -> str:
    if isinstance(item, str):
        return cut(repr(item), MOST_CHARACTERS)
    return f"{item:.6g}" if isinstance(item, float | complex) else str(item)


@options_of(call="list_trajectories")
def trajectories(context: typer.Context, *, call: GivenOptions) -> None:
    """List trajectories of an installed dataset.

    Shows the start, length, return, end and success of each trajectory. The first call may read
    the whole dataset once to compute the returns. NaN sorts last and is shown as -.

    Examples:
        rlds trajectories hopper-medium-v2 --sort -return
    """
    state = state_of(context)
    listed = datasets_cli.list_trajectories(**call, config=state.config)
    rows = [
        {
            f">{name.upper()}": _trajectory_cell(value)
            for name, value in zip(listed.columns, each, strict=True)
            if listed.steps or name != "num_transitions"  # else equal to length
        }
        for each in zip(*listed.columns.values(), strict=True)
    ]
    state.emit(listed.to_json(), table(rows, state.width), [listed.id])
    if len(rows) < listed.num_trajectories:
        state.note(f"{len(rows):,} of {counted(listed.num_trajectories, 'trajectory')}.")
    if listed.steps:
        state.note(f"{listed.steps}.")


def _trajectory_cell(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_trajectory_cell, value))
    if isinstance(value, str):
        return cut(value, MOST_CHARACTERS)
    words = {None: "-", True: "yes", False: ""}
    return words[value] if value is None or isinstance(value, bool) else _item(value)


@options_of(call="sample_batch")
def sample(context: typer.Context, *, call: GivenOptions) -> None:
    """Draw a batch from an installed dataset.

    Shows the keys, dtypes and shapes of a batch of ExperienceReplay. --bench measures the time of
    the first batch and then the batches per second, as the median of 5 runs.

    Examples:
        rlds sample hopper-medium-v2
        rlds sample hopper-medium-v2 --sampler slice --slice-len 32 --bench 5
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
        state.note(f"{made.id}: not drawn: {count} shorter than a slice.")
    if made.texts:
        names = ", ".join(made.texts)
        state.note(f"{made.id}: text is not drawn ({names}); in Python, text=True reads it.")


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
