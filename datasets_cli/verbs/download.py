"""Downloads and installs datasets, and plans downloads."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from datasets_cli.catalogue.entries import catalogues
from datasets_cli.catalogue.names import KnownIds, resolve, select_known
from datasets_cli.config import Config
from datasets_cli.core.options import part_of, takes_fields
from datasets_cli.core.progress import File, Progress, ProgressOptions
from datasets_cli.core.progress_display import displayed
from datasets_cli.errors import PartialFailure, RldsError, UsageError, argument
from datasets_cli.install.fetch import Room
from datasets_cli.install.find import is_installed_already
from datasets_cli.install.installation import Installation, SharedProgress, Threads, install_dataset
from datasets_cli.install.options import (
    LAYOUT,
    Downloads,
    FailedDataset,
    InstalledDataset,
    InstallOptions,
    Plan,
)
from datasets_cli.parallel.engine import Workers
from datasets_cli.sources.resource import Resource
from datasets_cli.store.cache_root import CacheRoot, has_manifest

FETCHED_AHEAD = 2
"""Datasets whose files are downloaded ahead while each worker converts one."""
ON_A_CLUSTER = 16
"""The number of datasets at a time if the number of workers is unknown."""

DownloadResult = InstalledDataset | FailedDataset
DownloadResults = Generator[tuple[str, DownloadResult], None, None]
OnResult = Callable[[DownloadResult], None]
"""A callback with the result of each dataset, installed or failed."""


@dataclass(frozen=True)
class PlanCall(KnownIds):
    """The arguments of ``plan_download``.

    Args:
        force: reinstall installed datasets; the old copy stays until the new one is complete.
        layout: ``"ted"`` or ``"compact"``; by default compact for frames, ted for all else.
        source: a folder or URL with the raw files of the dataset, a folder with the files of
            several datasets if all names differ, or the one file of a dataset.
        options: options of the family, which select a variant; ``dataset_info`` lists them.
    """

    _: KW_ONLY
    force: bool = field(
        default=False, metadata={"help": "Reinstall datasets that are already installed."}
    )
    layout: str | None = field(default=None, metadata=LAYOUT)
    source: str | os.PathLike[str] | None = field(
        default=None,
        metadata={
            "metavar": "DIR|FILE|URL",
            "help": "Folder or URL of the raw files, or the only file of a dataset.",
        },
    )
    options: Mapping[str, str] | None = field(
        default=None,
        metadata={
            **{"flag": ("-o", "--option"), "metavar": "NAME=VALUE"},
            "help": "Set an option of the dataset's family; rlds info ID lists them.",
        },
    )

    def install_options(self, **others: Any) -> InstallOptions:
        """Return how the datasets are to be installed; ``others`` are of a download."""
        source = None if self.source is None else os.fspath(self.source)
        options = self.options or {}
        return InstallOptions(self.layout, self.force, source, options=options, **others)


@dataclass(frozen=True, kw_only=True)
class DownloadCall(PlanCall, ProgressOptions, Workers):
    """The arguments of ``download``.

    Args:
        verify: reject files whose size or checksum differs from the catalogue.
        keep_raw: keep the downloaded files.
        on_result: called with the result of each dataset as soon as it is installed or failed.
    """

    verify: bool = field(
        default=True,
        metadata={"flag": "--no-verify", "help": "Accept files whose size or checksum differs."},
    )
    keep_raw: bool = field(default=False, metadata={"help": "Keep the downloaded raw files."})
    on_result: OnResult | None = None


@takes_fields(DownloadCall)
def download(call: DownloadCall) -> Downloads:
    """Download, verify and install the datasets that are missing; return the folders of all.

    This process downloads the files and the workers convert them, several datasets or parts of one
    at a time. The bytes do not depend on the workers.

    Raises:
        RldsError: the only dataset cannot be installed.
        PartialFailure: some datasets cannot be installed; ``results`` has all results.
    """
    config, workers = call.chosen_config(), part_of(call, Workers)
    options = call.install_options(
        accept_any=not call.verify, keep_raw=call.keep_raw, workers=workers
    )
    with displayed(call.progress) as progress:
        ids = _select(call.ids, config, options)
        return _download_all(ids, config, options, call.on_result, progress)


@takes_fields(PlanCall)
def plan_download(call: PlanCall) -> list[Plan]:
    """Return what ``download`` would do, and do nothing; publishers are asked for sizes.

    Raises:
        RldsError: as ``download``.
    """
    config, options = call.chosen_config(), call.install_options()
    installation = Installation(config, options)
    return [installation.plan(id) for id in _select(call.ids, config, options)]


def _download_all(
    ids: list[str],
    config: Config,
    options: InstallOptions,
    on_result: OnResult | None,
    progress: Progress,
) -> Downloads:
    # With workers several are installed at a time; each host has few connections then.
    for id, size in _sizes(ids, config, options).items() if ids[1:] else ():
        progress(File(id, "", None, size))
    at_a_time = _num_side_by_side(ids, config, options) if ids[1:] else 1
    if at_a_time > 1:
        results = _side_by_side(ids, config, options, progress, at_a_time)
    else:
        results = _one_by_one(ids, config, options, progress)
    results_by_id: dict[str, DownloadResult] = {}
    with closing(results):
        for id, result in results:
            results_by_id[id] = result
            progress(File(id, "", None, 0))  # no file of it is to come
            if on_result:
                on_result(result)
    in_order = [results_by_id[id] for id in ids]
    downloads = Downloads(
        tuple(result for result in in_order if isinstance(result, InstalledDataset)),
        tuple(result for result in in_order if isinstance(result, FailedDataset)),
    )
    if downloads.failures:
        failed = [failure.id for failure in downloads.failures]
        raise PartialFailure.of(failed, len(ids), downloads) from downloads.failures[0].error
    return downloads


def _one_by_one(
    ids: list[str], config: Config, options: InstallOptions, progress: Progress
) -> DownloadResults:
    for id in ids:
        result: DownloadResult
        try:
            result = install_dataset(id, config, options, progress=progress)
        except RldsError as error:
            if not ids[1:]:
                raise
            result = FailedDataset(id, error)
        yield id, result


def _side_by_side(
    ids: list[str], config: Config, options: InstallOptions, progress: Progress, at_a_time: int
) -> DownloadResults:
    from datasets_cli.sources.http import HostLimits, Http  # with requests

    shared, hosts, room = SharedProgress(progress), HostLimits(), Room()
    # Threads wait for the pool, so the end of a run stops the threads first, then the pool.
    with Threads(shared) as threads, options.workers.pool() as pool, shared.until_the_end():
        options = replace(options, workers=options.workers.with_pool(pool))

        def install(id: str) -> InstalledDataset:
            http = Http(config, hosts=hosts)
            return install_dataset(id, config, options, http=http, progress=shared, room=room)

        for id, outcome in threads.outcomes(ids, install, at_a_time):
            if isinstance(outcome, RldsError):
                result: DownloadResult = FailedDataset(id, outcome)
            elif isinstance(outcome, InstalledDataset):
                result = outcome
            else:
                raise outcome
            with shared.lock:
                yield id, result


def _num_side_by_side(ids: list[str], config: Config, options: InstallOptions) -> int:
    """Return the number of datasets to install in parallel."""
    workers = options.workers
    if workers.ends_tasks:
        count = os.cpu_count() or 1 if workers.num_workers is None else workers.num_workers
    else:
        count = ON_A_CLUSTER
    num_missing = sum(not _is_installed(id, config, options) for id in ids)
    return min(num_missing, count + FETCHED_AHEAD if count else 1)


def _is_installed(id: str, config: Config, options: InstallOptions) -> bool:
    try:
        return is_installed_already(id, config, options)
    except UsageError:  # the installation reports it
        return False


def _sizes(ids: Iterable[str], config: Config, options: InstallOptions) -> dict[str, int | None]:
    """Return the size of each dataset in bytes, according to the catalogue."""
    root = CacheRoot(config.root)
    listed = {recipe.family: entries for recipe, entries in catalogues(root)}
    sizes: dict[str, int | None] = {}
    for id in ids:
        if options.force or not has_manifest(root.path / "datasets" / id):
            family, _, name = id.partition("/")
            entry = listed[family].get(name) if family in listed else None
            sizes[id] = entry.size if entry else None
    return sizes


def _select(text: str | Iterable[str], config: Config, options: InstallOptions) -> list[str]:
    ids = select_known(text, config)
    if options.source is not None and len(ids) > 1:
        _check_shared_folder(ids, config, options)
    return ids


def _check_shared_folder(ids: list[str], config: Config, options: InstallOptions) -> None:
    """Reject a source for several datasets unless it is a folder with distinct file names."""
    folder, owners = options.source_folder, dict[str, str]()
    for id in ids:
        resolved = resolve(id, CacheRoot(config.root), unlisted=True, options=options.options)
        recipe, files = resolved.recipe, list[Resource]()
        if is_flat := folder is not None and folder.is_dir() and recipe.resources_at is None:
            files = recipe.resources(resolved.name, None)
        if not is_flat or any(owners.setdefault(each.filename, id) != id for each in files):
            raise UsageError(
                f"{argument('source')} must hold the files of one dataset, but {len(ids)} are "
                f"selected: {', '.join(ids[:5])}{' …' if ids[5:] else ''}. A folder may hold "
                "several only if their files have different names.",
                argument="source",
                expected=1,
                found=len(ids),
                advice=f"Download {id} separately.",
            )
