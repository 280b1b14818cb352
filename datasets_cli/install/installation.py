"""Runs an installation: resolve, lock, fetch, stage, commit; several of them in threads."""

from __future__ import annotations

import logging
import re
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from datasets_cli.audit.report import report_defects
from datasets_cli.catalogue.names import Resolved, resolve
from datasets_cli.config import Config, load_config
from datasets_cli.core.progress import File, Note, Progress, Rows, silent
from datasets_cli.core.system_errors import system_error
from datasets_cli.errors import (
    NO_VERIFY,
    AccessError,
    RldsError,
    SourceError,
    argument,
    for_reader,
)
from datasets_cli.formats.limits import raised_limits
from datasets_cli.install.fetch import Room, distrust, needed_room, raw_file, resources_of
from datasets_cli.install.find import (
    check_layout_of,
    condition_of,
    installed_fallback,
    is_installed,
    is_installed_already,
    read_sound_manifest_of,
    remove_raw,
)
from datasets_cli.install.options import InstalledDataset, InstallOptions, Plan
from datasets_cli.parallel.engine import IN_THIS_PROCESS, Workers
from datasets_cli.recipe import Resource
from datasets_cli.sources.disk import make_folder
from datasets_cli.sources.resource import RawFile
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.commit import check_place, commit, restore
from datasets_cli.store.lock import locked
from datasets_cli.store.manifest import UNCHECKED, UNVERIFIED, Manifest

if TYPE_CHECKING:
    from datasets_cli.sources.http import Http


logger = logging.getLogger(__name__)

WORTH_A_WORKER = 16_000_000
"""The bytes of raw files from which the start of a process pays off."""


def install_dataset(
    text: str,
    config: Config,
    install_options: InstallOptions | None = None,
    *,
    http: Http | None = None,
    progress: Progress = silent,
    unless: Callable[[], bool] | None = None,
    room: Room | None = None,
) -> InstalledDataset:
    """Install a dataset unless it is installed, and return it."""
    install_options = install_options or InstallOptions()
    if is_installed_already(text, config, install_options):
        _note_installed(text, install_options, progress)
        return _installed(CacheRoot(config.root), text, install_options.layout)
    try:
        installation = Installation(config, install_options, http, progress, room)
        return installation.run(text, unless=unless)
    except RldsError:  # some are OSErrors
        raise
    except OSError as error:
        raise system_error(error) from error


def _installed(root: CacheRoot, id: str, layout: str | None) -> InstalledDataset:
    """Return an installed dataset, once it is undamaged and has the requested layout."""
    manifest = read_sound_manifest_of(root.dataset(id), id)
    check_layout_of(manifest, id, layout)
    return InstalledDataset.of(root.dataset(id), manifest)


def _note_installed(id: str, install_options: InstallOptions, progress: Progress) -> None:
    """Report that a dataset is not installed again, although its source may have other files."""
    replaced = f"; {argument('force', 'True')} replaces it"
    text = f"{id} is installed already{replaced * bool(install_options.source)}"
    progress(Note(for_reader(text)))


class Installation:
    """Installs datasets with one set of options."""

    def __init__(
        self,
        config: Config,
        install_options: InstallOptions,
        http: Http | None = None,
        progress: Progress = silent,
        room: Room | None = None,
    ) -> None:
        self._config = config
        self._root = CacheRoot(config.root)
        self._install_options = install_options
        self._http = http
        self._room = room or Room()
        self._progress = progress

    def _web(self) -> Http:
        """Return the HTTP client; it is created on the first call."""
        if self._http is None:
            from datasets_cli.sources.http import Http

            self._http = Http(self._config)
        return self._http

    def plan(self, text: str) -> Plan:
        """Return the plan of ``run``; unknown sizes are requested from the publisher."""
        resolved = self._resolve(text)
        if id := self._find_installed(resolved):
            folder = self._root.dataset(id)
            return Plan(id, True, (), folder, state=condition_of(folder, id).state)
        try:
            resources = resources_of(resolved, self._options_of(resolved), self._web)
        except AccessError as refusal:
            plan = self._without_options().plan(self._fallback_id(resolved, refusal))
            return replace(plan, fallback_for=resolved.id)
        return Plan(resolved.id, False, tuple(resources), self._root.dataset(resolved.id))

    def run(self, text: str, *, unless: Callable[[], bool] | None = None) -> InstalledDataset:
        """Install a dataset unless it is installed, and return it."""
        with raised_limits(dict(self._config.limits)):
            return self._run(text, unless)

    def _run(self, text: str, unless: Callable[[], bool] | None) -> InstalledDataset:
        root, force = self._root, self._install_options.force
        resolved = self._resolve(text)
        name, typed = resolved.id.partition("~")[0], text.partition("~")[0]
        if name not in (typed, f"{resolved.recipe.family}/{typed}"):
            is_version = re.search(rf"{re.escape(typed)}[-@/]v?[\d.]+$", name)  # or a second name
            newest = ", its newest version" if is_version else ""
            self._progress(Note(f"{text} is {resolved.id}{newest}"))
        if id := self._find_installed(resolved):
            _note_installed(id, self._install_options, self._progress)
            return _installed(root, id, self._install_options.layout)
        if not root.path.exists() and root.path != load_config().root:
            text = f"{root.path} does not exist: it is created as a new cache root"
            self._progress(Note(text))
        timeout = self._config.lock_timeout
        with locked(root.lock(resolved.id), resolved.id, timeout, self._progress):
            restore(root, resolved.id)
            if is_installed(root, resolved.id) and not force:
                return _installed(root, resolved.id, self._install_options.layout)
            if unless is not None and unless():
                return self._other_copy(resolved.id)
            try:
                return self._install(resolved)
            except (RldsError, OSError):
                # Without working locks another process may have installed it and swept our files.
                if force or not is_installed(root, resolved.id):
                    raise
                return _installed(root, resolved.id, self._install_options.layout)

    def _other_copy(self, id: str) -> InstalledDataset:
        self._progress(Note(f"{id} was installed by another process; its copy is used"))
        return _installed(self._root, id, None)

    def _resolve(self, text: str) -> Resolved:
        return resolve(
            text,
            self._root,
            unlisted=self._install_options.source is not None,
            web=self._web,
            options=self._install_options.options,
        )

    def _find_installed(self, resolved: Resolved) -> str | None:
        """Return the id of the installed dataset or its fallback; None if it must be installed."""
        if self._install_options.force:
            return None
        if is_installed(self._root, resolved.id):
            return resolved.id
        if self._install_options.source is not None:
            return None
        return installed_fallback(resolved, self._root, self._install_options.options)

    def _install(self, resolved: Resolved) -> InstalledDataset:
        """Install a dataset, whose lock is held; or its fallback, if its publisher refuses it."""
        root, options = self._root, self._options_of(resolved)
        try:
            resources = resources_of(resolved, options, self._web)
        except AccessError as refusal:
            fallback = self._fallback_id(resolved, refusal)
            text = f"the publisher denies access to {resolved.id}; {fallback} is installed instead"
            self._progress(Note(text))
            try:
                return self._without_options().run(fallback)
            except AccessError as error:
                message = f"Neither {resolved.id} nor {fallback} could be installed:"
                raise AccessError(
                    f"{message}\n  1. {refusal}\n  2. {error}", id=resolved.id
                ) from error
        check_place(root, resolved.id)
        needed = needed_room(root, resolved.id, resources, options)
        with self._room.reserved(root, resolved.id, needed, self._progress):
            return self._write(resolved, resources, options)

    def _write(
        self, resolved: Resolved, resources: list[Resource], options: InstallOptions
    ) -> InstalledDataset:
        """Fetch the files of a dataset, write its rows and commit it."""
        root, progress = self._root, self._progress
        for each in resources if options.source_folder is None else ():
            progress(File(resolved.id, each.filename, None, each.size))
        files = [
            raw_file(resource, root, resolved.id, options, self._web, progress)
            for resource in resources
        ]
        try:
            manifest, staging = stage(
                resolved, files, root, options.layout, progress, options.workers
            )
        except SourceError as error:
            if options.source_folder is None:
                distrust(files)
            if not any(name in str(error) for name in (resolved.id, *(f.filename for f in files))):
                error.prepend(f"{resolved.id}: ")
            error.id = resolved.id
            if error.path is None and len(files) == 1:  # the core found what the reader accepted
                error.path = files[0].filename
            if error.advice is None:
                error.advise(_advice(files, options))
            raise
        folder = root.dataset(resolved.id)
        is_ours = commit(root, staging, manifest, replace=options.force)
        if not options.keep_raw and options.source_folder is None:
            remove_raw(root, resolved.id)
        if not is_ours:
            return self._other_copy(resolved.id)
        report_defects(folder, manifest, root, progress)
        return InstalledDataset.of(folder, manifest)

    def _options_of(self, resolved: Resolved) -> InstallOptions:
        """Return the options; the source of a recipe that contains its files is its folder."""
        options, folder = self._install_options, resolved.recipe.folder
        if folder is None or options.source is not None:
            return options
        return replace(options, source=str(folder))

    def _fallback_id(self, resolved: Resolved, refusal: AccessError) -> str:
        """Return the id of a refused dataset's fallback; without one, raise the refusal."""
        name = resolved.recipe.fallback(resolved.name, self._install_options.options)
        if name is None or self._install_options.source is not None:
            raise refusal
        return f"{resolved.recipe.family}/{name}"

    def _without_options(self) -> Installation:
        """Return the installation of a fallback, without the options of the family."""
        options = replace(self._install_options, options={})
        return Installation(self._config, options, self._http, self._progress, self._room)


def stage(
    resolved: Resolved,
    files: list[RawFile],
    root: CacheRoot,
    layout: str | None,
    progress: Progress,
    workers: Workers = IN_THIS_PROCESS,
) -> tuple[Manifest, Path]:
    """Write a dataset into a staging folder; return its manifest and the folder."""
    # The only import of numpy and the writers.
    from datasets_cli.install.convert import Conversion, convert, convert_elsewhere

    files = [replace(file, path=file.path.absolute()) for file in files]  # for other processes
    folder = root.new_staging(resolved.id)
    make_folder(folder.parent)
    conversion = Conversion(resolved, tuple(files), folder, layout)
    if not _is_for_a_worker(resolved, files, workers):
        return convert(conversion, progress, workers), folder
    try:
        return convert_elsewhere(conversion, progress, workers), folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _is_for_a_worker(resolved: Resolved, files: list[RawFile], workers: Workers) -> bool:
    """Return whether a worker converts the whole dataset."""
    # Deferred frames are converted by several workers.
    is_small = sum(file.size for file in files) < WORTH_A_WORKER
    return (
        not workers.ends_tasks
        and not resolved.recipe.has_deferred_frames
        and not (is_small and workers.is_optional)
    )


def _advice(files: list[RawFile], options: InstallOptions) -> str:
    """Return the next step after an error of raw files."""
    if options.source is not None:
        return f"Check the files at {argument('source', options.source)}."
    checks = [file.checked for file in files if not file.describes]
    if any(check.startswith(UNVERIFIED) for check in checks):
        return f"Run again without {NO_VERIFY}."
    if not UNCHECKED.isdisjoint(checks):
        return "Run again: files without a checksum are downloaded again."
    return "The files are the published ones: report that the recipe does not read them."


_SECONDS_A_LOOK = 0.2
_SECONDS_TO_END = 10.0  # for writes to the disk; a download ends with its next bytes

Install = Callable[[str], InstalledDataset]
Outcome = tuple[str, InstalledDataset | BaseException]
"""An id, with its installed dataset or its error."""


class Stopped(BaseException):
    """The run has ended; raised in its threads when they report progress."""


class SharedProgress:
    """The ``Progress`` of the threads of a run: one event at a time, until the run ends."""

    def __init__(self, progress: Progress) -> None:
        self.lock = threading.RLock()
        self.stopped = threading.Event()
        self._progress = progress

    def __call__(self, event: File | Rows | Note) -> None:
        """Pass an event on."""
        with self.lock:
            if self.stopped.is_set():
                raise Stopped
            self._progress(event)

    @contextmanager
    def until_the_end(self) -> Iterator[None]:
        """At the end, or after an error, stop the threads at their next event."""
        try:
            yield
        finally:
            self.stopped.set()


class Threads:
    """Threads that install datasets; use it in a ``with`` statement."""

    # At the end, running threads have a few seconds to stop; downloaded files stay. The threads are
    # daemons, so that they never delay the end of the interpreter.

    def __init__(self, progress: SharedProgress) -> None:
        self._progress = progress
        self._done: SimpleQueue[Outcome] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Threads:
        return self

    def __exit__(self, *_: object) -> None:
        deadline = time.monotonic() + _SECONDS_TO_END
        for thread in self._threads:
            if not thread.is_alive():  # a signal may have come before its start
                continue
            thread.join(max(0.0, deadline - time.monotonic()))

    def outcomes(self, ids: Sequence[str], install: Install, num_threads: int) -> Iterator[Outcome]:
        """Yield the outcome of each dataset, in the order of completion."""
        waiting = deque(ids)
        for _ in range(num_threads):
            # Each thread has a copy of the context, with the limits of the caller.
            thread = threading.Thread(
                target=copy_context().run,
                args=(self._work, waiting, install),
                name="installs datasets",
                daemon=True,
            )
            self._threads.append(thread)
            thread.start()
        for _ in ids:
            yield self._next()

    def _next(self) -> Outcome:
        while True:
            try:
                return self._done.get(timeout=_SECONDS_A_LOOK)
            except Empty:  # a signal that another thread had is handled here
                continue

    def _work(self, waiting: deque[str], install: Install) -> None:
        while not self._progress.stopped.is_set():
            try:
                id = waiting.popleft()
            except IndexError:
                return
            try:
                outcome: InstalledDataset | BaseException = install(id)
            except BaseException as error:  # raised by the caller of outcomes()
                outcome = error
            self._done.put((id, outcome))
