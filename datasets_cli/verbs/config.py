"""``rlds config``: the path of the config file, and its settings."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets_cli.config import RootOptions, config_path, read_config_file, read_user_text
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import takes_fields
from datasets_cli.errors import public_url


@dataclass(frozen=True)
class Setting(JsonForm):
    """A setting of the config file.

    Args:
        key: its table and its name, such as ``core.root``.
        value: the value in the file, or the default; URLs are stripped of secrets.
        origin: ``"file"`` or ``"default"``.
        variable: the environment variable that overrides it, or empty.
    """

    JSON = "key value origin variable|null"

    key: str
    value: Any
    origin: str
    variable: str = ""


@dataclass(frozen=True)
class Settings(JsonForm):
    """The user's config file.

    Args:
        path: the path of the file, which may not exist.
        settings: all settings of ``[core]``, and all further settings in the file.
    """

    path: Path
    settings: tuple[Setting, ...]


@takes_fields(RootOptions)
def settings(call: RootOptions) -> Settings:
    """Return the path of the config file, and its settings with their origins.

    Raises:
        UsageError: the file cannot be read, or is not a config file.
    """
    call.chosen_config()
    text = read_user_text(config_path()) or ""
    file, tables = read_config_file(text), tomllib.loads(text)
    values: dict[str, dict[str, Any]] = {
        "core": vars(file.core),
        "mirrors": {public_url(to): public_url(by) for to, by in file.mirrors.items()},
        "limits": dict(file.limits),
    }
    found = (
        _setting(table, *each, tables) for table, named in values.items() for each in named.items()
    )
    return Settings(config_path(), tuple(found))


def _setting(table: str, name: str, value: Any, tables: dict[str, Any]) -> Setting:
    variable = f"RLDS_{'HOME' if name == 'root' else name.upper()}" if table == "core" else ""
    origin = "file" if table == "mirrors" or name in tables.get(table, {}) else "default"
    return Setting(f"{table}.{name}", value, origin, variable if variable in os.environ else "")
