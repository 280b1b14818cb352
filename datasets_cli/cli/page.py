"""``rlds ui``: the page of the datasets of this disk."""

from __future__ import annotations

import typer

import datasets_cli
from datasets_cli.cli.parser.fields import GivenOptions, options_of
from datasets_cli.cli.state import state_of
from datasets_cli.page.server import PageCall


@options_of(call=PageCall)
def ui(context: typer.Context, *, call: GivenOptions) -> None:
    """Show datasets in a browser: a page that only reads, at an address of this machine.

    It prints the address, which ends with a token: only who has it can read. Ctrl-C ends it. Needs
    pip install 'rlds-cli[ui]'.
    """
    state = state_of(context)
    with datasets_cli.serve_page(**call, config=state.config) as page:
        state.emit(page.to_json(), [page.address], [page.address])
        state.note(f"{page.readers} Ctrl-C ends it.")
        page.wait()
