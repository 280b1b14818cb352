"""What the fields of a pipeline may be: sizes, casts, names, numbers; no dataset is looked at."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from datasets_cli.errors import UsageError

FLOATS = ("float16", "bfloat16", "float32", "float64")
TYPES = (*FLOATS, "bool", "uint8", "int8", "int16", "int32", "int64")
"""What a column can be cast to."""

_SIZE = re.compile(r"([1-9]\d{0,4})x([1-9]\d{0,4})")


@dataclass(frozen=True)
class Cast:
    """One cast."""

    key: str | None
    dtype: str

    @classmethod
    def of(cls, text: str) -> Cast:
        """Return the cast that ``float32`` or ``action=int64`` means."""
        key, equals, dtype = text.rpartition("=")
        if dtype not in TYPES or (equals and not key):
            raise UsageError(
                f"cast is {text!r}; expected TYPE or KEY=TYPE, such as float32 or action=int64, "
                f"of the types {', '.join(TYPES)}"
            )
        if not key and dtype not in FLOATS:
            raise UsageError(
                f"cast is {text!r}, which would be for columns of floating-point numbers, and cut "
                f"them. Name the column: action={dtype}"
            )
        return cls(key or None, dtype)


def texts_of(name: str, value: object) -> tuple[str, ...]:
    """Return several texts; commas separate those of one text."""
    several: Sequence[object] = value.split(",") if isinstance(value, str) else ()
    if isinstance(value, list | tuple):
        several = value
    texts = tuple(text.strip() for text in several if isinstance(text, str))
    is_known = isinstance(value, str | list | tuple) and len(texts) == len(several)
    if not is_known or not all(texts) or len({*texts}) < len(texts):
        raise UsageError(f"{name} is {value!r}; expected texts, each once")
    return texts


def size_of(name: str, value: object) -> tuple[int, int] | None:
    """Return height and width of ``"HxW"``; None of None."""
    if value is None:
        return None
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise UsageError(f"{name} is {value!r}; expected height and width in pixels, such as 64x64")
    return int(found[1]), int(found[2])


def checked_steps(value: object) -> None:
    """Check a number of steps."""
    if value is not None and (type(value) is not int or value < 1):
        raise UsageError(f"n_step is {value!r}; expected a whole number from 1 on")


def checked_gamma(value: object) -> float:
    """Return a discount as a float."""
    if type(value) not in (int, float) or not 0 < float(value) <= 1:  # type: ignore[arg-type]
        raise UsageError(f"gamma is {value!r}; expected a number above 0 and up to 1")
    return float(value)  # type: ignore[arg-type]


def pairs_of(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Return old and new names."""
    pairs = []
    for text in texts:
        old, equals, new = text.partition("=")
        if not (old and equals and new):
            raise UsageError(f"rename is {text!r}; expected OLD=NEW, such as observation=state")
        pairs.append((old, new))
    names = [name for pair in pairs for name in pair]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(
            f"rename has {', '.join(twice)} twice. Give each column one new name; to exchange two "
            "names takes two calls"
        )
    return pairs
