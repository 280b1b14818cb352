"""``rlds ui``: the page of the datasets of this disk."""

from __future__ import annotations

import typer

import datasets_cli
from datasets_cli.cli.parser.fields import GivenOptions, options_of
from datasets_cli.cli.state import State, state_of
from datasets_cli.core.quantities import counted, human_bytes
from datasets_cli.errors import UsageError
from datasets_cli.ui.export import ExportPagesCall
from datasets_cli.ui.server import PageCall


@options_of(pages=ExportPagesCall, call=PageCall)
def ui(context: typer.Context, *, pages: GivenOptions, call: GivenOptions) -> None:
    """Browse datasets in a read-only web page.

    Prints a local address that ends with a token; only who has the token can read. Ctrl-C stops the
    server. --export writes the pages into files that need no server, with the first 20 trajectories
    and 200 frames of each dataset. Needs pip install 'rlds-cli[ui]'.

    Examples:
        rlds ui
        rlds ui hopper-medium-v2 --port 8000
        rlds ui hopper-medium-v2 Pong/5 --export pages
    """
    state, ids = state_of(context), pages.get("ids", [])
    if "dest" in pages:
        return _export(state, pages, call)
    if len(ids) > 1:
        raise UsageError(f"The page begins with one dataset, not with {', '.join(ids)}.")
    if "trajectories" in pages:
        raise UsageError("--trajectories is of --export: a page that is served has all of them.")
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
        raise UsageError(f"--{min(call)} is of a page that is served; --export serves none.")
    given: GivenOptions = {"ids": [], **pages}
    made = datasets_cli.export_pages(**given, config=state.config)
    files = f"{counted(made.num_files, 'file')}, {human_bytes(made.size_bytes)}"
    state.emit(made.to_json(), [f"{made.path / 'index.html'} ({files})"], [f"{made.path}"])
    for note in made.notes:
        state.note(note)
