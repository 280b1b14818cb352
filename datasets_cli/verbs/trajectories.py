"""Trajectories of a dataset as a list, in the order of any of their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

from datasets_cli.catalogue.selection import InstalledId
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import check_choice, check_numbers, takes_fields
from datasets_cli.errors import UsageError, argument
from datasets_cli.install.find import open_installed
from datasets_cli.store.cache_root import CacheRoot

if TYPE_CHECKING:
    import numpy as np

    from datasets_cli.replay.trajectories.table import Trajectories


@dataclass(frozen=True)
class TrajectoriesCall(InstalledId):
    """What ``list_trajectories`` takes.

    Args:
        n: how many trajectories; fewer where there are no more.
        start: how many come before the first one.
        sort: the column to sort by, smallest first, such as ``"length"``; ``"-length"`` sorts
            largest first. NaN comes last.
    """

    _: KW_ONLY
    n: int = field(
        default=20,
        metadata={"least": 1, "flag": ("-n", "--num"), "help": "Number of trajectories to show."},
    )
    start: int = field(default=0, metadata={"least": 0, "help": "Number of trajectories to skip."})
    sort: str = field(
        default="number",
        metadata={
            "metavar": "COLUMN",
            "help": "Sort by this column, ascending, e.g. length; -COLUMN sorts descending.",
        },
    )

    def __post_init__(self) -> None:
        check_numbers(self)


@dataclass(frozen=True)
class ListedTrajectories(JsonForm):
    """Some trajectories of a dataset.

    Args:
        id: the full id.
        num_trajectories: of the dataset.
        sort: the column that they are sorted by, after a ``-`` where the largest comes first.
        start: how many come before the first one here.
        columns: values of each trajectory by column: ``number``, ``start``, ``length``, ``return``,
            ``terminated``, ``truncated``, and ``success`` where it was recorded; what is not finite
            is None.
    """

    id: str
    num_trajectories: int
    sort: str
    start: int
    columns: Mapping[str, list[Any]]


@takes_fields(TrajectoriesCall)
def list_trajectories(call: TrajectoriesCall) -> ListedTrajectories:
    """Return trajectories of an installed dataset: where they begin, lengths, returns, ends.

    What takes reading all rows is kept for the next time.

    Raises:
        DatasetNotInstalled: it is known, but not under this root.
        UnknownDataset: no recipe and no folder has that name.
        UsageError: there is no such column, or its values have no order.
        DamagedDataset: its files are not what its manifest says.
    """
    from datasets_cli.project.statistics import trajectory_table  # with numpy

    config = call.chosen_config()
    dataset = open_installed(call.id, config)
    table = trajectory_table(dataset, CacheRoot(config.root))
    return listed(dataset.id, table, [*table], call)


def listed(
    id: str, table: Trajectories, names: Sequence[str], call: TrajectoriesCall
) -> ListedTrajectories:
    """Return some columns of the trajectories that a call asks for."""
    column = call.sort.removeprefix("-")
    if column == "return" and column not in [*table]:
        table[column]  # raises an error that says why there are no returns
    check_choice("sort", column, names)
    places = _order(id, table[column], call.sort)[call.start : call.start + call.n]
    columns = {name: _plain(table[name][places]) for name in names}
    return ListedTrajectories(id, len(table), call.sort, call.start, columns)


def _order(id: str, values: np.ndarray, sort: str) -> np.ndarray:
    """Return the positions of values in order, int64 ``[K]``; of equal ones the earlier first."""
    import numpy as np

    if values.ndim > 1:
        numbers = f"{list(values.shape[1:])} numbers of a trajectory of {id}"
        raise UsageError(f"{argument('sort')}: {sort} is {numbers}, which have no order.")
    keys = values.astype(np.float64)
    return np.argsort(-keys if sort.startswith("-") else keys, kind="stable")


def _plain(values: np.ndarray) -> list[Any]:
    """Return values as lists, None for what is not finite."""
    import numpy as np

    plain = values.astype(object)
    plain[~np.isfinite(values)] = None
    listed: list[Any] = plain.tolist()
    return listed
