"""ExperienceReplay: a published dataset as a replay buffer."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import torch

from datasets_cli.config import load_config
from datasets_cli.errors import UsageError
from datasets_cli.experience.opening import open_or_install
from datasets_cli.experience.options import (
    OpenOptions,
    SequenceBufferOptions,
    TrajectoryDatasetOptions,
)
from datasets_cli.experience.preprocess import ReplayPreprocessOptions, preprocess_rows
from datasets_cli.experience.qlearning import qlearning_columns
from datasets_cli.install.installed import remove
from datasets_cli.options import part_of, takes_fields
from datasets_cli.quantities import counted
from datasets_cli.replay.arguments import NestedKey, Rows, whole_number
from datasets_cli.replay.buffers.options import BatchOptions, BufferOptions, DrawOptions
from datasets_cli.replay.buffers.tensordict import TensorDictReplayBuffer
from datasets_cli.replay.draws.draw import Uniform
from datasets_cli.replay.draws.epochs import Epochs
from datasets_cli.replay.draws.protocol import Sampler
from datasets_cli.replay.draws.rows import RandomSampler, SamplerWithoutReplacement
from datasets_cli.replay.draws.slices import SliceOptions, cut_of
from datasets_cli.replay.queries.choices import (
    TrajectoryNumbers,
    Where,
    best_places,
    compared_keys,
    distinct_places,
    places_where,
    split_places,
    trajectory_numbers,
)
from datasets_cli.replay.queries.query import Predicate
from datasets_cli.replay.queries.trajectory import Trajectory
from datasets_cli.replay.queries.view_file import SUFFIX as VIEW_SUFFIX
from datasets_cli.replay.queries.view_file import SavedView, is_view_file, read_view, save_view
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.replay.storages.frame_stack import FrameStack
from datasets_cli.replay.storages.options import SequenceOptions
from datasets_cli.replay.storages.sequences import Sequences
from datasets_cli.replay.trajectories.table import Trajectories
from datasets_cli.specs.composite import Composite
from datasets_cli.specs.described_spaces import dataset_specs
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.manifest import Manifest
from datasets_cli.store.selection import Selection, whole_dataset

if TYPE_CHECKING:
    import gymnasium
    import numpy as np


class ExperienceReplay(TensorDictReplayBuffer):
    """Samples an installed dataset, installing it first if need be.

    >>> replay = ExperienceReplay("d4rl/door-human-v0", batch_size=256)
    >>> replay.sample()["next", "reward"].shape
    torch.Size([256, 1])

    Raises:
        RldsError: as ``install_dataset`` and ``store.dataset.open_dataset``.
    """

    family: ClassVar[str | None] = None

    @takes_fields(OpenOptions)
    def __init__(self, options: OpenOptions) -> None:
        self._open(options, options.options, options.num_workers)

    def _open(
        self,
        options: TrajectoryDatasetOptions,
        variant: Mapping[str, str] | None = None,
        num_workers: int | None = 0,
    ) -> None:
        """Open a dataset, installed first if need be, as this buffer."""
        if options.download not in (False, True, "force"):
            raise UsageError(f"download is True, False or 'force', not {options.download!r}.")
        given = os.fspath(options.dataset_id)
        view = read_view(Path(given)) if given.endswith(VIEW_SUFFIX) else None
        self.config = load_config(root=options.root)
        id = self._id(given if view is None else view.id, view)
        rows = open_or_install(id, self.config, options, variant, num_workers)
        if view is not None:
            content = rows.dataset.manifest.content
            rows = rows.select(view.selection(content, rows.offsets.numpy()))
        stacked = options.frame_stack
        if stacked is not None:
            stacked = whole_number("frame_stack", stacked, 1)
        self._rows, self._stored = rows, rows if stacked is None else FrameStack(rows, stacked)
        batches = vars(part_of(options, BatchOptions)) | {
            "sampler": options.sampler or choose_sampler(options, options.replacement),
            "pin_memory": False,  # the storage pins its rows
        }
        size, writer = options.batch_size, options.writer
        self._assemble(
            BufferOptions(storage=self._stored, writer=writer, batch_size=size, **batches)
        )
        self.priority_key = options.priority_key

    def _id(self, id: str, view: SavedView | None) -> str:
        """Return the full id of what is asked for, which is of the family of this class."""
        if not self.family or id.startswith((f"{self.family}/", "demo/")):
            return id
        if view is not None:
            raise UsageError(
                f"{view.path} is a view of {view.id}, and {type(self).__name__} opens datasets of "
                f"{self.family}. Open it by ExperienceReplay."
            )
        return f"{self.family}/{id}"

    @property
    def manifest(self) -> Manifest:
        """Everything known about the dataset."""
        return self._rows.dataset.manifest

    @property
    def dataset_id(self) -> str:
        """The full id, ``family/name``."""
        return self.manifest.id

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the publisher says: spaces, reference scores, known traps, and so on."""
        return self.manifest.metadata

    @cached_property
    def specs(self) -> Composite:
        """What the entries of a row may be: shape, element type, and the publisher's spaces.

        A Composite with the keys of batches, before their transform. Frame stacks have the spec of
        each of their frames; what is before a trajectory's first is zeros, whatever the spec says.
        """
        specs = dataset_specs(self.manifest, text=self._rows.dataset.texts is not None)
        if isinstance(self._stored, FrameStack):
            for key in (("observation",), ("next", "observation")):
                stacked = specs[key].unsqueeze(0)
                specs[key] = stacked.expand(self._stored.length, *stacked.shape[1:])
        return specs.to(self._rows.device)

    @property
    def data_path(self) -> Path:
        """The folder of the dataset."""
        return self._rows.dataset.folder

    @property
    def data_path_root(self) -> Path:
        """The folder of the dataset; TorchRL's name for it."""
        return self.data_path

    @cached_property
    def trajectories(self) -> Trajectories:
        """A table of the dataset's trajectories: start, length, return, how each ended."""
        return Trajectories(self._rows, CacheRoot(self.config.root))

    def episode(self, number: int) -> Rows:
        """Return all rows of one trajectory as a batch ``[T]``, as ``[index]`` returns rows.

        Args:
            number: of the trajectory; below 0 it is counted from the end.

        Raises:
            IndexError: there is no such trajectory.
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
            IndexError: there is no such trajectory.
            UsageError: as ``episode``, or what is given is neither numbers nor a mask.
        """
        return self.iterate_episodes(numbers)

    def iterate_episodes(self, episode_indices: TrajectoryNumbers | None = None) -> Iterator[Rows]:
        """Return ``episodes(episode_indices)``, by the name that it has in Minari.

        It is there also where ``episodes`` is TorchRL's: in ``AtariDQNExperienceReplay``.
        """
        if self.storage is not self._stored:
            raise UsageError(
                f"Episodes are those of {self.dataset_id}, and set_storage() put other rows in its "
                "place. Open the dataset again to iterate over them."
            )
        wanted = trajectory_numbers(episode_indices, len(self.trajectories))
        offsets = self._rows.offsets
        return (self[int(offsets[number]) : int(offsets[number + 1])] for number in wanted)

    def sample_episodes(self, n_episodes: int) -> list[Rows]:
        """Return different trajectories drawn at random, as Minari's method of that name.

        They are drawn by the generator that draws the rows of batches.

        Raises:
            UsageError: there are fewer; or as ``episode``.
        """
        count = len(self.trajectories)
        if whole_number("n_episodes", n_episodes, 0) > count:
            raise UsageError(
                f"{self.dataset_id} has {counted(count, 'episode')}, of which {n_episodes} "
                "different ones cannot be drawn. Ask for fewer, or draw slices with replacement."
            )
        self.reader.rewind()  # what was drawn ahead must be drawn after these
        generator = self.reader.generator
        order = torch.randperm(count, generator=generator, device=generator.device)
        return [*self.iterate_episodes(order[:n_episodes])]

    def query(
        self, predicate: Predicate | None = None, *, trajectory_key: NestedKey | None = None
    ) -> list[Trajectory]:
        """Return the trajectories for which a condition holds; see ``ReplayBuffer.query``.

        What the condition reduces is kept, as of ``trajectories``. ``filter`` takes the same
        conditions of ``traj``, and gives a view, which has no copies.
        """
        is_own = trajectory_key is None and self.storage is self._rows
        return self._query(predicate, trajectory_key, self.trajectories if is_own else None)

    def episodes_at(self, numbers: TrajectoryNumbers) -> Self:
        """Return a view of some trajectories: a buffer over them alone, of which nothing is copied.

        It does what this buffer does, with its batch size, format and transforms, by draws of its
        own: epochs and priorities begin, a seed begins again. Rows and trajectories are numbered as
        the view has them. It pickles, and is saved, as numbers of trajectories.

        Args:
            numbers: of trajectories, in the order wanted, also several times; those below 0 are
                counted from the end. Or a mask of them.

        Raises:
            IndexError: there is no such trajectory.
            UsageError: what is given is neither numbers nor a mask; or ``set_storage`` put other
                rows in the dataset's place.
        """
        places = trajectory_numbers(numbers, len(self.trajectories))
        return self._at(places, f"episodes_at({reprlib.repr(places.tolist())})")

    def filter(self, where: Where) -> Self:
        """Return a view of the trajectories for which a condition holds; see ``episodes_at``.

        Such as ``replay.filter("return > 300 and length >= 100")``.

        Args:
            where: a text of the columns of ``trajectories`` and reductions of leaves; a condition
                of ``traj``, which is of the rows as they are stored; or a function that takes
                ``trajectories`` and gives a mask, or numbers.

        Raises:
            UsageError: it is no condition, or names what the trajectories do not have.
        """
        name = where if isinstance(where, str) else getattr(where, "__qualname__", str(where))
        return self._at(places_where(where, self.trajectories), f"filter({name!r})")

    def split(self, *fractions: float, seed: int = 0) -> tuple[Self, ...]:
        """Return disjoint views, trajectories drawn at random for each; see ``episodes_at``.

        Args:
            fractions: of all trajectories; what they leave is a view more.
            seed: gives the same parts on every machine.

        Raises:
            UsageError: a fraction is below 0, or they sum up to more than 1.
        """
        parts = split_places(fractions, len(self.trajectories), seed)
        given = ", ".join(map(repr, fractions))
        return tuple(
            self._at(part, f"split({given}, seed={seed})[{number}]")
            for number, part in enumerate(parts)
        )

    def take(self, count: int | float, by: str | None = None, *, smallest: bool = False) -> Self:
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
        return self._at(places, f"take({count!r}{how})")

    def drop_duplicates(self, keys: Iterable[NestedKey] | None = None) -> Self:
        """Return a view without trajectories that repeat an earlier one, bit for bit.

        Args:
            keys: the leaves that are compared; by default all numbers of a row but those that
                number trajectories, and no text.

        Raises:
            UsageError: there is no such leaf.
        """
        names = None if keys is None else compared_keys(keys)
        places = distinct_places(self._rows.dataset, names)
        return self._at(places, f"drop_duplicates({'' if names is None else names})")

    def rows(self, start: int, stop: int) -> Self:
        """Return a view of the rows ``start`` to ``stop - 1``; see ``episodes_at``.

        The first and the last trajectory may be cut: their length and return are those of the rows
        that the view has, and frame stacks have no step before.

        Raises:
            IndexError: there are no such rows.
        """
        if not 0 <= (start := whole_number("start", start)) <= (stop := whole_number("stop", stop)):
            raise IndexError(f"rows(start, stop) needs 0 <= start <= stop, not {start}, {stop}.")
        if stop > len(self._rows):
            raise IndexError(f"Rows end at {len(self._rows)}; found the end {stop}.")
        return self._view(self._selection.rows(start, stop, f"rows({start}, {stop})"))

    @cached_property
    def _selection(self) -> Selection:
        """Which rows of the dataset these are."""
        dataset = self._rows.dataset
        if dataset.selection is not None:
            return dataset.selection
        return whole_dataset(dataset.manifest.content, dataset.offsets.numpy())

    def _at(self, places: np.ndarray, step: str) -> Self:
        return self._view(self._selection.at(places, step))

    def _view(self, selection: Selection) -> Self:
        if self.reader.storage is not self._stored:
            raise UsageError(
                f"A view is of {self.dataset_id}, and set_storage() put other rows in its place. "
                "Open the dataset again."
            )
        rows = self._rows.select(selection)
        stored = self._stored.over(rows) if isinstance(self._stored, FrameStack) else rows
        view = self._over(stored)
        for name in ("trajectories", "_selection"):  # of this buffer's rows
            vars(view).pop(name, None)
        view._rows, view._stored = rows, stored
        return view

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write which trajectories a view has into a file, ``best.json``; or do as ``dumps``.

        ``ExperienceReplay("best.json")`` opens the view again, where its dataset has the same
        content; ``dumps`` writes a folder, which also has the state of the draws.

        Args:
            path: of a file that ends in ``.json``; any other is that of a folder, for ``dumps``.

        Raises:
            DiskFull: no room.
            OSError: the file cannot be written.
        """
        if not is_view_file(path):
            self.dumps(Path(path))
            return
        offsets = self._rows.dataset.whole.offsets.numpy()
        save_view(Path(path), self.dataset_id, self._selection, offsets)

    @takes_fields(SequenceBufferOptions)
    def sequences(self, options: SequenceBufferOptions) -> TensorDictReplayBuffer:
        """Return a buffer of sequences ``[B, T]``, as Decision Transformers are trained on.

        Beside the leaves of the rows they have ``returns_to_go``, ``timesteps`` and
        ``attention_mask``; see ``Sequences``.

        Raises:
            UsageError: as ``Sequences``.
        """
        made = vars(part_of(options, SequenceOptions))
        draws = part_of(options, DrawOptions)
        if draws.sampler is None:
            draws = replace(draws, sampler=choose_sampler(SliceOptions(), options.replacement))
        is_own = options.transform is None
        if is_own:
            draws = replace(draws, transform=self.transform or None)
        return TensorDictReplayBuffer(
            storage=Sequences(
                self.storage, options.length, root=CacheRoot(self.config.root), **made
            ),
            batch_size=options.batch_size,
            collate_fn=self.reader.collate_fn if is_own else None,
            priority_key=self.priority_key,
            format=options.format or self.format,
            **vars(draws),
        )

    def delete(self) -> None:
        """Delete the dataset from the disk; batches drawn from it, and this buffer, stay valid.

        Raises:
            UsageError: this is a view, which has no files.
        """
        if self._rows.dataset.selection is not None:
            raise UsageError(
                f"A view of {self.dataset_id} has no files to delete. Delete the dataset: "
                f"rlds delete {self.dataset_id}"
            )
        remove(self.dataset_id, self.config)

    @takes_fields(ReplayPreprocessOptions)
    def preprocess(self, options: ReplayPreprocessOptions) -> DatasetStorage:
        """Write ``fn`` of every row into a new dataset; return it as storage for a ReplayBuffer.

        Raises:
            UsageError: arguments that exclude one another, or are out of range.
            UsageError, RldsError: as ``datasets_cli.preprocess``.
        """
        return preprocess_rows(self._rows.dataset, options, self.config.lock_timeout)

    def recover_environment(self, eval_env: bool = False, **kwargs: Any) -> gymnasium.Env[Any, Any]:
        """Return the environment that the dataset was recorded from, made by gymnasium.

        The specification in the dataset names code to import: do it for data that you trust.

        Args:
            eval_env: the environment for evaluation, where the dataset names one.
            kwargs: further arguments of ``gymnasium.make``.

        Raises:
            UsageError: the dataset does not know it, or gymnasium cannot make it.
        """
        from datasets_cli.environments.record.recover import recover_environment

        return recover_environment(self.manifest, kwargs, evaluation=eval_env)

    def qlearning_dataset(self, *, like: Literal["d4rl"] | None = None) -> dict[str, np.ndarray]:
        """Return the whole dataset as the numpy dict that D4RL's users know.

        Args:
            like: None for every row; ``"d4rl"`` for the rows of ``d4rl.qlearning_dataset``, value
                for value, of a dataset of D4RL.

        Returns:
            ``observations``, ``actions``, ``next_observations`` float32 ``[N, ...]`` (float64 and
            integers are cast, as ``d4rl.qlearning_dataset`` does), ``rewards`` float32 ``[N]``,
            ``terminals`` bool ``[N]`` and ``timeouts`` bool ``[N]``, the ends by a time limit; no
            text. Unlike there, rows cut off by a time limit stay where their successor is real,
            and no successor belongs to another trajectory: it is zeros after a terminal where the
            file has none. With ``like="d4rl"`` it is as there, and there are no ``timeouts``.

        Raises:
            UsageError: the observation is not one tensor, the copy does not fit into memory, or
                the dataset does not have what D4RL's rows are made of: it is of another family or
                was preprocessed, or its file has no timeouts and trajectories up to the time limit.
        """
        return qlearning_columns(self._rows, like)

    def get_normalized_score(self, returns: float) -> float:
        """Return a score that is 0 for the reference policy's low end and 1 for its high end.

        Raises:
            UsageError: the publisher gives no reference scores for this dataset.
        """
        low, high = self.metadata.get("ref_min_score"), self.metadata.get("ref_max_score")
        if low is None or high is None:
            raise UsageError(f"{self.dataset_id} has no reference scores to normalise with.")
        return float((returns - low) / (high - low))


def choose_sampler(options: SliceOptions, replacement: bool) -> Sampler:
    """Return the sampler that the options of a dataset describe."""
    if options.has_slices:
        return cut_of(Uniform() if replacement else Epochs(), options)
    return RandomSampler() if replacement else SamplerWithoutReplacement()
