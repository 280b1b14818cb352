"""Mapping a function over installed datasets, and doing all preparation that is due."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from datasets_cli.catalogue.names import select_installed
from datasets_cli.config import RootOptions
from datasets_cli.core.options import part_of, takes_fields
from datasets_cli.core.progress import ProgressOptions
from datasets_cli.exchange.dataset_writer import OwnOptions
from datasets_cli.install.find import installed_id
from datasets_cli.parallel.engine import Workers
from datasets_cli.preprocessing.options import PreprocessOptions
from datasets_cli.store.cache_root import CacheRoot

if TYPE_CHECKING:
    from datasets_cli.install.options import InstalledDataset
    from datasets_cli.preprocessing.derivation import DerivedColumns, DerivedDataset
    from datasets_cli.preprocessing.pipeline import Mapped
    from datasets_cli.project.plan import OnPrepared
    from datasets_cli.project.results import PreprocessPlan, PreprocessResults
    from datasets_cli.project.step import PreprocessStep


@dataclass(frozen=True)
class ColumnsCall(PreprocessOptions, RootOptions):
    """The arguments of ``preprocess_columns``.

    Args:
        id: ``family/name``; a unique name does not need the family.
        fn: a function that maps a copy of consecutive rows, a TensorDict ``[n]``, to a TensorDict
            ``[n]`` or to fewer of these rows, ``batch[keep]``; or its name ``"module:function"``,
            with a module that may be in the working directory; or a ``Pipeline``.
        name: name of the new dataset, ``derived/NAME``.
    """

    id: str
    fn: Mapped | str
    name: str


@dataclass(frozen=True)
class PreprocessCall(ColumnsCall, Workers, ProgressOptions):
    """The arguments of ``preprocess``."""


@dataclass(frozen=True)
class RunCall(ProgressOptions, Workers, RootOptions):
    """The arguments of ``run_plan``.

    Args:
        plan: the result of ``plan_preprocess``.
        on_result: called with the result of each dataset as soon as it is written or failed.
    """

    plan: PreprocessPlan
    _: KW_ONLY
    on_result: OnPrepared | None = None


@dataclass(frozen=True)
class JoinCall(OwnOptions):
    """The arguments of ``join_datasets``.

    Args:
        ids: an id, a name that resolves to one, a glob, or several of them, in their order.
        name: ``family/name`` of the new dataset; the family is any word that no published family
            has.
    """

    ids: str | Iterable[str]
    name: str


@takes_fields(JoinCall)
def join_datasets(call: JoinCall) -> InstalledDataset:
    """Concatenate the rows of installed datasets into one new dataset.

    Raises:
        DatasetNotInstalled: a dataset is not installed.
        UsageError: as in ``Mixture`` and ``Mixture.preprocess``, for example if columns differ.
    """
    from datasets_cli.replay.mixing.mixture import Mixture
    from datasets_cli.replay.storages.dataset import open_storage

    config = call.chosen_config()
    ids = [installed_id(id, config) for id in select_installed(call.ids, config)]
    folders = map(CacheRoot(config.root).dataset, ids)
    members = [open_storage(folder, text=True) for folder in folders]
    return Mixture(members).preprocess(call.name, **vars(part_of(call, OwnOptions)))


@takes_fields(PreprocessCall)
def preprocess(call: PreprocessCall) -> DerivedDataset:
    """Map a function over an installed dataset, in parallel, into the dataset ``derived/NAME``.

    Raises:
        DatasetNotInstalled: the dataset is not installed.
        UsageError: the new dataset exists and was created with different settings, a trajectory is
            too long for one call, or the function does not return rows.
        RldsError: the function raised, or a worker process died. Finished chunks are kept: the
            same call continues.
    """
    from datasets_cli.preprocessing.derivation import derive

    return derive(
        call.id,
        call.fn,
        call.name,
        call.chosen_config(),
        options=part_of(call, PreprocessOptions),
        workers=part_of(call, Workers),
        progress=call.progress,
    )


@takes_fields(ColumnsCall)
def preprocess_columns(call: ColumnsCall) -> DerivedColumns:
    """Apply a function to the first trajectory; return the columns that ``preprocess`` returns.

    With ``per="transition"`` it is applied to two rows.

    Raises:
        RldsError: as ``preprocess``.
    """
    from datasets_cli.preprocessing.derivation import derived_columns

    options = part_of(call, PreprocessOptions)
    return derived_columns(call.id, call.fn, call.name, call.chosen_config(), options=options)


@dataclass(frozen=True)
class PreparationCall(RootOptions):
    """The arguments of ``plan_preprocess``.

    Args:
        step: a function over installed datasets. None plans all pending work: the steps of
            ``rlds.toml`` whose result is missing or was written by another function, with other
            arguments or from other data; interrupted conversions whose raw files are complete;
            and missing tables of datasets.
        ids: ids or globs of installed datasets whose tables to compute; without a step.
        folder: the folder of ``rlds.toml`` and of the functions; the working directory by default.
    """

    step: PreprocessStep | None = None
    _: KW_ONLY
    ids: str | Iterable[str] = ()
    folder: str | os.PathLike[str] | None = None


@takes_fields(PreparationCall)
def plan_preprocess(call: PreparationCall) -> PreprocessPlan:
    """Return the plan of all pending work, or of one step, without importing user code.

    Raises:
        UsageError: ``rlds.toml`` is invalid.
        UnknownDataset: an input is unknown, or its glob matches nothing.
    """
    from datasets_cli.project.plan import make_plan

    return make_plan(call.step, call.folder, call.ids, call.chosen_config())


@takes_fields(RunCall)
def run_plan(call: RunCall) -> PreprocessResults:
    """Do the work of a plan in its order; this imports and runs functions of its folder.

    Raises:
        RldsError: the only dataset cannot be written.
        PartialFailure: some datasets cannot be written; ``results`` has all results.
    """
    from datasets_cli.project.plan import run_all

    return run_all(
        call.plan,
        call.chosen_config(),
        workers=part_of(call, Workers),
        on_result=call.on_result,
        progress=call.progress,
    )
