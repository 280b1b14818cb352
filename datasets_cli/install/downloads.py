"""Installing one dataset or several, each with its result, and saying what that would do."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import closing, nullcontext
from dataclasses import replace

from datasets_cli.catalogue.entries import all_entries
from datasets_cli.catalogue.selection import select_known
from datasets_cli.config import Config
from datasets_cli.errors import PartialFailure, RldsError, UsageError
from datasets_cli.install.install import install_dataset, is_there, plan_install
from datasets_cli.install.options import InstallOptions, Plan
from datasets_cli.install.side_by_side import Screen, Threads, num_side_by_side
from datasets_cli.installed.outcomes import Downloads, FailedDataset, InstalledDataset
from datasets_cli.progress import Progress
from datasets_cli.progress_bars import Bars, PartOfRun, shown
from datasets_cli.store.cache_root import CacheRoot, has_manifest
from datasets_cli.store.manifest import read_manifest

Result = InstalledDataset | FailedDataset
Results = Generator[tuple[str, Result], None, None]
OnResult = Callable[[Result], None]
"""Called with each dataset as soon as it is installed, or could not be."""


def download_all(
    ids: str | Iterable[str],
    config: Config,
    options: InstallOptions,
    *,
    on_result: OnResult | None = None,
    progress: Progress | None = None,
) -> Downloads:
    """Install what is missing of some datasets and return what they are, in the order asked for."""
    # With workers several are installed at a time; each host has few connections then.
    wanted = _select(ids, config, options)
    found: dict[str, Result] = {}
    with shown(progress) as told:
        if wanted[1:] and isinstance(told, Bars):
            told.expecting(_sizes(wanted, config, options))
        num_missing = sum(not _is_there(id, config, options) for id in wanted)
        at_a_time = num_side_by_side(options.workers, num_missing)
        if at_a_time > 1:
            results = _side_by_side(wanted, config, options, told, at_a_time)
        else:
            results = _one_by_one(wanted, config, options, told)
        with closing(results):
            for id, result in results:
                found[id] = result
                if on_result:
                    on_result(result)
    in_order = [found[id] for id in wanted]
    downloads = Downloads(
        tuple(result for result in in_order if isinstance(result, InstalledDataset)),
        tuple(result for result in in_order if isinstance(result, FailedDataset)),
    )
    if downloads.failures:
        failed = [failure.id for failure in downloads.failures]
        raise PartialFailure.of(failed, len(wanted), downloads) from downloads.failures[0].error
    return downloads


def _one_by_one(ids: list[str], config: Config, options: InstallOptions, told: Progress) -> Results:
    bars = told if ids[1:] and isinstance(told, Bars) else None
    for id in ids:
        result: Result
        try:
            with PartOfRun(id, bars) if bars else nullcontext(told) as part:
                folder = install_dataset(id, config, options, progress=part)
            result = InstalledDataset.of(folder, read_manifest(folder))
        except RldsError as error:
            if not ids[1:]:
                raise
            result = FailedDataset(id, error)
        yield id, result


def _side_by_side(
    ids: list[str], config: Config, options: InstallOptions, told: Progress, at_a_time: int
) -> Results:
    # Imported late, and once: what is installed already needs no network.
    from datasets_cli.install.room import Room
    from datasets_cli.sources.host_limits import HostLimits
    from datasets_cli.sources.http import Http

    screen, hosts, room = Screen(told), HostLimits(), Room()
    # Threads wait for what the pool does: they learn that the run ends, and then the pool does.
    with Threads(screen) as threads, options.workers.pool() as pool, screen.until_the_end():
        shared = replace(options, workers=options.workers.sharing(pool))

        def install(id: str, progress: Progress) -> InstalledDataset:
            http = Http(config, hosts=hosts)
            folder = install_dataset(id, config, shared, http=http, progress=progress, room=room)
            return InstalledDataset.of(folder, read_manifest(folder))

        for id, outcome in threads.outcomes(ids, install, at_a_time):
            if isinstance(outcome, RldsError):
                result: Result = FailedDataset(id, outcome)
            elif isinstance(outcome, InstalledDataset):
                result = outcome
            else:
                raise outcome
            with screen.above():
                yield id, result


def _is_there(id: str, config: Config, options: InstallOptions) -> bool:
    try:
        return is_there(id, config, options)
    except UsageError:  # it is told where it is installed
        return False


def _sizes(ids: Iterable[str], config: Config, options: InstallOptions) -> dict[str, int | None]:
    """Return the bytes that each dataset needs, as the catalogue knows them."""
    root = CacheRoot(config.root)
    entries = all_entries(root)
    missing = [id for id in ids if options.force or not has_manifest(root.path / "datasets" / id)]
    return {id: entries[id][1].size if id in entries else None for id in missing}


def plan_all(ids: str | Iterable[str], config: Config, options: InstallOptions) -> list[Plan]:
    """Return what ``download_all`` would do; publishers are asked for sizes where needed."""
    from datasets_cli.sources.http import Http

    http = Http(config)
    return [plan_install(id, config, options, http) for id in _select(ids, config, options)]


def _select(ids: str | Iterable[str], config: Config, options: InstallOptions) -> list[str]:
    wanted = select_known(ids, config)
    if options.source is not None and len(wanted) > 1:
        raise UsageError(
            f"--source holds the files of one dataset, but {len(wanted)} are asked for: "
            f"{', '.join(wanted[:5])}{' …' if wanted[5:] else ''}. Download them one by one."
        )
    return wanted
