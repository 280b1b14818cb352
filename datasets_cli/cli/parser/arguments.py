"""Options that several commands share and their verbs do not have."""

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
        help="Raise a safety limit (the error names it).",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be done, without doing it.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def chosen_workers(options: GivenOptions) -> GivenOptions:
    """Return the options with ``num_workers`` None, which adapts to the work, as the default."""
    count, engine = options.get("num_workers"), options.get("engine", "local")
    if count is not None and engine != "local":
        raise UsageError(
            f"--workers {count} counts processes of this machine, but --engine {engine} uses the "
            "workers of a cluster.",
            argument="num_workers",
            found=count,
            advice="Omit --workers or --engine.",
        )
    return {"num_workers": None, **options}
