"""Mapping a function over a dataset in parallel, into a new dataset.

    <dest's parent>/.<dest's name>.<plan>.partial/    plan.json, data/ at full size, parts/<k>.done

Each part of the rows writes its own bytes of preallocated files and then a mark, so that any number
of workers on any executor gives the same bytes, and a run that was killed goes on.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, as_completed
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import cloudpickle
import numpy as np
import torch
from tensordict import TensorDict

from datasets_cli.engine import local_executor
from datasets_cli.errors import RldsError, UsageError
from datasets_cli.progress import Progress, Silent
from datasets_cli.replay.storage import DatasetStorage, open_storage
from datasets_cli.sources.disk import check_free_space, disk_errors
from datasets_cli.store.columns import (
    DONE,
    TRUNCATED,
    Column,
    Key,
    column_of,
    rows_per_block,
    show_key,
    write_meta_files,
)
from datasets_cli.store.commit import flush, flush_folder
from datasets_cli.store.dataset import Dataset, open_dataset
from datasets_cli.store.layout import MANIFEST_FILENAME
from datasets_cli.store.manifest import Manifest, write_manifest
from datasets_cli.store.summary import summarise
from datasets_cli.store.writer import reward_column, write_beside
from datasets_cli.version import TOOL

Function = Callable[[TensorDict], TensorDict]


@dataclass(frozen=True)
class Part:
    """One task: everything a worker on any machine that sees the folders needs."""

    source: Path
    data: Path
    mark: Path
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
    if num_frames is not None and num_frames < 1:
        raise UsageError(f"num_frames is {num_frames}; expected 1 or more.")
    dataset = open_dataset(source)
    num_rows = min(num_frames or len(dataset), len(dataset))
    _check_free(dest)
    columns = _probe(dataset, function, seed, num_rows)
    pickled = cloudpickle.dumps(function)
    work = _Work(dest, _plan(dataset, function, pickled, columns, num_rows, seed))
    with _locked(dest):
        _check_free(dest)
        work.prepare(columns, num_rows)
        parts = list(_parts(dataset, work, pickled, columns, num_rows, seed))
        if num_workers is None and len(parts) <= 1:
            num_workers = 0  # starting a process takes longer than one part
        # A pool that is handed in belongs to its owner; one made here ends here.
        with nullcontext(executor) if executor else local_executor(num_workers) as pool:
            _run(pool, parts, work, num_rows, progress or Silent())
        _commit(dataset, work, columns, num_rows, id or f"derived/{dest.name}")
    return open_storage(dest)


class _Work:
    """The folder of a run: what is done lies there until the new dataset has its name.

    Args:
        dest: folder of the new dataset.
        plan: everything that decides the bytes; another plan works in another folder.
    """

    def __init__(self, dest: Path, plan: bytes) -> None:
        self.dest = dest
        digest = hashlib.sha256(plan).hexdigest()[:16]
        self.folder = dest.parent / f".{dest.name}.{digest}.partial"
        self.data = self.folder / "data"
        self._plan = plan

    def mark(self, number: int) -> Path:
        """Return the file that says that a part is done."""
        return self.folder / "parts" / f"{number}.done"

    def prepare(self, columns: tuple[Column, ...], num_rows: int) -> None:
        """Make the folder, or keep that of a killed run of the same plan; sweep those of others."""
        for other in self.dest.parent.glob(f".{self.dest.name}.*.partial"):
            if other != self.folder:
                shutil.rmtree(other, ignore_errors=True)
        path = self.folder / "plan.json"
        if path.is_file() and path.read_bytes() == self._plan:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        total = sum(column.row_bytes for column in columns) * num_rows
        check_free_space(self.dest.parent, total, str(self.dest))
        with disk_errors(self.folder):
            self.mark(0).parent.mkdir(parents=True)
            for column in columns:
                if column.row_bytes:
                    _allocate(self.data / column.filename, column.row_bytes * num_rows)
            path.write_bytes(self._plan)


def _check_free(dest: Path) -> None:
    """Refuse a destination that holds something, or lies within a dataset."""
    if dest.exists() and any(dest.iterdir()):
        raise UsageError(f"{dest} is not empty. Delete it first, or choose another destination.")
    for parent in dest.parents:
        if (parent / MANIFEST_FILENAME).is_file():
            raise UsageError(
                f"{dest} lies within the dataset {parent}. Choose another destination."
            )


@contextmanager
def _locked(dest: Path) -> Iterator[None]:
    """Let one run at a time write a destination."""
    import filelock

    name = hashlib.sha256(os.fsencode(dest.absolute())).hexdigest()[:16]
    with filelock.FileLock(Path(tempfile.gettempdir()) / f"rlds-{name}.lock"):
        yield


def _plan(
    dataset: Dataset,
    function: Function,
    pickled: bytes,
    columns: tuple[Column, ...],
    num_rows: int,
    seed: int,
) -> bytes:
    """Return what decides the bytes of the result, as JSON."""
    plan = {
        "source": _digest(dataset.folder / MANIFEST_FILENAME),
        "function": [hashlib.sha256(pickled).hexdigest(), _code_digest(function)],
        "columns": [column.to_json(num_rows) for column in columns],
        "num_rows": num_rows,
        "seed": seed,
    }
    return json.dumps(plan).encode()


def _code_digest(function: Function) -> str:
    """Return a digest of the file that a function comes from: it is pickled by its name alone."""
    module = sys.modules.get(getattr(function, "__module__", type(function).__module__) or "")
    path = getattr(module, "__file__", None)
    return _digest(Path(path)) if path and Path(path).is_file() else ""


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
    # One thread and a seed of its own: the bytes must not depend on where a part runs.
    with torch.random.fork_rng(devices=[]), _one_thread():
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
    try:
        rows = {n: np.ascontiguousarray(result.get(n).detach().cpu().numpy()) for n in names}
    except (TypeError, AttributeError) as error:
        raise UsageError(f"The function returned what cannot be stored: {error}.") from error
    if not rows:
        raise UsageError(f"The function returned no columns for {where}.")
    return rows


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
    work: _Work,
    pickled: bytes,
    columns: tuple[Column, ...],
    num_rows: int,
    seed: int,
) -> Iterator[Part]:
    """Yield the parts that are not done; their bounds do not depend on the workers."""
    step = rows_per_block(sum(column.row_bytes for column in dataset.manifest.columns))
    for number, start in enumerate(range(0, num_rows, step)):
        mark = work.mark(number)
        if not mark.exists():
            stop = min(start + step, num_rows)
            yield Part(dataset.folder, work.data, mark, start, stop, seed, pickled, columns)


def _run(pool: Executor, parts: list[Part], work: _Work, num_rows: int, progress: Progress) -> None:
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
            f"{work.folder}; the same call goes on from there. Fewer workers need less memory."
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
    with disk_errors(part.data):
        for key, column in expected.items():
            if column.row_bytes:
                with (part.data / column.filename).open("r+b") as file:
                    file.seek(part.start * column.row_bytes)
                    file.write(np.ascontiguousarray(rows[key], column.dtype).data)
                    file.flush()
                    os.fsync(file.fileno())
        part.mark.touch()


def _commit(
    dataset: Dataset, work: _Work, columns: tuple[Column, ...], num_rows: int, id: str
) -> None:
    """Write what follows from all rows, the manifest last, and move the folder to its place."""
    offsets = dataset.offsets.numpy()
    offsets = np.append(offsets[offsets < num_rows], num_rows)
    data = work.data
    with disk_errors(data):
        _end_last_trajectory(data, columns, num_rows)
        names = write_meta_files(data, columns, num_rows)
        names += [column.filename for column in columns if column.row_bytes]
        manifest = Manifest(
            id=id,
            layout="ted",
            num_transitions=num_rows,
            num_trajectories=len(offsets) - 1,
            columns=columns,
            files=write_beside(data, names, offsets, {}),
            recipe=dataset.manifest.recipe,
            metadata=dataset.manifest.metadata,
            statistics=summarise(data, reward_column(columns), offsets),
            parent={
                "id": dataset.manifest.id,
                "manifest_sha256": _digest(dataset.folder / MANIFEST_FILENAME),
            },
            tool=TOOL,
        )
        write_manifest(data, manifest)
        flush_folder(data)
        data.rename(work.dest)
        flush(work.dest.parent)
    shutil.rmtree(work.folder, ignore_errors=True)


def _end_last_trajectory(data: Path, columns: tuple[Column, ...], num_rows: int) -> None:
    """Mark the last row as truncated unless it is done: ``num_frames`` may cut a trajectory."""
    flags = {column.key: data / column.filename for column in columns if column.dtype == "bool"}
    if not {DONE, TRUNCATED} <= flags.keys():
        return
    with flags[DONE].open("r+b") as done, flags[TRUNCATED].open("r+b") as truncated:
        done.seek(num_rows - 1)
        if done.read(1) == b"\0":
            for file in (done, truncated):
                file.seek(num_rows - 1)
                file.write(b"\1")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
