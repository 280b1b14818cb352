"""A progress that keeps what people are told."""

from __future__ import annotations

from datasets_cli.core.progress import Silent


class Told(Silent):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)
