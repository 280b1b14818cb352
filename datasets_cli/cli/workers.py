"""Who works, as the command line takes it: ``--workers``, ``--engine`` and ``--address``."""

from __future__ import annotations

from datasets_cli.cli.parser.fields import Given
from datasets_cli.errors import UsageError


def chosen_workers(given: Given) -> Given:
    """Return the arguments of a verb: where nobody says how many, the work decides."""
    count, engine = given.get("num_workers"), given.get("engine", "local")
    if count is not None and engine != "local":
        raise UsageError(
            f"--workers {count} is of processes of this machine, and a cluster of {engine} has the "
            "workers that it has. Leave out --workers or --engine."
        )
    return {"num_workers": None, **given}
