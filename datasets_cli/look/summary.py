"""The summary of a dataset's statistics, which is read without torch or numpy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.tables import load_table

TABLE = "statistics"
VERSION = 2
Measures = Mapping[str, Any]


def load_summary(root: CacheRoot, content: str) -> dict[str, Any] | None:
    """Return the summary of the data with this identity; None where there is none."""
    summary = load_table(root, content, TABLE)
    known = {"version": VERSION, "content": content}  # a copy of another's is none
    return summary if summary and known.items() <= summary.items() else None


def channels(measures: Measures) -> str:
    """Return mean and deviation of frames, a number a channel, as people read them."""
    parts = [f"{name} {', '.join(f'{x:.6g}' for x in measures[name])}" for name in ("mean", "std")]
    return f"{'; '.join(parts)} by channel (of {measures['sampled']:,} frames)"
