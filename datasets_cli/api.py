"""What the command line does, as functions.

Each takes the cache root as ``root``, or a whole ``Config`` as ``config``, which also has mirrors
and offline mode; without either, ``RLDS_HOME``, the other variables and the config file decide, as
for the command line. What they return is plain data, and its ``to_json()`` what ``--json`` prints.
The functions delegate to the rooms below, which they import when they are called, and hold no rule
of their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, overload

from datasets_cli.config import Config, choose_config
from datasets_cli.parallel.engine import Engine, Workers

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Executor
    from typing import Any

    import torch

    from datasets_cli.demo.results import DemoResult
    from datasets_cli.environments.record.policies import PolicyFunction
    from datasets_cli.install.downloads import OnResult
    from datasets_cli.install.options import Plan
    from datasets_cli.install.repair import RepairedDataset
    from datasets_cli.install.scan import FoundData
    from datasets_cli.installed.leftovers import Leftover
    from datasets_cli.installed.outcomes import (
        ConvertedDataset,
        DatasetFolder,
        DeletedDataset,
        Downloads,
        InstalledDataset,
        VerifiedDataset,
    )
    from datasets_cli.installed.records import DatasetInfo, DatasetRecord
    from datasets_cli.installed.usage import DiskUsage
    from datasets_cli.preprocessing.results import DerivedColumns, DerivedDataset, Per
    from datasets_cli.preprocessing.task import Mapped
    from datasets_cli.progress import Progress
    from datasets_cli.project.declaration import DeclaredDataset
    from datasets_cli.project.results import PreprocessPlan, PreprocessResults
    from datasets_cli.project.run import OnPrepared
    from datasets_cli.project.step import PreprocessStep
    from datasets_cli.replay.buffers.tensordict import TensorDictReplayBuffer
    from datasets_cli.replay.storages.dataset import DatasetStorage

__all__ = [
    "convert",
    "dataset_info",
    "dataset_path",
    "declared_datasets",
    "delete",
    "disk_usage",
    "download",
    "list_datasets",
    "match_datasets",
    "open_dataset",
    "plan_download",
    "plan_preprocess",
    "preprocess",
    "preprocess_columns",
    "prune",
    "record",
    "repair",
    "run_demo",
    "run_plan",
    "scan",
    "verify",
]

Root = str | os.PathLike[str] | None
"""The cache root; None leaves it to ``RLDS_HOME``, the config file and the default."""


def list_datasets(
    patterns: str | Iterable[str] = (),
    *,
    family: str | None = None,
    installed: bool = False,
    refresh: bool = False,
    progress: Progress | None = None,
    root: Root = None,
    config: Config | None = None,
) -> list[DatasetRecord]:
    """Return a record of every known dataset, sorted by id; works offline.

    Args:
        patterns: globs and words, such as ``"hopper-*"``; all datasets without any. A word finds
            every id that contains it.
        family: only this family.
        installed: only what is installed under the root.
        refresh: ask publishers for their newest catalogues first.
        progress: told how many datasets a publisher has; None prints that on stderr.
        root: the cache root.
        config: root, mirrors and offline mode, instead of ``root``.

    Raises:
        UsageError: there is no such family.
        NetworkError: with ``refresh``, a publisher does not answer.
    """
    from datasets_cli.installed.inventory import list_records

    return list_records(
        patterns,
        choose_config(root, config),
        family=family,
        installed=installed,
        update=refresh,
        progress=progress,
    )


def dataset_info(id: str, *, root: Root = None, config: Config | None = None) -> DatasetInfo:
    """Return everything known about a dataset, installed or not; works offline.

    Args:
        id: ``family/name``; the family may be left out where the name is unique.
        root: the cache root.
        config: root, mirrors and offline mode, instead of ``root``.

    Raises:
        UnknownDataset: no recipe and no folder has that name; the message has the nearest ones.
        UsageError: the name exists in several families.
    """
    from datasets_cli.installed.inventory import describe

    return describe(id, choose_config(root, config))


def match_datasets(
    ids: str | Iterable[str], *, root: Root = None, config: Config | None = None
) -> list[str]:
    """Return ids with every glob replaced by the known datasets that it matches.

    Args:
        ids: ids, names that resolve to one, or globs such as ``"d4rl/hopper-*"``.
        root: the cache root, which may hold newer catalogues.
        config: root, mirrors and offline mode, instead of ``root``.

    Raises:
        UnknownDataset: a glob matches nothing.
    """
    from datasets_cli.catalogue.selection import select_known

    return select_known(ids, choose_config(root, config))


def download(
    ids: str | Iterable[str],
    *,
    force: bool = False,
    layout: str | None = None,
    source: str | os.PathLike[str] | None = None,
    verify: bool = True,
    keep_raw: bool = False,
    options: Mapping[str, str] | None = None,
    num_workers: int | None = 0,
    engine: Engine = "local",
    address: str | None = None,
    on_result: OnResult | None = None,
    progress: Progress | None = None,
    root: Root = None,
    config: Config | None = None,
) -> Downloads:
    """Download, verify and install datasets that are not installed; return where they all are.

    Args:
        ids: an id, a name that resolves to one, a glob, or several of them.
        force: install again what is installed; the good copy stays until the new one is committed.
        layout: ``"ted"`` or ``"compact"``; None takes compact for frames and ted for all else.
        source: a folder or URL that holds the raw files of the one dataset.
        verify: refuse files whose size or checksum is not the catalogue's.
        keep_raw: keep the downloaded files.
        options: of the family, which make a variant of the dataset; ``dataset_info`` names them.
        num_workers: processes that convert; all cores where None, this process where 0. With them
            several datasets are installed at a time, and parts of one; the bytes are the same.
        engine: what converts: ``"local"``, processes of this machine; or the workers of a cluster
            of ``"dask"`` or ``"ray"``, which must see the cache root, and have the same versions.
            Files are always fetched by this process.
        address: of the cluster, such as ``tcp://host:8786``; for Ray None is the one at hand.
        on_result: called with each dataset as soon as it is installed, or could not be.
        progress: told of what happens; None draws bars on a terminal and prints notes on stderr.
        root: the cache root.
        config: root, mirrors and offline mode, instead of ``root``.

    Raises:
        RldsError: the one dataset that was asked for cannot be installed.
        PartialFailure: some of several cannot; ``results`` has the others, and why.
    """
    from datasets_cli.install.downloads import download_all
    from datasets_cli.install.options import install_options

    return download_all(
        ids,
        choose_config(root, config),
        install_options(
            layout=layout,
            force=force,
            source=source,
            verify=verify,
            keep_raw=keep_raw,
            options=options,
            workers=Workers(num_workers, None, engine, address),
        ),
        on_result=on_result,
        progress=progress,
    )


def plan_download(
    ids: str | Iterable[str],
    *,
    force: bool = False,
    layout: str | None = None,
    source: str | os.PathLike[str] | None = None,
    options: Mapping[str, str] | None = None,
    root: Root = None,
    config: Config | None = None,
) -> list[Plan]:
    """Return what ``download`` would do, and do nothing; publishers are asked for sizes.

    Args:
        ids: as for ``download``, and so are all other arguments.
        force: install again what is installed.
        layout: ``"ted"`` or ``"compact"``.
        source: a folder or URL that holds the raw files of the one dataset.
        options: of the family.
        root: the cache root.
        config: root, mirrors and offline mode, instead of ``root``.

    Raises:
        RldsError: as ``download``.
    """
    from datasets_cli.install.downloads import plan_all
    from datasets_cli.install.options import install_options

    return plan_all(
        ids,
        choose_config(root, config),
        install_options(layout=layout, force=force, source=source, options=options),
    )


def dataset_path(id: str, *, root: Root = None, config: Config | None = None) -> DatasetFolder:
    """Return the folder of an installed dataset; ``Path`` and ``open`` take it as it is.

    Args:
        id: ``family/name``; the family may be left out where the name is unique.
        root: the cache root.
        config: root, mirrors and offline mode, instead of ``root``.

    Raises:
        DatasetNotInstalled: it is known, but not under this root.
        UnknownDataset: no recipe and no folder has that name.
    """
    from datasets_cli.installed.upkeep import find_folder

    return find_folder(id, choose_config(root, config))


def verify(
    ids: str | Iterable[str] = "*",
    *,
    quick: bool = False,
    deep: bool = False,
    progress: Progress | None = None,
    root: Root = None,
    config: Config | None = None,
) -> list[VerifiedDataset]:
    """Compare every file of installed datasets with their manifests, and open them.

    Args:
        ids: an id, a name that resolves to one, a glob, or several of them; all by default.
        quick: compare sizes only, not the sha256 of every file, and open nothing.
        deep: also read every value: offsets, the rules of the format, frames, NaN. What that finds
            out is kept beside the datasets, and ``dataset_info`` has it.
        progress: told of the rows read; None draws a bar on a terminal.
        root: the cache root.
        config: root, mirrors and offline mode, instead of ``root``.

    Raises:
        UsageError: ``quick`` and ``deep`` are both asked for.
        IntegrityError: some are damaged; ``results`` has every dataset.
        PartialFailure: some are not there; ``results`` has every dataset, and the others are done.
        UnknownDataset, DatasetNotInstalled: none is there.
    """
    from datasets_cli.installed.upkeep import verify_all

    return verify_all(ids, choose_config(root, config), quick=quick, deep=deep, progress=progress)


def delete(
    ids: str | Iterable[str],
    *,
    dry_run: bool = False,
    root: Root = None,
    config: Config | None = None,
) -> list[DeletedDataset]:
    """Delete installed datasets and what is left of their downloads, without asking.

    Args:
        ids: an id, a name that resolves to one, a glob, or several of them.
        dry_run: delete nothing, and return what would be deleted.
        root: the cache root.
        config: root, mirrors and offline mode, instead of ``root``.

    Raises:
        UnknownDataset, DatasetNotInstalled: some are not there; all of those are named, and nothing
            is deleted.
    """
    from datasets_cli.installed.upkeep import delete_all

    return delete_all(ids, choose_config(root, config), dry_run=dry_run)


def convert(
    id: str,
    layout: str,
    *,
    progress: Progress | None = None,
    root: Root = None,
    config: Config | None = None,
) -> ConvertedDataset:
    """Change the layout of an installed dataset; every value stays the same bit for bit.

    Args:
        id: ``family/name``; the family may be left out where the name is unique.
        layout: ``"ted"`` or ``"compact"``.
        progress: told of the rows done; None draws a bar on a terminal.
        root: the cache root.
        config: root, mirrors and offline mode, instead of ``root``.

    Raises:
        UsageError: there is no such layout.
        SourceError: ``compact``, and a frame's successor is not the following row's frame.
        DiskFull: no room for a second copy; the old one stays until the new one is committed.
    """
    from datasets_cli.installed.upkeep import convert as convert_installed

    return convert_installed(id, layout, choose_config(root, config), progress)


def repair(
    ids: str | Iterable[str] = "*",
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
    root: Root = None,
    config: Config | None = None,
) -> list[RepairedDataset]:
    """Verify installed datasets, and install those again that are damaged.

    A sound dataset is not touched, and raw files that are still there and sound are not fetched
    again. A dataset comes back in its layout and from the place that it came from; until then the
    damaged copy stays.

    Args:
        ids: an id, a name that resolves to one, a glob, or several of them; all by default.
        dry_run: only verify.
        progress: told of what happens; None draws bars on a terminal.
        root: the cache root.
        config: root, mirrors and offline mode, instead of ``root``.

    Raises:
        PartialFailure: some are still damaged; ``results`` has every dataset, and why.
        DatasetNotInstalled: one is not there.
    """
    from datasets_cli.install.repair import repair_all

    return repair_all(ids, choose_config(root, config), dry_run=dry_run, progress=progress)


def prune(
    *,
    older_than_days: float = 7.0,
    raw: bool = False,
    dry_run: bool = False,
    root: Root = None,
    config: Config | None = None,
) -> list[Leftover]:
    """Delete what killed and abandoned work left, without asking; return it all.

    Args:
        older_than_days: what can be continued, interrupted downloads and preprocess runs, goes
            only where nothing was written to it for so many days.
        raw: also delete raw files of installed datasets, which ``keep_raw`` kept.
        dry_run: delete nothing, and return what would be deleted, and why the rest stays.
        root: the cache root.
        config: the root, instead of ``root``.

    Raises:
        UsageError: a negative age.
    """
    from datasets_cli.installed.leftovers import prune_root

    return prune_root(choose_config(root, config), older_than_days, raw=raw, dry_run=dry_run)


def disk_usage(
    ids: str | Iterable[str] = (), *, root: Root = None, config: Config | None = None
) -> DiskUsage:
    """Return what installed datasets take on the disk, and what killed work left there.

    Args:
        ids: an id, a name that resolves to one, a glob, or several of them; all by default.
        root: the cache root.
        config: the root, instead of ``root``.

    Raises:
        UnknownDataset: a glob matches nothing.
        DatasetNotInstalled: one is not there.
    """
    from datasets_cli.installed.usage import usage_of

    return usage_of(ids, choose_config(root, config))


def scan(
    folders: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
    *,
    root: Root = None,
    config: Config | None = None,
) -> list[FoundData]:
    """Return the data on this disk that is not installed, and the command that installs it.

    Args:
        folders: where to look; by default the caches of Minari, D4RL and TorchRL, and what is in
            the cache root without being a dataset.
        root: the cache root.
        config: the root, instead of ``root``.

    Raises:
        UsageError: a folder does not exist.
    """
    from datasets_cli.install.scan import find_data

    return find_data(folders, choose_config(root, config))


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


def record(
    env: str,
    out: str,
    *,
    policy: str | PolicyFunction = "random",
    num_episodes: int | None = None,
    num_steps: int | None = None,
    num_envs: int = 1,
    num_workers: int | None = 0,
    seed: int = 0,
    max_episode_steps: int | None = None,
    env_options: Mapping[str, Any] | None = None,
    layout: str | None = None,
    append: bool = False,
    progress: Progress | None = None,
    root: Root = None,
    config: Config | None = None,
) -> InstalledDataset:
    """Record episodes of an environment into the dataset ``recorded/<out>``.

    Args:
        env: id of a gymnasium environment; ``module:id`` imports the module first, which registers
            it.
        out: name of the dataset.
        policy: ``"random"``, ``"module:function"``, or a function: it takes a TensorDict ``[n]``
            with the ``observation`` of each environment, and returns one with ``action``, or the
            actions.
        num_episodes: episodes to record.
        num_steps: steps to record instead; the last episode is cut there, and ends as truncated.
        num_envs: environments that each worker steps side by side. A policy that draws from torch
            draws otherwise for another number; everything else is the same.
        num_workers: processes, this process where 0; all cores where None, if the work is worth
            their start. The values do not depend on it.
        seed: of the environments, of random actions, and of torch.
        max_episode_steps: the step limit of an episode; None for the environment's.
        env_options: further arguments of ``gymnasium.make``, JSON values.
        layout: ``"ted"`` or ``"compact"``; None for compact where there are frames.
        append: add the episodes to the dataset that is there.
        progress: told of the steps; None draws a bar on a terminal.
        root: the cache root.
        config: root, mirrors and offline mode, instead of ``root``.

    Raises:
        UsageError: the dataset is there and is of something else, the environment or the policy
            cannot be had, a space has no columns, or gymnasium is not installed.
        RldsError: the environment or the policy failed, or a worker died. What is recorded is kept:
            the same call continues there.
    """
    from datasets_cli.environments.record.record import record_episodes

    return record_episodes(
        env,
        out,
        choose_config(root, config),
        policy=policy,
        num_episodes=num_episodes,
        num_steps=num_steps,
        num_envs=num_envs,
        seed=seed,
        max_episode_steps=max_episode_steps,
        env_options=env_options or {},
        layout=layout,
        append=append,
        workers=Workers(num_workers),
        progress=progress,
    )


@overload
def open_dataset(
    id: str,
    *,
    project: str | os.PathLike[str],
    root: Root = None,
    config: Config | None = None,
) -> TensorDictReplayBuffer: ...


@overload
def open_dataset(
    id: str,
    *,
    device: str | torch.device | None = None,
    pin_memory: bool = False,
    contiguous: bool = False,
    text: bool = False,
    root: Root = None,
    config: Config | None = None,
) -> DatasetStorage: ...


def open_dataset(
    id: str,
    *,
    project: str | os.PathLike[str] | None = None,
    device: str | torch.device | None = None,
    pin_memory: bool = False,
    contiguous: bool = False,
    text: bool = False,
    root: Root = None,
    config: Config | None = None,
) -> DatasetStorage | TensorDictReplayBuffer:
    """Open the rows of an installed dataset, read-only; or the data that a project declares.

    Of a dataset the result is a storage: ``len`` counts the rows, ``get`` and ``run`` return copies
    of some rows as a TensorDict, ``column`` one key of all rows, ``offsets`` where trajectories
    begin; and every replay buffer takes it as its ``storage``. It is not an ``ExperienceReplay``,
    which downloads what is missing and draws batches: to open a dataset is to read its rows in
    their order, and batches have a class with a name of its own.

    With ``project`` it is the buffer that a table ``[data.NAME]`` of ``rlds.toml`` declares: a
    dataset, or a view or a mixture of some, with its transforms; datasets that are missing are
    installed. See docs/declarations.md.

    Args:
        id: ``family/name``; the family may be left out where the name is unique. With ``project``,
            the name of the table.
        project: an ``rlds.toml``, or its folder, whose functions are imported.
        device: copy the rows into this device's memory, and give batches there; None reads them
            from the disk.
        pin_memory: leave the rows on the disk and gather batches into page-locked memory.
        contiguous: give every leaf memory of its own, for code that calls ``view``.
        text: read the columns of text too, as non-tensor entries of batches.
        root: the cache root.
        config: root, mirrors and offline mode, instead of ``root``.

    Raises:
        DatasetNotInstalled: it is known, but not under this root.
        UnknownDataset: no recipe and no folder has that name.
        DamagedDataset: its files are not what its manifest says.
    """
    from datasets_cli.project.named import open_named

    return open_named(
        id,
        project,
        choose_config(root, config),
        device=device,
        pin_memory=pin_memory,
        contiguous=contiguous,
        text=text,
    )


def declared_datasets(
    names: str | Iterable[str] = (),
    *,
    project: str | os.PathLike[str] = "rlds.toml",
    download: bool = False,
    root: Root = None,
    config: Config | None = None,
) -> list[DeclaredDataset]:
    """Return what a project's declared data are, each with the digest that a paper can give.

    Args:
        names: of tables ``[data.NAME]``; all of them by default.
        project: an ``rlds.toml``, or its folder, whose functions are imported.
        download: install datasets that are missing; fail instead by default.
        root: the cache root.
        config: root, mirrors and offline mode, instead of ``root``.

    Raises:
        UsageError: there is no such file or table, or it cannot be made of the data.
        DatasetNotInstalled: a dataset is missing.
    """
    from datasets_cli.project.data import describe_project

    return describe_project(names, project, choose_config(root, config), download=download)


def run_demo(
    *, keep: bool = False, root: Root = None, config: Config | None = None
) -> Iterator[DemoResult]:
    """Yield what comes of installing, verifying and sampling the small datasets that ship with us.

    Args:
        keep: leave them installed under the root, as demo/door-human and so on.
        root: the cache root; used with ``keep`` alone.
        config: root, mirrors and offline mode, instead of ``root``.

    Raises:
        RldsError: something of it failed.
    """
    from datasets_cli.demo.run import run

    return run(choose_config(root, config), keep=keep)
