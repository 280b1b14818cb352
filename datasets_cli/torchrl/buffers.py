"""TorchRL's prioritised and hindsight buffers, and its compressed storage."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TypedDict

import numpy as np
import torch
import zstandard
from tensordict import TensorDictBase

from datasets_cli.core.options import part_of, takes_fields
from datasets_cli.errors import UsageError, not_both, wrong_value
from datasets_cli.replay.arguments import NestedKey, Numbers, Rows, key_of, whole_number
from datasets_cli.replay.buffer.buffer import BatchOptions, ReplayBuffer, TensorDictBatchOptions
from datasets_cli.replay.buffer.parts import storage_or_list
from datasets_cli.replay.buffer.tensordict import TensorDictReplayBuffer
from datasets_cli.replay.goals.relabel import GoalRule
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
class PriorityBufferOptions:
    """How a buffer draws rows by priority; ``PrioritizedSampler`` documents the rest.

    Args:
        sampler_device: the device on which rows are drawn; the CPU by default.
    """

    alpha: float
    beta: float
    eps: float = 1e-8
    sampler_device: torch.device | str | None = None


@dataclass(frozen=True, kw_only=True)
class PrioritizedOptions(BufferOptions, PriorityBufferOptions):
    """The arguments of a prioritised buffer of any rows.

    Args:
        sampler: replaces the sampler that ``alpha``, ``beta``, ``eps`` and ``dtype`` describe;
            excludes ``sampler_device``.
    """

    dtype: torch.dtype = torch.float


@accepts_keywords
class PrioritizedReplayBuffer(ReplayBuffer):
    """A replay buffer that draws rows in proportion to their priority.

    Raises:
        UsageError: arguments exclude one another.
    """

    @takes_fields(PrioritizedOptions, documented_by=PrioritizedSampler)
    def __init__(self, options: PrioritizedOptions) -> None:
        storage = storage_or_list(options.storage)
        sampler, device = options.sampler, options.sampler_device
        if sampler is not None and device is not None:
            raise not_both("sampler_device", "sampler", device)
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
class TensorDictPrioritizedOptions(TensorDictBufferOptions, PriorityBufferOptions):
    """The arguments of a prioritised buffer of TensorDicts."""

    reduction: str = "max"
    sampler: None = field(default=None, init=False)  # these options describe it


@accepts_keywords
class TensorDictPrioritizedReplayBuffer(TensorDictReplayBuffer):
    """A buffer of TensorDicts that draws rows in proportion to their priority.

    Raises:
        UsageError: arguments exclude one another.
    """

    @takes_fields(TensorDictPrioritizedOptions, documented_by=PrioritizedSampler)
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
    """Return the initial capacity of a prioritised sampler."""
    room = storage.max_size if is_writable(storage) else len(storage)
    return room if room < NO_LIMIT else 1


@dataclass(frozen=True)
class HEROptions(TensorDictBufferOptions):
    """The arguments of ``HERReplayBuffer``.

    Args:
        reward_fn: computes the rewards ``[B, 1]`` or ``[B]`` of a batch with the new goals;
            relabelled rows get them.
        her_ratio: the probability that a row gets another goal.
        strategy: the step whose achieved goal is used; see ``HindsightStrategy``.
        goal_key: the key of the desired goal.
        achieved_goal_key: the key of the achieved goal.
        reward_key: the key of the reward.
        end_key: the flag that ends a trajectory; so does ``terminated`` next to it.
        transform: applied to every batch, after the goals; if it has ``inv``, also to written rows.
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
            raise wrong_value("reward_fn", "a function of a batch", self.reward_fn)


@accepts_keywords
class HERReplayBuffer(TensorDictReplayBuffer):
    """A replay buffer that relabels a share of the rows with achieved goals, in hindsight.

    A new goal is the achieved goal of a step, ``("next", achieved_goal_key)``, which the rows must
    have. Goals are drawn independently for each row, from the buffer's generator. See
    ``HERSampler``.

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
        """The probability that a row gets another goal."""
        return self._goals.ratio

    @her_ratio.setter
    def her_ratio(self, ratio: float) -> None:
        self.reader.rewind()
        self._goals.ratio = ratio

    @property
    def strategy(self) -> HindsightStrategy:
        """The step whose achieved goal is used."""
        return self._goals.strategy

    def set_sampler(self, sampler: Sampler) -> Sampler:
        """Replace the sampler below the goals; return the previous one."""
        previous = self._goals.sampler
        super().set_sampler(self._with_goals(sampler, self.her_ratio, self.strategy))
        return previous

    @property
    def _goals(self) -> HERSampler:
        sampler = self.reader.sampler
        assert isinstance(sampler, HERSampler), "set_sampler wraps every sampler"
        return sampler

    def _with_goals(
        self, sampler: Sampler | None, ratio: float, strategy: HindsightStrategy | str
    ) -> HERSampler:
        """Return a sampler that relabels the rows of another one."""
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
    """Adapts a function of a batch to a reward function of goals."""

    def __init__(self, function: Callable[[TensorDictBase], Numbers]) -> None:
        self._function = function

    def __call__(
        self, achieved: torch.Tensor, desired: torch.Tensor, batch: TensorDictBase
    ) -> Numbers:
        """Return the rewards of the batch."""
        return self._function(batch)

    def __repr__(self) -> str:
        return repr(self._function)


MAX_LEVEL = 22


class TensorFacts(TypedDict):
    """The type, shape, dtype and device of a compressed tensor."""

    type: str
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device


Compress = Callable[[torch.Tensor], torch.Tensor]
Decompress = Callable[[torch.Tensor, TensorFacts], torch.Tensor]


@dataclass(frozen=True)
class _Compressed:
    """A row: the description of its structure, and its compressed tensors."""

    description: RowsJson
    tensors: list[tuple[torch.Tensor, TensorFacts]]


@accepts_keywords
class CompressedListStorage(ListStorage):
    """A list of rows, such as images, whose tensors are compressed.

    Tensors of a row are compressed one by one, also within TensorDicts, lists, tuples and dicts.
    Rows of other classes are stored unchanged. Reading returns copies.

    Args:
        max_size: the maximum number of rows; unlimited by default.
        compression_fn: a function from a tensor to a compressed tensor; zstandard by default.
        decompression_fn: a function from a compressed tensor, and a dict with the ``shape``,
            ``dtype`` and ``device`` of the original, to the original tensor.
        compression_level: the level of zstandard, from 1 (the fastest) to 22 (the smallest).

    Raises:
        UsageError: a number is out of range, or one of the two functions is missing.
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
            name = "compression_fn" if compression_fn is None else "decompression_fn"
            raise UsageError(
                f"{name} is missing: compression_fn and decompression_fn need one another.",
                argument=name,
                advice="Pass both, or neither.",
            )
        self.compression_level = whole_number("compression_level", compression_level, 1)
        if self.compression_level > MAX_LEVEL:
            raise wrong_value("compression_level", f"1 to {MAX_LEVEL}", self.compression_level)
        self.compression_fn = compression_fn or self._compress
        self.decompression_fn = decompression_fn or _decompress

    def bytes(self) -> int:
        """Return the size of the compressed tensors in bytes."""
        rows = [item for item in self._items if isinstance(item, _Compressed)]
        return sum(tensor.nbytes for row in rows for tensor, _ in row.tensors)

    def _pack(self, item: Rows) -> Rows:
        try:
            description, tensors = describe((item,), only_exact=True)
        except UsageError:  # its classes could not be restored
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
