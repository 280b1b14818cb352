"""Several replay buffers sampled as one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn

import torch
from tensordict import LazyStackedTensorDict, TensorDict, TensorDictBase

from datasets_cli.errors import ImmutableError, UsageError
from datasets_cli.replay.buffers import ReplayBuffer
from datasets_cli.replay.epoch import NO_ROWS
from datasets_cli.replay.generators import choose_generator, seed_of, seeded
from datasets_cli.replay.transforms.transform import Transform
from datasets_cli.store.columns import show_key

Info = dict[Any, Any]
"""What a sampler says of a part, as a buffer's ``sample`` returns it."""

Weights = Sequence[float] | torch.Tensor | Literal["size"]


class ReplayBufferEnsemble:
    """Draws batches from several buffers.

        sample()        [members drawn, B / members drawn]    a part of the batch from each
        sample_flat()   [B]                                   each row from a member drawn for it

    A member's own transforms run first, then the ensemble's. Batches carry ``index``, a TensorDict
    of ``buffer_ids`` and of ``index`` in that member. ``len`` counts the rows of all members.

    Args:
        buffers: the members, whose own batch sizes do not matter.
        transform: applied to every batch.
        batch_size: rows in a batch; ``sample`` can override it.
        collate_fn: takes the list of the members' parts and returns the batch of ``sample``; a
            stack of them by default.
        p: how likely each member is drawn: numbers, or ``"size"`` for its number of rows; all alike
            by default.
        sample_from_all: take a part from every member, in their order; excludes ``p``.
        num_buffer_sampled: members drawn for a batch of ``sample``; as many as there are
            by default.
        generator: draws members; torch's global one by default.
        seed: seeds a generator of the ensemble's own.

    Raises:
        UsageError: arguments that exclude one another or do not fit the members.
    """

    def __init__(
        self,
        *buffers: ReplayBuffer,
        transform: Transform | None = None,
        batch_size: int | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        p: Weights | None = None,
        sample_from_all: bool = False,
        num_buffer_sampled: int | None = None,
        generator: torch.Generator | None = None,
        seed: int | None = None,
    ) -> None:
        if not buffers:
            raise UsageError("An ensemble needs a buffer.")
        if sample_from_all and (p is not None or num_buffer_sampled not in (None, len(buffers))):
            raise UsageError(
                "sample_from_all takes every member: give neither p nor fewer members."
            )
        if p is not None and p != "size" and len(p) != len(buffers):
            raise UsageError(f"p has {len(p)} numbers for {len(buffers)} buffers.")
        if p is not None and p != "size":
            p = torch.as_tensor(p, dtype=torch.float64)
            if not (bool((p >= 0).all()) and 0 < float(p.sum()) < math.inf):
                raise UsageError(f"p is numbers from 0 on, one of them more, not {p.tolist()}.")
        self.buffers = buffers
        self.batch_size = batch_size
        self.generator = choose_generator(generator, seed)
        self.ran_out = False  # whether the batch just drawn was the last of a member's epoch
        self._p = p
        self._from_all = sample_from_all
        self._num_drawn = num_buffer_sampled or len(buffers)
        self._transforms = [] if transform is None else [transform]
        self._collate_fn = collate_fn or LazyStackedTensorDict.lazy_stack

    def __len__(self) -> int:
        return sum(len(buffer) for buffer in self.buffers)

    def __repr__(self) -> str:
        members = ", ".join(map(repr, self.buffers))
        return f"ReplayBufferEnsemble({members}, batch_size={self.batch_size})"

    def sample(self, batch_size: int | None = None, return_info: bool = False) -> Any:
        """Return a batch ``[members drawn, B / members drawn]``.

        Members with other keys than the rest make these exclusive to their part.

        Args:
            batch_size: rows to draw; the ensemble's own by default.
            return_info: return ``(batch, info)``, where info is a TensorDict of the batch's shape
                with ``index`` and what else the members' samplers say.

        Raises:
            UsageError: the members do not divide the batch size, or one cannot give its part.
        """
        size = self._size(batch_size)
        if size % self._num_drawn:
            raise UsageError(f"A batch of {size} cannot be shared by {self._num_drawn} buffers.")
        members = range(len(self.buffers)) if self._from_all else self._draw(self._num_drawn)
        parts, marks = self._parts((int(member), size // self._num_drawn) for member in members)
        info = LazyStackedTensorDict.lazy_stack(_infos(marks)) if return_info else None
        batch = self._transformed(self._collate_fn(parts))
        return (batch, info) if return_info else batch

    def sample_flat(self, batch_size: int | None = None, return_info: bool = False) -> Any:
        """Return a batch ``[B]``, members in their order; see ``sample``.

        Raises:
            UsageError: the members that were drawn have different keys.
        """
        size = self._size(batch_size)
        if self._from_all:
            counts = torch.full((len(self.buffers),), size // len(self.buffers))
            counts[: size % len(self.buffers)] += 1
        else:
            counts = torch.bincount(self._draw(size), minlength=len(self.buffers))
        drawn = [(member, count) for member, count in enumerate(counts.tolist()) if count]
        parts, marks = self._parts(drawn)
        first = set(parts[0].keys(True, True))
        for (member, _), part in zip(drawn, parts, strict=True):
            if odd := first ^ set(part.keys(True, True)):
                names = ", ".join(sorted(show_key(_tuple(key)) for key in odd))
                raise UsageError(
                    f"Buffers {drawn[0][0]} and {member} differ in {names}: select the same keys "
                    "with a transform of each, or sample() parts that may differ."
                )
        batch = self._transformed(torch.cat(parts))
        return (batch, torch.cat(_infos(marks))) if return_info else batch

    def __iter__(self) -> Iterator[Any]:
        """Yield batches of ``sample``: for ever, or until a member's epoch ends."""
        if self.batch_size is None:
            raise UsageError("Iteration needs a batch size. Give the ensemble a batch_size.")
        while True:
            yield self.sample()
            if self.ran_out:
                return

    def __getitem__(self, index: Any) -> Any:
        """Return a member; or, of ``[member, rows]``, copies of rows; of ``[:, rows]`` of all."""
        member, *rows = index if isinstance(index, tuple) else (index,)
        if isinstance(member, slice):
            chosen = [self[number, *rows] for number in range(len(self.buffers))[member]]
            return LazyStackedTensorDict.lazy_stack(chosen) if rows else chosen
        return self.buffers[member][rows[0]] if rows else self.buffers[member]

    def update_tensordict_priority(self, batch: TensorDictBase) -> None:
        """Give the rows of a batch, of either form, the priorities that their members look for."""
        flat = batch.reshape(-1)
        owner = flat["index", "buffer_ids"]
        for number, buffer in enumerate(self.buffers):
            if (update := getattr(buffer, "update_tensordict_priority", None)) is None:
                continue
            own = flat[owner == number]
            if len(own):
                update(own.exclude("index").set("index", own["index", "index"]))

    def append_transform(self, transform: Transform) -> ReplayBufferEnsemble:
        """Apply one more transform to every batch, after the others; return the ensemble."""
        self._transforms.append(transform)
        return self

    def add(self, data: Any) -> NoReturn:
        """Refuse a row: nobody says which member it is for."""
        raise ImmutableError("Write to a member: ensemble[0].extend(rows).")

    extend = add

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the draws, members' included."""
        members = [buffer.state_dict() for buffer in self.buffers]
        return {"members": members, "generator": self.generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the draws where ``state`` was taken."""
        for buffer, own in zip(self.buffers, state["members"], strict=True):
            buffer.load_state_dict(own)
        self.generator.set_state(state["generator"])

    def _size(self, batch_size: int | None) -> int:
        size = self.batch_size if batch_size is None else batch_size
        if size is None or size < 1:
            raise UsageError(f"A batch size of {size} cannot be drawn. Pass one from 1 on.")
        return size

    def _draw(self, count: int) -> torch.Tensor:
        if self._p is None:
            return torch.randint(len(self.buffers), (count,), generator=self.generator)
        sizes = [len(buffer) for buffer in self.buffers] if self._p == "size" else self._p
        weights = torch.as_tensor(sizes, dtype=torch.float64)
        if not weights.any():
            raise UsageError(NO_ROWS)
        return torch.multinomial(weights, count, replacement=True, generator=self.generator)

    def _parts(self, drawn: Iterable[tuple[int, int]]) -> tuple[list[Any], list[Info]]:
        """Return the parts of a batch, and what samplers say of them, of members and counts."""
        self.ran_out = False
        parts, marks = [], []
        for member, size in drawn:
            batch, info = self.buffers[member].sample(size, return_info=True)
            if not isinstance(batch, TensorDictBase):
                raise UsageError(f"Buffer {member} has rows that are no TensorDicts.")
            ids = torch.full((len(batch),), member, device=info["index"].device)
            index = TensorDict({"buffer_ids": ids, "index": info["index"]}, [len(batch)])
            parts.append(batch.set("index", index))
            marks.append({**info, "index": index})
            self.ran_out |= self.buffers[member].ran_out
        return parts, marks

    def _transformed(self, batch: Any) -> Any:
        for transform in self._transforms:
            batch = transform(batch)
        return batch

    def __getstate__(self) -> dict[str, Any]:
        # As of a buffer: a copy begins the seed's stream anew.
        return {**self.__dict__, "generator": seed_of(self.generator)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.generator = seeded(state["generator"])


def _infos(marks: list[Info]) -> list[TensorDict]:
    return [TensorDict(mark, mark["index"].batch_size).clone() for mark in marks]


def _tuple(key: str | tuple[str, ...]) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else key
