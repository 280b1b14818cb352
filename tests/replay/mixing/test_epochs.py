"""Epochs of mixtures: what one is, how processes share it, and how it resumes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from datasets_cli import BatchStream, ExperienceReplay, Mixture
from datasets_cli.errors import WrongSize, WrongState
from datasets_cli.replay.mixing.mixture import epoch_counts
from datasets_cli.replay.storages.dataset import DatasetStorage
from tests.replay.mixing.conftest import LENGTHS
from tests.support.refusals import refused

Members = list[DatasetStorage]


def epoch_of(mixture: Mixture) -> list[int]:
    """The rows of the rest of an epoch, in order."""
    return [row for batch in mixture for row in batch["index"].tolist()]


# What an epoch is


def test_an_epoch_of_all_has_every_row_once_and_the_next_is_another_order(members: Members) -> None:
    mixture = Mixture(members, 16, epoch="all", seed=0)
    first, second = epoch_of(mixture), epoch_of(mixture)
    assert sorted(first) == sorted(second) == [*range(118)]
    assert first != second
    assert epoch_of(Mixture(members, 16, epoch="all", seed=0)) == first


def test_an_epoch_until_the_first_member_ends_draws_nothing_twice(members: Members) -> None:
    mixture = Mixture(members[:3], 16, weights=[0.2, 0.5, 0.3], epoch="first", seed=0)
    rows = epoch_of(mixture)
    assert len(set(rows)) == len(rows)
    # 30 rows of the second have the weight 0.5, so that 0.2 is 12 and 0.3 is 18.
    assert Counter(0 if row < 24 else 1 if row < 54 else 2 for row in rows) == {0: 12, 1: 30, 2: 18}


def test_an_epoch_until_the_last_member_ends_repeats_the_others_alike(members: Members) -> None:
    mixture = Mixture(members[:3], 16, weights=[0.2, 0.5, 0.3], epoch="last", seed=0)
    times = Counter(epoch_of(mixture))
    # 58 rows of the third have the weight 0.3: 0.2 is 38.7, and 0.5 is 96.7.
    assert [sum(times[row] for row in rows) for rows in (range(24), range(24, 54))] == [39, 97]
    assert {times[row] for row in range(24)} == {1, 2}
    assert {times[row] for row in range(24, 54)} == {3, 4}
    assert {times[row] for row in range(54, 112)} == {1}


@given(
    members=st.lists(st.tuples(st.integers(1, 10**7), st.floats(1e-3, 1)), min_size=1, max_size=8)
)
def test_epochs_end_with_the_first_or_the_last_member(members: list[tuple[int, float]]) -> None:
    lengths = [length for length, _ in members]
    shares = [share for _, share in members]
    first = epoch_counts(lengths, shares, "first")
    last = epoch_counts(lengths, shares, "last")
    assert all(count <= length for count, length in zip(first, lengths, strict=True))
    assert all(count >= length for count, length in zip(last, lengths, strict=True))
    for counts in (first, last):
        assert any(count == length for count, length in zip(counts, lengths, strict=True))
        ratios = [count / share for count, share in zip(counts, shares, strict=True)]
        largest = max(0.51 / share for share in shares)  # what rounding may change
        assert max(ratios) - min(ratios) <= 2 * largest + 1e-6 * max(ratios) or 1 in counts


def test_epochs_of_slices_are_of_trajectories(members: Members) -> None:
    mixture = Mixture(members[:3], slice_len=4, batch_size=8, epoch="all", seed=0)
    starts = [int(row) for batch in mixture for row in batch["index"][::4]]
    bounds, number = [], 0
    for lengths in LENGTHS[:3]:
        for length in lengths:
            bounds.append((number, number + length))
            number += length
    found = [
        next(at for at, (begin, end) in enumerate(bounds) if begin <= row < end) for row in starts
    ]
    assert sorted(found) == [*range(10)]
    until = Mixture(
        members[:3], slice_len=4, batch_size=4, weights=[1, 1, 1], epoch="first", seed=0
    )
    assert len([*until]) == 3  # the second member has one trajectory


# Several processes


def ranks_of(members: Any, processes: int, **arguments: Any) -> list[Mixture]:
    return [
        Mixture(members, num_replicas=processes, rank=rank, seed=3, **arguments)
        for rank in range(processes)
    ]


@pytest.fixture
def views(door: str) -> list[ExperienceReplay]:
    """Parts of a real dataset: 100 rows of two trajectories, 120 of three others, and 61 rows."""
    replay = ExperienceReplay(door)
    parts = replay.episodes_at([4, 0]).rows(250, 350), replay.rows(590, 710)
    return [*parts, replay.rows(1000, 1061)]


def test_an_epoch_of_views_over_3_ranks_and_2_workers_has_every_row_once(
    views: list[ExperienceReplay], monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.utils.data._utils.worker import WorkerInfo

    from datasets_cli.replay.samplers import rows as distributed

    seen: Counter[tuple[int, ...]] = Counter()
    for rank in range(3):
        for worker in range(2):
            mixture = Mixture(views, 32, epoch="all", num_replicas=3, rank=rank, seed=3)
            told = WorkerInfo(worker, 2, 0, mixture)
            monkeypatch.setattr(distributed, "get_worker_info", lambda told=told: told)
            seen.update(epoch_of(mixture))
    assert seen == Counter(range(sum(map(len, views))))


def test_real_workers_of_a_loader_share_the_epoch(views: list[ExperienceReplay]) -> None:
    mixture = Mixture(views, 64, epoch="all", seed=3)
    loader = BatchStream(mixture).loader(2)
    assert sorted(row for batch in loader for row in batch["index"].tolist()) == [
        *range(len(mixture))
    ]


@pytest.mark.parametrize(("processes", "epoch"), [(1, "first"), (2, "last"), (6, "all")])
def test_an_epoch_resumes_at_every_tenth_batch_with_other_processes(
    views: list[ExperienceReplay], processes: int, epoch: Any
) -> None:
    size = 6 // processes
    arguments: dict[str, Any] = {"batch_size": size, "epoch": epoch}
    if epoch != "all":
        arguments["weights"] = [0.3, 0.5, 0.2]
    whole = Counter(epoch_of(ranks_of(views, 1, **arguments)[0]))
    running = ranks_of(views, processes, **arguments)
    drawn: Counter[int] = Counter()
    resumed = 0
    while not any(mixture.ran_out for mixture in running):
        for _ in range(10):
            for mixture in running:
                if not mixture.ran_out:
                    drawn.update(mixture.sample()["index"].tolist())
        if any(mixture.ran_out for mixture in running):
            break
        state = running[0].state_dict()
        for others in (1, 2, 6):
            rest: Counter[int] = Counter()
            for mixture in ranks_of(views, others, **arguments):
                mixture.load_state_dict(state)
                rest.update(epoch_of(mixture))
            assert drawn + rest == whole, (processes, others)
        resumed += 1
    assert resumed >= 2


def test_a_process_with_nothing_left_of_a_resumed_epoch_begins_the_next(members: Members) -> None:
    single = Mixture(members, 29, epoch="all", seed=3)
    for _ in range(4):
        single.sample()
    state = single.state_dict()  # 2 of 118 rows are left
    rest = []
    for mixture in ranks_of(members, 6, batch_size=29, epoch="all"):
        mixture.load_state_dict(state)
        rest.append((mixture.sample()["index"].tolist(), mixture.sampler.draw.epoch))
    assert [len(rows) for rows, _ in rest] == [1, 1, 20, 20, 19, 19]
    assert [epoch for _, epoch in rest] == [0, 0, 1, 1, 1, 1]


def test_with_drop_last_every_process_draws_equally_many(members: Members) -> None:
    shares = [
        epoch_of(mixture)
        for mixture in ranks_of(members, 4, batch_size=7, epoch="all", drop_last=True)
    ]
    assert [len(rows) for rows in shares] == [29] * 4
    assert max(Counter(row for rows in shares for row in rows).values()) == 1


def test_more_processes_than_rows_are_refused(members: Members) -> None:
    with refused(WrongSize, expected="at least 7 rows", found=6):
        Mixture(members[3:], 2, epoch="all", num_replicas=7, rank=6).sample()


def test_a_state_of_another_epoch_is_refused(members: Members) -> None:
    mixture = Mixture(members, 8, weights=[1, 2, 3, 4], epoch="first")
    mixture.sample()
    state = mixture.state_dict()
    with refused(WrongState, argument="sampler", expected="end='last'", found="end='first'"):
        Mixture(members, 8, weights=[1, 2, 3, 4], epoch="last").load_state_dict(state)
    with refused(WrongState, argument="sampler"):
        Mixture(members, 8, weights=[1, 2, 3, 5], epoch="first").load_state_dict(state)


def test_slices_in_epochs_are_shared_among_ranks(members: Members) -> None:
    starts: list[int] = []
    for mixture in ranks_of(members[:3], 3, batch_size=4, slice_len=4, epoch="all"):
        starts += [int(batch["mark"][0]) for batch in mixture]
    ends = torch.tensor([at for n, each in enumerate(LENGTHS[:3]) for at in _starts(n, each)])
    found = torch.searchsorted(ends, torch.tensor(starts), right=True) - 1
    assert sorted(found.tolist()) == [*range(10)]


def _starts(number: int, lengths: list[int]) -> list[int]:
    return [number * 100_000 + sum(lengths[:at]) for at in range(len(lengths))]
