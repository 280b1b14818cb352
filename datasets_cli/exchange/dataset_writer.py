"""Writes a user's own dataset: from arrays, from steps, or episode by episode."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from itertools import islice
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import numpy as np

from datasets_cli.catalogue.entries import families
from datasets_cli.config import RootOptions
from datasets_cli.core.checked_json import WrongValue, decode
from datasets_cli.core.options import takes_fields
from datasets_cli.core.progress import Note, Progress, ProgressOptions
from datasets_cli.core.progress_display import displayed
from datasets_cli.errors import (
    DamagedDataset,
    NotWritable,
    RldsError,
    SourceError,
    UsageError,
    WrongRows,
    argument,
    wrong_value,
)
from datasets_cli.exchange.columns import check_lengths, episode_steps, named_columns
from datasets_cli.exchange.steps import (
    FiniteCheck,
    StepColumns,
    trajectory_ends,
    write_steps,
)
from datasets_cli.install.find import Condition, condition_of
from datasets_cli.install.options import LAYOUT, InstalledDataset, check_layout
from datasets_cli.schema.columns import (
    DONE,
    EPISODE,
    TRAJECTORY_END,
    Key,
    element_type,
    numpy_dtype,
    rows_per_block,
    show_key,
)
from datasets_cli.schema.steps import StepCheck
from datasets_cli.schema.texts import TEXT, decode_text, encode_text, is_text
from datasets_cli.schema.transitions import Transitions, iterate_rows
from datasets_cli.sources.disk import disk_errors, make_folder
from datasets_cli.sources.new_files import replacing
from datasets_cli.store.cache_root import CacheRoot, check_id, has_manifest
from datasets_cli.store.commit import check_place, commit, restore, sweep
from datasets_cli.store.content import source_digest
from datasets_cli.store.lock import locked
from datasets_cli.store.manifest import OWN, Manifest, Metadata

COLUMNS, EPISODES = "columns.json", "episodes"

Form = tuple[str | None, tuple[int, ...]]
"""The dtype and the shape of a step of a column."""


class Journal:
    """The added episodes of an unfinished dataset, on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.num_episodes = 0
        self._forms: dict[Key, Form] = {}
        self._last = [0]  # the last row of the file `episodes`
        self._files = ExitStack()
        self._descriptors: list[int] = []  # of the columns, then of `episodes`
        if (folder / COLUMNS).exists():
            self._continue()

    @property
    def num_steps(self) -> int:
        """The number of steps of all added episodes."""
        return self._last[0]

    def add(self, episode: StepColumns) -> None:
        """Append the steps of an episode, which must have the columns of the earlier episodes."""
        forms = _forms(episode)
        if self.num_episodes and forms != self._forms:
            raise _episode_difference(self.num_episodes, forms, self._forms)
        data = [_bytes_of(episode[key], kind) for key, (kind, _) in forms.items()]
        with disk_errors(self.folder):
            if not self.num_episodes:
                self._start(forms)
            stops = (end + len(each) for end, each in zip(self._last[1:], data, strict=True))
            row = [self.num_steps + len(episode[TRAJECTORY_END]), *stops]
            try:
                data.append(np.array(row, "<i8").view(np.uint8).data)
                for descriptor, each in zip(self._descriptors, data, strict=True):
                    _write(descriptor, each)
            except BaseException:  # a full disk
                self._cut()
                raise
        self.num_episodes, self._last = self.num_episodes + 1, row

    def blocks(self) -> Iterator[StepColumns]:
        """Yield all steps in blocks."""
        ends = np.zeros(self.num_steps, np.bool_)
        ends[self._rows()[:, 0] - 1] = True
        size = rows_per_block(sum(self._last[1:]) // max(1, self.num_steps))
        with ExitStack() as opened:
            read = {
                key: _reader(opened.enter_context((self.folder / str(number)).open("rb")), *form)
                for number, (key, form) in enumerate(self._forms.items())
            }
            for start in range(0, self.num_steps, size):
                flags = ends[start : start + size]
                yield {**{key: read[key](len(flags)) for key in read}, TRAJECTORY_END: flags}

    @property
    def fingerprint(self) -> str:
        """The sha256 of the columns and the lengths of the episodes; empty without episodes."""
        if not self.num_episodes:
            return ""
        files = (self.folder / name for name in (COLUMNS, EPISODES))
        return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()

    def close(self) -> None:
        """Close the files; the episodes stay on disk."""
        self._files.close()

    def remove(self) -> None:
        """Delete the episodes."""
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.num_episodes, self._last = 0, [0]

    def _start(self, forms: dict[Key, Form]) -> None:
        """Create the files; files that a killed writer left are emptied."""
        listed = [(key, *form) for key, form in forms.items()]
        make_folder(self.folder)
        with replacing(self.folder / COLUMNS) as new:
            new.write_text(json.dumps(listed), encoding="utf-8")
        self._open(forms)
        self._cut()

    def _continue(self) -> None:
        """Count the complete episodes, and truncate the files after the last of them."""
        try:
            listed = json.loads((self.folder / COLUMNS).read_text(encoding="utf-8"))
            self._open({tuple(key): (kind, tuple(shape)) for key, kind, shape in listed})
            rows = self._rows()
            sizes = [os.fstat(each).st_size for each in self._descriptors[:-1]]
            wrong = np.flatnonzero((rows[:, 1:] > sizes).any(1))
            self.num_episodes = int(wrong[0]) if wrong.size else len(rows)
            if self.num_episodes:
                self._last = rows[self.num_episodes - 1].tolist()
            self._cut()
        except (OSError, ValueError, TypeError) as error:
            raise RldsError(
                f"{self.folder} has episodes of a killed writer and cannot be read ({error}).",
                path=self.folder,
                advice="Delete the folder to start again.",
            ) from error

    def _open(self, forms: dict[Key, Form]) -> None:
        self.close()
        self._forms, self._last, self._descriptors = forms, [0] * (1 + len(forms)), []
        for name in (*map(str, range(len(forms))), EPISODES):
            file = self._files.enter_context((self.folder / name).open("ab", buffering=0))
            self._descriptors.append(file.fileno())

    def _cut(self) -> None:
        stops = (*self._last[1:], self.num_episodes * 8 * len(self._last))
        for descriptor, stop in zip(self._descriptors, stops, strict=True):
            # Once a file was truncated to zero bytes, ext4 flushes it to the disk on each close.
            if os.fstat(descriptor).st_size != stop:
                os.truncate(descriptor, stop)

    def _rows(self) -> np.ndarray:
        rows, width = np.fromfile(self.folder / EPISODES, "<i8"), len(self._last)
        return rows[: len(rows) // width * width].reshape(-1, width)


def _forms(episode: StepColumns) -> dict[Key, Form]:
    return {
        key: (TEXT if is_text(values) else element_type(values.dtype), values.shape[1:])
        for key, values in sorted(episode.items(), key=lambda item: item[0])
        if key != TRAJECTORY_END
    }


def _bytes_of(values: np.ndarray, kind: str | None) -> memoryview:
    if kind == TEXT:
        for text in filter(lambda each: isinstance(each, str), values.flat):
            encode_text(text)  # rejects text that a dataset cannot store
        lines = [f"{json.dumps(each, default=decode_text)}\n" for each in values.tolist()]
        return memoryview("".join(lines).encode())
    # A view as bytes: not every dtype of numpy has a buffer.
    return np.ascontiguousarray(values, numpy_dtype(kind)).reshape(-1).view(np.uint8).data


def _write(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _reader(file: Any, kind: str | None, shape: tuple[int, ...]) -> Any:
    if kind == TEXT:
        lines = map(json.loads, file)
        return lambda count: np.array([*islice(lines, count)], object).reshape(count, *shape)
    dtype, size = numpy_dtype(kind), int(np.prod(shape, dtype=np.int64))
    return lambda count: np.fromfile(file, dtype, count * size).reshape(count, *shape)


def _episode_difference(number: int, forms: dict[Key, Form], known: dict[Key, Form]) -> WrongRows:
    """Return the error of an episode whose columns differ from earlier episodes."""
    key = min(key for key in forms.keys() | known.keys() if forms.get(key) != known.get(key))
    now, before = (
        f"{each[key][0]} {list(each[key][1])}" if key in each else "missing"
        for each in (forms, known)
    )
    return WrongRows(
        f"Episode {number} differs from the {number} before it: {show_key(key)} is {now}, expected "
        f"{before}.",
        key=key,
        expected=before,
        found=now,
        advice="Every episode must have the same columns.",
    )


T = TypeVar("T")

RESERVED = frozenset({"demo", "derived", "recorded"})
MOST_INFO_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class OwnOptions(ProgressOptions, RootOptions):
    """How a user's data are written as a dataset.

    Args:
        info: metadata, as JSON values: ``title``, ``licence``, ``citation``,
            ``env_spec``, ``ref_min_score``, ``ref_max_score`` and anything else.
        layout: ``"ted"`` or ``"compact"``; None for compact if there are frames, else ted.
        force: replace a dataset of this id that holds other data.
        strict: reject actions and rewards that are NaN or infinite, instead of counting them.
    """

    info: Mapping[str, Any] | None = field(default=None, metadata={"typed": None})
    layout: str | None = field(default=None, metadata=LAYOUT)
    force: bool = field(
        default=False, metadata={"help": "Replace a dataset of this name whose data differs."}
    )
    strict: bool = field(
        default=False,
        metadata={"help": "Reject NaN and infinite actions and rewards instead of counting them."},
    )

    def __post_init__(self) -> None:
        check_layout(self.layout)
        checked_info(self.info)


@contextmanager
def making(id: str, options: OwnOptions) -> Iterator[Progress]:
    """Hold the lock of a new dataset, and yield its progress."""
    config = options.chosen_config()
    root = CacheRoot(config.root)
    with (
        displayed(options.progress) as progress,
        locked(root.lock(id), id, config.lock_timeout, progress),
    ):
        restore(root, id)
        check_place(root, id)
        yield progress


def own_id(id: str) -> str:
    """Return the id of a user's dataset, once its family is not reserved."""
    family, _, name = check_id(id).partition("/")
    if not name:
        raise UsageError(
            f"{id!r} has no family. Expected family/name, such as 'mine/{id}'.",
            argument="id",
            id=id,
            expected=f"mine/{id}",
            found=id,
            advice="Choose any word as the family.",
        )
    if family in RESERVED or family in families():
        raise UsageError(
            f"{id!r} has the reserved family {family}.",
            argument="id",
            id=id,
            expected=f"mine/{name}",
            found=id,
            advice=f"Choose another family, such as 'mine/{name}'.",
        )
    return id


def checked_info(info: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the metadata, once a manifest can store it."""
    try:
        text = json.dumps(dict(info or {}), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"{argument('info')} must have JSON values: {error}.",
            argument="info",
            expected="JSON values",
        ) from error
    if len(text) > MOST_INFO_BYTES:
        raise wrong_value(
            "info",
            f"at most {MOST_INFO_BYTES:,} bytes as JSON",
            len(text),
            "Store it as a separate file.",
        )
    try:
        return dict(decode(cast("Any", Metadata), json.loads(text), argument("info")))
    except WrongValue as error:
        raise UsageError(f"{error}.", argument="info", **error.details) from error


def save_steps(
    id: str,
    steps: Iterable[StepColumns],
    options: OwnOptions,
    progress: Progress,
    source: Callable[[], Mapping[str, Any]] = lambda: {"filename": "steps"},
    names: Mapping[Key, str] | None = None,
    notes: Iterable[str] = (),
) -> InstalledDataset:
    """Write steps as a dataset, whose lock the caller holds, and commit it."""
    # source: called after the last step; returns the manifest's entry for the source of the steps.
    # notes: further notes of the manifest.
    root = CacheRoot(options.chosen_config().root)
    staging, folder = root.new_staging(id), root.dataset(id)
    check = FiniteCheck(strict=options.strict)
    steps = map(check.take, steps)
    write = partial(write_steps, staging, id, options.layout, progress=progress)
    written = _rejected_rows(steps, lambda read: write(steps=read))
    try:
        written.notes.extend(notes)
        metadata = {**checked_info(options.info), "notes": [*written.notes]}
        manifest = written.manifest(id, {**source(), "checked": OWN}, metadata, names=names)
        current = condition_of(folder, id) if has_manifest(folder) else Condition(None)
        older, new = current.manifest, (manifest.content, manifest.layout)
        is_same = older is not None and (older.content, older.layout) == new
        if current.problem and older is None and not options.force:
            raise DamagedDataset(current.problem, id=id, path=folder)
        if older is not None and not (options.force or is_same):
            raise _other_data(older, manifest)
        if recorded := manifest.recorded_steps:
            written.notes.append(
                f"{recorded}; if you pass next_observation, each step is a transition"
            )
        for note in (*written.notes, *check.notes):
            progress(Note(f"{id}: {note}"))
        described = (manifest.metadata, manifest.resources, manifest.recorded)
        is_described = older and (older.metadata, older.resources, older.recorded) == described
        if older and is_described and not (options.force or current.problem):
            progress(Note(f"{id} is up to date: it has the same data"))
            return InstalledDataset.of(folder, older)
        commit(root, staging, manifest)
    finally:
        sweep(staging)
    return InstalledDataset.of(folder, manifest)


def count_steps(id: str, steps: Iterable[StepColumns], options: OwnOptions) -> InstalledDataset:
    """Read and check steps as ``save_steps`` does; return the dataset that it would install."""
    transitions, check = Transitions(id, needs_rewards=False), FiniteCheck(strict=options.strict)
    steps = map(check.take, steps)
    done = _rejected_rows(
        steps, lambda read: [*map(itemgetter(DONE), iterate_rows(transitions, read))]
    )
    with displayed(options.progress) as progress:
        for note in (*transitions.notes, *check.notes):
            progress(Note(f"{id}: {note}"))
    return InstalledDataset(
        id,
        CacheRoot(options.chosen_config().root).dataset(id),
        num_transitions=sum(map(len, done)),
        num_trajectories=sum(int(flags.sum()) for flags in done),
        size_bytes=0,
        layout=options.layout or "",
        state="not installed",
        final_steps=transitions.num_final,
        final_steps_alone=transitions.num_alone,
    )


def _rejected_rows(steps: Iterable[StepColumns], use: Callable[[Iterator[StepColumns]], T]) -> T:
    """Call ``use`` with the steps; a ``SourceError`` that they did not raise is ``WrongRows``."""
    damage: list[SourceError] = []

    def read() -> Iterator[StepColumns]:
        try:
            yield from steps
        except SourceError as error:
            damage.append(error)
            raise

    try:
        return use(read())
    except SourceError as error:
        if error in damage:
            raise
        raise error.as_kind(WrongRows) from error


def _other_data(older: Manifest, newer: Manifest) -> NotWritable:
    expected, found = _summary(older), _summary(newer)
    return NotWritable(
        f"{older.id} is installed {_difference(older, newer)}: {expected}. The new data are "
        f"{found}.",
        id=older.id,
        expected=expected,
        found=found,
        advice=f"Replace it with {argument('force', 'True')}, or choose another name.",
    )


def _difference(older: Manifest, newer: Manifest) -> str:
    if older.content == newer.content:
        return "in another layout"
    digests = [[*map(source_digest, each.resources)] for each in (older, newer)]
    return "from another file" if digests[0] == digests[1] else "with other columns"


def _summary(manifest: Manifest) -> str:
    source = manifest.resources[-1] if manifest.resources else {}
    steps = f"{manifest.num_transitions:,} transitions of {source.get('filename', 'other data')}"
    return f"{steps} in the layout {manifest.layout}"


@dataclass(frozen=True)
class WriterCall(OwnOptions):
    """The arguments of ``DatasetWriter``.

    Args:
        id: ``family/name``; the family is any word but a published family.
    """

    id: str


class DatasetWriter:
    """Writes your own dataset, an episode at a time, in a ``with`` statement.

        with DatasetWriter("mine/robot") as writer:
            for number in range(writer.num_episodes, 100):
                writer.add_episode({"observation": ..., "action": ..., "reward": ...})
        writer.dataset.path

    Each episode is on disk when ``add_episode`` returns. A killed program can run again: it resumes
    at ``num_episodes``, and the dataset is the same as without the kill. The dataset is installed
    when the ``with`` statement ends without an error.

    Raises:
        UsageError: the family of the id is published, or the id is installed and ``force`` is not
            set.
        LockedError: another process writes this dataset.
    """

    @takes_fields(WriterCall)
    def __init__(self, options: WriterCall) -> None:
        self._options, self._id = options, own_id(options.id)
        self._root = CacheRoot(options.chosen_config().root)
        self._held = ExitStack()
        self._journal: Journal | None = None
        self.dataset: InstalledDataset | None = None

    def __enter__(self) -> Self:
        with ExitStack() as held:
            self._progress = held.enter_context(making(self._id, self._options))
            journal = Journal(self._root.downloads(self._id))
            held.callback(journal.close)
            self._check_installed(journal)
            self._journal, self._held = journal, held.pop_all()
        if journal.num_episodes:
            text = f"{self._id}: resumes after {journal.num_episodes:,} episodes"
            self._progress(Note(f"{text} of a stopped writer; discard() deletes them"))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._held:
            journal, self._journal = self._opened, None
            if kind is not None:
                return
            if not journal.num_episodes:
                raise WrongRows(
                    f"{self._id} has no episodes.",
                    id=self._id,
                    advice="Call add_episode() before the with statement ends.",
                )
            source = {"filename": "steps", "validator": journal.fingerprint}
            self.dataset = save_steps(
                self._id, journal.blocks(), self._options, self._progress, lambda: source
            )
            journal.remove()

    @property
    def num_episodes(self) -> int:
        """The number of added episodes, including episodes of a killed writer."""
        return self._opened.num_episodes

    @property
    def num_steps(self) -> int:
        """The number of steps of these episodes."""
        return self._opened.num_steps

    def add_episode(self, columns: Mapping[Any, Any]) -> int:
        """Add the steps of one whole episode, and write them to disk.

        Args:
            columns: arrays ``[T, ...]`` by name, as in ``create_dataset``. ``observation`` may have
                T + 1 rows, the last of them after the last action. ``terminated`` and
                ``truncated`` may be one flag for the last step. A TensorDict of ``episode()`` of a
                dataset is accepted, too.

        Returns:
            The number of added episodes.

        Raises:
            UsageError: the columns differ from earlier episodes or in length, observation or action
                is missing, flags are not 0 and 1, or with ``strict`` an action or a reward is not
                finite.
        """
        journal = self._opened
        name = f"Episode {journal.num_episodes}"
        steps = episode_steps(columns, name)
        if self._options.strict:
            FiniteCheck(strict=True, what=f"{name}: ").take(steps)
        try:
            StepCheck(f"{self._id}: {name}", needs_rewards=False).checked(steps)
            journal.add(steps)
        except SourceError as error:
            raise error.as_kind(WrongRows) from error  # rows of the user, not a damaged file
        return journal.num_episodes

    def discard(self) -> None:
        """Delete the added episodes."""
        self._opened.remove()

    def _check_installed(self, journal: Journal) -> None:
        """Delete episodes that were committed already; reject an installed id without ``force``."""
        if not has_manifest(folder := self._root.dataset(self._id)):
            return
        manifest = condition_of(folder, self._id).manifest  # None if it is damaged
        known = [source.get("validator") for source in manifest.resources] if manifest else []
        if journal.num_episodes and journal.fingerprint in known:
            journal.remove()  # the writer was killed after the commit
        if not self._options.force:
            raise NotWritable(
                f"{self._id} is installed.",
                id=self._id,
                advice=f"Replace it with {argument('force', 'True')}, or choose another name.",
            )

    @property
    def _opened(self) -> Journal:
        if self._journal is None:
            raise NotWritable(
                f"The writer of {self._id} is not open.",
                id=self._id,
                advice="Use it in a with statement: with DatasetWriter(...) as writer.",
            )
        return self._journal


@dataclass(frozen=True)
class CreateCall(OwnOptions):
    """The arguments of ``create_dataset``.

    Args:
        id: ``family/name``; the family is any word but a published family.
        columns: arrays ``[N, ...]`` of all steps, trajectory after trajectory, by name, by tuple of
            names, or in nested dicts: ``observation`` and ``action``, and if known ``reward``,
            ``terminated``, ``truncated`` and ``next_observation``, as ``step()`` returns them. Any
            other name is a column, too, such as ``("info", "success")`` or ``"info.success"``. The
            result of ``to_numpy()`` of a dataset or a view is accepted unchanged.
        ends: bool ``[N]``, whether a step is the last of its trajectory.
        lengths: int ``[K]``, the steps of each trajectory.
        episode: int ``[N]``, the number of the trajectory of each step.
    """

    id: str
    columns: Mapping[Any, Any]
    _: KW_ONLY
    ends: Any = None
    lengths: Any = None
    episode: Any = None


@takes_fields(CreateCall)
def create_dataset(call: CreateCall) -> InstalledDataset:
    """Write arrays as your own dataset, and install it like any other.

    Trajectories end according to one of ``ends``, ``lengths`` and ``episode``, to the columns
    ``terminated`` and ``truncated``, or to the column ``episode`` of rows of another dataset.
    Values are stored bit for bit. Without ``next_observation``, the last step of a truncated
    trajectory is dropped, because its next observation is unknown.

    Raises:
        UsageError: a column cannot be stored, observation or action is missing, flags are not 0
            and 1, the ends of trajectories are missing or contradictory, the family of the id is
            published, or the id is installed with other data.
    """
    call.chosen_config()  # rejects root together with config
    id, columns = own_id(call.id), named_columns(call.columns)
    num_steps = check_lengths(columns, "columns")
    episode = columns.pop(EPISODE, None)
    if call.episode is not None or call.ends is not None or call.lengths is not None:
        episode = call.episode
    ends = trajectory_ends(columns, num_steps, call.ends, call.lengths, episode)
    columns[TRAJECTORY_END] = ends
    size = rows_per_block(sum(values.nbytes for values in columns.values()) // max(1, num_steps))
    blocks = (
        {key: values[start : start + size] for key, values in columns.items()}
        for start in range(0, num_steps, size)
    )
    with making(id, call) as progress:
        return save_steps(id, blocks, call, progress)
