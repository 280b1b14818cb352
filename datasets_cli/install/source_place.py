"""The place that ``--source`` names: a folder, or a URL that files are below."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from datasets_cli.errors import SourceError, UsageError, argument, public_url

if TYPE_CHECKING:
    from datasets_cli.sources.http import Http


@dataclass(frozen=True)
class Folder:
    """A folder of this machine, or a dataset's one file; nothing here opens a connection."""

    path: Path
    id: str

    def __str__(self) -> str:
        return argument("source", str(self.path))

    def names(self) -> list[str]:
        """Return the names of the files in the folder; what is in folders below it is left out."""
        return sorted(path.name for path in self.path.glob("*") if path.is_file())

    def has(self, filename: str) -> bool:
        """Return whether a file of that name is there."""
        return self._at(filename).is_file()

    def file(self, filename: str) -> Path:
        """Return where a file is."""
        if not self.has(filename):
            raise UsageError(
                f"{self.id} needs the file {filename}, which is not in {self}. Give the folder "
                "that holds the publisher's files under their own names."
            )
        return self._at(filename)

    def json(self, filename: str) -> Any:
        """Return the JSON document in a file."""
        try:
            return json.loads(self.file(filename).read_bytes())
        except (ValueError, RecursionError) as error:
            if isinstance(error, UsageError):
                raise
            raise SourceError(
                f"{self.id}: {filename} is not JSON ({error}). Check {self}."
            ) from error

    def url(self, filename: str) -> str:
        """Return where a file is."""
        return str(self._at(filename))

    def _at(self, filename: str) -> Path:
        """Return the path of a file; where the place is a file, that has whatever name."""
        return self.path if self.path.is_file() else self.path / filename


@dataclass(frozen=True)
class Address:
    """A URL that files are below."""

    base: str
    http: Http

    def __str__(self) -> str:
        return argument("source", public_url(self.base))

    def names(self) -> None:
        """Return None: what is below a URL cannot be listed."""

    def has(self, filename: str) -> bool:
        """Return whether a file of that name is there."""
        return self.http.has(self.url(filename))

    def json(self, filename: str) -> Any:
        """Return the JSON document in a file."""
        return self.http.json(self.url(filename))

    def url(self, filename: str) -> str:
        """Return where a file is."""
        folder, question_mark, query = self.base.partition("?")
        return f"{folder.rstrip('/')}/{quote(filename)}{question_mark}{query}"
