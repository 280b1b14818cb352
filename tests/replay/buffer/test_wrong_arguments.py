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
from tests.support.refusals import Refusal, check_refused, refused

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
    for size in ("2", 2.0, 0, -1):
        expected = {"expected": "a whole number from 1 on", "found": size}
        check_refused(UsageError, [(expected, partial(make, size)) for make in SIZES])


def test_a_size_may_be_an_integer_of_numpy() -> None:
    # Kept as it is, its 8 bits would overflow where a size is multiplied.
    assert b"scalar" in pickle.dumps(np.uint8(1))
    for make in SIZES[:-1]:
        made = make(np.uint8(1))
        assert b"scalar" not in pickle.dumps(vars(made)), made


CALLS: list[tuple[Refusal, Callable[[], Any]]] = [
    ({"argument": "seed", "found": "x"}, lambda: DistributedSampler(seed="x")),  # type: ignore[arg-type]
    ({"argument": "epoch", "found": "x"}, lambda: DistributedSampler().set_epoch("x")),  # type: ignore[arg-type]
    ({"argument": "dim", "found": "a"}, lambda: CatFrames(2, "a")),  # type: ignore[arg-type]
    ({"argument": "gamma", "found": "a"}, lambda: MultiStep("a", 2)),  # type: ignore[arg-type]
    ({"argument": "alpha", "found": "a"}, lambda: PrioritizedSampler(9, "a", 0.5)),  # type: ignore[arg-type]
    ({"argument": "slice_len"}, SliceSampler),
    ({"argument": "slice_len"}, lambda: SliceSampler(num_slices=2, slice_len=3)),
    ({"argument": "span", "found": "x"}, lambda: SliceSampler(slice_len=2, span="x")),
    ({"argument": "prefetch", "found": -1}, lambda: buffer(prefetch=-1)),
    ({"argument": "seed", "found": -1}, lambda: buffer(seed=-1)),
    ({"argument": "generator", "found": "cuda"}, lambda: buffer(generator=Elsewhere())),
    ({"argument": "generator", "found": "cuda"}, lambda: buffer(rows(4)).set_rng(Elsewhere())),
    (
        {"argument": "data", "found": "tuple"},
        lambda: buffer((rows(3), rows(3)), storage=ListStorage(9)),
    ),
    ({"argument": "buffer", "found": 3}, lambda: BatchStream(3)),  # type: ignore[arg-type]
    ({"argument": "num_batches", "found": 1.5}, lambda: BatchStream(buffer(), 1.5)),  # type: ignore[arg-type]
    ({"argument": "seed", "found": -1}, lambda: BatchStream(buffer(), seed=-1)),
    ("no tensor: there is nothing to store", lambda: TensorStorage({})),
    ("no tensor: there is nothing", lambda: TensorStorage(TensorDict({}, [3]))),
    ({"key": "b", "found": [4]}, lambda: TensorStorage({"a": rows(3), "b": rows(4)})),
    ({"key": "data", "found": []}, lambda: TensorStorage(rows(()))),
    ({"key": "x.0", "found": [4]}, lambda: TensorStorage({"x": [rows(4)]}, ndim=2)),
    ({"key": "0", "found": "int"}, lambda: TensorStorage([1, 2])),
    ({"key": "b", "found": [3]}, lambda: buffer({"a": rows(2), "b": rows(3)})),
    ({"key": "data", "found": "ndarray"}, lambda: buffer(np.zeros((3, 2)))),
    ({"key": "data", "found": "str"}, lambda: buffer("abc")),
    ("no tensor: there", lambda: buffer(TensorDict({}, []))),
    (
        {"key": "b", "found": [4, 2]},
        lambda: buffer({"a": rows(3, 2), "b": rows(4, 2)}, storage=LazyTensorStorage(12, ndim=2)),
    ),
    (
        {"found": "3 x 4"},
        lambda: buffer(rows(3, 5, 2), LazyTensorStorage(30, ndim=3)).extend(rows(3, 4, 2)),
    ),
    (
        {"key": "x", "found": [4]},
        lambda: buffer({"x": rows(2, 3)}).extend({"x": rows(2, 4)}),
    ),
    (
        {"found": "Tensor, tuple"},
        lambda: buffer({"x": rows(2)}).extend([rows(2), (rows(2),)]),
    ),
    (
        {"found": "tuple(Tensor, Tensor)"},
        lambda: buffer({"x": rows(2)}).extend((rows(2), rows(2))),
    ),
    ({"found": []}, lambda: buffer(named(3)).extend(TensorDict({}, []))),
    ({"found": "dict(a: Tensor)"}, lambda: buffer(named(3)).extend({"a": rows(3)})),
    (
        {"argument": "storage", "found": "LazyTensorStorage"},
        lambda: FrameStack(LazyTensorStorage(5), 4),  # type: ignore[arg-type]
    ),
    ({"argument": "buffers", "found": ["list"]}, lambda: ReplayBufferEnsemble([buffer()])),  # type: ignore[arg-type]
    (
        {"key": "nope", "found": "TensorDict(a: Tensor)"},
        lambda: buffer(named(3), writer=TensorDictMaxValueWriter("nope")),
    ),
    (
        {"key": ("next", "reward"), "found": "Tensor"},
        lambda: buffer(rows(3), writer=TensorDictMaxValueWriter()),
    ),
    ({"argument": "scale", "found": 0.0}, lambda: norm(0.0, standard_normal=True)),
    ({"argument": "scale", "expected": "scale > 0"}, lambda: norm(rows(2), standard_normal=True)),
    (
        {"argument": "scale", "expected": "scale > 0"},
        lambda: norm(torch.tensor([1.0, -1.0]), standard_normal=True),
    ),
    (
        {"argument": "scale", "expected": "scale > 0"},
        lambda: norm(float("nan"), standard_normal=True),
    ),
    ({"argument": "scale", "found": 0.0}, lambda: norm(0.0, in_keys_inv=["a"])),
    ({"argument": "rollout_tensordict", "found": "dict"}, lambda: split_trajectories({})),  # type: ignore[arg-type]
    ({"argument": "batch_size", "found": 32}, lambda: SliceSampler(slice_len=5).shape(32)),
    ({"argument": "batch_size", "found": 3}, lambda: SliceSampler(num_slices=5).shape(3)),
    (
        {"argument": "index", "found": torch.float32},
        lambda: prioritized().update_priority(torch.tensor([0.9]), 3.0),
    ),
    (
        {"argument": "index", "found": torch.bool},
        lambda: prioritized().update_priority(torch.tensor([True]), 3.0),
    ),
    (
        {"argument": "index", "row": -2, "found": -2},
        lambda: prioritized().update_priority(torch.tensor([-1, -2]), 3.0),
    ),
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
    expected = {"argument": "device", "found": device}
    check_refused(UsageError, [(expected, partial(make, device)) for make in DEVICES])


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
