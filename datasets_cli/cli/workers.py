"""The options that say who works: ``--workers``, ``--engine`` and ``--address``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from datasets_cli.errors import UsageError

Engine = Literal["local", "dask", "ray"]


@dataclass(frozen=True)
class Workers:
    """Who works, as the verbs take it.

    Args:
        num_workers: processes of this machine; None where it was not said.
        engine: that runs the work.
        address: of a cluster.

    Raises:
        UsageError: a number of processes for a cluster.
    """

    num_workers: int | None
    engine: Engine
    address: str | None

    def __post_init__(self) -> None:
        if self.num_workers is not None and self.engine != "local":
            raise UsageError(
                f"--workers {self.num_workers} is of processes of this machine, and a cluster of "
                f"{self.engine} has the workers that it has. Leave out --workers or --engine."
            )
