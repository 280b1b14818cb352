"""Priorities on a GPU, whose sums are rounded in any order: draws, weights, updates and waits."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch

from datasets_cli import PrioritizedSampler
from tests.device import needs_gpu
from tests.support.trajectory_rows import TrajectoryRows, chi_square_score

pytestmark = needs_gpu
ROWS: Any = TrajectoryRows([1_000_000])


def filled(priority: torch.Tensor, **options: Any) -> PrioritizedSampler:
    sampler = PrioritizedSampler(len(ROWS), 0.7, 0.5, device="cuda", **options)
    sampler.update_priority(torch.arange(len(priority)), priority)
    return sampler


def draw(sampler: PrioritizedSampler, count: int, seed: int = 0) -> tuple[torch.Tensor, Any]:
    return sampler.sample(ROWS, count, torch.Generator().manual_seed(seed))


def test_rows_are_drawn_in_proportion_and_have_the_weights_of_the_formula() -> None:
    priority = torch.ones(len(ROWS), dtype=torch.float64)
    priority[:1000] = torch.rand(1000, dtype=torch.float64) * 5000 + 500
    rows, info = draw(filled(priority, eps=0.0, dtype=torch.double), 1_000_000)
    weights = priority.numpy() ** 0.7
    counts = np.bincount(rows.cpu().numpy(), minlength=len(ROWS))[:1000]
    expected = 1_000_000 * weights / weights.sum()
    assert abs(chi_square_score(counts, expected[:1000], freedom=1000)) < 4
    likelier = (weights / weights.min())[rows.cpu()] ** -0.5
    np.testing.assert_allclose(info["priority_weight",].cpu().numpy(), likelier, rtol=1e-12)


def test_no_row_without_weight_is_drawn_whatever_the_magnitudes() -> None:
    priority = torch.rand(len(ROWS), dtype=torch.float64) * 10.0 ** torch.randint(
        -12, 12, (len(ROWS),)
    )
    priority[torch.rand(len(ROWS)) < 0.5] = 0.0
    sampler = filled(priority, eps=0.0)
    for seed in range(20):
        rows, _ = draw(sampler, 1_000_000, seed)
        assert bool((priority[rows.cpu()] > 0).all())


def test_of_equal_rows_the_last_counts() -> None:
    sampler = filled(torch.ones(len(ROWS)))
    rows, values = torch.randint(500, (100_000,)), torch.rand(100_000, dtype=torch.float64)
    sampler.update_priority(rows.cuda(), values.cuda())
    right = np.ones(500)
    right[rows.numpy()] = values.numpy()  # numpy writes in order
    assert np.array_equal(sampler.state_dict()["priorities"][:500].cpu().numpy(), right)


def test_a_draw_and_an_update_wait_once_each() -> None:
    sampler = filled(torch.rand(len(ROWS)))
    rows, _ = draw(sampler, 256)
    loss = torch.rand(256, device="cuda")
    with warnings.catch_warnings(record=True) as waits:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            sampler.update_priority(rows, loss)
            draw(sampler, 256)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert len([each for each in waits if "synchroniz" in str(each.message)]) == 2
