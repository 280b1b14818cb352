"""The configuration of a run: flag > environment > config file > default."""

from __future__ import annotations

import errno
import math
import os
import stat
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import platformdirs

from datasets_cli.core.checked_json import Check, WrongValue, decode
from datasets_cli.errors import UsageError, argument, by_reader, public_url
from datasets_cli.formats.limits import check_names

__all__ = ["Config", "load_config"]

MAX_TEXT_BYTES = 1 << 20  # of a hand-written file
LOCK_TIMEOUT_SECONDS = 600.0
LOWEST_SPEED = 1000.0
CHECK_ROOT = f"Check {argument('root')} and RLDS_HOME."
SPEED_OPTION = by_reader("--lowest-speed", "lowest_speed")
SPEED = f"bytes a second, 0 or more (0 takes any speed). Check {SPEED_OPTION},"
TIMEOUT = "seconds, 0 or more (inf waits forever). Check"
TRUE_WORDS = frozenset({"1", "true", "yes", "on"})
FALSE_WORDS = frozenset({"", "0", "false", "no", "off"})
LimitNumber = Annotated[int, Check("a whole number of 1 or more", lambda number: number >= 1)]

Root = str | os.PathLike[str] | None
"""The cache root; None for ``RLDS_HOME``, the config file or the default."""


@dataclass(frozen=True)
class Core:
    """The table ``[core]`` of the user's file."""

    CLOSED = True

    root: str = ""
    offline: bool = False
    allow_http: bool = False
    lowest_speed: float = LOWEST_SPEED
    lock_timeout: float = LOCK_TIMEOUT_SECONDS


@dataclass(frozen=True)
class ConfigFile:
    """The user's ``config.toml``."""

    CLOSED = True

    core: Core = field(default_factory=Core)
    mirrors: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, LimitNumber] = field(default_factory=dict)


@dataclass(frozen=True)
class Config:
    """The cache root, and the rules for the network, locks and limits.

    Args:
        root: the cache root, with the folders of datasets, downloads and locks.
        offline: whether connections are forbidden.
        mirrors: ``(prefix, replacement)`` pairs; a URL that begins with the prefix is tried with
            the replacement first.
        allow_http: whether a redirect may lead from https to http.
        lowest_speed: bytes a second below which a server counts as failed; 0 for any speed.
        lock_timeout: seconds to wait for another process that works on the same dataset.
        limits: ``(name, value)`` pairs that replace limits of ``formats.limits``.
    """

    root: Path
    offline: bool = False
    mirrors: tuple[tuple[str, str], ...] = ()
    allow_http: bool = False
    lowest_speed: float = LOWEST_SPEED
    lock_timeout: float = LOCK_TIMEOUT_SECONDS
    limits: tuple[tuple[str, int], ...] = ()

    def with_limits(self, texts: Iterable[str]) -> Config:
        """Return this configuration with further limits.

        Args:
            texts: limits as ``NAME=NUMBER``.

        Raises:
            UsageError: a text has another form, or names an unknown limit.
        """
        pairs = []
        for text in texts:
            name, _, number = text.partition("=")
            if not (name and number.isdecimal() and 0 < len(number) < 20 and int(number)):
                limit = by_reader("--limit ", "")
                raise UsageError(
                    f"{limit}{text} is not NAME=NUMBER.",
                    argument="limits",
                    expected="NAME=NUMBER",
                    found=text,
                    advice=f"Example: {limit}row_bytes=1000000000",
                )
            pairs.append((name, int(number)))
        check_names(name for name, _ in pairs)
        return replace(self, limits=(*self.limits, *pairs))


def config_folder() -> Path:
    """Return the folder of the user's ``config.toml`` and ``recipes/``."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "rlds"


def load_config(
    *,
    root: Root = None,
    offline: bool | None = None,
    mirrors: Iterable[str] = (),
    allow_http: bool | None = None,
    lowest_speed: float | str | None = None,
    environ: Mapping[str, str] | None = None,
    file: ConfigFile | None = None,
) -> Config:
    """Return the configuration from flags, the environment and the config file.

    Args:
        root: the ``--root`` flag, else ``RLDS_HOME``, else ``[core] root``, else the user's cache.
        offline: the ``--offline`` flag, else ``RLDS_OFFLINE``, else ``[core] offline``.
        mirrors: ``PREFIX=REPLACEMENT`` texts from ``--mirror``, followed by ``RLDS_MIRRORS`` (comma
            separated) and the table ``[mirrors]``.
        allow_http: the ``--allow-http`` flag, else ``RLDS_ALLOW_HTTP``, else ``[core] allow_http``.
        lowest_speed: the ``--lowest-speed`` flag in bytes a second, else ``RLDS_LOWEST_SPEED``,
            else ``[core] lowest_speed``.
        environ: the environment variables; by default ``os.environ``.
        file: the parsed config file; read from disk by default.

    Raises:
        UsageError: a mirror has no ``=``, an environment variable or an entry of the config file is
            invalid, the root cannot be a folder, or the config file is not TOML.
    """
    env = os.environ if environ is None else environ
    _check_recipe_folders(env.get("RLDS_RECIPES", ""))
    if root is not None and not os.fspath(root):
        raise UsageError(
            "The cache root is empty text.",
            argument="root",
            expected="a folder",
            found="",
            advice=f"Pass a folder as {argument('root')}, or leave it out.",
        )
    if file is None:
        file = read_config_file(read_user_text(config_path()) or "")
    chosen_root = root or env.get("RLDS_HOME") or file.core.root
    texts = [*mirrors, *filter(str.strip, env.get("RLDS_MIRRORS", "").split(","))]
    texts += [f"{prefix}={to}" for prefix, to in file.mirrors.items()]
    pairs = tuple(map(_split_mirror, texts))
    folder = Path(str(chosen_root or platformdirs.user_cache_path("rlds"))).expanduser().absolute()
    _check_root(folder)
    if lowest_speed is None:
        lowest_speed = env.get("RLDS_LOWEST_SPEED", file.core.lowest_speed)
    timeout = env.get("RLDS_LOCK_TIMEOUT", file.core.lock_timeout)
    return Config(
        root=folder,
        offline=_switch("offline", offline, env, file.core.offline),
        mirrors=pairs,
        allow_http=_switch("allow_http", allow_http, env, file.core.allow_http),
        lowest_speed=_amount("lowest_speed", lowest_speed, sys.float_info.max, SPEED),
        lock_timeout=_amount("lock_timeout", timeout, math.inf, TIMEOUT),
        limits=tuple(file.limits.items()),
    )


@dataclass(frozen=True, kw_only=True)
class RootOptions:
    """The cache root of a verb, or its configuration.

    Args:
        root: the cache root.
        config: root, mirrors and offline mode; replaces ``root``.
    """

    root: Root = field(default=None, metadata={"typed": None})
    config: Config | None = None

    def chosen_config(self) -> Config:
        """Return the configuration from ``root`` or ``config``."""
        return choose_config(self.root, self.config)


def choose_config(root: Root, config: Config | None) -> Config:
    """Return the configuration from the arguments ``root`` and ``config`` of a function."""
    if config is None:
        return load_config(root=root)
    if root is not None:
        raise UsageError(
            f"root={os.fspath(root)!r} and config= cannot be combined: the Config already has the "
            f"root {config.root}.",
            argument="root",
            found=os.fspath(root),
            advice="Pass only one of them.",
        )
    return config


def config_path() -> Path:
    """Return the path of the user's config file, which need not exist."""
    return config_folder() / "config.toml"


def read_config_file(text: str) -> ConfigFile:
    """Parse the text of the user's config file."""
    try:
        return decode(ConfigFile, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(
            f"{config_path()} is not valid TOML ({error}).",
            path=config_path(),
            advice="Correct it or move it away.",
        ) from error
    except WrongValue as error:
        raise UsageError(
            f"{config_path()} has a wrong entry: {error}.",
            path=config_path(),
            **error.details,
            advice="Correct it.",
        ) from error


def read_user_text(path: Path) -> str | None:
    """Return the text of a user's file, or None if it does not exist."""
    # Links are followed. Opening a pipe would block, and reading a device may never end.
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError("it is not a regular file")
        with path.open("rb") as file:
            data = file.read(MAX_TEXT_BYTES + 1)
        if len(data) > MAX_TEXT_BYTES:
            raise ValueError(f"it has more than {MAX_TEXT_BYTES:,} bytes")
        return data.decode()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path} cannot be read: {error}.",
            path=path,
            expected=f"a UTF-8 text of at most {MAX_TEXT_BYTES:,} bytes",
            advice="Correct it or move it away.",
        ) from error


def _check_root(folder: Path) -> None:
    """Reject a root that is a file or below a file, or whose name is too long."""
    existing = folder
    try:
        folder.lstat()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise UsageError(
                f"The cache root {folder} is too long: a file system accepts up to 255 bytes for "
                "each part of a path.",
                argument="root",
                path=folder,
                advice=CHECK_ROOT,
            ) from error
        # lexists: a link that leads nowhere cannot become a folder either.
        existing = next(each for each in folder.parents if os.path.lexists(each))
    if existing.is_dir():
        return
    if existing.is_symlink() and not existing.exists():
        raise UsageError(
            f"The cache root {folder} cannot be used: {existing} is a symbolic link to "
            f"{existing.readlink()}, which does not exist. Is its disk mounted?",
            argument="root",
            path=existing,
            advice=CHECK_ROOT,
        )
    raise UsageError(
        f"The cache root {folder} cannot be used: {existing} is not a folder.",
        argument="root",
        path=existing,
        advice=CHECK_ROOT,
    )


def _check_recipe_folders(text: str) -> None:
    """Reject a missing folder of recipes; its families would be missing without a message."""
    for folder in filter(None, text.split(os.pathsep)):
        if not Path(folder).is_dir():
            raise UsageError(
                f"RLDS_RECIPES names {folder}, which is not a folder.",
                argument="RLDS_RECIPES",
                path=folder,
                expected="folders of recipes",
                advice=f"Separate the folders of recipes by {os.pathsep!r}.",
            )


def _switch(name: str, flag: bool | None, env: Mapping[str, str], default: bool) -> bool:
    """Return a switch from its flag, else the environment, else the config file."""
    variable = f"RLDS_{name.upper()}"
    if flag is not None or variable not in env:
        return default if flag is None else flag
    word = env[variable].strip().lower()
    if word not in TRUE_WORDS | FALSE_WORDS:
        raise UsageError(
            f"{variable}={env[variable]} is not a switch. Expected 1, true, yes or on; or 0, "
            "false, no or off.",
            argument=name,
            expected="1, true, yes, on, 0, false, no or off",
            found=env[variable],
        )
    return word in TRUE_WORDS


def _split_mirror(text: str) -> tuple[str, str]:
    prefix, equals, replacement = text.strip().partition("=")
    if not (equals and prefix.startswith("http") and replacement.startswith("http")):
        raise UsageError(
            f"The mirror {public_url(prefix)}{equals}{public_url(replacement)} is not "
            "PREFIX=REPLACEMENT, both http or https URLs.",
            argument="mirrors",
            expected="PREFIX=REPLACEMENT",
            advice="Example: http://rail.eecs.berkeley.edu/=https://mirror.example.org/",
        )
    if len(text.split()) > 1:
        raise UsageError(
            f"The mirror of {public_url(prefix)} is a URL with a space. Expected %20.",
            argument="mirrors",
            expected="%20",
        )
    return prefix, replacement


def _amount(name: str, value: object, most: float, expected: str) -> float:
    """Parse a number of 0 or more from a flag, the environment or the config file."""
    try:
        amount = float(str(value))
    except ValueError:
        amount = math.nan
    if not 0 <= amount <= most:  # NaN is not
        raise UsageError(
            f"The {name.replace('_', ' ')} {value!r} is not a number of {expected} "
            f"RLDS_{name.upper()} and {name} in the config file.",
            argument=name,
            expected="a number of 0 or more",
            found=value,
        )
    return amount
