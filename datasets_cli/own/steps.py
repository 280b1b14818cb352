"""Steps of one's own as rows of a dataset: converted as a publisher's, and known by their hash."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from datasets_cli.errors import UsageError, argument, for_reader
from datasets_cli.quantities import counted
from datasets_cli.schema.columns import REWARD, TRAJECTORY_END, Key, show_key
from datasets_cli.schema.texts import as_text, is_text
from datasets_cli.schema.transitions import Transitions, iterate_rows
from datasets_cli.sources.disk import make_folder
from datasets_cli.store.arrays import plain_numbers
from datasets_cli.store.content import SUCCESSOR_RULE_VERSION
from datasets_cli.store.layouts.ted_writer import Written
from datasets_cli.store.manifest import Manifest
from datasets_cli.store.writer import LayoutWriter
from datasets_cli.version import TOOL

StepColumns = dict[Key, np.ndarray]
"""Steps ``[n, ...]`` as the Blocks of recipes have them; ``TRAJECTORY_END`` is always there."""


@dataclass(frozen=True)
class WrittenSteps:
    """The files of a dataset, and what was read of its steps."""

    written: Written
    transitions: Transitions
    digest: StepDigest
    notes: list[str]

    def manifest(
        self,
        id: str,
        source: Mapping[str, Any],
        metadata: Mapping[str, Any],
        earlier: Iterable[Mapping[str, Any]] = (),
    ) -> Manifest:
        """Return the manifest of the dataset, whose source no recipe can fetch."""
        resource = {**source, "url": "", "columns_sha256": self.digest.hex()}
        return Manifest(
            id=id,
            **vars(self.written),
            resources=(*earlier, resource),
            recipe={"family": id.partition("/")[0], "version": 1},
            successors={**self.transitions.rule, "version": SUCCESSOR_RULE_VERSION},
            metadata=metadata,
            tool=TOOL,
        )


def write_steps(
    folder: Path,
    id: str,
    layout: str | None,
    steps: Iterable[StepColumns],
    on_rows: Callable[[int], None],
    before: Iterable[StepColumns] = (),
) -> WrittenSteps:
    """Write the rows of steps into a new folder, after rows that are complete."""
    make_folder(folder.parent)
    transitions, digest = Transitions(id, needs_rewards=False), StepDigest()
    new = iterate_rows(transitions, map(digest.take, steps))
    with LayoutWriter(layout, folder, id) as writer:
        for rows in chain(before, new):
            writer.write(rows)
            on_rows(writer.num_rows)
        notes = [*writer.notes, *transitions.notes]
        return WrittenSteps(writer.finish({}), transitions, digest, notes)


class StepDigest:
    """Steps, counted and hashed column by column: the same for any blocks."""

    def __init__(self) -> None:
        self.num_steps = self.num_episodes = 0
        self._columns: dict[Key, Any] = {}
        # Hashing lets the interpreter go: a block is hashed while the next one is written.
        self._thread = ThreadPoolExecutor(1)
        self._hashed: Future[Any] = self._thread.submit(int)

    def take(self, columns: StepColumns) -> StepColumns:
        """Add steps, and return them."""
        self._hashed.result()  # no more than one block is kept for its hash
        self._hashed = self._thread.submit(self._hash, columns)
        self.num_steps += len(columns[TRAJECTORY_END])
        self.num_episodes += int(columns[TRAJECTORY_END].sum())
        return columns

    def hex(self) -> str:
        """Return the sha256 of all columns' digests, 64 hexadecimal digits."""
        self._hashed.result()
        self._thread.shutdown()
        parts = (self._columns[key].digest() for key in sorted(self._columns))
        return hashlib.sha256(b"".join(parts)).hexdigest()

    def _hash(self, columns: StepColumns) -> None:
        for key, values in columns.items():
            kind = f"{'.'.join(key)} {values.dtype} {values.shape[1:]}"
            digest = self._columns.setdefault(key, hashlib.sha256(kind.encode()))
            data = _text_bytes(key, values) if is_text(values) else np.ascontiguousarray(values)
            digest.update(data)


class FiniteCheck:
    """Counts the steps whose action or reward is NaN or infinite, or refuses the first one."""

    def __init__(self, *, strict: bool, what: str = "") -> None:
        self._strict, self._what = strict, what
        self._count = self._num_steps = 0
        self._first = ""

    def take(self, columns: StepColumns) -> StepColumns:
        """Check steps, and return them."""
        size = len(next(iter(columns.values())))
        wrong = np.zeros(size, np.bool_)
        for key, rows in columns.items():
            values = plain_numbers(rows) if key == REWARD or key[0] == "action" else None
            if values is None or values.dtype.kind not in "fc" or np.isfinite(values).all():
                continue
            wrong |= (own := ~np.isfinite(values).reshape(size, -1).all(1))
            if not self._first:
                step = int(own.argmax())
                value = values[step][~np.isfinite(values[step])].flat[0]
                self._first = f"{show_key(key)} is {value} in step {self._num_steps + step:,}"
        if self._strict and self._first:
            raise UsageError(
                f"{self._what}{self._first}. Expected finite actions and rewards, which "
                f"{argument('strict', 'True')} asks for. Correct the values, or leave it out."
            )
        self._count += int(wrong.sum())
        self._num_steps += size
        return columns

    @property
    def notes(self) -> list[str]:
        """What a person should know of the values; empty where all are finite."""
        steps = counted(self._count, "step")
        note = (
            f"actions or rewards are NaN or infinite in {steps}: {self._first}; "
            f"{for_reader(argument('strict', 'True'))} refuses them"
        )
        return [note] if self._count else []


def _text_bytes(key: Key, values: np.ndarray) -> bytes:
    # Bytes that are not UTF-8 stand in a str as escapes.
    return "\0".join([*as_text(key, values).flat, ""]).encode(errors="surrogatepass")


def array_of(values: Any, what: str) -> np.ndarray:
    """Return values as an array, none of which is masked."""
    torch = sys.modules.get("torch")
    try:
        if torch and isinstance(values, torch.Tensor) and not values.requires_grad:
            from datasets_cli.schema.bits import to_array  # also of types that numpy lacks

            values = to_array(values)
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:  # ragged lists; a tensor with gradients
        raise UsageError(f"{what} is no array: {error}.") from error
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise UsageError(f"{what} has masked values, which no dataset keeps. Fill them first.")
    return array
