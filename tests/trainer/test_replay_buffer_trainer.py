"""A replay buffer in a training loop: flattened, padded, moved, refused."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import (
    LazyTensorStorage,
    OfflineToOnline,
    PrioritizedSampler,
    ReplayBuffer,
    ReplayBufferTrainer,
    TensorDictReplayBuffer,
    UsageError,
)
from datasets_cli.errors import Unsupported, WrongSize
from tests.support.refusals import refused


def trajectories() -> TensorDict:
    """Two rows of three steps; the second one ends by itself."""
    done = torch.tensor([[0, 0, 0], [0, 0, 1]], dtype=torch.bool)[..., None]
    flags = {"done": done, "terminated": done, "truncated": torch.zeros_like(done)}
    return TensorDict({"x": torch.arange(6.0).view(2, 3), "next": flags}, [2, 3])


def made(**options: Any) -> ReplayBufferTrainer:
    return ReplayBufferTrainer(
        TensorDictReplayBuffer(storage=LazyTensorStorage(50)), batch_size=4, **options
    )


def test_flattened_rows_end_as_truncated_unless_they_are_done() -> None:
    batch = trajectories()
    found = made(flatten_tensordicts=True).extend(batch)
    assert found["x"].tolist() == [0, 1, 2, 3, 4, 5]
    assert found["next", "truncated"].flatten().tolist() == [0, 0, 1, 0, 0, 0]
    assert found["next", "done"].flatten().tolist() == [0, 0, 1, 0, 0, 1]
    assert not batch["next", "truncated"].any()  # the caller's batch stays as it is


def test_torchrl_marks_every_step_as_truncated() -> None:
    # 0.14.1 indexes the last dimension of [B, T, 1], which is not time, and does not set done.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of classes of its own
        from torchrl import data, trainers
    buffer = data.TensorDictReplayBuffer(storage=data.LazyTensorStorage(50), batch_size=4)
    theirs = trainers.ReplayBufferTrainer(buffer, flatten_tensordicts=True)
    assert theirs.extend(trajectories())["next", "truncated"].all()


def test_the_mask_says_which_steps_are_stored() -> None:
    batch = trajectories()
    batch["collector", "mask"] = torch.tensor([[1, 1, 0], [1, 1, 1]], dtype=torch.bool)
    assert made(flatten_tensordicts=True).extend(batch)["x"].tolist() == [0, 1, 3, 4, 5]


def test_a_dataset_and_a_buffer_are_sampled_as_one_and_written_to_the_second() -> None:
    offline, online = (TensorDictReplayBuffer(storage=LazyTensorStorage(9)) for _ in range(2))
    offline.extend(TensorDict({"x": -torch.ones(3)}, [3]))
    both = ReplayBufferTrainer(OfflineToOnline(offline, online, fraction=0.5), batch_size=4)
    both.extend(TensorDict({"x": torch.ones(2)}, [2]))
    assert (len(offline), len(online)) == (3, 2)
    assert both.sample()["x"].tolist() == [-1, -1, 1, 1]
    both.update_priority(both.sample())  # of no effect where neither has priorities


def test_padding_is_marked() -> None:
    padded = made(max_dims=[-1, 5]).extend(trajectories())
    assert padded.shape == (2, 5)
    assert padded["x"].tolist() == [[0, 1, 2, 0, 0], [3, 4, 5, 0, 0]]
    assert padded["collector", "mask"].tolist() == [[True] * 3 + [False] * 2] * 2


def test_without_options_a_batch_is_stored_as_it_is() -> None:
    rb_trainer = made()
    rb_trainer.extend(trajectories())
    assert len(rb_trainer.replay_buffer) == 2
    sampled = rb_trainer.sample(trajectories())
    assert (sampled.shape, sampled.device) == ((4, 3), torch.device("cpu"))


def test_the_state_is_that_of_the_buffer() -> None:
    first, second = made(), made()
    first.extend(trajectories())
    second.load_state_dict(first.state_dict())
    assert second.replay_buffer[:]["x"].tolist() == trajectories()["x"].tolist()


@pytest.mark.parametrize(
    ("options", "error", "argument"),
    [
        ({"memmap": True}, Unsupported, "memmap"),
        ({"flatten_tensordicts": True, "max_dims": [3]}, UsageError, "max_dims"),
    ],
)
def test_options_without_an_effect_are_refused(
    options: dict[str, Any], error: type[UsageError], argument: str
) -> None:
    with refused(error, argument=argument):
        made(**options)


@pytest.mark.parametrize("max_dims", [[5], [1, 5]])
def test_a_batch_that_does_not_fit_is_refused(max_dims: list[int]) -> None:
    with refused(WrongSize, argument="max_dims", expected=(2, 3), found=tuple(max_dims)):
        made(max_dims=max_dims).extend(trajectories())


def test_priorities_of_a_plain_buffer_are_refused() -> None:
    plain = ReplayBuffer(storage=LazyTensorStorage(9), sampler=PrioritizedSampler(9, 0.7, 0.5))
    with refused(Unsupported, argument="replay_buffer", found="ReplayBuffer"):
        ReplayBufferTrainer(plain)
