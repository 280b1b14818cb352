"""The replay buffer of TensorDicts: a batch says how it was drawn, so that priorities return."""

from __future__ import annotations

import torch
from tensordict import TensorDictBase

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import NestedKey, Rows, key_of
from datasets_cli.replay.buffers.buffer import ReplayBuffer
from datasets_cli.replay.rows.reader import CollateFunction
from datasets_cli.replay.rows.row_numbers import without_index
from datasets_cli.replay.rows.sample_info import SampleInfo
from datasets_cli.replay.samplers.protocol import Sampler
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.torchrl_words import BUFFER, takes
from datasets_cli.replay.transforms.transform import TransformLike
from datasets_cli.replay.writers.protocol import Writer
from datasets_cli.store.schema.tree import Tree, entry


@takes(**BUFFER)
class TensorDictReplayBuffer(ReplayBuffer):
    """A replay buffer whose batches also carry ``index`` and the sampler's marks.

    Args:
        storage: where the rows are; a list of 1,000 by default.
        sampler: how rows are drawn; uniformly with replacement by default.
        writer: where rows are written; see ``ReplayBuffer``.
        collate_fn: takes what the storage gives, a list of rows or a batch, and returns the batch.
        pin_memory: put batches into page-locked memory.
        prefetch: batches of ``batch_size`` that a thread makes ahead of time.
        transform: applied to every batch; one that has ``inv`` also to what is written.
        batch_size: rows in a batch; ``sample`` can override it.
        priority_key: the entry that ``update_tensordict_priority`` reads.
        dim_extend: the dimension of time in data with ``storage.ndim`` leading ones, the last.
        generator: draws rows; by default torch's global one, and those of a dataset one of the
            buffer's own, which that seeds at the first draw.
        seed: seeds a generator of the buffer's own.
        shared: let other processes read and write the same rows; see ``share``.
        format: what batches are made of; see ``ReplayBuffer.with_format``.

    Raises:
        UsageError: arguments that exclude one another.
    """

    _sample_info = SampleInfo(index=True, marks=True)

    def __init__(
        self,
        *,
        storage: Storage | None = None,
        sampler: Sampler | None = None,
        writer: Writer | None = None,
        collate_fn: CollateFunction | None = None,
        pin_memory: bool = False,
        prefetch: int | None = None,
        transform: TransformLike | None = None,
        batch_size: int | None = None,
        priority_key: NestedKey = "td_error",
        dim_extend: int | None = None,
        generator: torch.Generator | None = None,
        seed: int | None = None,
        shared: bool = False,
        format: str = "torch",
    ) -> None:
        super().__init__(
            storage=storage,
            sampler=sampler,
            writer=writer,
            collate_fn=collate_fn,
            pin_memory=pin_memory,
            prefetch=prefetch,
            transform=transform,
            batch_size=batch_size,
            dim_extend=dim_extend,
            generator=generator,
            seed=seed,
            shared=shared,
            format=format,
        )
        self.priority_key = priority_key
        self.reader.others.priority_key = key_of(priority_key)

    def extend(
        self,
        data: TensorDictBase | list[TensorDictBase],
        update_priority: bool | None = None,
    ) -> torch.Tensor:
        """Write rows ``[n]``; see ``ReplayBuffer.extend``.

        Args:
            data: a TensorDict, or a list of them; an ``index`` among the entries is left out.
            update_priority: take the rows' priorities from ``priority_key``; where it is there, by
                default.
        """
        if not isinstance(data, TensorDictBase) and not isinstance(data, list):
            raise UsageError(f"This buffer takes TensorDicts, not {type(data).__name__}.")
        # Rows may have been a batch, perhaps of this buffer.
        data = [*map(without_index, data)] if isinstance(data, list) else without_index(data)
        key = None if update_priority is False else key_of(self.priority_key)
        return self.row_writer.extend(data, key)

    def sample(
        self,
        batch_size: int | None = None,
        return_info: bool = False,
        include_info: bool | None = None,
    ) -> Rows:
        """Return a batch that says how it was drawn; see ``ReplayBuffer.sample``.

        Args:
            batch_size: rows to draw; the buffer's own by default.
            return_info: return ``(batch, info)``.
            include_info: True or None; a batch always has ``index`` and the sampler's marks.

        Raises:
            UsageError: as ``ReplayBuffer.sample``.
        """
        if include_info not in (True, None):
            raise UsageError(
                f"{type(self).__name__} cannot leave out how a batch was drawn, as "
                f"include_info={include_info!r} asks; a ReplayBuffer does."
            )
        return self.reader.sample(batch_size, return_info, self._format)

    def update_tensordict_priority(self, batch: TensorDictBase | Tree) -> None:
        """Give the rows of a batch of any format the priorities in its entry ``priority_key``.

        Nothing happens unless the sampler has priorities.

        Raises:
            UsageError: the batch has none, or no ``index``.
        """
        if not self.reader.sampler.has_priorities:
            return
        priority, index = entry(batch, key_of(self.priority_key)), entry(batch, ("index",))
        for key, found in ((self.priority_key, priority), ("index", index)):
            if found is None:
                raise UsageError(f"The batch has no {key!r}, which its rows' priorities need.")
        for _ in self.reader.storage.row_batch_size:  # the same all over a row
            index = index[:, 0]
        self.update_priority(index, priority)
