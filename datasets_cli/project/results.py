"""What a plan of preparation is, and what comes of it: plain data, and its JSON form."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from datasets_cli.core.checked_json import JsonForm
from datasets_cli.install.options import FailedDataset, InstalledDataset
from datasets_cli.preprocessing.derived import DerivedDataset
from datasets_cli.preprocessing.options import PreprocessOptions
from datasets_cli.preprocessing.pipeline import Pipeline

Kind = Literal["step", "interrupted run", "killed conversion"]
TaskState = Literal["due", "done", "unknown", "blocked", "running", "left"]
DUE = frozenset({"due", "unknown", "blocked"})


@dataclass(frozen=True)
class PlannedDataset(JsonForm):
    """One dataset of a plan.

    Args:
        id: of the dataset that is made.
        kind: why it is in the plan.
        state: ``"due"``; ``"done"``: nothing is to do; ``"unknown"``: whether it is due is known
            once the function is imported; ``"blocked"``: due, and sure to fail, as ``reason`` says;
            ``"running"``: another process works on it; ``"left"``: an interrupted run that cannot
            be resumed from here.
        reason: why it has that state.
        input: id of the dataset to read; empty for a conversion.
        fn: ``module:function``, or a pipeline; empty for a conversion.
        options: of the run.
        replaces: whether a result that was made otherwise makes room.
        changes: what differs from what the installed result was made of, one text for each
            difference.
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
    """Tables of a dataset that are due, or why they cannot be made.

    Args:
        id: of the dataset.
        reason: why they are due.
        problem: of the dataset, which makes that impossible; empty otherwise.
        size_bytes: about what they take; None of a dataset that is made first.
        seconds: about how long this takes, by the time of some rows; None likewise.
    """

    id: str
    reason: str
    problem: str = ""
    size_bytes: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class PreprocessPlan(JsonForm):
    """What is to be done, in this order, and what is done already.

    Args:
        tasks: every dataset; what one of them reads comes before it.
        folder: where the modules of the functions are.
        tables: that installed datasets lack, and those of datasets that are made first; made last.
    """

    JSON = "folder tasks tables"

    tasks: tuple[PlannedDataset, ...]
    folder: Path
    tables: tuple[PlannedTables, ...] = ()

    @property
    def due(self) -> tuple[PlannedDataset, ...]:
        """The tasks that ``run_plan`` works on."""
        return tuple(task for task in self.tasks if task.state in DUE)


@dataclass(frozen=True)
class DatasetTables(JsonForm):
    """The tables of a dataset that were made.

    Args:
        id: of the dataset.
        path: its folder.
        num_transitions: rows that they are of.
        size_bytes: of the tables.
    """

    JSON = "id path num_transitions bytes=size_bytes"

    id: str
    path: Path
    num_transitions: int
    size_bytes: int


@dataclass(frozen=True)
class PreprocessResults(JsonForm):
    """What became of the tasks of a plan.

    Args:
        datasets: those that were made, or found made, in their order.
        tables: of datasets, that were made.
        failures: the others; empty in what ``run_plan`` returns, and not in the ``results`` of the
            ``PartialFailure`` that it raises.
    """

    datasets: tuple[DerivedDataset | InstalledDataset, ...]
    tables: tuple[DatasetTables, ...] = ()
    failures: tuple[FailedDataset, ...] = ()
