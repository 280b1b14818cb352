"""Several buffers sampled as one, each of which draws its part of a batch by its own sampler.

PATH/NAME/   a dump of that member: of a dataset a reference, else all rows
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from tensordict import TensorDictBase

from datasets_cli.errors import UsageError
from datasets_cli.quantities import few_lines
from datasets_cli.replay.arguments import Numbers, Rows, StateDict, whole_number
from datasets_cli.replay.buffers.buffer import ReplayBuffer
from datasets_cli.replay.buffers.readable import choose_format
from datasets_cli.replay.keeping.dump_folder import DumpFolder, new_dump, open_dump
from datasets_cli.replay.several.parts import MemberBatch, draw_member_batch
from datasets_cli.replay.several.priorities import update_batch_priorities, update_row_priorities
from datasets_cli.replay.transforms.compose import Compose
from datasets_cli.replay.transforms.transform import Inverted, TransformLike
from datasets_cli.schema.tree import Tree

PlannedChange = Callable[[], object]
"""A change that was checked and is made when it is called."""


class MixedBuffers(ABC):
    """Several buffers sampled as one; a class derived from it says how a batch is split."""

    _names: ClassVar[Sequence[str] | None] = None  # of members in dumps; their numbers by default
    _draws_name: ClassVar[str]  # of what a state says of the draws of members

    def __init__(
        self,
        buffers: Sequence[ReplayBuffer],
        batch_size: int | None,
        transform: TransformLike | None,
        format: str,
        cast: bool,
    ) -> None:
        self.buffers = tuple(buffers)
        self.batch_size = None if batch_size is None else whole_number("batch_size", batch_size, 1)
        self.transform = Compose()
        for step in Compose(transform or []):
            self.append_transform(step)
        self.ran_out = False  # whether the batch just drawn ended an epoch
        self._format = choose_format(format, cast=cast)

    @property
    def format(self) -> str:
        """What batches are made of: ``"torch"``, ``"numpy"`` or ``"jax"``."""
        return "torch" if self._format is None else self._format.name

    def with_format(self, format: str, *, cast: bool = False) -> Self:
        """Return the same members with batches of another format; see ``ReplayBuffer``."""
        same = type(self).__new__(type(self))
        vars(same).update(vars(self))
        same._format = choose_format(format, cast=cast)
        return same

    def __repr__(self) -> str:
        return few_lines(f"{type(self).__name__}({','.join(self._shown())})")

    def _shown(self) -> list[str]:
        """Return what is printed: a line for each member, and the batch size."""
        members = []
        for buffer in self.buffers:
            storage, *rest = repr(buffer.storage).splitlines()
            shown = f"{storage}{' ...)' * bool(rest)}, {buffer.sampler!r}"
            members.append(f"\n    {type(buffer).__name__}({shown})")
        return [*members, f"\n    batch_size={self.batch_size}"]

    def __len__(self) -> int:
        return sum(map(len, self.buffers))

    @abstractmethod
    def sample(self, batch_size: int | None = None, return_info: bool = False) -> Rows:
        """Return a batch, or ``(batch, info)``."""

    def __iter__(self) -> Iterator[Rows]:
        """Yield batches of ``sample``: forever, or until an epoch ends."""
        if self.batch_size is None:
            name = type(self).__name__
            raise UsageError(f"Iteration needs a batch size. Give {name} a batch_size.")
        while True:
            yield self.sample()
            if self.ran_out:
                return

    def update_priority(
        self, index: TensorDictBase | Mapping[str, Numbers], priority: Numbers
    ) -> None:
        """Give rows of members new priorities; of a member that has none nothing happens.

        Args:
            index: what ``batch["index"]`` is: ``buffer_ids`` and ``index``, int64 ``[B]`` each.
            priority: float ``[B]``, or one number for all.

        Raises:
            UsageError: the index does not say which rows of which buffer, or a row does not exist.
        """
        update_row_priorities(self.buffers, index, priority)

    def update_tensordict_priority(self, batch: TensorDictBase | Tree) -> None:
        """Give the rows of a batch of any format the priorities that their members look for.

        Each reads its own ``priority_key``; of one without priorities nothing happens.

        Raises:
            UsageError: the batch has none, or no ``index``.
        """
        update_batch_priorities(self.buffers, batch)

    def append_transform(self, transform: TransformLike, *, invert: bool = False) -> Self:
        """Apply one more transform to every batch, after the others; return the same object.

        Args:
            transform: any callable from batch to batch.
            invert: apply its ``inv`` instead.
        """
        return self.insert_transform(len(self.transform), transform, invert=invert)

    def insert_transform(
        self, index: int, transform: TransformLike, *, invert: bool = False
    ) -> Self:
        """Apply one more transform at a place among the others; return the same object."""
        added = Inverted(transform) if invert else transform
        for reader in (buffer.reader for buffer in self.buffers):
            reader.check_transform(added, reader.sampler, reader.storage)
        self.transform.insert(index, added)
        return self

    def set_rng(self, generator: torch.Generator) -> None:
        """Seed the draws of each member from a generator."""
        for buffer in self.buffers:
            # A seed, and no generator to hand out, so that a dataset is still read ahead.
            seed = int(torch.randint(2**62, (), generator=generator))
            buffer.reader.use_generator(None, seed)

    def dumps(self, path: str | Path) -> None:
        """Write every member into its own folder below ``path``; see ``ReplayBuffer.dumps``.

        Raises:
            UsageError: as ``ReplayBuffer.dumps``.
        """
        folder = Path(path)
        with new_dump(folder, partial(self._is_part, folder)) as made:
            for name, buffer in self._named():
                buffer.persistence.write(made / name)
            self._write_draws(made)

    def loads(self, path: str | Path, *, tensorclass: Any = None) -> None:
        """Read what ``dumps`` wrote of such members; see ``ReplayBuffer.loads``.

        Where one member is refused, none changes.
        """
        dump = open_dump(Path(path))
        plans = [
            partial(buffer.persistence.plan_load, dump / name, tensorclass)
            for name, buffer in self._named()
        ]
        self._change(partial(self._plan_load_draws, dump), *plans)

    def state_dict(self) -> StateDict:
        """Return the state of every member, and of the draws of members.

        Of a dataset it has the id and the content, of written rows copies; see ``ReplayBuffer``.
        """
        states = {name: buffer.state_dict() for name, buffer in self._named()}
        return {**states, self._draws_name: self._draws_state()}

    def load_state_dict(self, state: StateDict, *, tensorclass: Any = None) -> None:
        """Continue where ``state`` was taken, with the same batches; see ``ReplayBuffer``.

        Where one member is refused, none changes.

        Raises:
            UsageError: it is not a state of such members.
        """
        names = [name for name, _ in self._named()]
        kept = [*state] if isinstance(state, dict) else []
        if {*kept} != {*names, self._draws_name}:
            raise UsageError(
                f"The state is not of a {type(self).__name__} of such members, which has "
                f"{', '.join(names)} and {self._draws_name}; this one has "
                f"{', '.join(map(str, kept)) or 'nothing'}. One of a buffer alone is for that "
                "buffer."
            )
        plans = [
            partial(buffer.persistence.plan_restore, state[name], tensorclass)
            for name, buffer in self._named()
        ]
        self._change(partial(self._plan_restore_draws, state), *plans)

    def _change(self, *plans: Callable[[], PlannedChange]) -> None:
        """Make all changes that are planned, or none where one is refused."""
        with ExitStack() as locks:
            for buffer in self.buffers:
                locks.enter_context(buffer.row_writer.lock)
            changes = [plan() for plan in plans]
            for change in reversed(changes):  # the draws of members last
                change()

    def _named(self) -> Iterator[tuple[str, ReplayBuffer]]:
        """Yield each member with its name in dumps and states."""
        names = map(str, range(len(self.buffers))) if self._names is None else self._names
        yield from zip(names, self.buffers, strict=True)

    @abstractmethod
    def _is_part(self, folder: Path, name: str) -> bool:
        """Return whether a file or folder in ``folder`` is a part of an older dump of this kind."""

    @abstractmethod
    def _draws_state(self) -> StateDict | torch.Tensor:
        """Return where the draws of members stand."""

    @abstractmethod
    def _plan_restore_draws(self, state: StateDict) -> PlannedChange:
        """Return what lets the draws of members stand where ``state_dict`` was called."""

    @abstractmethod
    def _write_draws(self, folder: Path) -> None:
        """Write where the draws of members stand into the new folder of a dump."""

    @abstractmethod
    def _plan_load_draws(self, dump: DumpFolder) -> PlannedChange:
        """Return what lets the draws of members stand where a dump says."""

    def _size(self, batch_size: int | None) -> int:
        size = self.batch_size if batch_size is None else batch_size
        if size is None:
            raise UsageError(
                f"No batch size is given. Pass sample(batch_size), or give {type(self).__name__} a "
                "batch_size."
            )
        return whole_number("batch_size", size, 1)

    def _draw(self, counts: Iterable[tuple[int, int]]) -> list[MemberBatch]:
        """Return parts of as many rows of each member."""
        return [draw_member_batch(self.buffers[member], member, size) for member, size in counts]

    def _finished(self, rows: Rows, details: Rows | None) -> Rows:
        """Return a batch, or ``(batch, info)`` where there are details, as a user gets them."""
        batch = self._formatted(self.transform(rows))
        return batch if details is None else (batch, self._formatted(details))

    def _formatted(self, rows: Rows) -> Rows:
        return rows if self._format is None else self._format.from_batch(rows)
