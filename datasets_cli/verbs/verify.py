"""Verifies installed datasets: their files, their opening, and with ``deep`` every value."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from datasets_cli.catalogue.names import InstalledIds, named_ids, select_installed, together
from datasets_cli.config import Config
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import takes_fields
from datasets_cli.core.progress import Progress, ProgressOptions, Rows, silent
from datasets_cli.core.progress_display import displayed
from datasets_cli.core.system_errors import repair_advice
from datasets_cli.errors import (
    DamagedDataset,
    DatasetNotInstalled,
    IntegrityError,
    PartialFailure,
    RldsError,
    UnknownDataset,
    argument,
    not_both,
)
from datasets_cli.formats.limits import raised_limits
from datasets_cli.install.find import condition_of, installed_id, read_manifest_of
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.check import check_digests
from datasets_cli.store.commit import Result, identity, read_one_copy
from datasets_cli.store.deep_report import TABLE, DeepReport
from datasets_cli.store.manifest import Manifest
from datasets_cli.store.tables import save_table

if TYPE_CHECKING:
    from datasets_cli.store.dataset import Dataset

logger = logging.getLogger(__name__)

NOT_INSTALLED = "not installed"


@dataclass(frozen=True)
class VerifiedDataset(JsonForm):
    """The result of the verification of one dataset.

    Args:
        id: the full id.
        num_files: the number of compared files; None if a file differs.
        unverified: the reasons why its raw files may differ from the publisher's.
        error: the error that names every different file or the missing dataset, or None.
        state: ``"installed"``, ``"unchecked"``, ``"unverified"``, ``"newer"``, ``"damaged"`` or
            ``"not installed"``.
        opened: whether it was also opened, and its first and last row read.
        report: the report of the deep check, or None.
    """

    JSON = "id ok state error? files=num_files? opened=_opened? deep=report?"

    id: str
    num_files: int | None = None
    unverified: tuple[str, ...] = ()
    error: RldsError | None = None
    state: str = "installed"
    opened: bool = False
    report: DeepReport | None = None

    @property
    def ok(self) -> bool:
        """Whether all files match the manifest."""
        return self.error is None

    @property
    def _opened(self) -> bool | None:
        return self.opened if self.ok else None


@dataclass(frozen=True)
class VerifyCall(ProgressOptions, InstalledIds):
    """The arguments of ``verify``.

    Args:
        quick: compare file sizes only: do not compute sha256, do not open datasets.
        deep: also check every value: offsets, the rules of the format, frames, NaN. The report is
            cached, and ``dataset_info`` returns it.
    """

    _: KW_ONLY
    quick: bool = field(
        default=False,
        metadata={"help": "Compare only file sizes; do not compute sha256 or open datasets."},
    )
    deep: bool = field(
        default=False,
        metadata={"help": "Also check every value: offsets, the rules of the format, frames, NaN."},
    )


@takes_fields(VerifyCall)
def verify(call: VerifyCall) -> list[VerifiedDataset]:
    """Compare every file of installed datasets with the manifest, and open the datasets.

    Raises:
        UsageError: ``quick`` and ``deep`` are both set.
        IntegrityError: datasets are damaged; ``results`` has all results.
        PartialFailure: datasets are not installed; ``results`` has all results.
        UnknownDataset, DatasetNotInstalled: no dataset is installed.
    """
    config = call.chosen_config()
    if call.quick and call.deep:
        raise not_both("deep", f"{argument('quick')}, which compares sizes only")
    results: dict[str, VerifiedDataset] = {}
    for text in named_ids(call.ids):
        try:
            for id in select_installed(text, config):
                known = installed_id(id, config)
                results[known] = (
                    _verify_sizes(known, config)
                    if call.quick
                    else _verify(known, config, call.deep, call.progress)
                )
        except (UnknownDataset, DatasetNotInstalled) as error:
            results[text] = VerifiedDataset(text, error=error, state=NOT_INSTALLED)
    if failure := _failure([*results.values()]):
        raise failure
    return [*results.values()]


def _failure(results: list[VerifiedDataset]) -> RldsError | None:
    missing = [result for result in results if result.state == NOT_INSTALLED]
    newer = [result for result in results if result.state == "newer"]
    damaged = [result for result in results if result.state == "damaged"]
    causes = [result.error for result in (*damaged, *newer, *missing) if result.error]
    if not causes:
        return None
    if len(missing) == len(results):
        return together(causes)
    named = {"Damaged": damaged, "Of a newer version": newer, "Not found": missing}
    text = " ".join(
        f"{word}: {', '.join(result.id for result in several)}."
        for word, several in named.items()
        if several
    )
    kind = IntegrityError if damaged or newer else PartialFailure
    failure = kind(f"{text} See the error of each dataset.")
    failure.results, failure.__cause__ = results, causes[0]
    return failure


def _verify_sizes(id: str, config: Config) -> VerifiedDataset:
    condition = condition_of(CacheRoot(config.root).dataset(id), id)
    manifest = condition.sound_manifest
    if manifest is None:
        error = DamagedDataset(condition.problem, id=id)
        return VerifiedDataset(id, error=error, state=condition.state)
    return VerifiedDataset(
        id, len(manifest.files), tuple(manifest.unverified), state=manifest.state
    )


def _verify(id: str, config: Config, deep: bool, progress: Progress | None) -> VerifiedDataset:
    report = None
    try:
        if deep:
            with displayed(progress, "transitions checked") as display:
                manifest, report = verify_deep(id, config, display)
        else:
            manifest = verify_installed(id, config)
    except IntegrityError as error:
        is_newer = isinstance(error, DamagedDataset) and error.newer
        return VerifiedDataset(id, error=error, state="newer" if is_newer else "damaged")
    return VerifiedDataset(
        manifest.id,
        len(manifest.files),
        tuple(manifest.unverified),
        state=manifest.state,
        opened=True,
        report=report,
    )


def verify_installed(text: str, config: Config) -> Manifest:
    """Compare an installed dataset with its manifest, read its ends, and return the manifest."""
    return _of_one_copy(installed_id(text, config), config, _check_whole)


def verify_deep(
    text: str, config: Config, progress: Progress = silent
) -> tuple[Manifest, DeepReport]:
    """Verify a dataset, read every value, and cache the report."""
    from datasets_cli.store.deep_check import deep_check

    id = installed_id(text, config)
    folder = CacheRoot(config.root).dataset(id)
    copy = identity(folder)
    dataset = _of_one_copy(id, config, _opened)
    manifest = dataset.manifest
    progress(Rows(manifest.id, 0, manifest.num_transitions))
    try:
        with _reading_errors(manifest):
            report = deep_check(dataset, progress)
    except DamagedDataset:
        if identity(folder) == copy:
            raise
        return verify_deep(text, config, progress)  # another process replaced or deleted the copy
    try:
        save_table(CacheRoot(config.root), manifest.content, TABLE, report.to_json())
    except OSError as error:  # the report is shown, and can be made again
        logger.warning("%s: the report is not cached (%s)", manifest.id, error)
    return manifest, report


def _of_one_copy(id: str, config: Config, read: Callable[[Path, str], Result]) -> Result:
    """Return the result of a function on the folder of an installed id."""
    folder = CacheRoot(config.root).dataset(id)
    with raised_limits(dict(config.limits)):
        return read_one_copy(folder, lambda: read(folder, id))


def _check_whole(folder: Path, id: str) -> Manifest:
    """Return the manifest of a dataset after a comparison with its files."""
    from datasets_cli.store.arrays import DatasetArrays  # with numpy

    manifest = read_manifest_of(folder, id)
    try:
        record = check_digests(folder, manifest)
    except FileNotFoundError:
        raise
    except OSError as error:  # such as a folder that only another user may enter
        raise DamagedDataset(
            f"{folder} cannot be read: {error.strerror or error}.",
            id=id,
            path=folder,
            advice="Check its permissions.",
        ) from error
    _check_content(manifest)
    with _reading_errors(manifest):
        DatasetArrays(folder, manifest, record).read_ends()
    return manifest


def _opened(folder: Path, id: str) -> Dataset:
    """Return a dataset that matches its manifest, opened with torch."""
    from datasets_cli.store.dataset import open_dataset

    with _reading_errors(_check_whole(folder, id)):
        return open_dataset(folder, text=True)


@contextmanager
def _reading_errors(manifest: Manifest) -> Iterator[None]:
    """Turn errors of reading rows into DamagedDataset."""
    try:
        yield
    except RldsError:
        raise
    except (OSError, ValueError, LookupError, TypeError, RuntimeError) as error:
        raise DamagedDataset(
            f"{manifest.id}: its files match the manifest but cannot be read "
            f"({type(error).__name__}: {error}).",
            id=manifest.id,
            advice=repair_advice(manifest.id),
        ) from error


def _check_content(manifest: Manifest) -> None:
    computed = manifest.computed_content()
    if manifest.content != computed:
        raise DamagedDataset(
            f"{manifest.id}: its manifest states the content {manifest.content}, but describes "
            f"{computed}.",
            id=manifest.id,
            expected=computed,
            found=manifest.content,
            advice=repair_advice(manifest.id),
        )
