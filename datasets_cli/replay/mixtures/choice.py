"""Which sampler the arguments of a mixture describe."""

from __future__ import annotations

from datasets_cli.errors import UsageError
from datasets_cli.replay.mixtures.epochs import EpochEnd, EpochMix, MixtureEpochs
from datasets_cli.replay.mixtures.options import MixtureOptions
from datasets_cli.replay.mixtures.slice_epochs import MixtureSliceEpochs
from datasets_cli.replay.mixtures.slices import WeightedSlices
from datasets_cli.replay.mixtures.storage import MixtureStorage
from datasets_cli.replay.mixtures.uniform import WeightedRows
from datasets_cli.replay.mixtures.weights import Weights
from datasets_cli.replay.samplers.protocol import Sampler
from datasets_cli.replay.samplers.random import RandomSampler
from datasets_cli.replay.samplers.slicing import slicing_from


def choose_sampler(rows: MixtureStorage, options: MixtureOptions) -> Sampler:
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
