"""Converts a user's steps to the rows of a dataset, and computes their hash."""

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

from datasets_cli.core.progress import Progress, Rows
from datasets_cli.core.quantities import counted
from datasets_cli.errors import (
    UsageError,
    WrongRows,
    argument,
    by_reader,
    for_reader,
)
from datasets_cli.schema.columns import (
    EPISODE,
    REWARD,
    TERMINATED,
    TRAJECTORY_END,
    TRUNCATED,
    Key,
    show_key,
)
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
"""Steps ``[n, ...]`` by key, like the blocks of recipes; ``TRAJECTORY_END`` is one of the keys."""


@dataclass(frozen=True)
class WrittenSteps:
    """The files of a new dataset, and the hash and the notes of its steps."""

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
        names: Mapping[Key, str] | None = None,
    ) -> Manifest:
        """Return the manifest of the dataset, which no recipe can download."""
        # names: the names of the columns in the files that determine all of the steps.
        resource = {**source, "url": "", "columns_sha256": self.digest.hex()}
        return Manifest(
            id=id,
            **vars(self.written),
            resources=(*earlier, resource),
            recipe={"family": id.partition("/")[0], "version": 1},
            successors={**self.transitions.rule, "version": SUCCESSOR_RULE_VERSION},
            metadata=metadata,
            recorded=self.transitions.recorded(names or {}),
            tool=TOOL,
        )


def write_steps(
    folder: Path,
    id: str,
    layout: str | None,
    steps: Iterable[StepColumns],
    progress: Progress,
    before: Iterable[StepColumns] = (),
) -> WrittenSteps:
    """Write the complete rows ``before``, then the rows of ``steps``, into a new folder."""
    make_folder(folder.parent)
    digest = StepDigest()
    with LayoutWriter(layout, folder, id) as writer:
        transitions = Transitions(id, needs_rewards=False, final=writer.write_final)
        new = iterate_rows(transitions, map(digest.take, steps))
        for rows in chain(before, new):
            writer.write(rows)
            progress(Rows(id, writer.num_rows))
        progress(Rows(id, writer.num_rows, writer.num_rows))
        notes = [*writer.notes, *transitions.notes]
        return WrittenSteps(writer.finish({}), transitions, digest, notes)


class StepDigest:
    """Counts and hashes steps column by column; the size of the blocks does not matter."""

    def __init__(self) -> None:
        self.num_steps = self.num_episodes = 0
        self._columns: dict[Key, Any] = {}
        # Hashing releases the GIL: a block is hashed while the next one is written.
        self._thread = ThreadPoolExecutor(1)
        self._hashed: Future[Any] = self._thread.submit(int)

    def take(self, columns: StepColumns) -> StepColumns:
        """Add steps, and return them."""
        self._hashed.result()  # at most one block waits for its hash
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
    """Counts the steps whose action or reward is not finite; ``strict`` rejects the first one."""

    def __init__(self, *, strict: bool, what: str = "") -> None:
        self._strict, self._what = strict, what
        self._count = self._num_steps = 0
        self._first = ""
        self._first_step: int | None = None
        self._first_key: Key | None = None

    def take(self, columns: StepColumns) -> StepColumns:
        """Check steps, and return them."""
        size = len(next(iter(columns.values())))
        wrong = np.zeros(size, np.bool_)
        for key, rows in columns.items():
            values = plain_numbers(rows) if key == REWARD or key[0] == "action" else None
            if values is None or values.dtype.kind not in "fc" or np.isfinite(values).all():
                continue
            wrong |= (not_finite := ~np.isfinite(values).reshape(size, -1).all(1))
            if not self._first:
                step = int(not_finite.argmax())
                self._first_step, self._first_key = self._num_steps + step, key
                value = values[step][~np.isfinite(values[step])].flat[0]
                self._first = f"{show_key(key)} is {value} in step {self._num_steps + step:,}"
        if self._strict and self._first:
            raise WrongRows(
                f"{self._what}{self._first}. Expected finite actions and rewards, because of "
                f"{argument('strict', 'True')}.",
                key=self._first_key,
                row=self._first_step,
                expected="finite actions and rewards",
                advice=f"Correct the values, or leave out {argument('strict')}.",
            )
        self._count += int(wrong.sum())
        self._num_steps += size
        return columns

    @property
    def notes(self) -> list[str]:
        """A note with the number of steps that are not finite; empty if all are finite."""
        steps = counted(self._count, "step")
        note = (
            f"actions or rewards are NaN or infinite in {steps}: {self._first}; "
            f"{for_reader(argument('strict', 'True'))} rejects them"
        )
        return [note] if self._count else []


def _text_bytes(key: Key, values: np.ndarray) -> bytes:
    # Bytes that are not UTF-8 are escaped in a str.
    return "\0".join([*as_text(key, values).flat, ""]).encode(errors="surrogatepass")


def array_of(
    values: Any, what: str, *, argument: str | None = None, key: Key | None = None
) -> np.ndarray:
    """Return values as an array; reject masked values."""
    torch = sys.modules.get("torch")
    try:
        if torch and isinstance(values, torch.Tensor) and not values.requires_grad:
            from datasets_cli.schema.bits import to_array  # converts dtypes that numpy lacks, too

            values = to_array(values)
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:  # ragged lists; a tensor with gradients
        raise WrongRows(
            f"{what} is not an array: {error}.",
            argument=argument,
            key=key,
            found=type(values).__name__,
        ) from error
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise WrongRows(
            f"{what} has masked values, which a dataset cannot store.",
            argument=argument,
            key=key,
            expected="values without a mask",
            advice="Fill them first.",
        )
    return array


def trajectory_ends(
    columns: StepColumns, num_steps: int, ends: Any, lengths: Any, episode: Any
) -> np.ndarray:
    """Return whether each step is the last of its trajectory, bool ``[N]``."""
    arguments = {"ends": ends, "lengths": lengths, "episode": episode}
    names = [name for name, values in arguments.items() if values is not None]
    if len(names) > 1:
        raise UsageError(
            f"{' and '.join(map(argument, names))} cannot be combined: each sets the ends of "
            "trajectories.",
            argument=names[1],
            found=names,
            advice="Pass one of them.",
        )
    for name in names:
        array = array_of(arguments[name], argument(name), argument=name)
        numbers = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
        flags = END_FLAGS[name](argument(name), numbers, num_steps)
        return check_flags(flags, columns, 0, name != "ends")
    if not (TERMINATED in columns and TRUNCATED in columns):
        raise UsageError(
            "The ends of trajectories are unknown.",
            argument="ends",
            expected=[*arguments],
            advice=f"Pass {argument('lengths')} (the steps of each trajectory), "
            f"{argument('ends')} (a flag for each step), {argument('episode')} (a number for each "
            "step), or the columns terminated and truncated.",
        )
    return flagged_ends(columns, num_steps)


def flagged_ends(columns: StepColumns, num_steps: int, first: int = 0) -> np.ndarray:
    """Return whether each step is terminated or truncated, bool ``[N]``."""
    # first: the number of the first of these steps.
    ends = np.zeros(num_steps, np.bool_)
    for key in (TERMINATED, TRUNCATED):
        if key in columns:
            ends |= _checked_flags(show_key(key), columns[key], num_steps, first, key)
    return ends


def _checked_flags(
    name: str, flags: np.ndarray, num_steps: int, first: int = 0, key: Key | None = None
) -> np.ndarray:
    problem = flag_problem(flags, first)
    if problem or len(flags) != num_steps:
        found = problem or f"{flags.dtype} {list(flags.shape)}"
        raise WrongRows(
            f"{name}: expected 0 or 1 for each of {num_steps:,} steps, found {found}.",
            argument=None if key else "ends",
            key=key,
            expected="0 or 1",
            found=found,
        )
    return flags.reshape(-1).astype(np.bool_)


def _flags_of_lengths(name: str, counts: np.ndarray, num_steps: int) -> np.ndarray:
    if not counts.size:
        raise WrongRows(
            f"{name}: expected the steps of one trajectory or more, found none.",
            argument="lengths",
            found=[],
        )
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or (counts < 1).any():
        among = f", {counts.min()} among them" if counts.size and counts.dtype.kind in "iu" else ""
        raise WrongRows(
            f"{name}: expected whole numbers of 1 or more, found {counts.dtype} "
            f"{list(counts.shape)}{among}.",
            argument="lengths",
            expected="whole numbers of 1 or more",
            found=counts.dtype,
        )
    if (total := sum(counts.tolist())) != num_steps:  # numpy's own sum may overflow
        raise WrongRows(
            f"{name}: the lengths add up to {total:,} steps, and the columns have {num_steps:,}.",
            argument="lengths",
            expected=num_steps,
            found=total,
        )
    return ends_of(counts)


def _flags_of_numbers(name: str, numbers: np.ndarray, num_steps: int) -> np.ndarray:
    if numbers.shape != (num_steps,):
        raise WrongRows(
            f"{name}: expected a whole number for each of {num_steps:,} steps, "
            f"found {numbers.dtype} {list(numbers.shape)}.",
            argument="episode",
            expected=[num_steps],
            found=[*numbers.shape],
        )
    return ends_of(episode_lengths([numbers], name))


def ends_of(lengths: np.ndarray) -> np.ndarray:
    """Return whether each step is the last of its trajectory, bool ``[N]``, from the lengths."""
    flags = np.zeros(int(lengths.sum()), np.bool_)
    flags[np.cumsum(lengths) - 1] = True
    return flags


def episode_lengths(runs: Iterable[np.ndarray], name: str = "episode") -> np.ndarray:
    """Return the steps of each trajectory, int64 ``[K]``, from runs of the column ``episode``."""
    values, lengths = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for run in runs:
        numbers = run[:, 0] if run.ndim == 2 and run.shape[1] == 1 else run
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
            raise WrongRows(
                f"{name}: expected a whole number for each step, found {run.dtype} "
                f"{list(run.shape)}.",
                key=EPISODE,
                expected="whole numbers",
                found=run.dtype,
            )
        numbers = numbers.astype(np.int64)
        firsts = np.flatnonzero(np.diff(numbers, prepend=~numbers[:1]))
        counts = np.diff(firsts, append=len(numbers))
        if len(firsts) and values[-1][-1:].tolist() == numbers[:1].tolist():
            lengths[-1][-1] += counts[0]  # the last trajectory of the run before continues
            firsts, counts = firsts[1:], counts[1:]
        if len(firsts):
            values.append(numbers[firsts])
            lengths.append(counts)
    # A number that occurs twice here belongs to steps that are not consecutive.
    numbers, counts = np.unique(np.concatenate(values), return_counts=True)
    if (twice := numbers[counts > 1]).size:
        raise WrongRows(
            f"{name}: the steps of episode {twice[0]} are not consecutive.",
            key=EPISODE,
            found=int(twice[0]),
            advice="Sort the rows by episode and step.",
        )
    return np.concatenate(lengths)


def check_flags(
    ends: np.ndarray, columns: StepColumns, first: int = 0, may_be_cut: bool = False
) -> np.ndarray:
    """Return the ends of trajectories, once they agree with the flags of the steps."""
    # first: the number of the first of these steps. may_be_cut: the last step may be the end of the
    # file, without a flag.
    flagged = flagged_ends(columns, len(ends), first)
    # A column truncated is stored unchanged: an end without a flag would become a truncation.
    unflagged = ends & ~flagged & (TRUNCATED in columns)
    if may_be_cut and TERMINATED in columns:
        unflagged[-1:] = False
    if not (wrong := np.flatnonzero((flagged & ~ends) | unflagged)).size:
        return ends
    if unflagged[wrong[0]]:
        leave = by_reader("--map next.truncated=", 'map={"next.truncated": ""} to import')
        raise WrongRows(
            f"Step {first + wrong[0]:,} ends a trajectory and is neither terminated nor truncated.",
            key=TRUNCATED,
            row=first + int(wrong[0]),
            advice="Set one of the two flags where a trajectory ends"
            f"{by_reader(' (--map next.terminated=COLUMN)', '')}, or leave truncated out "
            f"({leave}) if trajectories are cut off.",
        )
    terminations = {key: columns[key] for key in (TERMINATED,) if key in columns}
    key = TERMINATED if flagged_ends(terminations, len(ends))[wrong[0]] else TRUNCATED
    option = f"{show_key(key)}="
    leave = by_reader(f"--map {option}", f'map={{"{show_key(key)}": ""}} to import')
    raise WrongRows(
        f"Step {first + wrong[0]:,} is {key[-1]}, but its trajectory continues.",
        key=key,
        row=first + int(wrong[0]),
        advice=f"Correct the flag or the ends of trajectories, or leave {key[-1]} out ({leave}).",
    )


END_FLAGS: dict[str, Callable[[str, np.ndarray, int], np.ndarray]] = {
    "ends": _checked_flags,
    "lengths": _flags_of_lengths,
    "episode": _flags_of_numbers,
}
