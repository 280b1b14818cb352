"""Plans and results of preparation, as plain data with a JSON form."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from datasets_cli.core.checked_json import JsonForm
from datasets_cli.install.options import FailedDataset, InstalledDataset
from datasets_cli.preprocessing.derivation import DerivedDataset
from datasets_cli.preprocessing.options import PreprocessOptions
from datasets_cli.preprocessing.pipeline import Pipeline

Kind = Literal["step", "killed conversion"]
TaskState = Literal["due", "done", "unknown", "blocked", "running"]
DUE = frozenset({"due", "unknown", "blocked"})


@dataclass(frozen=True)
class PlannedDataset(JsonForm):
    """One dataset of a plan.

    Args:
        id: id of the dataset.
        kind: the result of a step, or a killed conversion.
        state: ``"due"``; ``"done"``, up to date; ``"unknown"``, only importing the function tells
            whether it is due; ``"blocked"``, due and bound to fail, as ``reason`` says; or
            ``"running"``, another process works on it.
        reason: the reason of that state.
        input: id of the input; empty for a conversion.
        fn: ``module:function``, or a pipeline; empty for a conversion.
        options: options of the run.
        replaces: whether an existing result with different settings is replaced.
        changes: differences from the origin of the installed result, one text for each.
    """

    id: str
    kind: Kind
    state: TaskState
    reason: str
    input: str = ""
    fn: str | Pipeline = ""
    options: PreprocessOptions = field(default_factory=PreprocessOptions)
    replaces: bool = False
    changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlannedTables(JsonForm):
    """The tables of a dataset that are due.

    Args:
        id: id of the dataset.
        reason: the reason why they are due.
        problem: the problem of a damaged dataset, whose tables cannot be made; empty otherwise.
        size_bytes: approximate size; None for a dataset that is made first.
        seconds: approximate time, extrapolated from some rows; None likewise.
    """

    id: str
    reason: str
    problem: str = ""
    size_bytes: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class PreprocessPlan(JsonForm):
    """The plan of all preparation, in its order, with finished tasks.

    Args:
        tasks: every dataset, each after its input.
        folder: the folder of the modules of functions.
        tables: missing tables, also of datasets that are made first; these are made last.
    """

    JSON = "folder tasks tables"

    tasks: tuple[PlannedDataset, ...]
    folder: Path
    tables: tuple[PlannedTables, ...] = ()

    @property
    def due(self) -> tuple[PlannedDataset, ...]:
        """The tasks that ``run_plan`` does."""
        return tuple(task for task in self.tasks if task.state in DUE)


@dataclass(frozen=True)
class DatasetTables(JsonForm):
    """The tables of a dataset, after they were made.

    Args:
        id: id of the dataset.
        path: folder of the dataset.
        num_transitions: number of transitions.
        size_bytes: size of the tables.
    """

    JSON = "id path num_transitions bytes=size_bytes"

    id: str
    path: Path
    num_transitions: int
    size_bytes: int


@dataclass(frozen=True)
class PreprocessResults(JsonForm):
    """The results of a plan.

    Args:
        datasets: the datasets that are made or up to date, in their order.
        tables: the tables that were made.
        failures: the failed datasets: empty when ``run_plan`` returns, and not empty in the
            ``results`` of its ``PartialFailure``.
    """

    datasets: tuple[DerivedDataset | InstalledDataset, ...]
    tables: tuple[DatasetTables, ...] = ()
    failures: tuple[FailedDataset, ...] = ()
