"""Derived datasets: the results of functions over installed datasets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from datasets_cli.config import Config
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.progress import Progress
from datasets_cli.core.progress_display import displayed
from datasets_cli.core.quantities import counted
from datasets_cli.errors import UsageError, argument, by_reader
from datasets_cli.install.find import check_owner, condition_of, installed_id
from datasets_cli.parallel.engine import IN_THIS_PROCESS, Workers
from datasets_cli.preprocessing.execution import write_derived
from datasets_cli.preprocessing.function import load_function
from datasets_cli.preprocessing.options import PreprocessOptions
from datasets_cli.preprocessing.pipeline import Mapped
from datasets_cli.preprocessing.run import PreprocessRun
from datasets_cli.replay.queries.views import selected
from datasets_cli.replay.samplers.orders import permutation
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.replay.trajectories.trajectory_table import Trajectories
from datasets_cli.schema.columns import Column
from datasets_cli.schema.texts import TEXT
from datasets_cli.store.cache_root import CacheRoot, check_id
from datasets_cli.store.commit import discard, restore
from datasets_cli.store.dataset import Dataset, open_dataset, warn_if_unverified
from datasets_cli.store.lock import dest_locked
from datasets_cli.store.manifest import Manifest
from datasets_cli.store.selection import Selection, whole_dataset

FAMILY = "derived"
ALL_ROWS = PreprocessOptions()


def derive(
    id: str,
    function: Mapped | str,
    out: str,
    config: Config,
    *,
    options: PreprocessOptions = ALL_ROWS,
    workers: Workers = IN_THIS_PROCESS,
    progress: Progress | None = None,
    replaces: bool = False,
) -> DerivedDataset:
    """Map a function over an installed dataset into the dataset ``derived/<out>``."""
    # function: takes a TensorDict `[n]` of consecutive rows, a copy, and returns one `[n]`, or
    # fewer of these rows; or the name of such a function; or a `Pipeline`.
    if isinstance(function, str):
        function = load_function(function)
    root, new_id, source = CacheRoot(config.root), derived_id(out), installed_id(id, config)
    dest = root.dataset(new_id).resolve()
    trash = root.new_trash(new_id) if replaces else None
    with displayed(progress) as display:
        if root.trashed(new_id):  # a process was killed between two renames
            with dest_locked(dest, config.lock_timeout, display):
                restore(root, new_id)
        dataset = open_rows(source, options, root)
        manifest, is_new = write_derived(
            dataset,
            function,
            dest,
            options,
            id=new_id,
            workers=workers,
            lock_timeout=config.lock_timeout,
            progress=display,
            trash=trash,
        )
    if trash is not None:
        discard(root, trash, manifest)
    warn_if_unverified(manifest)
    return DerivedDataset.of(new_id, root.dataset(new_id), manifest, unchanged=not is_new)


def open_rows(id: str, options: PreprocessOptions, root: CacheRoot) -> Dataset:
    """Open the rows of an installed dataset that a run reads, with text."""
    folder = root.dataset(id)
    dataset = open_dataset(folder, text=True, accept=lambda manifest: check_owner(manifest, id))
    selection = selection_of(dataset, options, root)
    return dataset if selection is None else dataset.select(selection)


def selection_of(dataset: Dataset, options: PreprocessOptions, root: CacheRoot) -> Selection | None:
    """Return the view of the trajectories that options choose; None for all."""
    where, count = options.where, options.max_trajectories
    if not options.chooses:
        return None
    offsets = dataset.offsets.numpy()
    chosen = whole_dataset(dataset.manifest.content, offsets)
    if where is not None:
        chosen = selected(where, dataset, chosen, Trajectories(DatasetStorage(dataset), root))
        if not len(chosen):
            raise UsageError(
                f"{argument('where')}: {where!r} matches none of the "
                f"{counted(len(offsets) - 1, 'trajectory')} of {dataset.id}.",
                argument="where",
                id=dataset.id,
                found=where,
                advice=by_reader(
                    f"See: rlds trajectories {dataset.id}",
                    "ExperienceReplay(...).trajectories is the table of them.",
                ),
            )
    if count is not None and count < len(chosen):
        drawn = permutation(len(chosen), options.seed).at(np.arange(count))
        chosen = chosen.at(np.sort(drawn), f"max_trajectories({count}, seed={options.seed})")
    return chosen if chosen.steps else None


def derived_columns(
    id: str,
    function: Mapped | str,
    out: str,
    config: Config,
    *,
    options: PreprocessOptions = ALL_ROWS,
) -> DerivedColumns:
    """Call a function with the first rows; return the columns that ``derive`` would write."""
    if isinstance(function, str):
        function = load_function(function)
    new_id, root = derived_id(out), CacheRoot(config.root)
    run = PreprocessRun(open_rows(installed_id(id, config), options, root), function, options)
    columns = {
        ".".join(key): (column.dtype if isinstance(column, Column) else TEXT, column.shape)
        for key, column in sorted(run.columns.by_key.items())
    }
    size = run.result_bytes(run.first_frames())
    made = condition_of(root.dataset(new_id), new_id).manifest
    changes = [] if made is None else run.origin.differences(made)
    counts = run.num_rows, run.num_trajectories
    notes = (*run.notes, *run.final_notes)
    return DerivedColumns(
        new_id, columns, *counts, run.layout, size, changes=tuple(changes), notes=notes
    )


def derived_id(name: str) -> str:
    """Return the id of a derived dataset; the name may have the family already."""
    return check_id(f"{FAMILY}/{name.removeprefix(f'{FAMILY}/')}")


@dataclass(frozen=True)
class DerivedDataset(JsonForm):
    """A dataset that ``preprocess`` wrote.

    Args:
        id: ``derived/<name>``.
        path: its folder.
        num_transitions: number of transitions.
        size_bytes: size of all its files.
        state: the state of its parent: ``"installed"``, ``"unchecked"`` or ``"unverified"``.
        unchanged: whether it existed, from the same data, function and arguments.
        final_steps: the number of its final steps.
        notes: notes about its rows, such as that final steps were dropped.
    """

    JSON = "id path num_transitions final_steps bytes=size_bytes state unchanged notes"

    id: str
    path: Path
    num_transitions: int
    size_bytes: int
    state: str = "installed"
    unchanged: bool = False
    final_steps: int = 0
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, id: str, folder: Path, manifest: Manifest, *, unchanged: bool) -> Self:
        """Return the dataset of a manifest."""
        size, state = manifest.size_bytes, manifest.state
        about = manifest.final_steps, tuple(manifest.metadata.get("notes", ()))
        return cls(id, folder, manifest.num_transitions, size, state, unchanged, *about)


@dataclass(frozen=True)
class DerivedColumns(JsonForm):
    """The columns that ``preprocess`` would write.

    Args:
        id: ``derived/<name>``.
        columns: ``{key joined by dots: (dtype, shape of a row)}``.
        num_transitions: number of transitions of the input.
        num_trajectories: number of trajectories of the input.
        layout: layout of the new dataset.
        size_bytes: approximate size of its numbers, if all frames compress like the first ones.
        changes: differences from the origin of the installed dataset of that id, if there is one.
        notes: notes about the function, such as that it is random.
    """

    JSON = "id columns num_transitions num_trajectories layout bytes=size_bytes changes notes"

    id: str
    columns: Mapping[str, tuple[str, tuple[int, ...]]]
    num_transitions: int
    num_trajectories: int
    layout: str
    size_bytes: int
    changes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
