"""``rlds ui``: the web page of the local datasets."""

from __future__ import annotations

import typer

import datasets_cli
from datasets_cli.cli.parser.fields import GivenOptions, options_of
from datasets_cli.cli.state import State, state_of
from datasets_cli.core.quantities import counted, human_bytes
from datasets_cli.errors import UsageError


@options_of(pages="export_pages", call="serve_page")
def ui(context: typer.Context, *, pages: GivenOptions, call: GivenOptions) -> None:
    """Browse datasets in a read-only web page.

    Prints a local address that ends with a token; only a browser with the token can read the page.
    Ctrl-C stops the server. --export writes the pages into files that need no server, with the
    first 20 trajectories and 200 frames of each dataset. Requires the extra ui.

    Examples:
        rlds ui
        rlds ui hopper-medium-v2 --port 8000
        rlds ui hopper-medium-v2 Pong/5 --export pages
    """
    state, ids = state_of(context), pages.get("ids", [])
    if "dest" in pages:
        return _export(state, pages, call)
    if len(ids) > 1:
        raise UsageError(
            f"The page opens at one dataset, but {len(ids)} are named: {', '.join(ids)}.",
            argument="ids",
            expected=1,
            found=ids,
        )
    if "trajectories" in pages:
        raise UsageError(
            "--trajectories requires --export; a served page shows all trajectories.",
            argument="trajectories",
        )
    if ids:
        call |= {"id": ids[0]}
    with datasets_cli.serve_page(**call, config=state.config) as page:
        state.emit(page.to_json(), [page.address], [page.address])
        state.note(f"{page.readers} Ctrl-C ends it.")
        page.wait()
    return None


def _export(state: State, pages: GivenOptions, call: GivenOptions) -> None:
    """Write pages as files."""
    if call:
        raise UsageError(
            f"--{min(call)} configures a server, but --export does not start one.",
            argument=min(call),
        )
    options: GivenOptions = {"ids": [], **pages}
    made = datasets_cli.export_pages(**options, config=state.config)
    files = f"{counted(made.num_files, 'file')}, {human_bytes(made.size_bytes)}"
    state.emit(made.to_json(), [f"{made.path / 'index.html'} ({files})"], [f"{made.path}"])
    for note in made.notes:
        state.note(note)
