"""The file of a state: replaced by one rename, and read without executing code."""

from __future__ import annotations

import errno
import os
import pickle
import zipfile
from pathlib import Path

import torch

from datasets_cli.errors import DamagedDataset, MissingFile, NotWritable, WrongState
from datasets_cli.replay.arguments import StateDict
from datasets_cli.sources.disk import disk_errors, flush
from datasets_cli.sources.new_files import recover, replacing
from datasets_cli.sources.regular_file import open_regular


def write_state_file(path: Path, state: StateDict) -> None:
    """Write a state into a file. An older file stays until the new one is whole and on the disk."""
    _check_writable(path)
    recover(path)  # temporary files of killed processes
    with disk_errors(path), replacing(path) as new:
        with new.open("wb") as file:
            try:
                torch.save(state, file)
            except RuntimeError as error:  # torch hides the error of the disk behind its own
                raise error.__context__ or error from None
        flush(new)
        try:
            _load(new)
        except pickle.UnpicklingError as error:
            raise WrongState(
                f"The state cannot be written to {path}, because it could not be read again: "
                f"{error}",
                path=path,
                expected="tensors, texts, numbers, bool, None, and lists and dicts of these",
                advice="Change what the state_dict() of the sampler or writer returns.",
            ) from error
    flush(path.parent)


def _check_writable(path: Path) -> None:
    existing = next(parent for parent in path.parents if os.path.lexists(parent))
    if existing.is_dir() and not path.is_dir():
        return
    wrong, expected = (path, "file") if path.is_dir() else (existing, "folder")
    raise NotWritable(
        f"{path} cannot be written: {wrong} is not a {expected}.",
        path=path,
        expected=f"a {expected}",
        found=str(wrong),
        advice="Choose another folder.",
    )


def read_state_file(path: Path) -> StateDict:
    """Return the state in a file; its tensors are mapped, so that bytes are read when needed."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as records:
            _check_records(records)
        state = _load(path)
    except FileNotFoundError as error:
        raise MissingFile(f"{path} does not exist: nothing was dumped there.", path=path) from error
    except DamagedDataset as error:
        raise _damaged(path, "it is not a regular file") from error
    except OSError as error:
        if error.errno == errno.EINVAL:  # a damaged offset points before the start of the file
            raise _damaged(path, "it points to bytes outside of itself") from error
        raise
    except Exception as error:  # torch raises errors of many classes for bytes that are wrong
        raise _damaged(path, f"{type(error).__name__}: {error}") from error
    if not isinstance(state, dict):
        raise _damaged(path, f"it contains a {type(state).__name__}, not a dict")
    return state


def _check_records(records: zipfile.ZipFile) -> None:
    """Check the checksum of every record: torch maps the records without this."""
    if {record.compress_type for record in records.infolist()} - {zipfile.ZIP_STORED}:
        raise zipfile.BadZipFile("a record is compressed")  # torch never does; it could be huge
    if (damaged := records.testzip()) is not None:
        raise zipfile.BadZipFile(f"the checksum of {damaged} does not match")


def _load(path: Path) -> StateDict:
    # weights_only: tensors and plain values; no class is imported and no function is called.
    state: StateDict = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    return state


def _damaged(path: Path, reason: str) -> DamagedDataset:
    return DamagedDataset(
        f"{path} is not a whole state file: {reason}.",
        path=path,
        advice="Dump the buffer again, or load an older dump.",
    )
