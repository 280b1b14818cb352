"""The arguments of a recording, and the policies that it runs."""

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
from datasets_cli.errors import RldsError, UsageError, WrongRows, argument
from datasets_cli.install.options import LAYOUT
from datasets_cli.parallel.engine import PROCESSES
from datasets_cli.preprocessing.function import failure_of

if TYPE_CHECKING:
    from datasets_cli.environments.actions import CheckActions


RANDOM = "random"

EPISODES_PER_ENV = 4
MAX_CHUNKS = 256


@dataclass(frozen=True, kw_only=True)
class RecordOptions(JsonForm):
    """The number of episodes or steps of a recording, and its seed.

    Args:
        num_episodes: the number of episodes to record.
        num_steps: the number of steps to record instead; the last episode is truncated there.
        num_envs: the number of environments that each worker steps side by side. It changes the
            random numbers of a policy that uses torch's generator, and nothing else.
        seed: the seed of the environments, random actions and torch.
        max_episode_steps: the step limit of an episode, by default the environment's own.
        env_options: further arguments of ``gymnasium.make``, JSON values.
    """

    num_episodes: int | None = field(
        default=None,
        metadata={"flag": "--episodes", "least": 1, "help": "Number of episodes to record."},
    )
    num_steps: int | None = field(
        default=None,
        metadata={
            "flag": "--steps",
            "least": 1,
            "help": "Number of steps to record, instead of --episodes.",
        },
    )
    num_envs: int = field(
        default=1,
        metadata={
            "flag": "--envs",
            "least": 1,
            "help": "Number of environments that each worker steps at once.",
        },
    )
    seed: int = field(
        default=0,
        metadata={"least": 0, "help": "Seed of the environments, random actions and torch."},
    )
    max_episode_steps: int | None = field(
        default=None,
        metadata={
            "least": 1,
            "help": "Time limit of an episode, in steps.",
            "default": "the environment's own",
        },
    )
    env_options: Mapping[str, Any] | None = field(
        default=None,
        metadata={
            **{"flag": ("-o", "--option"), "metavar": "NAME=VALUE"},
            "help": "Pass an argument to gymnasium.make; VALUE is JSON or text.",
        },
    )

    def __post_init__(self) -> None:
        if (self.num_episodes is None) == (self.num_steps is None):
            found = "neither" if self.num_steps is None else "both"
            raise UsageError(
                f"A recording needs a number of episodes or a number of steps; found {found}.",
                argument="num_episodes",
                expected="one of num_episodes and num_steps",
                found=found,
                advice=f"Pass {argument('num_episodes', 'N')} or {argument('num_steps', 'N')}.",
            )
        check_numbers(self)
        object.__setattr__(self, "env_options", dict(self.env_options or {}))
        try:
            json.dumps(self.env_options)
        except TypeError as error:
            raise UsageError(
                f"{argument('env_options')} must be JSON values, because the dataset stores them "
                f"({error}).",
                argument="env_options",
                expected="JSON values",
            ) from error

    @property
    def episodes_per_chunk(self) -> int:
        """The number of episodes in a chunk, the unit that is not recorded again."""
        if self.num_episodes is None:
            return self.num_envs * EPISODES_PER_ENV
        return max(self.num_envs, -(-self.num_episodes // MAX_CHUNKS))


@dataclass(frozen=True)
class Recording(RecordOptions):
    """The arguments that determine the values of a recording, except the policy.

    Args:
        env: the id of a gymnasium environment; ``module:id`` imports the module first, to register
            the id.
    """

    env: str = field(
        metadata={
            **{"argument": True, "metavar": "ENV"},
            "help": "Id of a gymnasium environment; MODULE:ID imports MODULE first.",
        }
    )


@dataclass(frozen=True)
class RecordCall(ProgressOptions, RootOptions, Recording):
    """The arguments of ``record``.

    Args:
        name: the name of the dataset, ``recorded/NAME``.
        policy: ``"random"``, ``"module:function"`` or a function. The function gets a TensorDict
            ``[n]`` with the ``observation`` of each environment, and returns one with ``action``,
            or the actions.
        num_workers: the number of processes; 0 records in this process, and None uses all cores if
            the recording takes long enough. The values do not depend on it.
        layout: ``"ted"`` or ``"compact"``; None for compact if observations are frames.
        append: add the episodes to an existing dataset.
        check_actions: True rejects invalid actions, such as NaN; ``"strict"`` also rejects actions
            out of bounds; False checks nothing.
    """

    name: str = field(
        metadata={
            **{"metavar": "NAME", "complete": "recorded_names"},
            "help": "Name of the dataset, recorded/NAME.",
        }
    )
    _: KW_ONLY
    policy: str | PolicyFunction = field(
        default=RANDOM,
        metadata={
            **{"typed": str, "metavar": "random|MODULE:FUNCTION"},
            "help": "Function that maps a TensorDict [n] with observation to one with action.",
        },
    )
    num_workers: int | None = field(
        default=0,
        metadata={
            **PROCESSES,
            "help": "Number of worker processes; 0 records in this process.",
            "default": "all cores for a long recording",
        },
    )
    layout: str | None = field(default=None, metadata=LAYOUT)
    append: bool = field(
        default=False, metadata={"help": "Add the episodes to an existing recorded dataset."}
    )
    check_actions: CheckActions = field(
        default=True,
        metadata={
            **{"typed": Literal["true", "strict", "false"], "default": "true"},
            "help": "true rejects actions that are NaN, infinite or outside a discrete space; "
            "strict also rejects actions out of bounds; false checks nothing.",
        },
    )

    def __post_init__(self) -> None:
        """Do not check the values yet: ``Recording`` does, after the cache root is known."""


PolicyFunction = Callable[[TensorDictBase], Any]
"""A function of a TensorDict ``[n]`` of observations; returns one with ``action``, or actions."""


class RandomActions:
    """Random actions of a space, from a generator per episode."""

    # seed_of: returns the seed of a trajectory by its number.

    def __init__(
        self,
        space: gymnasium.Space[Any],
        leaves: Sequence[SpaceLeaf],
        num_envs: int,
        seed_of: Callable[[int], int],
    ) -> None:
        self._leaves, self._seed_of = leaves, seed_of
        self._spaces = [deepcopy(space) for _ in range(num_envs)]
        self._ids = np.full(num_envs, -1)  # the trajectories that the spaces have seeds of

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
        leaf.encode(action, column[lane : lane + 1])
    return column if leaf.is_text else torch.from_numpy(column)


def recorded_policy(
    function: PolicyFunction, name: str, leaves: Sequence[SpaceLeaf]
) -> Callable[[TensorDictBase], TensorDictBase]:
    """Return a policy function in the form of the collectors' policies; errors name it."""
    shapes = {leaf.key: leaf.shape for leaf in leaves}

    def policy(rows: TensorDictBase) -> TensorDictBase:
        observations = rows.select("observation")
        try:
            returned = function(observations)
        except Exception as error:
            raise RldsError(
                f"The policy {name} failed: {failure_of(error)}", argument="policy"
            ) from error
        if returned is None:
            returned = observations
        output = _as_tensordict(returned, name, rows.batch_size)
        actions = TensorDict({}, rows.batch_size)
        for key, value in flat_items(output).items():
            if key in shapes:
                is_row = value.shape == (*rows.batch_size, *shapes[key], 1)
                column = value.squeeze(-1) if is_row else value
                # The same dtype in every step: a policy may sample some actions and compute others.
                actions[key] = column.to(
                    torch.float64 if column.is_floating_point() else torch.int64
                )
        return actions

    return policy


def _as_tensordict(returned: Any, name: str, batch: torch.Size) -> TensorDictBase:
    if isinstance(returned, TensorDictBase):
        return returned
    try:
        return TensorDict({"action": returned}, batch)
    except RuntimeError as error:
        raise WrongRows(
            f"The policy {name} must return {batch.numel()} actions, one per environment: {error}",
            argument="policy",
            expected=batch.numel(),
        ) from error


def seed_of(*numbers: int) -> int:
    """Return a seed of 32 bits that depends on all numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])
