"""Arguments and options that several commands take."""

from __future__ import annotations

from typing import Annotated

import typer

from datasets_cli.cli.parser.completion import installed_ids, known_ids, layouts
from datasets_cli.cli.parser.fields import Given
from datasets_cli.errors import UsageError

KnownId = Annotated[str, typer.Argument(metavar="ID", help="A dataset.", autocompletion=known_ids)]
KnownIds = Annotated[
    list[str],
    typer.Argument(metavar="ID", help="Ids or globs ('d4rl/hopper-*').", autocompletion=known_ids),
]
InstalledId = Annotated[
    str, typer.Argument(metavar="ID", help="An installed dataset.", autocompletion=installed_ids)
]
InstalledIds = Annotated[
    list[str], typer.Argument(metavar="ID", help="Ids or globs.", autocompletion=installed_ids)
]
AnyInstalledIds = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ID", help="Ids or globs; all by default.", autocompletion=installed_ids
    ),
]
Layout = Annotated[
    str | None,
    typer.Option(
        metavar="ted|compact", help="How rows are stored on disk.", autocompletion=layouts
    ),
]
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


def chosen_workers(given: Given) -> Given:
    """Return the arguments of a verb: where nobody says how many, the work decides."""
    count, engine = given.get("num_workers"), given.get("engine", "local")
    if count is not None and engine != "local":
        raise UsageError(
            f"--workers {count} is of processes of this machine, and a cluster of {engine} has the "
            "workers that it has. Leave out --workers or --engine."
        )
    return {"num_workers": None, **given}
