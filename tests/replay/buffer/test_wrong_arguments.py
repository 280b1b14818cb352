"""Wrong arguments of the replay library: each is refused at once, in one sentence that says why."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import LazyStackedTensorDict, TensorDict

from datasets_cli import (
    BatchStream,
    CatFrames,
    DistributedSampler,
    FrameStack,
    LazyMemmapStorage,
    LazyTensorStorage,
    ListStorage,
    MultiStep,
    ObservationNorm,
    PrioritizedSampler,
    PrioritizedSliceSampler,
    ReplayBuffer,
    ReplayBufferEnsemble,
    SliceSampler,
    TensorDictMaxValueWriter,
    TensorDictReplayBuffer,
    TensorStorage,
    Transform,
    open_storage,
    split_trajectories,
)
from datasets_cli.errors import DatasetNotInstalled, OutOfRange, UsageError, WrongRows
from datasets_cli.replay import MultiStepTransform, RandomCropTensorDict
from datasets_cli.torchrl import PrioritizedReplayBuffer
from tests.support.refusals import check_refused, refused

WHOLE = "must be a whole number"
rows = torch.zeros


def buffer(data: Any = None, storage: Any = None, **parts: Any) -> ReplayBuffer:
    """Return a buffer of ten rows or less, with ``data`` in it."""
    storage = LazyTensorStorage(10) if storage is None else storage
    made = ReplayBuffer(storage=storage, batch_size=2, **parts)
    if data is not None:
        made.extend(data)
    return made


def named(*shape: int) -> TensorDict:
    return TensorDict({"a": rows(*shape)}, shape[:1])


def prioritized() -> ReplayBuffer:
    return buffer(rows(4), sampler=PrioritizedSampler(10, 0.5, 0.5))


def norm(scale: Any, **arguments: Any) -> ObservationNorm:
    return ObservationNorm(0.0, scale, ["a"], **arguments)


class Elsewhere(torch.Generator):
    """A generator that says it is on another device, which need not be there."""

    device = torch.device("cuda")


SIZES: list[Callable[[Any], Any]] = [
    LazyTensorStorage,
    lambda size: LazyTensorStorage(10, ndim=size),
    LazyMemmapStorage,
    lambda size: TensorStorage(rows(4), ndim=size),
    ListStorage,
    lambda size: PrioritizedSampler(size, 0.5, 0.5),
    lambda size: PrioritizedSliceSampler(size, 0.5, 0.5, slice_len=2),
    lambda size: SliceSampler(slice_len=size),
    lambda size: SliceSampler(num_slices=size),
    lambda size: MultiStep(0.9, size),
    lambda size: MultiStepTransform(size, 0.9),
    lambda size: CatFrames(size, -1),
    RandomCropTensorDict,
    lambda size: DistributedSampler(size, 0),
    lambda size: FrameStack(buffer().storage, size),
]


def test_a_size_is_a_whole_number_from_1_on() -> None:
    for size, found in (("2", "str '2'"), (2.0, "float"), (0, "0"), (-1, "-1")):
        words = f"{WHOLE} from 1 on, not {found}"
        check_refused(UsageError, [(words, partial(make, size)) for make in SIZES])


def test_a_size_may_be_an_integer_of_numpy() -> None:
    # Kept as it is, its 8 bits would overflow where a size is multiplied.
    assert b"scalar" in pickle.dumps(np.uint8(1))
    for make in SIZES[:-1]:
        made = make(np.uint8(1))
        assert b"scalar" not in pickle.dumps(vars(made)), made


CALLS: list[tuple[str, Callable[[], Any]]] = [
    (f"seed {WHOLE}, not str 'x'", lambda: DistributedSampler(seed="x")),  # type: ignore[arg-type]
    (f"epoch {WHOLE}", lambda: DistributedSampler().set_epoch("x")),  # type: ignore[arg-type]
    (f"dim {WHOLE}", lambda: CatFrames(2, "a")),  # type: ignore[arg-type]
    ("gamma must be a number above 0", lambda: MultiStep("a", 2)),  # type: ignore[arg-type]
    ("alpha must be finite and not negative; found 'a'", lambda: PrioritizedSampler(9, "a", 0.5)),  # type: ignore[arg-type]
    ("seed must be a whole number from 0 on, not -1", lambda: buffer(seed=-1)),
    (r"is on cuda, and RandomSampler\(\) draws on", lambda: buffer(generator=Elsewhere())),
    (r"is on cuda, and RandomSampler", lambda: buffer(rows(4)).set_rng(Elsewhere())),
    (
        "a list of rows, not a tuple of 2",
        lambda: buffer((rows(3), rows(3)), storage=ListStorage(9)),
    ),
    ("takes a replay buffer, not 3", lambda: BatchStream(3)),  # type: ignore[arg-type]
    ("num_batches must", lambda: BatchStream(buffer(), 1.5)),  # type: ignore[arg-type]
    ("seed must be a whole number from 0 on, not -1", lambda: BatchStream(buffer(), seed=-1)),
    ("no tensor: there is nothing to store", lambda: TensorStorage({})),
    ("no tensor: there is nothing", lambda: TensorStorage(TensorDict({}, [3]))),
    ("a has 3 rows and b has 4", lambda: TensorStorage({"a": rows(3), "b": rows(4)})),
    (r"data has the shape \[\]; rows need 1 or more dim", lambda: TensorStorage(rows(()))),
    (r"x\.0 has the shape \[4\]; rows need 2", lambda: TensorStorage({"x": [rows(4)]}, ndim=2)),
    ("0 must be a tensor, not int. Tensor storages take tensors", lambda: TensorStorage([1, 2])),
    ("a has 2 rows and b has 3", lambda: buffer({"a": rows(2), "b": rows(3)})),
    ("data must be a tensor, not ndarray", lambda: buffer(np.zeros((3, 2)))),
    ("data must be a tensor, not str", lambda: buffer("abc")),
    ("no tensor: there", lambda: buffer(TensorDict({}, []))),
    (
        r"a has \[3, 2\] rows and b has \[4, 2\]",
        lambda: buffer({"a": rows(3, 2), "b": rows(4, 2)}, storage=LazyTensorStorage(12, ndim=2)),
    ),
    (
        "Steps of 3 x 4 environments do not fit a storage with steps of 3 x 5",
        lambda: buffer(rows(3, 5, 2), LazyTensorStorage(30, ndim=3)).extend(rows(3, 4, 2)),
    ),
    (
        r"x has the shape \[3\] a row in the storage, and \[4\] in these",
        lambda: buffer({"x": rows(2, 3)}).extend({"x": rows(2, 4)}),
    ),
    (
        r"Rows of type Tensor, tuple cannot be stacked",
        lambda: buffer({"x": rows(2)}).extend([rows(2), (rows(2),)]),
    ),
    (
        r"of the form dict\(x: Tensor\), not tuple\(Tensor, Tensor\)",
        lambda: buffer({"x": rows(2)}).extend((rows(2), rows(2))),
    ),
    ("rows with a; these have no entry", lambda: buffer(named(3)).extend(TensorDict({}, []))),
    (r"TensorDicts with a, not dict\(a: Tensor\)", lambda: buffer(named(3)).extend({"a": rows(3)})),
    ("storage of a dataset", lambda: FrameStack(LazyTensorStorage(5), 4)),  # type: ignore[arg-type]
    ("must be buffers, not list", lambda: ReplayBufferEnsemble([buffer()])),  # type: ignore[arg-type]
    (
        r"TensorDict\(a: Tensor\), have no nope as rank",
        lambda: buffer(named(3), writer=TensorDictMaxValueWriter("nope")),
    ),
    ("no next.reward as rank", lambda: buffer(rows(3), writer=TensorDictMaxValueWriter())),
    ("must be above 0, not 0.0", lambda: norm(0.0, standard_normal=True)),
    ("must be above 0", lambda: norm(rows(2), standard_normal=True)),
    ("must be above 0", lambda: norm(torch.tensor([1.0, -1.0]), standard_normal=True)),
    ("must be above 0, not nan", lambda: norm(float("nan"), standard_normal=True)),
    ("must be above 0, not 0.0", lambda: norm(0.0, in_keys_inv=["a"])),
    ("Expected a TensorDict; found dict", lambda: split_trajectories({})),  # type: ignore[arg-type]
    ("batch_size=32 is not a multiple of slice_len=5", lambda: SliceSampler(slice_len=5).shape(32)),
    ("batch_size=3 is not a multiple of num_slices=5", lambda: SliceSampler(num_slices=5).shape(3)),
    ("not torch.float32", lambda: prioritized().update_priority(torch.tensor([0.9]), 3.0)),
    ("not torch.bool", lambda: prioritized().update_priority(torch.tensor([True]), 3.0)),
    ("Row -2 does not exist", lambda: prioritized().update_priority(torch.tensor([-1, -2]), 3.0)),
]


DEVICES: list[Callable[[Any], Any]] = [
    lambda device: LazyTensorStorage(9, device=device),
    lambda device: LazyMemmapStorage(9, device=device),
    lambda device: TensorStorage(rows(9), device=device),
    lambda device: PrioritizedSampler(9, 0.5, 0.5, device=device),
    lambda device: PrioritizedSliceSampler(9, 0.5, 0.5, slice_len=2, device=device),
    lambda device: PrioritizedReplayBuffer(
        alpha=0.5, beta=0.5, storage=LazyTensorStorage(9), sampler_device=device
    ),
]


@pytest.mark.parametrize("device", ["nope", 3.5, "cuda:99"])
def test_a_device_that_is_not_there_is_named(device: Any) -> None:
    words = f"^device must be one that this process can use, .* not {device!r}"
    check_refused(UsageError, [(words, partial(make, device)) for make in DEVICES])


def test_what_makes_no_sense_is_refused_in_few_words() -> None:
    for refusal in check_refused(UsageError, CALLS):
        assert len(str(refusal)) < 200
        assert "\n" not in str(refusal)


def test_a_dump_of_tensordicts_does_not_fit_plain_tensors(tmp_path: Path) -> None:
    dumped = TensorDictReplayBuffer(storage=LazyTensorStorage(5))
    dumped.extend(named(4))
    dumped.dumps(tmp_path)
    with refused(WrongRows, path=tmp_path, expected="Tensor", found="TensorDict(a: Tensor)"):
        buffer(rows(3)).loads(tmp_path)


def test_a_folder_without_a_dataset_is_named_with_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "none", tmp_path / "file"):
        with refused(DatasetNotInstalled, path=path, expected="manifest.json"):
            open_storage(path)


@pytest.mark.parametrize("member", [2, -3, [0, 2], (2, 0)])
def test_a_member_that_is_not_there_is_named(member: Any) -> None:
    ensemble = ReplayBufferEnsemble(buffer(named(3)), buffer(named(3)))
    with refused(OutOfRange, expected="0 to 1"):
        ensemble[member]


def test_a_transform_without_a_call_cannot_be_made() -> None:
    class Old(Transform):
        def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
            return value

    with pytest.raises(TypeError, match=r"abstract.*__call__"):
        Old()  # type: ignore[abstract]


def test_a_number_that_never_changes_has_a_deviation_of_0_and_is_scaled_by_the_least() -> None:
    scaled = norm(torch.tensor([2.0, 0.0]), standard_normal=True, eps=0.5)
    batch = scaled(TensorDict({"a": torch.ones(1, 2)}, [1]))
    assert batch["a"].tolist() == [[0.5, 2.0]]


def test_rows_that_a_writer_refused_are_passed_over_by_priorities() -> None:
    made = prioritized()
    made.update_priority(torch.tensor([-1, 2], dtype=torch.int32), torch.tensor([9.0, 3.0]))
    made.update_priority([], [])
    assert made.sampler.draw.priorities.known.tolist() == [1.0, 1.0, 3.0, 1.0]  # type: ignore[attr-defined]


def test_lazy_stacks_in_a_structure_are_rows() -> None:
    stack = LazyStackedTensorDict.lazy_stack([TensorDict({"q": rows(3)}, [3])] * 2, 1)
    shown = "TensorStorage(0, 1, 2, shape=[3], device=cpu, len=3, max_size=3)"
    assert repr(TensorStorage((rows(3), stack))) == shown


def test_steps_of_environments_in_several_dimensions_come_back_as_they_were_written() -> None:
    number = torch.arange(48).view(2, 3, 4, 2)
    same = torch.equal(buffer(number, LazyTensorStorage(48, ndim=4))[:], number)
    assert same
