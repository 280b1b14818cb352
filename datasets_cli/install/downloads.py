"""Installing one dataset or several, each with its result, and saying what that would do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext

from datasets_cli.catalogue.entries import all_entries
from datasets_cli.catalogue.selection import select_known
from datasets_cli.config import Config
from datasets_cli.errors import PartialFailure, RldsError, UsageError
from datasets_cli.install.install import install_dataset, plan_install
from datasets_cli.install.options import InstallOptions, Plan
from datasets_cli.installed.outcomes import Downloads, FailedDataset, InstalledDataset
from datasets_cli.progress import Progress
from datasets_cli.progress_bars import Bars, PartOfRun, shown
from datasets_cli.store.cache_root import CacheRoot, has_manifest
from datasets_cli.store.manifest import read_manifest

OnResult = Callable[[InstalledDataset | FailedDataset], None]
"""Called with each dataset as soon as it is installed, or could not be."""


def download_all(
    ids: str | Iterable[str],
    config: Config,
    options: InstallOptions,
    *,
    on_result: OnResult | None = None,
    progress: Progress | None = None,
) -> Downloads:
    """Install what is missing of some datasets, one after the other, and return what they are.

    Args:
        ids: ids, names that resolve to one, or globs.
        config: root, mirrors, offline mode.
        options: how to install them.
        on_result: called with each dataset as soon as it is done.
        progress: told of what happens; None draws bars on a terminal.

    Raises:
        RldsError: the one dataset that was asked for cannot be installed.
        PartialFailure: some of several cannot; ``results`` has the others, and why.
        UsageError: several are asked for, and one source is given.
    """
    wanted = _select(ids, config, options)
    results: list[InstalledDataset | FailedDataset] = []
    with shown(progress) as told:
        bars = told if wanted[1:] and isinstance(told, Bars) else None
        if bars:
            bars.expecting(_sizes(wanted, config, options))
        for id in wanted:
            try:
                with PartOfRun(id, bars) if bars else nullcontext(told) as part:
                    folder = install_dataset(id, config, options, progress=part)
                results.append(InstalledDataset.of(folder, read_manifest(folder)))
            except RldsError as error:
                if len(wanted) == 1:
                    raise
                results.append(FailedDataset(id, error))
            if on_result:
                on_result(results[-1])
    downloads = Downloads(
        tuple(result for result in results if isinstance(result, InstalledDataset)),
        tuple(result for result in results if isinstance(result, FailedDataset)),
    )
    if downloads.failures:
        failed = [failure.id for failure in downloads.failures]
        raise PartialFailure.of(failed, len(wanted), downloads) from downloads.failures[0].error
    return downloads


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
