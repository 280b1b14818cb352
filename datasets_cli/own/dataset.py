"""A dataset of one's own: its id, what is said of it, and its commit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar, cast

from datasets_cli.catalogue.registry import families
from datasets_cli.checked_json import WrongValue, decode
from datasets_cli.config import RootOptions
from datasets_cli.errors import DamagedDataset, SourceError, UsageError, argument
from datasets_cli.install.installed import Condition, condition_of
from datasets_cli.install.options import LAYOUT, InstalledDataset, check_layout
from datasets_cli.own.steps import FiniteCheck, StepColumns, write_steps
from datasets_cli.progress import Progress, ProgressOptions, of_dataset
from datasets_cli.progress_bars import shown
from datasets_cli.quantities import counted
from datasets_cli.schema.columns import DONE
from datasets_cli.schema.transitions import Transitions, iterate_rows
from datasets_cli.store.cache_root import CacheRoot, check_id, has_manifest
from datasets_cli.store.commit import check_place, commit, restore, sweep
from datasets_cli.store.content import source_digest
from datasets_cli.store.lock import locked
from datasets_cli.store.manifest import Manifest, Said

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
        default=False, metadata={"help": "Replace a dataset of this name that holds other data."}
    )
    strict: bool = False

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
        return dict(decode(cast("Any", Said), json.loads(text), argument("info")))
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
