"""Trajectories of a dataset as a list, in the order of any of their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

from datasets_cli.catalogue.names import InstalledId
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import check_choice, check_numbers, takes_fields
from datasets_cli.errors import wrong_value
from datasets_cli.install.find import open_installed
from datasets_cli.store.cache_root import CacheRoot

if TYPE_CHECKING:
    import numpy as np

    from datasets_cli.replay.trajectories.trajectory_table import Trajectories
    from datasets_cli.store.manifest import Manifest


@dataclass(frozen=True)
class TrajectoriesCall(InstalledId):
    """The arguments of ``list_trajectories``.

    Args:
        n: number of trajectories; fewer at the end.
        start: number of trajectories to skip.
        sort: the column to sort by, ascending, such as ``"length"``; ``"-length"`` sorts
            descending. NaN comes last.
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
    """A sorted part of the trajectories of a dataset.

    Args:
        id: the full id.
        num_trajectories: the number of trajectories of the dataset.
        sort: the sort key, with ``-`` for descending order.
        start: the number of trajectories before the first one.
        columns: values of each trajectory by column: ``number``, ``start``, ``length``,
            ``num_transitions``, ``return``, ``terminated``, ``truncated``, and ``success``,
            ``split`` and ``language`` if recorded; None for values that are not finite.
        steps: a sentence on recorded steps, or empty if each is a transition.
    """

    id: str
    num_trajectories: int
    sort: str
    start: int
    columns: Mapping[str, list[Any]]
    steps: str = ""


@takes_fields(TrajectoriesCall)
def list_trajectories(call: TrajectoriesCall) -> ListedTrajectories:
    """Return the starts, lengths, returns and ends of trajectories of an installed dataset.

    Values that need all rows are cached.

    Raises:
        DatasetNotInstalled: the dataset is not installed.
        UnknownDataset: no recipe and no folder has this name.
        UsageError: the column does not exist, or its values cannot be sorted.
        DamagedDataset: its files differ from its manifest.
    """
    from datasets_cli.project.statistics import trajectory_table  # with numpy

    config = call.chosen_config()
    dataset = open_installed(call.id, config)
    table = trajectory_table(dataset, CacheRoot(config.root))
    return listed(dataset.manifest, table, [*table], call)


def listed(
    manifest: Manifest, table: Trajectories, names: Sequence[str], call: TrajectoriesCall
) -> ListedTrajectories:
    """Return some columns of the requested trajectories."""
    column = call.sort.removeprefix("-")
    if column == "return" and column not in [*table]:
        table[column]  # raises the error that explains missing returns
    check_choice("sort", column, names)
    places = _order(manifest.id, table[column], call.sort)[call.start : call.start + call.n]
    columns = {name: _plain(table[name][places]) for name in names}
    found = manifest.id, len(table), call.sort, call.start, columns
    return ListedTrajectories(*found, manifest.recorded_steps)


def _order(id: str, values: np.ndarray, sort: str) -> np.ndarray:
    """Return the positions of values in a stable order, int64 ``[K]``."""
    from datasets_cli.replay.trajectories.trajectory_table import sorted_places  # with numpy

    if values.ndim > 1:
        numbers = f"{list(values.shape[1:])} numbers of a trajectory of {id}"
        raise wrong_value("sort", "one number per trajectory", numbers)
    return sorted_places(values, sort)


def _plain(values: np.ndarray) -> list[Any]:
    """Return values as lists, with None for values that are not finite."""
    import numpy as np

    plain = values.astype(object)
    if not values.dtype.hasobject:
        plain[~np.isfinite(values)] = None
    listed: list[Any] = plain.tolist()
    return listed
