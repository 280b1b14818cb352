"""Options of several commands that their verbs do not have, and what is said of them."""

from __future__ import annotations

from typing import Annotated

import typer

from datasets_cli.cli.parser.fields import GivenOptions
from datasets_cli.errors import UsageError

Limits = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="NAME=NUMBER",
        help="Read a file beyond a limit, which its error message names.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def chosen_workers(given: GivenOptions) -> GivenOptions:
    """Return the arguments of a verb: where nobody says how many, the work decides."""
    count, engine = given.get("num_workers"), given.get("engine", "local")
    if count is not None and engine != "local":
        raise UsageError(
            f"--workers {count} is of processes of this machine, and a cluster of {engine} has the "
            "workers that it has. Leave out --workers or --engine."
        )
    return {"num_workers": None, **given}
