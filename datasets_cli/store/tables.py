"""Tables of a committed dataset: what was found out about it later, beside it and not in it.

<root>/tables/<content>/<name>.json    one JSON object a file, replaced whole

They can be made again at any time: what cannot be read is as good as absent.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from typing import Any

from datasets_cli.errors import DamagedDataset
from datasets_cli.sources.disk import read_bounded, replacing
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.sealed_json import parse

MAX_BYTES = 64 << 20


def save_table(root: CacheRoot, content: str, name: str, table: Mapping[str, Any]) -> None:
    """Keep a table, in place of an older one of that name."""
    with replacing(root.tables(content) / f"{name}.json") as new:
        new.write_text(json.dumps(table, allow_nan=False), encoding="ascii")


def load_table(root: CacheRoot, content: str, name: str) -> dict[str, Any] | None:
    """Return a table, or None where there is none that can be read."""
    for folder in root.tables_to_read(content):
        try:
            return parse(read_bounded(folder / f"{name}.json", MAX_BYTES))
        except (OSError, ValueError, DamagedDataset):
            continue
    return None


def remove_tables(root: CacheRoot, content: str) -> None:
    """Delete every table about the data with this identity."""
    for folder in root.tables_to_read(content):
        shutil.rmtree(folder, ignore_errors=True)
