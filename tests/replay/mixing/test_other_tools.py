"""What mixtures of other tools get wrong, by their bug reports."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from torch.utils.data._utils.worker import WorkerInfo

from datasets_cli import Mixture
from datasets_cli.replay.samplers import rows as distributed
from datasets_cli.replay.storages.dataset import DatasetStorage
from tests.support.trajectory_rows import chi_square_score

Members = list[DatasetStorage]
WEIGHTS = [0.6, 0.3, 0.1]


def drawn(mixture: Mixture) -> list[int]:
    return [row for batch in mixture for row in batch["index"].tolist()]


@pytest.mark.parametrize("epoch", ["first", "last"])
def test_ranks_draw_no_row_of_an_interleaved_epoch_again(members: Members, epoch: str) -> None:
    """Ranks drew the same rows of interleaved datasets (huggingface/datasets#7868)."""
    arguments = {"weights": WEIGHTS, "epoch": epoch, "seed": 1}
    whole = Counter(drawn(Mixture(members[:3], 5, **arguments)))
    shared: Counter[int] = Counter()
    for rank in range(4):
        shared.update(drawn(Mixture(members[:3], 5, num_replicas=4, rank=rank, **arguments)))
    assert shared == whole


def test_more_workers_than_members_all_have_rows_of_a_shuffled_epoch(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers beyond the number of shards had none after a shuffle (huggingface/datasets#8669)."""
    shares = []
    for worker in range(8):
        mixture = Mixture(members[:2], 4, epoch="all")
        told = WorkerInfo(worker, 8, 0, mixture)
        monkeypatch.setattr(distributed, "get_worker_info", lambda told=told: told)
        shares.append(drawn(mixture))
    assert {len(rows) for rows in shares} == {6, 7}
    assert sorted(row for rows in shares for row in rows) == [*range(54)]


@pytest.mark.parametrize("slice_len", [None, 3])
def test_every_rank_keeps_the_weights_whatever_the_sizes(
    members: Members, slice_len: int | None
) -> None:
    """A list of datasets was drawn by size, weights or not (huggingface/lerobot#912, #1383)."""
    for rank in range(2):
        mixture = Mixture(members[:3], 300, weights=WEIGHTS, slice_len=slice_len, seed=rank)
        members_drawn = np.concatenate(
            [mixture.sample()["member"][:: slice_len or 1] for _ in range(30)]
        )
        counts = np.bincount(members_drawn, minlength=3)
        assert abs(chi_square_score(counts, len(members_drawn) * np.array(WEIGHTS))) < 4


def test_shares_of_an_epoch_are_the_weights_on_every_rank(members: Members) -> None:
    """Of ranks that share an epoch each has its part of each member."""
    for rank in range(3):
        mixture = Mixture(
            members[:3], 10, weights=WEIGHTS, epoch="last", num_replicas=3, rank=rank, seed=0
        )
        counts = np.bincount([int(m) for batch in mixture for m in batch["member"]], minlength=3)
        assert abs(chi_square_score(counts, counts.sum() * np.array(WEIGHTS))) < 4
