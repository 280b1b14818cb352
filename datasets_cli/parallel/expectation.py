"""What the workers of one piece of work must have in common, so that their bytes agree."""

from __future__ import annotations

import os
import platform
import secrets
import socket
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeVar

import zstandard

from datasets_cli.errors import RldsError
from datasets_cli.parallel.cluster import Cluster
from datasets_cli.parallel.workers import difference, imported_sources
from datasets_cli.version import __version__

TOKEN = "token"
_LIBRARIES = ("torch", "numpy", "tensordict", "zstandard")
_MAX_NAMED = 3

Needs = TypeVar("Needs")

_fit: set[str] = set()  # the secrets of the work that this process may take part in


def versions_here() -> dict[str, str]:
    """Return the versions that decide the bytes of a result, by name."""
    versions = {"rlds-cli": __version__, "Python": ".".join(platform.python_version_tuple()[:2])}
    for name in _LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "none"
    versions["the zstd library"] = ".".join(map(str, zstandard.ZSTD_VERSION))
    return versions


@dataclass(frozen=True)
class Expectation:
    """What a worker must have and see."""

    versions: dict[str, str]
    token: Path
    secret: str
    modules: dict[str, str]

    @classmethod
    def of_this_process(cls, folder: Path, function: bytes) -> Expectation:
        """Return what this process has, and write a token that a worker must see."""
        token, secret = folder / TOKEN, secrets.token_hex(16)
        token.write_text(secret, encoding="ascii")
        return cls(versions_here(), token, secret, imported_sources(function))

    def trust(self) -> None:
        """Let this process take part without a check."""
        _fit.add(self.secret)

    def check(self, differences: Callable[[], list[str]]) -> None:
        """Check, the first time, that this process does not differ."""
        if self.secret not in _fit:
            if problems := differences():
                worker = f"{socket.gethostname()}, process {os.getpid()},"
                raise _unfit_error(_unfit(worker, problems), "")
            self.trust()

    def differences(self) -> list[str]:
        """Return how this process differs, one text for each difference."""
        problems = [
            f"it has {name} {here}, and {expected} is expected"
            for (name, expected), here in zip(
                self.versions.items(), versions_here().values(), strict=True
            )
            if here != expected
        ]
        if not self._sees_token():
            problems.append(
                f"it does not see the folder {self.token.parent}: it must have the same file "
                "system, under the same path"
            )
        if not problems:  # what is imported may need the same versions
            differences = (difference(*module) for module in self.modules.items())
            problems += [text for text in differences if text is not None]
        return problems

    def _sees_token(self) -> bool:
        try:
            return self.token.read_text(encoding="ascii") == self.secret
        except (OSError, UnicodeDecodeError):
            return False


def refuse_unfit(
    executor: Executor, differences: Callable[[Needs], list[str]], needs: Needs, kept: str
) -> None:
    """Refuse a cluster one of whose workers cannot take part; other executors are not asked."""
    if not isinstance(executor, Cluster):
        return
    outcomes = executor.ask_each(differences, needs)
    wrong = {
        worker: [_explained(answer)] if isinstance(answer, Exception) else answer
        for worker, answer in outcomes.items()
        if answer
    }
    if wrong:
        named = [_unfit(worker, answer) for worker, answer in wrong.items()]
        rest = [f"and {len(named) - _MAX_NAMED} more"] if named[_MAX_NAMED:] else []
        raise _unfit_error("; ".join([*named[:_MAX_NAMED], *rest]), kept)


def _unfit(worker: str, differences: list[str]) -> str:
    return f"the worker {worker} cannot take part: {', and '.join(differences)}"


def _unfit_error(problem: str, kept: str) -> RldsError:
    return RldsError(
        f"{problem[0].upper()}{problem[1:]}. Equal bytes need equal versions, code and files: mend "
        f"it and run the same call again. {kept}".rstrip()
    )


def _explained(error: Exception) -> str:
    is_ours = isinstance(error, ImportError) and (error.name or "").startswith("datasets_cli")
    if is_ours or isinstance(error, AttributeError):  # our functions travel by name
        return f"it has no rlds-cli {__version__} ({error})"
    return f"{type(error).__name__}: {error}"
