"""What an ensemble of replay buffers is made of: a storage, a sampler and a writer a member."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NoReturn

import torch

from datasets_cli.errors import EmptyBuffer, ImmutableError, UsageError
from datasets_cli.replay.arguments import Rows
from datasets_cli.replay.buffers.tensordict import TensorDictReplayBuffer
from datasets_cli.replay.draws.protocol import Sampler
from datasets_cli.replay.rows.batch_maker import CollateFunction
from datasets_cli.replay.rows.writers import Writer
from datasets_cli.replay.several.weights import weight_numbers
from datasets_cli.replay.storages.protocol import NO_ROWS, Storage, is_writable
from datasets_cli.replay.torchrl_words import CHECKPOINTER
from datasets_cli.replay.transforms.transform import TransformLike

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
