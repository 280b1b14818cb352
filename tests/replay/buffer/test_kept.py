"""What batches keep of the rows that were written: by value, in every storage, and once around."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict, lazy_stack, tensorclass

from datasets_cli import (
    LazyMemmapStorage,
    LazyTensorStorage,
    ListStorage,
    RandomSampler,
    ReplayBuffer,
    ReplayBufferEnsemble,
    TensorDictMaxValueWriter,
    TensorDictReplayBuffer,
    TensorStorage,
)
from datasets_cli.errors import WrongRows, WrongSize
from datasets_cli.replay import LazyStackStorage
from tests.support.refusals import refused

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl.data import replay_buffers as peer

STORAGES: list[Any] = [LazyTensorStorage, LazyMemmapStorage, ListStorage]
TENSORS = STORAGES[:2]


@tensorclass
class Step:
    """A row with a value that is no tensor."""

    obs: torch.Tensor
    name: str
    none: str | None = None


def named(start: int, stop: int) -> Step:
    number = torch.arange(start, stop)
    names = NonTensorStack(*(f"n{n}" for n in range(start, stop)))
    return Step(obs=number, name=names, batch_size=[stop - start])  # type: ignore[arg-type]


def texts(start: int, stop: int) -> TensorDict:
    """Rows with a text, a nested value of another kind, and one value for all."""
    count = stop - start
    data = TensorDict({"a": torch.arange(start, stop)}, [count])
    data["text"] = [f"t{n}" for n in range(start, stop)]
    data["next", "any"] = NonTensorStack(*(NonTensorData((n, [n])) for n in range(start, stop)))
    data["same"] = f"s{start}"
    return data


def check_texts(batch: Any) -> None:
    numbers = batch["a"].tolist()
    assert batch["text"] == [f"t{n}" for n in numbers]
    assert batch["next", "any"] == [(n, [n]) for n in numbers]


@pytest.mark.parametrize("storage", STORAGES)
def test_nested_batch_sizes_are_those_that_were_written(storage: Any) -> None:
    agents = TensorDict({"x": torch.randn(6, 3, 2), "deep": {"y": torch.randn(6, 3)}}, [6, 3])
    data = TensorDict({"a": torch.arange(6), "agents": agents}, [6])
    ours = TensorDictReplayBuffer(storage=storage(10), batch_size=4)
    theirs = peer.TensorDictReplayBuffer(storage=getattr(peer, storage.__name__)(10), batch_size=4)
    for buffer in (ours, theirs):
        buffer.extend(data.clone())
    for got, expected in ((ours.sample(), theirs.sample()), (ours[:], theirs[:])):
        for key in ("agents", ("agents", "deep")):
            assert got[key].batch_size == expected[key].batch_size
        rows = got["a"]
        assert torch.equal(got["agents", "x"], data["agents", "x"][rows])
    assert ours[2]["agents"].batch_size == theirs[2]["agents"].batch_size == (3,)
    ours[0] = ours[5]
    assert torch.equal(ours[0]["agents", "x"], data["agents", "x"][5])


@pytest.mark.parametrize("storage", STORAGES)
def test_batches_know_the_device_of_their_storage(storage: Any) -> None:
    data = TensorDict({"a": torch.arange(6), "b": {"c": torch.zeros(6)}}, [6])
    ours = TensorDictReplayBuffer(storage=storage(10), batch_size=4)
    theirs = peer.TensorDictReplayBuffer(storage=getattr(peer, storage.__name__)(10), batch_size=4)
    for buffer in (ours, theirs):
        buffer.extend(data.clone())
    assert ours.sample().device == theirs.sample().device
    assert ours[:].device == theirs[:].device
    assert ours.sample()["b"].device == theirs.sample()["b"].device
    known = TensorDictReplayBuffer(storage=storage(10), batch_size=4)
    known.extend(data.to("cpu"))
    assert known.sample().device == torch.device("cpu")


@pytest.mark.parametrize("storage", STORAGES)
def test_values_that_are_no_tensors_follow_their_rows_around_a_ring(storage: Any) -> None:
    buffer = TensorDictReplayBuffer(storage=storage(7), batch_size=20)
    for start in range(0, 20, 3):
        buffer.extend(texts(start, start + 3))
        check_texts(buffer.sample())
        check_texts(buffer[:])
    buffer.add(texts(30, 31)[0])
    buffer[0] = texts(40, 41)[0]
    check_texts(buffer[:])
    assert buffer[0]["text"] == "t40" and 40 in buffer["a"].tolist()
    assert buffer["same"][0] == "s40"


@pytest.mark.parametrize("storage", TENSORS)
def test_a_batch_shares_no_value_with_the_rows(storage: Any) -> None:
    buffer = TensorDictReplayBuffer(storage=storage(4), batch_size=3)
    buffer.extend(texts(0, 4))
    batch = buffer[:]
    batch["text"] = ["x"] * 4
    batch[0] = texts(9, 10)[0].update({"index": 0}) if "index" in batch.keys() else texts(9, 10)[0]  # noqa: SIM118
    check_texts(buffer[:])
    assert buffer["a"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("storage", STORAGES)
def test_a_deep_copy_has_values_of_its_own(storage: Any) -> None:
    buffer = TensorDictReplayBuffer(storage=storage(4), batch_size=3)
    buffer.extend(texts(0, 4))
    copied = copy.deepcopy(buffer)
    copied[0] = texts(9, 10)[0]
    assert copied[0]["text"] == "t9" and buffer[0]["text"] == "t0"


@pytest.mark.parametrize("storage", TENSORS)
def test_values_of_several_environments_keep_their_places(storage: Any, tmp_path: Path) -> None:
    def grid(start: int) -> TensorDict:
        numbers = torch.arange(start, start + 6).view(2, 3)  # [environments, time]
        rows = TensorDict({"a": numbers}, [2, 3])
        names = [NonTensorStack(*(f"t{n}" for n in row)) for row in numbers.tolist()]
        return rows.set("text", lazy_stack(names))

    buffer = TensorDictReplayBuffer(storage=storage(8, ndim=2), batch_size=30)
    again = TensorDictReplayBuffer(storage=storage(8, ndim=2), batch_size=30)
    buffer.extend(grid(0))
    buffer.extend(grid(10))
    buffer.dumps(tmp_path)
    again.loads(tmp_path)
    third = TensorDictReplayBuffer(storage=storage(8, ndim=2), batch_size=30)
    third.load_state_dict(buffer.state_dict())
    for one in (buffer, again, third):
        batch = one.sample(400)
        assert batch["text"] == [f"t{n}" for n in batch["a"].tolist()]
        assert sorted(set(batch["a"].tolist())) == [2, 5, 10, 11, 12, 13, 14, 15]


def kept(buffer: ReplayBuffer, folder: Path, tensorclass: Any = None) -> list[ReplayBuffer]:
    """Return buffers that a dump and a state of a buffer went into."""
    storage: Any = type(buffer.storage)
    loaded, restored = (type(buffer)(storage=storage(7), batch_size=9) for _ in range(2))
    buffer.dumps(folder)
    loaded.loads(folder, tensorclass=tensorclass)
    restored.load_state_dict(buffer.state_dict(), tensorclass=tensorclass)
    return [buffer, loaded, restored]


@pytest.mark.parametrize("storage", STORAGES)
def test_values_come_back_from_a_dump_and_a_state(storage: Any, tmp_path: Path) -> None:
    buffer = TensorDictReplayBuffer(storage=storage(7), batch_size=9)
    for start in (0, 5):
        buffer.extend(texts(start, start + 5))
    for one in kept(buffer, tmp_path):
        check_texts(one.sample())
        one.extend(texts(20, 22))  # after the newest
        assert sorted(one["a"].tolist()) == [5, 6, 7, 8, 9, 20, 21]
        check_texts(one[:])


@pytest.mark.parametrize("storage", STORAGES)
def test_a_tensorclass_goes_around_a_ring_a_dump_and_a_state(storage: Any, tmp_path: Path) -> None:
    buffer = ReplayBuffer(storage=storage(7), batch_size=9)
    for start in (0, 5):
        buffer.extend(named(start, start + 5))
    buffer.add(named(30, 31)[0])
    for one in kept(buffer, tmp_path, Step):
        for rows in (one.sample(), one[:]):
            assert type(rows) is Step and rows.batch_size == rows.obs.shape
            assert rows.name == [f"n{n}" for n in rows.obs.tolist()] and rows.none is None
        assert type(one[2]) is Step and one[2].batch_size == ()
        assert 30 in one[:].obs.tolist() and len(one) == 7


@pytest.mark.parametrize("storage", STORAGES)
def test_a_tensorclass_inside_a_row_stays_one(storage: Any) -> None:
    buffer = TensorDictReplayBuffer(storage=storage(7), batch_size=9)
    buffer.extend(TensorDict({"a": torch.arange(4), "in": {"step": named(0, 4)}}, [4]))
    batch = buffer.sample()
    assert type(batch["in", "step"]) is Step
    assert batch["in", "step"].name == [f"n{n}" for n in batch["a"].tolist()]


def test_members_of_tensorclasses_give_tensorclasses() -> None:
    buffers = [ReplayBuffer(storage=kind(7)) for kind in (LazyTensorStorage, ListStorage)]
    for buffer in buffers:
        buffer.extend(named(0, 5))
    ensemble = ReplayBufferEnsemble(*buffers, batch_size=6, sample_from_all=True)
    batch = ensemble.sample()
    assert type(batch) is Step and batch.batch_size == (2, 3)
    flat = ensemble.sample_flat()
    assert flat.name == [f"n{n}" for n in flat.obs.tolist()]


def test_rows_that_exist_keep_their_values_and_classes() -> None:
    held = TensorDictReplayBuffer(storage=TensorStorage(texts(0, 5)), batch_size=9)
    check_texts(held.sample())
    classes = ReplayBuffer(storage=TensorStorage(named(0, 5)), batch_size=9)
    batch = classes.sample()
    assert batch.name == [f"n{n}" for n in batch.obs.tolist()]


def test_the_highest_rows_keep_their_values() -> None:
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(3), writer=TensorDictMaxValueWriter("a"), batch_size=9
    )
    buffer.extend(texts(0, 5))
    assert sorted(buffer["a"].tolist()) == [2, 3, 4]
    check_texts(buffer[:])


def ragged() -> list[TensorDict]:
    return [TensorDict({"a": torch.arange(n), "t": f"t{n}"}, []) for n in (2, 3, 4)]


@pytest.mark.parametrize("storage", [ListStorage, LazyStackStorage])
@pytest.mark.parametrize("write", [lambda rows: rows, lazy_stack])
def test_ragged_rows_make_a_lazy_stack_of_copies(storage: Any, write: Callable[..., Any]) -> None:
    ours = TensorDictReplayBuffer(storage=storage(5), batch_size=8)
    theirs = peer.TensorDictReplayBuffer(storage=peer.LazyStackStorage(5), batch_size=8)
    ours.extend(write(ragged()))
    theirs.extend(lazy_stack(ragged()))
    batch, expected = ours.sample(), theirs.sample()
    assert type(batch) is type(expected) and batch.batch_size == expected.batch_size == (8,)
    for row in batch.unbind(0):
        assert row["a"].tolist() == list(range(int(row["index"]) + 2))
        assert row["t"] == f"t{len(row['a'])}"
        row["a"].fill_(9)
    assert [row["a"].tolist() for row in ours[:].unbind(0)] == [[0, 1], [0, 1, 2], [0, 1, 2, 3]]


@pytest.mark.parametrize("storage", [ListStorage, LazyStackStorage])
@pytest.mark.parametrize("kind", [ReplayBuffer, TensorDictReplayBuffer])
@pytest.mark.parametrize("write", [lambda rows: rows, lazy_stack])
def test_episodes_of_different_lengths_make_a_lazy_stack(
    storage: Any, kind: Any, write: Any
) -> None:
    episodes = [
        TensorDict({"a": torch.arange(n), "next": {"a": n + torch.arange(n)}}, [n]) for n in (2, 3)
    ]
    ours, theirs = kind(storage=storage(5)), peer.ReplayBuffer(storage=peer.LazyStackStorage(5))
    ours.extend(write(episodes))
    theirs.extend(write(episodes))
    batch, info = ours.sample(64, return_info=True)  # so many that both lengths are among them
    assert batch.batch_size == theirs.sample(64).batch_size == (64, -1)
    for row, number in zip(batch.unbind(0), info["index"].tolist(), strict=True):
        assert row["next", "a"].tolist() == episodes[number]["next", "a"].tolist()
        assert kind is ReplayBuffer or row["index"].tolist() == [number] * (number + 2)
    wide = TensorDict({"a": torch.zeros(2, 2, dtype=torch.int64), "next": {}}, [2, 2])
    ours.extend([wide])
    with refused(WrongRows):
        ours[:]


def test_the_dimension_of_a_lazy_stack_may_be_another() -> None:
    ours = TensorDictReplayBuffer(storage=LazyStackStorage(5, stack_dim=-1), batch_size=4)
    theirs = peer.ReplayBuffer(storage=peer.LazyStackStorage(5, stack_dim=-1))
    for buffer in (ours, theirs):
        buffer.extend([TensorDict({"a": torch.full((2,), n)}, [2]) for n in range(3)])
    batch, expected = ours.sample(), theirs.sample(4)
    assert batch.batch_size == expected.batch_size == (2, 4)
    assert torch.equal(batch["index"], batch["a"])
    with refused(WrongSize, argument="stack_dim", found=1):
        wrong = TensorDictReplayBuffer(storage=LazyStackStorage(5, stack_dim=1), batch_size=4)
        wrong.extend(ragged())
        wrong.sample()


def test_a_tensor_storage_refuses_ragged_rows_and_names_what_takes_them() -> None:
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(5), batch_size=8)
    with refused(WrongRows, advice="ListStorage and LazyStackStorage take rows of unequal shapes."):
        buffer.extend(lazy_stack(ragged()))
    assert len(buffer) == 0


PYTREES: list[Callable[[int], Any]] = [
    torch.arange,
    lambda n: {"a": torch.arange(n), "b": (torch.arange(n).float(), [torch.zeros(n, 2)])},
    lambda n: (torch.arange(n), {1: torch.arange(n) * 2}),
]


def test_tensors_of_several_environments_and_of_a_list_come_back_from_a_dump(
    tmp_path: Path,
) -> None:
    wide = ReplayBuffer(storage=LazyTensorStorage(6, ndim=2), batch_size=4)
    wide.extend({"a": torch.arange(6).view(2, 3)})
    listed = ReplayBuffer(storage=ListStorage(6), batch_size=4)
    listed.extend([{"a": torch.tensor(n), "b": (torch.ones(2) * n,)} for n in range(4)])
    for number, (one, storage) in enumerate(
        [(wide, LazyTensorStorage(6, ndim=2)), (listed, ListStorage(6))]
    ):
        again = ReplayBuffer(storage=storage, batch_size=4)
        one.dumps(tmp_path / str(number))
        again.loads(tmp_path / str(number))
        torch.testing.assert_close(again[:], one[:], rtol=0, atol=0)


@pytest.mark.parametrize("make", PYTREES)
def test_members_of_tensors_are_drawn_as_one(make: Callable[[int], Any]) -> None:
    def made(library: Any) -> Any:
        members = [library.ReplayBuffer(storage=library.LazyTensorStorage(9)) for _ in range(2)]
        for number, member in enumerate(members):
            member.extend(torch.utils._pytree.tree_map(lambda t, n=number: t + 10 * n, make(9)))
        return library.ReplayBufferEnsemble(*members, batch_size=8, sample_from_all=True)

    import datasets_cli

    ours, theirs = made(datasets_cli), made(peer)
    batch, info = ours.sample(return_info=True)
    expected = theirs.sample()
    leaves, structure = torch.utils._pytree.tree_flatten(batch)
    others, other = torch.utils._pytree.tree_flatten(expected)
    assert structure == other and [t.shape for t in leaves] == [t.shape for t in others]
    drawn = info["index", "index"] + 10 * torch.tensor([[0], [1]])
    assert torch.equal(leaves[0], drawn)
    flat = ours.sample_flat()
    assert torch.utils._pytree.tree_leaves(flat)[0].shape == (8,)


def test_members_that_differ_are_refused() -> None:
    members = [ReplayBuffer(storage=LazyTensorStorage(4)) for _ in range(2)]
    members[0].extend(torch.arange(4))
    members[1].extend({"a": torch.arange(4)})
    ensemble = ReplayBufferEnsemble(*members, batch_size=4, sample_from_all=True)
    for draw in (ensemble.sample, ensemble.sample_flat):
        with pytest.raises(WrongRows) as error:
            draw()
        assert error.value.found == ["Tensor", "dict(a: Tensor)"]
        assert "collate_fn" in str(error.value.advice)


@pytest.mark.parametrize("storage", STORAGES)
def test_an_empty_buffer_is_dumped_and_loaded(storage: Any, tmp_path: Path) -> None:
    buffer = TensorDictReplayBuffer(storage=storage(5), batch_size=2, sampler=RandomSampler())
    buffer.dumps(tmp_path / "new")
    buffer.extend(texts(0, 3))
    buffer.empty()
    buffer.dumps(tmp_path / "emptied")
    for name in ("new", "emptied"):
        again = TensorDictReplayBuffer(storage=storage(5), batch_size=2)
        again.extend(texts(0, 4))
        again.loads(tmp_path / name)
        assert len(again) == 0
        again.extend(texts(7, 9))
        assert again["a"].tolist() == [7, 8]
