"""Where parallel work runs: processes of this machine, a cluster, or the caller's executor."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Literal, get_args

from datasets_cli.core.options import check_numbers
from datasets_cli.errors import UsageError, argument

Engine = Literal["local", "dask", "ray"]
"""What runs tasks: processes of this machine, or the workers of a cluster of Dask or Ray."""

ADDRESS = '"tcp://host:8786"'
PROCESSES = {
    **{"least": 0, "flag": "--workers", "default": ""},
    "help": "Processes; all cores by default, 0 for this process.",
}
"""The option of the command line, whose default is another."""


WORTH_PROCESSES_SECONDS = 10.0
"""Work that is worth starting processes for: they import torch for some seconds."""


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """What does parallel work.

    Args:
        engine: what does the work: processes of this machine, or the workers of a cluster of
            ``"dask"`` or ``"ray"``; these must see the cache root and have the same versions.
        address: of the cluster, such as ``tcp://host:8786``; for Ray None is the one at hand.
        executor: where to work instead; its workers must see the cache root.
    """

    engine: Engine = "local"
    address: str | None = field(default=None, metadata={"metavar": "ADDRESS"})
    executor: Executor | None = None


@dataclass(frozen=True, kw_only=True)
class Workers(EngineOptions):
    """Who does parallel work; nothing is started before ``pool``.

    Args:
        num_workers: processes, this process where 0. Where None it begins in this process, and
            uses all cores where that is worth starting processes for.
    """

    num_workers: int | None = field(default=0, metadata=PROCESSES)

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.executor is not None and not callable(getattr(self.executor, "submit", None)):
            raise UsageError(
                "executor is a concurrent.futures.Executor, such as ProcessPoolExecutor(4), not "
                f"{type(self.executor).__name__}. A cluster is given by engine= and address=."
            )
        if not isinstance(self.address, str | None):
            raise UsageError(
                f"{argument('address')} is {self.address!r}; expected text, such as tcp://host:8786."
            )
        if self.engine not in get_args(Engine):
            raise UsageError(
                f'{argument("engine")} is "local", "dask" or "ray", not {self.engine!r}.'
            )
        if self.engine == "local":
            if self.address is not None:
                clusters = " or ".join(argument("engine", f'"{name}"') for name in ("dask", "ray"))
                raise UsageError(
                    f"{self.address} is the address of a cluster, and the engine is local, the "
                    f"processes of this machine. Add {clusters}, or leave the "
                    "address out."
                )
            return
        if self.executor is not None:
            raise UsageError(f"Give an executor or the engine {self.engine!r}, not both.")
        if self.engine == "dask" and not self.address:
            raise UsageError(
                "The engine dask needs the address of a scheduler, "
                f"{argument('address', ADDRESS)}. For processes of this machine "
                "leave the engine out."
            )
        if not (find_spec("distributed") if self.engine == "dask" else find_spec("ray")):
            raise UsageError(
                f"The engine {self.engine} is not installed. Run: pip install "
                f'"rlds-cli[{self.engine}]"'
            )

    @property
    def end_with_the_call(self) -> bool:
        """Whether no task runs any more when ``pool`` has ended, after an error too."""
        return self.engine == "local" and self.executor is None

    def at_most(self, num_tasks: int) -> Workers:
        """Return workers of whom none has nothing to do: no process starts for a single task."""
        if self.num_workers is None:
            return self if num_tasks > 1 else replace(self, num_workers=0)
        return replace(self, num_workers=min(self.num_workers, num_tasks))

    @property
    def may_be_left_out(self) -> bool:
        """Whether small work is done in the calling process: nobody asked for workers."""
        return self.engine == "local" and self.num_workers is None

    def sharing(self, pool: Executor) -> Workers:
        """Return the same workers for one of several pieces of work, by the pool that all use."""
        count = self.num_workers if self.engine == "local" else 1
        return Workers(num_workers=count, executor=pool)

    @contextmanager
    def pool(self) -> Iterator[Executor]:
        """Give the executor; one that starts here ends here, at once after an error."""
        if self.executor is not None:
            yield self.executor
            return
        # Imported late: to describe workers is on the way to commands that start none.
        if self.engine == "dask":
            from datasets_cli.parallel.dask_cluster import dask_pool

            own = dask_pool(self.address or "")
        elif self.engine == "ray":
            from datasets_cli.parallel.ray_cluster import ray_pool

            own = ray_pool(self.address)
        else:
            from datasets_cli.parallel.tasks import local_pool

            own = local_pool(self.num_workers)
        with own as pool:
            yield pool


IN_THIS_PROCESS = Workers()
