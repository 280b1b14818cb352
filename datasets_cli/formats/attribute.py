"""An attribute: the name, kind and labels of one column of a table file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

NUMERIC, NOMINAL, TEXT = "numeric", "nominal", "text"

NAN = float("nan")

AttributeValue = str | None
"""The text of a value without its quotes; None if it is missing."""


@dataclass(frozen=True)
class Attribute:
    """One column of a table file.

    Args:
        name: without its quotes.
        kind: ``NUMERIC``, ``NOMINAL``, or ``TEXT`` (strings and dates).
        labels: the declared values of a nominal column, in order.
    """

    name: str
    kind: str
    labels: tuple[str, ...] = ()

    def to_floats(self, values: Sequence[AttributeValue]) -> list[float]:
        """Return the values as numbers.

        Raises:
            ValueError, KeyError: a value is not a number, or not a label.
        """
        if self.kind == NOMINAL:
            return list(map(self._positions.__getitem__, values))
        if None in values:
            return [NAN if value is None else float(value) for value in values]
        return list(map(float, values))  # type: ignore[arg-type]  # none of them is None

    def has(self, value: AttributeValue) -> bool:
        """Return whether the column can have this value."""
        try:
            return self.kind == TEXT or bool(self.to_floats([value]))
        except (ValueError, KeyError):
            return False

    @property
    def absent(self) -> AttributeValue:
        """The value of this column in a sparse row that omits it."""
        return "0" if self.kind == NUMERIC else next(iter(self.labels), None)

    @cached_property
    def _positions(self) -> dict[AttributeValue, float]:
        positions: dict[AttributeValue, float] = {
            label: float(i) for i, label in enumerate(self.labels)
        }
        return positions | {None: NAN}
