"""Files of dumps: opened if they are regular files, and JSON of a bounded size and depth."""

from __future__ import annotations

import json
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import TypeVar

import torch

from datasets_cli.checked_json import WrongValue, decode, is_deeper
from datasets_cli.errors import DamagedDataset, MissingFile, WrongState
from datasets_cli.replay.arguments import StateDict
from datasets_cli.sources.regular_file import open_regular

T = TypeVar("T")

STATE = "state.json"

MOST_DEPTH = 100
"""Levels of nesting below the first that JSON, and folders of TensorDicts, may have."""

MOST_BYTES = 1 << 30
"""Size of a file of rows that are not tensors, or of a state, whose size grows with the rows."""

SETTINGS_BYTES = 16 << 20
"""Size of a file of settings, whose size does not."""


def write_state(path: Path, state: StateDict) -> None:
    """Write a state into a file, whose folder is made; tensors become lists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        text = json.dumps(
            {
                name: value.tolist() if isinstance(value, torch.Tensor) else value
                for name, value in state.items()
            }
        )
    except (TypeError, ValueError, RecursionError) as error:
        raise WrongState(
            f"{path.parent.name} cannot be dumped as JSON: {error}.",
            path=str(path),
            advice="The state of a part must be numbers, texts, None, tensors, and lists and dicts "
            "of them.",
        ) from error
    path.write_text(text, encoding="utf-8")


NO_DUMP = ": no buffer was dumped there, or only a part of one."


def read_state(path: Path, most_bytes: int = MOST_BYTES) -> StateDict:
    """Return what ``write_state``, or TorchRL, wrote into a file."""
    try:
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > most_bytes:
                raise DamagedDataset(
                    f"{path} has {size:,} bytes; expected {most_bytes:,} at most. Dump the buffer "
                    "again."
                )
            content = file.read(size)
    except FileNotFoundError as error:
        raise MissingFile(f"{path} is missing{NO_DUMP}") from error
    try:
        found = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise DamagedDataset(f"{path} is not JSON: {error}. Dump the buffer again.") from error
    if not isinstance(found, dict) or is_deeper(found, MOST_DEPTH + 1):
        raise DamagedDataset(
            f"{path} is not a JSON object of {MOST_DEPTH} levels at most. Dump the buffer again."
        )
    return found


def open_file(path: Path) -> BufferedReader:
    """Open a file of a dump for reading."""
    try:
        return open_regular(path)
    except (FileNotFoundError, PermissionError):
        raise
    except (DamagedDataset, OSError, ValueError) as error:
        raise DamagedDataset(
            f"{path} is not a regular file and was not opened: a dump does not have links, pipes "
            "or devices. Dump the buffer again."
        ) from error


def check_folder(path: Path) -> None:
    """Check that a folder of a dump is one, and no link."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError as error:
        raise MissingFile(f"{path} is missing{NO_DUMP}") from error
    except (OSError, ValueError) as error:
        raise DamagedDataset(f"{path} cannot be a folder of a dump: {error}.") from error
    if not stat.S_ISDIR(mode):
        raise DamagedDataset(f"{path} is not a folder, or a link to one. Dump the buffer again.")


def checked(kind: type[T], found: object, path: Path, where: str = "") -> T:
    """Return what was read from a file, by the hints that say what it must be."""
    try:
        return decode(kind, found, where)
    except WrongValue as error:
        raise DamagedDataset(f"{path}: {error}. Dump the buffer again.") from error


def whole(state: StateDict, name: str, path: Path, most: int = 2**62) -> int:
    """Return a whole number of a state that was read."""
    number = state.get(name)
    is_whole = type(number) is int or (type(number) is float and number.is_integer())  # TorchRL's
    if number is None or not is_whole or not 0 <= number <= most:
        raise wrong(path, name, f"a whole number from 0 to {most}", number)
    return int(number)


def wrong(path: Path, name: str, expected: str, found: object) -> DamagedDataset:
    """Return the error of an entry of a file that is not what it should be."""
    if isinstance(found, torch.Tensor):  # torch prints one of many dimensions by recursion
        shown = f"a tensor of {found.dtype} and the shape {list(found.shape)}"
    else:
        shown = repr(found) if len(repr(found)) < 80 else f"{repr(found)[:80]}..."
    return DamagedDataset(f"{path}: {name} is {shown}, expected {expected}. Dump the buffer again.")
