"""Slices beside TorchRL's."""

from __future__ import annotations

import inspect
import itertools
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tensordict import TensorDict

from datasets_cli import ExperienceReplay, SliceSampler, TensorStorage
from datasets_cli.errors import UnknownKey, Unsupported, UsageError, WrongRows
from datasets_cli.replay.trajectories.bounds import TrajectoryKeys
from datasets_cli.torchrl.slice_samplers import SliceArguments, slices_of
from tests.support.parity import form, ours, theirs
from tests.support.refusals import refused
from tests.support.torchrl_trees import trees  # noqa: F401
from tests.support.trajectory_rows import TrajectoryRows

DRAWS = 700  # of at most 42 slices: each is missed once in 20 million times
MARKS = [("next", "truncated"), ("next", "done"), ("next", "terminated"), "is_init"]
MASK = ("collector", "mask")
END_KEYS = [("next", "done"), ("next", "missing"), ("next", "cut")]
FIRST = {"PrioritizedSliceSampler": (300, 0.7, 0.5)}
TOLD: dict[str, dict[str, Any]] = {
    "ids": {},
    "flags": {"end_key": ("next", "done")},
    "any flag": {"end_keys": END_KEYS},
}

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # TorchRL's, of NumPy 2

lengths = st.lists(st.integers(1, 7), min_size=1, max_size=3).filter(lambda each: sum(each) > 1)
told = st.sampled_from(list(TOLD))
slice_lens = st.integers(1, 6)
capacities = st.sampled_from([7, 12, 100])  # rows of an environment; a ring begins anew


def rows_of(lengths: list[int], told: str = "ids", environments: int = 1) -> TensorDict:
    """Trajectories ``[n]``, or ``[environments, n]`` in turned order; the last one is not done."""
    made = []
    for i in range(environments):
        owner = torch.repeat_interleave(torch.tensor(lengths[i:] + lengths[:i]))
        is_end = owner != torch.cat((owner[1:], owner[-1:]))
        number = torch.arange(len(owner)) + 1000 * i
        is_init = (number % 4 == 0).unsqueeze(1)
        rows = TensorDict({"number": number, "is_init": is_init}, owner.shape)
        if told == "ids":
            rows["episode"] = owner
        else:
            done = is_end & (owner % 2 == 0) if told == "any flag" else is_end
            rows["next"] = TensorDict(
                {"done": done.unsqueeze(1), "cut": is_end & ~done}, owner.shape
            )
        made.append(rows)
    return made[0] if environments == 1 else torch.stack(made)


def found_in(batch: TensorDict, slice_len: int) -> list[list[int]]:
    """The slices of a batch: of each row its number with its marks as the lowest bits."""
    marks = [*MARKS, *([MASK] if MASK in batch.keys(True) else [])]
    rows = batch["number"].clone()
    for mark in marks:
        rows = 2 * rows + batch[mark].view(-1)
    last = batch[MARKS[0]].view(-1).long()
    owner = torch.arange(len(rows)) // slice_len if MASK in marks else last.cumsum(0) - last
    first = torch.searchsorted(owner, owner)
    found = torch.full((int(owner[-1]) + 1, slice_len), -1)
    found[owner, torch.arange(len(rows)) - first] = rows
    distinct: list[list[int]] = found.unique(dim=0).tolist()
    return distinct


def buffer_of(library: Any, rows: TensorDict, kind: str, capacity: int, **arguments: Any) -> Any:
    """A buffer that the rows were written into, a few at a time."""
    size = capacity * rows.shape[:-1].numel()
    storage = library.LazyTensorStorage(size, ndim=rows.ndim)
    sampler = getattr(library, kind)(*FIRST.get(kind, ()), **arguments)
    made = library.TensorDictReplayBuffer(storage=storage, sampler=sampler)
    steps = rows.shape[-1]
    # TorchRL's buffer refuses a single step of several environments.
    at_once = next(count for count in (5, 4, 3, steps) if steps % count != 1)
    for part in rows.split(at_once, dim=-1):
        made.extend(part)
    return made


def drawn(library: Any, rows: TensorDict, slice_len: int, **arguments: Any) -> Any:
    """The leaves of a batch, its size, and which slices are in it; None where it is refused."""
    torch.manual_seed(0)
    arguments = {"kind": "SliceSampler", "capacity": 100, "slice_len": slice_len, **arguments}
    made = buffer_of(library, rows, **arguments)
    try:
        batch = made.sample(DRAWS * slice_len)
    except (RuntimeError, UsageError):
        return None
    leaves = form(batch)
    assert leaves.pop("") == (len(batch),)
    is_full = arguments.get("strict_length", True) and not arguments.get("span")
    return (
        {key: (shape[1:], dtype) for key, (shape, dtype) in leaves.items()},
        len(batch) if is_full else "short by chance",
        found_in(batch, slice_len),
    )


def agree(rows: TensorDict, slice_len: int, **arguments: Any) -> bool:
    return drawn(ours, rows, slice_len, **arguments) == drawn(theirs, rows, slice_len, **arguments)


@settings(max_examples=16)
@given(lengths, told, capacities, st.integers(1, 2), slice_lens, st.booleans(), st.booleans())
def test_the_same_slices_can_be_drawn(
    lengths: list[int],
    told: str,
    capacity: int,
    environments: int,
    slice_len: int,
    strict: bool,
    has_init: bool,
) -> None:
    init_key = "is_init" if has_init else None
    arguments: Any = {**TOLD[told], "strict_length": strict, "init_key": init_key}
    rows = rows_of(lengths, told, environments)
    assert agree(rows, slice_len, capacity=capacity, **arguments)


@settings(max_examples=8)
@given(lengths, told, slice_lens, st.data())
def test_the_same_slices_begin_before_their_trajectory(
    lengths: list[int], told: str, slice_len: int, data: Any
) -> None:
    left = data.draw(st.sampled_from([True, *range(slice_len)]))
    strict = data.draw(st.booleans()) if left is True else True
    arguments: Any = {**TOLD[told], "span": (left, False), "strict_length": strict}
    assert agree(rows_of(lengths, told), slice_len, **arguments)


@settings(max_examples=8)
@given(lengths, told, st.integers(2, 6))
def test_the_same_slices_are_padded(lengths: list[int], told: str, slice_len: int) -> None:
    assume(min(lengths) < slice_len)
    arguments: Any = {**TOLD[told], "strict_length": False, "pad_output": True}
    assert agree(rows_of(lengths, told), slice_len, **arguments)


@settings(max_examples=8)
@given(lengths, told, capacities, st.integers(1, 2), st.integers(2, 6), st.booleans())
def test_the_same_slices_begin_by_priority(
    lengths: list[int], told: str, capacity: int, environments: int, slice_len: int, strict: bool
) -> None:
    assume(environments == 1 or capacity > sum(lengths))  # see the cursor, below
    arguments: Any = {**TOLD[told], "strict_length": strict, "init_key": None}
    arguments |= {"kind": "PrioritizedSliceSampler", "capacity": capacity}
    assert agree(rows_of(lengths, told, environments), slice_len, **arguments)


@settings(max_examples=8)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=2, max_size=25, unique=True),
    capacities,
    slice_lens,
    st.booleans(),
)
def test_the_same_slices_are_found_in_rows_that_lie_apart(
    pairs: list[tuple[int, int]], capacity: int, slice_len: int, strict: bool
) -> None:
    rows = rows_of([len(pairs)]).exclude("episode")
    rows["env"], rows["step_count"] = torch.tensor(pairs, dtype=torch.uint8).unbind(1)
    arguments: Any = {"fragmented": True, "traj_key": "env", "strict_length": strict}
    assert agree(rows, slice_len, capacity=capacity, **arguments)


@settings(max_examples=8)
@given(st.lists(st.integers(3, 9), min_size=2, max_size=6), st.integers(1, 4), st.booleans())
def test_epochs_have_the_same_batches(lengths: list[int], num_slices: int, drop: bool) -> None:
    assume(not drop or num_slices <= len(lengths))
    rows, kind = rows_of(lengths), "SliceSamplerWithoutReplacement"
    found: list[Any] = []
    for library in (ours, theirs):
        sampler = getattr(library, kind)(slice_len=3, drop_last=drop, shuffle=False)
        storage = library.LazyTensorStorage(100)
        made = library.TensorDictReplayBuffer(
            storage=storage, sampler=sampler, batch_size=3 * num_slices
        )
        made.extend(rows)
        found.append([[batch["episode"].tolist() for batch in made] for _ in range(2)])
    assert found[0] == found[1]


def numbers_in(rows: TensorDict, slice_len: int, **arguments: Any) -> list[list[int]]:
    """The numbers of the slices that we draw."""
    _, _, found = drawn(ours, rows, slice_len, **arguments)
    return sorted([row >> len(MARKS) for row in each if row >= 0] for each in found)


def windows(lengths: list[int], slice_len: int, left: int, right: int, strict: bool) -> Any:
    """The slices with at most so many rows out of their trajectory; short ones with the fewest."""
    found, first = set(), 0
    for length in lengths:
        trajectory = range(first, first + length)
        last_start = max(length - slice_len + right, -left)
        for start in range(-left, last_start + 1 if length >= slice_len or not strict else -left):
            found.add(tuple(trajectory[max(0, start) : start + slice_len]))
        first += length
    return sorted(map(list, found))


@pytest.mark.parametrize("length", [2, 3])
def test_short_trajectories_overhang_as_often_as_torchrls(length: int) -> None:
    """Every part of the trajectory that has one of its ends is as likely as the others; TorchRL
    also draws slices without rows."""
    shares = []
    for library in (ours, theirs):
        torch.manual_seed(0)
        arguments: Any = {"slice_len": 5, "span": True, "strict_length": False, **TOLD["ids"]}
        made = buffer_of(library, rows_of([length]), "SliceSampler", 9, **arguments)
        batch = made.sample(20_000)
        ends = batch["next", "truncated"].flatten().nonzero().flatten().tolist()
        numbers = batch["number"].flatten().tolist()
        slices = Counter(
            tuple(numbers[begin + 1 : end + 1]) for begin, end in pairwise([-1, *ends])
        )
        shares.append({part: count / slices.total() for part, count in slices.items()})
    assert shares[0].keys() == shares[1].keys() and len(shares[0]) == 2 * length - 1
    for share in (*shares[0].values(), *shares[1].values()):
        assert share == pytest.approx(1 / (2 * length - 1), abs=0.03)


@pytest.mark.parametrize("kind", ["SliceSampler", "PrioritizedSliceSampler"])
@settings(max_examples=10)
@given(lengths, st.integers(2, 6), st.booleans(), st.data())
def test_a_slice_overhangs_by_no_more_than_its_span(
    kind: str, lengths: list[int], slice_len: int, strict: bool, data: Any
) -> None:
    """Named defects: with TorchRL's int i on the right slices keep i + 1 rows, not slice_len - i,
    with True some keep none, and with an int on the left short trajectories are cut. Begun by
    priority, True leaves out the last row, slice_len - 1 every row, and short trajectories are
    drawn in spite of strict_length."""
    assume(max(lengths) >= slice_len)
    sides = st.sampled_from([True, *range(slice_len)])
    left, right = data.draw(sides) if kind == "SliceSampler" else 0, data.draw(sides)
    span = (left, right)
    found = numbers_in(rows_of(lengths), slice_len, kind=kind, span=span, strict_length=strict)
    most = (slice_len - 1 if side is True else side for side in span)
    assert found == windows(lengths, slice_len, *most, strict)


def test_slices_that_begin_by_priority_stop_at_the_cursor_of_each_environment() -> None:
    """Named defect: with several environments TorchRL looks for the cursor elsewhere."""
    found = numbers_in(rows_of([8], environments=2), 2, kind="PrioritizedSliceSampler", capacity=7)
    assert found == [[n, n + 1] for first in (1, 1001) for n in range(first, first + 6)]


def test_slices_of_one_row_begin_by_priority_wherever_there_is_one() -> None:
    """Named defect: with slice_len=1 and strict_length=False TorchRL draws first rows only."""
    arguments: Any = {"kind": "PrioritizedSliceSampler", "strict_length": False}
    assert numbers_in(rows_of([3, 2]), 1, **arguments) == [[0], [1], [2], [3], [4]]


def test_a_padded_batch_has_a_mask_also_where_nothing_was_padded() -> None:
    """Named defect: TorchRL's batch has a mask only where some trajectory is short."""
    leaves, _, _ = drawn(ours, rows_of([5, 4]), 3, strict_length=False, pad_output=True)
    assert leaves[MASK] == ((), torch.bool)


def test_every_row_of_a_long_trajectory_can_begin_a_slice() -> None:
    """Named defect: TorchRL draws starts in float32, of which 2**25 rows have every second."""
    rows = TrajectoryRows([2**25])
    starts, _ = ours.SliceSampler(slice_len=1).sample(rows, DRAWS, torch.Generator().manual_seed(0))
    assert bool((starts % 2 == 1).any())


# The arguments of slice samplers: all of TorchRL's, and none that contradict each other.


KINDS = ["SliceSampler", "SliceSamplerWithoutReplacement", "PrioritizedSliceSampler"]


def sampler_of(kind: str, **arguments: Any) -> Any:
    first = (100, 0.7, 0.5) if kind == "PrioritizedSliceSampler" else ()
    return getattr(ours, kind)(*first, **arguments)


def sliced(columns: dict[Any, Any], sampler: Any, storage: Any = None) -> Any:
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
    assert all(own[name].default == known[name].default for name in known)


@pytest.mark.parametrize("kind", KINDS)
def test_marks_can_be_moved_and_left_out_later(kind: str) -> None:
    sampler = sampler_of(kind, slice_len=3)
    sampler.truncated_key = ("next", "cut")
    made = sliced({"episode": [0] * 9}, sampler)
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
        found.append(sliced(columns, sampler).sample(6)["index"].tolist())
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", KINDS)
def test_beginnings_are_marked_where_ends_are_not(kind: str) -> None:
    """Named defect: TorchRL's prioritised sampler takes init_key and marks nothing."""
    columns = {"episode": [0] * 9 + [1] * 9, ("a", "new"): (torch.arange(18) % 4 == 0).unsqueeze(1)}
    sampler = sampler_of(kind, slice_len=5, truncated_key=None, init_key=("a", "new"))
    batch = sliced(columns, sampler).sample(10)
    is_first = torch.arange(10) % 5 == 0
    assert torch.equal(batch["a", "new"].view(-1), is_first | (batch["index"] % 4 == 0))
    assert "next" not in batch


def test_ends_of_environments_side_by_side_are_given_by_step() -> None:
    ends = torch.rand(9, 3, generator=torch.Generator().manual_seed(0)) < 0.3
    step, place = torch.arange(9).expand(3, 9), torch.arange(3).unsqueeze(1).expand(3, 9)
    for arguments in ({"ends": ends}, {"trajectories": torch.roll(ends, 1, 0).cumsum(0)}):
        sampler = sampler_of("SliceSampler", slice_len=2, **arguments)
        made = ours.ReplayBuffer(storage=ours.LazyTensorStorage(27, ndim=2), sampler=sampler)
        made.extend(TensorDict({"step": step, "place": place}, [3, 9]))
        batch = made.sample(200).view(-1, 2)
        assert torch.equal(batch["place"][:, 0], batch["place"][:, 1])
        assert torch.equal(batch["step"][:, 0] + 1, batch["step"][:, 1])
        assert not ends[batch["step"][:, 0], batch["place"][:, 0]].any()
    made.set_sampler(sampler_of("SliceSampler", slice_len=2, ends=ends.reshape(-1)))
    with refused(WrongRows, expected=(27, 3), found=(27, 1)):
        made.sample(2)


@pytest.mark.parametrize("storage", [ours.ListStorage(9), ours.LazyTensorStorage(9)])
def test_rows_that_lie_apart_are_drawn_once_an_epoch_too(storage: Any) -> None:
    columns = {"episode": [0, 1, 0, 1, 0, 0], "at": [0, 0, 1, 1, 2, 4]}
    sampler = ours.SliceSamplerWithoutReplacement(
        slice_len=2, fragmented=True, step_key="at", shuffle=False
    )
    made = sliced(columns, sampler, storage)
    assert made.sample(4)["index"].tolist() in ([0, 2, 1, 3], [2, 4, 1, 3])


@pytest.mark.parametrize("storage", [ours.ListStorage, ours.LazyTensorStorage])
def test_an_end_is_a_flag_of_any_name(storage: Any) -> None:
    columns = {"dead": [0, 1, 0, 0, 0, 0], "cut": [0, 0, 0, 1, 0, 0]}
    sampler = ours.SliceSampler(slice_len=2, end_keys=["dead", "missing", "cut"])
    made = sliced(columns, sampler, storage(9))
    assert made.sample(400)["index"].view(-1, 2)[:, 0].unique().tolist() == [0, 2, 4]
    made.set_sampler(ours.SliceSampler(slice_len=2, end_keys=["missing"]))
    with refused(UnknownKey, key=("missing",)):
        made.sample(2)


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
    made = sliced(columns, ours.SliceSampler(slice_len=1, fragmented=True))
    with pytest.raises(kind) as error:
        made.sample(1)
    assert getattr(error.value, name) == value


@pytest.mark.parametrize("arguments", [{"span": True}, {"fragmented": True}, {"pad_output": True}])
def test_slices_by_priority_reject_what_they_do_not_support(arguments: dict[str, Any]) -> None:
    with pytest.raises(Unsupported) as error:
        sampler_of("PrioritizedSliceSampler", slice_len=2, **arguments)
    assert {error.value.argument: error.value.found} == arguments


# TorchRL's arguments of slices are translated to those of ``Slices``, once for all samplers.


WAYS: dict[str, Any] = {
    "end_key": "end",
    "end_keys": ["end"],
    "traj_key": "id",
    "trajectory_key": "id",
    "ends": torch.tensor([0, 1]),
    "trajectories": torch.tensor([0, 1]),
}


def source_of(**arguments: Any) -> Any:
    return slices_of(SliceArguments(slice_len=2, **arguments))["trajectories"]


NUMBERS, FLAGS = ("traj_key", "trajectory_key"), ("end_key", "end_keys")
BESIDE = [pair[::-1] for pair in itertools.product(NUMBERS, FLAGS)]


@pytest.mark.parametrize(
    "pair", [p for p in itertools.combinations(WAYS, 2) if p not in BESIDE], ids=" and ".join
)
def test_only_one_argument_defines_the_trajectories(pair: tuple[str, str]) -> None:
    with pytest.raises(TypeError) as error:
        source_of(**{name: WAYS[name] for name in pair})
    assert all(name in str(error.value).partition(" exclude ")[0] for name in pair)


@pytest.mark.parametrize("pair", BESIDE, ids=" and ".join)
def test_flags_end_trajectories_beside_numbers_and_without(pair: tuple[str, str]) -> None:
    keys = source_of(**{name: WAYS[name] for name in pair})
    assert keys == TrajectoryKeys(number=("id",), ends=(("end",),))
    ends = torch.tensor([[False], [True], [False], [True]])
    rows = TensorDict({"end": ends, "id": torch.tensor([[0], [0], [0], [1]])}, [4])
    for stored, lengths in ((rows, [2, 1, 1]), (rows.exclude("id"), [2, 2])):
        assert TensorStorage(stored).trajectories(keys).lengths.tolist() == lengths


@pytest.mark.parametrize("way", ["end_key", "end_keys", "ends", "trajectories"])
def test_fragmented_trajectories_are_found_by_number_and_step(way: str) -> None:
    for arguments in ({way: WAYS[way]}, {"step_key": None}):
        with pytest.raises(TypeError):
            source_of(fragmented=True, **arguments)


def test_both_sides_of_a_span_may_be_a_list() -> None:
    assert SliceSampler(slice_len=4, span=[True, 2]).span == (True, 2)
