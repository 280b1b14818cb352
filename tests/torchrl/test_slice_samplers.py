"""The arguments of slice samplers: all of TorchRL's, and none that contradict each other."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import ExperienceReplay
from datasets_cli.errors import EmptyBuffer, UnknownKey, Unsupported, WrongRows
from datasets_cli.replay.trajectories.bounds import TrajectoryKeys
from tests.support.parity import ours, theirs

KINDS = ["SliceSampler", "SliceSamplerWithoutReplacement", "PrioritizedSliceSampler"]


def sampler_of(kind: str, **arguments: Any) -> Any:
    first = (100, 0.7, 0.5) if kind == "PrioritizedSliceSampler" else ()
    return getattr(ours, kind)(*first, **arguments)


def buffer_of(columns: dict[Any, Any], sampler: Any, storage: Any = None) -> Any:
    rows = TensorDict({key: torch.as_tensor(column) for key, column in columns.items()})
    rows.auto_batch_size_(1)
    storage = storage or ours.LazyTensorStorage(len(rows))
    made = ours.TensorDictReplayBuffer(storage=storage, sampler=sampler)
    made.extend(rows)
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_every_argument_of_torchrl_is_taken(kind: str) -> None:
    known = inspect.signature(getattr(theirs, kind).__init__).parameters
    own = inspect.signature(getattr(ours, kind).__init__).parameters
    assert known.keys() <= own.keys()
    for name in known.keys() - {"self"}:
        assert own[name].default == known[name].default, name


def test_what_slice_samplers_share_has_the_same_default_in_each() -> None:
    shared = inspect.signature(ours.SliceSampler).parameters
    for kind in KINDS[1:]:
        own = inspect.signature(getattr(ours, kind)).parameters
        assert shared.items() <= own.items()


@pytest.mark.parametrize("kind", KINDS)
def test_how_slices_are_cut_can_be_read(kind: str) -> None:
    sampler = sampler_of(kind, slice_len=5, strict_length=False, span=(False, 2), init_key=None)
    assert (sampler.num_slices, sampler.slice_len) == (None, 5)
    assert (sampler.strict_length, sampler.span) == (False, (False, 2))
    assert (sampler.truncated_key, sampler.init_key) == (("next", "truncated"), None)


@pytest.mark.parametrize("kind", KINDS)
def test_marks_can_be_moved_and_left_out_later(kind: str) -> None:
    sampler = sampler_of(kind, slice_len=3)
    sampler.truncated_key = ("next", "cut")
    made = buffer_of({"episode": [0] * 9}, sampler)
    assert made.sample(3)["next", "cut"].view(-1).tolist() == [False, False, True]
    sampler.truncated_key = None
    assert "next" not in made.sample(3)


@pytest.mark.parametrize("kind", KINDS)
def test_hints_change_nothing(kind: str) -> None:
    columns = {"episode": [0] * 9 + [1] * 9}
    samplers = [
        sampler_of(kind, slice_len=3),
        sampler_of(kind, slice_len=3, compile={"fullgraph": True}, use_gpu=True, cache_values=True),
    ]
    found = []
    for sampler in samplers:
        torch.manual_seed(0)
        found.append(buffer_of(columns, sampler).sample(6)["index"].tolist())
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", KINDS)
def test_beginnings_are_marked_where_ends_are_not(kind: str) -> None:
    """Named defect: TorchRL's prioritised sampler takes init_key and marks nothing."""
    columns = {"episode": [0] * 9 + [1] * 9, ("a", "new"): (torch.arange(18) % 4 == 0).unsqueeze(1)}
    sampler = sampler_of(kind, slice_len=5, truncated_key=None, init_key=("a", "new"))
    batch = buffer_of(columns, sampler).sample(10)
    is_first = torch.arange(10) % 5 == 0
    assert torch.equal(batch["a", "new"].view(-1), is_first | (batch["index"] % 4 == 0))
    assert "next" not in batch


@pytest.mark.parametrize("kind", KINDS)
def test_a_buffer_that_was_emptied_has_nothing_to_slice(kind: str) -> None:
    made = buffer_of({"episode": [0, 0]}, sampler_of(kind, slice_len=1))
    made.empty()
    with pytest.raises(EmptyBuffer):
        made.sample(1)


def test_ends_of_environments_side_by_side_are_given_by_step() -> None:
    ends = torch.rand(9, 3, generator=torch.Generator().manual_seed(0)) < 0.3
    step, place = torch.arange(9).expand(3, 9), torch.arange(3).unsqueeze(1).expand(3, 9)
    for given in ({"ends": ends}, {"trajectories": torch.roll(ends, 1, 0).cumsum(0)}):
        sampler = sampler_of("SliceSampler", slice_len=2, **given)
        made = ours.ReplayBuffer(storage=ours.LazyTensorStorage(27, ndim=2), sampler=sampler)
        made.extend(TensorDict({"step": step, "place": place}, [3, 9]))
        batch = made.sample(200).view(-1, 2)
        assert torch.equal(batch["place"][:, 0], batch["place"][:, 1])
        assert torch.equal(batch["step"][:, 0] + 1, batch["step"][:, 1])
        assert not ends[batch["step"][:, 0], batch["place"][:, 0]].any()
    made.set_sampler(sampler_of("SliceSampler", slice_len=2, ends=ends.reshape(-1)))
    with pytest.raises(WrongRows) as error:
        made.sample(2)
    assert (error.value.expected, error.value.found) == ((27, 3), (27, 1))


@pytest.mark.parametrize("storage", [ours.ListStorage(9), ours.LazyTensorStorage(9)])
def test_rows_that_lie_apart_are_drawn_once_an_epoch_too(storage: Any) -> None:
    columns = {"episode": [0, 1, 0, 1, 0, 0], "at": [0, 0, 1, 1, 2, 4]}
    sampler = ours.SliceSamplerWithoutReplacement(
        slice_len=2, fragmented=True, step_key="at", shuffle=False
    )
    made = buffer_of(columns, sampler, storage)
    assert made.sample(4)["index"].tolist() in ([0, 2, 1, 3], [2, 4, 1, 3])


@pytest.mark.parametrize("storage", [ours.ListStorage, ours.LazyTensorStorage])
def test_an_end_is_a_flag_of_any_name(storage: Any) -> None:
    columns = {"dead": [0, 1, 0, 0, 0, 0], "cut": [0, 0, 0, 1, 0, 0]}
    sampler = ours.SliceSampler(slice_len=2, end_keys=["dead", "missing", "cut"])
    made = buffer_of(columns, sampler, storage(9))
    assert made.sample(400)["index"].view(-1, 2)[:, 0].unique().tolist() == [0, 2, 4]
    made.set_sampler(ours.SliceSampler(slice_len=2, end_keys=["missing"]))
    with pytest.raises(UnknownKey) as error:
        made.sample(2)
    assert error.value.key == ("missing",)


def test_the_flags_and_steps_of_a_dataset_give_the_trajectories_of_its_table(door: str) -> None:
    storage = ExperienceReplay(door).storage
    flags = TrajectoryKeys(ends=(("next", "terminated"), ("next", "truncated")))
    for keys in (flags, TrajectoryKeys(number=("episode",)), TrajectoryKeys()):
        assert torch.equal(storage.trajectories(keys).starts, storage.offsets[:-1])
    with pytest.raises(UnknownKey):
        storage.trajectories(TrajectoryKeys(step=("step_count",)))


@pytest.mark.parametrize(
    ("columns", "kind", "name", "value"),
    [
        ({"episode": [0, 0], "step_count": [1, 1]}, WrongRows, "found", 1),  # step 1 twice
        ({"episode": [0.0, 1.0], "step_count": [0, 0]}, WrongRows, "found", torch.float32),
        ({"step_count": [0, 1]}, UnknownKey, "argument", "traj_key"),
    ],
)
def test_fragmented_trajectories_need_numbers(
    columns: dict[str, Any], kind: Any, name: str, value: Any
) -> None:
    made = buffer_of(columns, ours.SliceSampler(slice_len=1, fragmented=True))
    with pytest.raises(kind) as error:
        made.sample(1)
    assert getattr(error.value, name) == value


@pytest.mark.parametrize("arguments", [{"span": True}, {"fragmented": True}, {"pad_output": True}])
def test_slices_by_priority_reject_what_they_do_not_support(arguments: dict[str, Any]) -> None:
    with pytest.raises(Unsupported) as error:
        sampler_of("PrioritizedSliceSampler", slice_len=2, **arguments)
    assert {error.value.argument: error.value.found} == arguments
