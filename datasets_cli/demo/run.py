"""The demo: the tour in a temporary folder, with copies left under the cache root on request."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from datasets_cli.config import Config
from datasets_cli.demo.keep import keep as install_copy
from datasets_cli.demo.results import DemoResult
from datasets_cli.demo.tour import tour
from datasets_cli.progress import Silent
from datasets_cli.store.cache_root import CacheRoot


def run(config: Config, *, keep: bool = False) -> Iterator[DemoResult]:
    """Yield what was found with each dataset of the demo, one after the other.

    Args:
        config: of the user; the demo itself reads and writes a temporary folder alone.
        keep: leave a copy of each under the user's cache root.

    Raises:
        DiskFull, LockedError: a copy is to be left, and there is no room for it, or another process
            works on its id.
    """
    with tempfile.TemporaryDirectory(prefix="rlds-demo-") as folder:
        for result in tour(Path(folder), Silent()):
            if not keep:
                yield result
                continue
            kept = install_copy(result.path, result.about, config)
            yield replace(result, kept=kept, path=CacheRoot(config.root).dataset(result.id))
