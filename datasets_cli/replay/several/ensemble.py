"""Several replay buffers sampled as one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
from tensordict import LazyStackedTensorDict

from datasets_cli.errors import OutOfRange, UsageError
from datasets_cli.replay.arguments import (
    Rows,
    StateDict,
    choose_generator,
    pickled_generator,
    unpickled_generator,
)
from datasets_cli.replay.buffers.buffer import ReplayBuffer
from datasets_cli.replay.keeping.draws import read_generator, write_generator
from datasets_cli.replay.keeping.dump_folder import GENERATOR, SEAL, DumpFolder, is_member
from datasets_cli.replay.keeping.state import generator_in
from datasets_cli.replay.rows.batch_maker import CollateFunction
from datasets_cli.replay.rows.writers import refuse_to_write
from datasets_cli.replay.several.ensemble_parts import (
    MemberWeights,
    SamplerEnsemble,
    StorageEnsemble,
    WriterEnsemble,
    members_of,
    refuse_for_all,
)
from datasets_cli.replay.several.mixed_buffers import MixedBuffers, PlannedChange
from datasets_cli.replay.several.parts import JoinFunction, check_sizes, joined, stacked
from datasets_cli.replay.torchrl_words import ENSEMBLE, takes
from datasets_cli.replay.transforms.transform import TransformLike


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
