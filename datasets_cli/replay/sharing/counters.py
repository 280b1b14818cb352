"""What is counted of rows: in this process alone, or by all that share them."""

from __future__ import annotations

from dataclasses import dataclass

SEQUENCE, FORM, OTHERS, KEY, FIRST_ROW, JOURNAL, JOURNAL_START, JOURNAL_COUNT = range(8)
"""Places of numbers in the shared control file; the counters follow, twice.

- ``SEQUENCE``: raised by two with every change; odd while rows are being written.
- ``FORM``: 1 once the form of the rows is known, and their files are there.
- ``OTHERS``: 1 once a second process may read the rows.
- ``KEY``: tells the control file of one storage from that of the next in its folder.
- ``FIRST_ROW``: the first row that the write under way touches.
- ``JOURNAL``: the odd ``SEQUENCE`` of the write whose rows the journal has.
- ``JOURNAL_START``: the first of these rows, or -1 where they are numbered one by one.
- ``JOURNAL_COUNT``: how many these are.
"""

_FIRST, _NUM_COUNTERS = 8, 5
NUM_NUMBERS = _FIRST + 2 * _NUM_COUNTERS


@dataclass
class Counters:
    """What one process counts."""

    num_rows: int = 0
    cursor: int = 0
    revision: int = 0
    write_count: int = 0
    clears: int = 0


def _counter(place: int) -> property:
    def read(counters: SharedCounters) -> int:
        numbers = counters.numbers
        found: int = numbers[_FIRST + numbers[SEQUENCE] // 2 % 2 * _NUM_COUNTERS + place]
        return found

    def write(counters: SharedCounters, value: int) -> None:
        numbers = counters.numbers
        numbers[_FIRST + (numbers[SEQUENCE] // 2 + 1) % 2 * _NUM_COUNTERS + place] = value

    return property(read, write)


class SharedCounters:
    """The same counters in memory that several processes share; they change all at once."""

    # There are two sets of them. `SEQUENCE // 2` says which one counts: it is odd or even. Values
    # are set in the other one, so that raising `SEQUENCE` to the next even number, which is one
    # store, makes all of them count.

    num_rows, cursor, revision, write_count, clears = map(_counter, range(5))

    def __init__(self, numbers: memoryview) -> None:
        self.numbers = numbers

    def begin(self) -> None:
        """Begin a change: what is not set from here on stays as it is."""
        turn = self.numbers[SEQUENCE] // 2 % 2
        old, new = (_FIRST + which * _NUM_COUNTERS for which in (turn, 1 - turn))
        self.numbers[new : new + _NUM_COUNTERS] = self.numbers[old : old + _NUM_COUNTERS]

    def end(self) -> None:
        """Make what was set count."""
        self.numbers[SEQUENCE] = (self.numbers[SEQUENCE] // 2 + 1) * 2
