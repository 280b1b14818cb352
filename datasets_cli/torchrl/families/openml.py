"""OpenML's tables as replay buffers."""

from __future__ import annotations

from dataclasses import dataclass

from tensordict import TensorDict

from datasets_cli.experience.options import DatasetOptions, TrajectoryDatasetOptions
from datasets_cli.experience.replay import ExperienceReplay
from datasets_cli.options import part_of, takes_fields
from datasets_cli.replay.torchrl_words import DATASET, takes
from datasets_cli.torchrl.families.family import AvailableDatasets


@dataclass(frozen=True)
class OpenMLOptions(DatasetOptions):
    """What ``OpenMLExperienceReplay`` takes.

    Args:
        name: such as ``adult_onehot``, ``adult@2`` or ``61``.
        batch_size: rows in a batch; ``sample`` can override it.
        sampler: how rows are drawn; overrides ``replacement``.
    """

    name: str
    batch_size: int | None = None


@takes(**DATASET)
class OpenMLExperienceReplay(ExperienceReplay):
    """A table of OpenML by one of TorchRL's names, such as ``adult_onehot``, or by its id.

    Batches, and rows taken by index, also have ``X`` and ``y``, which are TorchRL's names for what
    is at ``observation`` and ``action``, and the same tensors. A trajectory is one step: there are
    no slices of several.

    Raises:
        UsageError: arguments exclude one another, or are out of range.
        RldsError: as ``ExperienceReplay``.
    """

    family = "openml"
    available_datasets = AvailableDatasets()

    @takes_fields(OpenMLOptions)
    def __init__(self, options: OpenMLOptions) -> None:
        shared = vars(part_of(options, DatasetOptions))
        self._open(TrajectoryDatasetOptions(options.name, options.batch_size, **shared))
        self.transform.insert(0, _with_table_names)

    @property
    def max_outcome_val(self) -> int | float:
        """The largest label; counted from 0, there is one class more."""
        largest: int | float = self.storage.column(("action",)).max().item()
        return largest


def _with_table_names(batch: TensorDict) -> TensorDict:
    batch["X"], batch["y"] = batch["observation"], batch["action"]
    return batch
