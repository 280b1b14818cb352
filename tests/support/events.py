"""A progress that keeps all events."""

from __future__ import annotations

from datasets_cli.core.progress import File, Note, Rows


class Events:
    def __init__(self) -> None:
        self.all: list[File | Rows | Note] = []

    def __call__(self, event: File | Rows | Note) -> None:
        self.all.append(event)

    @property
    def notes(self) -> list[str]:
        return [event.text for event in self.all if isinstance(event, Note)]

    @property
    def bytes(self) -> list[int | None]:
        return [event.done for event in self.all if isinstance(event, File)]

    @property
    def rows(self) -> list[int]:
        return [event.done for event in self.all if isinstance(event, Rows)]
