"""Several buffers drawn from as one."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

import datasets_cli
from datasets_cli import (
    CatFrames,
    ExperienceReplay,
    LazyTensorStorage,
    Mixture,
    PrioritizedSampler,
    RandomSampler,
    ReplayBuffer,
    ReplayBufferEnsemble,
    RoundRobinWriter,
    SamplerWithoutReplacement,
    SliceSampler,
    SliceSamplerWithoutReplacement,
    TensorDictReplayBuffer,
    open_storage,
)
from datasets_cli.config import Config
from datasets_cli.errors import (
    EmptyBuffer,
    ImmutableError,
    UnknownKey,
    UsageError,
    WrongRows,
    WrongSize,
    WrongState,
)
from datasets_cli.replay import SamplerEnsemble, StorageEnsemble, WriterEnsemble
from datasets_cli.torchrl import PrioritizedReplayBuffer
from tests.replay.storages.test_storages import steps
from tests.support.refusals import refused
from tests.support.text_rows import steps_of, write


def member(num_rows: int, start: int, **arguments: Any) -> TensorDictReplayBuffer:
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(num_rows), **arguments)
    number = torch.arange(start, start + num_rows)
    buffer.extend(TensorDict({"number": number, ("next", "number"): number + 1}, [num_rows]))
    return buffer


def test_every_member_gives_a_part_and_the_index_says_which_row_of_which() -> None:
    ensemble = ReplayBufferEnsemble(
        member(10, 0), member(30, 100), batch_size=12, sample_from_all=True
    )
    batch = ensemble.sample()
    assert batch.shape == (2, 6) and len(ensemble) == 40
    assert torch.equal(batch["index", "buffer_ids"], torch.tensor([[0] * 6, [1] * 6]))
    assert torch.equal(
        batch["number"], batch["index", "index"] + 100 * batch["index", "buffer_ids"]
    )
    assert torch.equal(batch["next", "number"], batch["number"] + 1)


@pytest.mark.parametrize(
    ("p", "share"), [(None, 0.5), ([1.0, 3.0], 0.75), ("size", 0.9), ([0.0, 2.0], 1.0)]
)
def test_members_are_drawn_by_their_weights(p: Any, share: float) -> None:
    ensemble = ReplayBufferEnsemble(member(10, 0), member(90, 100), p=p, seed=0)
    ids = ensemble.sample_flat(20_000)["index", "buffer_ids"]
    assert abs(float(ids.float().mean()) - share) < 0.02
    parts = [ensemble.sample(2)["index", "buffer_ids"] for _ in range(500)]
    assert abs(float(torch.cat(parts).float().mean()) - share) < 0.07


def test_a_flat_batch_has_every_row_asked_for() -> None:
    ensemble = ReplayBufferEnsemble(
        member(10, 0), member(10, 100), member(10, 200), sample_from_all=True
    )
    batch = ensemble.sample_flat(8)
    assert batch.shape == (8,)
    assert batch["index", "buffer_ids"].tolist() == [0, 0, 0, 1, 1, 1, 2, 2]


def test_rows_and_members_are_indexed() -> None:
    ensemble = ReplayBufferEnsemble(member(10, 0), member(10, 100))
    assert ensemble[1] is ensemble.buffers[1]
    assert ensemble[1, 3]["number"] == 103
    assert ensemble[:, 2:4]["number"].tolist() == [[2, 3], [102, 103]]


def test_several_members_are_named_by_a_list_or_all_by_an_ellipsis() -> None:
    ensemble = ReplayBufferEnsemble(*(member(10, start) for start in (0, 100, 200)))
    assert ensemble[[2, 0]] == [ensemble[2], ensemble[0]] == ensemble[::-2]
    assert ensemble[..., 3:5]["number"].tolist() == [[3, 4], [103, 104], [203, 204]]
    assert ensemble[torch.tensor([0, -1]), 7]["number"].tolist() == [7, 207]


def test_keys_of_one_member_alone_are_its_own_in_parts_and_refused_flat() -> None:
    odd = member(10, 100, transform=lambda batch: batch.set("more", batch["number"]))
    ensemble = ReplayBufferEnsemble(member(10, 0), odd, batch_size=4, sample_from_all=True)
    batch = ensemble.sample()
    assert "more" in batch[1] and "more" not in batch[0]
    for refuses in (ensemble.sample_flat, ensemble.with_format("numpy").sample):
        with refused(WrongRows, key=("more",)):
            refuses()


@pytest.mark.parametrize("name", ["numpy", "jax"])
def test_arrays_of_an_ensemble_are_those_of_torch(name: str) -> None:
    members = [member(10, 0, format="numpy"), member(10, 100)]
    expected = ReplayBufferEnsemble(*members, batch_size=8)
    found = expected.with_format(name, cast=name == "jax")
    assert (found.format, expected.format) == (name, "torch")
    for draw in ("sample", "sample_flat"):
        found.set_rng(torch.Generator().manual_seed(4))
        batch, info = getattr(found, draw)(return_info=True)
        expected.set_rng(torch.Generator().manual_seed(4))
        right = getattr(expected, draw)()
        for part in (batch["index"], info["index"]):
            assert np.array_equal(part["index"], right["index", "index"])
            assert np.array_equal(part["buffer_ids"], right["index", "buffer_ids"])
        assert np.array_equal(batch["number"], right["number"])
    assert np.array_equal(found[:, 2:4]["number"], [[2, 3], [102, 103]])
    assert found[1, 3]["number"] == 103


@pytest.mark.parametrize("name", ["torch", "numpy", "jax"])
def test_priorities_go_back_to_their_members(name: str) -> None:
    members = [member(10, start, sampler=PrioritizedSampler(10, 1.0, 1.0)) for start in (0, 100)]
    ensemble = ReplayBufferEnsemble(*members, batch_size=200, sample_from_all=True)
    found = ensemble.with_format(name, cast=name == "jax")
    batch = found.sample()
    batch["td_error"] = (batch["number"] == 103) * 1.0
    found.update_tensordict_priority(batch)
    assert set(members[1].sample(50)["number"].tolist()) == {103}
    with refused(UnknownKey, key="index"):
        found.update_tensordict_priority({"td_error": batch["td_error"]})


def test_priorities_are_given_by_what_the_index_names() -> None:
    members = [member(10, start, sampler=PrioritizedSampler(10, 1.0, 1.0)) for start in (0, 100)]
    ensemble = ReplayBufferEnsemble(*members)
    ensemble.update_priority({"buffer_ids": [0] * 10 + [1] * 10, "index": [*range(10)] * 2}, 0.0)
    ensemble.update_priority({"buffer_ids": [1, 0], "index": [3, 7]}, [1.0, 2.0])
    assert [set(each.sample(50)["number"].tolist()) for each in members] == [{7}, {103}]


def test_a_state_of_other_members_is_refused() -> None:
    two, three = (ReplayBufferEnsemble(*(member(4, 0),) * count) for count in (2, 3))
    with refused(WrongState, expected=["0", "1", "generator"]):
        two.load_state_dict(three.state_dict())


def test_iteration_ends_with_the_first_epoch_that_ends_and_state_is_resumed() -> None:
    def ensemble() -> ReplayBufferEnsemble:
        members = [member(size, 0, sampler=SamplerWithoutReplacement(), seed=1) for size in (6, 20)]
        return ReplayBufferEnsemble(*members, batch_size=4, sample_from_all=True, seed=0)

    first = ensemble()
    batches = [batch["number"] for batch in first]
    assert len(batches) == 3
    state = first.state_dict()
    other = ensemble()
    other.load_state_dict(state)
    assert torch.equal(other.sample()["number"], first.sample()["number"])


def test_an_epoch_that_ended_does_not_end_later_iterations() -> None:
    members = [member(8, 0, sampler=SamplerWithoutReplacement()), member(8, 100)]
    ensemble = ReplayBufferEnsemble(*members, batch_size=2, num_buffer_sampled=1, seed=1)
    for _ in range(8):
        parts = [batch["index", "buffer_ids"].flatten() for batch in ensemble]
        assert torch.cat(parts).eq(0).sum() == 8  # the whole epoch of the first


def test_an_epoch_that_ends_within_a_part_goes_on_with_the_next_one() -> None:
    members = [member(size, 0, sampler=SamplerWithoutReplacement(), seed=1) for size in (7, 3)]
    ensemble = ReplayBufferEnsemble(*members, batch_size=8, sample_from_all=True)
    first = ensemble.sample()
    assert first.shape == (2, 4) and ensemble.ran_out
    assert first["number"][1, :3].sort().values.tolist() == [0, 1, 2]  # and one of the next epoch
    rest = torch.cat([first["number"][0], ensemble.sample()["number"][0, :3]])
    assert rest.sort().values.tolist() == list(range(7))
    assert ensemble.sample_flat(40).shape == (40,)


def test_slices_that_leave_parts_unequal_are_refused_and_joined_flat() -> None:
    def slices(num_trajectories: int) -> TensorDictReplayBuffer:
        number = torch.arange(5 * num_trajectories)
        sampler = SliceSamplerWithoutReplacement(slice_len=2, trajectories=number // 5)
        return member(len(number), 0, sampler=sampler)

    ensemble = ReplayBufferEnsemble(slices(1), slices(2), batch_size=8, sample_from_all=True)
    with refused(WrongSize, found=[[2], [4]]):
        ensemble.sample()
    assert ensemble.sample_flat().shape == (6,)


def test_an_ensemble_is_made_of_parts_as_of_buffers() -> None:
    storages = [member(size, start).storage for size, start in ((10, 0), (30, 100))]
    ensemble = ReplayBufferEnsemble(
        storages=StorageEnsemble(*storages, transforms=[None, lambda batch: batch.exclude("next")]),
        samplers=SamplerEnsemble(SamplerWithoutReplacement(), RandomSampler(), p="size"),
        writers=WriterEnsemble(RoundRobinWriter(), RoundRobinWriter()),
        collate_fns=[None, lambda batch: batch.set("more", batch["number"])],
        batch_size=8,
    )
    assert len(ensemble) == len(StorageEnsemble(*storages)) == 40
    batch = ensemble.sample()
    for part in batch:
        is_second = bool(part["index", "buffer_ids"].any())
        assert ("next" in part, "more" in part) == (not is_second, is_second)
    ensemble.sampler.p = [0.0, 1.0]
    assert bool((ensemble.sample()["index", "buffer_ids"] == 1).all())


def test_a_copy_continues_the_draws_and_leaves_the_global_generator_alone() -> None:
    members = [member(50, 0, seed=1), member(50, 100, seed=2)]
    ensemble = ReplayBufferEnsemble(*members, batch_size=20, seed=3)
    ensemble.sample()
    copy = pickle.loads(pickle.dumps(ensemble))
    assert bool((copy.sample() == ensemble.sample()).all())
    blob = pickle.dumps(ReplayBufferEnsemble(*members))
    assert pickle.loads(blob).generator is torch.default_generator


@pytest.mark.parametrize("flat", [False, True])
def test_what_samplers_say_comes_beside_the_batch(flat: bool) -> None:
    members = [member(10, start, sampler=PrioritizedSampler(10, 1.0, 1.0)) for start in (0, 100)]
    ensemble = ReplayBufferEnsemble(*members, batch_size=12, sample_from_all=True)
    batch, info = (ensemble.sample_flat if flat else ensemble.sample)(return_info=True)
    assert info.shape == batch.shape
    for key in (("index", "index"), ("index", "buffer_ids"), "priority_weight"):
        assert torch.equal(info[key], batch[key])


def test_a_collate_fn_makes_the_batch_of_the_parts() -> None:
    ensemble = ReplayBufferEnsemble(
        member(10, 0), member(10, 100), sample_from_all=True, collate_fn=torch.cat
    )
    assert ensemble.sample(12)["index", "buffer_ids"].tolist() == [0] * 6 + [1] * 6


def test_every_member_is_emptied_and_transforms_are_applied_in_their_order() -> None:
    ensemble = ReplayBufferEnsemble(member(10, 0), member(10, 100), batch_size=4)
    ensemble.append_transform(lambda batch: batch.set("second", batch["first"]))
    ensemble.insert_transform(0, lambda batch: batch.set("first", batch["number"] * 2))
    batch = ensemble.sample_flat()
    assert torch.equal(batch["second"], batch["number"] * 2)
    ensemble.empty()
    assert len(ensemble) == 0


def test_every_member_is_dumped_and_loaded(tmp_path: Path) -> None:
    first = ReplayBufferEnsemble(member(10, 0), member(5, 100))
    first.dumps(tmp_path)
    other = ReplayBufferEnsemble(member(10, 500), member(5, 600))
    other.loads(tmp_path)
    assert all(bool((other[number][:] == first[number][:]).all()) for number in range(2))


def test_weights_that_draw_nothing_are_refused() -> None:
    for p in ([0, 0], [-1, 2], [float("nan"), 1]):
        with refused(
            UsageError, argument="p", expected="non-negative numbers with a finite sum above 0"
        ):
            ReplayBufferEnsemble(member(10, 0), member(10, 100), p=p)
    empty = TensorDictReplayBuffer(storage=LazyTensorStorage(10))
    with pytest.raises(EmptyBuffer):
        ReplayBufferEnsemble(empty, empty, p="size").sample(4)


def test_what_makes_no_sense_is_refused() -> None:
    one = member(10, 0)
    for arguments in ({"p": [1.0]}, {"p": [1, 1], "sample_from_all": True}, {"seed": 0}):
        extra = {"generator": torch.Generator()} if "seed" in arguments else {}
        with pytest.raises(UsageError):
            ReplayBufferEnsemble(one, one, **arguments, **extra)  # type: ignore[arg-type]
    with refused(WrongSize, argument="batch_size", found=3):
        ReplayBufferEnsemble(one, one).sample(3)
    storages, samplers = StorageEnsemble(one.storage), SamplerEnsemble(one.sampler)
    for parts in (
        {"storages": storages},
        {"storages": storages, "samplers": samplers, "sample_from_all": True},
        {"storages": storages, "samplers": SamplerEnsemble(one.sampler, one.sampler)},
    ):
        with pytest.raises(UsageError):
            ReplayBufferEnsemble(**parts)  # type: ignore[arg-type]
    with refused(WrongSize, argument="transforms", expected=2, found=1):
        StorageEnsemble(one.storage, one.storage, transforms=[lambda batch: batch])
    with pytest.raises(ImmutableError):
        ReplayBufferEnsemble(one).extend(one[:])


# Mixtures of what datasets can be: views, stacks of frames, text, in every format of batches.


def test_rows_of_views_are_those_of_their_dataset(door: str) -> None:
    replay = ExperienceReplay(door)
    table = replay.trajectories
    best, run = replay.take(2, by="-return"), replay.rows(100, 250)
    source = [
        row
        for k in np.argsort(-table["return"], kind="stable")[:2]
        for row in range(table["start"][k], table["start"][k] + table["num_transitions"][k])
    ]
    source += range(100, 250)
    mixture = Mixture({best: 0.5, run: 0.5}, 64, seed=0)
    for _ in range(5):
        batch = mixture.sample()
        rows = [source[index] for index in batch["index"].tolist()]
        assert torch.equal(batch["observation"], replay[rows]["observation"])


@pytest.mark.parametrize("format", ["torch", "numpy", "jax"])
def test_batches_of_every_format_say_the_member(door: str, format: str) -> None:
    replay = ExperienceReplay(door)
    mixture = Mixture([replay, replay.rows(0, 500)], 32, weights=[1, 1], seed=0, format=format)
    plain = Mixture([replay, replay.rows(0, 500)], 32, weights=[1, 1], seed=0)
    for _ in range(4):  # one by one, and read ahead
        batch, right = mixture.sample(), plain.sample()
        for key in ("member", "index", "action"):
            assert np.array_equal(np.asarray(batch[key]), right[key].numpy())


def test_stacks_of_frames_are_mixed(config: Config) -> None:
    datasets_cli.download("demo/pong", verify=False)
    replay = ExperienceReplay("demo/pong", frame_stack=3)
    mixture = Mixture([replay.rows(0, 100), replay.rows(500, 900)], 16, weights=[1, 1], seed=0)
    batch = mixture.sample()
    assert batch["observation"].shape == (16, 3, 84, 84)
    for at, (number, index) in enumerate(zip(batch["member"], batch["index"], strict=True)):
        view, row = [(replay.rows(0, 100), index), (replay.rows(500, 900), index - 100)][number]
        assert torch.equal(batch["observation"][at], view[int(row)]["observation"])


def test_text_is_mixed_row_by_row(tmp_path: Path) -> None:
    folders = [
        write(tmp_path / name, layout, steps_of([f"{name} {step}" for step in range(14)]))
        for name, layout in (("left", "ted"), ("right", "compact"))
    ]
    storages = [open_storage(folder, text=True) for folder in folders]
    mixture = Mixture(storages, 12, weights=[1, 1], seed=0)
    batch = mixture.sample()
    for at, (number, index) in enumerate(zip(batch["member"], batch["index"], strict=True)):
        row = storages[number].get(index[None] - len(storages[0]) * number)
        assert batch["observation", "mission"][at] == row["observation", "mission"][0]
        assert str(batch["observation", "mission"][at]).startswith(["left", "right"][number])


# What members of an ensemble give to a batch: prefetching, transformed, seeded ones.


def part(num_rows: int, start: int = 0, kind: Any = ReplayBuffer, **arguments: Any) -> Any:
    made = kind(storage=LazyTensorStorage(num_rows), **arguments)
    made.extend(steps(num_rows, start))
    return made


def everyone(*members: Any, batch_size: int = 8) -> ReplayBufferEnsemble:
    return ReplayBufferEnsemble(*members, batch_size=batch_size, sample_from_all=True)


def test_an_epoch_made_ahead_ends_within_a_part_as_any_other() -> None:
    made = [
        everyone(part(7, sampler=SamplerWithoutReplacement(), batch_size=4, seed=0, prefetch=n))
        for n in (None, 1, 3)
    ]
    for ensemble in made:
        ensemble.batch_size = 4
    for _ in range(9):
        right, *found = [ensemble.sample()["number"].tolist() for ensemble in made]
        assert found == [right, right]


def test_parts_of_any_size_are_drawn_beside_those_made_ahead() -> None:
    members = [part(50, start, batch_size=4, prefetch=2) for start in (0, 100)]
    ensemble = ReplayBufferEnsemble(*members, batch_size=8, seed=0)
    for _ in range(20):
        batch = ensemble.sample_flat()
        index = batch["index"]
        assert torch.equal(batch["number"], index["index"] + 100 * index["buffer_ids"])


def test_a_transform_may_make_other_rows_of_those_a_member_drew() -> None:
    pairs = [
        part(20, start, TensorDictReplayBuffer, sampler=sampler, transform=lambda x: x.view(-1, 2))
        for start, sampler in ((0, SliceSampler(slice_len=2)), (50, SamplerWithoutReplacement()))
    ]
    for _ in range(12):  # the second member's epoch ends within a part
        batch, info = everyone(*pairs, batch_size=12).sample(return_info=True)
        assert batch.shape == (2, 3, 2) and info.shape == (2, 6)
        assert torch.equal(
            batch["number"], batch["index", "index"] + 50 * batch["index", "buffer_ids"]
        )
        assert torch.equal(batch["index", "index"].view(2, 6), info["index", "index"])
    with refused(WrongRows, expected=[4]):
        everyone(part(20, transform=lambda x: x.view(-1, 2))).sample(4)


def test_stacks_are_drawn_from_every_member() -> None:
    def stacked(start: int) -> Any:
        frames = CatFrames(N=2, dim=-1, in_keys=["x"], out_keys=["stack"])
        transform, sampler = frames.make_rb_transform_and_sampler(batch_size=4)
        made = TensorDictReplayBuffer(
            storage=LazyTensorStorage(20), sampler=sampler, transform=transform
        )
        x = torch.arange(start, start + 20.0).unsqueeze(-1)
        done = torch.zeros(20, 1, dtype=torch.bool)
        made.extend(TensorDict({"x": x, "next": {"x": x + 1, "done": done}}, [20]))
        return made

    batch = everyone(stacked(0), stacked(100)).sample()
    assert batch.shape == (2, 4) and torch.equal(batch["stack"][..., 1:], batch["x"])
    assert torch.equal(batch["stack"][..., 0] + 1, batch["stack"][..., 1])


def test_what_only_some_members_say_cannot_be_joined_and_names_it() -> None:
    ranked = part(10, kind=PrioritizedReplayBuffer, alpha=1.0, beta=1.0)
    ensemble = everyone(ranked, part(10))
    assert len(ensemble.sample_flat()) == 8
    with refused(WrongRows, key=("priority_weight",)):
        ensemble.sample_flat(return_info=True)
    wide = ReplayBuffer(storage=LazyTensorStorage(4))
    wide.extend(TensorDict({"x": torch.zeros(4, 5)}, [4]))
    narrow = ReplayBuffer(storage=LazyTensorStorage(4))
    narrow.extend(TensorDict({"x": torch.zeros(4, 3)}, [4]))
    with refused(WrongRows, key=("x",)):
        everyone(wide, narrow).sample_flat()


def test_tensors_of_members_with_different_dtypes_are_not_converted() -> None:
    members = [ReplayBuffer(storage=LazyTensorStorage(4)) for _ in range(2)]
    for buffer, dtype in zip(members, (torch.float32, torch.float64), strict=True):
        buffer.extend(torch.ones(4, dtype=dtype))
    for draw in (everyone(*members).sample, everyone(*members).sample_flat):
        with pytest.raises(UsageError):
            draw()


def test_a_seed_of_the_ensemble_gives_every_draw() -> None:
    def draw(seed: int) -> list[Any]:
        storages = [LazyTensorStorage(50), LazyTensorStorage(50)]
        made = ReplayBufferEnsemble(
            storages=StorageEnsemble(*storages),
            samplers=SamplerEnsemble(RandomSampler(), RandomSampler()),
            seed=seed,
        )
        for buffer in made.buffers:
            buffer.extend(steps(50))
        first, second = everyone(*made.buffers, batch_size=40).sample()["number"].tolist()
        assert first != second
        return [first, second, made.sample(4)["number"].tolist()]

    assert draw(0) == draw(0) and draw(0) != draw(1)


def test_a_row_of_a_member_is_named_by_all_of_its_dimensions() -> None:
    number = torch.arange(40).view(4, 10)
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(40, ndim=2))
    buffer.extend(TensorDict({"number": number}, [4, 10]))
    assert int(ReplayBufferEnsemble(buffer)[0, 1, 3]["number"]) == int(number[1, 3])


@pytest.mark.parametrize("drawn", [0, -1])
def test_a_batch_is_drawn_of_at_least_one_member(drawn: int) -> None:
    with refused(WrongSize, argument="num_buffer_sampled", found=drawn):
        ReplayBufferEnsemble(part(4), num_buffer_sampled=drawn)
