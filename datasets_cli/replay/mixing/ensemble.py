"""Several replay buffers sampled as one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NoReturn

import torch
from tensordict import LazyStackedTensorDict

from datasets_cli.errors import (
    EmptyBuffer,
    ImmutableError,
    OutOfRange,
    UsageError,
    WrongSize,
    not_both,
    wrong_value,
)
from datasets_cli.replay.arguments import (
    Rows,
    StateDict,
    as_tensor,
    choose_generator,
    chosen_size,
    pickled_generator,
    unpickled_generator,
)
from datasets_cli.replay.batches.reader import CollateFunction
from datasets_cli.replay.buffer.buffer import ReplayBuffer
from datasets_cli.replay.buffer.tensordict import TensorDictReplayBuffer
from datasets_cli.replay.checkpoint.state import generator_in
from datasets_cli.replay.mixing.mixed_buffers import (
    JoinFunction,
    MixedBuffers,
    PlannedChange,
    check_sizes,
    joined,
    stacked,
)
from datasets_cli.replay.mixing.weights import weight_numbers
from datasets_cli.replay.samplers.protocol import Sampler
from datasets_cli.replay.storages.protocol import CHECKPOINTER, NO_ROWS, Storage, is_writable
from datasets_cli.replay.transforms.transform import TransformLike
from datasets_cli.replay.writing.writers import Writer, read_only
from datasets_cli.schema.shapes import MemberNumbers
from datasets_cli.torchrl.keywords import accepts_keywords

MemberWeights = Sequence[float] | torch.Tensor | Literal["size"]
"""Weights of members: numbers, or ``"size"`` for their numbers of rows."""


class StorageEnsemble:
    """The storages of an ensemble's members.

    Args:
        storages: the storage of each member.
        transforms: the transform of each member's part of a batch, or None.

    Raises:
        UsageError: the numbers of transforms and storages differ.
    """

    checkpointer = CHECKPOINTER

    def __init__(
        self, *storages: Storage, transforms: Sequence[TransformLike | None] | None = None
    ) -> None:
        self.storages = storages
        self.transforms = tuple(transforms or [None] * len(storages))
        if len(self.transforms) != len(storages):
            raise WrongSize(
                f"Found {len(self.transforms)} transforms for {len(storages)} storages; expected "
                "as many.",
                argument="transforms",
                expected=len(storages),
                found=len(self.transforms),
            )

    def __len__(self) -> int:
        return sum(len(storage) for storage in self.storages)

    def __getitem__(self, member: int) -> Storage:
        return self.storages[member]

    @property
    def max_size(self) -> int:
        """The sum of the members' maximum sizes."""
        return sum(
            storage.max_size if is_writable(storage) else len(storage) for storage in self.storages
        )


class SamplerEnsemble:
    """The samplers of an ensemble's members, and the weights of members.

    Args:
        samplers: the sampler of each member.
        p: weights of members: numbers, or ``"size"`` for their numbers of rows; equal by default.
        sample_from_all: draw a part from every member, in order; excludes ``p``.
        num_buffer_sampled: number of members drawn for a batch; all members by default.

    Raises:
        UsageError: arguments exclude one another or do not fit the members.
    """

    def __init__(
        self,
        *samplers: Sampler,
        p: MemberWeights | None = None,
        sample_from_all: bool = False,
        num_buffer_sampled: int | None = None,
    ) -> None:
        if sample_from_all and (p is not None or num_buffer_sampled not in (None, len(samplers))):
            raise not_both("sample_from_all", "p or num_buffer_sampled")
        self.samplers = samplers
        self.sample_from_all = sample_from_all
        self.num_buffer_sampled = (
            len(samplers) if num_buffer_sampled is None else num_buffer_sampled
        )
        if self.num_buffer_sampled < 1:
            raise wrong_value(
                "num_buffer_sampled", "1 or more", self.num_buffer_sampled, kind=WrongSize
            )
        self.p = p

    def __len__(self) -> int:
        return len(self.samplers)

    def __getitem__(self, member: int) -> Sampler:
        return self.samplers[member]

    @property
    def p(self) -> torch.Tensor | Literal["size"] | None:
        """The weights of members: float64 ``[members]``, ``"size"``, or None for equal weights."""
        return self._p

    @p.setter
    def p(self, weights: MemberWeights | None) -> None:
        self._p: torch.Tensor | Literal["size"] | None
        if weights is None or isinstance(weights, str):
            if weights not in (None, "size"):
                raise wrong_value("p", "numbers, 'size' or None", weights)
            self._p = weights
            return
        numbers = [*map(float, weights)]
        members = [*map(str, range(len(self)))]
        self._p = torch.tensor(weight_numbers("p", numbers, members), dtype=torch.float64)

    def parts(
        self, batch_size: int, sizes: Sequence[int], generator: torch.Generator
    ) -> list[tuple[int, int]]:
        """Return pairs of a drawn member and the number of its rows, which is equal for all.

        Args:
            batch_size: rows of the batch.
            sizes: rows of each member.
            generator: draws the members.

        Raises:
            UsageError: the batch size is not a multiple of the members drawn, or all are empty.
        """
        count = self.num_buffer_sampled
        if batch_size % count:
            raise wrong_value("batch_size", f"a multiple of {count}", batch_size, kind=WrongSize)
        members = (
            range(len(self))
            if self.sample_from_all
            else self._draw(count, sizes, generator).tolist()
        )
        return [(member, batch_size // count) for member in members]

    def shares(
        self, batch_size: int, sizes: Sequence[int], generator: torch.Generator
    ) -> list[tuple[int, int]]:
        """Return pairs of a member and the number of its rows; a member is drawn for every row.

        With ``sample_from_all`` the numbers are equal, or one larger for the first members. See
        ``parts``.
        """
        if self.sample_from_all:
            counts = torch.full((len(self),), batch_size // len(self))
            counts[: batch_size % len(self)] += 1
        else:
            counts = torch.bincount(self._draw(batch_size, sizes, generator), minlength=len(self))
        return [(member, count) for member, count in enumerate(counts.tolist()) if count]

    def _draw(self, count: int, sizes: Sequence[int], generator: torch.Generator) -> MemberNumbers:
        if self._p is None:
            return torch.randint(len(self), (count,), generator=generator)
        weights = torch.as_tensor(sizes if self._p == "size" else self._p, dtype=torch.float64)
        if not weights.any():
            raise EmptyBuffer(NO_ROWS)
        return torch.multinomial(weights, count, replacement=True, generator=generator)


class WriterEnsemble:
    """The writers of an ensemble's members; the ensemble as a whole is not written.

    Args:
        writers: the writer of each member.
    """

    def __init__(self, *writers: Writer) -> None:
        self.writers = writers

    def __len__(self) -> int:
        return len(self.writers)

    def __getitem__(self, member: int) -> Writer:
        return self.writers[member]

    def write(self, storage: Storage, data: Rows) -> NoReturn:
        """Raise ``ImmutableError``: rows are written to a single member."""
        raise_not_writable()


def raise_not_writable() -> NoReturn:
    """Raise the error of a write to the ensemble as a whole."""
    raise ImmutableError(
        "An ensemble cannot be written.", advice="Write to a member: ensemble[0].extend(rows)."
    )


def members_of(
    storages: StorageEnsemble,
    samplers: SamplerEnsemble,
    writers: WriterEnsemble | None,
    collate_fns: Sequence[CollateFunction | None] | None,
) -> tuple[TensorDictReplayBuffer, ...]:
    """Return a buffer for each storage, with its sampler, writer and collate_fn."""
    count = len(storages.storages)
    columns = (
        storages.storages,
        samplers.samplers,
        writers.writers if writers else [None] * count,
        storages.transforms,
        collate_fns or [None] * count,
    )
    if {len(column) for column in columns} != {count}:
        names = ("storages", "samplers", "writers", "transforms", "collate_fns")
        found = {name: len(column) for name, column in zip(names, columns, strict=True)}
        raise WrongSize(
            "An ensemble needs a sampler, writer, transform and collate_fn for each storage; found "
            f"{', '.join(f'{number} {name}' for name, number in found.items())}.",
            expected=count,
            found=found,
        )
    return tuple(
        TensorDictReplayBuffer(
            storage=storage,
            sampler=sampler,
            writer=writer,
            transform=transform,
            collate_fn=collate_fn,
        )
        for storage, sampler, writer, transform, collate_fn in zip(*columns, strict=True)
    )


@accepts_keywords
class ReplayBufferEnsemble(MixedBuffers):
    """Draws batches from several buffers.

        sample()        [members drawn, B / members drawn]    a part of the batch from each
        sample_flat()   [B]                                   each row from a member drawn for it

    The transforms of members run first, then the ensemble's. Batches have ``index``, a TensorDict
    of ``buffer_ids`` and of ``index``, the row number in that member. If rows are plain tensors, or
    tensors in lists, tuples and dicts, only ``info`` has it. ``len`` counts the rows of all
    members.

    Args:
        buffers: the members; a member that prefetches reads parts of its ``batch_size`` ahead.
        storages: storages of the members, instead of buffers; needs ``samplers``.
        samplers: samplers of the storages, instead of ``p`` and the two arguments after it.
        writers: writers of the storages; see ``ReplayBuffer`` for the default.
        transform: applied to every batch.
        batch_size: rows in a batch; ``sample`` can override it.
        collate_fn: a function of the list of parts, which returns the batch of ``sample``; stacks
            them by default.
        collate_fns: collate functions of the storages.
        p: weights of members: numbers, or ``"size"`` for their numbers of rows; equal by default.
        sample_from_all: draw a part from every member, in order; excludes ``p``.
        num_buffer_sampled: number of members drawn for a batch of ``sample``; all by default.
        generator: draws members, and seeds the draws of each member; by default torch's global
            generator draws members, and each member keeps its generator.
        seed: seeds a generator of the ensemble.
        format: the format of batches; see ``with_format``. The formats of members are ignored.
        cast: see ``with_format``.

    Raises:
        UsageError: arguments exclude one another or do not fit the members.
    """

    _draws_name = "generator"

    def __init__(
        self,
        *buffers: ReplayBuffer,
        storages: StorageEnsemble | None = None,
        samplers: SamplerEnsemble | None = None,
        writers: WriterEnsemble | None = None,
        transform: TransformLike | None = None,
        batch_size: int | None = None,
        collate_fn: JoinFunction | None = None,
        collate_fns: Sequence[CollateFunction | None] | None = None,
        p: MemberWeights | None = None,
        sample_from_all: bool = False,
        num_buffer_sampled: int | None = None,
        generator: torch.Generator | None = None,
        seed: int | None = None,
        format: str = "torch",
        cast: bool = False,
    ) -> None:
        has_parts = any(part is not None for part in (storages, samplers, writers, collate_fns))
        if wrong := [type(part).__name__ for part in buffers if not isinstance(part, ReplayBuffer)]:
            raise wrong_value(
                "buffers",
                "buffers",
                wrong,
                "Pass them one by one: ReplayBufferEnsemble(first, second).",
            )
        if buffers and not has_parts:
            samplers = SamplerEnsemble(
                *(buffer.sampler for buffer in buffers),
                p=p,
                sample_from_all=sample_from_all,
                num_buffer_sampled=num_buffer_sampled,
            )
        elif buffers or storages is None or samplers is None:
            raise UsageError(
                "An ensemble needs either buffers, or storages and samplers.", argument="buffers"
            )
        elif p is not None or sample_from_all or num_buffer_sampled:
            raise not_both(
                "samplers", "p, sample_from_all or num_buffer_sampled, arguments of SamplerEnsemble"
            )
        else:
            buffers = members_of(storages, samplers, writers, collate_fns)
        super().__init__(buffers, batch_size, transform, format, cast)
        self.sampler = samplers
        self.generator = choose_generator(generator, seed)
        if self.generator is not torch.default_generator:
            self.set_rng(self.generator)
        self._collate_fn = collate_fn or stacked

    def sample(self, batch_size: int | None = None, return_info: bool = False) -> Rows:
        """Return a batch ``[members drawn, B / members drawn]``.

        Keys that only some members have are only in their parts. If a member's epoch of rows ends
        within its part, its next epoch fills the rest.

        Args:
            batch_size: rows to draw; ``self.batch_size`` by default.
            return_info: return ``(batch, info)``, where info is a TensorDict ``[members drawn, rows
                drawn of each]`` with ``index`` and the info of the members' samplers.

        Raises:
            UsageError: the batch size is not a multiple of the members drawn, or a member cannot
                draw its part.
        """
        counts = self.sampler.parts(
            chosen_size(batch_size, self.batch_size), self._sizes(), self.generator
        )
        parts = self._draw(counts)
        self.ran_out = any(part.is_last for part in parts)
        check_sizes(parts)
        details = None
        if return_info:
            details = LazyStackedTensorDict.lazy_stack([part.info_batch() for part in parts])
        return self._finished(self._collate_fn([part.rows for part in parts]), details)

    def sample_flat(self, batch_size: int | None = None, return_info: bool = False) -> Rows:
        """Return a batch ``[B]``, in the order of members; see ``sample``.

        Members that draw slices need ``sample_from_all``: a random number of rows is not a whole
        number of slices.

        Raises:
            UsageError: the drawn members have different keys, or entries of different shapes.
        """
        counts = self.sampler.shares(
            chosen_size(batch_size, self.batch_size), self._sizes(), self.generator
        )
        parts = self._draw(counts)
        self.ran_out = any(part.is_last for part in parts)
        names = [f"buffer {part.member}" for part in parts]
        rows = joined(names, [part.rows for part in parts])
        details = joined(names, [part.info_batch() for part in parts]) if return_info else None
        return self._finished(rows, details)

    def __getitem__(self, index: Any) -> Rows:
        """Return a member, or copies of its rows: ``[member, rows]``; ``[:, rows]`` for all."""
        # For several members, indexed by a slice, `...` or a list: a list of members, or a stack.
        if isinstance(index, tuple) and len(index) > 1:
            return self._formatted(self._rows(index))
        return self._rows(index)

    def _rows(self, index: Any) -> Rows:
        """Return the result of ``__getitem__`` in the format ``"torch"``."""
        member, *rows = index if isinstance(index, tuple) else (index,)
        if not isinstance(member, int):
            everyone = range(len(self.buffers))
            index = slice(None) if member is ... else member
            members = everyone[index] if isinstance(index, slice) else as_tensor(index).tolist()
            parts = [self._rows((each, *rows)) for each in members]
            return LazyStackedTensorDict.lazy_stack(parts) if rows else parts
        if not -len(self.buffers) <= member < len(self.buffers):
            raise OutOfRange(
                f"Buffer {member} is out of range: the ensemble has {len(self.buffers)}.",
                expected=f"0 to {len(self.buffers) - 1}",
                found=member,
            )
        if not rows:
            return self.buffers[member]
        buffer = self.buffers[member].with_format("torch")
        return buffer[tuple(rows) if len(rows) > 1 else rows[0]]

    def set_rng(self, generator: torch.Generator) -> None:
        """Draw members by another generator, which also seeds the draws of each member."""
        self.generator = generator
        super().set_rng(generator)

    @property
    def write_count(self) -> int:
        """Rows written to all members; see ``ReplayBuffer``."""
        return sum(buffer.write_count for buffer in self.buffers)

    def empty(self, empty_write_count: bool = True) -> None:
        """Remove every row of every member.

        Args:
            empty_write_count: see ``ReplayBuffer.empty``.

        Raises:
            ImmutableError: a member is a dataset; no member is emptied.
        """
        if not all(buffer.reader.storage.is_writable for buffer in self.buffers):
            raise read_only()
        for buffer in self.buffers:
            buffer.empty(empty_write_count)

    def add(self, data: Rows) -> NoReturn:
        """Raise ``ImmutableError``: rows are written to a single member."""
        raise_not_writable()

    def extend(self, data: Rows, update_priority: bool | None = None) -> NoReturn:
        """Raise ``ImmutableError``; see ``add``."""
        raise_not_writable()

    def _sizes(self) -> list[int]:
        return [len(buffer) for buffer in self.buffers]

    def _draws_state(self) -> torch.Tensor:
        return self.generator.get_state()

    def _dump_draws(self) -> torch.Tensor | None:
        return self._draws_state() if self._owns_generator() else None

    def _plan_draws(self, state: Any, is_dump: bool) -> PlannedChange:
        if state is None or (is_dump and not self._owns_generator()):
            return lambda: None
        return partial(self.generator.set_state, generator_in(state, self.generator))

    def _owns_generator(self) -> bool:
        return self.generator is not torch.default_generator

    def __getstate__(self) -> StateDict:
        return {**self.__dict__, "generator": pickled_generator(self.generator)}

    def __setstate__(self, state: StateDict) -> None:
        self.__dict__.update(state)
        self.generator = unpickled_generator(state["generator"])
