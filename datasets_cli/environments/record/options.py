"""What is to be recorded."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from datasets_cli.config import RootOptions
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.gymnasium_extra import gymnasium
from datasets_cli.core.options import check_numbers
from datasets_cli.core.progress import ProgressOptions
from datasets_cli.environments.policies import flat_items
from datasets_cli.environments.rows import LaneRows, PolicyOutput, SpaceLeaf, StepColumn
from datasets_cli.errors import RldsError, UsageError, argument
from datasets_cli.install.options import LAYOUT
from datasets_cli.parallel.engine import PROCESSES
from datasets_cli.parallel.functions import failure_of

if TYPE_CHECKING:
    from datasets_cli.environments.actions import CheckActions


RANDOM = "random"

EPISODES_AN_ENV = 4
MOST_CHUNKS = 256


@dataclass(frozen=True, kw_only=True)
class RecordOptions(JsonForm):
    """How many episodes or steps of an environment are recorded, and by which seed.

    Args:
        num_episodes: episodes to record.
        num_steps: steps to record instead, at which the last episode is cut; it ends as truncated.
        num_envs: environments that each worker steps side by side. A policy that draws from torch
            draws otherwise for another number; everything else is the same.
        seed: of the environments, of random actions, and of torch.
        max_episode_steps: the step limit of an episode, instead of the environment's.
        env_options: further arguments of ``gymnasium.make``, JSON values.
    """

    num_episodes: int | None = field(default=None, metadata={"flag": "--episodes", "least": 1})
    num_steps: int | None = field(default=None, metadata={"flag": "--steps", "least": 1})
    num_envs: int = field(default=1, metadata={"flag": "--envs", "least": 1})
    seed: int = field(default=0, metadata={"least": 0})
    max_episode_steps: int | None = field(default=None, metadata={"least": 1})
    env_options: Mapping[str, Any] | None = field(
        default=None,
        metadata={
            **{"flag": ("-o", "--option"), "metavar": "NAME=VALUE"},
            "help": "A further argument of gymnasium.make; VALUE is JSON, or text.",
        },
    )

    def __post_init__(self) -> None:
        if (self.num_episodes is None) == (self.num_steps is None):
            found = "none" if self.num_steps is None else "both"
            raise UsageError(
                "How much to record must be given once, in episodes or in steps; found "
                f"{found}. Give {argument('num_episodes', 'N')} or {argument('num_steps', 'N')}."
            )
        check_numbers(self)
        object.__setattr__(self, "env_options", dict(self.env_options or {}))
        try:
            json.dumps(self.env_options)
        except TypeError as error:
            raise UsageError(
                f"{argument('env_options')} must be JSON values, to be kept with the data "
                f"({error})."
            ) from error

    @property
    def chunk_episodes(self) -> int:
        """Episodes of a chunk, which one worker records, and which an interrupted run keeps."""
        if self.num_episodes is None:
            return self.num_envs * EPISODES_AN_ENV
        return max(self.num_envs, -(-self.num_episodes // MOST_CHUNKS))


@dataclass(frozen=True)
class Recording(RecordOptions):
    """What decides the values of a recording, but for the policy.

    Args:
        env: id of a gymnasium environment; ``module:id`` imports the module first, which registers
            it.
    """

    env: str = field(
        metadata={
            **{"argument": True, "metavar": "ENV"},
            "help": "Id of a gymnasium environment, or MODULE:ID of one that registers.",
        }
    )


@dataclass(frozen=True)
class RecordCall(ProgressOptions, RootOptions, Recording):
    """What ``record`` takes.

    Args:
        out: name of the dataset.
        policy: ``"random"``, ``"module:function"``, or a function: it takes a TensorDict ``[n]``
            with the ``observation`` of each environment, and returns one with ``action``, or the
            actions.
        num_workers: processes, this process where 0; all cores where None, if the work is worth
            their start. The values do not depend on it.
        layout: ``"ted"`` or ``"compact"``; None for compact where there are frames.
        append: add the episodes to the dataset that is there.
        check_actions: True refuses what is not an action, such as NaN, and says at the end how many
            were out of bounds; ``"strict"`` refuses these, too, and False nothing.
    """

    out: str = field(
        metadata={
            **{"metavar": "NAME", "complete": "recorded_names"},
            "help": "The dataset is recorded/NAME.",
        }
    )
    _: KW_ONLY
    policy: str | PolicyFunction = field(
        default=RANDOM,
        metadata={
            **{"typed": str, "metavar": "random|MODULE:FUNCTION"},
            "help": "Chooses actions: takes a TensorDict [n] with observation, gives one with "
            "action.",
        },
    )
    num_workers: int | None = field(
        default=0,
        metadata={
            **PROCESSES,
            "help": "Processes; by default all cores if the work is worth it, 0 for none.",
        },
    )
    layout: str | None = field(default=None, metadata=LAYOUT)
    append: bool = False
    check_actions: CheckActions = field(
        default=True,
        metadata={
            **{"typed": Literal["true", "strict", "false"], "default": "true"},
            "help": "true refuses actions that are NaN, infinite or of no category; strict also "
            "those that are out of bounds, which true counts; false none.",
        },
    )

    def __post_init__(self) -> None:
        """Leave the checks to the Recording that is made of it, once there is a root."""


PolicyFunction = Callable[[TensorDictBase], Any]
"""Takes a TensorDict ``[n]`` of observations; returns one with ``action``, or the actions."""


class RandomActions:
    """Actions drawn from the space, by a generator for each episode."""

    # seed_of: of a trajectory by its number.

    def __init__(
        self,
        space: gymnasium.Space[Any],
        leaves: Sequence[SpaceLeaf],
        num_envs: int,
        seed_of: Callable[[int], int],
    ) -> None:
        self._leaves, self._seed_of = leaves, seed_of
        self._spaces = [deepcopy(space) for _ in range(num_envs)]
        self._ids = np.full(num_envs, -1)  # of the trajectories that the spaces are seeded for

    def act(self, rows: LaneRows, step: int) -> PolicyOutput:
        ids = rows.ids[:, step]
        for lane in np.flatnonzero(ids != self._ids).tolist():
            self._spaces[lane].seed(self._seed_of(int(ids[lane])))
        self._ids = ids.copy()
        drawn = [space.sample() for space in self._spaces]
        return {leaf.key: _column(leaf, drawn) for leaf in self._leaves}


def _column(leaf: SpaceLeaf, drawn: list[Any]) -> StepColumn:
    column = np.empty((len(drawn), *leaf.shape), leaf.dtype)
    for lane, action in enumerate(drawn):
        leaf.keep(action, column[lane : lane + 1])
    return column if leaf.is_text else torch.from_numpy(column)


def named_policy(
    function: PolicyFunction, name: str, leaves: Sequence[SpaceLeaf]
) -> Callable[[TensorDictBase], TensorDictBase]:
    """Return a policy as collectors call it, whose failures have its name."""
    shapes = {leaf.key: leaf.shape for leaf in leaves}

    def policy(rows: TensorDictBase) -> TensorDictBase:
        given = rows.select("observation")
        try:
            chosen = function(given)
        except Exception as error:
            raise RldsError(f"The policy {name} failed: {failure_of(error)}") from error
        chosen = given if chosen is None else _as_rows(chosen, name, rows.batch_size)
        actions = TensorDict({}, rows.batch_size)
        for key, value in flat_items(chosen).items():
            if key in shapes:
                is_row = value.shape == (*rows.batch_size, *shapes[key], 1)
                column = value.squeeze(-1) if is_row else value
                # One type for every step: a policy may draw some actions and compute others.
                actions[key] = column.to(
                    torch.float64 if column.is_floating_point() else torch.int64
                )
        return actions

    return policy


def _as_rows(chosen: Any, name: str, batch: torch.Size) -> TensorDictBase:
    if isinstance(chosen, TensorDictBase):
        return chosen
    try:
        return TensorDict({"action": chosen}, batch)
    except RuntimeError as error:
        raise UsageError(
            f"The policy {name} returned actions that are not {batch.numel()}, one for each "
            f"environment: {error}"
        ) from error


def seed_of(*numbers: int) -> int:
    """Return a seed of 32 bits that depends on all numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])
