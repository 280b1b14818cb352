"""Names of entries in the files of dumps."""

from __future__ import annotations

from datasets_cli.store.schema.columns import RESERVED_NAMES, encode_name

# A folder of this name could be a file of the level that it is in.
_FILE_ENDINGS = (".memmap", ".json", ".pickle", ".pkl")


def stored_name(name: str) -> str:
    """Return the name under which an entry is stored, which no other entry has.

    Names that tensordict keeps for itself, and those of its files, get one ``~`` more.
    """
    stem = name.rstrip("~")
    return f"{name}~" if stem in RESERVED_NAMES or stem.endswith(_FILE_ENDINGS) else name


def entry_name(stored: str) -> str:
    """Return the name of an entry that ``stored_name`` gave another one."""
    stem = stored.rstrip("~")
    return stored[:-1] if stem != stored and stored_name(stored) != stored else stored


def file_name(stored: str) -> str:
    """Return the file name of a stored name, percent-encoded as tensordict does."""
    return encode_name(stored) or "%"
