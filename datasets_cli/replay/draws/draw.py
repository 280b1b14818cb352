"""A draw: which items come next. A cut, ``SingleRows`` or ``Slices``, makes batches of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sized
from typing import ClassVar

import torch

from datasets_cli.errors import EmptyBuffer
from datasets_cli.replay.arguments import StateDict
from datasets_cli.replay.draws.protocol import Info
from datasets_cli.replay.draws.windows import SliceWindows
from datasets_cli.replay.storages.protocol import Storage

SliceBegins = tuple[torch.Tensor, torch.Tensor | None]
"""Where slices begin, int64 ``[S]``, and how many rows each has, int64 ``[S]``; None: all of them.

``SliceWindows.rows`` takes both.
"""


class Draw(ABC):
    """Draws items: rows, or the trajectories that slices are cut from."""

    # kind: how items are drawn; {} stands for what they are.
    # One that can tell what comes next overrides `ahead`, of rows, or `slices_ahead`, or both.
    # ran_out: whether the items just drawn were the last of an epoch.
    # place: another number whenever what comes next has changed otherwise than by the generator.

    kind: ClassVar[str]
    ran_out = False
    place = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @abstractmethod
    def take(
        self, storage: Storage, items: Sized, count: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return items int64 ``[count]``, fewer at the end of an epoch, and what is said of them.

        Items are the rows of ``storage``, or the trajectories of the ``SliceWindows`` given.
        """

    def take_slices(
        self, storage: Storage, windows: SliceWindows, count: int, generator: torch.Generator
    ) -> tuple[SliceBegins, Info]:
        """Return where ``count`` slices begin, and what is said of each of them."""
        drawn, info = self.take(storage, windows, count, generator)
        uniform = torch.rand(len(drawn), generator=generator, dtype=torch.float64)
        return windows.begins(drawn, uniform), info

    def ahead(
        self, storage: Storage, batch_size: int, count: int, generator: torch.Generator | None
    ) -> torch.Tensor | None:
        """Return the rows of the next batches; see ``AheadSampler.ahead``."""
        return None

    def slices_ahead(
        self,
        storage: Storage,
        windows: SliceWindows,
        num_slices: int,
        count: int,
        generator: torch.Generator | None,
    ) -> SliceBegins | None:
        """Return where the slices of the next batches begin; see ``AheadSampler.ahead``."""
        return None

    def advance(self, count: int) -> None:
        """Learn that the next ``count`` rows of ``ahead`` were handed out."""
        return

    def restart(self) -> None:
        """Forget what was drawn: the rows are others."""
        return

    def state_dict(self) -> StateDict:
        """Return where the draw stands, but for the generator."""
        return {}

    def load_state_dict(self, state: StateDict) -> None:
        """Continue where ``state``, which is of the same kind, was taken."""
        return


class IndependentDraw(Draw):
    """Draws by the generator alone: many items at once are those of batch after batch."""

    def ahead(
        self, storage: Storage, batch_size: int, count: int, generator: torch.Generator | None
    ) -> torch.Tensor | None:
        """Return the rows of the next batches."""
        if generator is None:
            return None
        return self.take(storage, storage, count * batch_size, generator)[0]

    def slices_ahead(
        self,
        storage: Storage,
        windows: SliceWindows,
        num_slices: int,
        count: int,
        generator: torch.Generator | None,
    ) -> SliceBegins | None:
        """Return where the slices of the next batches begin."""
        if generator is None:
            return None
        return self.take_slices(storage, windows, count * num_slices, generator)[0]


class Uniform(IndependentDraw):
    """Draws items uniformly, with replacement."""

    kind = "uniform {}"

    def take(
        self, storage: Storage, items: Sized, count: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return items int64 ``[count]``."""
        if not (num_items := len(items)):
            raise EmptyBuffer(storage.no_rows)
        return torch.randint(num_items, (count,), generator=generator), {}

    def slices_ahead(
        self,
        storage: Storage,
        windows: SliceWindows,
        num_slices: int,
        count: int,
        generator: torch.Generator | None,
    ) -> SliceBegins | None:
        """Return where the slices of the next batches begin."""
        if generator is None:
            return None
        drawn = torch.empty((count, num_slices), dtype=torch.int64)
        uniform = torch.empty((count, num_slices), dtype=torch.float64)
        for trajectories, starts in zip(drawn.unbind(), uniform.unbind(), strict=True):
            trajectories.random_(len(windows), generator=generator)  # batch by batch, as taken
            starts.uniform_(generator=generator)
        return windows.begins(drawn.view(-1), uniform.view(-1))
