"""What a mixture takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

from datasets_cli.errors import UsageError
from datasets_cli.replay.buffers.buffer import ReplayBuffer
from datasets_cli.replay.buffers.options import TensorDictBatchOptions
from datasets_cli.replay.draws.slicing import SliceOptions
from datasets_cli.replay.mixtures.epochs import EpochEnd
from datasets_cli.replay.mixtures.member import Member, Source
from datasets_cli.replay.mixtures.weights import WeightsLike


@dataclass(frozen=True)
class MixtureOptions(TensorDictBatchOptions, SliceOptions):
    """What a mixture takes.

    Args:
        members: weights by member; or a list of members, drawn as ``weights`` says. A member is a
            buffer or the storage of a dataset, or a ``Member`` that maps its columns.
        batch_size: rows in a batch; ``sample`` can override it.
        weights: of a list of members: ``"rows"``, by default, or ``"trajectories"``, of which a
            member has so many more than another; or a number for each.
        epoch: draw without replacement, in epochs: of every row once (``"all"``, which has no
            weights), until the first member has none left (``"first"``), or the last (``"last"``,
            where the others' rows come again). None draws with replacement, for ever.
        num_slices: slices of trajectories in a batch; an epoch is of trajectories then.
        drop_last: leave out what the processes do not divide of an epoch, so that each draws
            equally many; otherwise some draw one row, or trajectory, less.
        num_replicas: ranks that share an epoch; those of ``torch.distributed`` by default, or 1.
        rank: which one this is; that of ``torch.distributed`` by default, or 0.
        sampler: how rows are drawn, in place of weights, epochs and slices.
        accept: what members may differ in, such as ``["discount"]``, where it is known of them.
        transform: applied to every batch.
        collate_fn: called with the batch, before the transform.
        generator: draws rows, exclusive with ``seed``; by default one of the mixture's own, which
            torch's global one seeds at the first draw.
        seed: seeds a generator of the mixture's own, and orders epochs (by 0 where it is None).
    """

    members: Mapping[Source, float] | Sequence[Source]
    batch_size: int | None = None
    _: KW_ONLY
    weights: WeightsLike | None = None
    epoch: EpochEnd | None = None
    drop_last: bool = False
    num_replicas: int | None = None
    rank: int | None = None
    accept: Sequence[str] = ()

    def __post_init__(self) -> None:
        self._check_members()
        self._check_drawing()

    @property
    def sources(self) -> list[Source]:
        """The members, as they are given."""
        return list(self.members)

    @property
    def given_weights(self) -> WeightsLike | None:
        """The weights, where they are given."""
        return list(self.members.values()) if isinstance(self.members, Mapping) else self.weights

    def _check_members(self) -> None:
        if isinstance(self.members, Mapping):
            if self.weights is not None:
                raise UsageError("Members are given with their weights, and weights= gives others.")
        # A buffer is iterable, too: a list of its batches would never end.
        elif isinstance(self.members, ReplayBuffer | Member) or not isinstance(
            self.members, Iterable
        ):
            raise UsageError(
                "The members of a mixture are given as {buffer: weight, another: weight}, or as a "
                f"list of them; not as one {type(self.members).__name__}."
            )

    def _check_drawing(self) -> None:
        """Check that no argument on draws is without an effect."""
        epochs = {
            "drop_last": self.drop_last,
            "num_replicas": self.num_replicas is not None,
            "rank": self.rank is not None,
        }
        drawing = {
            "weights": self.given_weights is not None,
            "epoch": self.epoch is not None,
            "slices": self.has_slices,
            **epochs,
        }
        found = [name for name, is_given in drawing.items() if is_given]
        if self.sampler is not None and found:
            raise UsageError(
                f"A sampler draws by itself: {', '.join(found)} would do nothing. Leave out one or "
                "the other; weights of a mixture are no part of a sampler that is given."
            )
        of_epochs = [name for name, is_given in epochs.items() if is_given]
        if of_epochs and self.epoch is None:
            raise UsageError(
                f"{', '.join(of_epochs)}: only epochs are shared out. Pass epoch='all', 'first' or "
                "'last', too; with replacement, give each rank a seed of its own."
            )
        if self.generator is not None and self.epoch is not None and not self.has_slices:
            raise UsageError(
                "The rows of an epoch are ordered by seed=, which is the same in all processes, "
                "and not by a generator. Pass seed=."
            )
