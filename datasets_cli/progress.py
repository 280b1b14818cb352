"""How long work reports what it does; the command line draws it, and a Python user may too."""

from __future__ import annotations

import sys
import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tqdm import tqdm


class Progress(Protocol):
    """Receives what happens while a dataset is fetched and written."""

    def fetching(self, filename: str, done: int, total: int | None) -> None:
        """``done`` of ``total`` bytes of one file are on disk; total is None where unknown."""

    def writing(self, num_transitions: int) -> None:
        """``num_transitions`` rows are written, or read to be checked, so far."""

    def note(self, text: str) -> None:
        """One line that a person should see: a choice made, a field skipped, a known trap."""


class Silent:
    """A ``Progress`` that ignores everything."""

    def fetching(self, filename: str, done: int, total: int | None) -> None:
        """Ignore."""

    def writing(self, num_transitions: int) -> None:
        """Ignore."""

    def note(self, text: str) -> None:
        """Ignore."""


class _Converting:
    """A ``Progress`` of a user's own that has ``converting``, the name of ``writing`` in 0.1."""

    def __init__(self, progress: Any) -> None:
        self._progress = progress

    def fetching(self, filename: str, done: int, total: int | None) -> None:
        self._progress.fetching(filename, done, total)

    def writing(self, num_transitions: int) -> None:
        self._progress.converting(num_transitions)

    def note(self, text: str) -> None:
        self._progress.note(text)


def reporting_to(progress: Progress | None) -> Progress:
    """Return where to report: ``progress``, or nowhere where it is None."""
    if progress is None:
        return Silent()
    writing = getattr(progress, "writing", None)
    # A class that derives from one of ours inherits a writing that tells nobody.
    ours = getattr(writing, "__func__", writing) in (None, Progress.writing, Silent.writing)
    if ours and hasattr(progress, "converting"):
        warnings.warn(
            f"{type(progress).__name__}.converting is called writing now; rename it. The old name "
            "works for one release.",
            DeprecationWarning,
            stacklevel=3,
        )
        return _Converting(progress)
    return progress


class Bars:
    """A ``Progress`` that draws bars on stderr; use it in a ``with`` statement.

    Args:
        shown: whether bars are drawn; notes are printed either way.
        num_transitions: how many rows there will be, where that is known.
        rows_label: what is done with the rows.
    """

    def __init__(
        self,
        *,
        shown: bool,
        num_transitions: int | None = None,
        rows_label: str = "steps written",
    ) -> None:
        self._shown = shown
        self._num_transitions = num_transitions
        self._rows_label = rows_label
        self._label = ""
        self._bar: tqdm[Any] | None = None

    def __enter__(self) -> Bars:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def fetching(self, filename: str, done: int, total: int | None) -> None:
        """Draw bytes, speed and remaining time of one file."""
        self._draw(filename, done, total, "B")

    def writing(self, num_transitions: int) -> None:
        """Draw the rows written, or read where a dataset is checked."""
        self._draw(self._rows_label, num_transitions, self._num_transitions, " steps")

    def note(self, text: str) -> None:
        """Print one line above the bar."""
        if self._bar is not None:
            self._bar.clear()
        print(text, file=sys.stderr, flush=True)

    def _draw(self, label: str, done: int, total: int | None, unit: str) -> None:
        if not self._shown:
            return
        if self._bar is None or label != self._label:
            from tqdm import tqdm

            self._close()
            self._label = label
            divisor = 1024 if unit == "B" else 1000
            self._bar = tqdm(
                desc=label,
                total=total,
                initial=done,
                unit=unit,
                unit_scale=True,
                unit_divisor=divisor,
                dynamic_ncols=True,
            )
        self._bar.update(done - self._bar.n)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def shown(
    progress: Progress | None, rows_label: str = "steps written"
) -> AbstractContextManager[Progress]:
    """Return the progress of one piece of work, for a ``with`` statement.

    Args:
        progress: who is told; None draws bars if stderr is a terminal, and prints notes there.
        rows_label: what is done with the rows.
    """
    if progress is not None:
        return nullcontext(progress)
    return Bars(shown=sys.stderr.isatty(), rows_label=rows_label)
