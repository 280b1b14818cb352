"""The rows of views: of selected trajectories, or a run of rows; and episodes of a dataset."""

from __future__ import annotations

import reprlib
import warnings
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch

from datasets_cli.core.quantities import counted
from datasets_cli.errors import Unsupported, WrongSize
from datasets_cli.replay.arguments import Rows, whole_number
from datasets_cli.replay.buffer.buffer import ReadableBuffer
from datasets_cli.replay.buffer.parts import as_documented
from datasets_cli.replay.queries.views import (
    NumbersOrMask,
    Where,
    first_places,
    selected,
    split_places,
    trajectory_numbers,
)
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.replay.trajectories.trajectory_table import Trajectories
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
        """The table of trajectories that conditions read."""
        return Trajectories(self._rows, self._root)

    @cached_property
    def selection(self) -> Selection:
        """The rows of the dataset that this buffer has."""
        dataset = self._rows.dataset
        if dataset.selection is not None:
            return dataset.selection
        return whole_dataset(dataset.content, dataset.offsets.numpy())

    def episodes_at(self, numbers: NumbersOrMask) -> Selection:
        """Return a view of trajectories: a buffer over their rows, which are not copied.

        The view has the batch size, format and transforms of this buffer, and separate draws:
        epochs, priorities and seeds restart. Its rows and trajectories are numbered from 0. It
        is pickled as numbers of trajectories.

        Args:
            numbers: numbers of trajectories in the order of the view, possibly repeated; negative
                numbers count from the end. Or a mask of trajectories.

        Raises:
            OutOfRange: a number is not a number of a trajectory.
            UsageError: ``numbers`` are neither numbers nor a mask; or ``set_storage`` replaced the
                rows of the dataset.
        """
        places = trajectory_numbers(numbers, len(self.trajectories))
        return self.selection.at(places, f"episodes_at({reprlib.repr(places.tolist())})")

    def filter(self, where: Where) -> Selection:
        """Return a view of the trajectories that match a condition; see ``episodes_at``.

        Examples are ``replay.filter("return > 300 and length >= 100")`` and the presets
        ``"first-success"``, ``"no-timeouts"`` and ``"no-idle:epsilon=0.01,length=5"``.

        Args:
            where: text of columns of ``trajectories`` and reductions of leaves, or a preset; a
                condition of ``traj``, evaluated on the stored rows; or a function of
                ``trajectories`` that returns a mask or numbers.

        Raises:
            UsageError: ``where`` is not a condition, or has unknown names.
        """
        return selected(where, self._rows.dataset, self.selection, self.trajectories)

    def take(self, count: int | float, by: str | None = None) -> Selection:
        """Return a view of the first trajectories in the order of a column; see ``episodes_at``.

        ``replay.take(0.1, by="-return")`` is the best tenth, best first.

        Args:
            count: the number of trajectories; or a float up to 1, a fraction of all.
            by: the column of ``trajectories`` to sort by, smallest first; after a ``-`` largest
                first; None for the order of the dataset. NaN comes last.

        Raises:
            UsageError: the dataset has fewer, or ``by`` is not one number per trajectory.
        """
        places = first_places(count, by, self.trajectories)
        how = f", by={by!r}" * (by is not None)
        return self.selection.at(places, f"take({count!r}{how})")

    def rows(self, start: int, stop: int) -> Selection:
        """Return a view of the rows ``start`` to ``stop - 1``; see ``episodes_at``.

        The first and the last trajectory may be cut: their length and return are computed from the
        rows of the view, and frame stacks do not include steps before it.

        Raises:
            OutOfRange: ``start`` to ``stop - 1`` are not rows of the dataset.
        """
        check_run(whole_number("start", start), whole_number("stop", stop), len(self._rows))
        return self.selection.rows(start, stop, f"rows({start}, {stop})")

    def split(self, fractions: tuple[float, ...], seed: int) -> list[Selection]:
        """Return the rows of disjoint views, trajectories drawn at random for each."""
        parts = split_places(fractions, len(self.trajectories), seed)
        name = f"split({', '.join(map(repr, fractions))}, seed={seed})"
        total = len(self.trajectories)
        for number, (fraction, part) in enumerate(zip((*fractions, 1), parts, strict=False)):
            if fraction and total and not len(part):
                warnings.warn(
                    f"Part {number} of {name} is empty: its fraction is less than one of "
                    f"{counted(total, 'trajectory')}. Pass a larger fraction.",
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
        is_current: bool,
        form: Callable[[int, Rows], Rows] = lambda number, rows: rows,
    ) -> None:
        self._replay = replay
        self._rows = rows
        self._form = form  # applied to the rows of each trajectory
        self._is_current = is_current  # False after `set_storage` replaced the dataset's rows
        self._id = rows.dataset.id
        self._count = rows.dataset.num_trajectories

    def episode(self, number: int) -> Rows:
        """Return all rows of one trajectory as a batch ``[T]``, as ``[index]`` returns rows.

        Args:
            number: the number of the trajectory; negative numbers count from the end.

        Raises:
            OutOfRange: ``number`` is not a number of a trajectory.
            UsageError: the copy would take more than half of the free memory, or ``set_storage``
                replaced the rows of the dataset.
        """
        return next(self.iterate_episodes([whole_number("number", number)]))

    def episodes(self, numbers: NumbersOrMask | None = None) -> Iterator[Rows]:
        """Return an iterator over trajectories, a batch ``[T]`` each; see ``episode``.

        Args:
            numbers: numbers of trajectories in the order of iteration, or a mask, such as
                ``trajectories["return"] > 100``; all trajectories by default.

        Raises:
            OutOfRange: a number is not a number of a trajectory.
            UsageError: see ``episode``; or ``numbers`` are neither numbers nor a mask.
        """
        return self.iterate_episodes(numbers)

    def iterate_episodes(self, episode_indices: NumbersOrMask | None = None) -> Iterator[Rows]:
        """Return ``episodes(episode_indices)``; this is Minari's name.

        ``AtariDQNExperienceReplay`` has it too; its ``episodes`` is TorchRL's.
        """
        if not self._is_current:
            raise Unsupported(
                f"set_storage() replaced the rows of {self._id}, so its episodes cannot be read.",
                id=self._id,
                advice="Open the dataset again.",
            )
        numbers = trajectory_numbers(episode_indices, self._count)
        offsets = self._rows.offsets
        return (
            self._form(number, self._replay[int(offsets[number]) : int(offsets[number + 1])])
            for number in numbers
        )

    def sample_episodes(self, n_episodes: int) -> list[Rows]:
        """Return distinct random trajectories, as Minari's method of that name.

        They are drawn by the generator of batches.

        Raises:
            UsageError: the dataset has fewer; or see ``episode``.
        """
        if whole_number("n_episodes", n_episodes, 0) > self._count:
            raise WrongSize(
                f"{self._id} has {counted(self._count, 'episode')}; it cannot draw {n_episodes} "
                "distinct ones.",
                argument="n_episodes",
                id=self._id,
                expected=f"{self._count} at most",
                found=n_episodes,
                advice="Draw fewer, or draw slices with replacement.",
            )
        self._replay.reader.rewind()  # batches that were read ahead are drawn after these
        generator = self._replay.reader.generator
        order = torch.randperm(self._count, generator=generator, device=generator.device)
        return [*self.iterate_episodes(order[:n_episodes])]
