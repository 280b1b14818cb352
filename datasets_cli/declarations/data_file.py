"""The declarations of ``rlds.toml``."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from datasets_cli.declarations.declaration import Declaration, declaration_of
from datasets_cli.errors import UsageError
from datasets_cli.preparation.step_file import DATA as TABLE
from datasets_cli.preparation.step_file import FILENAME


class DataFile:
    """The declarations of an experiment, in the file that also has its steps."""

    def __init__(self, path: str | os.PathLike[str] = FILENAME) -> None:
        found = Path(path).absolute()
        self.path = found / FILENAME if found.is_dir() else found
        self.folder = self.path.parent
        self.declarations = {name: self._read(name, table) for name, table in self._tables()}
        for name in self.declarations:
            self._refuse_circle((name,))

    def get(self, name: str) -> Declaration:
        """Return a declaration."""
        if name not in self.declarations:
            known = ", ".join(self.declarations) or "none"
            raise UsageError(f"{self.path} has no [{TABLE}.{name}]. It has: {known}.")
        return self.declarations[name]

    def _tables(self) -> list[tuple[str, Any]]:
        try:
            tables = tomllib.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"{self.path} cannot be read ({error}). Data are declared there, such as "
                f'[{TABLE}.train] with dataset = "d4rl/hopper-medium-v2".'
            ) from error
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise UsageError(f"{self.path} is not valid TOML ({error}). Correct it.") from error
        found = tables.get(TABLE, {})
        if not isinstance(found, dict):
            raise UsageError(f"{self.path} has a {TABLE} that is no table; write [{TABLE}.NAME].")
        return [*found.items()]

    def _read(self, name: str, table: Any) -> Declaration:
        try:
            if not isinstance(table, dict):
                raise UsageError(f"it is {table!r}; expected a table")
            return declaration_of(name, table)
        except UsageError as error:
            why = str(error).rstrip(".")
            raise UsageError(f"[{TABLE}.{name}] of {self.path}: {why}.") from error

    def _refuse_circle(self, way: tuple[str, ...]) -> None:
        for member in self.declarations[way[-1]].members:
            if member in way:
                raise UsageError(
                    f"[{TABLE}.{member}] of {self.path} is a member of itself: "
                    f"{' -> '.join((*way, member))}."
                )
            if member in self.declarations:
                self._refuse_circle((*way, member))
