"""The options that say who works: ``--workers``, ``--engine`` and ``--address``."""

from __future__ import annotations

from datasets_cli.errors import UsageError
from datasets_cli.parallel.engine import Engine, Workers


def workers_of(number: int | None, engine: Engine | None, address: str | None) -> Workers:
    """Return who works.

    Args:
        number: of ``--workers``; None where it was not given.
        engine: of ``--engine``.
        address: of ``--address``.

    Raises:
        UsageError: they exclude one another, or something is missing.
    """
    if number is not None and engine in ("dask", "ray"):
        raise UsageError(
            f"--workers {number} is of processes of this machine, and a cluster of {engine} has "
            "the workers that it has. Leave out --workers or --engine."
        )
    return Workers(number, None, engine or "local", address)
