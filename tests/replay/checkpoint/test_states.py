"""States of every buffer: ``torch.load`` takes them with its defaults, and they continue."""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import NonTensorData, TensorDict

from datasets_cli import (
    BlockShuffleSampler,
    DistributedSampler,
    ExperienceReplay,
    LazyMemmapStorage,
    LazyTensorStorage,
    ListStorage,
    PrioritizedSampler,
    PrioritizedSliceSampler,
    RandomSampler,
    ReplayBuffer,
    ReplayBufferEnsemble,
    RoundRobinWriter,
    SamplerWithoutReplacement,
    SliceSampler,
    SliceSamplerWithoutReplacement,
    TensorDictMaxValueWriter,
    TensorDictReplayBuffer,
    TensorStorage,
)
from datasets_cli.errors import UsageError, WrongRows, WrongSize, WrongState
from tests.replay.storages.test_storages import steps
from tests.support.covering import covering
from tests.support.refusals import check_refused, refused

SAMPLERS: dict[str, Callable[[], Any]] = {
    "random": RandomSampler,
    "epoch": SamplerWithoutReplacement,
    "epoch in order": lambda: SamplerWithoutReplacement(shuffle=False, drop_last=True),
    "slices": lambda: SliceSampler(slice_len=2),
    "slices once": lambda: SliceSamplerWithoutReplacement(slice_len=2),
    "priorities": lambda: PrioritizedSampler(40, 0.7, 0.5),
    "newest priorities": lambda: PrioritizedSampler(40, 0.7, 0.5, max_priority_within_buffer=True),
    "slices by priority": lambda: PrioritizedSliceSampler(40, 0.7, 0.5, slice_len=2),
    "distributed": lambda: DistributedSampler(2, 1),
    "blocks": lambda: BlockShuffleSampler(3, 2),
}
STORAGES: dict[str, Callable[[], Any]] = {
    "memory": lambda: LazyTensorStorage(20),
    "files": lambda: LazyMemmapStorage(20),
    "tensors": lambda: TensorStorage(steps(20)),
    "list": lambda: ListStorage(20),
    "memory of 2": lambda: LazyTensorStorage(40, ndim=2),
    "files of 2": lambda: LazyMemmapStorage(40, ndim=2),
}
EVERYWHERE = ("memory", "memory of 2")
ELSEWHERE = itertools.product(STORAGES.keys() - EVERYWHERE, SAMPLERS)
MATRIX = [*itertools.product(EVERYWHERE, SAMPLERS), *covering(sorted(ELSEWHERE), together=1)]


def made(storage: str, sampler: str, seed: int, **arguments: Any) -> TensorDictReplayBuffer:
    parts = {"storage": STORAGES[storage](), "sampler": SAMPLERS[sampler]()}
    return TensorDictReplayBuffer(**parts, batch_size=4, seed=seed, **arguments)


def fill(buffer: TensorDictReplayBuffer, start: int) -> list[Any]:
    data = steps(13, start)
    if buffer.storage.ndim == 2:
        data = torch.stack([data, steps(13, start + 500)])
    return buffer.extend(data).tolist()


def saved(state: Any, folder: Path) -> Any:
    torch.save(state, folder / "state.pt")
    return torch.load(folder / "state.pt")


def same_rows(one: Any, other: Any) -> bool:
    return list(one.keys()) == list(other.keys()) and bool((one == other).all())


def check_continues(
    first: TensorDictReplayBuffer, other: TensorDictReplayBuffer, folder: Path
) -> None:
    """Load the state of one buffer into another, and compare what both then draw and write."""
    fill(first, 0)
    fill(first, 100)
    if first.sampler.has_priorities:  # before batches are drawn ahead, by what is known then
        index = torch.tensor([[0, 0], [3, 1]] if first.storage.ndim == 2 else [0, 3])
        first.update_priority(index, torch.tensor([5.0, 0.2]))
    first.sample()
    first.sample()
    other.load_state_dict(saved(first.state_dict(), folder))
    assert len(other) == len(first) and same_rows(first[:], other[:])
    if isinstance(other.writer, RoundRobinWriter):
        other.writer.continue_trajectories()
    for start in (1000, 2000):
        for _ in range(3):
            assert same_rows(first.sample(), other.sample())
        assert fill(first, start) == fill(other, start)
    assert same_rows(first[:], other[:])


@pytest.mark.parametrize(("storage", "sampler"), MATRIX)
def test_a_state_is_loaded_with_torchs_defaults_and_continues(
    tmp_path: Path, storage: str, sampler: str
) -> None:
    check_continues(made(storage, sampler, 1), made(storage, sampler, 2), tmp_path)


@pytest.mark.parametrize("sampler", ["epoch", "slices once", "priorities"])
def test_a_state_has_the_batches_that_were_made_ahead(tmp_path: Path, sampler: str) -> None:
    first, other = (made("memory", sampler, seed, prefetch=2) for seed in (1, 2))
    check_continues(first, other, tmp_path)


@pytest.mark.parametrize("storage", ["memory", "list"])
def test_a_state_has_the_ranks_of_the_highest(tmp_path: Path, storage: str) -> None:
    first, other = (
        made(storage, "random", seed, writer=TensorDictMaxValueWriter("number")) for seed in (1, 2)
    )
    check_continues(first, other, tmp_path)


def test_the_state_of_an_ensemble_is_loaded_so(tmp_path: Path, door: str) -> None:
    def ensemble(seed: int) -> ReplayBufferEnsemble:
        names = (("memory", "epoch"), ("list", "priorities"), ("files", "slices"))
        members = [made(*parts, seed) for parts in names]
        for member in members:
            fill(member, seed)
        replay = ExperienceReplay(door, replacement=False, download=False)
        replay.append_transform(lambda rows: rows.select("index"))
        return ReplayBufferEnsemble(*members, replay, batch_size=16, seed=seed)

    first, other = ensemble(1), ensemble(2)
    first.sample()
    other.load_state_dict(saved(first.state_dict(), tmp_path))
    for _ in range(4):
        one, another = first.sample(), other.sample()
        assert torch.equal(one["index", "buffer_ids"], another["index", "buffer_ids"])
        assert torch.equal(one["index", "index"], another["index", "index"])


PLAIN = [1, 2.5, True, None, "a", b"b", math.inf, 2**80, [1, ("x", [None])], {"a": 1, 3: (4,)}]


def test_plain_rows_of_a_list_are_in_the_state_as_they_were(tmp_path: Path) -> None:
    first, other = (ReplayBuffer(storage=ListStorage(20)) for _ in range(2))
    first.extend([*PLAIN, {"kind": "tensordict", "entries": {"x": torch.ones(1)}}])
    other.load_state_dict(saved(first.state_dict(), tmp_path))
    found = other.storage.contents()
    assert repr(found[:-1]) == repr(PLAIN)
    assert repr(found[-1]) == repr({"kind": "tensordict", "entries": {"x": torch.ones(1)}})


def test_numbers_of_numpy_are_in_the_state_as_pythons(tmp_path: Path) -> None:
    first, other = (ReplayBuffer(storage=ListStorage(20)) for _ in range(2))
    first.extend([np.float64(1.5), {"a": [np.int64(3), np.bool_(True)]}])
    other.load_state_dict(saved(first.state_dict(), tmp_path))
    assert repr(other.storage.contents()) == "[1.5, {'a': [3, True]}]"


STRUCTURES: dict[str, Any] = {
    "tensor": torch.arange(12).view(4, 3),
    "tuple": (torch.arange(4), [torch.ones(4, 2)]),
    "dict": {"a": torch.arange(4), "b": {"c": torch.zeros(4, 1)}},
    "ordered": OrderedDict(b=torch.arange(4), a=torch.arange(4)),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_of_tensors_are_in_the_state(tmp_path: Path, name: str) -> None:
    first, other = (ReplayBuffer(storage=LazyTensorStorage(6)) for _ in range(2))
    first.extend(STRUCTURES[name])
    other.load_state_dict(saved(first.state_dict(), tmp_path))
    assert repr(other[:]) == repr(first[:]) == repr(STRUCTURES[name])
    assert other.extend(STRUCTURES[name]).tolist() == [4, 5, 0, 1]


Two = namedtuple("Two", "a b")


def tagged(kind: str, content: Any) -> dict[str, Any]:
    return {"__rlds__": [kind, content]}


@pytest.mark.parametrize(
    ("row", "key", "kind"),
    [
        (object(), "rows[1]", "object"),
        ({"a": [np.longdouble(1)]}, "rows[1]['a'][0]", "longdouble"),
        (np.zeros(3), "rows[1]", "ndarray"),
        (Two(1, 2), "rows[1]", "Two"),
        ({frozenset({1}): 3}, "rows[1]", "frozenset"),
        (TensorDict({"f": NonTensorData(print)}, []), "rows[1]['f']", "builtin_function_or_method"),
    ],
)
def test_other_rows_are_rejected_by_key_and_type(row: Any, key: str, kind: str) -> None:
    buffer = ReplayBuffer(storage=ListStorage(4))
    buffer.extend([1, row])
    with refused(WrongRows, key=key, found=kind):
        buffer.state_dict()


def test_rows_that_are_alike_are_described_once_and_others_as_they_are(tmp_path: Path) -> None:
    values = [*[1] * 500, True, 1.0, -0.0, 0.0]
    first, other = (ReplayBuffer(storage=ListStorage(600)) for _ in range(2))
    first.extend([{"x": torch.tensor(n), "y": value} for n, value in enumerate(values)])
    state = saved(first.state_dict(), tmp_path)
    assert [run[0] for run in state["rows"]["description"]["__rlds__"][1]] == [500, 1, 1, 1, 1]
    other.load_state_dict(state)
    assert [int(row["x"]) for row in other.storage.contents()] == [*range(504)]
    assert [repr(row["y"]) for row in other.storage.contents()] == [*map(repr, values)]


@pytest.mark.parametrize(
    "rows",
    [
        *({}, {"columns": []}, {"description": 0}, "x", 5),
        {"description": tagged("tensor", 0), "columns": []},
        {"description": tagged("no", []), "columns": []},
        {"description": tagged("TensorDict", [[1], []]), "columns": [torch.ones(1)]},
        {"description": [tagged("tensor", 0)] * 2, "columns": [torch.ones(1)]},
        {"description": tagged("TensorDict", 3), "columns": []},
        {"description": tagged("rows", [[2, 1, tagged("tensor", 0)]]), "columns": [torch.ones(1)]},
        {"description": tagged("rows", [[1, 1, 5]]), "columns": [torch.ones(1)]},
        {"description": tagged("rows", [[9**9, -1, tagged("tensor", 0)]]), "columns": []},
    ],
)
def test_rows_of_a_state_that_are_not_ours_are_refused(rows: Any) -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(6))
    buffer.extend(steps(3))
    with refused(WrongState, key="rows"):
        buffer.load_state_dict(buffer.state_dict() | {"rows": rows})
    for other in (1, 5, None):
        with refused(WrongState, expected=4, found=other):
            buffer.load_state_dict(buffer.state_dict() | {"format": other})
    assert len(buffer) == 3


def test_a_state_of_another_sampler_is_refused_and_its_rows_can_be_loaded_alone() -> None:
    first, other = small("epoch"), small("random", count=2)
    with refused(WrongState, expected="uniform rows", found="epochs of rows"):
        other.load_state_dict(first.state_dict())
    own = other.generator.get_state()
    other.load_state_dict(first.state_dict() | {"sampler": None, "generator": None})
    assert len(other) == 5 and torch.equal(other.generator.get_state(), own)


def test_a_state_is_loaded_into_a_larger_storage_and_not_into_a_smaller_one() -> None:
    first = small("random", count=13)
    larger, smaller = (ReplayBuffer(storage=LazyTensorStorage(size)) for size in (20, 5))
    larger.load_state_dict(first.state_dict())
    assert larger[:]["number"].tolist() == [*range(3, 13)]
    assert larger.extend(TensorDict({"number": torch.arange(2)}, [2])).tolist() == [10, 11]
    with refused(WrongSize, expected=10, found=5):
        smaller.load_state_dict(first.state_dict())


def test_rows_get_the_ranks_that_their_state_lacks() -> None:
    first, other = small("random", count=13), small("highest", count=2)
    other.load_state_dict(first.state_dict())
    assert other.writer.state_dict()["ranks"].tolist() == other[:]["number"].tolist()


def rows_of(count: int) -> dict[str, Any]:
    description = tagged("TensorDict", [[count], [["number", tagged("tensor", 0)]]])
    return {"description": description, "columns": [torch.arange(count)]}


WRONG: dict[str, tuple[str, dict[str, Any]]] = {
    "a sampler of text": ("epoch", {"sampler": "x"}),
    "an empty sampler": ("epoch", {"sampler": {}}),
    "an epoch beyond its end": (
        "epoch",
        {"sampler": SamplerWithoutReplacement().state_dict() | {"position": 9, "num_items": 5}},
    ),
    "an item that the epoch does not have": (
        "epoch",
        {"sampler": SamplerWithoutReplacement().state_dict() | {"order": [0, 5], "num_items": 5}},
    ),
    "no writer": ("random", {"writer": None}),
    "an empty writer": ("random", {"writer": {}}),
    "a writer of text": ("random", {"writer": {"cursor": "x", "write_count": 3}}),
    "a writer below row 0": ("random", {"writer": {"cursor": -5, "write_count": 3}}),
    "a writer behind the rows": ("random", {"writer": {"cursor": 6, "write_count": 6}}),
    "a writer behind the end": (
        "random",
        {"rows": rows_of(10), "writer": {"cursor": 10, "write_count": 10}},
    ),
    "a short generator": ("random", {"generator": torch.zeros(9, dtype=torch.uint8)}),
    "a generator of floats": ("random", {"generator": torch.zeros(9)}),
    "a generator of a number": ("random", {"generator": 5}),
    "a dataset of text": ("random", {"dataset": "door"}),
    "a dataset of a number": ("random", {"dataset": {"content": 3}}),
    "more rows than fit": ("random", {"rows": rows_of(50)}),
    "no size": ("random", {"max_size": None}),
    "no stack": (
        "random",
        {"rows": {"description": tagged("LazyStackedTensorDict", [0, []]), "columns": []}},
    ),
    "no tensors": ("random", {"rows": rows_of(1) | {"columns": ["x"]}}),
    "a sparse tensor": ("random", {"rows": rows_of(1) | {"columns": [torch.ones(1).to_sparse()]}}),
    "a tensor that claims its size": (
        "random",
        {"rows": rows_of(1) | {"columns": [torch.ones(1).expand(1, 9)]}},
    ),
    "a tensor without values": (
        "random",
        {"rows": rows_of(1) | {"columns": [torch.ones(1, device="meta")]}},
    ),
    "a number": ("random", {"rows": 5}),
    "text": ("random", {"rows": "x"}),
    "no ranks": ("highest", {"writer": {"ranks": None}}),
    "NaN among ranks": ("highest", {"writer": {"ranks": [math.nan]}}),
    "more ranks than rows": ("highest", {"writer": {"ranks": [1.0] * 9}}),
}
PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "random": lambda: {"sampler": RandomSampler()},
    "epoch": lambda: {"sampler": SamplerWithoutReplacement()},
    "highest": lambda: {"writer": TensorDictMaxValueWriter("number")},
    "priorities": lambda: {"sampler": PrioritizedSampler(10, 0.7, 0.5)},
}


def small(parts: str, storage: Any = LazyTensorStorage, count: int = 5) -> TensorDictReplayBuffer:
    made = TensorDictReplayBuffer(storage=storage(10), batch_size=2, seed=1, **PARTS[parts]())
    if count:
        made.extend(TensorDict({"number": torch.arange(count)}, [count]))
        made.sample()
    return made


@pytest.mark.parametrize("storage", [LazyTensorStorage, ListStorage])
def test_what_is_wrong_in_a_state_leaves_the_buffer(storage: Any) -> None:
    for wrong, (parts, entries) in WRONG.items():
        good = small(parts, storage).state_dict()
        used, empty = small(parts, storage, count=3), small(parts, storage, count=0)
        before = repr(used.state_dict())
        for buffer in (used, empty):
            check_refused(UsageError, [("", partial(buffer.load_state_dict, good | entries))])
        assert repr(used.state_dict()) == before, wrong
        empty.extend(TensorDict({"other": torch.ones(2), "number": torch.ones(2)}, [2]))
        assert len(empty) == 2, wrong  # no form was kept of rows that were refused


@pytest.mark.parametrize("state", [None, [], "x"])
def test_what_is_no_state_is_refused(state: Any) -> None:
    with refused(WrongState, found="nothing"):
        small("random").load_state_dict(state)


def test_what_are_no_priorities_is_refused_and_leaves_the_sampler() -> None:
    for entries in (
        {"priorities": torch.tensor([1.0, math.nan])},
        {"priorities": torch.tensor([1.0, math.inf])},
        {"priorities": torch.tensor([1.0, -3.0])},
        {"priorities": torch.ones(2, 2)},
        {"priorities": None},
        {"max_priority": math.nan},
        {"alpha": "x"},
        {"eps": -1.0},
    ):
        buffer = small("priorities")
        state = buffer.state_dict()
        wrong = state["sampler"] | {"beta": 0.9} | entries
        with pytest.raises(UsageError):
            buffer.load_state_dict(state | {"sampler": wrong})
        assert repr(buffer.state_dict()) == repr(state)
        sampler = PrioritizedSampler(10, 0.7, 0.5)
        with pytest.raises((UsageError, TypeError, RuntimeError)):
            sampler.load_state_dict(wrong)
        assert sampler.beta == 0.5


def test_a_state_shares_no_memory_with_a_list_of_rows() -> None:
    first, other = small("random", ListStorage), small("random", ListStorage, count=0)
    state = first.state_dict()
    before = repr(state)
    for number in range(5):
        first.storage.item(number)["number"].fill_(9)
    assert repr(state) == before
    other.load_state_dict(state)
    for number in range(5):
        other.storage.item(number)["number"].fill_(7)
    assert [*map(int, state["rows"]["columns"])] == [*range(5)]
