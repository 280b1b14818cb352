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

from datasets_cli.core.quantities import counted
from datasets_cli.errors import UsageError, argument, by_reader, for_reader
from datasets_cli.schema.columns import REWARD, TERMINATED, TRAJECTORY_END, TRUNCATED, Key, show_key
from datasets_cli.schema.steps import flag_problem
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


def trajectory_ends(
    columns: StepColumns, num_steps: int, ends: Any, lengths: Any, episode: Any
) -> np.ndarray:
    """Return which steps are the last of a trajectory, bool ``[N]``."""
    given = {"ends": ends, "lengths": lengths, "episode": episode}
    names = [name for name, values in given.items() if values is not None]
    if len(names) > 1:
        told = " and ".join(map(argument, names))
        raise UsageError(f"{told} both say where trajectories end. Give one.")
    for name in names:
        array = array_of(given[name], argument(name))
        numbers = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
        marks = MARKED[name](argument(name), numbers, num_steps)
        return check_flags(marks, columns, 0, name != "ends")
    if not (TERMINATED in columns and TRUNCATED in columns):
        raise UsageError(
            "Nothing says where trajectories end. Give "
            f"{argument('lengths')} (steps of each trajectory), {argument('ends')} (a flag for "
            f"each step), {argument('episode')} (a number for each step), or the columns "
            "terminated and truncated."
        )
    return flagged_ends(columns, num_steps)


def flagged_ends(columns: StepColumns, num_steps: int, first: int = 0) -> np.ndarray:
    """Return where a step is terminated or truncated, once both are flags."""
    # first: the number of the first of these steps.
    ends = np.zeros(num_steps, np.bool_)
    for key in (TERMINATED, TRUNCATED):
        if key in columns:
            ends |= _of_flags(show_key(key), columns[key], num_steps, first)
    return ends


def _of_flags(name: str, flags: np.ndarray, num_steps: int, first: int = 0) -> np.ndarray:
    problem = flag_problem(flags, first)
    if problem or len(flags) != num_steps:
        found = problem or f"{flags.dtype} {list(flags.shape)}"
        raise UsageError(f"{name}: expected 0 or 1 for each of {num_steps:,} steps, found {found}.")
    return flags.reshape(-1).astype(np.bool_)


def _of_lengths(name: str, counts: np.ndarray, num_steps: int) -> np.ndarray:
    if not counts.size:
        raise UsageError(f"{name}: expected the steps of one trajectory or more, found none.")
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or (counts < 1).any():
        among = f", {counts.min()} among them" if counts.size and counts.dtype.kind in "iu" else ""
        raise UsageError(
            f"{name}: expected whole numbers of 1 or more, found {counts.dtype} "
            f"{list(counts.shape)}{among}."
        )
    if (total := sum(counts.tolist())) != num_steps:  # numpy's own sum may overflow
        raise UsageError(
            f"{name}: expected lengths that are {num_steps:,} together, the steps "
            f"of the columns; found {total:,}."
        )
    return marked(counts)


def _of_numbers(name: str, numbers: np.ndarray, num_steps: int) -> np.ndarray:
    if numbers.shape != (num_steps,):
        raise UsageError(
            f"{name}: expected a whole number for each of {num_steps:,} steps, "
            f"found {numbers.dtype} {list(numbers.shape)}."
        )
    return marked(episode_lengths([numbers], name))


def marked(lengths: np.ndarray) -> np.ndarray:
    """Return which steps are the last of trajectories of some lengths, bool ``[N]``."""
    flags = np.zeros(int(lengths.sum()), np.bool_)
    flags[np.cumsum(lengths) - 1] = True
    return flags


def episode_lengths(runs: Iterable[np.ndarray], name: str = "episode") -> np.ndarray:
    """Return the steps of each trajectory, int64 ``[K]``, by runs of numbers that tell them."""
    values, lengths = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for run in runs:
        numbers = run[:, 0] if run.ndim == 2 and run.shape[1] == 1 else run
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
            raise UsageError(
                f"{name}: expected a whole number for each step, found {run.dtype} "
                f"{list(run.shape)}."
            )
        numbers = numbers.astype(np.int64)
        firsts = np.flatnonzero(np.diff(numbers, prepend=~numbers[:1]))
        counts = np.diff(firsts, append=len(numbers))
        if len(firsts) and values[-1][-1:].tolist() == numbers[:1].tolist():
            lengths[-1][-1] += counts[0]  # the last trajectory of the run before goes on
            firsts, counts = firsts[1:], counts[1:]
        if len(firsts):
            values.append(numbers[firsts])
            lengths.append(counts)
    # Each number once: a second time, its steps are not side by side.
    told, times = np.unique(np.concatenate(values), return_counts=True)
    if (twice := told[times > 1]).size:
        raise UsageError(
            f"{name}: the steps of episode {twice[0]} are not side by side. Sort "
            "the rows by episode and step."
        )
    return np.concatenate(lengths)


def check_flags(
    ends: np.ndarray, columns: StepColumns, first: int = 0, may_be_cut: bool = False
) -> np.ndarray:
    """Return where trajectories end, once no flag is known to say anything else."""
    # first: the number of the first of these steps. may_be_cut: the last one may end the file alone
    flagged = flagged_ends(columns, len(ends), first)
    # Where truncated is given it is kept: an end without a flag would become a truncation.
    unflagged = ends & ~flagged & (TRUNCATED in columns)
    if may_be_cut and TERMINATED in columns:
        unflagged[-1:] = False
    if not (wrong := np.flatnonzero((flagged & ~ends) | unflagged)).size:
        return ends
    if unflagged[wrong[0]]:
        leave = by_reader("--map next.truncated=", 'map={"next.truncated": ""} to import')
        raise UsageError(
            f"Step {first + wrong[0]:,} ends a trajectory by what was given, and its flags say "
            "neither terminated nor truncated. Flags are kept as given: set one of them where a "
            f"trajectory ends{by_reader(' (--map next.terminated=COLUMN)', '')}, or leave "
            f"truncated out ({leave}) where trajectories are cut off."
        )
    terminations = {key: columns[key] for key in (TERMINATED,) if key in columns}
    key = TERMINATED if flagged_ends(terminations, len(ends))[wrong[0]] else TRUNCATED
    option = f"{show_key(key)}="
    leave = by_reader(f"--map {option}", f'map={{"{show_key(key)}": ""}} to import')
    raise UsageError(
        f"Step {first + wrong[0]:,} is {key[-1]}, where what was given says that the trajectory "
        f"goes on. Correct one of the two, or leave {key[-1]} out ({leave})."
    )


MARKED: dict[str, Callable[[str, np.ndarray, int], np.ndarray]] = {
    "ends": _of_flags,
    "lengths": _of_lengths,
    "episode": _of_numbers,
}
