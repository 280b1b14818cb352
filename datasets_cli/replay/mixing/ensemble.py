"""Several replay buffers sampled as one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn

import torch
from tensordict import LazyStackedTensorDict

from datasets_cli.errors import EmptyBuffer, ImmutableError, OutOfRange, UsageError
from datasets_cli.replay.arguments import (
    Rows,
    StateDict,
    choose_generator,
    pickled_generator,
    unpickled_generator,
)
from datasets_cli.replay.batches.reader import CollateFunction
from datasets_cli.replay.buffer.buffer import ReplayBuffer
from datasets_cli.replay.buffer.tensordict import TensorDictReplayBuffer
from datasets_cli.replay.checkpoint.draws import read_generator, write_generator
from datasets_cli.replay.checkpoint.dump_folder import GENERATOR, SEAL, DumpFolder, is_member
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
from datasets_cli.replay.storages.protocol import NO_ROWS, Storage, is_writable
from datasets_cli.replay.torchrl_words import CHECKPOINTER, ENSEMBLE, takes
from datasets_cli.replay.transforms.transform import TransformLike
from datasets_cli.replay.writing.writers import Writer, refuse_to_write

MemberWeights = Sequence[float] | torch.Tensor | Literal["size"]
"""How likely each member is drawn: numbers, or by its number of rows."""


class StorageEnsemble:
    """The storages of an ensemble's members.

    Args:
        storages: where the members' rows are.
        transforms: applied to a member's part of a batch; None changes nothing.

    Raises:
        UsageError: there are not as many transforms as storages.
    """

    checkpointer = CHECKPOINTER

    def __init__(
        self, *storages: Storage, transforms: Sequence[TransformLike | None] | None = None
    ) -> None:
        self.storages = storages
        self.transforms = tuple(transforms or [None] * len(storages))
        if len(self.transforms) != len(storages):
            raise UsageError(f"{len(self.transforms)} transforms for {len(storages)} storages.")

    def __len__(self) -> int:
        return sum(len(storage) for storage in self.storages)

    def __getitem__(self, member: int) -> Storage:
        return self.storages[member]

    @property
    def max_size(self) -> int:
        """Most rows of all together."""
        return sum(
            storage.max_size if is_writable(storage) else len(storage) for storage in self.storages
        )


class SamplerEnsemble:
    """The samplers of an ensemble's members, and how members are drawn.

    Args:
        samplers: how rows of the members are drawn.
        p: how likely each member is drawn: numbers, or ``"size"`` for its number of rows; all alike
            by default.
        sample_from_all: take a part from every member, in their order; excludes ``p``.
        num_buffer_sampled: members drawn for a batch; all of them by default.

    Raises:
        UsageError: arguments that exclude one another or do not fit the members.
    """

    def __init__(
        self,
        *samplers: Sampler,
        p: MemberWeights | None = None,
        sample_from_all: bool = False,
        num_buffer_sampled: int | None = None,
    ) -> None:
        if sample_from_all and (p is not None or num_buffer_sampled not in (None, len(samplers))):
            raise UsageError(
                "sample_from_all takes every member: give neither p nor fewer members."
            )
        self.samplers = samplers
        self.sample_from_all = sample_from_all
        self.num_buffer_sampled = (
            len(samplers) if num_buffer_sampled is None else num_buffer_sampled
        )
        if self.num_buffer_sampled < 1:
            raise UsageError(f"A batch needs 1 buffer or more, not {self.num_buffer_sampled}.")
        self.p = p

    def __len__(self) -> int:
        return len(self.samplers)

    def __getitem__(self, member: int) -> Sampler:
        return self.samplers[member]

    @property
    def p(self) -> torch.Tensor | Literal["size"] | None:
        """How likely each member is drawn: float64 ``[members]``, by its size, or all alike."""
        return self._p

    @p.setter
    def p(self, weights: MemberWeights | None) -> None:
        self._p: torch.Tensor | Literal["size"] | None
        if weights is None or isinstance(weights, str):
            if weights not in (None, "size"):
                raise UsageError(f"p must be numbers, 'size' or None, not {weights!r}.")
            self._p = weights
            return
        numbers = [*map(float, weights)]
        members = [*map(str, range(len(self)))]
        self._p = torch.tensor(weight_numbers("p", numbers, members), dtype=torch.float64)

    def parts(
        self, batch_size: int, sizes: Sequence[int], generator: torch.Generator
    ) -> list[tuple[int, int]]:
        """Return members and the equal number of rows that each gives to a batch.

        Args:
            batch_size: rows of the batch.
            sizes: rows of each member.
            generator: draws the members.

        Raises:
            UsageError: the members do not divide the batch, or have no rows.
        """
        drawn = self.num_buffer_sampled
        if batch_size % drawn:
            raise UsageError(f"A batch of {batch_size} cannot be shared by {drawn} buffers.")
        everyone = self.sample_from_all
        members = range(len(self)) if everyone else self._draw(drawn, sizes, generator).tolist()
        return [(member, batch_size // drawn) for member in members]

    def shares(
        self, batch_size: int, sizes: Sequence[int], generator: torch.Generator
    ) -> list[tuple[int, int]]:
        """Return members and how many rows each gives where a member is drawn for every row.

        With ``sample_from_all`` all give the same number, or the first one more; see ``parts``.
        """
        if self.sample_from_all:
            counts = torch.full((len(self),), batch_size // len(self))
            counts[: batch_size % len(self)] += 1
        else:
            counts = torch.bincount(self._draw(batch_size, sizes, generator), minlength=len(self))
        return [(member, count) for member, count in enumerate(counts.tolist()) if count]

    def _draw(self, count: int, sizes: Sequence[int], generator: torch.Generator) -> torch.Tensor:
        if self._p is None:
            return torch.randint(len(self), (count,), generator=generator)
        weights = torch.as_tensor(sizes if self._p == "size" else self._p, dtype=torch.float64)
        if not weights.any():
            raise EmptyBuffer(NO_ROWS)
        return torch.multinomial(weights, count, replacement=True, generator=generator)


class WriterEnsemble:
    """The writers of an ensemble's members; rows are written into a member, never into all.

    Args:
        writers: how rows are placed in the members.
    """

    def __init__(self, *writers: Writer) -> None:
        self.writers = writers

    def __len__(self) -> int:
        return len(self.writers)

    def __getitem__(self, member: int) -> Writer:
        return self.writers[member]

    def write(self, storage: Storage, data: Rows) -> NoReturn:
        """Refuse rows: it is not known which member they are for."""
        refuse_for_all()


def refuse_for_all() -> NoReturn:
    """Refuse rows that are not for one member."""
    raise ImmutableError("Write to a member: ensemble[0].extend(rows).")


def members_of(
    storages: StorageEnsemble,
    samplers: SamplerEnsemble,
    writers: WriterEnsemble | None,
    collate_fns: Sequence[CollateFunction | None] | None,
) -> tuple[TensorDictReplayBuffer, ...]:
    """Return the buffers that the parts make."""
    count = len(storages.storages)
    columns = (
        storages.storages,
        samplers.samplers,
        writers.writers if writers else [None] * count,
        storages.transforms,
        collate_fns or [None] * count,
    )
    if {len(column) for column in columns} != {count}:
        raise UsageError(
            "An ensemble needs one sampler, writer and collate_fn for each storage; found "
            f"{', '.join(str(len(column)) for column in columns)}."
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


@takes(**ENSEMBLE)
class ReplayBufferEnsemble(MixedBuffers):
    """Draws batches from several buffers.

        sample()        [members drawn, B / members drawn]    a part of the batch from each
        sample_flat()   [B]                                   each row from a member drawn for it

    A member's own transforms run first, then the ensemble's. Batches carry ``index``, a TensorDict
    of ``buffer_ids`` and of ``index`` in that member; where rows are plain tensors, or tensors in
    lists, tuples and dicts, it is in ``info`` alone. ``len`` counts the rows of all members.

    Args:
        buffers: the members; one that prefetches makes parts of its own batch size ahead.
        storages: in place of buffers, with ``samplers``: members are made of them.
        samplers: those of the storages; takes the place of ``p`` and the two after it.
        writers: those of the storages; see ``ReplayBuffer`` for what each is by default.
        transform: applied to every batch.
        batch_size: rows in a batch; ``sample`` can override it.
        collate_fn: takes the list of the members' parts and returns the batch of ``sample``; a
            stack of them by default.
        collate_fns: those of the storages.
        p: how likely each member is drawn: numbers, or ``"size"`` for its number of rows; all alike
            by default.
        sample_from_all: take a part from every member, in their order; excludes ``p``.
        num_buffer_sampled: members drawn for a batch of ``sample``; all of them
            by default.
        generator: draws members, and seeds the draws of each; by default torch's global one draws
            members, and each draws its rows as it did before.
        seed: seeds a generator of the ensemble's own.
        format: what batches are made of; see ``with_format``. Those of members do not matter.
        cast: of ``format``; see there.

    Raises:
        UsageError: arguments that exclude one another or do not fit the members.
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
        made = any(part is not None for part in (storages, samplers, writers, collate_fns))
        if wrong := [type(part).__name__ for part in buffers if not isinstance(part, ReplayBuffer)]:
            raise UsageError(
                "An ensemble takes buffers one by one, as in ReplayBufferEnsemble(first, second), "
                f"not {', '.join(wrong)}."
            )
        if buffers and not made:
            samplers = SamplerEnsemble(
                *(buffer.sampler for buffer in buffers),
                p=p,
                sample_from_all=sample_from_all,
                num_buffer_sampled=num_buffer_sampled,
            )
        elif buffers or storages is None or samplers is None:
            raise UsageError("An ensemble needs buffers, or storages and samplers to make them of.")
        elif p is not None or sample_from_all or num_buffer_sampled:
            raise UsageError("Give p, sample_from_all, num_buffer_sampled to SamplerEnsemble.")
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

        Members with other keys than the rest make these exclusive to their part. Where a member's
        epoch of rows ends within its part, its next epoch fills the part up.

        Args:
            batch_size: rows to draw; the ensemble's own by default.
            return_info: return ``(batch, info)``, where info is a TensorDict ``[members drawn, rows
                drawn of each]`` with ``index`` and what else the members' samplers say.

        Raises:
            UsageError: the members do not divide the batch size, or one cannot give its part.
        """
        counts = self.sampler.parts(self._size(batch_size), self._sizes(), self.generator)
        parts = self._draw(counts)
        self.ran_out = any(part.is_last for part in parts)
        check_sizes(parts)
        details = None
        if return_info:
            details = LazyStackedTensorDict.lazy_stack([part.info() for part in parts])
        return self._finished(self._collate_fn([part.rows for part in parts]), details)

    def sample_flat(self, batch_size: int | None = None, return_info: bool = False) -> Rows:
        """Return a batch ``[B]``, members in their order; see ``sample``.

        Members of slices need ``sample_from_all``: a member's rows drawn by chance are not whole
        number of slices.

        Raises:
            UsageError: the members that were drawn have different keys, or entries of different
                shapes.
        """
        counts = self.sampler.shares(self._size(batch_size), self._sizes(), self.generator)
        parts = self._draw(counts)
        self.ran_out = any(part.is_last for part in parts)
        names = [f"buffer {part.member}" for part in parts]
        rows = joined(names, [part.rows for part in parts])
        details = joined(names, [part.info() for part in parts]) if return_info else None
        return self._finished(rows, details)

    def __getitem__(self, index: Any) -> Rows:
        """Return a member; or, of ``[member, rows]``, copies of rows; of ``[:, rows]`` of all."""
        # Of several members, as a slice, `...` or a list names them, a list or a stack.
        if isinstance(index, tuple) and len(index) > 1:
            return self._formatted(self._rows(index))
        return self._rows(index)

    def _rows(self, index: Any) -> Rows:
        """Return what ``__getitem__`` does, of torch."""
        member, *rows = index if isinstance(index, tuple) else (index,)
        if not isinstance(member, int):
            numbers = range(len(self.buffers))
            named = slice(None) if member is ... else member
            which = numbers[named] if isinstance(named, slice) else torch.as_tensor(named).tolist()
            chosen = [self._rows((number, *rows)) for number in which]
            return LazyStackedTensorDict.lazy_stack(chosen) if rows else chosen
        if not -len(self.buffers) <= member < len(self.buffers):
            raise OutOfRange(f"There is no buffer {member}: the ensemble has {len(self.buffers)}.")
        if not rows:
            return self.buffers[member]
        buffer = self.buffers[member].with_format("torch")
        return buffer[tuple(rows) if len(rows) > 1 else rows[0]]

    def set_rng(self, generator: torch.Generator) -> None:
        """Draw members from another generator, which also seeds the draws of each member."""
        self.generator = generator
        super().set_rng(generator)

    @property
    def write_count(self) -> int:
        """Rows written to all members; see ``ReplayBuffer``."""
        return sum(buffer.write_count for buffer in self.buffers)

    def empty(self, empty_write_count: bool = True) -> None:
        """Forget every row of every member.

        Args:
            empty_write_count: see ``ReplayBuffer.empty``.

        Raises:
            ImmutableError: a member is a dataset; then none forgets any.
        """
        if not all(buffer.reader.storage.is_writable for buffer in self.buffers):
            refuse_to_write()
        for buffer in self.buffers:
            buffer.empty(empty_write_count)

    def add(self, data: Rows) -> NoReturn:
        """Refuse a row: it is not known which member it is for."""
        refuse_for_all()

    def extend(self, data: Rows, update_priority: bool | None = None) -> NoReturn:
        """Refuse rows, as ``add`` does."""
        refuse_for_all()

    def _sizes(self) -> list[int]:
        return [len(buffer) for buffer in self.buffers]

    def _is_part(self, folder: Path, name: str) -> bool:
        return name == GENERATOR or (is_member(name) and (folder / name / SEAL).exists())

    def _write_draws(self, folder: Path) -> None:
        if self.generator is not torch.default_generator:
            write_generator(folder, self.generator, self.generator.get_state())

    def _plan_load_draws(self, dump: DumpFolder) -> PlannedChange:
        is_own = self.generator is not torch.default_generator
        kept = read_generator(dump / GENERATOR, self.generator) if is_own else None
        return (lambda: None) if kept is None else partial(self.generator.set_state, kept)

    def _draws_state(self) -> torch.Tensor:
        return self.generator.get_state()

    def _plan_restore_draws(self, state: StateDict) -> PlannedChange:
        return partial(self.generator.set_state, generator_in(state, self.generator))

    def __getstate__(self) -> StateDict:
        return {**self.__dict__, "generator": pickled_generator(self.generator)}

    def __setstate__(self, state: StateDict) -> None:
        self.__dict__.update(state)
        self.generator = unpickled_generator(state["generator"])
