"""Mapping a function over a dataset in parallel, into a new dataset.

    <dest's parent>/.<dest's name>.partial/     plan.json, leaves at full size, parts/<k>.done

Each part of the rows writes its own bytes of preallocated files and then a mark, so that any number
of workers on any executor gives the same bytes, and a run that was killed goes on.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import cloudpickle
import numpy as np
import torch
from tensordict import TensorDict

from datasets_cli.engine import local_executor
from datasets_cli.errors import RldsError, UsageError
from datasets_cli.progress import Progress, Silent
from datasets_cli.recipe import rows_per_block
from datasets_cli.replay.storage import DatasetStorage, open_storage
from datasets_cli.sources.disk import check_free_space, disk_errors
from datasets_cli.store.columns import Column, Key, column_of, show_key, write_meta_files
from datasets_cli.store.dataset import Dataset, open_dataset
from datasets_cli.store.layout import MANIFEST_FILENAME
from datasets_cli.store.manifest import Manifest, write_manifest
from datasets_cli.store.summary import summarise
from datasets_cli.store.ted import REWARD
from datasets_cli.store.trajectories import FILENAME as TRAJECTORIES
from datasets_cli.store.trajectories import write_offsets
from datasets_cli.store.writer import describe_files
from datasets_cli.version import TOOL

Function = Callable[[TensorDict], TensorDict]


@dataclass(frozen=True)
class Part:
    """One task: everything a worker on any machine that sees the folders needs."""

    source: Path
    staging: Path
    number: int
    start: int
    stop: int
    seed: int
    function: bytes
    columns: tuple[Column, ...]


def preprocess(
    source: Path,
    function: Function,
    dest: Path,
    *,
    id: str | None = None,
    num_workers: int | None = None,
    num_frames: int | None = None,
    executor: Executor | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> DatasetStorage:
    """Write ``function`` of every row into a new dataset and return it as a read-only storage.

    Args:
        source: folder of the dataset to read.
        function: takes a TensorDict ``[n]`` of consecutive rows, a copy, and returns a TensorDict
            ``[n]``, always with the same keys, element types and row shapes.
        dest: folder of the new dataset; it must not hold anything.
        id: id of the new dataset; ``derived/<name of dest>`` by default.
        num_workers: processes; all cores where None, the calling process where 0.
        num_frames: only the first so many rows, to try a function.
        executor: where to run instead; its workers must see both folders.
        seed: seeds torch anew for every part, so that random functions repeat.
        progress: told of the rows done.

    Raises:
        UsageError: ``dest`` is not empty, or the function returns something else than rows.
        RldsError: the function raised (the rows are named), or a worker process died. What is done
            is kept: the same call goes on.
    """
    dataset = open_dataset(source)
    num_rows = min(num_frames or len(dataset), len(dataset))
    if dest.exists() and any(dest.iterdir()):
        raise UsageError(f"{dest} is not empty. Delete it first, or choose another destination.")
    staging = dest.parent / f".{dest.name}.partial"
    pickled = cloudpickle.dumps(function)
    columns = _probe(dataset, function, seed, num_rows)
    _prepare(staging, dataset, pickled, columns, num_rows, seed)
    parts = list(_parts(dataset, staging, pickled, columns, num_rows, seed))
    if num_workers is None and len(parts) <= 1:
        num_workers = 0  # starting a process takes longer than one part
    # A pool that is handed in belongs to its owner; one made here ends here.
    with nullcontext(executor) if executor else local_executor(num_workers) as pool:
        _run(pool, parts, staging, num_rows, progress or Silent())
    _commit(dataset, staging, dest, columns, num_rows, id or f"derived/{dest.name}")
    return open_storage(dest)


def _probe(dataset: Dataset, function: Function, seed: int, num_rows: int) -> tuple[Column, ...]:
    """Return the columns that the function gives, learned from the first two rows."""
    rows = apply(dataset, function, seed, 0, min(2, num_rows))
    return tuple(column_of(key, values) for key, values in sorted(rows.items()))


def apply(
    dataset: Dataset, function: Function, seed: int, start: int, stop: int
) -> dict[Key, np.ndarray]:
    """Return the function's columns ``[stop - start, ...]`` for a run of rows.

    Raises:
        RldsError: the function raised.
        UsageError: it returned something else than one row for each row.
    """
    where = f"rows {start} to {stop - 1} of {dataset.manifest.id}"
    batch = DatasetStorage(dataset).run(start, stop)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(np.random.SeedSequence([seed, start]).generate_state(1)[0]))
        try:
            result = function(batch)
        except Exception as error:
            raise RldsError(
                f"The function failed on {where}: {type(error).__name__}: {error}"
            ) from error
    if not isinstance(result, TensorDict) or result.batch_size[:1] != (stop - start,):
        found = f"a TensorDict {list(result.batch_size)}" if isinstance(result, TensorDict) else ""
        raise UsageError(
            f"The function must return a TensorDict with one row for each of {where}, but returned "
            f"{found or type(result).__name__}."
        )
    keys = result.keys(include_nested=True, leaves_only=True)
    names = [(key,) if isinstance(key, str) else key for key in keys]
    rows = {name: np.ascontiguousarray(result.get(name).detach().cpu().numpy()) for name in names}
    if not rows:
        raise UsageError(f"The function returned no columns for {where}.")
    return rows


def _prepare(
    staging: Path,
    dataset: Dataset,
    pickled: bytes,
    columns: tuple[Column, ...],
    num_rows: int,
    seed: int,
) -> None:
    """Make the staging folder, or keep that of a killed run of exactly the same plan."""
    manifest_digest = _digest(dataset.folder / MANIFEST_FILENAME)
    plan = {
        "source": manifest_digest,
        "function": hashlib.sha256(pickled).hexdigest(),
        "columns": [column.to_json(num_rows) for column in columns],
        "num_rows": num_rows,
        "seed": seed,
    }
    path = staging / "plan.json"
    if path.is_file() and json.loads(path.read_bytes()) == plan:
        return
    shutil.rmtree(staging, ignore_errors=True)
    total = sum(column.row_bytes for column in columns) * num_rows
    check_free_space(staging.parent, total, str(staging))
    with disk_errors(staging):
        (staging / "parts").mkdir(parents=True)
        for column in columns:
            if column.row_bytes:
                _allocate(staging / column.filename, column.row_bytes * num_rows)
        path.write_text(json.dumps(plan), encoding="utf-8")


def _allocate(path: Path, size: int) -> None:
    """Reserve a file's blocks now: a mapping or a late write would fail half-way on a full disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            for _ in range(0, size, 1 << 20):
                file.write(bytes(min(1 << 20, size - file.tell())))


def _parts(
    dataset: Dataset,
    staging: Path,
    pickled: bytes,
    columns: tuple[Column, ...],
    num_rows: int,
    seed: int,
) -> Iterator[Part]:
    """Yield the parts that are not done; their bounds do not depend on the workers."""
    step = rows_per_block(sum(column.row_bytes for column in dataset.manifest.columns))
    for number, start in enumerate(range(0, num_rows, step)):
        if not _mark(staging, number).exists():
            stop = min(start + step, num_rows)
            yield Part(dataset.folder, staging, number, start, stop, seed, pickled, columns)


def _run(
    pool: Executor, parts: list[Part], staging: Path, num_rows: int, progress: Progress
) -> None:
    futures = {pool.submit(write_part, part): part for part in parts}
    done = num_rows - sum(part.stop - part.start for part in futures.values())
    progress.converting(done)
    try:
        for future in as_completed(futures):
            future.result()
            done += futures[future].stop - futures[future].start
            progress.converting(done)
    except BrokenExecutor as error:
        raise RldsError(
            "A worker process died: it was killed, ran out of memory, or could not start because "
            'the calling script has no `if __name__ == "__main__":`. What is done is kept in '
            f"{staging}; the same call goes on from there. Fewer workers need less memory."
        ) from error
    finally:
        for future in futures:
            future.cancel()


def write_part(part: Part) -> None:
    """Write one part's bytes and its mark; runs in a worker.

    Raises:
        RldsError: the function raised.
        UsageError: it returned other columns than for the first rows.
    """
    dataset = open_dataset(part.source)
    rows = apply(dataset, cloudpickle.loads(part.function), part.seed, part.start, part.stop)
    found = {key: column_of(key, values) for key, values in rows.items()}
    expected = {column.key: column for column in part.columns}
    if found != expected:
        wrong = min(
            key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key)
        )
        raise UsageError(
            f"The function must return the same columns everywhere: for rows {part.start} to "
            f"{part.stop - 1}, {show_key(wrong)} is {found.get(wrong)}, but for the first rows it "
            f"was {expected.get(wrong)}."
        )
    with disk_errors(part.staging):
        for key, column in expected.items():
            if column.row_bytes:
                with (part.staging / column.filename).open("r+b") as file:
                    file.seek(part.start * column.row_bytes)
                    file.write(np.ascontiguousarray(rows[key], column.dtype).data)
                    file.flush()
                    os.fsync(file.fileno())
        _mark(part.staging, part.number).touch()


def _mark(staging: Path, number: int) -> Path:
    return staging / "parts" / f"{number}.done"


def _commit(
    dataset: Dataset,
    staging: Path,
    dest: Path,
    columns: tuple[Column, ...],
    num_rows: int,
    id: str,
) -> None:
    """Write what follows from all rows, the manifest last, and move the folder to its place."""
    offsets = dataset.offsets.numpy()
    offsets = np.append(offsets[offsets < num_rows], num_rows)
    with disk_errors(staging):
        shutil.rmtree(staging / "parts")
        (staging / "plan.json").unlink()
        write_offsets(staging / TRAJECTORIES, offsets)
        names = [TRAJECTORIES, *write_meta_files(staging, columns, num_rows)]
        names += [column.filename for column in columns if column.row_bytes]
        files = describe_files(staging, names)
        reward = next((column for column in columns if column.key == REWARD), None)
        write_manifest(
            staging,
            Manifest(
                id=id,
                layout=dataset.manifest.layout,
                num_transitions=num_rows,
                num_trajectories=len(offsets) - 1,
                columns=columns,
                files=files,
                recipe=dataset.manifest.recipe,
                metadata=dataset.manifest.metadata,
                statistics=summarise(staging, reward, offsets),
                parent={
                    "id": dataset.manifest.id,
                    "manifest_sha256": _digest(dataset.folder / MANIFEST_FILENAME),
                },
                tool=TOOL,
            ),
        )
        dest.parent.mkdir(parents=True, exist_ok=True)
        os.rename(staging, dest)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
