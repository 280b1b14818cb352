"""``rlds cite``."""

from __future__ import annotations

import typer

import datasets_cli
from datasets_cli.cli.parser.arguments import KnownIds
from datasets_cli.cli.state import state_of


def cite(context: typer.Context, ids: KnownIds) -> None:
    """Print BibTeX of datasets and of the papers behind them, each entry once.

    The entry of an installed dataset has its content, which names the values.
    """
    state = state_of(context)
    known = datasets_cli.match_datasets(ids, config=state.config)
    found = [datasets_cli.cite(id, config=state.config) for id in known]
    entries = {key: text for citation in found for key, text in citation.entries.items()}
    text = "\n\n".join(entries.values())
    state.emit([citation.to_json() for citation in found], text.split("\n"), text.split("\n"))
