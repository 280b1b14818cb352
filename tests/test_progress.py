"""Progress of a user's own, with today's names and with those of 0.1."""

from __future__ import annotations

from typing import Any

import pytest

from datasets_cli.config import Config
from datasets_cli.install.change_layout import change_layout
from datasets_cli.progress import Silent, reporting_to


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


class New(Silent):
    def __init__(self) -> None:
        self.rows: list[int] = []

    def writing(self, num_transitions: int) -> None:
        self.rows.append(num_transitions)


def test_an_old_progress_works_and_is_told_the_new_name() -> None:
    old = Old()
    with pytest.warns(DeprecationWarning, match="Old.converting is called writing now"):
        progress = reporting_to(old)  # type: ignore[arg-type]
    progress.fetching("file", 1, 2)
    progress.writing(5)
    progress.note("text")
    assert old.told == [("file", 1, 2), 5, "text"]


def test_rows_written_are_told(door: str, config: Config) -> None:
    new = New()
    change_layout(door, "compact", config, new)
    assert new.rows and new.rows == sorted(new.rows) and new.rows[-1] == 1495
