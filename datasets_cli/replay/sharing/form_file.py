"""The file that tells the other processes of the form of shared rows, signed by their key."""

from __future__ import annotations

import hmac
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets_cli.replay.sharing.control import SUBFOLDER
from datasets_cli.replay.sharing.files import ColumnFile
from datasets_cli.replay.sharing.lock import rows_are_gone
from datasets_cli.store.schema.bits import torch_dtype, type_name

_DIGEST = "sha256"
_DIGEST_BYTES = 32

Form = dict[str, Any]
"""What tells the form of rows, as JSON."""


@dataclass(frozen=True)
class SharedForm:
    """Where shared rows are, and how they are read."""

    files: list[ColumnFile]
    width: int
    form: Form | None


def write_form(folder: Path, key: bytes, shared: SharedForm) -> None:
    """Tell of the form of rows in their folder."""
    columns = [[str(file.path), file.shape, type_name(file.dtype)] for file in shared.files]
    known = {"columns": columns, "width": shared.width, "form": shared.form}
    text = json.dumps(known).encode()
    _path(folder).write_bytes(hmac.digest(key, text, _DIGEST) + text)


def read_form(folder: Path, key: bytes) -> SharedForm:
    """Return what ``write_form`` told."""
    try:
        found = _path(folder).read_bytes()
    except FileNotFoundError as error:
        raise rows_are_gone(folder) from error
    digest, text = found[:_DIGEST_BYTES], found[_DIGEST_BYTES:]
    # Nothing is believed that a process without the key may have put there.
    if not hmac.compare_digest(digest, hmac.digest(key, text, _DIGEST)):
        raise rows_are_gone(folder)
    known = json.loads(text)
    files = [
        ColumnFile(Path(path), tuple(shape), torch_dtype(dtype))
        for path, shape, dtype in known["columns"]
    ]
    return SharedForm(files, known["width"], known["form"])


def _path(folder: Path) -> Path:
    return folder / SUBFOLDER / "form"
