"""Episodes that have Minari's names, too: ``observations`` beside ``["observation"]``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase, is_non_tensor

from datasets_cli.replay.arguments import Rows
from datasets_cli.schema.bits import to_array
from datasets_cli.schema.columns import (
    REWARD,
    TERMINATED,
    TRUNCATED,
    Key,
    refuse_missing_reward,
    show_key,
)
from datasets_cli.schema.tree import entry
from datasets_cli.specs.described_spaces import DescribedSpace, space_at


class MinariNames:
    """What Minari calls the parts of an episode, as arrays of numpy, made when they are asked for.

    ``observations``, and the ``infos`` that were recorded so, have T + 1 rows where the successor
    of each row is the row after it, and else T.
    """

    id: int | None = None
    spaces: Mapping[str, DescribedSpace] = {}

    @property
    def observations(self) -> Any:
        """``observation`` and the last ``next.observation``; a dict, or a tuple, of several."""
        return self._values(("observation",))

    @property
    def actions(self) -> Any:
        """``action``."""
        return self._values(("action",))

    @property
    def rewards(self) -> np.ndarray:
        """``next.reward``, ``[T]``."""
        return self._scalars(REWARD)

    @property
    def terminations(self) -> np.ndarray:
        """``next.terminated``, bool ``[T]``."""
        return self._scalars(TERMINATED)

    @property
    def truncations(self) -> np.ndarray:
        """``next.truncated``, bool ``[T]``."""
        return self._scalars(TRUNCATED)

    @property
    def infos(self) -> Any:
        """``info``; empty where nothing was recorded."""
        return {} if entry(self, ("info",)) is None else self._values(("info",))

    def _scalars(self, key: Key) -> np.ndarray:
        numbers: np.ndarray = self._values(key)
        return numbers[:, 0]

    def _values(self, key: Key) -> Any:
        """Return what is at a key, one entry each where it is a group."""
        rows = entry(self, key)
        if rows is None:
            refuse_missing_reward(key, "this call", "the episode")
            raise AttributeError(
                f"The rows of this episode have no {show_key(key)}. Is it text (text=True reads "
                "it), or do columns= or a transform leave it out?"
            )
        if isinstance(rows, Mapping | TensorDictBase) and not is_non_tensor(rows):
            parts = {name: self._values((*key, name)) for name in rows.keys()}  # noqa: SIM118
            is_tuple = (space_at(self.spaces, key) or {}).get("type") == "Tuple"
            return tuple(parts[name] for name in sorted(parts, key=int)) if is_tuple else parts
        values, following = _plain(rows), entry(self, ("next", *key))
        if following is None:
            return values
        following = _plain(following)
        if isinstance(values, list):
            return values + following[-1:] * (following[:-1] == values[1:])
        is_chain = following[:-1].tobytes() == values[1:].tobytes()
        return np.concatenate([values, following[-1:]]) if is_chain else values


def _plain(rows: Rows) -> Any:
    """Return a leaf as Minari has it: an array of numpy, or a list of texts."""
    if isinstance(rows, torch.Tensor):
        return to_array(rows)
    if is_non_tensor(rows):
        return rows.tolist()
    return rows if isinstance(rows, list) else np.asarray(rows)


class MinariEpisode(MinariNames, TensorDict):
    """The rows of an episode as a TensorDict ``[T]``."""


class MinariArrays(MinariNames, dict[str, Any]):
    """The rows of an episode as the nested dict of arrays of another format."""


Episode = MinariEpisode | MinariArrays


def minari_episode(number: int, rows: Rows, spaces: Mapping[str, DescribedSpace]) -> Episode:
    """Return the rows of an episode under Minari's names, too."""
    episode: Episode
    if isinstance(rows, TensorDictBase):
        episode = MinariEpisode(rows, batch_size=rows.batch_size, device=rows.device)
    else:
        episode = MinariArrays(rows)
    episode.id, episode.spaces = number, spaces
    return episode
