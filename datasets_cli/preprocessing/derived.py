"""Derived datasets: the result of a function over an installed one, under an id of its own."""

from __future__ import annotations

from concurrent.futures import Executor

from datasets_cli.config import Config
from datasets_cli.installed.lookup import installed_folder, installed_id
from datasets_cli.preprocessing.options import PreprocessOptions
from datasets_cli.preprocessing.results import DerivedColumns, DerivedDataset, Per
from datasets_cli.preprocessing.run import Run, write_derived
from datasets_cli.preprocessing.task import Function
from datasets_cli.progress import Progress
from datasets_cli.progress_bars import shown
from datasets_cli.store.cache_root import CacheRoot, check_id
from datasets_cli.store.dataset import open_dataset
from datasets_cli.store.manifest import read_manifest
from datasets_cli.store.schema.texts import TEXT, AnyColumn
from datasets_cli.store.unverified import warn_if_unverified

FAMILY = "derived"


def derive(
    id: str,
    function: Function,
    out: str,
    config: Config,
    *,
    num_workers: int | None = 0,
    num_frames: int | None = None,
    chunksize: int | None = None,
    num_chunks: int | None = None,
    per: Per = "trajectory",
    executor: Executor | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> DerivedDataset:
    """Write a function of every row of an installed dataset into the dataset ``derived/<out>``.

    Args:
        id: an id, or a name that resolves to one.
        function: takes a TensorDict ``[n]`` of consecutive rows, a copy, and returns one ``[n]``.
        out: name of the new dataset.
        config: the root.
        num_workers: processes; all cores where None, the calling process where 0.
        num_frames: as in ``PreprocessOptions``, and so are the next three and ``seed``.
        chunksize: rows that the function takes at once, to the next end of a trajectory.
        num_chunks: the number of chunks instead.
        per: whether chunks are whole trajectories.
        executor: where to run instead; its workers must see the cache root.
        seed: seeds torch for every chunk.
        progress: told of the rows done; None draws a bar on a terminal.

    Raises:
        DatasetNotInstalled: the dataset is not there.
        UsageError: ``out`` cannot be a name, it was made otherwise, or the function returns
            something else than rows.
        RldsError: the function raised, or a worker process died.
    """
    root, new_id = CacheRoot(config.root), _derived_id(out)
    with shown(progress) as told:
        is_written = write_derived(
            installed_folder(root, installed_id(id, config), None),
            function,
            root.dataset(new_id),
            PreprocessOptions(num_frames, chunksize, num_chunks, per, seed),
            id=new_id,
            num_workers=num_workers,
            executor=executor,
            lock_timeout=config.lock_timeout,
            progress=told,
        )
    manifest = read_manifest(root.dataset(new_id))
    warn_if_unverified(manifest)
    return DerivedDataset(
        new_id,
        root.dataset(new_id),
        manifest.num_transitions,
        manifest.size_bytes,
        manifest.state,
        unchanged=not is_written,
    )


def derived_columns(
    id: str,
    function: Function,
    out: str,
    config: Config,
    *,
    per: Per = "trajectory",
    seed: int = 0,
) -> DerivedColumns:
    """Apply a function to the first rows and return the columns that ``derive`` would write.

    Args:
        id: as for ``derive``, and so are the others.
        function: applied to the first trajectory; to two rows with ``per="transition"``.
        out: name of the new dataset.
        config: the root.
        per: whether chunks are whole trajectories.
        seed: seeds torch.

    Raises:
        DatasetNotInstalled: the dataset is not there.
        UsageError: ``out`` cannot be a name, or the function returns something else than rows.
        RldsError: the function raised.
    """
    new_id = _derived_id(out)
    folder = installed_folder(CacheRoot(config.root), installed_id(id, config), None)
    dataset = open_dataset(folder, text=True)
    run = Run(dataset, function, PreprocessOptions(per=per, seed=seed))
    numbers, texts = run.probe()
    types: dict[AnyColumn, str] = {column: column.dtype for column in numbers}
    types |= dict.fromkeys(texts, TEXT)
    columns = {
        ".".join(column.key): (types[column], tuple(column.shape))
        for column in sorted(types, key=lambda column: column.key)
    }
    return DerivedColumns(new_id, columns)


def _derived_id(name: str) -> str:
    return check_id(f"{FAMILY}/{name.removeprefix(f'{FAMILY}/')}")
