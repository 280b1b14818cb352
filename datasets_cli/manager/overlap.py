"""Overlap: which rows and trajectories of one installed dataset stand in another one, too."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from datasets_cli.catalogue.selection import InstalledIds, select_installed
from datasets_cli.errors import UsageError
from datasets_cli.install.installed import open_installed
from datasets_cli.json_form import JsonForm
from datasets_cli.options import takes_fields
from datasets_cli.progress import Progress, ProgressOptions, of_dataset
from datasets_cli.progress_bars import shown
from datasets_cli.schema.columns import Key
from datasets_cli.sources.disk import check_free_space, path_errors
from datasets_cli.store.cache_root import CacheRoot

if TYPE_CHECKING:
    from datasets_cli.audit.overlap import Digested
    from datasets_cli.store.arrays import DatasetArrays

COMPARED = ("observation", "action")


@dataclass(frozen=True)
class DatasetOverlap(JsonForm):
    """What two installed datasets have in common, bit by bit.

    Args:
        ids: of both.
        columns: by which they are compared: observations and actions that have one name, type and
            shape in both; none where nothing is comparable.
        left_out: observations and actions that are not so.
        num_transitions: rows of each.
        num_trajectories: of each.
        num_shared_transitions: rows of each that stand in the other one, too.
        num_shared_trajectories: of each that stand in the other one, all rows in order.
        transitions: the first of them: a row of the first dataset, and one of the second.
        trajectories: likewise.
    """

    ids: tuple[str, str]
    columns: tuple[Key, ...]
    left_out: tuple[Key, ...]
    num_transitions: tuple[int, int]
    num_trajectories: tuple[int, int]
    num_shared_transitions: tuple[int, int] = (0, 0)
    num_shared_trajectories: tuple[int, int] = (0, 0)
    transitions: tuple[tuple[int, int], ...] = ()
    trajectories: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class OverlapCall(ProgressOptions, InstalledIds):
    """What ``find_overlap`` takes."""


@takes_fields(OverlapCall)
def find_overlap(call: OverlapCall) -> list[DatasetOverlap]:
    """Return which rows and trajectories each two of some datasets have in common.

    Layouts may differ. Memory does not grow with the rows: digests are kept under the root, 16
    bytes for each row and trajectory, until all is compared.

    Raises:
        UsageError: fewer than two datasets are meant.
        DatasetNotInstalled, UnknownDataset: one is not there.
        DamagedDataset: one is not what its manifest says.
        DiskFull: the root has no room for the digests.
    """
    config = call.chosen_config()
    opened = (open_installed(id, config) for id in select_installed(call.ids, config))
    datasets = {dataset.id: dataset for dataset in opened}
    if len(datasets) < 2:
        raise UsageError(
            f"An overlap is that of two datasets or more; found: {', '.join(datasets) or 'none'}. "
            "What stands twice in a single one, its audit finds: duplicate-trajectory."
        )
    folder = CacheRoot(config.root).new_staging("overlap")
    try:
        with shown(call.progress, "rows compared") as told, path_errors(folder):
            folder.mkdir(parents=True)
            digested: dict[tuple[str, frozenset[Key]], Digested] = {}
            pairs = combinations(datasets.values(), 2)
            return [_overlap(one, other, digested, folder, told) for one, other in pairs]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _overlap(
    one: DatasetArrays,
    other: DatasetArrays,
    digested: dict[tuple[str, frozenset[Key]], Digested],
    folder: Path,
    progress: Progress,
) -> DatasetOverlap:
    """Return the overlap of two datasets; each is read once for the columns of several pairs."""
    from datasets_cli.audit.overlap import RECORD_BYTES, Digested, shared  # with numpy

    pair = one, other
    columns = [{each for each in x.manifest.columns if each.key[0] in COMPARED} for x in pair]
    keys = frozenset(each.key for each in columns[0] & columns[1])
    overlap = DatasetOverlap(
        (one.id, other.id),
        tuple(sorted(keys)) if any(key[0] == "observation" for key in keys) else (),
        tuple(sorted({each.key for each in columns[0] ^ columns[1]})),
        (len(one), len(other)),
        (one.num_trajectories, other.num_trajectories),
    )
    if not overlap.columns:
        return overlap
    for each in pair:
        if (each.id, keys) not in digested:
            room = RECORD_BYTES * (len(each) + each.num_trajectories)
            check_free_space(folder, room, f"Comparing {each.id}")
            with of_dataset(progress, each.id) as told:
                digested[each.id, keys] = Digested(each, keys, folder, told)
    both = [digested[each.id, keys] for each in pair]
    num_rows, rows = shared(*both, "rows", progress)
    num_trajectories, trajectories = shared(*both, "trajectories", progress)
    return replace(
        overlap,
        num_shared_transitions=num_rows,
        num_shared_trajectories=num_trajectories,
        transitions=rows,
        trajectories=trajectories,
    )
