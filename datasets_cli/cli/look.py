"""``rlds peek`` and ``sample``: what is in a dataset, row by row and as batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

import datasets_cli
from datasets_cli.cli.parser.fields import GivenOptions, options_of
from datasets_cli.cli.state import printable, state_of
from datasets_cli.cli.terminal import cut, fact, fitted, table
from datasets_cli.look.peek import PeekCall
from datasets_cli.look.sample import SampleCall
from datasets_cli.quantities import counted

if TYPE_CHECKING:
    from datasets_cli import PeekedColumn, PeekedRows, SampledBatch

MOST_NUMBERS, MOST_CHARACTERS = 8, 60
"""Of an array and of a text, beyond which a row shows a part of it."""


@options_of(call=PeekCall)
def peek(context: typer.Context, *, call: GivenOptions) -> None:
    """Show some rows of an installed dataset, in their order.

    Numbers have 6 digits, arrays of more than 8 numbers and long texts are cut, and a frame is its
    type and shape; --json has every value. Where the table is wider than the terminal, each column
    of a row has a line.
    """
    state = state_of(context)
    call |= {"columns": ",".join(call["columns"])} if "columns" in call else {}
    peeked = datasets_cli.peek(**call, config=state.config)
    lines = _row_lines(peeked, state.width)
    last = peeked.start + len(peeked.trajectories) - 1
    left_out = {
        "what … stands for": any("…" in line for line in lines),
        "frames": any(each.is_frame for each in peeked.columns),
        "digits after the sixth": any("float" in each.dtype for each in peeked.columns),
    }
    names = ", ".join(name for name, is_so in left_out.items() if is_so)
    more = f" Not shown: {names}; --json has all of it." if names else ""
    state.note(
        f"{peeked.id}: rows {peeked.start:,} to {last:,} of {peeked.num_transitions:,}.{more}"
    )
    state.emit(peeked.to_json() if state.json else None, lines, [peeked.id])


def _row_lines(peeked: PeekedRows, width: int | None) -> list[str]:
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


def _item(item: object) -> str:
    if isinstance(item, str):
        return cut(repr(item), MOST_CHARACTERS)
    return f"{item:.6g}" if isinstance(item, float | complex) else str(item)


@options_of(call=SampleCall)
def sample(context: typer.Context, *, call: GivenOptions) -> None:
    """Draw a batch of an installed dataset; show its keys, element types and shapes.

    It is what ExperienceReplay gives to a training loop. --bench counts such batches: the first,
    and then how many come a second, as the median of 5 runs.
    """
    state = state_of(context)
    made = datasets_cli.sample_batch(**call, config=state.config)
    state.emit(made.to_json(), fitted(_batch_lines(made, state.width), state.width), [made.id])
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
