"""The entry ``_row``: the number of each row that a function gets, by which it says what it kept.

An index carries it, so that ``batch[keep]`` is all that a function needs. Only a function that
drops rows meets it: to others a batch is what the dataset has, as functions that go over all
entries expect.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from datasets_cli.errors import UsageError
from datasets_cli.store.schema.columns import Key

ROW = "_row"
ROW_KEY: Key = (ROW,)


def number_rows(batch: TensorDict, start: int, named: str) -> None:
    """Add ``_row`` int64 ``[n]`` to a batch."""
    # batch: consecutive rows `[n]`.
    if batch.get(ROW, None) is not None:
        raise UsageError(
            f"The function must return one row for each of {named}: rows that are dropped are "
            f"known by the entry {ROW}, which is a column of this dataset. Rename it first, by a "
            "function that drops nothing."
        )
    batch[ROW] = torch.arange(start, start + len(batch))


def kept_rows(result: TensorDict, start: int, stop: int, named: str) -> np.ndarray | None:
    """Return which of the rows that a function got are in its result, bool ``[stop - start]``."""
    # result: `[k]`, of a batch that had `_row`; at most as many rows.
    numbers = result.get(ROW, None)
    problem = _problem(numbers, len(result), start, stop)
    if problem:
        if len(result) == stop - start:
            return None
        raise UsageError(
            f"The function must return {ROW} where it drops rows: it returned {len(result)} of "
            f"{named}, and as {ROW} {problem}; expected int64 [{len(result)}], numbers from "
            f"{start} to {stop - 1}. An index keeps it, as in batch[keep]; a function that selects "
            f'entries, or makes a TensorDict, passes it on: batch.select("action", "{ROW}").'
        )
    places = numbers.cpu().numpy() - start
    if (wrong := np.flatnonzero(np.diff(places) <= 0)).size:
        before, after = (places[wrong[0] : wrong[0] + 2] + start).tolist()
        raise UsageError(
            f"The function must return rows in their order, each at most once: of {named} it "
            f"returned row {before} and after it row {after}. Choose rows by a mask, such as "
            "batch[keep]."
        )
    kept = np.zeros(stop - start, np.bool_)
    kept[places] = True
    return None if kept.all() else kept


def _problem(numbers: Any, num_rows: int, start: int, stop: int) -> str:
    """Return what is found where numbers of rows are expected; empty where they are."""
    if not isinstance(numbers, torch.Tensor):
        return "nothing" if numbers is None else f"a {type(numbers).__name__}"
    if numbers.dtype != torch.int64 or numbers.shape != (num_rows,):
        return f"{str(numbers.dtype).removeprefix('torch.')} {list(numbers.shape)}"
    if not num_rows:
        return ""
    least, most = (int(number) for number in numbers.aminmax())
    return "" if start <= least and most < stop else f"numbers from {least} to {most}"
