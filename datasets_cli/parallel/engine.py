"""Parallel backends: local processes, a cluster, or the caller's executor."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Literal, get_args

from datasets_cli.core.options import check_choice, check_numbers
from datasets_cli.errors import UsageError, argument, install_extra, not_both, wrong_value

Engine = Literal["local", "dask", "ray"]
"""Local processes, or the workers of a Dask or Ray cluster."""

EXAMPLE = '"tcp://host:8786"'
PROCESSES = {
    **{"least": 0, "flag": "--workers", "default": "all cores"},
    "help": "Number of worker processes; 0 works in this process.",
}
"""The metadata of the command line's option, which has another default than Python."""

WORTH_PROCESSES_SECONDS = 10.0
"""The least work that is worth starting processes, which take seconds to import torch."""


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """The parallel backend.

    Args:
        engine: run in ``"local"`` processes or on a ``"dask"`` or ``"ray"`` cluster; its workers
            must see the cache root and have the same versions.
        address: address of the cluster, such as ``tcp://host:8786``; by default, for Ray, the one
            of RAY_ADDRESS or of this machine.
        executor: an executor to use instead; its workers must see the cache root.
    """

    engine: Engine = field(
        default="local", metadata={"help": "Run in local processes or on a Dask or Ray cluster."}
    )
    address: str | None = field(
        default=None,
        metadata={"metavar": "ADDRESS", "help": "Address of the cluster, e.g. tcp://host:8786."},
    )
    executor: Executor | None = None


@dataclass(frozen=True, kw_only=True)
class Workers(EngineOptions):
    """The parallel backend and its size. Workers start on the first call to ``pool``.

    Args:
        num_workers: number of processes; 0 works in this process. None starts in this process and
            uses all cores once the work is worth starting processes for.
    """

    num_workers: int | None = field(default=0, metadata=PROCESSES)

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.executor is not None and not callable(getattr(self.executor, "submit", None)):
            raise wrong_value(
                "executor",
                "a concurrent.futures.Executor, such as ProcessPoolExecutor(4)",
                type(self.executor),
                "For a cluster, pass engine= and address=.",
            )
        if not isinstance(self.address, str | None):
            raise wrong_value("address", "text, such as tcp://host:8786", self.address)
        check_choice("engine", self.engine, get_args(Engine))
        if self.engine != "local":
            self._check_cluster()
        elif self.address is not None:
            clusters = " or ".join(argument("engine", f'"{name}"') for name in ("dask", "ray"))
            raise UsageError(
                f"{argument('address')} {self.address} is the address of a cluster, and the "
                "engine is local.",
                argument="address",
                found=self.address,
                advice=f"Add {clusters}, or leave the address out.",
            )

    def _check_cluster(self) -> None:
        if self.executor is not None:
            raise not_both("executor", "engine")
        if self.engine == "dask" and not self.address:
            raise UsageError(
                "The engine dask needs the address of a scheduler, "
                f"{argument('address', EXAMPLE)}.",
                argument="address",
                advice="Leave the engine out for processes of this machine.",
            )
        if not find_spec("distributed" if self.engine == "dask" else "ray"):
            raise UsageError(
                f"The engine {self.engine} is not installed.",
                argument="engine",
                found=self.engine,
                advice=install_extra(self.engine),
            )

    @property
    def ends_tasks(self) -> bool:
        """Whether all tasks have ended when ``pool`` ends, also after an error."""
        return self.engine == "local" and self.executor is None

    def at_most(self, num_tasks: int) -> Workers:
        """Return workers for a number of tasks: at most as many processes as tasks."""
        if self.num_workers is None:
            return self if num_tasks > 1 else replace(self, num_workers=0)
        return replace(self, num_workers=min(self.num_workers, num_tasks))

    @property
    def is_optional(self) -> bool:
        """Whether small work runs in this process: no number of workers was asked for."""
        return self.engine == "local" and self.num_workers is None

    def with_pool(self, pool: Executor) -> Workers:
        """Return the workers of one of several jobs that share a pool."""
        count = self.num_workers if self.engine == "local" else 1
        return Workers(num_workers=count, executor=pool)

    @contextmanager
    def pool(self) -> Iterator[Executor]:
        """Yield the executor. One that this call starts ends here, at once after an error."""
        if self.executor is not None:
            yield self.executor
            return
        # Imported late: commands that only show these options start no workers.
        if self.engine == "dask":
            from datasets_cli.parallel.dask_cluster import dask_pool

            own = dask_pool(self.address or "")
        elif self.engine == "ray":
            from datasets_cli.parallel.ray_cluster import ray_pool

            own = ray_pool(self.address)
        else:
            from datasets_cli.parallel.local import local_pool

            own = local_pool(self.num_workers)
        with own as pool:
            yield pool


IN_THIS_PROCESS = Workers()
