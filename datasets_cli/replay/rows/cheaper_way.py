"""Whether batches are made in place or come from a thread: what took the caller less time."""

from __future__ import annotations

BATCHES = 32  # a way is measured over so many
SETTLED_BATCHES = 1000  # the cheaper one goes on for so many, until both are measured again


class CheaperWay:
    """Chooses, by the time that batches took, where the next one is made."""

    # The way in use is measured, then the other one, which is left as soon as it has taken as long:
    # a slow one costs little. What the thread had under way, and the first batch of a way, for
    # which nothing could be ready, are not counted.
    #
    #     thread 32 | in place, up to 32 | the cheaper 1,000 and 32 | the other, up to 32 | ...

    def __init__(self, depth: int) -> None:
        self.in_place = False
        self._uncounted_batches = depth + 2
        self._begin(None, self._uncounted_batches)

    def _begin(self, other: float | None, uncounted: int) -> None:
        self._other = other  # seconds of the other way; None where it comes after this one
        self._uncounted, self._counted, self._seconds = uncounted, 0, 0.0

    def note(self, seconds: float) -> None:
        """Note how long the caller waited for a batch, which may change the way of the next."""
        if self._uncounted:
            self._uncounted -= 1
            return
        self._counted += 1
        self._seconds += seconds
        is_dearer = self._other is not None and self._seconds >= self._other
        if is_dearer or self._counted == BATCHES:
            is_first = self._other is None
            self.in_place ^= is_dearer or is_first
            if is_first:
                self._begin(self._seconds, self._uncounted_batches)
            else:
                self._begin(None, SETTLED_BATCHES)
