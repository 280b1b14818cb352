"""Writing a dataset of one's own episode by episode."""

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

from datasets_cli.catalogue.registry import families
from datasets_cli.config import RootOptions
from datasets_cli.core.checked_json import WrongValue, decode
from datasets_cli.core.options import takes_fields
from datasets_cli.core.progress import Progress, ProgressOptions, of_dataset
from datasets_cli.core.progress_bars import shown
from datasets_cli.core.quantities import counted
from datasets_cli.errors import DamagedDataset, RldsError, SourceError, UsageError, argument
from datasets_cli.exchange.columns import check_lengths, episode_steps, named_columns
from datasets_cli.exchange.steps import FiniteCheck, StepColumns, trajectory_ends, write_steps
from datasets_cli.install.find import Condition, condition_of
from datasets_cli.install.options import LAYOUT, InstalledDataset, check_layout
from datasets_cli.schema.columns import DONE, EPISODE, TRAJECTORY_END, Key, rows_per_block, show_key
from datasets_cli.schema.element_types import element_type, numpy_dtype
from datasets_cli.schema.steps import StepCheck
from datasets_cli.schema.texts import TEXT, decode_text, encode_text, is_text
from datasets_cli.schema.transitions import Transitions, iterate_rows
from datasets_cli.sources.disk import disk_errors, make_folder
from datasets_cli.sources.new_files import replacing
from datasets_cli.store.cache_root import CacheRoot, check_id, has_manifest
from datasets_cli.store.commit import check_place, commit, restore, sweep
from datasets_cli.store.content import source_digest
from datasets_cli.store.lock import locked
from datasets_cli.store.manifest import Manifest, Metadata

COLUMNS, EPISODES = "columns.json", "episodes"

Form = tuple[str | None, tuple[int, ...]]
"""Element type and shape of a step of a column."""


class Journal:
    """The episodes that were added to a dataset so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.num_episodes = 0
        self._forms: dict[Key, Form] = {}
        self._last = [0]  # of `episodes`, its last row
        self._files = ExitStack()
        self._descriptors: list[int] = []  # of the columns, and of `episodes`
        if (folder / COLUMNS).exists():
            self._continue()

    @property
    def num_steps(self) -> int:
        """Steps so far."""
        return self._last[0]

    def add(self, episode: StepColumns) -> None:
        """Append the steps of an episode, which has the columns of those before it."""
        forms = _forms(episode)
        if self.num_episodes and forms != self._forms:
            raise UsageError(_episode_difference(self.num_episodes, forms, self._forms))
        data = [_bytes_of(episode[key], kind) for key, (kind, _) in forms.items()]
        with disk_errors(self.folder):
            if not self.num_episodes:
                self._begin(forms)
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
                marked = ends[start : start + size]
                yield {**{key: read[key](len(marked)) for key in read}, TRAJECTORY_END: marked}

    @property
    def fingerprint(self) -> str:
        """The sha256 of which columns and episodes there are; empty where there are none."""
        if not self.num_episodes:
            return ""
        files = (self.folder / name for name in (COLUMNS, EPISODES))
        return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()

    def close(self) -> None:
        """Close the files; the episodes stay."""
        self._files.close()

    def remove(self) -> None:
        """Delete the episodes."""
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.num_episodes, self._last = 0, [0]

    def _begin(self, forms: dict[Key, Form]) -> None:
        """Begin anew, whatever a kill left of the files."""
        listed = [(key, *form) for key, form in forms.items()]
        make_folder(self.folder)
        with replacing(self.folder / COLUMNS) as new:
            new.write_text(json.dumps(listed), encoding="utf-8")
        self._open(forms)
        self._cut()

    def _continue(self) -> None:
        """Count the episodes that are whole, and cut off the one that a kill left."""
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
                f"{self.folder} has episodes of a writer that was killed, and cannot be read "
                f"({error}). Delete that folder to begin anew."
            ) from error

    def _open(self, forms: dict[Key, Form]) -> None:
        self.close()
        self._forms, self._last, self._descriptors = forms, [0] * (1 + len(forms)), []
        for name in (*map(str, range(len(forms))), EPISODES):
            file = self._files.enter_context((self.folder / name).open("ab", buffering=0))
            self._descriptors.append(file.fileno())

    def _cut(self) -> None:
        """Leave the episodes that are counted in the files, and nothing behind them."""
        stops = (*self._last[1:], self.num_episodes * 8 * len(self._last))
        for descriptor, stop in zip(self._descriptors, stops, strict=True):
            # ext4 brings a file to the disk when it is closed, once it was truncated to nothing.
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
            encode_text(text)  # which refuses what no dataset can hold
        lines = [f"{json.dumps(each, default=decode_text)}\n" for each in values.tolist()]
        return memoryview("".join(lines).encode())
    # A view as bytes: not every element type of numpy has a buffer.
    return np.ascontiguousarray(values, numpy_dtype(kind)).reshape(-1).view(np.uint8).data


def _write(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _reader(file: Any, kind: str | None, shape: tuple[int, ...]) -> Any:
    """Return a function that reads the next steps of a column."""
    if kind == TEXT:
        lines = map(json.loads, file)
        return lambda count: np.array([*islice(lines, count)], object).reshape(count, *shape)
    dtype, size = numpy_dtype(kind), int(np.prod(shape, dtype=np.int64))
    return lambda count: np.fromfile(file, dtype, count * size).reshape(count, *shape)


def _episode_difference(number: int, forms: dict[Key, Form], known: dict[Key, Form]) -> str:
    """Return what differs between the columns of an episode and those before it."""
    key = min(key for key in forms.keys() | known.keys() if forms.get(key) != known.get(key))
    now, before = (
        f"{each[key][0]} {list(each[key][1])} a step" if key in each else "missing"
        for each in (forms, known)
    )
    return (
        f"Episode {number} is not as the {number} before it: {show_key(key)} is {now}, and was "
        f"{before}. Every episode has the same columns."
    )


T = TypeVar("T")

RESERVED = frozenset({"demo", "derived", "recorded"})
CHECKED = "own"
"""What a manifest says of how far its source was checked: the values were given here."""
MOST_INFO_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class OwnOptions(ProgressOptions, RootOptions):
    """How data of one's own becomes a dataset.

    Args:
        info: what is known of the data, as values of JSON: ``title``, ``licence``, ``citation``,
            ``env_spec``, ``ref_min_score``, ``ref_max_score`` and anything else.
        layout: ``"ted"`` or ``"compact"``; None for compact where there are frames.
        force: replace a dataset of this id that holds other data.
        strict: refuse actions and rewards that are NaN or infinite, instead of counting them.
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
    """Hold the lock of a dataset that is made, and give who is told of it."""
    config = options.chosen_config()
    root = CacheRoot(config.root)
    with (
        shown(options.progress) as screen,
        of_dataset(screen, id) as told,
        locked(root.lock(id), id, config.lock_timeout, told),
    ):
        restore(root, id)
        check_place(root, id)
        yield told


def own_id(id: str) -> str:
    """Return an id that data of one's own may have."""
    family, _, name = check_id(id).partition("/")
    if not name:
        raise UsageError(
            f"{id!r} has no family. Expected family/name, such as 'mine/{id}': the family is any "
            "word of yours."
        )
    if family in RESERVED or family in families():
        raise UsageError(
            f"{id!r} begins with {family}, the family of published or made datasets. Choose "
            f"another first part, such as 'mine/{name}'."
        )
    return id


def checked_info(info: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what is said of data, once it is known that a manifest can hold it."""
    try:
        text = json.dumps(dict(info or {}), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{argument('info')} must have values that JSON has: {error}.") from error
    if len(text) > MOST_INFO_BYTES:
        raise UsageError(
            f"{argument('info')} takes {len(text):,} bytes as JSON, and at most "
            f"{MOST_INFO_BYTES:,} are kept in a manifest. Keep it as a file beside the data."
        )
    try:
        return dict(decode(cast("Any", Metadata), json.loads(text), argument("info")))
    except WrongValue as error:
        raise UsageError(f"{error}.") from error


def save_steps(
    id: str,
    steps: Iterable[StepColumns],
    options: OwnOptions,
    progress: Progress,
    source: Callable[[], Mapping[str, Any]] = lambda: {"filename": "steps"},
) -> InstalledDataset:
    """Write steps as the dataset of an id, whose lock is held, and commit it."""
    # source: called after the last step; what the manifest records of where the steps came from.
    root = CacheRoot(options.chosen_config().root)
    staging, folder = root.new_staging(id), root.dataset(id)
    check = FiniteCheck(strict=options.strict)
    steps = map(check.take, steps)
    write = partial(write_steps, staging, id, options.layout, on_rows=progress.writing)
    written = _judged(steps, lambda read: write(steps=read))
    try:
        metadata = {**checked_info(options.info), "notes": [*written.notes]}
        manifest = written.manifest(id, {**source(), "checked": CHECKED}, metadata)
        here = condition_of(folder, id) if has_manifest(folder) else Condition(None)
        older, new = here.manifest, (manifest.content, manifest.layout)
        is_same = older is not None and (older.content, older.layout) == new
        if here.problem and older is None and not options.force:
            raise DamagedDataset(here.problem)
        if older is not None and not (options.force or is_same):
            raise UsageError(
                f"{id} is installed {_difference(older, manifest)}: {_told(older)}, and these "
                f"are {_told(manifest)}. Replace it with {argument('force', 'True')}, or choose "
                "another name."
            )
        if count := manifest.dropped_steps:
            written.notes.append(
                f"{counted(count, 'last step')} of trajectories that do not terminate "
                f"{'is' if count == 1 else 'are'} dropped, as the observation that follows is "
                "unknown; next_observation would keep them"
            )
        for note in (*written.notes, *check.notes):
            progress.note(f"{id}: {note}")
        described = (manifest.metadata, manifest.resources)
        is_described = older and (older.metadata, older.resources) == described
        if older and is_described and not (options.force or here.problem):
            progress.note(f"{id} is up to date: it holds these data")
            return InstalledDataset.of(folder, older)
        commit(root, staging, manifest)
    finally:
        sweep(staging)
    return InstalledDataset.of(folder, manifest)


def count_steps(id: str, steps: Iterable[StepColumns], options: OwnOptions) -> InstalledDataset:
    """Read and check steps as ``save_steps`` does, and return what would be installed."""
    transitions, check = Transitions(id, needs_rewards=False), FiniteCheck(strict=options.strict)
    steps = map(check.take, steps)
    done = _judged(steps, lambda read: [*map(itemgetter(DONE), iterate_rows(transitions, read))])
    with shown(options.progress) as screen, of_dataset(screen, id) as told:
        for note in (*transitions.notes, *check.notes):
            told.note(f"{id}: {note}")
    return InstalledDataset(
        id,
        CacheRoot(options.chosen_config().root).dataset(id),
        num_transitions=sum(map(len, done)),
        num_trajectories=sum(int(flags.sum()) for flags in done),
        size_bytes=0,
        layout=options.layout or "",
        state="not installed",
        dropped_steps=transitions.num_dropped,
    )


def _judged(steps: Iterable[StepColumns], use: Callable[[Iterator[StepColumns]], T]) -> T:
    """Use steps; what is wrong with their values, and no damage, is a ``UsageError``."""
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
        raise UsageError(str(error)) from error


def _difference(older: Manifest, newer: Manifest) -> str:
    """Return in what the source or the layout of two datasets of one id differs."""
    if older.content == newer.content:
        return "in another layout"
    digests = [[*map(source_digest, each.resources)] for each in (older, newer)]
    return "from another file" if digests[0] == digests[1] else "with other columns"


def _told(manifest: Manifest) -> str:
    """Return the rows, the source and the layout of a dataset of the user's own, for people."""
    source = manifest.resources[-1] if manifest.resources else {}
    steps = f"{manifest.num_transitions:,} transitions of {source.get('filename', 'other data')}"
    return f"{steps} in the layout {manifest.layout}"


@dataclass(frozen=True)
class WriterCall(OwnOptions):
    """What ``DatasetWriter`` takes.

    Args:
        id: ``family/name``; the family is any word that no published family has.
    """

    id: str


class DatasetWriter:
    """Writes a dataset of one's own, an episode at a time, in a ``with`` statement.

        with DatasetWriter("mine/robot") as writer:
            for number in range(writer.num_episodes, 100):
                writer.add_episode({"observation": ..., "action": ..., "reward": ...})
        writer.dataset.path

    Each episode is on the disk when ``add_episode`` returns: a killed program goes on where it was,
    at ``num_episodes``, with the result of one that was not killed. The dataset is there when the
    statement ends without an error.

    Raises:
        UsageError: the id is of a published family, or is installed and ``force`` is not given.
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
            self._refuse_installed(journal)
            self._journal, self._held = journal, held.pop_all()
        if journal.num_episodes:
            self._progress.note(
                f"{self._id}: {journal.num_episodes:,} episodes of a writer that was stopped are "
                "kept; discard() drops them"
            )
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
                raise UsageError(f"{self._id} has no episode: add_episode() was not called.")
            given = self._id, journal.blocks(), self._options, self._progress
            source = {"filename": "steps", "validator": journal.fingerprint}
            self.dataset = save_steps(*given, lambda: source)
            journal.remove()

    @property
    def num_episodes(self) -> int:
        """Episodes that were added so far, also before a kill."""
        return self._opened.num_episodes

    @property
    def num_steps(self) -> int:
        """Steps of these episodes."""
        return self._opened.num_steps

    def add_episode(self, columns: Mapping[Any, Any]) -> int:
        """Add the steps of one whole episode, which is on the disk then.

        Args:
            columns: arrays ``[T, ...]`` by name, as ``create_dataset`` takes them; ``observation``
                may have T + 1 rows, the last one after the last action; ``terminated`` and
                ``truncated`` may be one flag, of the last step; or a TensorDict that ``episode()``
                of a dataset returns.

        Returns:
            The number of episodes so far.

        Raises:
            UsageError: its columns are not those of the episodes before it or differ in length,
                observation or action is missing, flags are not 0 and 1, or with ``strict`` an
                action or a reward is not finite.
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
            raise UsageError(str(error)) from error  # no bytes are damaged
        return journal.num_episodes

    def discard(self) -> None:
        """Drop the episodes that were added so far."""
        self._opened.remove()

    def _refuse_installed(self, journal: Journal) -> None:
        """Drop episodes that are installed, and refuse to replace them unasked."""
        if not has_manifest(folder := self._root.dataset(self._id)):
            return
        manifest = condition_of(folder, self._id).manifest  # None where it is damaged
        known = [source.get("validator") for source in manifest.resources] if manifest else []
        if journal.num_episodes and journal.fingerprint in known:
            journal.remove()  # it was killed after the commit
        if not self._options.force:
            raise UsageError(
                f"{self._id} is installed. Replace it with {argument('force', 'True')}, or choose "
                "another name."
            )

    @property
    def _opened(self) -> Journal:
        if self._journal is None:
            raise UsageError("DatasetWriter is used in a with statement: with DatasetWriter(...)")
        return self._journal


@dataclass(frozen=True)
class CreateCall(OwnOptions):
    """What ``create_dataset`` takes.

    Args:
        id: ``family/name``; the family is any word that no published family has.
        columns: arrays ``[N, ...]`` of all steps, trajectory after trajectory, by name or tuple of
            names, or in dicts in one another: ``observation`` and ``action``, and where known
            ``reward``, ``terminated``, ``truncated`` and ``next_observation``, as ``step()``
            returns them. Any other name is a column, too, such as ``("info", "success")`` or
            ``"info.success"``. What ``to_numpy()`` of a dataset or a view returns has all of it.
        ends: bool ``[N]``, whether a step is the last one of its trajectory.
        lengths: int ``[K]``, the steps of each trajectory.
        episode: int ``[N]``, a number for each step that differs between trajectories.
    """

    id: str
    columns: Mapping[Any, Any]
    _: KW_ONLY
    ends: Any = None
    lengths: Any = None
    episode: Any = None


@takes_fields(CreateCall)
def create_dataset(call: CreateCall) -> InstalledDataset:
    """Write arrays as a dataset of one's own, installed as any other.

    One of ``ends``, ``lengths`` and ``episode`` says where trajectories end, or both flags do, or
    the ``episode`` of rows that are a dataset's. The
    values are kept bit for bit. Where ``next_observation`` is not given, the successor rule of the
    format holds, and the last step of a truncated trajectory is no row.

    Raises:
        UsageError: a column cannot be kept, observation or action is missing, flags are not
            0 and 1, nothing says where trajectories end or two things do not agree, the id is of a
            published family, or it is installed with other data.
    """
    call.chosen_config()  # root and config are not both given
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
    with making(id, call) as told:
        return save_steps(id, blocks, call, told)
