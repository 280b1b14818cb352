"""What Dask and Ray share: executors of tasks, lost workers, and the check of each worker."""

from __future__ import annotations

import os
import platform
import secrets
import socket
from abc import abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import zstandard

from datasets_cli.errors import RldsError
from datasets_cli.version import __version__

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")

Call = Callable[[bytes, Any], bytes]
"""Calls ``call`` of an actor with a message and a value that was put; may raise LostWorker."""

ACTOR_SECONDS = 120.0
"""How long an actor waits for a free worker: one that starts imports torch first."""
TOKEN = "token"
_MAX_NAMED = 3


class TaskExecutor(Executor):
    """An executor of calls without arguments."""

    @abstractmethod
    def begin(self, task: Callable[[], Result]) -> Future[Result]:
        """Submit a task and return its future."""

    def submit(
        self, fn: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Result]:
        """Submit a function with its arguments and return its future."""
        return self.begin(partial(fn, *args, **kwargs))


class Cluster(TaskExecutor):
    """An executor whose workers are processes of other machines, or of this one."""

    @abstractmethod
    def ask_each(self, function: Callable[[Any], Any], argument: Any) -> dict[str, Any]:
        """Call a function once on each worker; return the results, or exceptions, by worker."""

    @abstractmethod
    def actor(self, kind: type, argument: Any) -> Call:
        """Create an object alone in the process of a worker and return its ``call``."""

    @abstractmethod
    def put(self, value: Any) -> Any:
        """Send a value to the workers once and return the reference that a ``Call`` takes."""


class LostWorker(Exception):
    """The worker of a task ended before the task did; other tasks are not affected."""

    def __init__(self, how: str, num_workers: int = 1) -> None:
        super().__init__(how, num_workers)
        self.how, self.num_workers = how, num_workers


class LostCluster(Exception):
    """The cluster is gone. The message names it and the next step."""


def no_free_worker(engine: str) -> LostCluster:
    """Return the error of a cluster without a free worker for an actor."""
    return LostCluster(
        f"{engine} had no free worker for {ACTOR_SECONDS:.0f} seconds; each process that collects "
        "needs one. Start more workers, or collect in fewer processes."
    )


def pass_on(
    result: Callable[[], Any], translate: Callable[[Exception], Exception], future: Future[Any]
) -> None:
    """Set the result of an engine's own future, or its translated error, on a future of ours."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(result())
    except Exception as error:
        future.set_exception(translate(error))


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


@dataclass(frozen=True, kw_only=True)
class WorkerCheck:
    """The versions and files that a worker must have, so that its bytes equal those of others."""

    folder: Path  # of the run: a worker must read the token in it
    secret: str = field(default_factory=lambda: secrets.token_hex(16))
    versions: Mapping[str, str] = field(default_factory=versions_here)

    def write_token(self) -> None:
        """Write the token; this process passes without a check."""
        (self.folder / TOKEN).write_text(self.secret, encoding="ascii")
        _passed.add(self.secret)

    def differences(self) -> list[str]:
        """Return how this process differs, one text for each difference."""
        here = versions_here()
        problems = [
            f"it has {name} {here[name]}, and {expected} is expected"
            for name, expected in self.versions.items()
            if here[name] != expected
        ]
        try:
            is_shared = (self.folder / TOKEN).read_text(encoding="ascii") == self.secret
        except (OSError, UnicodeDecodeError):
            is_shared = False
        if not is_shared:
            problems.append(
                f"it does not see the folder {self.folder}: it must have the same file system, "
                "under the same path"
            )
        return problems

    def check_here(self) -> None:
        """Check this process, once; raise RldsError if it differs."""
        if self.secret not in _passed:
            if differences := self.differences():
                _refuse({f"{socket.gethostname()}, process {os.getpid()},": differences}, "")
            _passed.add(self.secret)

    def check_each(self, executor: Executor, kept: str) -> None:
        """Check each worker of a cluster; those of other executors check themselves."""
        if isinstance(executor, Cluster):
            answers = executor.ask_each(type(self).differences, self)
            _refuse({worker: answer for worker, answer in answers.items() if answer}, kept)


def _refuse(answers: Mapping[str, Any], kept: str) -> None:
    """Raise the error of the workers that differ, if there are any."""
    if not answers:
        return
    named = [
        f"the worker {worker} cannot take part: "
        + (_failure(answer) if isinstance(answer, Exception) else ", and ".join(answer))
        for worker, answer in answers.items()
    ]
    rest = [f"and {len(named) - _MAX_NAMED} more"] if named[_MAX_NAMED:] else []
    problem = "; ".join([*named[:_MAX_NAMED], *rest])
    raise RldsError(
        f"{problem[0].upper()}{problem[1:]}. Equal bytes need equal versions and files: correct "
        f"them and run the same call again. {kept}".rstrip()
    )


def _failure(error: Exception) -> str:
    is_ours = isinstance(error, ImportError) and (error.name or "").startswith("datasets_cli")
    if is_ours or isinstance(error, AttributeError):  # our functions travel by name
        return f"it has no rlds-cli {__version__} ({error})"
    return f"{type(error).__name__}: {error}"
