"""How much a publisher's file may make us hold: absolute limits, checked before memory is spent.

A small file can say that it is huge, and a packed one can be. No limit is a ratio: a column of
zeros is legally packed a thousand to one. Each is far above every published dataset, and each can
be raised for a file that is larger and trusted: ``--limit row_bytes=1000000000``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType

from datasets_cli.errors import SourceError, UsageError, by_reader


@dataclass(frozen=True)
class Limit:
    """The most of something that is read.

    Args:
        value: the most.
        unit: of the value, for messages.
        reason: what published files have, and what memory the limit stands for.
    """

    value: int
    unit: str
    reason: str


LIMITS: Mapping[str, Limit] = {
    "row_bytes": Limit(
        64 << 20,
        "bytes",
        "One row of all columns; Atari's frames have 7,056, Minari's largest 691,200. Some ten "
        "copies of a row are in memory at a time.",
    ),
    "chunk_bytes": Limit(
        64 << 20,
        "bytes",
        "What is unpacked at once: a chunk of HDF5, a page of Parquet. Their writers make chunks "
        "of up to 1 MiB.",
    ),
    "chunks": Limit(
        10_000,
        "chunks",
        "Of HDF5 that a row is in, and that are read at once: HDF5 needs 6,500 bytes for each. "
        "Published rows are in up to some 400.",
    ),
    "arrays": Limit(
        1_000,
        "arrays",
        "Of a D4RL file, and of a Minari episode; published ones have up to some 30.",
    ),
    "entries": Limit(
        1_000_000,
        "entries",
        "Groups and arrays of an HDF5 file; Minari's largest has 13,210 episodes of some 15 each.",
    ),
    "name_bytes": Limit(
        1_000,
        "bytes",
        "One name in HDF5; published ones have up to 20, and a file name has room for 200.",
    ),
    "table_bytes": Limit(
        192 << 20,
        "bytes",
        "What is read whole: an episode in Minari's Arrow form, a row group of Parquet. An episode "
        "of 1,000 steps of Minari's largest frames is packed as JPEG and has 50 MB.",
    ),
    "dataset_bytes": Limit(
        1 << 40, "bytes", "All rows; the 50,000,000 frames of an Atari run have 353 GB."
    ),
    "rows": Limit(1_000_000_000, "rows", "Of one dataset; an Atari run has 50,000,000."),
    "array_values": Limit(
        4_000_000,
        "values",
        "Of an array that is read whole, such as the actions of an Atari log, which has 1,000,000.",
    ),
    "record_bytes": Limit(
        1 << 29, "bytes", "One record of a TFRecord file; the longest that is known has 190 MB."
    ),
    "record_values": Limit(
        1_000_000,
        "values",
        "Of one feature of a tf.train.Example; an Atari episode has up to 27,000 frames.",
    ),
    "line_bytes": Limit(
        8 << 20,
        "bytes",
        "One line of a table of text; the widest of OpenML's tables has 100,000 columns.",
    ),
    "columns": Limit(250_000, "columns", "Of one table; the widest of OpenML's has 100,000."),
    "labels": Limit(
        1_000_000, "labels", "Of all nominal columns of a table; OpenML's have up to some 100,000."
    ),
    "text_bytes": Limit(
        128 << 20,
        "bytes",
        "All texts, or packed frames, of one block of up to 4,096 rows; Minari's texts have 50 "
        "bytes each.",
    ),
    "distinct_texts": Limit(
        2_000_000,
        "texts",
        "Of one dataset, all of which are numbered in memory; Minari's have up to some 10,000.",
    ),
    "table_values": Limit(
        36_000_000,
        "values",
        "Of an OpenML table that TorchRL's own encoding needs as a whole, three times; the largest "
        "is covertype with 31,955,660.",
    ),
    "json_bytes": Limit(
        64 << 20,
        "bytes",
        "One document that describes a dataset, or a page of a publisher's list; OpenML's on "
        "100,000 columns has 20 MB.",
    ),
    "json_values": Limit(
        4_000_000, "values", "Of such a document; OpenML's on 100,000 columns has 1,000,000."
    ),
    "nesting": Limit(
        64, "levels", "Of groups in HDF5 and of lists in JSON; published files have up to 6."
    ),
}
"""By name."""

TEXT_ROW_BYTES = 2048
"""What a text is taken to need in memory; its own size is not known before it is read."""

_RAISED: ContextVar[Mapping[str, int]] = ContextVar("raised", default=MappingProxyType({}))


def limit(name: str) -> int:
    """Return the most that is read here, of what a name of ``LIMITS`` says."""
    return _RAISED.get().get(name, LIMITS[name].value)


def check_limit(name: str, found: float, what: str) -> None:
    """Check that something is not more than is read.

    Args:
        name: of the limit.
        found: how much there is, or would be.
        what: has it; begins the message.

    Raises:
        SourceError: it is more; names the limit and how to raise it.
    """
    if found > limit(name):
        raise SourceError(beyond(name, found, what))


def beyond(name: str, found: float, what: str) -> str:
    """Return the message of something that is more than is read; see ``check_limit``."""
    unit = LIMITS[name].unit
    shown = f"{found:,}" if found < math.inf else f"more than {limit(name):,}"
    option = by_reader(f"--limit {name}=NUMBER", f'Config(limits=(("{name}", NUMBER),))')
    return (
        f"{what} has {shown} {unit}; at most {limit(name):,} are read. The file is damaged or made "
        f"to fill memory or disk; if you trust it, raise the limit: {option}."
    )


def check_names(names: Iterable[str]) -> None:
    """Check that there are such limits.

    Raises:
        UsageError: a name is not the name of a limit.
    """
    for name in names:
        if name not in LIMITS:
            raise UsageError(f"There is no limit {name!r}. Expected one of: {', '.join(LIMITS)}.")


@contextmanager
def raised_limits(values: Mapping[str, int]) -> Iterator[None]:
    """Read with other limits for a while.

    Args:
        values: by name; all others stay.

    Raises:
        UsageError: there is no such limit.
    """
    check_names(values)
    token = _RAISED.set({**_RAISED.get(), **values})
    try:
        yield
    finally:
        _RAISED.reset(token)


def current_limits() -> Mapping[str, int]:
    """Return the limits that are not the usual ones, for ``raised_limits`` in another process."""
    return _RAISED.get()
