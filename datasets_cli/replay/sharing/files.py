"""The files of shared rows: a column each, and one that tells other processes of their form."""

from __future__ import annotations

import hmac
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from datasets_cli.replay.sharing.control import SUBFOLDER
from datasets_cli.replay.sharing.process import rows_are_gone
from datasets_cli.schema.bits import bits_dtype, torch_dtype, type_name
from datasets_cli.schema.columns import Column, check_key, one_file_each
from datasets_cli.store.ted.writer import write_meta_files


@dataclass(frozen=True)
class ColumnFile:
    """A column of rows in a file."""

    # shape: of the column, `[rows, ...]`.

    path: Path
    shape: tuple[int, ...]
    dtype: torch.dtype

    def map(self) -> torch.Tensor:
        """Return the column, which every process that maps it reads and writes."""
        size = math.prod(self.shape)
        if not size:  # tensordict has no file of a leaf without elements either
            return torch.empty(self.shape, dtype=self.dtype)
        rows = torch.from_file(str(self.path), shared=True, size=size, dtype=self.dtype)
        return rows.view(self.shape)


def make_files(folder: Path, leaves: Sequence[Column], capacity: int) -> list[ColumnFile]:
    """Make the files of leaves, all zeros, as ``TensorDict.load_memmap`` opens them."""
    for leaf in leaves:
        check_key(leaf.key)
        # Not written over: what another storage still maps must not change below it.
        (folder / leaf.filename).unlink(missing_ok=True)
    write_meta_files(folder, leaves, capacity)
    files = []
    for leaf in leaves:
        path, dtype = folder / leaf.filename, bits_dtype(torch_dtype(leaf.dtype))
        files.append(ColumnFile(path, (capacity, *leaf.shape), dtype))
        if math.prod(leaf.shape):
            with one_file_each(path, leaf.key), path.open("xb") as file:
                file.truncate(capacity * leaf.row_bytes)
    return files


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
