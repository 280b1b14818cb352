"""A dataset and rows of an agent in one buffer."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict

from datasets_cli import (
    BatchStream,
    ExperienceReplay,
    LazyTensorStorage,
    ListStorage,
    OfflineToOnline,
    PrioritizedSampler,
    ReplayBuffer,
    SamplerWithoutReplacement,
    SliceSampler,
    TensorDictReplayBuffer,
)
from datasets_cli.errors import (
    EmptyBuffer,
    NotWritable,
    Unsupported,
    UsageError,
    WrongRows,
    WrongSize,
    WrongState,
)
from datasets_cli.replay import LinearAnneal
from tests.support.refusals import refused

ROOM = 1000


def rows(numbers: Any) -> TensorDict:
    number = torch.as_tensor(numbers)
    return TensorDict({"number": number, ("next", "number"): number + 1}, number.shape)


def buffer(num_rows: int, start: int = 0, **arguments: Any) -> TensorDictReplayBuffer:
    made = TensorDictReplayBuffer(storage=LazyTensorStorage(ROOM), **arguments)
    if num_rows:
        made.extend(rows(range(start, start + num_rows)))
    return made


def pair(num_online: int = 50, **arguments: Any) -> OfflineToOnline:
    """Offline rows have numbers below 500, online ones from 500 on."""
    return OfflineToOnline(buffer(100), buffer(num_online, 500), seed=0, **arguments)


def num_offline(batch: Any) -> int:
    return int((batch["index"]["buffer_ids"] == 0).sum())


def test_offline_rows_come_first_and_the_index_says_which_row_of_which() -> None:
    batch = pair(fraction=0.25, batch_size=8).sample()
    ids, index = batch["index", "buffer_ids"], batch["index", "index"]
    assert batch.shape == (8,) and ids.tolist() == [0, 0, 1, 1, 1, 1, 1, 1]
    assert torch.equal(batch["number"], index + 500 * ids)
    assert torch.equal(batch["next", "number"], batch["number"] + 1)


def test_a_dataset_is_mixed_with_rows_that_are_written(door: str) -> None:
    replay = ExperienceReplay(door, seed=0)
    both = OfflineToOnline(replay, buffer(0), batch_size=64)
    assert num_offline(both.sample()) == 64 and both.fraction == 1
    both.extend(replay[:100])
    batch = both.sample()
    assert num_offline(batch) == 32 and both.fraction == 0.5
    expected = replay[batch["index", "index"]]
    assert torch.equal(batch["observation"], expected["observation"])


@settings(max_examples=25)
@given(
    st.tuples(st.floats(0, 1), st.floats(0, 1), st.integers(1, 40), st.integers(1, 12)),
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 30)), min_size=1, max_size=25),
)
def test_rows_and_shares_are_those_of_a_slow_loop(
    arguments: tuple[float, float, int, int], steps: list[tuple[int, int]]
) -> None:
    first, last, over, least = arguments
    online = TensorDictReplayBuffer(storage=LazyTensorStorage(15))  # a ring
    both = OfflineToOnline(
        buffer(9), online, fraction=first, anneal=LinearAnneal(last, over), min_online=least
    )
    written, due, drawn = 0, 0.0, 0
    for num_new, size in steps:
        if num_new:
            both.extend(rows(range(500 + written, 500 + written + num_new)))
        written += num_new
        batch = both.sample(size)
        ids, number = batch["index", "buffer_ids"].tolist(), batch["number"].tolist()
        done = min(written / over, 1.0)
        share = 1.0 if min(written, 15) < least else first * (1 - done) + last * done
        due, drawn = due + share * size, drawn + ids.count(0)
        assert abs(due - drawn) <= 0.5 + 1e-9, "no batch is further from its share than half a row"
        assert ids == sorted(ids), "offline rows come first"
        there = {*range(500 + max(0, written - 15), 500 + written)}
        assert {*number[: ids.count(0)]} <= {*range(9)} and {*number[ids.count(0) :]} <= there


@pytest.mark.parametrize(("fraction", "size"), [(0.1, 4), (0.95, 4), (1 / 3, 7), (0, 5), (1, 5)])
def test_a_fraction_of_less_than_a_row_is_not_rounded_away(fraction: float, size: int) -> None:
    both = pair(fraction=fraction, batch_size=size)
    found = sum(num_offline(both.sample()) for _ in range(60))
    assert found == pytest.approx(60 * size * fraction, abs=0.5)


def test_batches_are_all_offline_until_there_are_enough_online_rows() -> None:
    both = pair(0, fraction=0.5, min_online=10, batch_size=5)
    for count in range(9):
        both.add(rows(500 + count))
        assert num_offline(both.sample()) == 5 and both.fraction == 1
    both.add(rows(509))
    assert [num_offline(both.sample()) for _ in range(4)] == [3, 2, 3, 2]


def test_the_fraction_follows_the_rows_that_were_written() -> None:
    both = pair(0, fraction=0.9, anneal=LinearAnneal(to=0.1, over=200), batch_size=100)
    found = []
    for start in range(0, 300, 50):
        both.extend(rows(range(500 + start, 550 + start)))
        found.append(num_offline(both.sample()))
    assert found == [70, 50, 30, 10, 10, 10]


def test_a_function_moves_the_fraction_too() -> None:
    both = pair(10, fraction=0.8, anneal=lambda start, written: start / written, batch_size=50)
    assert both.fraction == 0.08 and num_offline(both.sample()) == 4
    wrong = pair(10, anneal=lambda start, written: start + written, batch_size=50)
    with refused(UsageError, argument="anneal", found=10.5):
        wrong.sample()


def test_what_is_written_goes_online_and_offline_rows_stay() -> None:
    both = pair(0)
    before = both.offline[:]
    assert both.extend(rows([500, 501])).tolist() == [0, 1] and both.add(rows(502)) == 2
    assert both.online[:]["number"].tolist() == [500, 501, 502]
    assert (len(both), both.write_count) == (103, 3)
    assert bool((both.offline[:] == before).all())


def test_transforms_of_both_run_before_that_of_the_batch() -> None:
    both = OfflineToOnline(
        buffer(10, transform=lambda batch: batch.set("x", batch["number"] * 0)),
        buffer(10, transform=lambda batch: batch.set("x", batch["number"] * 0 + 1)),
        transform=lambda batch: batch.set("y", batch["x"] * 2),
    )
    both.append_transform(lambda batch: batch.set("z", batch["y"] + 1))
    assert both.sample(4)["z"].tolist() == [1, 1, 3, 3]


def test_what_samplers_say_comes_beside_the_batch() -> None:
    batch, info = pair(batch_size=6).sample(return_info=True)
    assert info.shape == (6,)
    assert bool((info["index"] == batch["index"]).all())


@pytest.mark.parametrize("name", ["numpy", "jax"])
def test_arrays_are_those_of_torch(name: str) -> None:
    found = pair(batch_size=9).with_format(name, cast=name == "jax")
    expected = pair(batch_size=9)
    for _ in range(3):  # what is carried is, too
        batch, right = found.sample(), expected.sample()
        assert np.array_equal(batch["number"], right["number"])
        assert np.array_equal(batch["index"]["buffer_ids"], right["index", "buffer_ids"])
    assert (found.format, expected.format) == (name, "torch")


def test_whole_slices_come_from_each() -> None:
    both = slices(fraction=0.5)
    counts = []
    for _ in range(6):
        batch = both.sample(12)
        cut = batch.reshape(-1, 4)
        assert torch.equal(cut["number"].diff(), torch.ones(3, 3, dtype=torch.int64))
        counts.append(num_offline(batch) // 4)
    assert counts == [2, 1, 2, 1, 2, 1]


def slices(**arguments: Any) -> OfflineToOnline:
    made = [buffer(0, sampler=SliceSampler(slice_len=4)) for _ in range(2)]
    for each, start in zip(made, (0, 500), strict=True):
        number = torch.arange(start, start + 20)
        each.extend(rows(number).set(("next", "done"), (number % 10 == 9).unsqueeze(-1)))
    return OfflineToOnline(*made, seed=0, **arguments)


def test_slices_that_do_not_fit_together_are_refused() -> None:
    both = slices()
    with refused(WrongSize, argument="batch_size", found=10):
        both.sample(10)
    both.online.set_sampler(SliceSampler(slice_len=5))
    with refused(WrongSize, argument="slice_len", expected=4, found=5):
        both.sample(20)
    for sampler in (SliceSampler(num_slices=5), SamplerWithoutReplacement()):
        both.online.set_sampler(sampler)
        with refused(Unsupported, argument="online"):
            both.sample(20)


def test_iteration_ends_with_an_epoch_of_offline_rows() -> None:
    offline = buffer(10, sampler=SamplerWithoutReplacement(), seed=0)
    both = OfflineToOnline(offline, buffer(3, 500), batch_size=5)
    batches = list(both)
    drawn = torch.cat([batch["number"][batch["number"] < 500] for batch in batches])
    # 3, 2, 3 and 2 offline rows; the online ones have no epoch to end
    assert len(batches) == 4 and drawn.sort().values.tolist() == list(range(10))
    with refused(WrongSize, argument="batch_size"):
        next(iter(pair()))


def test_rows_of_a_storage_of_several_dimensions_have_one_number() -> None:
    storage = LazyTensorStorage(40, ndim=2)
    online = TensorDictReplayBuffer(storage=storage)
    online.extend(rows(torch.arange(500, 520).reshape(2, 10)))  # 2 environments, 10 steps
    batch = OfflineToOnline(buffer(30), online, seed=0).sample(40)
    ids, index = batch["index", "buffer_ids"], batch["index", "index"]
    # row t * 2 + w of the storage is step t of environment w
    expected = torch.where(ids == 0, index, 500 + index % 2 * 10 + index // 2)
    assert torch.equal(batch["number"], expected)


def test_rows_that_are_tensors_are_joined_and_their_index_is_in_the_info() -> None:
    made = [ReplayBuffer(storage=LazyTensorStorage(20)) for _ in range(2)]
    for start, each in enumerate(made):
        each.extend(torch.arange(100 * start, 100 * start + 20))
    batch, info = OfflineToOnline(*made).sample(6, return_info=True)
    index = info["index"]
    assert torch.equal(batch, index["index"] + 100 * index["buffer_ids"])


def test_a_seed_repeats_a_run_and_another_one_does_not(door: str) -> None:
    def drawn(seed: int) -> list[int]:
        replay, online = ExperienceReplay(door), buffer(0)
        online.extend(replay[:200])
        both = OfflineToOnline(replay, online, seed=seed)
        return both.sample(64)["index", "index"].tolist()

    assert drawn(1) == drawn(1) != drawn(2)


def test_both_are_told_apart_in_the_representation() -> None:
    text = repr(pair(fraction=0.25, anneal=LinearAnneal(to=0, over=5), keys=["number"]))
    for part in ("fraction=0.25", "LinearAnneal(to=0.0, over=5)", "keys=[('number',)]"):
        assert part in text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fraction", 1.5),
        ("fraction", float("nan")),
        ("fraction", True),
        ("anneal", 0.1),
        ("min_online", 0),
        ("min_online", 1001),  # the storage has 1000
        ("batch_size", 0),
    ],
)
def test_arguments_out_of_their_range_are_refused(name: str, value: Any) -> None:
    with refused(UsageError, argument=name, found=value):
        OfflineToOnline(buffer(5), buffer(5), **{name: value})


def test_a_batch_without_a_size_and_of_no_known_format_is_refused() -> None:
    with pytest.raises(UsageError):
        pair(format="tf")
    with refused(WrongSize, argument="batch_size"):
        pair().sample()


def test_a_straight_line_needs_an_end() -> None:
    for arguments, name in (({"to": 2, "over": 5}, "to"), ({"to": 0.5, "over": 0}, "over")):
        with refused(UsageError, argument=name):
            LinearAnneal(**arguments)


def test_buffers_that_are_no_pair_are_refused(door: str) -> None:
    replay, one = ExperienceReplay(door), buffer(5)
    with refused(NotWritable, argument="online"):
        OfflineToOnline(one, replay)
    with refused(UsageError, argument="online"):
        OfflineToOnline(one, one)
    with refused(UsageError, argument="offline", found="str"):
        OfflineToOnline(door, one)  # type: ignore[arg-type]
    both = OfflineToOnline(buffer(0), buffer(5))
    with refused(EmptyBuffer, argument="offline", expected=2):
        both.sample(4)


def test_rows_of_lists_are_refused_with_keys() -> None:
    online = ReplayBuffer(storage=ListStorage(5), collate_fn=torch.stack)
    online.extend([torch.ones(2)])
    both = OfflineToOnline(buffer(5), online, keys=["number"])
    with refused(WrongRows, argument="keys", found="Tensor"):
        both.sample(4)


def test_a_stream_gives_batches_of_both_by_its_seed() -> None:
    one, other = (list(BatchStream(pair(batch_size=8), num_batches=3, seed=5)) for _ in range(2))
    assert [num_offline(batch) for batch in one] == [4, 4, 4]
    assert all(bool((each == same).all()) for each, same in zip(one, other, strict=True))


# Offline and online rows kept as a reference and the written rows, and continued from there.


STEPS = 40


def made(door: str, seed: int, sampler: Any = None) -> OfflineToOnline:
    """Return one that draws by priority online, and without replacement or as asked offline."""
    offline = ExperienceReplay(door, sampler=sampler or SamplerWithoutReplacement())
    online = TensorDictReplayBuffer(
        storage=LazyTensorStorage(150), sampler=PrioritizedSampler(150, 0.7, 0.5)
    )
    anneal = LinearAnneal(to=0.2, over=200)
    return OfflineToOnline(
        offline, online, fraction=0.7, anneal=anneal, min_online=15, seed=seed, batch_size=11
    )


def train(both: OfflineToOnline, source: TensorDict, start: int) -> Iterator[TensorDict]:
    """Yield a batch a step, with rows written and priorities updated in between."""
    for step in range(start, STEPS):
        both.extend(source[4 * step : 4 * step + 4])
        batch = both.sample()
        batch["td_error"] = batch["action"].abs().sum(-1)
        both.update_tensordict_priority(batch)
        yield batch


@pytest.mark.parametrize("by", ["saved", "dump", "pickle"])
def test_a_run_continues_with_the_same_batches_from_every_tenth_one(
    door: str, by: str, tmp_path: Path
) -> None:
    source = ExperienceReplay(door)[:300]
    run, expected, kept = made(door, 0), [], {}
    for step, batch in enumerate(train(run, source, 0)):
        expected.append(batch)
        if step % 10 == 9:
            kept[step + 1] = keep(run, by, tmp_path / str(step))
    fractions = {(batch["index", "buffer_ids"] == 0).sum().item() for batch in expected}
    assert len(fractions) > 4, "the fraction moves"
    for start, state in kept.items():
        resumed = restored(made(door, 1), state, by)
        for batch, right in zip(train(resumed, source, start), expected[start:], strict=True):
            assert bool((batch == right).all())


def keep(run: OfflineToOnline, by: str, folder: Path) -> Any:
    if by == "dump":
        run.dumps(folder)
        return folder
    if by == "saved":
        torch.save(run.state_dict(), file := io.BytesIO())
        return file.getvalue()
    return pickle.dumps(run)


def restored(fresh: OfflineToOnline, kept: Any, by: str) -> OfflineToOnline:
    if by == "pickle":
        return pickle.loads(kept)
    if by == "dump":
        fresh.loads(kept)
    else:
        fresh.load_state_dict(torch.load(io.BytesIO(kept)))
    return fresh


def test_a_dataset_is_kept_as_a_reference_and_written_rows_whole(door: str, tmp_path: Path) -> None:
    both = made(door, 0)
    both.extend(ExperienceReplay(door)[:20])
    state = both.state_dict()
    assert "rows" not in state["offline"] and "rows" in state["online"]
    assert state["offline"]["dataset"]["content"] == both.offline.manifest.content
    both.dumps(tmp_path / "kept")
    dumped = torch.load(tmp_path / "kept" / "buffer.pt")
    assert dumped.keys() == {"offline", "online", "share"} and "rows" not in dumped["offline"]


def test_another_dataset_is_refused_and_nothing_changes(door: str, tmp_path: Path) -> None:
    run = made(door, 0)
    run.extend(ExperienceReplay(door)[:20])
    run.dumps(tmp_path)
    other = OfflineToOnline(
        buffer(10), run.online, fraction=0.7, anneal=LinearAnneal(to=0.2, over=200), min_online=15
    )
    before = other.state_dict()
    for load, kept in ((other.loads, tmp_path), (other.load_state_dict, run.state_dict())):
        with refused(WrongState, id=door):
            load(kept)  # type: ignore[operator]
    assert before["share"] == other.state_dict()["share"]
    assert torch.equal(before["online"]["generator"], other.state_dict()["online"]["generator"])


def test_a_view_is_kept_as_a_reference_and_another_view_is_refused(door: str) -> None:
    def of_view(count: int) -> OfflineToOnline:
        both = OfflineToOnline(ExperienceReplay(door).take(count, by="-return"), buffer(0), seed=0)
        both.extend(ExperienceReplay(door)[:20])
        return both

    run, resumed = of_view(2), of_view(2)
    run.sample(7)
    resumed.load_state_dict(run.state_dict())
    assert bool((resumed.sample(7) == run.sample(7)).all())
    with pytest.raises(WrongState):
        of_view(3).load_state_dict(run.state_dict())


def test_another_fraction_is_refused_with_both_named(tmp_path: Path) -> None:
    run = pair(fraction=0.5, anneal=LinearAnneal(to=0.1, over=10))
    run.dumps(tmp_path)
    other = pair(fraction=0.25, anneal=lambda fraction, written: fraction)
    for load, kept in ((other.loads, tmp_path), (other.load_state_dict, run.state_dict())):
        with refused(WrongState, expected="fraction=0.25, anneal='a function'"):
            load(kept)  # type: ignore[operator]


def test_what_is_no_state_is_refused(tmp_path: Path) -> None:
    both = pair()
    for state in ({}, None, both.online.state_dict()):
        with refused(WrongState, expected=["offline", "online", "share"]):
            both.load_state_dict(state)  # type: ignore[arg-type]
    for carried in (None, 0.75, float("nan")):
        state = both.state_dict()
        state["share"]["carried"] = carried
        with refused(WrongState, key="carried"):
            both.load_state_dict(state)
    both.online.dumps(tmp_path)
    with refused(WrongState, path=tmp_path):
        both.loads(tmp_path)


@pytest.mark.parametrize("stops_at", ["offline", "online"])
def test_a_dump_that_stops_within_leaves_the_older_one(
    stops_at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = pair(10)
    both.dumps(tmp_path)
    both.extend(rows([600]))

    def stop() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(getattr(both, stops_at).persistence, "dump_state", stop)
    with pytest.raises(KeyboardInterrupt):
        both.dumps(tmp_path)
    found = pair(0)
    found.loads(tmp_path)
    assert len(found.online) == 10
