"""Whether batches are made in place or come from a thread: what took the caller less time."""

from __future__ import annotations

BATCHES = 32
"""A way is measured over so many."""
SETTLED_BATCHES = 1000
"""The cheaper way goes on for so many, until both are measured again."""


class CheaperWay:
    """Whether batches are made in place, or taken from the thread that makes them ahead."""

    # The way in use is measured over some batches, then the other one, which is left as soon as it
    # has taken as long as the first did; so a slow one costs little. The first batch of a way is
    # not counted: nothing was ahead of it.
    #
    #     thread 32 | in place up to 32 | the cheaper 1,000, and 32 more | the other up to 32 | ...

    def __init__(self) -> None:
        self.in_place = False
        self._begin(None, 1)

    def _begin(self, other: float | None, uncounted: int) -> None:
        self._other = other  # seconds of the other way; None where it is measured after this one
        self._uncounted, self._counted, self._seconds = uncounted, 0, 0.0

    def note(self, seconds: float) -> None:
        """Note how long the caller waited for a batch, which may change the way of the next."""
        if self._uncounted:
            self._uncounted -= 1
            return
        self._counted += 1
        self._seconds += seconds
        if self._other is not None and self._seconds >= self._other:
            self.in_place = not self.in_place
            self._begin(None, SETTLED_BATCHES)
        elif self._counted == BATCHES:
            if self._other is not None:
                self._begin(None, SETTLED_BATCHES)
            else:
                self.in_place = not self.in_place
                self._begin(self._seconds, 1)
