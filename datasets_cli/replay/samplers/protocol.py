"""The protocols of samplers, and ``Draw``: the random part of the samplers of this package."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sized
from functools import cache
from typing import ClassVar, Protocol, TypeGuard

import torch
from tensordict import TensorDictBase

from datasets_cli.errors import EmptyBuffer, OutOfRange, WrongRows, WrongState
from datasets_cli.replay.arguments import Numbers, StateDict
from datasets_cli.replay.samplers.slice_windows import SliceBegins, SliceWindows
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.schema.columns import Key
from datasets_cli.schema.shapes import Items, RowNumbers
from datasets_cli.schema.tree import Tree

Info = dict[Key, torch.Tensor]
"""Columns ``[B, ...]`` about drawn rows, such as their importance weights."""


class Sampler(Protocol):
    """Draws the rows of a batch.

    A custom sampler derives from this class and implements ``sample``, or implements all members
    without deriving. A buffer makes one call at a time.

    Attributes:
        ran_out: whether the last batch ended an epoch; iteration stops there.
        has_priorities: whether this is a ``PrioritySampler``.
        has_slices: whether batches are slices, which cannot be shortened to fewer rows.
        truncated_key: the key in ``Info`` of the flag of each slice's last row; None for no flag.
        init_key: the key in ``Info`` of the flag of each slice's first row; None for no flag.
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
    ) -> tuple[RowNumbers, Info]:
        """Draw the rows of a batch; return their numbers int64 ``[B]`` and their info.

        Args:
            storage: the rows to draw from.
            batch_size: rows to draw.
            generator: the source of randomness; the same state gives the same rows.
        """

    def relabel(self, rows: Tree | TensorDictBase, info: Info) -> None:
        """Modify gathered rows before transforms; by default nothing changes.

        Args:
            rows: the batch, or the nested dict of its leaves ``[B, ...]``, tensors or numpy
                arrays. Replace leaves; do not modify their values. Batches that are not TensorDicts
                are not relabelled.
            info: as returned by ``sample``.
        """
        return

    def on_write(self, rows: RowNumbers) -> None:
        """Called after rows were written; -1 stands for a row that the writer rejected."""
        return

    def on_clear(self) -> None:
        """Called after the storage was cleared."""
        return

    def state_dict(self) -> StateDict:
        """Return the state; a sampler that loads it continues with the same draws."""
        return {}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore a state.

        Raises:
            WrongState: it is the state of another kind of sampler.
        """
        if state:
            raise WrongState(
                f"{type(self).__name__} has no state to load; found {', '.join(state)}.",
                found=list(state),
            )


class AheadSampler(Sampler, Protocol):
    """A sampler that can draw several batches at once.

    A class that overrides ``sample`` overrides ``ahead`` too, or its rows are drawn batch by batch.

    Attributes:
        supports_lookahead: whether ``ahead`` can return rows.
    """

    supports_lookahead: bool = True

    @property
    def version(self) -> Hashable:
        """Changes whenever upcoming draws change for a reason other than the generator."""
        return None

    @abstractmethod
    def ahead(
        self, storage: Storage, batch_size: int, count: int, generator: torch.Generator | None
    ) -> tuple[RowNumbers, Info] | None:
        """Return the rows of the next batches at once, int64 ``[n * batch_size]``, and their info.

        They equal the rows of successive calls of ``sample``. The generator advances; the sampler
        itself advances only by ``advance``.

        Args:
            storage: the rows to draw from, which never change.
            batch_size: rows in each batch.
            count: the largest number of batches.
            generator: the source of randomness; None if it must not be used ahead.

        Returns:
            None if they cannot be drawn ahead, or if a batch could have fewer rows.
        """

    def advance(self, num_rows: int) -> None:
        """Advance by one batch of ``num_rows`` rows, which ``ahead`` returned."""
        return


class PrioritySampler(Sampler, Protocol):
    """A sampler that draws rows by priorities, which training updates."""

    has_priorities: ClassVar[bool] = True

    @abstractmethod
    def update_priority(self, index: Numbers, priority: Numbers) -> None:
        """Set the priorities ``[B]``, or one for all, of the rows ``index`` int64 ``[B]``."""


_WHOLE = torch.int64, torch.int32
_OURS = "replay.samplers.", "replay.goals.", "replay.mixing.", "torchrl.slice_samplers"
_OUR_MODULES = tuple(f"{__name__.partition('.')[0]}.{room}" for room in _OURS)
"""The modules of samplers whose row numbers are not checked: tests prove them valid."""


def draw_rows(
    sampler: Sampler, storage: Storage, batch_size: int, generator: torch.Generator
) -> tuple[RowNumbers, Info]:
    """Return the row numbers that a sampler draws, checked, and their info."""
    if not len(storage):
        raise EmptyBuffer(storage.no_rows)
    index, info = sampler.sample(storage, batch_size, generator)
    check_rows(sampler, storage, index)
    if storage.generations is not None:
        info = {**info, ("index_generation",): storage.generations.of(index)}
    return index, info


def check_rows(sampler: Sampler, storage: Storage, index: RowNumbers) -> None:
    """Raise if a custom sampler drew rows that do not exist."""
    # A row beyond the last written one has stale values of its memory or file.
    if type(sampler).__module__.startswith(_OUR_MODULES):
        return
    expected = f"int64 [B], each from 0 to {len(storage) - 1}"
    error: type[WrongRows | OutOfRange] = OutOfRange
    if not isinstance(index, torch.Tensor) or index.ndim != 1 or index.dtype not in _WHOLE:
        form = getattr(index, "dtype", type(index).__name__)
        error, found = WrongRows, f"{form} {list(getattr(index, 'shape', ()))}"
    elif not len(index) or 0 <= int(index.min()) <= int(index.max()) < len(storage):
        return
    else:
        found = f"{int(index.min())} to {int(index.max())}"
    raise error(
        f"{sampler!r} drew invalid row numbers: expected {expected}, found {found}.",
        expected=expected,
        found=found,
        advice="Return the numbers of stored rows from its sample().",
    )


def check_kind(kind: str, state: StateDict) -> None:
    """Raise ``WrongState`` unless a state is of the given kind of sampler."""
    if (found := state.get("kind")) != kind:
        raise WrongState(
            f"The state belongs to a sampler of {found or 'an unknown kind'}, not of {kind}.",
            expected=kind,
            found=found,
            advice="Load it into a sampler of that kind, or continue without it.",
        )


def has_priorities(sampler: Sampler) -> TypeGuard[PrioritySampler]:
    """Return whether a sampler draws by priorities."""
    return sampler.has_priorities


def supports_lookahead(sampler: Sampler) -> TypeGuard[AheadSampler]:
    """Return whether ``ahead`` of a sampler can return the rows that its ``sample`` will draw."""
    return getattr(sampler, "supports_lookahead", False) and _samples_by_lookahead(type(sampler))


@cache
def _samples_by_lookahead(kind: type[Sampler]) -> bool:
    """Return whether no subclass overrides ``sample`` without overriding ``ahead``."""
    methods = (vars(base).keys() & {"ahead", "sample"} for base in kind.__mro__)
    return "ahead" in next(filter(None, methods))


class Draw(ABC):
    """Draws items: rows, or the trajectories that slices are cut from.

    The only state of an independent draw is the generator: one large draw equals several small
    ones, and can be drawn ahead. Any other draw that supports lookahead overrides ``ahead``.
    """

    # kind: the way of drawing; {} is replaced by the kind of the items.
    # ran_out: whether the last items ended an epoch.
    # version: changes whenever upcoming draws change for a reason other than the generator.

    kind: ClassVar[str]
    is_independent: ClassVar[bool] = False
    ran_out = False
    version = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @abstractmethod
    def take(
        self, storage: Storage, items: Sized, count: int, generator: torch.Generator
    ) -> tuple[Items, Info]:
        """Return ``count`` items, fewer at the end of an epoch, and their info.

        ``items`` is the storage, for rows, or its ``SliceWindows``, for trajectories.
        """

    def take_slices(
        self, storage: Storage, windows: SliceWindows, count: int, generator: torch.Generator
    ) -> tuple[SliceBegins, Info]:
        """Return where ``count`` slices begin, and the info of each slice."""
        drawn, info = self.take(storage, windows, count, generator)
        uniform = torch.rand(len(drawn), generator=generator, dtype=torch.float64)
        return windows.begins(drawn, uniform), info

    def ahead(
        self, storage: Storage, batch_size: int, count: int, generator: torch.Generator | None
    ) -> RowNumbers | None:
        """Return the rows of the next batches; see ``AheadSampler.ahead``."""
        if generator is None or not self.is_independent:
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
        """Return where the slices of the next batches begin; see ``AheadSampler.ahead``."""
        if generator is None or not self.is_independent:
            return None
        return self.take_slices(storage, windows, count * num_slices, generator)[0]

    def advance(self, count: int) -> None:
        """Advance by ``count`` rows, which ``ahead`` returned."""
        return

    def restart(self) -> None:
        """Return to the initial state, after the storage was cleared."""
        return

    def state_dict(self) -> StateDict:
        """Return the state, without that of the generator."""
        return {}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore a state of the same kind."""
        return


class Uniform(Draw):
    """Draws items uniformly, with replacement."""

    kind = "uniform {}"
    is_independent = True

    def take(
        self, storage: Storage, items: Sized, count: int, generator: torch.Generator
    ) -> tuple[Items, Info]:
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
        if generator is None:
            return None
        drawn = torch.empty((count, num_slices), dtype=torch.int64)
        uniform = torch.empty((count, num_slices), dtype=torch.float64)
        # In the order of `take_slices`: trajectories, then starts, batch by batch.
        for trajectories, starts in zip(drawn.unbind(), uniform.unbind(), strict=True):
            trajectories.random_(len(windows), generator=generator)
            starts.uniform_(generator=generator)
        return windows.begins(drawn.view(-1), uniform.view(-1))
