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

from datasets_cli.checked_json import decode
from datasets_cli.json_form import JsonForm
from datasets_cli.replay.sharing.control import SUBFOLDER
from datasets_cli.replay.sharing.process import rows_are_gone
from datasets_cli.schema.bits import bits_dtype, torch_dtype
from datasets_cli.schema.columns import Column, check_key, one_file_each
from datasets_cli.store.layouts.ted_writer import write_meta_files

_DIGEST = "sha256"
_DIGEST_BYTES = 32


@dataclass(frozen=True)
class SharedForm(JsonForm):
    """What shared rows are: their columns, with a file each, the grid that they fill, and more."""

    leaves: tuple[Column, ...]
    grid: tuple[int, ...]
    form: dict[str, Any] | None
    """What tells the form of the rows, as JSON; none where that cannot."""

    @property
    def capacity(self) -> int:
        """Rows that fit."""
        return math.prod(self.grid)

    @property
    def width(self) -> int:
        """Rows of one time step."""
        return math.prod(self.grid[1:])


def make_files(folder: Path, leaves: Sequence[Column], capacity: int) -> None:
    """Make the files of leaves, all zeros, as ``TensorDict.load_memmap`` opens them."""
    for leaf in leaves:
        check_key(leaf.key)
        # Not written over: what another storage still maps must not change below it.
        (folder / leaf.filename).unlink(missing_ok=True)
    write_meta_files(folder, leaves, capacity)
    for leaf in leaves:
        path = folder / leaf.filename
        if math.prod(leaf.shape):
            with one_file_each(path, leaf.key), path.open("xb") as file:
                file.truncate(capacity * leaf.row_bytes)


def map_column(folder: Path, leaf: Column, capacity: int) -> torch.Tensor:
    """Return the column in a file, which every process that maps it reads and writes."""
    dtype, size = bits_dtype(torch_dtype(leaf.dtype)), capacity * math.prod(leaf.shape)
    if not size:  # tensordict has no file of a leaf without elements either
        return torch.empty((capacity, *leaf.shape), dtype=dtype)
    rows = torch.from_file(str(folder / leaf.filename), shared=True, size=size, dtype=dtype)
    return rows.view(capacity, *leaf.shape)


def write_form(folder: Path, key: bytes, shared: SharedForm) -> None:
    """Tell of the form of rows in their folder."""
    content = json.dumps(shared.to_json()).encode()
    _path(folder).write_bytes(hmac.digest(key, content, _DIGEST) + content)


def read_form(folder: Path, key: bytes) -> SharedForm:
    """Return what ``write_form`` told."""
    try:
        written = _path(folder).read_bytes()
    except FileNotFoundError as error:
        raise rows_are_gone(folder) from error
    digest, content = written[:_DIGEST_BYTES], written[_DIGEST_BYTES:]
    # Nothing is believed that a process without the key may have put there.
    if not hmac.compare_digest(digest, hmac.digest(key, content, _DIGEST)):
        raise rows_are_gone(folder)
    return decode(SharedForm, json.loads(content))


def _path(folder: Path) -> Path:
    return folder / SUBFOLDER / "form"
