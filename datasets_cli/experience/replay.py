"""ExperienceReplay: a published dataset as a replay buffer."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from multiprocessing.pool import Pool
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
import torch

from datasets_cli.catalogue.names import SUFFIX
from datasets_cli.config import load_config
from datasets_cli.core.options import check_types, part_of, suggests_keywords, takes_fields
from datasets_cli.core.progress import Progress
from datasets_cli.core.progress_display import Bars, PlainLines
from datasets_cli.errors import Unsupported, UsageError, wrong_value
from datasets_cli.experience.in_memory import (
    recorded,
    to_arrow,
    to_hf_dataset,
    to_numpy,
    to_pandas,
)
from datasets_cli.experience.opening import (
    OpenOptions,
    SequenceBufferOptions,
    TrajectoryDatasetOptions,
    check_start_method,
    open_folder,
    open_or_install,
    row_sampler,
    warn_of_override,
)
from datasets_cli.experience.qlearning import qlearning_dataset
from datasets_cli.experience.views import EpisodeReader, ViewChoices, view_of
from datasets_cli.install.find import remove
from datasets_cli.parallel.engine import EngineOptions, Workers
from datasets_cli.parallel.tasks import PoolExecutor
from datasets_cli.preprocessing.execution import write_derived
from datasets_cli.preprocessing.options import ChunkOptions, PreprocessOptions
from datasets_cli.preprocessing.pipeline import Pipeline
from datasets_cli.replay.arguments import NestedKey, whole_number
from datasets_cli.replay.batches.jax import JaxFormat, JaxSample, jax_sampler
from datasets_cli.replay.batches.reader import CollateFunction
from datasets_cli.replay.buffer.buffer import (
    DrawOptions,
    TensorDictBatchOptions,
    choose_format,
)
from datasets_cli.replay.buffer.parts import method_of
from datasets_cli.replay.buffer.tensordict import TensorDictReplayBuffer
from datasets_cli.replay.queries.query import Predicate
from datasets_cli.replay.queries.trajectory import Trajectory
from datasets_cli.replay.samplers.protocol import Sampler
from datasets_cli.replay.storages.dataset import DatasetStorage, FrameStack, open_storage
from datasets_cli.replay.storages.options import SequenceOptions
from datasets_cli.replay.storages.sequences import Sequences
from datasets_cli.replay.trajectories.trajectory_table import Trajectories
from datasets_cli.replay.transforms.transform import TransformLike
from datasets_cli.replay.writing.writers import Writer
from datasets_cli.specs.composite import Composite
from datasets_cli.specs.gymnasium_spaces import dataset_specs
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.commit import identity
from datasets_cli.store.dataset import Dataset, open_dataset
from datasets_cli.store.manifest import Manifest, read_manifest
from datasets_cli.store.selection import Selection

if TYPE_CHECKING:
    import gymnasium


@dataclass(frozen=True)
class ReplayPreprocessOptions(EngineOptions, ChunkOptions):
    """Arguments of ``ExperienceReplay.preprocess``.

    Args:
        fn: a function of a TensorDict ``[n]`` of consecutive rows, a copy, which returns a
            TensorDict ``[n]``, or fewer of these rows, ``batch[keep]``; or a ``Pipeline``.
        dim: 0, the dimension of rows.
        num_workers: worker processes; 0 works in this process. None starts in this process, and
            uses all cores if that is faster than starting processes.
        dest: folder of the new dataset; it must be missing, empty, or contain the same result,
            which is then returned.
        pbar: show a progress bar.
        pool: used instead of new processes; a pool of ``multiprocessing``, which waits forever for
            a killed worker, or an executor.
        max_tasks_per_child: None; a pool may replace its processes.
        worker_threads: 1, in each worker.
        index_with_generator: given for compatibility; chunks are made when they are read.
        mp_start_method: ``"spawn"``; ``"fork"`` and ``"forkserver"`` are warned of and not used,
            because a process that is forked after torch began threads may hang.
        generator: draws the seed.
        seed: seeds torch again for every chunk; 0 by default.
    """

    fn: TransformLike | Pipeline
    dim: int = 0
    num_workers: int | None = None
    _: KW_ONLY
    dest: str | os.PathLike[str]
    pbar: bool = False
    pool: Pool | Executor | None = None
    max_tasks_per_child: int | None = None
    worker_threads: int = 1
    index_with_generator: bool = False
    mp_start_method: str | None = None
    generator: torch.Generator | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.dim != 0:
            raise wrong_value("dim", 0, self.dim)
        if self.generator is not None and self.seed is not None:
            raise UsageError(
                "Give a generator or a seed, not both.", argument="seed", found=self.seed
            )
        if self.worker_threads != 1 or self.max_tasks_per_child is not None:
            raise Unsupported(
                "ExperienceReplay.preprocess needs worker_threads=1 and max_tasks_per_child=None; "
                f"found worker_threads={self.worker_threads!r} and max_tasks_per_child="
                f"{self.max_tasks_per_child!r}.",
                argument="worker_threads" if self.worker_threads != 1 else "max_tasks_per_child",
                advice="Pass a pool of workers.",
            )
        if self.mp_start_method is not None:
            check_start_method(self.mp_start_method)
        if self.pool is not None and self.executor is not None:
            raise UsageError("Give an executor or a pool, not both.", argument="pool")

    @property
    def workers(self) -> Workers:
        """The workers that preprocess chunks."""
        executor = self.executor
        if self.pool is not None:
            executor = self.pool if isinstance(self.pool, Executor) else PoolExecutor(self.pool)
        options = vars(part_of(self, EngineOptions)) | {"executor": executor}
        return Workers(num_workers=self.num_workers, **options)

    def reading(self) -> PreprocessOptions:
        """Return the options of chunks and rows; a generator draws the seed."""
        seed = self.seed or 0
        if self.generator is not None:
            seed = int(torch.randint(2**62, (), generator=self.generator))
        return PreprocessOptions(**vars(part_of(self, ChunkOptions)), seed=seed)


def preprocess_rows(
    dataset: Dataset, options: ReplayPreprocessOptions, lock_timeout: float
) -> DatasetStorage:
    """Write a function of the rows of a dataset, or of a selection of it, into a new dataset."""
    dest = Path(options.dest)
    with Bars() if options.pbar else nullcontext(PlainLines()) as progress:
        whole = open_dataset(dataset.folder, text=True)
        write_derived(
            whole if dataset.selection is None else whole.select(dataset.selection),
            options.fn,
            dest,
            options.reading(),
            workers=options.workers,
            lock_timeout=lock_timeout,
            progress=progress,
        )
    return open_storage(dest)


Returns = TypeVar("Returns", float, list[Any], np.ndarray, torch.Tensor)
"""Returns of episodes: a number, or several."""


class ExperienceReplay(TensorDictReplayBuffer):
    """Samples an installed dataset, installing it first if need be.

    >>> replay = ExperienceReplay("d4rl/door-human-v0", batch_size=256)
    >>> replay.sample()["next", "reward"].shape
    torch.Size([256, 1])

    Args:
        dataset_id: ``family/name``; ``name`` is enough where it is unique. The class of a family
            also opens ``demo/name``. A path that begins with ``/`` or ``.`` is the folder of a
            dataset, which is opened read-only.
        batch_size: rows in a batch; ``sample`` can override it.
        root: the cache root; ``RLDS_HOME`` or the user's cache by default.
        download: install a missing dataset (True), raise an error instead (False), or install again
            (``"force"``; the old copy stays until the new one is committed).
        layout: the format of the rows on disk: ``"ted"`` or ``"compact"``.
        sampler: draws the rows of a batch; overrides ``replacement`` and the arguments of slices.
        num_slices: slices in a batch; exclusive with ``slice_len``. Each slice is consecutive rows
            of one trajectory.
        slice_len: rows in a slice; exclusive with ``num_slices``.
        strict_length: leave out trajectories shorter than a slice; otherwise they are drawn whole,
            and the batch is shorter than ``batch_size``.
        replacement: draw with replacement; otherwise each row (or trajectory) once an epoch.
        transform: applied to every batch.
        prefetch: batches that a thread makes ahead of time; see ``ReplayBuffer``.
        pin_memory: leave the rows on the disk and gather each batch into page-locked memory. With a
            ``device``, the batch is copied there, in one copy for all leaves of the compact layout.
        device: copy the rows into the memory of this device (``"cuda"``, ``"cpu"``), and return
            batches there; None reads them from the disk. Frames are decoded from the disk.
        seed: seeds a generator of the buffer's own.
        generator: draws rows, exclusive with ``seed``. The default is a generator of the buffer's
            own, seeded by torch's global one at the first draw.
        format: ``"torch"``, ``"numpy"`` or ``"jax"``; see ``with_format``.
        cast: with ``"jax"``, convert columns of 64 bits to 32; see ``with_format``.
        columns: the keys to read, ``("next", "reward")`` or ``"next.reward"``, whole groups such
            as ``"next"``; all by default. Trajectories and conditions see every column.
        text: also read columns of text, as non-tensor entries of batches:
            ``batch["observation", "mission"]`` is a list of str.
        contiguous: give every leaf its own memory. Leaves of the compact layout are views of one
            tensor, on which ``view(-1)`` raises an error.
        options: options of the family, which select a variant of the dataset.
        num_workers: processes that convert files in parts; all cores with None, this process with
            0.
        frame_stack: make each observation, and next observation, a stack of its last steps.
        source: a folder or URL with the publisher's raw files.
        writer: rejects every row, as any writer of a dataset does.
        repaired: open ``ID~repaired``, the same file with the repairs that follow from it exactly,
            and never ``ID`` in its place.
        audit: what happens if the audit found a defect in the rows: ``"warn"`` warns once, with
            ``KnownDefect``; ``"raise"`` raises an error; ``"ignore"`` opens the dataset.
        view: a condition on trajectories, as for ``filter``: ``"first-success"`` or
            ``"return > 300"``.
        progress: receives the progress of an installation. None draws bars on a terminal, and
            prints lines on any other stderr.
        priority_key: the entry that ``update_tensordict_priority`` reads.
        collate_fn: called with the batch, before the transform.

    Raises:
        RldsError: as ``install_dataset`` and ``store.dataset.open_dataset``.
    """

    family: ClassVar[str | None] = None

    @suggests_keywords
    def __init__(
        self,
        dataset_id: str | os.PathLike[str],
        batch_size: int | None = None,
        *,
        root: str | os.PathLike[str] | None = None,
        download: bool | str = True,
        layout: str | None = None,
        sampler: Sampler | None = None,
        num_slices: int | None = None,
        slice_len: int | None = None,
        strict_length: bool = True,
        replacement: bool = True,
        transform: TransformLike | None = None,
        prefetch: int | None = None,
        pin_memory: bool = False,
        device: str | torch.device | None = None,
        seed: int | None = None,
        generator: torch.Generator | None = None,
        format: str = "torch",
        cast: bool = False,
        columns: Iterable[str | tuple[str, ...]] | None = None,
        text: bool = False,
        contiguous: bool = False,
        options: Mapping[str, str] | None = None,
        num_workers: int | None = 0,
        frame_stack: int | None = None,
        source: str | None = None,
        writer: Writer | None = None,
        repaired: bool = False,
        audit: str = "warn",
        view: str | None = None,
        progress: Progress | None = None,
        priority_key: NestedKey = "td_error",
        collate_fn: CollateFunction | None = None,
    ) -> None:
        opened = OpenOptions(
            dataset_id,
            batch_size,
            root=root,
            download=download,
            layout=layout,
            sampler=sampler,
            num_slices=num_slices,
            slice_len=slice_len,
            strict_length=strict_length,
            replacement=replacement,
            transform=transform,
            prefetch=prefetch,
            pin_memory=pin_memory,
            device=device,
            seed=seed,
            generator=generator,
            format=format,
            cast=cast,
            columns=columns,
            text=text,
            contiguous=contiguous,
            options=options,
            num_workers=num_workers,
            frame_stack=frame_stack,
            source=source,
            writer=writer,
            repaired=repaired,
            audit=audit,
            view=view,
            progress=progress,
            priority_key=priority_key,
            collate_fn=collate_fn,
        )
        check_types(opened)
        self._open(opened, options, num_workers)

    def _open(
        self,
        options: TrajectoryDatasetOptions,
        variant: Mapping[str, str] | None = None,
        num_workers: int | None = 0,
    ) -> None:
        """Open a dataset, installed first if need be, as this buffer."""
        if options.download not in (False, True, "force"):
            raise wrong_value("download", (True, False, "force"), options.download)
        given = os.fspath(options.dataset_id)
        self.config = load_config(root=options.root)
        if given[:1] in ("/", ".") or not isinstance(options.dataset_id, str):
            rows = open_folder(Path(given), self.config, options, variant)
            self._check(rows.dataset.id, given, options)
        else:
            id = self._id(given, repaired=options.repaired)
            rows = open_or_install(id, self.config, options, variant, num_workers)
        if options.view is not None:
            rows = rows.select(ViewChoices(rows, CacheRoot(self.config.root)).filter(options.view))
        steps = options.frame_stack
        stored = rows if steps is None else FrameStack(rows, whole_number("frame_stack", steps, 1))
        self._rows, self._stored = rows, stored
        # The storage pins its rows.
        draws = replace(options, sampler=options.chosen_sampler(), pin_memory=False)
        TensorDictReplayBuffer.__init__(
            self,
            storage=self._stored,
            writer=options.writer,
            batch_size=options.batch_size,
            **vars(part_of(draws, TensorDictBatchOptions)),
        )

    def _id(self, id: str, *, repaired: bool) -> str:
        """Return the full id of a dataset; the family of this class is the default."""
        if self.family and not id.startswith((f"{self.family}/", "demo/")):
            id = f"{self.family}/{id}"
        return f"{id.removesuffix(SUFFIX)}{SUFFIX}" if repaired else id

    def _check(self, id: str, path: str, options: TrajectoryDatasetOptions) -> None:
        """Check that a folder is of a repaired dataset, or of the family of this class."""
        if options.repaired and not id.endswith(SUFFIX):
            raise UsageError(
                f"repaired=True needs {id}{SUFFIX}; {path} is of {id} as published.",
                argument="repaired",
                path=path,
                expected=f"{id}{SUFFIX}",
                found=id,
                advice=f"Open {id}{SUFFIX}, or leave out repaired.",
            )
        if self.family and not id.startswith((f"{self.family}/", "demo/")):
            raise UsageError(
                f"{type(self).__name__} opens datasets of {self.family}; {path} is of {id}.",
                argument="dataset_id",
                path=path,
                expected=self.family,
                found=id,
                advice="Open it with ExperienceReplay.",
            )

    @property
    def manifest(self) -> Manifest:
        """A copy of everything known about the dataset."""
        return self._rows.dataset.manifest

    @property
    def dataset_id(self) -> str:
        """The full id, ``family/name``."""
        return self._rows.dataset.id

    @property
    def metadata(self) -> Mapping[str, Any]:
        """A copy of the publisher's metadata: spaces, reference scores, known traps and others."""
        return self.manifest.metadata

    @cached_property
    def specs(self) -> Composite:
        """The specs of rows: shape, dtype, and the publisher's spaces of each entry.

        A Composite with the keys of batches, before their transform. A frame stack has the spec of
        a frame, repeated; padding before the first step of a trajectory is zeros, also if the spec
        excludes 0.
        """
        dataset = self._rows.dataset
        texts = dataset.texts.columns if dataset.texts else ()
        specs = dataset_specs(self.manifest, dataset.columns_read, texts)
        if isinstance(self._stored, FrameStack):
            for key in (each for one in self._stored.stacked for each in (one, ("next", *one))):
                stacked = specs[key].unsqueeze(0)
                specs[key] = stacked.expand(self._stored.length, *stacked.shape[1:])
        return specs.to(self._rows.device)

    @property
    def data_path(self) -> Path:
        """The folder of the dataset."""
        return self._rows.dataset.folder

    data_path_root = data_path  # TorchRL's name for it

    @property
    def trajectories(self) -> Trajectories:
        """A table of the dataset's trajectories: start, length, return, how each ended."""
        return self._choices.trajectories

    @cached_property
    def _choices(self) -> ViewChoices:
        """Selects the rows of views."""
        return ViewChoices(self._rows, CacheRoot(self.config.root))

    @property
    def _whole(self) -> EpisodeReader:
        """Reads whole trajectories."""
        return EpisodeReader(self, self._rows, is_current=self.storage is self._stored)

    episode = method_of("_whole", EpisodeReader.episode)
    episodes = method_of("_whole", EpisodeReader.episodes)
    iterate_episodes = method_of("_whole", EpisodeReader.iterate_episodes)
    sample_episodes = method_of("_whole", EpisodeReader.sample_episodes)
    recorded = method_of("_rows", recorded)
    get_dataset = recorded
    qlearning_dataset = method_of("_rows", qlearning_dataset)
    to_numpy = method_of("_rows", to_numpy)
    to_pandas = method_of("_rows", to_pandas)
    to_arrow = method_of("_rows", to_arrow)
    to_hf_dataset = method_of("_rows", to_hf_dataset)
    _repr_html_ = method_of("_rows", DatasetStorage._repr_html_)

    episodes_at = view_of(ViewChoices.episodes_at)
    filter = view_of(ViewChoices.filter)
    take = view_of(ViewChoices.take)
    rows = view_of(ViewChoices.rows)

    def query(
        self, predicate: Predicate | None = None, *, trajectory_key: NestedKey | None = None
    ) -> list[Trajectory]:
        """Return the trajectories that match a condition; see ``ReplayBuffer.query``.

        Reductions of the condition are cached, like the columns of ``trajectories``. ``filter``
        accepts the same conditions of ``traj``, and returns a view, which copies nothing.
        """
        is_own = trajectory_key is None and self.storage is self._rows
        return self._query(predicate, trajectory_key, self.trajectories if is_own else None)

    def split(self, *fractions: float, seed: int = 0) -> tuple[Self, ...]:
        """Return disjoint views, trajectories drawn at random for each; see ``episodes_at``.

        Args:
            fractions: fractions of all trajectories; the remainder is a further view.
            seed: determines the parts, on every machine.

        Raises:
            UsageError: a fraction is below 0, or they sum up to more than 1.

        Warns:
            UserWarning: a part is empty, though its fraction is not 0.
        """
        return tuple(map(self._view, self._choices.split(fractions, seed)))

    def _view(self, selection: Selection) -> Self:
        if self.reader.storage is not self._stored:
            raise Unsupported(
                f"set_storage() replaced the rows of {self.dataset_id}, so views cannot be made.",
                id=self.dataset_id,
                advice="Open the dataset again.",
            )
        rows = self._rows.select(selection)
        stored = self._stored.with_storage(rows) if isinstance(self._stored, FrameStack) else rows
        view = self._with_storage(stored)
        vars(view).pop("_choices", None)  # computed again for the rows of the view
        view._rows, view._stored = rows, stored
        return view

    @takes_fields(SequenceBufferOptions)
    def sequences(self, options: SequenceBufferOptions) -> TensorDictReplayBuffer:
        """Return a buffer of sequences ``[B, T]``, as Decision Transformers are trained on.

        Beside the leaves of the rows they have ``returns_to_go``, ``timesteps`` and
        ``attention_mask``; see ``Sequences``.

        Raises:
            UsageError: as ``Sequences``.
        """
        cut, root = vars(part_of(options, SequenceOptions)), CacheRoot(self.config.root)
        draws = part_of(options, DrawOptions)
        if draws.sampler is None:
            draws = replace(draws, sampler=row_sampler(options.replacement))
        else:
            warn_of_override(options.replacement)
        is_own = options.transform is None
        draws = replace(draws, transform=(self.transform or None) if is_own else draws.transform)
        made = TensorDictReplayBuffer(
            storage=Sequences(self.storage, options.length, root=root, **cut),
            batch_size=options.batch_size,
            collate_fn=self.reader.collate_fn if is_own else None,
            priority_key=self.priority_key,
            **vars(draws),
        )
        made._use_format(options.chosen_format(self._format))
        return made

    def jax_sampler(self, batch_size: int, num_slices: int | None = None) -> JaxSample:
        """Return ``sample(key)``, which draws batches on JAX's device, within ``jit`` and ``scan``.

        All rows that are read are copied there, once. A batch is a nested dict of ``jax.Array``,
        with the values of ``format="jax"`` and the rows' numbers as ``index``. The draws depend on
        the key alone: rows uniformly, with replacement, or slices as ``SliceSampler`` draws them.

        Args:
            batch_size: rows of a batch.
            num_slices: slices of a batch, all of one length and each within a trajectory.

        Raises:
            UsageError: the rows take more than half of the free memory; the buffer has text,
                compressed frames, a transform, priorities or goals; JAX would cut a column to 32
                bits, which ``with_format("jax", cast=True)`` allows; or the batch is not a whole
                number of slices that a trajectory has.
        """
        made = self._format if isinstance(self._format, JaxFormat) else choose_format("jax")
        assert isinstance(made, JaxFormat)
        return jax_sampler(self.reader, made, batch_size, num_slices)

    def delete(self) -> None:
        """Delete the dataset from the disk; batches drawn from it, and this buffer, stay valid.

        Raises:
            UsageError: this is a view, which has no files.
            LockedError: another process has replaced it by other data.
        """
        if self._rows.dataset.selection is not None:
            raise Unsupported(
                f"A view of {self.dataset_id} has no files to delete.",
                id=self.dataset_id,
                advice=f"Delete the dataset: rlds delete {self.dataset_id}",
            )
        if self.data_path != CacheRoot(self.config.root).dataset(self.dataset_id):
            raise Unsupported(
                f"{self.data_path} is not installed under the cache root.",
                id=self.dataset_id,
                path=self.data_path,
                advice="Delete that folder yourself.",
            )
        copy = identity(self.data_path)
        if read_manifest(self.data_path).content != self._rows.dataset.content:
            copy = None  # the folder has another dataset by now
        remove(self.dataset_id, self.config, copy)

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
        from datasets_cli.environments.record.run import recover_environment

        return recover_environment(self.manifest, kwargs, evaluation=eval_env)

    def get_normalized_score(self, returns: Returns) -> Returns:
        """Return scores that are 0 for the reference policy's low end and 1 for its high end.

        Args:
            returns: a number, an array or tensor of any shape, or a list; scores are the same kind.

        Raises:
            UsageError: this dataset has no reference scores, or ``returns`` are not numbers.
        """
        low, high = self.metadata.get("ref_min_score"), self.metadata.get("ref_max_score")
        if low is None or high is None:
            self.manifest.check_rewards("a score")
            raise Unsupported(
                f"{self.dataset_id} has no reference scores to normalise with.", id=self.dataset_id
            )
        if isinstance(returns, list):
            return [self.get_normalized_score(each) for each in returns]
        try:
            scores: Returns = (returns - low) / (high - low)  # in their order, for their bits
            return scores
        except (TypeError, ValueError, RuntimeError) as error:  # the last of tensors
            raise wrong_value("returns", "numbers", returns) from error
