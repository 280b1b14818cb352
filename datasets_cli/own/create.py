"""Creating a dataset of arrays that are in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from datasets_cli.install.options import InstalledDataset
from datasets_cli.options import takes_fields
from datasets_cli.own.columns import check_lengths, named_columns
from datasets_cli.own.dataset import OwnOptions, making, own_id, save_steps
from datasets_cli.own.ends import trajectory_ends
from datasets_cli.schema.columns import EPISODE, TRAJECTORY_END, rows_per_block


@dataclass(frozen=True)
class CreateCall(OwnOptions):
    """What ``create_dataset`` takes.

    Args:
        id: ``family/name``; the family is any word that no published family has.
        columns: arrays ``[N, ...]`` of all steps, trajectory after trajectory, by name or tuple of
            names, or in dicts in one another: ``observation`` and ``action``, and where known
            ``reward``, ``terminated``, ``truncated`` and ``next_observation``, as ``step()``
            returns them. Any other name is a column, too, such as ``("info", "success")`` or
            ``"info.success"``. What ``to_numpy()`` of a dataset or a view returns has all of it.
        ends: bool ``[N]``, whether a step is the last one of its trajectory.
        lengths: int ``[K]``, the steps of each trajectory.
        episode: int ``[N]``, a number for each step that differs between trajectories.
    """

    id: str
    columns: Mapping[Any, Any]
    _: KW_ONLY
    ends: Any = None
    lengths: Any = None
    episode: Any = None


@takes_fields(CreateCall)
def create_dataset(call: CreateCall) -> InstalledDataset:
    """Write arrays as a dataset of one's own, installed as any other.

    One of ``ends``, ``lengths`` and ``episode`` says where trajectories end, or both flags do, or
    the ``episode`` of rows that are a dataset's. The
    values are kept bit for bit. Where ``next_observation`` is not given, the successor rule of the
    format holds, and the last step of a truncated trajectory is no row.

    Raises:
        UsageError: a column cannot be kept, observation or action is missing, flags are not
            0 and 1, nothing says where trajectories end or two things do not agree, the id is of a
            published family, or it is installed with other data.
    """
    call.chosen_config()  # root and config are not both given
    id, columns = own_id(call.id), named_columns(call.columns)
    num_steps = check_lengths(columns, "columns")
    episode = columns.pop(EPISODE, None)
    if call.episode is not None or call.ends is not None or call.lengths is not None:
        episode = call.episode
    ends = trajectory_ends(columns, num_steps, call.ends, call.lengths, episode)
    columns[TRAJECTORY_END] = ends
    size = rows_per_block(sum(values.nbytes for values in columns.values()) // max(1, num_steps))
    blocks = (
        {key: values[start : start + size] for key, values in columns.items()}
        for start in range(0, num_steps, size)
    )
    with making(id, call) as told:
        return save_steps(id, blocks, call, told)
