"""Several replay buffers sampled as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, Self

import torch
from tensordict import LazyStackedTensorDict, TensorDictBase

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import (
    Rows,
    StateDict,
    choose_generator,
    pickled_generator,
    seeded,
    unpickled_generator,
)
from datasets_cli.replay.buffers.buffer import ReplayBuffer
from datasets_cli.replay.ensembles.member_batches import (
    MemberBatch,
    check_sizes,
    draw_member_batch,
    joined,
    stacked,
)
from datasets_cli.replay.ensembles.members import (
    SamplerEnsemble,
    StorageEnsemble,
    Weights,
    WriterEnsemble,
    members_of,
    refuse_for_all,
)
from datasets_cli.replay.ensembles.persistence import (
    dump_members,
    load_members,
    members_state,
    restore_members,
)
from datasets_cli.replay.ensembles.priorities import update_batch_priorities
from datasets_cli.replay.rows.format_choice import choose_format
from datasets_cli.replay.rows.reader import CollateFunction
from datasets_cli.replay.rows.writers import refuse_to_write
from datasets_cli.replay.torchrl_words import ENSEMBLE, takes
from datasets_cli.replay.transforms.compose import Compose
from datasets_cli.replay.transforms.transform import Inverted, TransformLike
from datasets_cli.schema.tree import Tree


@takes(**ENSEMBLE)
class ReplayBufferEnsemble:
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

    Raises:
        UsageError: arguments that exclude one another or do not fit the members.
    """

    def __init__(
        self,
        *buffers: ReplayBuffer,
        storages: StorageEnsemble | None = None,
        samplers: SamplerEnsemble | None = None,
        writers: WriterEnsemble | None = None,
        transform: TransformLike | None = None,
        batch_size: int | None = None,
        collate_fn: Callable[[list[Rows]], Rows] | None = None,
        collate_fns: Sequence[CollateFunction | None] | None = None,
        p: Weights | None = None,
        sample_from_all: bool = False,
        num_buffer_sampled: int | None = None,
        generator: torch.Generator | None = None,
        seed: int | None = None,
        format: str = "torch",
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
        self.buffers = buffers
        self.sampler = samplers
        self.batch_size = batch_size
        self.generator = choose_generator(generator, seed)
        if self.generator is not torch.default_generator:
            self.set_rng(self.generator)
        self.ran_out = False  # whether the batch just drawn was the last of a member's epoch
        self.transform = Compose() if transform is None else Compose(transform)
        self._collate_fn = collate_fn or stacked
        self._format = choose_format(format)

    @property
    def format(self) -> str:
        """What batches are made of: ``"torch"``, ``"numpy"`` or ``"jax"``."""
        return "torch" if self._format is None else self._format.name

    def with_format(self, format: str, *, cast: bool = False) -> Self:
        """Return the same ensemble with batches of another format; see ``ReplayBuffer``."""
        found = type(self).__new__(type(self))
        vars(found).update(vars(self))
        found._format = choose_format(format, cast=cast)
        return found

    def _formatted(self, rows: Rows) -> Rows:
        return rows if self._format is None else self._format.from_batch(rows)

    def __len__(self) -> int:
        return sum(self._sizes())

    def __repr__(self) -> str:
        members = ", ".join(map(repr, self.buffers))
        return f"ReplayBufferEnsemble({members}, batch_size={self.batch_size})"

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
        drawn = self.sampler.parts(self._size(batch_size), self._sizes(), self.generator)
        batches = self._drawn(drawn)
        check_sizes(batches)
        details = [part.info() for part in batches] if return_info else []
        batch = self.transform(self._collate_fn([part.rows for part in batches]))
        if not return_info:
            return self._formatted(batch)
        info = LazyStackedTensorDict.lazy_stack(details)
        return self._formatted(batch), self._formatted(info)

    def sample_flat(self, batch_size: int | None = None, return_info: bool = False) -> Rows:
        """Return a batch ``[B]``, members in their order; see ``sample``.

        Members of slices need ``sample_from_all``: a member's rows drawn by chance are no whole
        number of slices.

        Raises:
            UsageError: the members that were drawn have different keys, or entries of different
                shapes.
        """
        drawn = self.sampler.shares(self._size(batch_size), self._sizes(), self.generator)
        batches = self._drawn(drawn)
        members = [part.member for part in batches]
        rows = joined(members, [part.rows for part in batches])
        if not return_info:
            return self._formatted(self.transform(rows))
        info = joined(members, [part.info() for part in batches])
        batch = self.transform(rows)
        return self._formatted(batch), self._formatted(info)

    def __iter__(self) -> Iterator[Rows]:
        """Yield batches of ``sample``: for ever, or until a member's epoch ends."""
        if self.batch_size is None:
            raise UsageError("Iteration needs a batch size. Give the ensemble a batch_size.")
        while True:
            yield self.sample()
            if self.ran_out:
                return

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
            raise IndexError(f"There is no buffer {member}: the ensemble has {len(self.buffers)}.")
        if not rows:
            return self.buffers[member]
        buffer = self.buffers[member].with_format("torch")
        return buffer[tuple(rows) if len(rows) > 1 else rows[0]]

    def update_tensordict_priority(self, batch: TensorDictBase | Tree) -> None:
        """Give the rows of a batch, of either form, the priorities that their members look for."""
        update_batch_priorities(self.buffers, batch)

    def append_transform(
        self, transform: TransformLike, *, invert: bool = False
    ) -> ReplayBufferEnsemble:
        """Apply one more transform to every batch, after the others; return the ensemble.

        Args:
            transform: any callable from batch to batch.
            invert: apply its ``inv`` instead.
        """
        return self.insert_transform(len(self.transform), transform, invert=invert)

    def insert_transform(
        self, index: int, transform: TransformLike, *, invert: bool = False
    ) -> ReplayBufferEnsemble:
        """Apply one more transform at a place among the others; return the ensemble."""
        self.transform.insert(index, Inverted(transform) if invert else transform)
        return self

    def set_rng(self, generator: torch.Generator) -> None:
        """Draw members from another generator, which also seeds the draws of each member."""
        self.generator = generator
        for buffer in self.buffers:
            buffer.set_rng(seeded(int(torch.randint(2**62, (), generator=generator))))

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

    def dumps(self, path: str | Path) -> None:
        """Write every member into a folder of its own below ``path``; see ``ReplayBuffer.dumps``.

        The members' folders are named by number: ``path/0``, ``path/1``.
        """
        dump_members(self.buffers, self.generator, Path(path))

    def loads(self, path: str | Path, *, tensorclass: Any = None) -> None:
        """Read what ``dumps`` wrote of the same number of members; see ``ReplayBuffer.loads``.

        Where one member is refused, none changes.
        """
        load_members(self.buffers, self.generator, Path(path), tensorclass)

    def state_dict(self) -> StateDict:
        """Return the state of the draws, members' included."""
        return members_state(self.buffers, self.generator)

    def load_state_dict(self, state: StateDict, *, tensorclass: Any = None) -> None:
        """Continue where ``state`` was taken; see ``ReplayBuffer.load_state_dict``.

        Where one member is refused, none changes.

        Raises:
            UsageError: it is no state of an ensemble of such members.
        """
        restore_members(self.buffers, self.generator, state, tensorclass)

    def _size(self, batch_size: int | None) -> int:
        size = self.batch_size if batch_size is None else batch_size
        if size is None or size < 1:
            raise UsageError(f"A batch size of {size} cannot be drawn. Pass one from 1 on.")
        return size

    def _sizes(self) -> list[int]:
        return [len(buffer) for buffer in self.buffers]

    def _drawn(self, drawn: list[tuple[int, int]]) -> list[MemberBatch]:
        batches = [draw_member_batch(self.buffers, member, size) for member, size in drawn]
        self.ran_out = any(batch.is_last for batch in batches)
        return batches

    def __getstate__(self) -> StateDict:
        return {**self.__dict__, "generator": pickled_generator(self.generator)}

    def __setstate__(self, state: StateDict) -> None:
        self.__dict__.update(state)
        self.generator = unpickled_generator(state["generator"])
