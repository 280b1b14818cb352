"""ExperienceReplay by family, under the names that TorchRL's users know."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from tensordict import TensorDict

from datasets_cli.catalogue.entries import catalogue
from datasets_cli.catalogue.registry import load_recipe
from datasets_cli.config import load_config
from datasets_cli.errors import UsageError
from datasets_cli.experience import ExperienceReplay
from datasets_cli.store.cache_root import CacheRoot


class _AvailableDatasets:
    """A list of the family's ids, read when it is asked for."""

    def __get__(self, instance: Any, owner: type[ExperienceReplay]) -> list[str]:
        assert owner.family is not None
        rows = catalogue(load_recipe(owner.family), CacheRoot(load_config().root))
        return sorted(rows)


INSTEAD = {
    "split_trajs=True": "Rows are kept in one row; split a batch with split_trajectories().",
    "from_env=True": "Rows are read from the published file.",
    "use_truncated_as_done=False": "TED's done is terminated or truncated; read next.terminated.",
    "terminate_on_end=True": "The end of a trajectory that did not terminate is truncated.",
    "load_from_local_minari=True": "Pass source=FOLDER, where the dataset's files are.",
}


def _refuse(argument: str, is_given: bool) -> None:
    if is_given:
        raise UsageError(f"{argument} is not possible. {INSTEAD[argument]}")


class D4RLExperienceReplay(ExperienceReplay):
    """A D4RL dataset by its D4RL id, such as ``hopper-medium-v2``.

    The arguments after ``batch_size`` are TorchRL's, and take the values that mean what is done
    here: the published file is read, its rows are one after the other, and a step that ends by a
    time limit is done and not terminated.

    Args:
        dataset_id: such as ``hopper-medium-v2``.
        batch_size: rows in a batch; ``sample`` can override it.
        split_trajs: False; ``split_trajectories`` splits a batch.
        from_env: False.
        use_truncated_as_done: True.
        direct_download: nothing but the published file is ever downloaded.
        terminate_on_end: False, or None.
        arguments: those of ``ExperienceReplay``.

    Raises:
        UsageError: another value is asked for.
    """

    family = "d4rl"
    available_datasets = _AvailableDatasets()

    def __init__(
        self,
        dataset_id: str,
        batch_size: int | None = None,
        *,
        split_trajs: bool = False,
        from_env: bool = False,
        use_truncated_as_done: bool = True,
        direct_download: bool | None = None,
        terminate_on_end: bool | None = None,
        **arguments: Any,
    ) -> None:
        _refuse("split_trajs=True", split_trajs)
        _refuse("from_env=True", from_env)
        _refuse("use_truncated_as_done=False", not use_truncated_as_done)
        _refuse("terminate_on_end=True", bool(terminate_on_end))
        super().__init__(dataset_id, batch_size, **arguments)


class MinariExperienceReplay(ExperienceReplay):
    """A Minari dataset by its Minari id, such as ``D4RL/door/human-v2``.

    Args:
        dataset_id: such as ``D4RL/door/human-v2``.
        batch_size: rows in a batch; ``sample`` can override it.
        split_trajs: False; ``split_trajectories`` splits a batch.
        load_from_local_minari: False; ``source`` takes a folder of files that are there already.
        arguments: those of ``ExperienceReplay``.

    Raises:
        UsageError: another value is asked for.
    """

    family = "minari"
    available_datasets = _AvailableDatasets()

    def __init__(
        self,
        dataset_id: str,
        batch_size: int | None = None,
        *,
        split_trajs: bool = False,
        load_from_local_minari: bool = False,
        **arguments: Any,
    ) -> None:
        _refuse("split_trajs=True", split_trajs)
        _refuse("load_from_local_minari=True", load_from_local_minari)
        super().__init__(dataset_id, batch_size, **arguments)


class OpenMLExperienceReplay(ExperienceReplay):
    """A table of OpenML by one of TorchRL's names, such as ``adult_onehot``, or by its id.

    Batches, and rows taken by index, also have ``X`` and ``y``, which are TorchRL's names for what
    stands at ``observation`` and ``action``, and the same tensors.

    Args:
        name: such as ``adult_onehot``, ``adult@2`` or ``61``.
        batch_size: rows in a batch; ``sample`` can override it.
        options: those of ``ExperienceReplay``.
    """

    family = "openml"
    available_datasets = _AvailableDatasets()

    def __init__(self, name: str, batch_size: int | None = None, **options: Any) -> None:
        super().__init__(name, batch_size, **options)
        self.transform.insert(0, _with_table_names)

    @property
    def max_outcome_val(self) -> int | float:
        """The largest label; counted from 0, there is one class more."""
        largest: int | float = self.storage.column(("action",)).max().item()
        return largest


def _with_table_names(batch: TensorDict) -> TensorDict:
    batch["X"], batch["y"] = batch["observation"], batch["action"]
    return batch


class AtariDQNExperienceReplay(ExperienceReplay):
    """A run of the DQN Replay Dataset by game and run, such as ``Pong/5``.

    The pictures are single screens, uint8 ``[84, 84]``; ``frame_stack=4`` makes stacks of them when
    batches are drawn. Rewards are clipped to [-1, 1], as the publisher recorded them.

    Args:
        dataset_id: such as ``Pong/5``, ``Pong/5~ckpt0-5`` or ``Pong/5~unplugged``.
        batch_size: rows in a batch; ``sample`` can override it.
        checkpoints: ``"A:B"`` takes the checkpoints A to B - 1 alone.
        upstream: ``"dqn_replay"``, ``"rl_unplugged"``, or ``"auto"``: the first that answers.
        num_procs: processes that convert the checkpoints; this one where 0.
        strict_len: another name of ``strict_length``.
        mp_start_method: for TorchRL's sake; processes always start anew, which is ``"spawn"``.
        arguments: those of ``ExperienceReplay``.
    """

    family = "atari_dqn"
    available_datasets = _AvailableDatasets()
    _max_runs: ClassVar[int | None] = None  # TorchRL's page sets it, to take the first checkpoints

    def __init__(
        self,
        dataset_id: str,
        batch_size: int | None = None,
        *,
        checkpoints: str | None = None,
        upstream: str | None = None,
        num_procs: int | None = 0,
        strict_len: bool = True,
        mp_start_method: str = "spawn",
        **arguments: Any,
    ) -> None:
        if checkpoints is None and self._max_runs is not None:
            checkpoints = f"0:{self._max_runs}"
        wished = {"checkpoints": checkpoints, "upstream": upstream}
        super().__init__(
            dataset_id,
            batch_size,
            options={name: value for name, value in wished.items() if value is not None},
            num_workers=num_procs,
            **{"strict_length": strict_len, **arguments},
        )

    @property
    def episodes(self) -> torch.Tensor:
        """The number of each row's trajectory, int64 ``[N]``."""
        episodes: torch.Tensor = self.storage.column(("episode",))
        return episodes
