"""``rlds cite``."""

from __future__ import annotations

import typer

import datasets_cli
from datasets_cli.catalogue.selection import KnownIds
from datasets_cli.cli.parser.fields import Given, options_of
from datasets_cli.cli.state import state_of


@options_of(call=KnownIds)
def cite(context: typer.Context, *, call: Given) -> None:
    """Print BibTeX of datasets and of the papers behind them, each entry once.

    The entry of an installed dataset has its content, which names the values.
    """
    state = state_of(context)
    ids = datasets_cli.match_datasets(**call, config=state.config)
    citations = [datasets_cli.cite(id, config=state.config) for id in ids]
    entries = {key: text for citation in citations for key, text in citation.entries.items()}
    text = "\n\n".join(entries.values())
    state.emit([citation.to_json() for citation in citations], text.split("\n"), text.split("\n"))
