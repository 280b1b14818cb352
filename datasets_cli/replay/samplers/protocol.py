"""What a sampler is to the rest of the library."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sized
from functools import cache
from pathlib import Path
from typing import ClassVar, Protocol, TypeGuard

import torch
from tensordict import TensorDictBase

from datasets_cli.errors import EmptyBuffer, UsageError
from datasets_cli.replay.arguments import Numbers, StateDict
from datasets_cli.replay.samplers.windows import SliceWindows
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.storages.state_files import STATE, read_state, write_state
from datasets_cli.schema.columns import Key
from datasets_cli.schema.tree import Tree

Info = dict[Key, torch.Tensor]
"""What a sampler says of the rows that it drew: columns ``[B, ...]``."""


class Sampler(Protocol):
    """Draws the rows of a batch.

    A sampler of your own derives from this class and writes ``sample``; or it derives from nothing
    and has all members. A buffer makes one call at a time.

    Attributes:
        ran_out: whether the batch just drawn was the last of an epoch; iteration stops there.
        has_priorities: whether this is a ``PrioritySampler``.
        has_slices: whether batches are slices, which cannot be cut to fewer rows.
        truncated_key: where the last row of each slice is marked in ``Info``; None for nowhere.
        init_key: where the first row of each slice is marked in ``Info``; None for nowhere.
    """

    ran_out: bool = False
    has_priorities: ClassVar[bool] = False
    has_slices: bool = False
    truncated_key: Key | None = None
    init_key: Key | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @abstractmethod
    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return row numbers int64 ``[B]`` and what is said of these rows.

        Args:
            storage: whose rows.
            batch_size: rows to draw.
            generator: what to draw from; the same state gives the same rows.
        """

    def relabel(self, rows: Tree | TensorDictBase, info: Info) -> None:
        """Change what gathered rows say, before transforms; by default nothing.

        Args:
            rows: the batch, or the nested dict of its leaves ``[B, ...]``, tensors or arrays of
                numpy; leaves may be put in place of others, which must not change. Batches of
                something else than TensorDicts never come.
            info: what ``sample`` said of them.
        """
        return

    def on_write(self, rows: torch.Tensor) -> None:
        """Learn which rows int64 ``[n]`` were written; -1 is one that the writer refused."""
        return

    def on_clear(self) -> None:
        """Learn that the storage does not have rows any more."""
        return

    def state_dict(self) -> StateDict:
        """Return what it takes to continue with the same draws."""
        return {}

    def load_state_dict(self, state: StateDict) -> None:
        """Continue where ``state`` was taken.

        Raises:
            UsageError: the state is of another kind of sampler.
        """
        if state:
            raise UsageError(f"A {type(self).__name__} keeps no state; found {', '.join(state)}.")


class AheadSampler(Sampler, Protocol):
    """A sampler that can tell the rows of batches before they are asked for.

    A class that overrides ``sample`` overrides ``ahead`` too, or its rows are drawn batch by batch.

    Attributes:
        supports_lookahead: whether ``ahead`` ever returns rows.
    """

    supports_lookahead: bool = True

    @property
    def version(self) -> Hashable:
        """Where the draws stand, but for the generator; rows drawn ahead hold for one place."""
        return None

    @abstractmethod
    def ahead(
        self, storage: Storage, batch_size: int, count: int, generator: torch.Generator | None
    ) -> tuple[torch.Tensor, Info] | None:
        """Return the rows of the next batches at once, int64 ``[n * batch_size]``, and their info.

        They are those that ``sample`` returns one after the other. The generator moves on; the
        sampler itself stays where it is until ``advance``.

        Args:
            storage: whose rows, which never change.
            batch_size: rows in each batch.
            count: batches at most.
            generator: what to draw from; None where nothing may be drawn from it ahead.

        Returns:
            None where they cannot be told, or need not all have ``batch_size`` rows.
        """

    def advance(self, num_rows: int) -> None:
        """Learn that the next rows of ``ahead`` were handed out, a batch of ``num_rows``."""
        return


class PrioritySampler(Sampler, Protocol):
    """Draws rows by priorities that a training step hands back."""

    has_priorities: ClassVar[bool] = True

    @abstractmethod
    def update_priority(self, index: Numbers, priority: Numbers) -> None:
        """Give the rows ``index`` int64 ``[B]`` new priorities, ``[B]`` or one for all."""

    def dumps(self, path: Path) -> None:
        """Write the state into a folder, which is made; as JSON, if not overridden."""
        write_state(path / STATE, self.state_dict())

    def loads(self, path: Path) -> None:
        """Read what ``dumps`` wrote.

        Raises:
            MissingFile: nothing was written there.
        """
        self.load_state_dict(read_state(path / STATE))


_WHOLE = torch.int64, torch.int32
_OURS = "replay.samplers.", "replay.goals.", "replay.mixing.", "torchrl.slice_samplers"
_OUR_MODULES = tuple(f"{__name__.partition('.')[0]}.{room}" for room in _OURS)
"""Where samplers are whose rows tests prove to be there."""


def draw_rows(
    sampler: Sampler, storage: Storage, batch_size: int, generator: torch.Generator
) -> tuple[torch.Tensor, Info]:
    """Return what a sampler draws: row numbers int64 ``[B]``, checked, and what is said of them."""
    if not len(storage):
        raise EmptyBuffer(storage.no_rows)
    index, info = sampler.sample(storage, batch_size, generator)
    check_rows(sampler, storage, index)
    if storage.generations is not None:
        info = {**info, ("index_generation",): storage.generations.of(index)}
    return index, info


def check_rows(sampler: Sampler, storage: Storage, index: torch.Tensor) -> None:
    """Check that rows which a sampler not of this package drew are there."""
    # A row beyond the last that was written has what its memory or its file had before.
    if type(sampler).__module__.startswith(_OUR_MODULES):
        return
    shown = f"int64 [B], each from 0 to {len(storage) - 1}"
    if not isinstance(index, torch.Tensor) or index.ndim != 1 or index.dtype not in _WHOLE:
        form = getattr(index, "dtype", type(index).__name__)
        found = f"{form} {list(getattr(index, 'shape', ()))}"
    elif not len(index) or 0 <= int(index.min()) <= int(index.max()) < len(storage):
        return
    else:
        found = f"{int(index.min())} to {int(index.max())}"
    raise UsageError(
        f"{sampler!r} drew rows that are not there: expected {shown}, found {found}. Let its "
        "sample() return numbers of rows that were written."
    )


def check_kind(kind: str, state: StateDict) -> None:
    """Check that a state is of a kind of sampler."""
    if (given := state.get("kind")) != kind:
        raise UsageError(
            f"The state is of a sampler of {given or 'an unknown kind'}, not of {kind}. Load it "
            "into a sampler of that kind, or begin without this state."
        )


def has_priorities(sampler: Sampler) -> TypeGuard[PrioritySampler]:
    """Return whether a sampler takes priorities."""
    return sampler.has_priorities


def supports_lookahead(sampler: Sampler) -> TypeGuard[AheadSampler]:
    """Return whether a sampler can say what its ``sample`` will draw."""
    return getattr(sampler, "supports_lookahead", False) and _samples_by_lookahead(type(sampler))


@cache
def _samples_by_lookahead(kind: type[Sampler]) -> bool:
    """Return whether no class overrides ``sample`` below the one that has ``ahead``."""
    methods = (vars(base).keys() & {"ahead", "sample"} for base in kind.__mro__)
    return "ahead" in next(filter(None, methods))


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
    version = 0

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
