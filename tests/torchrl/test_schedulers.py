"""Schedulers of a sampler's numbers, against TorchRL's on its own sampler."""

from __future__ import annotations

from typing import Any

import pytest
import torchrl.data.replay_buffers as theirs
from torchrl.data.replay_buffers import scheduler as their_schedulers

import datasets_cli as ours
from datasets_cli import LinearScheduler, PrioritizedSampler, StepScheduler
from datasets_cli.errors import UsageError, WrongState
from tests.support.torchrl_trees import trees  # noqa: F401

SCHEDULES: list[tuple[str, dict[str, Any]]] = [
    ("LinearScheduler", {"final_value": 1.0, "num_steps": 7}),
    ("LinearScheduler", {"final_value": 0.1, "num_steps": 1}),
    ("StepScheduler", {}),
    ("StepScheduler", {"gamma": 0.1, "n_steps": 3, "mode": "additive", "max_value": 0.9}),
    ("StepScheduler", {"gamma": 0.5, "n_steps": 2, "min_value": 0.2}),
]


def betas(library: Any, kind: Any, arguments: dict[str, Any], of_buffer: bool) -> list[float]:
    sampler = library.PrioritizedSampler(10, 0.7, 0.4)
    buffer = library.ReplayBuffer(storage=library.ListStorage(10), sampler=sampler)
    scheduler = kind(buffer if of_buffer else sampler, "beta", **arguments)
    found = []
    for _ in range(12):
        scheduler.step()
        found.append(float(sampler.beta))
    return found


@pytest.mark.usefixtures("trees")
@pytest.mark.parametrize("of_buffer", [True, False])
@pytest.mark.parametrize(("name", "arguments"), SCHEDULES)
def test_a_number_takes_the_values_that_torchrl_gives_it(
    name: str, arguments: dict[str, Any], of_buffer: bool
) -> None:
    expected = betas(theirs, getattr(their_schedulers, name), arguments, of_buffer)
    found = betas(ours, getattr(ours, name), arguments, of_buffer)
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("name", "arguments"), SCHEDULES)
def test_a_schedule_continues_from_its_state(name: str, arguments: dict[str, Any]) -> None:
    whole, first, second = (PrioritizedSampler(10, 0.7, 0.4) for _ in range(3))
    kind = getattr(ours, name)
    expected, begun = kind(whole, "beta", **arguments), kind(first, "beta", **arguments)
    for _ in range(3):
        expected.step()
        begun.step()
    second.beta = 0.8  # not what the schedule began with
    continued = kind(second, "beta", **arguments)
    continued.load_state_dict(begun.state_dict())
    for _ in range(5):
        expected.step()
        continued.step()
        assert second.beta == whole.beta


def test_what_cannot_be_scheduled_is_refused_by_the_name_of_the_class() -> None:
    sampler = PrioritizedSampler(10, 0.7, 0.4)
    for schedule in (
        lambda: LinearScheduler(ours.RandomSampler(), "beta", 1.0, 3),
        lambda: StepScheduler(sampler, "reduction"),
    ):
        with pytest.raises(UsageError, match=r"RandomSampler|PrioritizedSampler") as caught:
            schedule()
        assert caught.value.argument == "param_name"
    with pytest.raises(UsageError, match="num_steps must be a whole number from 1 on, not 0"):
        LinearScheduler(sampler, "beta", 1.0, 0)
    with pytest.raises(UsageError) as caught:
        StepScheduler(sampler, "beta", mode="linear")
    assert (caught.value.argument, caught.value.found) == ("mode", "linear")
    with pytest.raises(WrongState, match="not that of a StepScheduler"):
        StepScheduler(sampler, "beta").load_state_dict({"num_steps_done": 1})
