"""Duplicates: trajectories that stand in a dataset twice, or have the number of another."""

from __future__ import annotations

import hashlib
from array import array
from dataclasses import dataclass, field

import numpy as np

from datasets_cli.audit.rules.finding import Finding
from datasets_cli.audit.rules.rows import AuditedRows
from datasets_cli.audit.rules.rule import About, RowNumbers, Rule, rule
from datasets_cli.schema.columns import REWARD, Key
from datasets_cli.store.layouts.records import is_frame

NUMBERS = ("checkpoint_idx", "episode_idx", "episode_id", "episode_index")
"""Names of columns that number trajectories; together where there are several."""
MOST_TRAJECTORIES = 400_000
"""That are compared: 8 bytes of digest and 8 of a number each."""


@dataclass
class Duplicates:
    """The digest of each trajectory."""

    keys: frozenset[Key]
    digests: array[int] = field(default_factory=lambda: array("Q"))
    firsts: array[int] = field(default_factory=lambda: array("q"))
    num_left_out: int = 0
    _open: hashlib._Hash = field(default_factory=hashlib.sha256)

    def observe(self, rows: AuditedRows) -> None:
        packed = np.concatenate(
            [
                np.ascontiguousarray(rows.columns[key]).reshape(len(rows), -1).view(np.uint8)
                for key in sorted(self.keys)
            ],
            axis=1,
        )
        # Two trajectories of one row may well be equal: they are not compared.
        ends = np.flatnonzero(rows.is_last & ~rows.is_first)
        firsts = rows.starts[rows.trajectory[ends]]
        begins = np.maximum(firsts - rows.first, 0).tolist()
        for first, begin, end in zip(firsts.tolist(), begins, ends.tolist(), strict=True):
            self._open.update(packed[begin : end + 1].data)
            self._close(first)
        if not rows.is_last[-1]:
            last = max(int(rows.starts[rows.trajectory[-1]]) - rows.first, 0)
            self._open.update(packed[last:].data)

    def _close(self, first: int) -> None:
        if len(self.digests) < MOST_TRAJECTORIES:
            self.digests.append(int.from_bytes(self._open.digest()[:8], "little"))
            self.firsts.append(first)
        else:
            self.num_left_out += 1
        self._open = hashlib.sha256()

    def conclude(self, rule: Rule) -> Finding | None:
        again = _again(np.asarray(self.digests)[:, None], np.asarray(self.firsts))
        left = f"{self.num_left_out:,} trajectories were not compared" * bool(self.num_left_out)
        return rule.found(again, left)


@dataclass
class Numbered:
    """The number that each trajectory was given."""

    keys: frozenset[Key]
    numbers: list[np.ndarray] = field(default_factory=list)
    firsts: RowNumbers = field(default_factory=RowNumbers)

    def observe(self, rows: AuditedRows) -> None:
        at = np.flatnonzero(rows.is_first)[: max(0, MOST_TRAJECTORIES - self.firsts.count)]
        columns = [rows.columns[key].reshape(len(rows), 1)[at] for key in sorted(self.keys)]
        self.numbers.append(np.concatenate(columns, 1))
        self.firsts.add(rows.numbers[at])

    def conclude(self, rule: Rule) -> Finding | None:
        return rule.found(_again(np.concatenate(self.numbers), self.firsts.rows))


def _again(values: np.ndarray, firsts: np.ndarray) -> RowNumbers:
    """Return the first rows of trajectories of which an earlier one has the same values."""
    _, earliest = np.unique(values, axis=0, return_index=True)
    again = RowNumbers()
    again.add(np.delete(firsts, earliest))
    return again


def _begin(about: About) -> Duplicates | None:
    keys = frozenset(
        each.key
        for each in about.columns
        if (each.key[0] in ("observation", "action") or each.key == REWARD)
        and not is_frame(each.dtype, each.shape)
        and each.row_bytes
    )
    return Duplicates(keys) if any(key[0] == "observation" for key in keys) else None


def _numbered(about: About) -> Numbered | None:
    keys = frozenset(key for name in NUMBERS if about.has_number(key := ("info", name)))
    return Numbered(keys) if keys else None


RULES = (
    rule("duplicate-trajectory", _begin),
    rule("duplicate-number", _numbered),
)
