"""Priorities on a device: how much it is asked to do, and that its draws are those of the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from datasets_cli import PrioritizedSampler, PrioritizedSliceSampler
from datasets_cli.errors import EmptyBuffer, OutOfRange
from tests.support.stand_in_device import DEVICE, StandInDevice
from tests.support.trajectory_rows import TrajectoryRows, chi_square_score

ROWS = TrajectoryRows([600, 400])
WEIGHT = ("priority_weight",)


@pytest.fixture
def device() -> Iterator[StandInDevice]:
    with StandInDevice() as device:
        yield device


def filled(priority: torch.Tensor, **options: Any) -> PrioritizedSampler:
    sampler = PrioritizedSampler(1000, 0.7, 0.5, **options)
    sampler.update_priority(torch.arange(1000), priority)
    return sampler


def draw(sampler: PrioritizedSampler, count: int = 256) -> tuple[torch.Tensor, torch.Tensor]:
    rows, info = sampler.sample(ROWS, count, torch.Generator().manual_seed(0))  # type: ignore[arg-type]
    return rows, info[WEIGHT]


def test_a_training_step_takes_fifteen_operations_and_one_wait_for_each_half(
    device: StandInDevice,
) -> None:
    sampler = filled(torch.rand(1000), device=DEVICE)
    rows, _ = draw(sampler)
    loss = torch.rand(256).to(DEVICE)
    device.clear()
    sampler.update_priority(rows, loss)
    assert (len(device.operations) <= 15, len(device.waits), device.sent) == (True, 1, [])
    device.clear()
    draw(sampler)
    assert (len(device.operations) <= 15, len(device.waits)) == (True, 1)
    assert device.sent == [256 * 8]  # the chances; a generator on the device draws them there


def test_rows_and_weights_are_those_of_the_cpu(device: StandInDevice) -> None:
    priority = torch.rand(1000, dtype=torch.float64).round(decimals=1)
    rows, weights = draw(filled(priority, eps=0.0, dtype=torch.double, device=DEVICE), 5000)
    right, right_weights = draw(filled(priority, eps=0.0, dtype=torch.double), 5000)
    assert rows.device == DEVICE and (priority[right] > 0).all()
    assert torch.equal(rows.cpu(), right)
    torch.testing.assert_close(weights.cpu(), right_weights)


def test_rows_are_drawn_in_proportion_to_the_power_of_their_priority(device: StandInDevice) -> None:
    priority = torch.rand(1000, dtype=torch.float64) + 0.1
    rows, _ = draw(filled(priority, eps=0.0, device=DEVICE), 100_000)
    weights = priority.numpy() ** 0.7
    counts = np.bincount(rows.cpu().numpy(), minlength=1000)
    assert abs(chi_square_score(counts, 100_000 * weights / weights.sum())) < 4


def test_of_equal_rows_the_last_counts(device: StandInDevice) -> None:
    sampler = filled(torch.zeros(()), eps=0.0, device=DEVICE)
    sampler.update_priority(torch.tensor([4, 9, 4, -1]), torch.tensor([1.0, 2.0, 0.0, 7.0]))
    assert set(draw(sampler)[0].cpu().tolist()) == {9}
    sampler.update_priority(torch.tensor([9]), 0.0)
    with pytest.raises(EmptyBuffer):
        draw(sampler)
    with pytest.raises(OutOfRange) as error:
        sampler.update_priority(torch.tensor([-2]), 1.0)
    assert error.value.row == -2


def test_slices_begin_where_there_is_room(device: StandInDevice) -> None:
    sampler = PrioritizedSliceSampler(1000, 0.7, 0.5, slice_len=500, device=DEVICE)
    sampler.update_priority(torch.arange(1000), torch.rand(1000))
    rows, _ = sampler.sample(ROWS, 2000, torch.Generator().manual_seed(0))  # type: ignore[arg-type]
    first = rows.cpu().view(4, 500)[:, 0]
    assert rows.device == DEVICE and (first <= 100).all()  # of 600 rows; 400 have no room
