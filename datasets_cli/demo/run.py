"""The demo: the tour in a temporary folder, or under the user's cache root on request."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from datasets_cli.config import Config
from datasets_cli.demo.results import DemoResult
from datasets_cli.demo.tour import tour
from datasets_cli.progress import Silent


def run(config: Config, *, keep: bool = False) -> Iterator[DemoResult]:
    """Yield what was found with each dataset of the demo, one after the other."""
    if keep:
        yield from tour(config, Silent())
        return
    with tempfile.TemporaryDirectory(prefix="rlds-demo-") as folder:
        for result in tour(replace(config, root=Path(folder)), Silent()):
            yield replace(result, kept=None)
