"""Clusters of workers, and the check that a worker writes the same bytes as this process."""

from __future__ import annotations

import os
import platform
import secrets
from abc import abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from socket import gethostname
from typing import Any

import zstandard

from datasets_cli.errors import RldsError
from datasets_cli.parallel.tasks import LostCluster, TaskExecutor
from datasets_cli.version import __version__

Call = Callable[[bytes], bytes]
"""Calls ``call`` of an actor with a message; may raise LostWorker."""

ACTOR_SECONDS = 120.0
"""The time limit for a free worker: one that starts imports torch first."""
TOKEN = "token"


class Cluster(TaskExecutor):
    """An executor whose workers are processes of other machines, or of this one."""

    @abstractmethod
    def actor(self, kind: type, argument: Any) -> Call:
        """Create an object alone in the process of a worker and return its ``call``."""


def no_free_worker(engine: str) -> LostCluster:
    """Return the error of a cluster without a free worker for an actor."""
    return LostCluster(
        f"{engine} had no free worker for {ACTOR_SECONDS:.0f} seconds; each process that collects "
        "needs one. Start more workers, or collect in fewer processes."
    )


def future_of(theirs: Any, translated: Callable[[Exception], Exception]) -> Future[Any]:
    """Return a future that gets the result of an engine's own future, or its translated error."""
    future: Future[Any] = Future()

    def finish(done: Any) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(done.result())
        except Exception as error:
            future.set_exception(translated(error))

    theirs.add_done_callback(finish)
    return future


def versions_here() -> dict[str, str]:
    """Return the versions that decide the bytes of a result, by name."""
    libraries = ("torch", "numpy", "tensordict", "zstandard")
    return {
        "rlds-cli": __version__,
        "Python": ".".join(platform.python_version_tuple()[:2]),
        **{name: version(name) for name in libraries},
        "the zstd library": ".".join(map(str, zstandard.ZSTD_VERSION)),
    }


_passed: set[str] = set()  # the secrets of the checks that this process passed


@dataclass(frozen=True)
class WorkerCheck:
    """The versions and files that a worker must have to write the same bytes."""

    folder: Path  # of the run, with a token
    files: tuple[Path, ...] = ()
    secret: str = field(default_factory=lambda: secrets.token_hex(16))
    versions: Mapping[str, str] = field(default_factory=versions_here)

    def write_token(self) -> None:
        """Write the token; this process passes without a check."""
        (self.folder / TOKEN).write_text(self.secret, encoding="ascii")
        _passed.add(self.secret)

    def differences(self) -> list[str]:
        """Return how this process differs, one text for each difference."""
        here = versions_here()
        differences = [
            f"{name} is {here[name]}, expected {expected}"
            for name, expected in self.versions.items()
            if here[name] != expected
        ]
        try:
            is_shared = (self.folder / TOKEN).read_text(encoding="ascii") == self.secret
        except (OSError, UnicodeDecodeError):
            is_shared = False
        if not is_shared:
            differences.append(f"the folder {self.folder} is not on its file system")
        missing = [f"the file {path} is missing" for path in self.files if not path.is_file()]
        return differences + missing

    def check_here(self) -> None:
        """Check this process, once; raise RldsError if it differs."""
        if self.secret in _passed:
            return
        if differences := self.differences():
            raise RldsError(
                f"The worker {gethostname()}, process {os.getpid()}, cannot write the same bytes "
                f"as the caller: {'; '.join(differences)}.",
                found=differences,
                advice="Install the same versions there, share the files under the same paths, "
                "and run the same call again.",
            )
        _passed.add(self.secret)
