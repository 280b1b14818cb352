"""Tables of a committed dataset: what was found out about it later, beside it and not in it.

<root>/tables/<content>/<name>.json    one JSON object a file, replaced whole

They can be made again at any time: what cannot be read is as good as absent.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Mapping
from typing import Any

from datasets_cli.errors import DamagedDataset
from datasets_cli.sources.disk import disk_errors, make_folder, open_regular, replace_file
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.sealed_json import parse

MAX_BYTES = 64 << 20


def save_table(root: CacheRoot, content: str, name: str, table: Mapping[str, Any]) -> None:
    """Keep a table, in place of an older one of that name."""
    folder = root.tables(content)
    with disk_errors(folder):
        make_folder(folder)
        new = folder / f".{name}.{uuid.uuid4().hex}"
        try:
            new.write_text(json.dumps(table, allow_nan=False), encoding="ascii")
            replace_file(new, folder / f"{name}.json")
        finally:
            new.unlink(missing_ok=True)


def load_table(root: CacheRoot, content: str, name: str) -> dict[str, Any] | None:
    """Return a table, or None where there is none that can be read."""
    for folder in root.tables_to_read(content):
        try:
            with open_regular(folder / f"{name}.json") as file:
                return parse(file.read(MAX_BYTES))
        except (OSError, ValueError, DamagedDataset):
            continue
    return None


def remove_tables(root: CacheRoot, content: str) -> None:
    """Delete every table about the data with this identity."""
    for folder in root.tables_to_read(content):
        shutil.rmtree(folder, ignore_errors=True)
