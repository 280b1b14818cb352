"""Samplers by their protocol, their states, and the rows that a seed gives."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict

from datasets_cli import (
    BlockShuffleSampler,
    DistributedSampler,
    ExperienceReplay,
    GoalRule,
    HERSampler,
    LazyTensorStorage,
    Mixture,
    PrioritizedSampler,
    PrioritizedSliceSampler,
    RandomSampler,
    ReplayBuffer,
    ReplayBufferEnsemble,
    Sampler,
    SamplerWithoutReplacement,
    SliceSampler,
    SliceSamplerWithoutReplacement,
    Storage,
    TensorDictReplayBuffer,
    TensorStorage,
)
from datasets_cli.errors import EmptyBuffer, OutOfRange, UsageError, WrongRows, WrongState
from datasets_cli.replay.mixing.mixture import MixtureEpochs, Weighted
from datasets_cli.replay.mixing.weights import MixtureWeights
from datasets_cli.replay.samplers.epochs import FEW_BOUNDS, bounds_reached, mixed_order
from datasets_cli.replay.samplers.rows import SharedEpochOptions, SingleRows
from datasets_cli.replay.samplers.slices import Slices
from datasets_cli.schema.columns import Key
from datasets_cli.schema.tree import Tree
from datasets_cli.torchrl.frame_stacks import CatFrames
from tests.support.refusals import refused
from tests.support.trajectory_rows import TrajectoryRows, chi_square_score

# What a sampler is: one written from the protocol alone works wherever ours do.


class Plain:
    """Draws the rows in order, epoch by epoch; derives from no class."""

    ran_out: bool = False
    has_priorities: ClassVar[bool] = False
    has_slices: ClassVar[bool] = False
    truncated_key: Key | None = None
    init_key: Key | None = None

    def __init__(self) -> None:
        self._position = 0

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, dict[Key, torch.Tensor]]:
        rows = torch.arange(self._position, min(self._position + batch_size, len(storage)))
        self.ran_out = self._position + batch_size >= len(storage)
        self._position = 0 if self.ran_out else self._position + batch_size
        return rows, {("order",): rows.clone()}

    def relabel(self, rows: Tree, info: dict[Key, torch.Tensor]) -> None:
        pass

    def on_write(self, rows: torch.Tensor) -> None:
        pass

    def on_clear(self) -> None:
        self._position = 0

    def state_dict(self) -> dict[str, Any]:
        return {"position": self._position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._position = state["position"]


class Greedy(Plain):
    """Draws the rows with the highest priority; it has the members of ``PrioritySampler``, too."""

    has_priorities: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.priority = torch.zeros(0)

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, dict[Key, torch.Tensor]]:
        rows = self.priority.argsort(descending=True, stable=True)[:batch_size]
        return rows, {("priority_weight",): torch.ones(len(rows))}

    def on_write(self, rows: torch.Tensor) -> None:
        missing = int(rows.max()) + 1 - len(self.priority)
        self.priority = torch.cat((self.priority, torch.ones(max(0, missing))))

    def on_clear(self) -> None:
        self.priority = torch.zeros(0)

    def state_dict(self) -> dict[str, Any]:
        return {"priority": self.priority.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.priority = state["priority"].clone()

    def update_priority(self, index: Any, priority: Any) -> None:
        self.priority[index] = torch.as_tensor(priority).reshape(-1).float()


class Derived(Sampler):
    """Draws the last rows; it implements only ``sample``."""

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, dict[Key, torch.Tensor]]:
        rows = torch.arange(len(storage) - batch_size, len(storage))
        return rows, {("order",): rows.clone()}


OURS: list[Callable[[], Sampler]] = [
    RandomSampler,
    SamplerWithoutReplacement,
    DistributedSampler,
    BlockShuffleSampler,
    lambda: SliceSampler(slice_len=2),
    lambda: SliceSamplerWithoutReplacement(slice_len=2),
    lambda: PrioritizedSampler(99, 0.5, 0.5),
    lambda: PrioritizedSliceSampler(99, 0.5, 0.5, slice_len=2),
]


def rows(count: int) -> TensorDict:
    return TensorDict({"x": torch.arange(count), "episode": torch.arange(count) // 4}, [count])


def goals(count: int) -> TensorDict:
    made = rows(count)
    number = torch.arange(float(count)).unsqueeze(1)
    goal = {"achieved_goal": number, "desired_goal": number}
    done = (torch.arange(count) % 4 == 3).unsqueeze(1)
    flags = {"done": done, "terminated": done, "truncated": ~done}
    after = {"observation": goal, "reward": number, **flags}
    return made.update({"observation": goal, "next": after})


def filled(kind: Any, sampler: Any, **arguments: Any) -> Any:
    made = kind(storage=LazyTensorStorage(10), sampler=sampler, seed=0, **arguments)
    made.extend(rows(10))
    return made


@pytest.mark.parametrize("prefetch", [None, 2])
@pytest.mark.parametrize("kind", [ReplayBuffer, TensorDictReplayBuffer])
def test_a_sampler_of_ones_own_draws_for_buffers(kind: Any, prefetch: int | None) -> None:
    made = filled(kind, sampler := Plain(), batch_size=4, prefetch=prefetch)
    assert made.sampler is sampler
    assert [batch["x"].tolist() for batch in made] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    batch, info = made.sample(return_info=True)
    assert info["order"].tolist() == batch["x"].tolist() == [0, 1, 2, 3]
    assert ("order" in batch.keys()) == (kind is TensorDictReplayBuffer)  # noqa: SIM118
    state = made.state_dict()
    assert made.sample()["x"].tolist() == [4, 5, 6, 7]
    made.load_state_dict(state)
    assert made.sample()["x"].tolist() == [4, 5, 6, 7]
    made.empty()
    made.extend(rows(3))
    assert made.sample()["x"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("make", [Plain, Derived])
def test_a_sampler_of_ones_own_draws_from_a_dataset(make: Any, door: str) -> None:
    replay = ExperienceReplay(door, batch_size=100, sampler=make())
    expected = range(100) if make is Plain else range(len(replay) - 100, len(replay))
    batch = replay.sample()
    assert batch["index"].tolist() == [*expected]
    assert torch.equal(batch["observation"], replay[batch["index"]]["observation"])
    replay.load_state_dict(replay.state_dict())


def test_samplers_of_ones_own_draw_for_an_ensemble() -> None:
    members = [filled(TensorDictReplayBuffer, make()) for make in (Plain, Derived)]
    made = ReplayBufferEnsemble(*members, sample_from_all=True, batch_size=8)
    assert made.sample()["x"].tolist() == [[0, 1, 2, 3], [6, 7, 8, 9]]
    batch = made.sample_flat()
    assert batch["x"].tolist() == [4, 5, 6, 7, 6, 7, 8, 9]
    assert batch["index", "buffer_ids"].tolist() == [0] * 4 + [1] * 4
    # The epoch of the first member ends within its part, and its next one fills the part up.
    assert made.sample()["x"][0].tolist() == [8, 9, 0, 1]
    assert made.ran_out


class Given(Derived):
    """Draws fixed rows."""

    def __init__(self, index: Any) -> None:
        self.index = index

    def sample(self, storage: Storage, batch_size: int, generator: torch.Generator) -> Any:
        return self.index, {}


@pytest.mark.parametrize(
    ("index", "kind", "found", "arguments"),
    [
        (torch.tensor([3, 9]), OutOfRange, "3 to 9", {}),
        (torch.tensor([3, 9]), OutOfRange, "3 to 9", {"prefetch": 2}),
        (torch.tensor([-1, 3]), OutOfRange, "-1 to 3", {"shared": True}),
        (torch.tensor([[0, 1]]), WrongRows, "torch.int64 [1, 2]", {}),
        (torch.tensor([0.0]), WrongRows, "torch.float32 [1]", {}),
        ([0, 1], WrongRows, "list []", {}),
    ],
)
def test_a_batch_does_not_have_rows_that_do_not_exist(
    index: Any, kind: type[UsageError], found: str, arguments: Any
) -> None:
    for sampler in (Given(index), HERSampler(lambda *goals: goals[0], sampler=Given(index))):
        made = TensorDictReplayBuffer(
            storage=LazyTensorStorage(10), sampler=sampler, batch_size=2, **arguments
        )
        made.extend(goals(9))
        with refused(kind, expected="int64 [B], each from 0 to 8", found=found):
            made.sample()
    with pytest.raises(EmptyBuffer):
        TensorDictReplayBuffer(storage=LazyTensorStorage(2), sampler=Given(index)).sample(2)


def test_rows_that_a_custom_sampler_draws_ahead_exist_too(door: str) -> None:
    class Wrong(RandomSampler):
        """Draws the row after the last one from the third batch on."""

        def sample(self, storage: Storage, batch_size: int, generator: torch.Generator) -> Any:
            return torch.zeros(batch_size, dtype=torch.int64), {}

        def ahead(self, storage: Storage, batch_size: int, count: int, generator: Any) -> Any:
            return torch.full((batch_size * count,), len(storage)), {}

    replay = ExperienceReplay(door, batch_size=4, sampler=Wrong())
    replay.sample()
    with pytest.raises(OutOfRange):
        replay.sample()


@pytest.mark.parametrize("make", [*OURS, lambda: HERSampler(lambda *goals: goals[0])])
@settings(max_examples=8)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 9), st.integers(1, 4)), max_size=9))
def test_samplers_of_ours_draw_rows_that_are_there(make: Callable[[], Sampler], steps: Any) -> None:
    made = TensorDictReplayBuffer(storage=LazyTensorStorage(20), sampler=make(), seed=0)
    second = TensorDictReplayBuffer(storage=LazyTensorStorage(6))
    second.extend(goals(6))
    for is_cleared, count, batches in steps:
        if is_cleared:
            state = made.sampler.state_dict()
            made.empty()
            made.sampler.load_state_dict(state)  # of more rows than there will be
        made.extend(goals(count))
        mixture = Mixture({ReplayBuffer(storage=made.storage): 0.5, second: 0.5})
        for buffer in (made, mixture) * batches:
            with suppress(UsageError):  # such as where no trajectory is as long as a slice
                index = buffer.sample(4, return_info=True)[1]["index"]
                assert 0 <= int(index.min()) <= int(index.max()) < len(buffer)


def test_a_row_is_not_written_beyond_rows_that_never_were() -> None:
    made = ReplayBuffer(storage=LazyTensorStorage(10))
    made.extend(rows(2))
    made.writer.load_state_dict({"cursor": 7, "write_count": 7})
    with refused(UsageError, row=7, expected=2):
        made.extend(rows(2))
    columns = made.storage.flatten(rows(2))
    with refused(UsageError, row=5, expected=2):
        made.storage.write(torch.tensor([5, 2]), columns)
    made.storage.write(torch.tensor([3, 2]), columns)
    assert made[:]["x"].tolist() == [0, 1, 1, 0]


def test_priorities_of_a_sampler_of_ones_own_go_back_and_forth(tmp_path: Path) -> None:
    made = filled(TensorDictReplayBuffer, Greedy(), batch_size=3)
    made.update_priority(torch.tensor([6, 2]), torch.tensor([9.0, 8.0]))
    batch = made.sample()
    assert batch["x"].tolist() == [6, 2, 0]
    assert batch["priority_weight"].tolist() == [1, 1, 1]
    made.update_tensordict_priority(batch.set("td_error", torch.tensor([0.5, 0.5, 7.0])))
    assert made.sample()["x"].tolist() == [0, 1, 3]
    made.dumps(tmp_path)
    other = TensorDictReplayBuffer(storage=LazyTensorStorage(10), sampler=Greedy(), batch_size=3)
    other.loads(tmp_path)
    assert other.sample()["x"].tolist() == [0, 1, 3]
    made.empty()
    made.extend(rows(3))
    assert made.sample()["x"].tolist() == [0, 1, 2]


# States of samplers: each names its kind, and no other kind of sampler takes it.


ROWS = TensorDict({"x": torch.arange(8), "episode": torch.arange(8) // 4}, [8])


RULE = GoalRule.sparse(0.5)
WEIGHTS = MixtureWeights([1, 2], ["first", "second"])
MIXED = WEIGHTS, "first", SharedEpochOptions(num_replicas=1, rank=0)


KINDS: dict[str, Callable[[], Sampler]] = {
    "random": RandomSampler,
    "epochs": SamplerWithoutReplacement,
    "shared": lambda: DistributedSampler(1, 0),
    "blocks": lambda: BlockShuffleSampler(2, 2),
    "slices": lambda: SliceSampler(slice_len=2),
    "slice epochs": lambda: SliceSamplerWithoutReplacement(slice_len=2),
    "slice a row": lambda: CatFrames(2, -1).make_rb_transform_and_sampler(2)[1],
    "priorities": lambda: PrioritizedSampler(9, 0.5, 0.5),
    "slice priorities": lambda: PrioritizedSliceSampler(9, 0.5, 0.5, slice_len=2),
    "goals": lambda: HERSampler(RULE),
    "goals of epochs": lambda: HERSampler(
        GoalRule.sparse(0.5), sampler=SamplerWithoutReplacement()
    ),
    "weights": lambda: SingleRows(Weighted(WEIGHTS)),
    "slices by weight": lambda: Slices(Weighted(WEIGHTS), slice_len=2),
    "epochs of a mixture": lambda: SingleRows(MixtureEpochs(*MIXED)),
    "slice epochs of a mixture": lambda: Slices(MixtureEpochs(*MIXED), slice_len=2),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_is_taken_by_its_own_kind_of_sampler_alone(kind: str) -> None:
    state, before = KINDS[kind]().state_dict(), torch.get_rng_state()
    taken = []
    for other, make in KINDS.items():
        sampler = make()
        unchanged = repr(sampler.state_dict())
        try:
            sampler.load_state_dict(state)
            taken.append(other)
        except WrongState as error:
            assert error.expected != error.found
        assert repr(sampler.state_dict()) == unchanged
    assert taken == [kind]
    assert torch.equal(torch.get_rng_state(), before)


def test_kinds_are_those_of_states_that_were_kept() -> None:
    assert {name: make().state_dict()["kind"] for name, make in KINDS.items()} == {
        "random": "uniform rows",
        "epochs": "epochs of rows",
        "shared": "shared epochs of rows",
        "blocks": "shared epochs of blocks",
        "slices": "uniform slices",
        "slice epochs": "epochs of slices",
        "slice a row": "a uniform slice for each row",
        "priorities": "rows by priority",
        "slice priorities": "slices by priority",
        "goals": "rows with goals",
        "goals of epochs": "rows with goals",
        "weights": "weighted rows",
        "slices by weight": "weighted slices",
        "epochs of a mixture": "epochs of rows of a mixture",
        "slice epochs of a mixture": "epochs of slices of a mixture",
    }


def test_a_sampler_shows_what_it_draws_by() -> None:
    assert repr(KINDS["random"]()) == "RandomSampler()"
    assert repr(KINDS["slices"]()) == "SliceSampler(slice_len=2)"
    assert repr(KINDS["weights"]()) == f"SingleRows(Weighted({WEIGHTS.state()!r}))"
    shown = f"Slices(MixtureEpochs({WEIGHTS.state()!r}, epoch='first'), slice_len=2)"
    assert repr(KINDS["slice epochs of a mixture"]()) == shown


def test_a_sampler_without_a_state_refuses_one() -> None:
    Derived().load_state_dict(Derived().state_dict())
    with refused(WrongState, found=["kind"]):
        Derived().load_state_dict(RandomSampler().state_dict())


def test_an_empty_state_is_one_of_torchrls_samplers_that_keep_none() -> None:
    for kind, make in KINDS.items():
        if kind in ("random", "slices", "slice a row"):
            make().load_state_dict({})
        else:
            with pytest.raises(WrongState) as error:
                make().load_state_dict({})
            assert error.value.found is None


@pytest.mark.parametrize(("first", "second"), [("epochs", "shared"), ("shared", "epochs")])
def test_a_buffer_refuses_the_draws_of_another_sampler(first: str, second: str) -> None:
    one, other = (
        ReplayBuffer(storage=TensorStorage(ROWS), sampler=KINDS[kind](), batch_size=3, seed=0)
        for kind in (first, second)
    )
    one.sample()
    state, before = one.state_dict(), repr(other.state_dict())
    with pytest.raises(WrongState) as error:
        other.load_state_dict(state)
    assert error.value.argument == "sampler" and error.value.found != error.value.expected
    assert repr(other.state_dict()) == before
    other.load_state_dict(state | {"sampler": other.state_dict()["sampler"]})
    json.dumps(state["sampler"])


@pytest.mark.parametrize("kind", ["epochs", "shared", "blocks"])
def test_an_epoch_begins_again_where_it_is_continued_with_other_rows(kind: str) -> None:
    sampler, other = KINDS[kind](), KINDS[kind]()
    sampler.sample(TrajectoryRows([6]), 4, torch.Generator().manual_seed(0))
    other.load_state_dict(sampler.state_dict())
    index, _ = other.sample(TrajectoryRows([9]), 9, torch.Generator().manual_seed(0))
    assert sorted(index.tolist()) == [*range(9)]


# The order of a mixture's epoch: of each member as many items as are wanted.


@given(
    members=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 200)), min_size=1, max_size=5),
    key=st.integers(0, 2**62),
)
def test_every_item_comes_as_often_as_others_of_its_member(
    members: list[tuple[int, int]], key: int
) -> None:
    lengths, counts = ([pair[which] for pair in members] for which in (0, 1))
    order = mixed_order(lengths, counts, key)
    drawn = Counter(order.at(np.arange(len(order))).tolist())
    assert len(order) == sum(counts)
    begin = 0
    for length, count in members:
        times = [drawn[item] for item in range(begin, begin + length)]
        assert sum(times) == count
        assert max(times) - min(times) <= 1
        begin += length


def test_members_are_mixed_all_along_the_order() -> None:
    lengths, counts = [50_000, 3000, 700], [50_000, 30_000, 20_000]
    items = mixed_order(lengths, counts, 3).at(np.arange(100_000))
    member = np.searchsorted(np.cumsum(lengths), items, side="right")
    for part in np.split(member, 10):
        found = np.bincount(part, minlength=3)
        assert abs(chi_square_score(found, np.array(counts) / 10)) < 4


def test_any_places_give_the_items_that_all_places_do() -> None:
    order = mixed_order([40, 9000, 7], [40, 4500, 70], 11)
    every = order.at(np.arange(len(order)))
    places = np.random.default_rng(0).integers(0, len(order), 300)
    assert np.array_equal(order.at(places), every[places])


def test_bounds_are_counted_alike_for_few_and_for_many() -> None:
    rng = np.random.default_rng(0)
    for count in (0, 1, 3, FEW_BOUNDS, FEW_BOUNDS + 1, 400):
        bounds = np.sort(rng.integers(0, 50, count))
        values = rng.integers(0, 51, 200)
        slow = [sum(bound <= value for bound in bounds.tolist()) for value in values.tolist()]
        assert bounds_reached(values, bounds).tolist() == slow


def test_which_items_come_once_more_is_drawn() -> None:
    more, part = set(), set()
    for key in range(40):
        order = mixed_order([4, 4], [6, 2], key)
        drawn = Counter(order.at(np.arange(8)).tolist())
        more.add(tuple(item for item in range(4) if drawn[item] == 2))
        part.add(tuple(item for item in range(4, 8) if drawn[item]))
    assert len(more) == len(part) == 6  # every pair of four items


def test_an_epoch_of_a_mixture_is_what_it_always_was() -> None:
    order = mixed_order([3, 0, 5, 4], [4, 0, 3, 8], 7)
    assert order.at(np.arange(15)).tolist() == [9, 2, 8, 10, 0, 1, 11, 0, 10, 3, 9, 6, 11, 5, 8]


# The rows that a seed gives, by stored digests of index streams.


STREAM_ROWS = TrajectoryRows([300, 7, 45, 120])
NUM_BATCHES = 50


def prioritized_rows(kind: Any, **arguments: Any) -> Sampler:
    sampler: Sampler = kind(len(STREAM_ROWS), 0.7, 0.9, **arguments)
    rows = torch.arange(len(STREAM_ROWS))
    sampler.update_priority(rows, rows % 13 + 1.0)  # type: ignore[attr-defined]
    return sampler


SHORT = {"slice_len": 16, "strict_length": False}
STREAMS: dict[str, tuple[Callable[[], Sampler], int, str]] = {
    "uniform": (RandomSampler, 32, "ba9aeef1635f08f5"),
    "slices": (lambda: SliceSampler(num_slices=4), 32, "264c84b686718b5f"),
    "short slices": (lambda: SliceSampler(**SHORT), 32, "9bb07f451a423f0c"),
    "padded slices": (
        lambda: SliceSampler(**SHORT, pad_output=True, span=True),
        32,
        "c54f5b7880c66ed7",
    ),
    "by priority": (lambda: prioritized_rows(PrioritizedSampler), 32, "2868885335a738ad"),
    "slices by priority": (
        lambda: prioritized_rows(PrioritizedSliceSampler, slice_len=5),
        30,
        "df725c6723c54e28",
    ),
    "in order": (lambda: SamplerWithoutReplacement(shuffle=False), 32, "cf690ec5884c7206"),
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_seed_gives_the_rows_and_marks_that_it_always_gave(name: str) -> None:
    make, size, expected = STREAMS[name]
    sampler, generator, digest = make(), torch.Generator().manual_seed(11), hashlib.sha256()
    for _ in range(NUM_BATCHES):
        index, info = sampler.sample(STREAM_ROWS, size, generator)
        for column in (index, *(info[key] for key in sorted(info))):
            digest.update(column.numpy().tobytes())
    assert digest.hexdigest()[:16] == expected
