"""TorchRL's prioritised replay buffers: they make their sampler themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TypedDict

import numpy as np
import torch
import zstandard
from tensordict import TensorDictBase

from datasets_cli.errors import UsageError
from datasets_cli.options import part_of, takes_fields
from datasets_cli.replay.arguments import NestedKey, Numbers, Rows, key_of, whole_number
from datasets_cli.replay.buffer.buffer import BatchOptions, ReplayBuffer, TensorDictBatchOptions
from datasets_cli.replay.buffer.parts import storage_or_list
from datasets_cli.replay.buffer.tensordict import TensorDictReplayBuffer
from datasets_cli.replay.goals.rules import GoalRule
from datasets_cli.replay.goals.sampler import HERSampler, HindsightStrategy
from datasets_cli.replay.samplers.prioritized import PrioritizedSampler
from datasets_cli.replay.samplers.protocol import Sampler
from datasets_cli.replay.storages.description import RowsJson, bytes_of, describe, restore
from datasets_cli.replay.storages.lists import NO_LIMIT, ListStorage
from datasets_cli.replay.storages.protocol import Storage, is_writable
from datasets_cli.replay.trajectories.bounds import TrajectoryKeys
from datasets_cli.replay.writing.writers import Writer
from datasets_cli.torchrl.keywords import accepts_keywords


@dataclass(frozen=True, kw_only=True)
class BufferOptions(BatchOptions):
    """The parts of a buffer; ``ReplayBuffer`` documents each field."""

    storage: Storage | None = None
    writer: Writer | None = None
    batch_size: int | None = None
    dim_extend: int | None = None
    shared: bool = False


@dataclass(frozen=True, kw_only=True)
class TensorDictBufferOptions(BufferOptions, TensorDictBatchOptions):
    """The parts of a buffer of TensorDicts; ``TensorDictReplayBuffer`` documents each field."""


@dataclass(frozen=True, kw_only=True)
class PriorityOptions:
    """How rows are drawn by priority.

    Args:
        alpha: how much priorities matter.
        beta: how much importance weights correct for it.
        eps: added to every priority.
        sampler_device: where rows are drawn; the CPU by default.
    """

    alpha: float
    beta: float
    eps: float = 1e-8
    sampler_device: torch.device | str | None = None


@dataclass(frozen=True, kw_only=True)
class PrioritizedOptions(BufferOptions, PriorityOptions):
    """What a prioritised buffer of any rows takes.

    Args:
        dtype: of the importance weights.
        sampler: in place of one made of ``alpha``, ``beta`` and so on; excludes ``sampler_device``.
    """

    dtype: torch.dtype = torch.float


@accepts_keywords
class PrioritizedReplayBuffer(ReplayBuffer):
    """A replay buffer that draws rows in proportion to their priority.

    Raises:
        UsageError: arguments exclude one another.
    """

    @takes_fields(PrioritizedOptions)
    def __init__(self, options: PrioritizedOptions) -> None:
        storage = storage_or_list(options.storage)
        sampler, device = options.sampler, options.sampler_device
        if sampler is not None and device is not None:
            raise UsageError("Give the sampler a device, or sampler_device without a sampler.")
        if sampler is None:
            sampler = PrioritizedSampler(
                capacity_of(storage),
                options.alpha,
                options.beta,
                options.eps,
                options.dtype,
                device=device,
            )
        buffer = part_of(options, BufferOptions)
        super().__init__(**vars(replace(buffer, storage=storage, sampler=sampler)))


@dataclass(frozen=True, kw_only=True)
class TensorDictPrioritizedOptions(TensorDictBufferOptions, PriorityOptions):
    """What a prioritised buffer of TensorDicts takes.

    Args:
        reduction: how several numbers a row become one priority.
    """

    reduction: str = "max"
    sampler: None = field(default=None, init=False)  # it is made of these options


@accepts_keywords
class TensorDictPrioritizedReplayBuffer(TensorDictReplayBuffer):
    """A buffer of TensorDicts that draws rows in proportion to their priority.

    Raises:
        UsageError: arguments exclude one another.
    """

    @takes_fields(TensorDictPrioritizedOptions)
    def __init__(self, options: TensorDictPrioritizedOptions) -> None:
        storage = storage_or_list(options.storage)
        sampler = PrioritizedSampler(
            capacity_of(storage),
            options.alpha,
            options.beta,
            options.eps,
            reduction=options.reduction,
            device=options.sampler_device,
        )
        buffer = part_of(options, TensorDictBufferOptions)
        super().__init__(**vars(replace(buffer, storage=storage, sampler=sampler)))


def capacity_of(storage: Storage) -> int:
    """Return how many rows a prioritised sampler has room for at first."""
    room = storage.max_size if is_writable(storage) else len(storage)
    return room if room < NO_LIMIT else 1


@dataclass(frozen=True)
class HEROptions(TensorDictBufferOptions):
    """What a buffer of rows with goals in hindsight takes.

    Args:
        reward_fn: takes a batch with the new goals and returns its rewards, ``[B, 1]`` or ``[B]``;
            they are used for the rows with a new goal.
        her_ratio: how likely a row gets another goal.
        strategy: which step gives a goal; see ``HindsightStrategy``.
        goal_key: the goal.
        achieved_goal_key: what was achieved.
        reward_key: the reward.
        end_key: the flag that ends a trajectory, as does ``terminated`` beside it.
        transform: applied to every batch, after the goals; one that has ``inv`` also to what is
            written.
    """

    reward_fn: Callable[[TensorDictBase], Numbers]
    _: KW_ONLY
    her_ratio: float = 0.8
    strategy: HindsightStrategy | str = "future"
    goal_key: NestedKey = "desired_goal"
    achieved_goal_key: NestedKey = "achieved_goal"
    reward_key: NestedKey = ("next", "reward")
    end_key: NestedKey = ("next", "done")

    def __post_init__(self) -> None:
        if not callable(self.reward_fn):
            raise UsageError(f"reward_fn must be a function of a batch, not {self.reward_fn!r}.")


@accepts_keywords
class HERReplayBuffer(TensorDictReplayBuffer):
    """A replay buffer that gives a share of the rows goals that were reached, in hindsight.

    Goals are drawn from the buffer's generator, for each row by itself, and are what a step
    achieved: ``("next", achieved_goal_key)``, which the rows must have. See ``HERSampler``.

    Raises:
        UsageError: arguments that exclude one another, or a sampler that has priorities.
    """

    @takes_fields(HEROptions)
    def __init__(self, options: HEROptions) -> None:
        self.reward_fn = options.reward_fn
        self.goal_key = options.goal_key
        self.achieved_goal_key = options.achieved_goal_key
        self.reward_key = options.reward_key
        self.end_key = options.end_key
        sampler = self._with_goals(options.sampler, options.her_ratio, options.strategy)
        buffer = part_of(options, TensorDictBufferOptions)
        super().__init__(**vars(replace(buffer, sampler=sampler)))

    @property
    def her_ratio(self) -> float:
        """How likely a row gets another goal."""
        return self._goals.ratio

    @her_ratio.setter
    def her_ratio(self, ratio: float) -> None:
        self.reader.rewind()
        self._goals.ratio = ratio

    @property
    def strategy(self) -> HindsightStrategy:
        """Which step gives a goal."""
        return self._goals.strategy

    def set_sampler(self, sampler: Sampler) -> Sampler:
        """Draw rows by another sampler, which get goals as before; return the one before."""
        previous = self._goals.sampler
        super().set_sampler(self._with_goals(sampler, self.her_ratio, self.strategy))
        return previous

    @property
    def _goals(self) -> HERSampler:
        sampler = self.reader.sampler
        assert isinstance(sampler, HERSampler), "no other is put there"
        return sampler

    def _with_goals(
        self, sampler: Sampler | None, ratio: float, strategy: HindsightStrategy | str
    ) -> HERSampler:
        """Return a sampler that gives the rows of another one goals."""
        end = key_of(self.end_key)
        return HERSampler(
            GoalRule(_OfBatch(self.reward_fn)),
            sampler=sampler,
            strategy=strategy,
            ratio=ratio,
            trajectories=TrajectoryKeys(ends=(end, (*end[:-1], "terminated"))),
            achieved_goal_key=self.achieved_goal_key,
            desired_goal_key=self.goal_key,
            reward_key=self.reward_key,
        )


class _OfBatch:
    """A function of a batch as one of goals, too."""

    def __init__(self, function: Callable[[TensorDictBase], Numbers]) -> None:
        self._function = function

    def __call__(
        self, achieved: torch.Tensor, desired: torch.Tensor, batch: TensorDictBase
    ) -> Numbers:
        """Return what the function returns for the batch."""
        return self._function(batch)

    def __repr__(self) -> str:
        return repr(self._function)


MOST_LEVEL = 22


class TensorFacts(TypedDict):
    """What is known of a compressed tensor."""

    type: str
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device


Compress = Callable[[torch.Tensor], torch.Tensor]
Decompress = Callable[[torch.Tensor, TensorFacts], torch.Tensor]


@dataclass(frozen=True)
class _Compressed:
    """A row: what it is, and its tensors."""

    description: RowsJson
    tensors: list[tuple[torch.Tensor, TensorFacts]]


@accepts_keywords
class CompressedListStorage(ListStorage):
    """Rows of any kind, one object each, whose tensors are compressed, such as images.

    Tensors of a row are compressed one by one, also those in TensorDicts, lists, tuples and dicts;
    rows of other classes are kept unchanged. What is read is a copy.

    Args:
        max_size: most rows; without a limit by default.
        compression_fn: takes a tensor and returns another; zstandard by default.
        decompression_fn: takes what that returned and a dict with the ``shape``, ``dtype`` and
            ``device`` of the tensor, which it returns.
        compression_level: of zstandard, from 1, the fastest, to 22, the smallest.

    Raises:
        UsageError: a number is out of its range, or one of the two functions is missing.
    """

    def __init__(
        self,
        max_size: int | None = None,
        *,
        compression_fn: Compress | None = None,
        decompression_fn: Decompress | None = None,
        compression_level: int = 3,
    ) -> None:
        super().__init__(max_size)
        if (compression_fn is None) != (decompression_fn is None):
            raise UsageError("Give both compression_fn and decompression_fn, or neither.")
        self.compression_level = whole_number("compression_level", compression_level, 1)
        if self.compression_level > MOST_LEVEL:
            raise UsageError(
                f"compression_level is 1 to {MOST_LEVEL}, not {self.compression_level}."
            )
        self.compression_fn = compression_fn or self._compress
        self.decompression_fn = decompression_fn or _decompress

    def bytes(self) -> int:
        """Return how many bytes the compressed tensors take."""
        rows = [item for item in self._items if isinstance(item, _Compressed)]
        return sum(tensor.nbytes for row in rows for tensor, _ in row.tensors)

    def _kept(self, item: Rows) -> Rows:
        try:
            description, tensors = describe((item,), only_exact=True)
        except UsageError:  # of classes that would not come back
            return item
        compressed = []
        for tensor in tensors:
            facts = TensorFacts(
                type="tensor", shape=tensor.shape, dtype=tensor.dtype, device=tensor.device
            )
            compressed.append((self.compression_fn(tensor), facts))
        return _Compressed(description, compressed)

    def _rows(self, numbers: Iterable[int]) -> list[Rows]:
        return [
            self._whole(row) if isinstance(row, _Compressed) else row
            for row in super()._rows(numbers)
        ]

    def _whole(self, row: _Compressed) -> Rows:
        tensors = [self.decompression_fn(*compressed) for compressed in row.tensors]
        return restore(row.description, tensors)[0]

    def _compress(self, tensor: torch.Tensor) -> torch.Tensor:
        content = bytes_of(tensor.cpu()).data
        packed = zstandard.ZstdCompressor(self.compression_level).compress(content)
        return torch.frombuffer(bytearray(packed), dtype=torch.uint8)


def _decompress(compressed: torch.Tensor, facts: TensorFacts) -> torch.Tensor:
    content = zstandard.ZstdDecompressor().decompress(compressed.numpy().data)
    bits = torch.from_numpy(np.frombuffer(bytearray(content), np.uint8))
    return bits.view(facts["dtype"]).view(facts["shape"]).to(facts["device"])
