"""Repair of damaged datasets: intact ones stay, damaged ones are reinstalled."""

from __future__ import annotations

import shlex
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path

from datasets_cli.catalogue.entries import families
from datasets_cli.catalogue.names import InstalledIds, resolve, select_installed
from datasets_cli.config import Config
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import DRY_RUN, takes_fields
from datasets_cli.core.progress import Progress, ProgressOptions
from datasets_cli.core.progress_display import displayed
from datasets_cli.core.system_errors import repair_advice
from datasets_cli.errors import (
    DamagedDataset,
    DatasetNotInstalled,
    IntegrityError,
    PartialFailure,
    RldsError,
    argument,
)
from datasets_cli.install.find import condition_of, installed_id
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstalledDataset, InstallOptions
from datasets_cli.parallel.engine import Workers
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.commit import Identity, identity
from datasets_cli.store.manifest import OWN, Manifest, read_manifest
from datasets_cli.verbs.verify import verify_installed

SOUND = "sound"
REPAIRED = "repaired"
FAILED = "failed"


@dataclass(frozen=True)
class RepairedDataset(JsonForm):
    """The result of the repair of one dataset.

    Args:
        id: the full id.
        outcome: ``"sound"`` (not damaged), ``"repaired"`` or ``"failed"``.
        damage: a description of the damage, or empty.
        same_content: whether the data is the same as before; None if unknown.
        error: the reason why the repair failed, or None.
    """

    JSON = "id outcome damage|null same_content error=_why"

    id: str
    outcome: str
    damage: str = ""
    same_content: bool | None = None
    error: RldsError | None = None

    @property
    def _why(self) -> str | None:
        return None if self.error is None else str(self.error)


@dataclass(frozen=True)
class RepairCall(ProgressOptions, InstalledIds):
    """The arguments of ``repair``.

    Args:
        dry_run: verify without repairing.
    """

    _: KW_ONLY
    dry_run: bool = field(default=False, metadata=DRY_RUN)


@takes_fields(RepairCall)
def repair(call: RepairCall) -> list[RepairedDataset]:
    """Verify installed datasets, and reinstall damaged ones.

    Intact datasets are not changed, and intact raw files are not downloaded again. A dataset is
    reinstalled in its layout and from its original source; until then the damaged copy stays.

    Raises:
        PartialFailure: datasets are still damaged; ``results`` has all results.
        DatasetNotInstalled: a dataset is not installed.
    """
    config = call.chosen_config()
    ids = select_installed(call.ids, config)
    results = [_repair(id, config, call.dry_run, call.progress) for id in ids]
    failed = [each for each in results if each.outcome == FAILED]
    if failed:
        error = PartialFailure.of(
            [each.id for each in failed],
            len(results),
            results,
            one="is still damaged",
            several="are still damaged",
        )
        raise error from failed[0].error
    return results


def _repair(text: str, config: Config, dry_run: bool, progress: Progress | None) -> RepairedDataset:
    root = CacheRoot(config.root)
    id = installed_id(text, config, accept_fallback=False)
    copy = identity(root.dataset(id))
    try:
        verify_installed(id, config)
        return RepairedDataset(id, SOUND)
    except DatasetNotInstalled as error:  # another process has deleted it
        return RepairedDataset(id, FAILED, error=error)
    except IntegrityError as error:
        damaged = error
    # A dataset of a newer version may be intact; older files must not replace it.
    if dry_run or (isinstance(damaged, DamagedDataset) and damaged.newer):
        return RepairedDataset(id, FAILED, str(damaged), error=damaged)
    damage = str(damaged).removesuffix(f" {repair_advice(id)}")
    known = condition_of(root.dataset(id), id).manifest
    if how := _recreation_advice(id, known):
        unrepaired = DamagedDataset(damage, id=id, advice=how)
        return RepairedDataset(id, FAILED, str(unrepaired), error=unrepaired)
    try:
        made = _reinstall(id, known, copy, config, progress)
    except RldsError as error:
        return RepairedDataset(id, FAILED, damage, error=error)
    same = None if known is None else read_manifest(made.path).content == known.content
    return RepairedDataset(id, REPAIRED, damage, same)


def _recreation_advice(id: str, known: Manifest | None) -> str:
    """Return advice to recreate a derived or recorded dataset; empty for published ones."""
    if id.startswith("recorded/"):
        return "Record it again with rlds record, into another --name until this one is deleted."
    delete = f"Recreate it: {shlex.join(['rlds', 'delete', id])}, then"
    if known is None or known.parent is None:
        is_derived = id.startswith("derived/")
        by_call = f"{delete} derive it with the original call."
        return by_call if is_derived else _import_advice(id, known)
    from datasets_cli.preprocessing.origin import command_of  # with torch

    if command := command_of(known):
        return f"{delete} {command}"
    name = known.function.get("name")
    by = f"the function {name}" if name else "the original call"
    return f"{delete} derive it from {known.parent['id']} with {by}."


def _import_advice(id: str, known: Manifest | None) -> str:
    """Return advice to recreate a user's own dataset; empty for published ones."""
    source = known.resources[0] if known and known.resources else {"checked": OWN}
    if id.partition("/")[0] in families() or source.get("checked") != OWN:
        return ""
    if not (known and (format := known.metadata.get("imported_from"))):
        force = argument("force", "True")
        return f"It is your own data. Write it again, with {force}."
    path = source["filename"]
    command = shlex.join(["rlds", "import", path, "--name", id, "--force"])
    return f"It was imported from {path} ({format}). Import it again with the same --map: {command}"


def _reinstall(
    id: str, known: Manifest | None, copy: Identity, config: Config, progress: Progress | None
) -> InstalledDataset:
    """Reinstall a dataset with the options in its manifest."""
    # If another process does the same, this one waits for it, and its intact copy stays.
    options = InstallOptions(force=True, workers=Workers(num_workers=None))
    if known is not None:
        options = replace(
            options,
            layout=known.layout,
            source=_source_folder(known, config),
            accept_any=bool(known.unverified),
        )
    folder = CacheRoot(config.root).dataset(id)
    with displayed(progress) as display:
        return install_dataset(
            id,
            config,
            options,
            progress=display,
            unless=lambda: identity(folder) != copy and _is_repaired(id, known, config),
        )


def _source_folder(known: Manifest, config: Config) -> str | None:
    """Return the source folder of raw files; None if they were downloaded or ship with rlds."""
    first = known.resources[0] if known.resources else {}
    url, filename = str(first.get("url", "")), str(first.get("filename", ""))
    if not Path(url).is_absolute():
        return None
    ships = resolve(known.id, CacheRoot(config.root), unlisted=True).recipe.folder is not None
    return None if ships else url.removesuffix(filename).rstrip("/")


def _is_repaired(id: str, known: Manifest | None, config: Config) -> bool:
    """Return whether the copy of another process is intact; reject a damaged copy."""
    try:
        verify_installed(id, config)  # fails if another process has deleted it
    except IntegrityError:
        here = condition_of(CacheRoot(config.root).dataset(id), id).manifest
        if here and known and here.content != known.content:
            raise
        return False
    return True
