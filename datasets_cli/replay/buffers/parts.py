"""The parts that a user gives a buffer: checked, and taken under the names of version 0.1 too."""

from __future__ import annotations

from typing import Any

from datasets_cli.errors import UsageError
from datasets_cli.replay.old_names import (
    SAMPLER_NAMES,
    STORAGE_NAMES,
    WRITER_NAMES,
    adapt,
    lacks,
)
from datasets_cli.replay.samplers.protocol import PrioritySampler, Sampler
from datasets_cli.replay.storages.protocol import Storage, WritableStorage
from datasets_cli.replay.writers import Writer


def as_storage(part: Any) -> Storage:
    """Return a storage that has every member.

    Raises:
        UsageError: it is none.
    """
    protocol = WritableStorage if hasattr(part, "write") else Storage
    missing = lacks(part, protocol)
    if not missing and not isinstance(part, type):
        found: Storage = part
        return found
    if isinstance(part, type) or not hasattr(part, "tree"):
        kind = part if isinstance(part, type) else type(part)
        raise UsageError(
            f"A storage is expected, such as LazyTensorStorage(1000), not {kind.__name__}."
            f"{_missing(part, missing, 'gather')}"
        )
    adapted: Storage = adapt(part, protocol, STORAGE_NAMES)
    return adapted


def as_sampler(part: Any) -> Sampler:
    """Return a sampler that has every member.

    Raises:
        UsageError: it is none.
    """
    protocol = PrioritySampler if hasattr(part, "update_priority") else Sampler
    missing = lacks(part, protocol)
    if not missing and not isinstance(part, type):
        found: Sampler = part
        return found
    if isinstance(part, type) or not callable(getattr(part, "sample", None)):
        raise UsageError(f"A sampler is expected, such as RandomSampler(), not {part!r}.")
    has_slices = getattr(part, "has_slices", hasattr(part, "truncated_key"))
    adapted: Sampler = adapt(part, protocol, SAMPLER_NAMES, has_slices=has_slices)
    return adapted


def as_writer(part: Any) -> Writer:
    """Return a writer that has every member.

    Raises:
        UsageError: it is none.
    """
    missing = lacks(part, Writer)
    if not missing and not isinstance(part, type):
        found: Writer = part
        return found
    if isinstance(part, type) or not callable(getattr(part, "place", None)):
        raise UsageError(
            f"A writer is expected, such as RoundRobinWriter(), not {part!r}."
            f"{_missing(part, missing, 'write')}"
        )
    adapted: Writer = adapt(part, Writer, WRITER_NAMES)
    return adapted


def _missing(part: Any, names: list[str], mark: str) -> str:
    """Return which members are missing of what was meant to be such a part."""
    if isinstance(part, type) or not hasattr(part, mark):
        return ""
    return f" It does not have {', '.join(names)}."
