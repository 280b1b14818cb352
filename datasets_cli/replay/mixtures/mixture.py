"""Mixture: several datasets, views and buffers as one replay buffer, drawn by weights."""

from __future__ import annotations

from dataclasses import replace

from datasets_cli.errors import UsageError
from datasets_cli.options import part_of, takes_fields
from datasets_cli.replay.buffers.options import TensorDictBatchOptions
from datasets_cli.replay.buffers.tensordict import TensorDictReplayBuffer
from datasets_cli.replay.draws.protocol import Sampler
from datasets_cli.replay.draws.random import RandomSampler
from datasets_cli.replay.draws.slicing import slicing_from
from datasets_cli.replay.mixtures.epochs import (
    EpochEnd,
    EpochMix,
    MixtureEpochs,
    MixtureSliceEpochs,
)
from datasets_cli.replay.mixtures.member import mixture_storage
from datasets_cli.replay.mixtures.options import MixtureOptions
from datasets_cli.replay.mixtures.slices import WeightedSlices
from datasets_cli.replay.mixtures.storage import MixtureStorage
from datasets_cli.replay.mixtures.uniform import WeightedRows
from datasets_cli.replay.mixtures.weights import Weights


class Mixture(TensorDictReplayBuffer):
    """Draws rows of several datasets, views and buffers, by weights.

        mixture = Mixture({medium: 0.7, expert: 0.3}, batch_size=256)
        mixture.sample()["member"]      0, 1, 0, 0, 0, 1, 0, ...

    A batch has ``"member"``, int64 ``[B]``: which member a row is of, by its place in ``members``.
    A member is drawn by its weight, then a row of it, or a trajectory, uniformly. Without
    replacement the draws are shared in epochs among ranks and loader workers, as those of
    ``DistributedSampler``, and no item is drawn twice for it.

    Raises:
        UsageError: members have different columns or mean different things by their numbers, and
            nothing says how to map them; a member cannot be mixed; or arguments exclude one
            another.
    """

    @takes_fields(MixtureOptions)
    def __init__(self, options: MixtureOptions) -> None:
        rows = mixture_storage(options.sources, options.accept)
        if options.prefetch and rows.written:
            raise UsageError(
                f"{', '.join(rows.written)}: rows are written to it, and batches that were made "
                "ahead would be of older ones. Leave out prefetch."
            )
        batches = part_of(options, TensorDictBatchOptions)
        if options.sampler is None:
            batches = replace(batches, sampler=_choose_sampler(rows, options))
        super().__init__(storage=rows, batch_size=options.batch_size, **vars(batches))
        self._rows = rows

    @property
    def members(self) -> tuple[str, ...]:
        """The names of the members; a batch has their places, in ``"member"``."""
        return self._rows.names


def _choose_sampler(rows: MixtureStorage, options: MixtureOptions) -> Sampler:
    """Return the sampler that the options describe, over the members' rows."""
    given = options.given_weights
    weights = Weights("rows" if given is None else given, rows.names)
    slicing = slicing_from(options)
    if options.epoch is None:
        if slicing is not None:
            return WeightedSlices(weights, slicing)
        return RandomSampler() if weights.given == "rows" else WeightedRows(weights)
    _check_epoch(rows, weights, options.epoch)
    mix = EpochMix(weights, options.epoch)
    shared = options.num_replicas, options.rank, options.seed or 0, options.drop_last
    if slicing is None:
        return MixtureEpochs(mix, *shared)
    return MixtureSliceEpochs(mix, slicing, *shared)


def _check_epoch(rows: MixtureStorage, weights: Weights, end: EpochEnd) -> None:
    if end not in ("all", "first", "last"):
        raise UsageError(f"epoch is 'all', 'first', 'last' or None, not {end!r}.")
    if end == "all" and weights.given != "rows":
        raise UsageError(
            f"epoch='all' draws everything once, so that the weights {weights.state()} cannot be "
            "kept. Leave them out, or let the epoch end with epoch='first' or epoch='last'."
        )
    if rows.written:
        raise UsageError(
            f"{', '.join(rows.written)}: rows are written to it, so that an epoch of the mixture "
            "would change while it is drawn. Leave out epoch= to draw with replacement."
        )
