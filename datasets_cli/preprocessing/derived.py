"""Derived datasets: the result of a function over an installed one, under an id of its own."""

from __future__ import annotations

from pathlib import Path

from datasets_cli.config import Config
from datasets_cli.install.condition import condition_of
from datasets_cli.install.find import installed_folder, installed_id
from datasets_cli.parallel.engine import IN_THIS_PROCESS, Workers
from datasets_cli.preprocessing.functions import load_function
from datasets_cli.preprocessing.options import PreprocessOptions
from datasets_cli.preprocessing.pipelines.choice import choose
from datasets_cli.preprocessing.requests import request_of
from datasets_cli.preprocessing.results import DerivedColumns, DerivedDataset
from datasets_cli.preprocessing.run import Run, write_derived
from datasets_cli.preprocessing.task import Mapped
from datasets_cli.progress import Progress
from datasets_cli.progress_bars import shown
from datasets_cli.store.cache_root import CacheRoot, check_id, has_manifest
from datasets_cli.store.commit import restore
from datasets_cli.store.dataset import open_dataset
from datasets_cli.store.lock import dest_locked
from datasets_cli.store.manifest import read_manifest
from datasets_cli.store.rows.selection import Selection
from datasets_cli.store.schema.texts import TEXT, AnyColumn
from datasets_cli.store.tables import remove_tables
from datasets_cli.store.unverified import warn_if_unverified

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
    """Write a function of every row of an installed dataset into the dataset ``derived/<out>``."""
    # function: takes a TensorDict `[n]` of consecutive rows, a copy, and returns one `[n]`, or one
    # of fewer of these rows; or its name; or a `Pipeline`.
    if isinstance(function, str):
        function = load_function(function)
    root, new_id, source = CacheRoot(config.root), derived_id(out), installed_id(id, config)
    dest = root.dataset(new_id).resolve()
    if root.trashed(new_id):  # of a process that was killed between two renames
        with dest_locked(dest, config.lock_timeout, progress):
            restore(root, new_id)
    older = condition_of(dest, new_id).manifest if has_manifest(dest) else None
    folder = installed_folder(root, source, None)
    with shown(progress) as told:
        is_written = write_derived(
            folder,
            function,
            dest,
            options,
            selection=selection_of(folder, options, root),
            id=new_id,
            workers=workers,
            lock_timeout=config.lock_timeout,
            progress=told,
            trash=root.new_trash(new_id) if replaces else None,
            request=request_of(source, function, options, replaces),
        )
    manifest = read_manifest(root.dataset(new_id))
    if older is not None and older.content != manifest.content:
        remove_tables(root, older.content)
    warn_if_unverified(manifest)
    return derived_dataset(new_id, config, unchanged=not is_written)


def derived_dataset(id: str, config: Config, *, unchanged: bool) -> DerivedDataset:
    """Return what a derived dataset is."""
    folder = CacheRoot(config.root).dataset(id)
    manifest = read_manifest(folder)
    return DerivedDataset(
        id,
        folder,
        manifest.num_transitions,
        manifest.size_bytes,
        manifest.state,
        unchanged=unchanged,
    )


def selection_of(folder: Path, options: PreprocessOptions, root: CacheRoot) -> Selection | None:
    """Return the rows of a dataset that a run reads, as a view; None where it reads all."""
    if options.where is None and options.max_trajectories is None:
        return None
    dataset = open_dataset(folder)
    return choose(dataset, options.where, options.max_trajectories, options.seed, root)


def derived_columns(
    id: str,
    function: Mapped | str,
    out: str,
    config: Config,
    *,
    options: PreprocessOptions = ALL_ROWS,
) -> DerivedColumns:
    """Apply a function to the first rows and return the columns that ``derive`` would write."""
    if isinstance(function, str):
        function = load_function(function)
    new_id, root = derived_id(out), CacheRoot(config.root)
    folder = installed_folder(root, installed_id(id, config), None)
    dataset = open_dataset(folder, text=True)
    if selection := selection_of(folder, options, root):
        dataset = dataset.select(selection)
    run = Run(dataset, function, options)
    numbers, texts, _ = run.probe()
    types: dict[AnyColumn, str] = {column: column.dtype for column in numbers}
    types |= dict.fromkeys(texts, TEXT)
    columns = {
        ".".join(column.key): (types[column], tuple(column.shape))
        for column in sorted(types, key=lambda column: column.key)
    }
    return DerivedColumns(new_id, columns, run.num_rows, run.num_trajectories)


def derived_id(name: str) -> str:
    """Return the id of a derived dataset, whose family may be left out."""
    return check_id(f"{FAMILY}/{name.removeprefix(f'{FAMILY}/')}")
