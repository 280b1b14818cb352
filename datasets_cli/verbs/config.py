"""The settings in the user's config file: told, and changed as text so that comments stay."""

from __future__ import annotations

import math
import os
import re
import tomllib
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from datasets_cli.config import (
    FALSE_WORDS,
    TRUE_WORDS,
    Core,
    RootOptions,
    check_config,
    config_path,
    read_config_file,
    read_user_text,
)
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import takes_fields
from datasets_cli.errors import UsageError, public_text, public_url
from datasets_cli.formats.limits import LIMITS
from datasets_cli.project.file import parse_tables, toml, toml_name
from datasets_cli.sources.new_files import write_text

KEY = {"argument": True, "metavar": "KEY"}
EXAMPLES = "core.root, limits.row_bytes, or mirrors. and the beginning of addresses"


@dataclass(frozen=True)
class Setting(JsonForm):
    """A setting of the config file.

    Args:
        key: its table and its name, such as ``core.root``.
        value: in the file, else by default; addresses are without what may be secret in them.
        origin: ``"file"`` or ``"default"``.
        variable: of the environment that is set and wins over it; empty where none is.
    """

    JSON = "key value origin variable|null"

    key: str
    value: Any
    origin: str
    variable: str = ""


@dataclass(frozen=True)
class SettingsCall(RootOptions):
    """What ``settings`` takes.

    Args:
        key: a setting, such as ``core.root``; all of them by default.
    """

    key: str | None = field(
        default=None, metadata={**KEY, "help": "A setting; all of them by default.", "default": ""}
    )


@dataclass(frozen=True)
class SetCall(RootOptions):
    """What ``change_setting`` takes.

    Args:
        key: a setting, such as ``core.root``, or ``mirrors.http://example.org/``.
        value: as the command line has it: a folder, a number, ``true`` or ``false``, an address.
    """

    key: str = field(metadata=KEY)
    value: str = field(metadata={"argument": True, "metavar": "VALUE"})


@takes_fields(RootOptions)
def settings_path(call: RootOptions) -> Path:
    """Return where the config file is, or would be."""
    call.chosen_config()
    return config_path()


@takes_fields(SettingsCall)
def settings(call: SettingsCall) -> list[Setting]:
    """Return the settings of the config file, each with where its value comes from.

    Raises:
        UsageError: there is no such setting; the message has the nearest ones.
    """
    call.chosen_config()
    text = read_user_text(config_path()) or ""
    file, tables = read_config_file(text), tomllib.loads(text)
    values: dict[str, dict[str, Any]] = {
        "core": vars(file.core),
        "mirrors": {public_url(to): public_url(by) for to, by in file.mirrors.items()},
        "limits": {**{name: each.value for name, each in LIMITS.items()}, **file.limits},
    }
    known = [
        _setting(table, *each, tables) for table, named in values.items() for each in named.items()
    ]
    if call.key is None:
        return [each for each in known if each.key.startswith("core.") or each.origin == "file"]
    table, name = _split(call.key)
    key = f"{table}.{public_url(name) if table == 'mirrors' else name}"
    if asked := [each for each in known if each.key == key]:
        return asked
    raise UsageError(f"{call.key} is not set. See: rlds config get")


def _setting(table: str, name: str, value: Any, tables: dict[str, Any]) -> Setting:
    variable = f"RLDS_{'HOME' if name == 'root' else name.upper()}" if table == "core" else ""
    origin = "file" if table == "mirrors" or name in tables.get(table, {}) else "default"
    return Setting(f"{table}.{name}", value, origin, variable if variable in os.environ else "")


@takes_fields(SetCall)
def change_setting(call: SetCall) -> Setting:
    """Write a setting into the config file, whose comments and other settings stay.

    Raises:
        UsageError: there is no such setting, the message has the nearest ones; or it cannot have
            that value.
    """
    call.chosen_config()
    table, name = _split(call.key)
    value = _typed(table, name, call.value)
    path = config_path().resolve()  # users lay links
    before = read_user_text(path) or ""
    tables = parse_tables(before, path)
    after = _with_value(before, table, name, toml(value))
    expected = {**tables, table: {**tables.get(table, {}), name: value}}
    if _parsed(after) != expected:
        raise UsageError(
            f"{path} has a form that is not changed here. Write there yourself, in [{table}]: "
            f"{toml_name(name)} = {toml(value)}"
        )
    check_config(after)
    # A mirror may have a password, now or later.
    write_text(path, after, private=not path.exists() or public_text(after) != after)
    (changed,) = settings(call.key, config=call.config, root=call.root)
    return changed


def _split(key: str) -> tuple[str, str]:
    """Return the table and the name of a setting that there may be."""
    table, _, name = key.partition(".")
    known = [*(f"core.{each}" for each in vars(Core())), *(f"limits.{each}" for each in LIMITS)]
    if key in known or (table == "mirrors" and name.startswith(("http://", "https://"))):
        return table, name
    near = get_close_matches(key, known, 3) or [each for each in known if key in each][:3]
    hint = f" Did you mean {', '.join(near)}?" if near else f" Expected such as {EXAMPLES}."
    raise UsageError(f"There is no setting {key!r}.{hint} See: rlds config get")


def _typed(table: str, name: str, text: str) -> Any:
    """Return a value as the file has it."""
    if not text.isprintable():
        raise UsageError(f"{table}.{name} is printable text, not {text!r}.")
    kind: Any = int if table == "limits" else type(getattr(Core(), name, ""))
    if kind is bool:
        if (word := text.lower()) not in TRUE_WORDS | FALSE_WORDS:
            raise UsageError(f"{table}.{name} is true or false, not {text!r}.")
        return word in TRUE_WORDS
    if name == "root" and not text.strip():
        raise UsageError("core.root is empty text; expected a folder.")
    if kind is str:
        is_relative = name == "root" and text and not text.startswith("~")
        return str(Path(text).absolute()) if is_relative else text  # to any working directory
    try:
        value = kind(text)
    except ValueError:
        value = math.nan
    least = 1 if kind is int else 0
    if not value >= least:  # NaN is not
        what = "a whole number" if kind is int else "a number"
        raise UsageError(f"{table}.{name} is {what} of {least} or more, not {text!r}.")
    return value


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _with_value(text: str, table: str, name: str, value: str) -> str:
    """Return a text of TOML with a value in place of an older one, or in its table, or at its end.

    What has a form beyond one line a value comes out wrong, which the caller finds.
    """
    lines, new, place = text.splitlines(), f"{toml_name(name)} = {value}", None
    is_head = re.compile(rf"\s*\[\s*{table}\s*\]")
    is_it = re.compile(rf"""\s*["']?{re.escape(name)}["']?\s*=""")
    for number, line in enumerate(lines):
        if line.lstrip().startswith("["):
            if place is not None:
                break
            place = number if is_head.match(line) else None
        elif place is not None and is_it.match(line):
            lines[number] = new + _comment(line)
            return "\n".join([*lines, ""])
    if place is None:
        lines += [*[""][: len(lines)], f"[{table}]"]
        place = len(lines)
    lines.insert(place + 1, new)
    return "\n".join([*lines, ""])


def _comment(line: str) -> str:
    """Return the comment at the end of a line of TOML, which a text in it may look like."""
    starts = [number for number, character in enumerate(line) if character == "#"]
    ends = [number for number in starts if _parsed(line[:number]) is not None]
    return f"  {line[ends[0] :]}" if ends else ""
