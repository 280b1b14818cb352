"""A dataset and rows that are written, sampled as one by a fraction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import torch
from tensordict import TensorDictBase

from datasets_cli.errors import EmptyBuffer, UsageError
from datasets_cli.replay.arguments import (
    NestedKeys,
    Numbers,
    Rows,
    StateDict,
    keys_of,
    seeded,
    whole_number,
)
from datasets_cli.replay.buffers.buffer import ReplayBuffer
from datasets_cli.replay.ensembles.member_batches import draw_member_batch, joined
from datasets_cli.replay.ensembles.pair import OFFLINE, ONLINE, check_pair, join_pair, unit_of
from datasets_cli.replay.ensembles.pair_state import dump_pair, load_pair, pair_state, restore_pair
from datasets_cli.replay.ensembles.priorities import update_batch_priorities, update_row_priorities
from datasets_cli.replay.ensembles.shares import Anneal, OfflineShare
from datasets_cli.replay.rows.format_choice import choose_format
from datasets_cli.replay.transforms.compose import Compose
from datasets_cli.replay.transforms.transform import TransformLike
from datasets_cli.schema.tree import Tree


class OfflineToOnline:
    """Draws batches from a dataset and from a buffer that is written, by a fraction.

    >>> from datasets_cli import ExperienceReplay, LazyTensorStorage, TensorDictReplayBuffer
    >>> replay = ExperienceReplay("d4rl/door-human-v0")
    >>> online = TensorDictReplayBuffer(storage=LazyTensorStorage(1_000_000))
    >>> both = OfflineToOnline(replay, online, fraction=0.5, batch_size=6)
    >>> both.sample()["index", "buffer_ids"]  # nothing was written yet
    tensor([0, 0, 0, 0, 0, 0])
    >>> _ = both.extend(replay[:100])
    >>> both.sample()["index", "buffer_ids"]
    tensor([0, 0, 0, 1, 1, 1])

    The offline rows of a batch come first, then the online ones. ``("index", "buffer_ids")`` is 0
    for offline rows and 1 for online ones, ``("index", "index")`` is the row's number there, as one
    number also where a storage has several dimensions.

    Nothing is rounded away: the rest of each batch is carried to the next, so that over any number
    of batches the offline rows are the fraction of all, to half a row; with samplers of slices,
    of which both need the same ``slice_len``, to half a slice.

    Args:
        offline: a buffer over a dataset, a mixture, or rows of earlier runs; never written here.
        online: a buffer over rows that are written; ``extend`` and ``add`` write there.
        fraction: of the rows of a batch that are offline, from 0 to 1.
        anneal: moves the fraction, such as ``LinearAnneal(to=0.1, over=100_000)``; or a function of
            ``fraction`` and of the rows written online, ``online.write_count``.
        min_online: rows that ``online`` must have to be drawn from; before, all rows of a batch are
            offline, and do not count for the fraction.
        keys: the entries that batches have, groups such as ``"next"`` whole; by default all, and
            then both must have the same.
        batch_size: rows in a batch; ``sample`` can override it.
        transform: applied to every batch, after those of the two buffers. What is written passes
            those of ``online`` alone.
        seed: seeds the draws of both; by default each draws as it did before.
        format: what batches are made of; see ``with_format``. Those of the two do not matter.

    Raises:
        UsageError: an argument is out of its range, or ``online`` cannot be written or never has
            ``min_online`` rows.

    Attributes:
        offline: the first buffer.
        online: the second one.
        transform: what is applied to every batch.
        ran_out: whether an offline epoch ended with the batch just drawn; iteration stops there.
    """

    def __init__(
        self,
        offline: ReplayBuffer,
        online: ReplayBuffer,
        *,
        fraction: float = 0.5,
        anneal: Anneal | None = None,
        min_online: int = 1,
        keys: NestedKeys | None = None,
        batch_size: int | None = None,
        transform: TransformLike | None = None,
        seed: int | None = None,
        format: str = "torch",
    ) -> None:
        self._share = OfflineShare(fraction, anneal, min_online)
        check_pair(offline, online, self._share.min_online)
        self.offline = offline
        self.online = online
        self.keys = None if keys is None else keys_of(keys)
        if self.keys == []:
            raise UsageError("keys names no entry; leave it out for batches with all entries.")
        self.batch_size = None if batch_size is None else whole_number("batch_size", batch_size, 1)
        self.transform = Compose() if transform is None else Compose(transform)
        self.ran_out = False
        self._format = choose_format(format)
        if seed is not None:
            self.set_rng(seeded(seed))

    @property
    def fraction(self) -> float:
        """The fraction of offline rows in the next batch; 1 while online has too few rows."""
        return self._share.fraction(len(self.online), self.online.write_count)

    @property
    def format(self) -> str:
        """What batches are made of: ``"torch"``, ``"numpy"`` or ``"jax"``."""
        return "torch" if self._format is None else self._format.name

    def with_format(self, format: str, *, cast: bool = False) -> Self:
        """Return the same two with batches of another format; see ``ReplayBuffer``."""
        found = type(self).__new__(type(self))
        vars(found).update(vars(self))
        found._format = choose_format(format, cast=cast)
        return found

    def __len__(self) -> int:
        return len(self.offline) + len(self.online)

    def __repr__(self) -> str:
        share = self._share
        return (
            f"OfflineToOnline({self.offline!r}, {self.online!r}, fraction={share.start}, "
            f"anneal={share.anneal!r}, min_online={share.min_online}, keys={self.keys}, "
            f"batch_size={self.batch_size})"
        )

    def sample(self, batch_size: int | None = None, return_info: bool = False) -> Rows:
        """Return a batch ``[B]``, offline rows first.

        Args:
            batch_size: rows to draw; this object's own by default.
            return_info: return ``(batch, info)``, where info has ``index`` and what the samplers of
                both say of the rows.

        Raises:
            UsageError: no batch size is given, or the samplers refuse it; or offline and online
                rows have other entries, element types or shapes; the message lists them.
        """
        size = self._size(batch_size)
        buffers, unit = self._pair, unit_of(self._pair, size)
        fraction = self.fraction
        num_offline, carried = self._share.split(size // unit, fraction)
        if num_offline and not len(self.offline):
            raise EmptyBuffer(
                "There are no offline rows to draw. Fill the offline buffer, or give fraction=0."
            )
        counts = {OFFLINE: num_offline * unit, ONLINE: size - num_offline * unit}
        parts = [
            draw_member_batch(buffers, member, count) for member, count in counts.items() if count
        ]
        drawn = [member for member, part in ((OFFLINE, fraction), (ONLINE, 1 - fraction)) if part]
        rows = join_pair(buffers, parts, drawn, self.keys)
        self._share.carried = carried
        self.ran_out = any(part.is_last for part in parts if part.member == OFFLINE)
        if not return_info:
            return self._formatted(self.transform(rows))
        info = joined([part.member for part in parts], [part.info() for part in parts])
        return self._formatted(self.transform(rows)), self._formatted(info)

    def __iter__(self) -> Iterator[Rows]:
        """Yield batches: for ever, or until an offline epoch ends."""
        if self.batch_size is None:
            raise UsageError("Iteration needs a batch size. Give OfflineToOnline a batch_size.")
        while True:
            yield self.sample()
            if self.ran_out:
                return

    def extend(self, data: Rows, update_priority: bool | None = None) -> torch.Tensor:
        """Write rows online; see ``ReplayBuffer.extend``, also for what is returned."""
        return self.online.extend(data, update_priority)

    def add(self, data: Rows) -> int | torch.Tensor | None:
        """Write one row online; see ``ReplayBuffer.add``, also for what is returned."""
        return self.online.add(data)

    @property
    def write_count(self) -> int:
        """Rows written online; see ``ReplayBuffer``."""
        return self.online.write_count

    def update_priority(self, index: TensorDictBase | Mapping[str, Any], priority: Numbers) -> None:
        """Give rows of both buffers new priorities; of a buffer that has none nothing happens.

        Args:
            index: what ``batch["index"]`` is: ``buffer_ids`` and ``index``, int64 ``[B]`` each.
            priority: float ``[B]``, or one number for all.

        Raises:
            UsageError: the index does not say which rows of which buffer, or a row does not exist.
        """
        update_row_priorities(self._pair, index, priority)

    def update_tensordict_priority(self, batch: TensorDictBase | Tree) -> None:
        """Give the rows of a batch of any format the priorities that their buffers look for.

        Each reads its own ``priority_key``; of one without priorities nothing happens.

        Raises:
            UsageError: the batch has none, or no ``index``.
        """
        update_batch_priorities(self._pair, batch)

    def append_transform(self, transform: TransformLike) -> Self:
        """Apply one more transform to every batch, after the others; return the same object."""
        self.transform.append(transform)
        return self

    def set_rng(self, generator: torch.Generator) -> None:
        """Seed the draws of both buffers from a generator."""
        for buffer in self._pair:
            # A seed, and no generator to hand out, so that a dataset is still read ahead.
            seed = int(torch.randint(2**62, (), generator=generator))
            buffer.reader.use_generator(None, seed)

    def dumps(self, path: str | Path) -> None:
        """Write both buffers, and where the fraction stands, into a folder.

        ``path/offline`` and ``path/online`` are what ``ReplayBuffer.dumps`` writes: of a dataset
        its id and content, of the online rows all. An older dump stays until this one is whole.

        Raises:
            UsageError: as ``ReplayBuffer.dumps``.
        """
        dump_pair(self._pair, self._share, Path(path))

    def loads(self, path: str | Path) -> None:
        """Read what ``dumps`` wrote; see ``ReplayBuffer.loads``. Refused, nothing changes.

        Raises:
            UsageError: it was dumped with another fraction, or over another dataset.
        """
        load_pair(self._pair, self._share, Path(path))

    def state_dict(self) -> StateDict:
        """Return the states of both buffers, and where the fraction stands.

        Of a dataset it has the id and the content, of the online rows copies; see ``ReplayBuffer``.
        """
        return pair_state(self._pair, self._share)

    def load_state_dict(self, state: StateDict) -> None:
        """Continue where ``state`` was taken, with the same batches. Refused, nothing changes.

        Raises:
            UsageError: it is no state of such a pair, or of another fraction, anneal or
                min_online, or of another dataset.
        """
        restore_pair(self._pair, self._share, state)

    @property
    def _pair(self) -> tuple[ReplayBuffer, ReplayBuffer]:
        return self.offline, self.online

    def _size(self, batch_size: int | None) -> int:
        size = self.batch_size if batch_size is None else batch_size
        if size is None:
            raise UsageError(
                "No batch size is given. Pass sample(batch_size), or give OfflineToOnline a "
                "batch_size."
            )
        return whole_number("batch_size", size, 1)

    def _formatted(self, rows: Rows) -> Rows:
        return rows if self._format is None else self._format.from_batch(rows)
