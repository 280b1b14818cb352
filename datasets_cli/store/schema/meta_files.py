"""The ``meta.json`` files, by which ``TensorDict.load_memmap`` opens a folder of leaves."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from datasets_cli.store.schema.columns import META_FILENAME, Column, Key, encode_name, escape_key


def write_meta_files(folder: Path, columns: Iterable[Column], num_rows: int) -> list[str]:
    """Write the ``meta.json`` of every level; return their paths relative to ``folder``."""
    # Keys are escaped there; `TensorDict.load_memmap` gives them so.
    levels: dict[Key, dict[str, Any]] = {(): {}}
    for column in columns:
        key = escape_key(column.key)
        for depth in range(1, len(key)):
            levels.setdefault(key[:depth], {})
            levels[key[: depth - 1]][key[depth - 1]] = {"type": "TensorDict"}
        levels[key[:-1]][key[-1]] = {
            "device": "cpu",
            "shape": [num_rows, *column.shape],
            "dtype": f"torch.{column.dtype}",
            "is_nested": False,
        }
    names = []
    for key, level in levels.items():
        level |= {
            "shape": [num_rows],
            "device": "cpu",
            "_type": "<class 'tensordict._td.TensorDict'>",
        }
        name = "/".join([*(encode_name(part) for part in key), META_FILENAME])
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(level, separators=(",", ":")), encoding="utf-8")
        names.append(name)
    return names
