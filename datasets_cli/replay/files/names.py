"""Names of entries in the files of dumps: those of ``store.schema.columns``, at any level."""

from __future__ import annotations

from datasets_cli.store.schema.columns import encode_name, escape_key


def stored_name(name: str, depth: int, is_folder: bool) -> str:
    """Return the name under which an entry is stored, which no other entry of its level has."""
    # A name that tensordict keeps for itself, or that a file could have, gets one `~` more.
    key = (*[""] * depth, name, *([""] if is_folder else []))
    return escape_key(key)[depth]


def entry_name(stored: str, depth: int, is_folder: bool) -> str:
    """Return the name of an entry that ``stored_name`` gave another one."""
    name = stored.removesuffix("~")
    return name if stored_name(name, depth, is_folder) == stored else stored


def file_name(stored: str) -> str:
    """Return the file name of a stored name, percent-encoded as tensordict does."""
    return encode_name(stored) or "%"
