"""Minari's datasets as replay buffers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase, is_non_tensor

from datasets_cli.core.options import takes_fields
from datasets_cli.errors import DatasetNotInstalled, OutOfRange, Unsupported, not_both
from datasets_cli.experience.opening import TrajectoryDatasetOptions
from datasets_cli.experience.replay import ExperienceReplay
from datasets_cli.experience.views import EpisodeReader
from datasets_cli.replay.arguments import Rows, seeded
from datasets_cli.replay.queries.views import NumbersOrMask, trajectory_numbers
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
from datasets_cli.specs.gymnasium_spaces import DescribedSpace, build, published_spaces, space_at
from datasets_cli.torchrl.families import AvailableDatasets, open_split, with_slices
from datasets_cli.torchrl.keywords import accepts_keywords

if TYPE_CHECKING:
    from gymnasium import Space
    from gymnasium.envs.registration import EnvSpec


class MinariNames:
    """The parts of an episode as numpy arrays, under Minari's names; computed on access.

    ``observations`` has T + 1 rows if the successor of each row is the next row, otherwise T. So
    have the columns of ``infos`` that have successors.
    """

    id: int | None = None
    spaces: Mapping[str, DescribedSpace] = {}

    @property
    def observations(self) -> Any:
        """``observation`` and the last ``next.observation``; a dict or a tuple if nested."""
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
        """``info``; an empty dict if the dataset has no such columns."""
        return {} if entry(self, ("info",)) is None else self._values(("info",))

    def _scalars(self, key: Key) -> np.ndarray:
        numbers: np.ndarray = self._values(key)
        return numbers[:, 0]

    def _values(self, key: Key) -> Any:
        """Return the values of a key; a group becomes a dict, or a tuple."""
        rows = entry(self, key)
        if rows is None:
            refuse_missing_reward(key, "this call", "the episode")
            raise AttributeError(
                f"The rows of this episode do not have {show_key(key)}. Pass text=True to read "
                "text; columns= and transforms can leave a column out."
            )
        if isinstance(rows, Mapping | TensorDictBase) and not is_non_tensor(rows):
            parts = {name: self._values((*key, name)) for name in rows.keys()}  # noqa: SIM118
            is_tuple = (space_at(self.spaces, key) or {}).get("type") == "Tuple"
            return tuple(parts[name] for name in sorted(parts, key=int)) if is_tuple else parts
        values, following = _as_minari(rows), entry(self, ("next", *key))
        if following is None:
            return values
        following = _as_minari(following)
        # If row t + 1 is the successor of row t everywhere, only the last successor is missing.
        if isinstance(values, list):
            return values + following[-1:] * (following[:-1] == values[1:])
        is_chain = following[:-1].tobytes() == values[1:].tobytes()
        return np.concatenate([values, following[-1:]]) if is_chain else values


def _as_minari(rows: Rows) -> Any:
    """Return a leaf in Minari's form: a numpy array, or a list of str."""
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
    """Return the rows of an episode, which also have Minari's names."""
    episode: Episode
    if isinstance(rows, TensorDictBase):
        episode = MinariEpisode(rows, batch_size=rows.batch_size, device=rows.device)
    else:
        episode = MinariArrays(rows)
    episode.id, episode.spaces = number, spaces
    return episode


@dataclass(frozen=True, kw_only=True)
class MinariOptions(TrajectoryDatasetOptions):
    """The arguments of ``MinariExperienceReplay``; ``ExperienceReplay`` documents the rest.

    Args:
        dataset_id: the id, such as ``D4RL/door/human-v2``.
        split_trajs: draw whole trajectories ``[T_max]``, padded, with their ``mask``, instead of
            rows; trajectories are copied into memory.
        load_from_local_minari: read the dataset from Minari's folder, ``MINARI_DATASETS_PATH`` or
            ``~/.minari/datasets``; short for the ``source`` of that folder. After a change of its
            files, ``download="force"`` converts them again.
    """

    split_trajs: bool = False
    load_from_local_minari: bool = False

    def from_minari(self) -> MinariOptions:
        """Return the options, with Minari's folder as source if ``load_from_local_minari``."""
        if not self.load_from_local_minari:
            return self
        if self.source is not None:
            raise not_both("source", "load_from_local_minari=True", self.source)
        root = os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets"
        folder = Path(root, os.fspath(self.dataset_id).removeprefix("minari/"), "data")
        if not folder.is_dir():
            raise DatasetNotInstalled(
                f"Minari has not downloaded {self.dataset_id}: the folder {folder} does not exist.",
                argument="load_from_local_minari",
                id=os.fspath(self.dataset_id),
                path=folder,
                advice="Set MINARI_DATASETS_PATH to the folder of its datasets, or leave out "
                "load_from_local_minari=True to download the dataset.",
            )
        return replace(self, source=str(folder), download=self.download or True)


@dataclass(frozen=True)
class MinariDatasetSpec:
    """Minari's metadata of a dataset, under Minari's names."""

    env_spec: EnvSpec | None
    total_episodes: int
    total_steps: int
    dataset_id: str
    combined_datasets: list[str]
    observation_space: Space[Any]
    action_space: Space[Any]
    data_path: str
    minari_version: str
    namespace: str | None
    dataset_name: str
    version: int | None


@accepts_keywords
class MinariExperienceReplay(ExperienceReplay):
    """A Minari dataset by its Minari id, such as ``D4RL/door/human-v2``.

    ``split_trajs`` and ``load_from_local_minari`` are TorchRL's arguments. The class also has the
    methods of Minari's datasets. Episodes are batches ``[T]`` that also have Minari's names:
    ``id``, ``observations`` ``[T + 1]``, ``actions``, ``rewards``, ``terminations``,
    ``truncations`` and ``infos``.

    Raises:
        UsageError: arguments exclude one another.
        RldsError: as ``ExperienceReplay``.
    """

    family = "minari"
    available_datasets = AvailableDatasets()

    @takes_fields(MinariOptions)
    def __init__(self, options: MinariOptions) -> None:
        opened = with_slices(options.from_minari())
        if opened.split_trajs:
            open_split(self, opened)
        else:
            self._open(opened)

    @property
    def _whole(self) -> EpisodeReader:
        numbers, spaces = self.episode_indices, published_spaces(self.metadata)

        def episode_at(position: int, rows: Rows) -> Episode:
            return minari_episode(int(numbers[position]), rows, spaces)

        is_current = self.storage is self._stored
        return EpisodeReader(self, self._rows, is_current=is_current, form=episode_at)

    def iterate_episodes(self, episode_indices: NumbersOrMask | None = None) -> Iterator[Episode]:
        """Return an iterator over episodes: all, or those numbered in ``episode_indices``.

        Raises:
            OutOfRange: the dataset, or the view, does not have the episode.
        """
        whole = self._rows.dataset.whole
        if episode_indices is not None and whole is not self._rows.dataset:
            numbers = self.episode_indices.tolist()
            positions = {number: position for position, number in enumerate(numbers)}
            wanted = trajectory_numbers(episode_indices, whole.num_trajectories).tolist()
            if outside := [number for number in wanted if number not in positions]:
                raise OutOfRange(
                    f"This view does not have the episode {outside[0]}.",
                    argument="episode_indices",
                    expected=numbers,
                    found=outside[0],
                    advice="Its episode_indices are the numbers of its episodes.",
                )
            episode_indices = [positions[number] for number in wanted]
        return self._whole.iterate_episodes(episode_indices)

    def filter_episodes(self, condition: Callable[[Episode], bool]) -> Self:
        """Return a view of the episodes for which a function returns True."""
        matches = [bool(condition(episode)) for episode in self.iterate_episodes()]
        return self.episodes_at(np.array(matches, bool))

    def set_seed(self, seed: int) -> None:
        """Seed the draws of episodes and batches."""
        self.set_rng(seeded(seed))

    @property
    def total_episodes(self) -> int:
        """The number of episodes."""
        return self._rows.dataset.num_trajectories

    @property
    def total_steps(self) -> int:
        """The number of steps of all episodes."""
        return len(self._rows)

    @property
    def episode_indices(self) -> np.ndarray:
        """The episode numbers int64 ``[K]``; a view keeps the numbers of the whole dataset."""
        selection = self._rows.dataset.selection
        return np.arange(self.total_episodes) if selection is None else selection.numbers.copy()

    @property
    def observation_space(self) -> Space[Any]:
        """The gymnasium space of the observations."""
        return self._space("observation")

    @property
    def action_space(self) -> Space[Any]:
        """The gymnasium space of the actions."""
        return self._space("action")

    def _space(self, name: str) -> Space[Any]:
        described = published_spaces(self.metadata)[name]
        if described is None:
            raise Unsupported(
                f"The metadata of {self.dataset_id} lacks the {name} space.",
                id=self.dataset_id,
                advice="Its specs describe the shapes and dtypes of its rows.",
            )
        space: Space[Any] = build(described)
        return space

    @property
    def spec(self) -> MinariDatasetSpec:
        """Minari's metadata of the dataset; a view counts its own episodes and steps."""
        from datasets_cli.environments.record.run import environment_spec

        metadata = self.metadata
        id = str(metadata.get("dataset_id", self.dataset_id))
        namespace, _, rest = id.rpartition("/")
        name, _, version = rest.rpartition("-v")
        return MinariDatasetSpec(
            env_spec=environment_spec(self.manifest),
            total_episodes=self.total_episodes,
            total_steps=self.total_steps,
            dataset_id=id,
            combined_datasets=[*(metadata.get("combined_datasets") or [])],
            observation_space=self.observation_space,
            action_space=self.action_space,
            data_path=str(self.data_path),
            minari_version=str(metadata.get("minari_version")),
            namespace=namespace or None,
            dataset_name=name or rest,
            version=int(version) if name and version.isdecimal() else None,
        )
