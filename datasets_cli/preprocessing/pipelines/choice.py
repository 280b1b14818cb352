"""Which trajectories a run reads: those that a condition holds for, at most this many of them."""

from __future__ import annotations

import numpy as np

from datasets_cli.errors import UsageError
from datasets_cli.replay.episodes.table import Trajectories
from datasets_cli.replay.orders.permutation import permutation
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.replay.views.choices import places_where
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.rows.selection import Selection, whole_dataset


def choose(
    dataset: Dataset, where: str | None, max_trajectories: int | None, seed: int, root: CacheRoot
) -> Selection | None:
    """Return a view of some trajectories of a dataset; None where nothing leaves any out."""
    content, offsets = dataset.manifest.content, dataset.offsets.numpy()
    found = whole_dataset(content, offsets)
    if where is not None:
        places = places_where(where, Trajectories(DatasetStorage(dataset), root))
        if not len(places):
            raise UsageError(
                f"where: {where!r} holds for none of the {len(offsets) - 1:,} trajectories of "
                f"{dataset.manifest.id}. The table of them is ExperienceReplay(...).trajectories."
            )
        found = found.at(places, f"filter({where!r})")
    if max_trajectories is not None and max_trajectories < len(found):
        drawn = permutation(len(found), seed).at(np.arange(max_trajectories))
        found = found.at(np.sort(drawn), f"max_trajectories({max_trajectories}, seed={seed})")
    return found if found.steps else None
