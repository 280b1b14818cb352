"""The program: versions, cache root, disk and extras, and the settings of the config file."""

from __future__ import annotations

import os
import platform
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from datasets_cli.config import RootOptions, config_path, read_config_file, read_user_text
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import takes_fields
from datasets_cli.errors import public_url
from datasets_cli.sources.disk import free_bytes
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.version import __version__

DISTRIBUTION = "rlds-cli"
VARIABLES = re.compile(r"RLDS_\w+|HF_TOKEN|XDG_CONFIG_HOME|MINARI_DATASETS_PATH|\w+_(?i:proxy)")
_NEED = re.compile(r"""([\w.-]+)(?:.*extra == ["']([\w-]+))?""")


@dataclass(frozen=True)
class ProgramInfo(JsonForm):
    """The facts to include in a bug report; none of them is secret.

    Args:
        version: the version of rlds.
        python: the version of Python.
        system: operating system, machine and processor cores.
        packages: the versions of required packages; None for a missing one.
        extras: the versions of the packages of each extra, likewise.
        root: the cache root.
        num_datasets: the number of datasets installed there.
        writable: whether this user may write there.
        free_bytes: the free space of its disk.
        offline: whether network connections are disabled.
        mirrors: ``{prefix: replacement}``, without user, password and query.
        config_file: the path of the user's config file, which may not exist.
        variables: the names of the environment variables that are set and change this program,
            without their values, which may be secret.
    """

    version: str
    python: str
    system: str
    packages: Mapping[str, str | None]
    extras: Mapping[str, Mapping[str, str | None]]
    root: Path
    num_datasets: int
    writable: bool
    free_bytes: int
    offline: bool
    mirrors: Mapping[str, str]
    config_file: Path
    variables: tuple[str, ...]


@takes_fields(RootOptions)
def program_info(call: RootOptions) -> ProgramInfo:
    """Return versions, cache root, disk, mirrors and extras, for a bug report."""
    config = call.chosen_config()
    existing = next(each for each in (config.root, *config.root.parents) if each.exists())
    packages: dict[str, str | None] = {}
    extras: dict[str, dict[str, str | None]] = {}
    for name, extra in _needs():
        of = extras.setdefault(extra, {}) if extra else packages
        of[name] = _version(name)
    return ProgramInfo(
        version=__version__,
        python=platform.python_version(),
        system=f"{platform.platform()}, {os.cpu_count()} cores",
        packages=packages,
        extras=extras,
        root=config.root,
        num_datasets=len([*CacheRoot(config.root).installed()]),
        writable=os.access(existing, os.W_OK),
        free_bytes=free_bytes(config.root),
        offline=config.offline,
        mirrors={public_url(prefix): public_url(to) for prefix, to in config.mirrors},
        config_file=config_path(),
        variables=tuple(sorted(name for name in os.environ if VARIABLES.fullmatch(name))),
    )


def _needs() -> Iterator[tuple[str, str]]:
    """Yield the required packages, each with its extra; empty for the core."""
    try:
        needs = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:  # its folder alone is in Python's path
        needs = []
    for need in needs:
        if match := _NEED.match(need):
            yield match[1], match[2] or ""


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


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
