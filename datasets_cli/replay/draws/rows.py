"""Samplers of rows: a draw, of which each item is a row of the batch.

A sampler sees a storage only as a number of rows and a table of trajectories, and draws from the
generator that the buffer hands it: the same generator state gives the same batches.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar

import torch

from datasets_cli.replay.arguments import StateDict
from datasets_cli.replay.draws.draw import Draw, Uniform
from datasets_cli.replay.draws.epochs import Epochs
from datasets_cli.replay.draws.protocol import AheadSampler, Info, check_kind
from datasets_cli.replay.storages.protocol import Storage


def of_draw(name: str) -> Any:
    """Return a property of a sampler that is an attribute of its draw."""
    return property(lambda sampler: getattr(sampler.draw, name), doc=f"``{name}`` of the draw.")


class CutSampler(AheadSampler):
    """A draw under a cut: the one says what comes next, the other makes rows of it."""

    items: ClassVar[str]  # what is drawn
    draw: Draw

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.ran_out = False

    @property
    def kind(self) -> str:
        """The way of drawing, and what is drawn; a state of another kind is refused."""
        return self.draw.kind.format(self.items)

    @property
    def place(self) -> Hashable:
        """Where the draws stand, but for the generator."""
        return self.draw.place

    def advance(self, num_rows: int) -> None:
        """Learn that the next rows of ``ahead`` were handed out, a batch of ``num_rows``."""
        if self.draw.place:  # otherwise it does not count what it gave
            self.draw.advance(num_rows)
            self.ran_out = self.draw.ran_out

    def on_clear(self) -> None:
        """Begin again."""
        self.draw.restart()

    def state_dict(self) -> StateDict:
        """Return the kind, and where the draw stands but for the generator."""
        return {"kind": self.kind} | self.draw.state_dict()

    def load_state_dict(self, state: StateDict) -> None:
        """Continue where ``state`` was taken."""
        if not state and not self.draw.state_dict():
            return  # TorchRL's samplers without a state have an empty one
        check_kind(self.kind, state)
        self.draw.load_state_dict(state)
        self.ran_out = self.draw.ran_out


class SingleRows(CutSampler):
    """Draws rows."""

    items = "rows"

    def __init__(self, draw: Draw) -> None:
        super().__init__(draw)
        self.tells_ahead = type(draw).ahead is not Draw.ahead

    def __repr__(self) -> str:
        return f"SingleRows({self.draw!r})" if type(self) is SingleRows else super().__repr__()

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return rows int64 ``[B]``, fewer at the end of an epoch, and what is said of them."""
        drawn = self.draw.take(storage, storage, batch_size, generator)
        self.ran_out = self.draw.ran_out
        return drawn

    def ahead(
        self, storage: Storage, batch_size: int, count: int, generator: torch.Generator | None
    ) -> tuple[torch.Tensor, Info] | None:
        """Return the row numbers of the next batches; see ``AheadSampler.ahead``."""
        index = self.draw.ahead(storage, batch_size, count, generator)
        return None if index is None else (index, {})


class RandomSampler(SingleRows):
    """Draws rows uniformly, with replacement."""

    def __init__(self) -> None:
        super().__init__(Uniform())


class SamplerWithoutReplacement(SingleRows):
    """Draws every row once an epoch.

    Args:
        drop_last: leave out a last batch that would be short; otherwise the last batch of an epoch
            is shorter where ``batch_size`` does not divide the rows.
        shuffle: draw in random order; in storage order otherwise.
    """

    drop_last, shuffle = map(of_draw, ("drop_last", "shuffle"))

    def __init__(self, drop_last: bool = False, shuffle: bool = True) -> None:
        super().__init__(Epochs(shuffle, drop_last))
