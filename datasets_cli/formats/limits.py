"""Limits on publishers' files, checked before memory is allocated; bounded JSON documents.

A small file can claim a huge size, and a compressed one can have it. No limit is a ratio: a column
of zeros is legally compressed a thousand to one. Each limit is far above every published dataset,
and can be raised for a larger file that you trust: ``--limit row_bytes=1000000000``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from datasets_cli.core.checked_json import is_deeper
from datasets_cli.errors import SourceError, UsageError, by_reader


@dataclass(frozen=True)
class Limit:
    """A bound on the content of a file.

    Args:
        value: the largest amount that is read.
        unit: its unit, for messages.
        reason: the amount in published files, and the memory that the limit stands for.
    """

    value: int
    unit: str
    reason: str


LIMITS: Mapping[str, Limit] = {
    "rows": Limit(1_000_000_000, "rows", "A dataset. An Atari run has 50,000,000 rows."),
    "row_bytes": Limit(
        64 << 20,
        "bytes",
        "One row of all columns. Atari's frames have 7,056 bytes, Minari's largest 691,200; up to "
        "ten copies of a row are in memory at once. An ARFF line counts as 8 times its size; each "
        "HDF5 chunk that a row spans counts as 6,500 bytes.",
    ),
    "table_bytes": Limit(
        256 << 20,
        "bytes",
        "Data that are read whole: an episode in Minari's Arrow form, a row group of Parquet, a "
        "chunk of HDF5, an array of an Atari log, an OpenML table in TorchRL's encoding. The "
        "largest, OpenML's covertype, has 255,645,280 bytes.",
    ),
    "columns": Limit(
        250_000, "columns", "A table, or a file of arrays. OpenML's widest table has 100,000."
    ),
    "text_bytes": Limit(
        128 << 20,
        "bytes",
        "The texts, or compressed frames, of one block of up to 4,096 rows, and the labels of a "
        "table. Each label counts 128 bytes more than its size, and each distinct text of a "
        "dataset counts as 64 bytes.",
    ),
    "record_bytes": Limit(
        1 << 29,
        "bytes",
        "One record of a TFRecord file. The longest published one has 190,000,000. Each integer, "
        "text and run of floats of a feature counts as 256 bytes.",
    ),
    "json_bytes": Limit(
        64 << 20,
        "bytes",
        "One JSON document, or a page of a publisher's list. OpenML's document on 100,000 columns "
        "has 20,000,000. Each value counts as 16 bytes.",
    ),
    "nesting": Limit(
        64, "levels", "Groups in HDF5 and lists in JSON. Published files have up to 6 levels."
    ),
}
"""By name."""

LABEL_BYTES = 128
"""The memory of a label beside its characters."""
TEXT_ROW_BYTES = 2048
"""The assumed memory of a text, whose size is not known before it is read."""
JSON_VALUE_BYTES = 16
"""The weight of a value against the limit of a JSON document."""

_RAISED: ContextVar[Mapping[str, int]] = ContextVar("raised", default=MappingProxyType({}))


def limit(name: str) -> int:
    """Return the current value of a limit."""
    return _RAISED.get().get(name, LIMITS[name].value)


def check_limit(name: str, found: float, what: str) -> None:
    """Check that an amount is within a limit.

    Args:
        name: the name of the limit.
        found: the amount.
        what: the subject of the message.

    Raises:
        SourceError: the amount exceeds the limit.
    """
    if found > limit(name):
        raise beyond(name, found, what)


def beyond(name: str, found: float, what: str) -> SourceError:
    """Return the error of an amount beyond a limit; see ``check_limit``."""
    unit, most = LIMITS[name].unit, limit(name)
    shown = f"{found:,}" if found < math.inf else f"more than {most:,}"
    option = by_reader(f"--limit {name}=NUMBER", f'Config(limits=(("{name}", NUMBER),))')
    return SourceError(
        f"{what} has {shown} {unit}; at most {most:,} are read. The file is damaged or made to "
        "fill memory or disk.",
        argument="limits",
        key=name,
        expected=most,
        found=found if found < math.inf else None,
        advice=f"If you trust it, raise the limit: {option}.",
    )


def check_names(names: Iterable[str]) -> None:
    """Check the names of limits.

    Raises:
        UsageError: a name is not the name of a limit.
    """
    for name in names:
        if name not in LIMITS:
            raise UsageError(
                f"{name!r} is not a limit. Expected one of: {', '.join(LIMITS)}.",
                argument="limits",
                expected=[*LIMITS],
                found=name,
            )


@contextmanager
def raised_limits(values: Mapping[str, int]) -> Iterator[None]:
    """Replace limits within a block.

    Args:
        values: by name; other limits do not change.

    Raises:
        UsageError: a name is not the name of a limit.
    """
    check_names(values)
    token = _RAISED.set({**_RAISED.get(), **values})
    try:
        yield
    finally:
        _RAISED.reset(token)


def current_limits() -> Mapping[str, int]:
    """Return the replaced limits, for ``raised_limits`` in another process."""
    return _RAISED.get()


def read_json_file(path: Path) -> Any:
    """Return the values of a JSON file; see ``read_json``."""
    check_limit("json_bytes", path.stat().st_size, path.name)
    return read_json(path.read_bytes(), path.name)


def read_json(data: str | bytes, name: str) -> Any:
    """Return the values of a JSON document; infinity and NaN are accepted.

    Args:
        data: the document.
        name: the name of the file or its part, for messages.

    Raises:
        SourceError: the document is not JSON, or exceeds a limit.
    """
    encoded = data.encode(errors="replace") if isinstance(data, str) else data
    # Each value but the first follows one of these characters, which texts may contain too.
    num_values = sum(map(encoded.count, (b"[", b"{", b",")))
    check_limit("json_bytes", max(len(data), JSON_VALUE_BYTES * num_values), name)
    try:
        document = json.loads(data)
    except RecursionError as error:
        raise beyond("nesting", math.inf, name) from error
    except ValueError as error:  # also for a number of thousands of digits
        raise SourceError(f"{name} is not JSON ({error}).", path=name) from error
    if isinstance(document, dict | list) and is_deeper(document, limit("nesting")):
        raise beyond("nesting", math.inf, name)
    return document


def finite(value: Any) -> Any:
    """Return JSON values with None for NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
