"""What chooses the actions: the action space at random, or a function of the user's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Protocol

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from datasets_cli.environments.record.spaces import batch_of, batch_of_columns
from datasets_cli.errors import RldsError, UsageError
from datasets_cli.gymnasium_extra import gymnasium
from datasets_cli.preprocessing.functions import failure_of
from datasets_cli.store.schema.columns import Key, show_key

RANDOM = "random"
ACTION: Key = ("action",)

PolicyFunction = Callable[[TensorDict], Any]
"""Takes a TensorDict ``[n]`` of observations; returns one with ``action``, or the actions."""


class Policy(Protocol):
    """Chooses the actions of several environments."""

    def begin(self, lane: int, episode: int) -> None:
        """Be told that an environment begins an episode."""

    def actions(self, observation: Mapping[Key, np.ndarray]) -> Any:
        """Return the actions for observations, columns ``[n, ...]``, as the environments want."""


class RandomActions:
    """Actions drawn from the space, by a generator for each episode."""

    def __init__(self, space: gymnasium.Space[Any], num_envs: int, seed: int) -> None:
        self._space, self._seed = space, seed
        self._spaces = [deepcopy(space) for _ in range(num_envs)]

    def begin(self, lane: int, episode: int) -> None:
        """Seed the draws of an environment by the number of its episode."""
        self._spaces[lane].seed(seed_of(self._seed, episode, 1))

    def actions(self, observation: Mapping[Key, np.ndarray]) -> Any:
        """Draw an action for each environment."""
        return batch_of(self._space, (space.sample() for space in self._spaces))


class CalledPolicy:
    """Actions that a function returns."""

    # function: takes a TensorDict `[n]` with the observation of each environment.

    def __init__(
        self, function: PolicyFunction, name: str, space: gymnasium.Space[Any], num_envs: int
    ) -> None:
        self._function, self._name = function, name
        self._space, self._num_envs = space, num_envs

    def begin(self, lane: int, episode: int) -> None:
        """Do nothing: a function knows no episodes."""

    @torch.no_grad()
    def actions(self, observation: Mapping[Key, np.ndarray]) -> Any:
        """Call the function."""
        batch = TensorDict({}, [self._num_envs])
        for key, values in observation.items():
            batch[key] = torch.from_numpy(np.ascontiguousarray(values))
        try:
            found = self._function(batch)
        except Exception as error:
            raise RldsError(f"The policy {self._name} failed: {failure_of(error)}") from error
        if not isinstance(found, TensorDictBase):
            found = batch if found is None else self._wrapped(found)
        return batch_of_columns(self._space, lambda key: self._column(found, key), ACTION)

    def _wrapped(self, actions: Any) -> TensorDict:
        try:
            return TensorDict({"action": actions}, [self._num_envs])
        except RuntimeError as error:
            raise UsageError(
                f"The policy {self._name} returned actions that are not {self._num_envs}, one for "
                f"each environment: {error}"
            ) from error

    def _column(self, found: TensorDictBase, key: Key) -> np.ndarray:
        space: Any = self._space
        for name in key[1:]:
            space = space[name] if isinstance(space.spaces, dict) else space[int(name)]
        wanted = (self._num_envs, *(space.shape or ()))
        try:
            values = np.asarray(found[key])
        except (KeyError, TypeError) as error:
            raise UsageError(
                f"The policy {self._name} returned no {show_key(key)}. Expected {list(wanted)} of "
                f"{space.dtype}, in a TensorDict or as an array."
            ) from error
        if values.shape == (*wanted, 1):  # one number a row, with a dimension of its own
            values = values[..., 0]
        is_whole = values.dtype.kind in "iub" or np.dtype(space.dtype).kind == "f"
        if values.shape != wanted or not is_whole:
            raise UsageError(
                f"The policy {self._name} returned {show_key(key)} {values.dtype} "
                f"{list(values.shape)}; expected {space.dtype} {list(wanted)}. Of one-hot actions "
                "take argmax(-1)."
            )
        return values.astype(space.dtype)


def seed_of(*numbers: int) -> int:
    """Return a seed of 32 bits that depends on all numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


def make_policy(
    function: PolicyFunction | None,
    name: str,
    space: gymnasium.Space[Any],
    num_envs: int,
    seeds: Sequence[int],
) -> Policy:
    """Return the policy of a chunk."""
    if function is None:
        return RandomActions(space, num_envs, seeds[0])
    # What the function draws depends on the chunk, and not on the worker.
    chunk_seed = seed_of(*seeds, 2)
    torch.manual_seed(chunk_seed)
    np.random.seed(chunk_seed)
    return CalledPolicy(function, name, space, num_envs)
