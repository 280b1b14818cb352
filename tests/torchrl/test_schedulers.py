"""Schedulers of a sampler's numbers, against TorchRL's on its own sampler."""

from __future__ import annotations

from typing import Any

import pytest
import torchrl.data.replay_buffers as theirs
from torchrl.data.replay_buffers import scheduler as their_schedulers

from datasets_cli import PrioritizedSampler
from datasets_cli.errors import UsageError, WrongState
from datasets_cli.torchrl import LinearScheduler, StepScheduler
from tests.support.parity import ours
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
    second.beta = 0.8  # differs from the initial value of the schedule
    continued = kind(second, "beta", **arguments)
    continued.load_state_dict(begun.state_dict())
    for _ in range(5):
        expected.step()
        continued.step()
        assert second.beta == whole.beta


def test_arguments_and_states_that_do_not_fit_are_rejected() -> None:
    sampler = PrioritizedSampler(10, 0.7, 0.4)
    wrong: dict[tuple[str, Any], Any] = {
        ("param_name", "beta"): lambda: LinearScheduler(ours.RandomSampler(), "beta", 1.0, 3),
        ("param_name", "reduction"): lambda: StepScheduler(sampler, "reduction"),
        ("num_steps", 0): lambda: LinearScheduler(sampler, "beta", 1.0, 0),
        ("n_steps", 0): lambda: StepScheduler(sampler, "beta", n_steps=0),
        ("mode", "linear"): lambda: StepScheduler(sampler, "beta", mode="linear"),
    }
    for expected, schedule in wrong.items():
        with pytest.raises(UsageError) as caught:
            schedule()
        assert (caught.value.argument, caught.value.found) == expected
    with pytest.raises(WrongState) as state_error:
        StepScheduler(sampler, "beta").load_state_dict({"num_steps_done": 1})
    assert state_error.value.found == ["num_steps_done"]
