"""Mixture: several datasets, views and buffers as one replay buffer, drawn by weights."""

from __future__ import annotations

from dataclasses import replace

from datasets_cli.errors import UsageError
from datasets_cli.options import part_of, takes_fields
from datasets_cli.replay.buffers.options import TensorDictBatchOptions
from datasets_cli.replay.buffers.tensordict import TensorDictReplayBuffer
from datasets_cli.replay.mixtures.choice import choose_sampler
from datasets_cli.replay.mixtures.member import mixture_storage
from datasets_cli.replay.mixtures.options import MixtureOptions


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
            batches = replace(batches, sampler=choose_sampler(rows, options))
        super().__init__(storage=rows, batch_size=options.batch_size, **vars(batches))
        self._rows = rows

    @property
    def members(self) -> tuple[str, ...]:
        """The names of the members; a batch has their places, in ``"member"``."""
        return self._rows.names
