"""Verifying installed datasets, each with its result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass

from datasets_cli.catalogue.selection import as_list, select_installed, together
from datasets_cli.config import Config, RootOptions
from datasets_cli.errors import (
    DamagedDataset,
    DatasetNotInstalled,
    IntegrityError,
    PartialFailure,
    RldsError,
    UnknownDataset,
    UsageError,
)
from datasets_cli.install.installed import condition_of, installed_id
from datasets_cli.json_form import JsonForm
from datasets_cli.options import takes_fields
from datasets_cli.progress import Progress, ProgressOptions
from datasets_cli.progress_bars import shown
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.deep_check.report import DeepReport

NOT_INSTALLED = "not installed"


@dataclass(frozen=True)
class VerifiedDataset(JsonForm):
    """What came of comparing an installed dataset with its manifest.

    Args:
        id: the full id.
        num_files: files that were compared; None where one differs.
        unverified: why its raw files are not known to be the publisher's; empty where they are.
        error: names every file that differs, or says that the dataset is not there; None where
            all is well.
        state: ``"installed"``, ``"unchecked"``, ``"unverified"``, ``"newer"``, ``"damaged"`` or
            ``"not installed"``.
        opened: whether it was also opened, and rows of it read.
        report: what reading every value found out; None where that was not asked for.
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
        """Whether every file is as the manifest says."""
        return self.error is None

    @property
    def _opened(self) -> bool | None:
        return self.opened if self.ok else None


@dataclass(frozen=True)
class VerifyCall(ProgressOptions, RootOptions):
    """What ``verify`` takes.

    Args:
        ids: an id, a name that resolves to one, a glob, or several of them; all by default.
        quick: compare sizes only, not the sha256 of every file, and open nothing.
        deep: also read every value: offsets, the rules of the format, frames, NaN. What that finds
            out is kept beside the datasets, and ``dataset_info`` has it.
    """

    ids: str | Iterable[str] = "*"
    _: KW_ONLY
    quick: bool = False
    deep: bool = False


@takes_fields(VerifyCall)
def verify(call: VerifyCall) -> list[VerifiedDataset]:
    """Compare every file of installed datasets with their manifests, and open them.

    Raises:
        UsageError: ``quick`` and ``deep`` are both asked for.
        IntegrityError: some are damaged; ``results`` has every dataset.
        PartialFailure: some are not there; ``results`` has every dataset, and the others are done.
        UnknownDataset, DatasetNotInstalled: none is there.
    """
    config = call.chosen_config()
    if call.quick and call.deep:
        raise UsageError("quick compares sizes only and deep reads every value. Give one of them.")
    results: dict[str, VerifiedDataset] = {}
    for text in as_list(call.ids):
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
        f"{word}: {', '.join(result.id for result in found)}."
        for word, found in named.items()
        if found
    )
    kind = IntegrityError if damaged or newer else PartialFailure
    failure = kind(f"{text} What to do is said of each.")
    failure.results, failure.__cause__ = results, causes[0]
    return failure


def _verify_sizes(id: str, config: Config) -> VerifiedDataset:
    condition = condition_of(CacheRoot(config.root).dataset(id), id)
    manifest = condition.sound_manifest
    if manifest is None:
        error = DamagedDataset(condition.problem)
        return VerifiedDataset(id, error=error, state=condition.state)
    return VerifiedDataset(
        id, len(manifest.files), tuple(manifest.unverified), state=manifest.state
    )


def _verify(id: str, config: Config, deep: bool, progress: Progress | None) -> VerifiedDataset:
    # Opening a dataset imports torch.
    from datasets_cli.manager.verification import verify, verify_deep

    report = None
    try:
        if deep:
            with shown(progress, "steps checked") as told:
                manifest, report = verify_deep(id, config, told)
        else:
            manifest = verify(id, config)
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
