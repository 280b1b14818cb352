"""Which rows views have: of trajectories that are chosen, or a run of rows."""

from __future__ import annotations

import reprlib
import warnings
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch

from datasets_cli.errors import UsageError
from datasets_cli.quantities import counted
from datasets_cli.replay.arguments import Rows, whole_number
from datasets_cli.replay.buffer.buffer import ReadableBuffer
from datasets_cli.replay.buffer.parts import as_documented
from datasets_cli.replay.queries.views import (
    TrajectoryNumbers,
    Where,
    best_places,
    selected,
    split_places,
    trajectory_numbers,
)
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.replay.trajectories.table import Trajectories
from datasets_cli.schema.shapes import check_run
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.selection import Selection, whole_dataset

P = ParamSpec("P")
Buffer = TypeVar("Buffer")


class ViewChoices:
    """Chooses the rows of views of a dataset, or of a view of it."""

    def __init__(self, rows: DatasetStorage, root: CacheRoot) -> None:
        self._rows = rows
        self._root = root

    @cached_property
    def trajectories(self) -> Trajectories:
        """The table that trajectories are chosen by."""
        return Trajectories(self._rows, self._root)

    @cached_property
    def selection(self) -> Selection:
        """Which rows of the dataset there are to choose from."""
        dataset = self._rows.dataset
        if dataset.selection is not None:
            return dataset.selection
        return whole_dataset(dataset.manifest.content, dataset.offsets.numpy())

    def episodes_at(self, numbers: TrajectoryNumbers) -> Selection:
        """Return a view of some trajectories: a buffer over them alone, of which nothing is copied.

        It does what this buffer does, with its batch size, format and transforms, by draws of its
        own: epochs and priorities begin, a seed begins again. Rows and trajectories are numbered as
        the view has them. It pickles, and is saved, as numbers of trajectories.

        Args:
            numbers: of trajectories, in the order wanted, also several times; those below 0 are
                counted from the end. Or a mask of them.

        Raises:
            OutOfRange: there is no such trajectory.
            UsageError: what is given is neither numbers nor a mask; or ``set_storage`` put other
                rows in the dataset's place.
        """
        places = trajectory_numbers(numbers, len(self.trajectories))
        return self.selection.at(places, f"episodes_at({reprlib.repr(places.tolist())})")

    def filter(self, where: Where) -> Selection:
        """Return a view of the trajectories for which a condition holds; see ``episodes_at``.

        Such as ``replay.filter("return > 300 and length >= 100")``; or what a preset leaves of all,
        such as ``"first-success"``, ``"no-timeouts"`` and ``"no-idle:epsilon=0.01,length=5"``.

        Args:
            where: a text of the columns of ``trajectories`` and reductions of leaves, or a preset;
                a condition of ``traj``, which is of the stored rows; or a function that takes
                ``trajectories`` and gives a mask, or numbers.

        Raises:
            UsageError: it is not a condition, or names what the trajectories do not have.
        """
        return selected(where, self._rows.dataset, self.selection, self.trajectories)

    def take(
        self, count: int | float, by: str | None = None, *, smallest: bool = False
    ) -> Selection:
        """Return a view of the best trajectories, best first; see ``episodes_at``.

        Args:
            count: how many; or a float up to 1, for a part of all of them.
            by: the column of ``trajectories`` that is the largest; None for the first ones.
            smallest: take those where it is the smallest.

        Raises:
            UsageError: there are fewer, or there is no such column of one number a trajectory.
        """
        places = best_places(count, by, self.trajectories, smallest=smallest)
        how = f", by={by!r}" * (by is not None) + ", smallest=True" * bool(smallest)
        return self.selection.at(places, f"take({count!r}{how})")

    def rows(self, start: int, stop: int) -> Selection:
        """Return a view of the rows ``start`` to ``stop - 1``; see ``episodes_at``.

        The first and the last trajectory may be cut: their length and return are those of the rows
        that the view has, and frame stacks have no step before.

        Raises:
            OutOfRange: there are no such rows.
        """
        check_run(whole_number("start", start), whole_number("stop", stop), len(self._rows))
        return self.selection.rows(start, stop, f"rows({start}, {stop})")

    def split(self, fractions: tuple[float, ...], seed: int) -> list[Selection]:
        """Return the rows of disjoint views, trajectories drawn at random for each."""
        parts = split_places(fractions, len(self.trajectories), seed)
        name = f"split({', '.join(map(repr, fractions))}, seed={seed})"
        there = len(self.trajectories)
        for number, (asked, part) in enumerate(zip((*fractions, 1), parts, strict=False)):
            if asked and there and not len(part):
                warnings.warn(
                    f"Part {number} of {name} is empty: its fraction is less than one of "
                    f"{counted(there, 'trajectory')}. Take a larger one.",
                    stacklevel=3,
                )
        return [self.selection.at(part, f"{name}[{number}]") for number, part in enumerate(parts)]


def view_of(
    choose: Callable[Concatenate[ViewChoices, P], Selection],
) -> Callable[Concatenate[Buffer, P], Buffer]:
    """Return a method of a buffer that returns a view of the rows that a method here chooses."""

    def call(self: Any, /, *positional: P.args, **named: P.kwargs) -> Any:
        return self._view(choose(self._choices, *positional, **named))

    return as_documented(call, choose, returns="Self")


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
