"""Whole trajectories of a dataset as batches, one after the other or drawn at random."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from datasets_cli.errors import UsageError
from datasets_cli.quantities import counted
from datasets_cli.replay.arguments import Rows, whole_number
from datasets_cli.replay.buffers.readable import ReadableBuffer
from datasets_cli.replay.queries.choices import TrajectoryNumbers, trajectory_numbers
from datasets_cli.replay.storages.dataset import DatasetStorage


class EpisodeReader:
    """Reads whole trajectories of a dataset by the buffer that samples it."""

    def __init__(
        self,
        replay: ReadableBuffer,
        rows: DatasetStorage,
        *,
        is_there: bool,
        form: Callable[[int, Rows], Rows] = lambda number, rows: rows,
    ) -> None:
        self._replay = replay
        self._rows = rows
        self._form = form  # made of the rows of each
        self._is_there = is_there  # or did `set_storage` put other rows in their place
        self._id = rows.dataset.id
        self._count = rows.dataset.num_trajectories

    def episode(self, number: int) -> Rows:
        """Return all rows of one trajectory as a batch ``[T]``, as ``[index]`` returns rows.

        Args:
            number: of the trajectory; below 0 it is counted from the end.

        Raises:
            OutOfRange: there is no such trajectory.
            UsageError: the copy would take more than half of the free memory, or ``set_storage``
                put other rows in the dataset's place.
        """
        return next(self.iterate_episodes([whole_number("number", number)]))

    def episodes(self, numbers: TrajectoryNumbers | None = None) -> Iterator[Rows]:
        """Return an iterator over trajectories, a batch ``[T]`` each; see ``episode``.

        Args:
            numbers: of trajectories, in the order wanted, or a mask of them, such as
                ``trajectories["return"] > 100``; all in order where None.

        Raises:
            OutOfRange: there is no such trajectory.
            UsageError: as ``episode``, or what is given is neither numbers nor a mask.
        """
        return self.iterate_episodes(numbers)

    def iterate_episodes(self, episode_indices: TrajectoryNumbers | None = None) -> Iterator[Rows]:
        """Return ``episodes(episode_indices)``, by the name that it has in Minari.

        It is there also where ``episodes`` is TorchRL's: in ``AtariDQNExperienceReplay``.
        """
        if not self._is_there:
            raise UsageError(
                f"Episodes are those of {self._id}, and set_storage() put other rows in its "
                "place. Open the dataset again to iterate over them."
            )
        wanted = trajectory_numbers(episode_indices, self._count)
        offsets = self._rows.offsets
        return (
            self._form(number, self._replay[int(offsets[number]) : int(offsets[number + 1])])
            for number in wanted
        )

    def sample_episodes(self, n_episodes: int) -> list[Rows]:
        """Return different trajectories drawn at random, as Minari's method of that name.

        They are drawn by the generator that draws the rows of batches.

        Raises:
            UsageError: there are fewer; or as ``episode``.
        """
        if whole_number("n_episodes", n_episodes, 0) > self._count:
            raise UsageError(
                f"{self._id} has {counted(self._count, 'episode')}, and {n_episodes} different "
                "ones are asked for. Ask for fewer, or draw slices with replacement."
            )
        self._replay.reader.rewind()  # what was drawn ahead must be drawn after these
        generator = self._replay.reader.generator
        order = torch.randperm(self._count, generator=generator, device=generator.device)
        return [*self.iterate_episodes(order[:n_episodes])]
