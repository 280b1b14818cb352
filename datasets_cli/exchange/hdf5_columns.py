"""The columns of an HDF5 file, by their paths below its root or a group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

import h5py
import numpy as np

from datasets_cli.errors import SourceError, UsageError
from datasets_cli.exchange.flat import check_rows
from datasets_cli.formats.hdf5 import read_rows
from datasets_cli.formats.limits import beyond, limit
from datasets_cli.formats.structure.hdf5 import has_texts_elsewhere
from datasets_cli.schema.columns import Key, show_key
from datasets_cli.schema.element_types import element_type
from datasets_cli.schema.texts import as_text, is_text


def datasets_below(group: h5py.Group, what: str) -> dict[str, h5py.Dataset]:
    """Return the datasets of a group and of all groups below, by path; each object once."""
    found: dict[str, h5py.Dataset] = {}
    most = limit("arrays")

    def visit(path: str, item: Any) -> bool | None:
        if isinstance(item, h5py.Dataset):
            found[path] = item
        return True if len(found) > most else None  # any value ends the walk

    if group.visititems(visit):
        raise SourceError(beyond("arrays", inf, what))
    return found


def problem_of(item: h5py.Dataset) -> str:
    """Return why a dataset cannot be a column; empty where it can."""
    try:
        dtype = item.dtype
    except TypeError as error:  # numpy has no such type
        return f"a column cannot have its type ({error})"
    is_words = h5py.check_string_dtype(dtype) is not None
    problems = {
        "it holds references to other objects, and no values": h5py.check_ref_dtype(dtype),
        "a row has several fields; save each of them as a dataset": dtype.names,
        "its rows differ in length; save them as one array": (
            not is_words and has_texts_elsewhere(item)
        ),
        f"a column cannot have numbers of {dtype}": not is_words and element_type(dtype) is None,
        "it is empty": item.shape is None,
        "it is one value, and no column": item.shape == (),
    }
    return next((problem for problem, is_so in problems.items() if is_so), "")


def described(item: h5py.Dataset) -> str:
    """Return the element type and the shape of a row, for people."""
    kind = "text" if h5py.check_string_dtype(item.dtype) else item.dtype
    return f"{kind} {list(item.shape[1:])}"


def runs_of(datasets: Mapping[str, h5py.Dataset], what: str) -> Iterator[dict[str, np.ndarray]]:
    """Yield the rows of datasets of one length in bounded runs, text as str."""
    check_rows({name: item.shape[0] for name, item in datasets.items()}, what)
    for run in read_rows(datasets):
        yield {name: as_text((name,), v) if is_text(v) else v for name, v in run.items()}


def encoded(key: Key, rows: np.ndarray) -> np.ndarray:
    """Return texts as the bytes that a dataset has for them."""
    texts = np.empty(rows.shape, object)
    texts.reshape(-1)[:] = [text.encode(errors="surrogateescape") for text in rows.flat]
    if any(b"\0" in data for data in texts.flat):
        raise UsageError(
            f"{show_key(key)} has a text with a zero byte, where texts of HDF5 end. Export another "
            "format, or replace it with preprocess()."
        )
    return texts
