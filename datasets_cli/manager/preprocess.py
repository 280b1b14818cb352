"""Mapping a function over installed datasets, and doing all preparation that is due."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from datasets_cli.config import Config, Root, choose_config
from datasets_cli.parallel.engine import Engine, Workers

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from datasets_cli.preprocessing.options import Per
    from datasets_cli.preprocessing.results import DerivedColumns, DerivedDataset
    from datasets_cli.preprocessing.task import Mapped
    from datasets_cli.progress import Progress
    from datasets_cli.project.results import PreprocessPlan, PreprocessResults
    from datasets_cli.project.run import OnPrepared
    from datasets_cli.project.step import PreprocessStep


def preprocess(
    id: str,
    fn: Mapped | str,
    out: str,
    *,
    num_workers: int | None = 0,
    where: str | None = None,
    max_trajectories: int | None = None,
    num_frames: int | None = None,
    chunksize: int | None = None,
    num_chunks: int | None = None,
    per: Per = "trajectory",
    executor: Executor | None = None,
    engine: Engine = "local",
    address: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    root: Root = None,
    config: Config | None = None,
) -> DerivedDataset:
    """Map a function over an installed dataset, in parallel, into the dataset ``derived/<out>``.

    Args:
        id: ``family/name``; the family may be left out where the name is unique.
        fn: takes a TensorDict ``[n]`` of consecutive rows, a copy, and returns one ``[n]``, or one
            of fewer of these rows, ``batch[keep]``; or its name ``"module:function"``, whose module
            may be in the working directory; or a ``Pipeline``.
        out: name of the new dataset.
        num_workers: processes, this process where 0. Where None it begins in this process, and
            uses all cores where that is worth starting processes for.
        where: only trajectories for which this holds: ``"return > 300 and length >= 100"``.
        max_trajectories: at most this many of these, drawn by ``seed`` and read in their order.
        num_frames: only the first ``num_frames`` rows, to try a function; they may cut a
            trajectory.
        chunksize: rows that the function takes at once, at least, to the next end of a trajectory;
            by default about 8 MiB of them, at most 65,536.
        num_chunks: the number of chunks instead, at most.
        per: ``"trajectory"``, or ``"transition"`` where the function looks at rows alone: then
            chunks end anywhere, and have exactly ``chunksize`` rows.
        executor: where to run instead; its workers must see the cache root.
        engine: what runs the chunks: ``"local"``, processes of this machine; or the workers of a
            cluster of ``"dask"`` or ``"ray"``, which must see the cache root and have the same
            versions.
        address: of the cluster, such as ``tcp://host:8786``; for Ray None is the one at hand.
        seed: seeds torch for every chunk, so that random functions repeat.
        progress: told of the rows done; None draws a bar on a terminal.
        root: the cache root.
        config: root, mirrors and offline mode, instead of ``root``.

    Raises:
        DatasetNotInstalled: the dataset is not there.
        UsageError: the new dataset exists and was made otherwise, a trajectory is too long to be
            taken at once, or the function returns something else than rows.
        RldsError: the function raised, or a worker process died. What is done is kept: the same
            call continues there.
    """
    from datasets_cli.preprocessing.derived import derive
    from datasets_cli.preprocessing.options import PreprocessOptions

    return derive(
        id,
        fn,
        out,
        choose_config(root, config),
        options=PreprocessOptions(
            num_frames, chunksize, num_chunks, per, seed, where, max_trajectories
        ),
        workers=Workers(num_workers, executor, engine, address),
        progress=progress,
    )


def preprocess_columns(
    id: str,
    fn: Mapped | str,
    out: str,
    *,
    where: str | None = None,
    max_trajectories: int | None = None,
    num_frames: int | None = None,
    per: Per = "trajectory",
    seed: int = 0,
    root: Root = None,
    config: Config | None = None,
) -> DerivedColumns:
    """Apply a function to the first trajectory; return the columns that ``preprocess`` would give.

    Args:
        id: as for ``preprocess``, and so are all other arguments.
        fn: takes a TensorDict ``[n]`` and returns one ``[n]``; or its name; or a ``Pipeline``.
        out: name of the new dataset.
        where: as for ``preprocess``, and so are the next two.
        max_trajectories: the most that would be read.
        num_frames: only the first ``num_frames`` rows.
        per: with ``"transition"`` the function is applied to two rows.
        seed: seeds torch.
        root: the cache root.
        config: root, mirrors and offline mode, instead of ``root``.

    Raises:
        RldsError: as ``preprocess``.
    """
    from datasets_cli.preprocessing.derived import derived_columns
    from datasets_cli.preprocessing.options import PreprocessOptions

    return derived_columns(
        id,
        fn,
        out,
        choose_config(root, config),
        options=PreprocessOptions(num_frames, None, None, per, seed, where, max_trajectories),
    )


def plan_preprocess(
    step: PreprocessStep | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    root: Root = None,
    config: Config | None = None,
) -> PreprocessPlan:
    """Return all preparation that is due here, or what one step is to make; imports no user code.

    Args:
        step: a function over one installed dataset or several. Where None, what is due is: the
            steps of ``rlds.toml`` whose result is not there, or was made by another function, with
            other arguments or of other data; then interrupted runs of the root; then killed
            conversions whose raw files are complete.
        folder: with ``rlds.toml`` and the modules of functions; the working directory by default.
        root: the cache root.
        config: root, mirrors and offline mode, instead of ``root``.

    Raises:
        UsageError: ``rlds.toml`` is not what it must be, or there is none, and nothing else is due.
        UnknownDataset: an input is not known, or its glob matches nothing.
    """
    from datasets_cli.project.plan import make_plan

    return make_plan(step, folder, choose_config(root, config))


def run_plan(
    plan: PreprocessPlan,
    *,
    num_workers: int | None = 0,
    executor: Executor | None = None,
    engine: Engine = "local",
    address: str | None = None,
    on_result: OnPrepared | None = None,
    progress: Progress | None = None,
    root: Root = None,
    config: Config | None = None,
) -> PreprocessResults:
    """Make what is due of a plan, in its order; this imports and runs the functions of its folder.

    Args:
        plan: what ``plan_preprocess`` returned.
        num_workers: processes, this process where 0. Where None it begins in this process, and
            uses all cores where that is worth starting processes for.
        executor: where functions run instead; its workers must see the cache root.
        engine: as in ``preprocess``, and so is ``address``.
        address: of a cluster.
        on_result: called with each dataset as soon as it is made, or could not be.
        progress: told of what happens; None draws bars on a terminal and prints notes on stderr.
        root: the cache root.
        config: root, mirrors and offline mode, instead of ``root``.

    Raises:
        RldsError: the one dataset that is due cannot be made.
        PartialFailure: some of several cannot; ``results`` has the others, and why.
    """
    from datasets_cli.project.run import run_all

    return run_all(
        plan,
        choose_config(root, config),
        workers=Workers(num_workers, executor, engine, address),
        on_result=on_result,
        progress=progress,
    )
