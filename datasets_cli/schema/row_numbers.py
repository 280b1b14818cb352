"""Numbers of rows, checked before numpy takes rows by them."""

from __future__ import annotations

import numpy as np

from datasets_cli.errors import OutOfRange


def check_numbers(numbers: np.ndarray, num_rows: int) -> np.ndarray:
    """Return row numbers int64 ``[B]``, once each is known to be a row."""
    # numpy takes -1 for the last row, and its mode "clip", which copies fastest, hides what is
    # beyond both ends. As unsigned integers negative numbers are huge: one comparison finds both.
    if len(numbers) and numbers.view(np.uint64).max() >= num_rows:
        raise _no_such_rows(f"{numbers.min()} to {numbers.max()}", num_rows)
    return numbers


def check_run(start: int, stop: int, num_rows: int) -> None:
    """Check that the rows ``start`` to ``stop - 1`` are there."""
    if not 0 <= start <= stop <= num_rows:
        raise _no_such_rows(f"a start of {start} and a stop of {stop}", num_rows)


def _no_such_rows(found: str, num_rows: int) -> OutOfRange:
    return OutOfRange(f"Rows are numbered from 0 to {num_rows - 1}; found {found}.")
