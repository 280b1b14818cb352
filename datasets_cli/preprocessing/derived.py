"""Derived datasets: the result of a function over an installed one, under an id of its own."""

from __future__ import annotations

from concurrent.futures import Executor

from datasets_cli.config import Config
from datasets_cli.install.installed import installed_folder, installed_id
from datasets_cli.preprocessing.results import DerivedColumns, DerivedDataset
from datasets_cli.preprocessing.run import preprocess
from datasets_cli.preprocessing.task import Function, apply
from datasets_cli.progress import Progress, shown
from datasets_cli.store.cache_root import CacheRoot, check_id
from datasets_cli.store.dataset import open_dataset
from datasets_cli.store.schema.texts import type_name

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
        num_frames: only the first ``num_frames`` rows, to try a function.
        chunksize: rows that the function takes at once; by default about 8 MiB of them, at most
            65,536.
        executor: where to run instead; its workers must see the cache root.
        seed: seeds torch for every chunk, so that random functions repeat.
        progress: told of the rows done; None draws a bar on a terminal.

    Raises:
        DatasetNotInstalled: the dataset is not there.
        UsageError: ``out`` cannot be a name, the new dataset exists, or the function returns
            something else than rows.
        RldsError: the function raised, or a worker process died.
    """
    root, new_id = CacheRoot(config.root), _derived_id(out)
    with shown(progress) as told:
        storage = preprocess(
            installed_folder(root, installed_id(id, config), None),
            function,
            root.dataset(new_id),
            id=new_id,
            num_workers=num_workers,
            num_frames=num_frames,
            chunksize=chunksize,
            executor=executor,
            seed=seed,
            lock_timeout=config.lock_timeout,
            progress=told,
        )
    manifest = storage.dataset.manifest
    return DerivedDataset(
        new_id,
        root.dataset(new_id),
        manifest.num_transitions,
        manifest.size_bytes,
        manifest.state,
    )


def derived_columns(
    id: str, function: Function, out: str, config: Config, *, seed: int = 0
) -> DerivedColumns:
    """Apply a function to the first two rows and return the columns that ``derive`` would write.

    Raises:
        DatasetNotInstalled: the dataset is not there.
        UsageError: ``out`` cannot be a name, or the function returns something else than rows.
        RldsError: the function raised.
    """
    new_id = _derived_id(out)
    folder = installed_folder(CacheRoot(config.root), installed_id(id, config), None)
    dataset = open_dataset(folder, text=True)
    rows = apply(dataset, function, seed, 0, min(2, len(dataset)))
    columns = {
        ".".join(key): (type_name(values), tuple(values.shape[1:])) for key, values in rows.items()
    }
    return DerivedColumns(new_id, columns)


def _derived_id(name: str) -> str:
    return check_id(f"{FAMILY}/{name.removeprefix(f'{FAMILY}/')}")
