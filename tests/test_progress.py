"""Progress of a user's own, with today's names and with those of 0.1."""

from __future__ import annotations

from typing import Any

import pytest

from datasets_cli.config import Config
from datasets_cli.installed.change_layout import change_layout
from datasets_cli.progress import Progress, Silent, reporting_to


class Old:
    """As it was written for 0.1."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def fetching(self, filename: str, done: int, total: int | None) -> None:
        self.told.append((filename, done, total))

    def converting(self, num_transitions: int) -> None:
        self.told.append(num_transitions)

    def note(self, text: str) -> None:
        self.told.append(text)


class OldDerived(Old, Progress):
    """As ``Old``, and derives from the protocol, which has a ``writing`` today."""


class OldSilent(Old, Silent):
    """As ``Old``, and derives from the one that ignores everything."""


class New(Silent):
    def __init__(self) -> None:
        self.rows: list[int] = []

    def writing(self, num_transitions: int) -> None:
        self.rows.append(num_transitions)


@pytest.mark.parametrize("kind", [Old, OldDerived, OldSilent])
def test_an_old_progress_works_and_is_told_the_new_name(kind: type[Old]) -> None:
    old = kind()
    with pytest.warns(DeprecationWarning, match=f"{kind.__name__}.converting is called writing"):
        progress = reporting_to(old)  # type: ignore[arg-type]
    progress.fetching("file", 1, 2)
    progress.writing(5)
    progress.note("text")
    assert old.told == [("file", 1, 2), 5, "text"]


def test_a_progress_that_has_both_names_is_told_by_the_new_one() -> None:
    class Both(New):
        def converting(self, num_transitions: int) -> None:
            raise AssertionError("the old name")

    both = Both()
    assert reporting_to(both) is both


def test_rows_written_are_told(door: str, config: Config) -> None:
    new = New()
    change_layout(door, "compact", config, new)
    assert new.rows and new.rows == sorted(new.rows) and new.rows[-1] == 1495
