"""Buffers beside TorchRL's: the same rows, and where TorchRL's are wrong."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest
import torch
import zstandard
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tensordict import LazyStackedTensorDict, NonTensorData, TensorDict

from datasets_cli import ReplayBuffer, TensorDictReplayBuffer
from datasets_cli.errors import MissingFile, Unsupported, UsageError, WrongState
from datasets_cli.torchrl import CompressedListStorage
from tests.support.covering import covering
from tests.support.parity import (
    CAPACITY,
    FIXED,
    Calls,
    calls,
    form,
    full_rows,
    kept,
    ours,
    same,
    theirs,
)
from tests.support.refusals import refused
from tests.support.torchrl_trees import trees  # noqa: F401
from tests.torchrl.test_parity_priorities import same_priorities

# Storages x samplers x writers x buffers against TorchRL 0.14.1, on random rows and calls.


pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

STORAGES: dict[str, Any] = {
    "list": lambda library: library.ListStorage(CAPACITY),
    "memory": lambda library: library.LazyTensorStorage(CAPACITY),
    "files": lambda library: library.LazyMemmapStorage(CAPACITY),
    "tensors": lambda library: library.TensorStorage(full_rows()),
    "memory of 2": lambda library: library.LazyTensorStorage(2 * CAPACITY, ndim=2),
    "files of 2": lambda library: library.LazyMemmapStorage(2 * CAPACITY, ndim=2),
}
SAMPLERS: dict[str, Any] = {
    "random": lambda library: library.RandomSampler(),
    "epoch": lambda library: library.SamplerWithoutReplacement(),
    "in order": lambda library: library.SamplerWithoutReplacement(shuffle=False),
    "whole batches": lambda library: library.SamplerWithoutReplacement(True, shuffle=False),
    "slices": lambda library: library.SliceSampler(slice_len=2),
    "slices once": lambda library: library.SliceSamplerWithoutReplacement(slice_len=1),
    "priorities": lambda library: library.PrioritizedSampler(2 * CAPACITY, 0.7, 0.5),
    "slices by priority": lambda library: library.PrioritizedSliceSampler(
        2 * CAPACITY, 0.7, 0.5, slice_len=2
    ),
}
WRITERS = ["RoundRobinWriter", "TensorDictRoundRobinWriter", "TensorDictMaxValueWriter"]
BUFFERS = ["ReplayBuffer", "TensorDictReplayBuffer"]

LEFT_OUT = {
    ("list", "slices"): "no slices of a list: RuntimeError",
    ("list", "slices once"): "the same",
    ("list", "slices by priority"): "the same",
    ("of 2", "TensorDictMaxValueWriter"): "both refuse it",
    ("of 2", "TensorDictRoundRobinWriter", " ReplayBuffer"): "index names the step alone",
    ("of 2", "slices by priority"): "slices of a ring cross ends (pytorch/rl#2208)",
    ("slices", "TensorDictMaxValueWriter"): "rows by rank have no order in time",
}
# Left out of all: a storage of one row, whose slices raise IndexError; of two dimensions add, and
# extend by one step, which raise RuntimeError in a TensorDictReplayBuffer; TensorStorage of two
# dimensions, whose rows are counted as its steps are.


def is_left_out(*parts: str) -> bool:
    name = ", ".join(parts)
    return any(all(part in name for part in combination) for combination in LEFT_OUT)


MATRIX = [
    parts
    for parts in itertools.product(STORAGES, SAMPLERS, WRITERS, BUFFERS)
    if not is_left_out(*parts)
]


def drawn(buffer: Any, sampler: str) -> Any:
    """The form of a batch and of its info, and what can be drawn; None where nothing can.

    What can be drawn is rows; of slices those they begin with; without replacement how long each
    batch is, too.
    """
    try:
        batch, info = buffer.sample(2, return_info=True)
    except (RuntimeError, ValueError):
        return None
    forms = form(batch), form(info)
    if sampler in ("random", "priorities"):
        return *forms, set(buffer.sample(600)["number"].tolist())
    if sampler in ("slices", "slices by priority"):
        return *forms, set(buffer.sample(3000)["number"][::2].tolist())
    more = [buffer.sample(2) for _ in range(CAPACITY)]  # an epoch and a bit of the next
    batches = [some["number"].tolist() for some in (batch, *more)]
    if sampler in ("in order", "whole batches"):
        return *forms, batches
    rows = set(itertools.chain(*batches)) if sampler == "epoch" else None
    return *forms, rows, [len(rows) for rows in batches]


@pytest.mark.parametrize(("storage", "sampler", "writer", "buffer"), covering(MATRIX))
@settings(max_examples=2, phases=[Phase.generate])
@given(data=st.data())
def test_both_libraries_do_the_same(
    storage: str, sampler: str, writer: str, buffer: str, data: Any
) -> None:
    of_2 = "of 2" in storage
    made: Calls = data.draw(calls(fewest=2 if of_2 else 0))
    if storage == "tensors":
        made = dataclasses.replace(made, leaves=FIXED)
    one, other = (
        getattr(library, buffer)(
            storage=STORAGES[storage](library),
            sampler=SAMPLERS[sampler](library),
            writer=getattr(library, writer)(),
            batch_size=2 if sampler == "whole batches" else None,
        )
        for library in (ours, theirs)
    )
    width = 2 if of_2 else None
    assert made.write(one, width) == made.write(other, width)
    assert len(one) == len(other)
    same_rows = same(kept(one), kept(other))
    assert same_rows
    found, right = drawn(one, sampler), drawn(other, sampler)
    if right and (writer, buffer) == ("TensorDictMaxValueWriter", "ReplayBuffer"):
        right[0].pop("index", None)  # add leaves one among the rows, which for others is 0
    assert found == right


@pytest.mark.parametrize("reduction", ["sum", "max", "min", "mean", "median"])
@settings(max_examples=4)
@given(made=calls())
def test_rows_of_several_numbers_are_ranked_alike(reduction: str, made: Calls) -> None:
    one, other = (
        library.ReplayBuffer(
            storage=library.LazyTensorStorage(3),
            writer=library.TensorDictMaxValueWriter("ranks", reduction=reduction),
        )
        for library in (ours, theirs)
    )
    for rows in made.rows():
        reward = rows["next", "reward"]
        rows["ranks"] = torch.cat([reward, 5 - reward, rows["number"].view(-1, 1) % 4], 1)
        assert one.extend(rows.clone()).tolist() == other.extend(rows.clone()).tolist()
    same_rows = same(kept(one), kept(other))
    assert same_rows


# Cases outside the matrix of test_parity.py: defects of TorchRL 0.14.1, and the right result.


def buffer_of(library: Any, storage: Any, sampler: Any = None, **arguments: Any) -> Any:
    sampler = sampler or library.RandomSampler()
    return library.TensorDictReplayBuffer(storage=storage, sampler=sampler, **arguments)


def trajectories(lengths: list[int]) -> TensorDict:
    """Rows numbered from 0; each trajectory ends with ``done`` but the last."""
    rows = Calls([sum(lengths)], 0).rows()[0]
    rows["next", "done"].zero_()
    rows["next", "done"][torch.tensor(lengths).cumsum(0)[:-1] - 1] = True
    return rows


def pairs_of(buffer: Any) -> set[tuple[int, ...]]:
    """The slices of two rows that can be drawn."""
    return set(map(tuple, buffer.sample(2000)["number"].view(-1, 2).tolist()))


@pytest.mark.parametrize("name", ["SliceSampler", "SliceSamplerWithoutReplacement"])
def test_slices_are_drawn_from_a_list_too(name: str) -> None:
    """Named defect: TorchRL gets no tensordict out of a ListStorage."""
    for library in (theirs, ours):
        buffer = buffer_of(library, library.ListStorage(9), getattr(library, name)(slice_len=2))
        buffer.extend(trajectories([3, 3, 3]))
        if library is theirs:
            with pytest.raises(RuntimeError, match="Could not get a tensordict"):
                buffer.sample(6)
    starts = buffer.sample(6)["number"].view(-1, 2)
    assert (starts.diff() == 1).all() and len(starts) == 3


def test_drawing_from_a_list_leaves_its_rows_as_they_are() -> None:
    """Named defect: a row that was added has an ``index`` in TorchRL, so that rows differ.

    A batch is then a lazy stack of the stored rows, and writes to it change them.
    """
    for library in (theirs, ours):
        sampler, writer = library.PrioritizedSampler(4, 0.7, 0.5), library.RoundRobinWriter()
        buffer = buffer_of(library, library.ListStorage(4), sampler, writer=writer)
        buffer.extend(trajectories([3]))
        buffer.add(trajectories([1])[0])
        buffer.sample(60)
        assert ("priority_weight" in buffer[0].keys()) == (library is theirs)  # noqa: SIM118
    assert same(buffer[:3], trajectories([3]))


def test_what_is_written_stays_as_the_caller_had_it() -> None:
    """Named defect: TorchRL puts ``index`` into the caller's rows, and among those it keeps."""
    for library in (theirs, ours):
        rows = trajectories([4])
        writer, storage = library.TensorDictRoundRobinWriter(), library.LazyTensorStorage(8)
        buffer = library.ReplayBuffer(storage=storage, writer=writer)
        buffer.extend(rows)
        assert ("index" in rows.keys()) == (library is theirs)  # noqa: SIM118
    assert same(buffer[:], trajectories([4]))
    batch = buffer.sample(5)
    assert torch.equal(batch["index"], batch["number"])


def test_a_row_that_was_added_by_rank_has_no_column_of_its_own() -> None:
    """Named defect: in TorchRL all rows have an ``index`` from then on; that of the others is 0."""
    for library in (theirs, ours):
        writer, storage = library.TensorDictMaxValueWriter(), library.LazyTensorStorage(8)
        buffer = library.ReplayBuffer(storage=storage, writer=writer)
        buffer.extend(trajectories([4]))
        assert buffer.add(trajectories([1])[0]) == 4
        if library is theirs:
            assert buffer[:]["index"].tolist() == [0, 0, 0, 0, 4]
    assert same(buffer[:4], trajectories([4]))


@pytest.mark.parametrize("by_priority", [False, True])
def test_a_storage_of_one_row_has_a_slice_of_one_row(by_priority: bool) -> None:
    """Named defects: TorchRL squeezes one row away; and draws no slices of 1 by priority at all."""
    for library in (theirs, ours):
        sampler = library.SliceSampler(slice_len=1)
        if by_priority:
            sampler = library.PrioritizedSliceSampler(4, 0.7, 0.5, slice_len=1)
        buffer = buffer_of(library, library.LazyTensorStorage(4), sampler)
        buffer.extend(trajectories([1]))
        if library is theirs:
            with pytest.raises((IndexError, RuntimeError), match=r"0-dim|non-positive p_sum"):
                buffer.sample(3)
    assert buffer.sample(3)["number"].tolist() == [0, 0, 0]


def test_slices_without_replacement_pass_over_what_is_too_short() -> None:
    """Named defect: TorchRL draws short trajectories and leaves them out: batches fall short."""
    for library in (theirs, ours):
        sampler = library.SliceSamplerWithoutReplacement(slice_len=2, shuffle=False)
        buffer = buffer_of(library, library.LazyTensorStorage(8), sampler)
        buffer.extend(trajectories([1, 3, 1, 3]))
        assert len(buffer.sample(4)) == (2 if library is theirs else 4)


def test_the_last_trajectory_of_full_tensors_does_not_go_on_with_the_first() -> None:
    """Named defect: to TorchRL tensors that are there are a ring, full by chance."""
    for library in (theirs, ours):
        storage = library.TensorStorage(trajectories([3, 3]))
        buffer = buffer_of(library, storage, library.SliceSampler(slice_len=2))
        pairs = pairs_of(buffer)
        assert ((5, 0) in pairs) == (library is theirs)
    assert pairs == {(0, 1), (1, 2), (3, 4), (4, 5)}


def test_rows_that_are_there_by_rank_are_no_ring() -> None:
    """Named defect: TorchRL takes the row that was written last for the newest of a ring."""
    rows = trajectories([CAPACITY + 1])
    rows["next", "reward"] = torch.tensor([5.0, 5, 0, 5, 5, 5, 5, 5, 9]).view(-1, 1)
    for library in (theirs, ours):
        buffer = buffer_of(
            library,
            library.LazyTensorStorage(CAPACITY),
            library.SliceSampler(slice_len=2),
            writer=library.TensorDictMaxValueWriter(),
        )
        buffer.extend(rows[:CAPACITY].clone())
        buffer.extend(rows[CAPACITY:].clone())  # in the place of row 2
        assert ((7, 0) in pairs_of(buffer)) == (library is theirs)
    assert kept(buffer)["number"].tolist() == [0, 1, 8, 3, 4, 5, 6, 7]


def test_environments_side_by_side_are_written_one_step_at_a_time() -> None:
    """Named defect: TorchRL cannot put the numbers of one step into its TensorDict."""
    step = Calls([1], 0).rows(2)[0]
    for library in (theirs, ours):
        buffer = buffer_of(library, library.LazyTensorStorage(6, ndim=2))
        if library is theirs:
            with pytest.raises(RuntimeError, match="expand_as_right"):
                buffer.add(step[:, 0])
            with pytest.raises(RuntimeError, match="incompatible with dest"):
                buffer.extend(step.clone())
    assert buffer.add(step[:, 0]).tolist() == [[0, 0], [0, 1]]
    assert buffer.extend(step).tolist() == [[1, 0], [1, 1]]
    assert buffer[:]["number"].tolist() == [[0, 0], [1000, 1000]]


def test_an_index_names_the_step_and_the_environment() -> None:
    """Named defect: TorchRL's writer names the step alone, in a ReplayBuffer."""
    for library in (theirs, ours):
        buffer = library.ReplayBuffer(
            storage=library.LazyTensorStorage(8, ndim=2),
            writer=library.TensorDictRoundRobinWriter(),
        )
        Calls([4], 0).write(buffer, 2)
        batch = buffer.sample(50)
        assert batch["index"].shape == ((50,) if library is theirs else (50, 2))
    assert torch.equal(batch["index"] @ torch.tensor([1, 1000]), batch["number"])


def test_tensors_of_two_dimensions_have_a_row_for_each_step_and_environment() -> None:
    """Named defect: TorchRL counts the steps of such a TensorStorage as if they were its rows."""
    tensors = Calls([4], 0).rows(2)[0].transpose(0, 1).contiguous()
    one, other = (
        buffer_of(library, library.TensorStorage(tensors.clone(), ndim=2))
        for library in (ours, theirs)
    )
    assert len(one) == 8 and len(other) == 4
    assert torch.equal(one[:]["number"], tensors["number"].T)
    assert one.extend(Calls([4], 1).rows(2)[0])[-1].tolist() == [3, 1]


def test_slices_by_priority_stay_in_a_trajectory_of_a_ring_of_environments() -> None:
    """Named defect: TorchRL's cross ends in a ring of several dimensions (pytorch/rl#2208)."""
    for library in (theirs, ours):
        sampler = library.PrioritizedSliceSampler(16, 0.7, 0.5, slice_len=2)
        buffer = buffer_of(library, library.LazyTensorStorage(8, ndim=2), sampler)
        rows = torch.stack([trajectories([4, 2]), trajectories([3, 3])])
        rows["number"][1] += 1000
        buffer.extend(rows[:, :4].clone())
        buffer.extend(rows[:, 4:].clone())
        pairs = pairs_of(buffer)
        assert (pairs == {(2, 3), (4, 5), (1003, 1004), (1004, 1005)}) == (library is ours)


def test_rows_of_several_dimensions_are_not_ranked_one_by_one() -> None:
    """No defect: TorchRL refuses it too, with another error, when the buffer is constructed."""
    with pytest.raises(ValueError, match="not compatible"):
        theirs.ReplayBuffer(
            storage=theirs.LazyTensorStorage(8, ndim=2), writer=theirs.TensorDictMaxValueWriter()
        )
    buffer = ours.ReplayBuffer(
        storage=ours.LazyTensorStorage(8, ndim=2), writer=ours.TensorDictMaxValueWriter()
    )
    with refused(Unsupported, argument="storage", expected=1, found=2):
        Calls([4], 0).write(buffer, 2)


# Lazy stacks of TensorDicts and lists of structures are written as TorchRL writes them.


def episode(length: int, *more: str) -> TensorDict:
    steps = torch.arange(length) + 10.0 * length
    return TensorDict({name: steps.clone() for name in ("a", *more)}, [])


def ragged() -> LazyStackedTensorDict:
    return LazyStackedTensorDict(episode(2), episode(5), episode(3, "b"))


def by_rows() -> LazyStackedTensorDict:
    """Rows ``[4, 3]``: each of four is a stack of three."""
    grid = torch.arange(24).view(4, 3, 2)
    return LazyStackedTensorDict(
        *(LazyStackedTensorDict(*(TensorDict({"a": c}, []) for c in row)) for row in grid)
    )


def by_columns() -> LazyStackedTensorDict:
    grid = torch.arange(24).view(4, 3, 2)
    parts = [TensorDict({"a": grid[:, column]}, [4]) for column in range(3)]
    return LazyStackedTensorDict(*parts, stack_dim=1)


def written(library: Any, storage: str, data: Any, **words: Any) -> Any:
    buffer = library.ReplayBuffer(storage=getattr(library, storage)(9, **words), batch_size=50)
    buffer.extend(data)
    return buffer


@pytest.mark.parametrize("as_list", [True, False])
@pytest.mark.parametrize("storage", ["ListStorage", "LazyStackStorage"])
def test_ragged_rows_stay_apart(storage: str, as_list: bool) -> None:
    data = [*ragged().unbind(0)] if as_list else ragged()
    for library in (ours, theirs):
        buffer = written(library, storage, data)
        for row, length in enumerate((2, 5, 3)):
            right = ragged()[row]
            assert {*buffer[row].keys()} == {*right.keys()}
            assert torch.equal(buffer[row]["a"], right["a"]) and len(right["a"]) == length
        batch = buffer.sample()  # of rows of one length alone ours would be a TensorDict
        assert isinstance(batch, LazyStackedTensorDict)
        assert all(len(one["a"]) == int(one["a"][0]) // 10 for one in batch.unbind(0))


@pytest.mark.parametrize("make", [by_rows, by_columns])
@pytest.mark.parametrize("storage", ["ListStorage", "LazyTensorStorage", "LazyMemmapStorage"])
def test_lazy_stacks_of_two_dimensions_are_rows_of_several(storage: str, make: Any) -> None:
    grid = torch.arange(24).view(4, 3, 2)
    for library in (ours, theirs):
        buffer = written(library, storage, make())
        assert len(buffer) == 4 and buffer[2].batch_size == (3,)
        assert torch.equal(torch.as_tensor(buffer[:]["a"]), grid)
        batch, info = buffer.sample(return_info=True)
        assert torch.equal(batch["a"], grid[torch.as_tensor(info["index"])])


@pytest.mark.parametrize("make", [by_rows, by_columns])
def test_lazy_stacks_are_environments_side_by_side(make: Any) -> None:
    for library in (ours, theirs):
        buffer = written(library, "LazyTensorStorage", make(), ndim=2)
        assert len(buffer) == 12
        assert torch.equal(buffer[:]["a"], torch.arange(24).view(4, 3, 2))


@pytest.mark.parametrize("storage", ["ListStorage", "LazyTensorStorage", "LazyMemmapStorage"])
def test_lists_of_structures_are_rows(storage: str) -> None:
    items = [{"a": torch.full((2,), n), "b": (torch.tensor(n), [torch.ones(1)])} for n in range(5)]
    for library in (ours, theirs):
        buffer = written(library, storage, [*items])
        assert len(buffer) == 5
        batch, info = buffer.sample(return_info=True)
        index = torch.as_tensor(info["index"])
        assert torch.equal(batch["a"], index.unsqueeze(1).expand(-1, 2))
        assert torch.equal(batch["b"][0], index) and batch["b"][1][0].shape == (50, 1)


# Rows that are kept compressed come back as TorchRL's do, and as they were.


def rows(count: int = 6) -> TensorDict:
    images = torch.arange(count, dtype=torch.uint8).view(-1, 1, 1).expand(-1, 40, 40).clone()
    return TensorDict({"obs": images, "next": {"obs": images + 1}, "n": torch.arange(count)}, count)


def packed(tensor: torch.Tensor) -> torch.Tensor:
    return torch.frombuffer(bytearray(zlib.compress(tensor.numpy().tobytes())), dtype=torch.uint8)


def unpacked(content: torch.Tensor, facts: Any) -> torch.Tensor:
    plain = bytearray(zlib.decompress(content.numpy().tobytes()))
    return torch.frombuffer(plain, dtype=facts["dtype"]).reshape(facts["shape"])


@pytest.mark.parametrize(
    "words", [{}, {"compression_fn": packed, "decompression_fn": unpacked}], ids=["zstd", "own"]
)
@pytest.mark.parametrize("data", [rows(), torch.arange(30.0).view(6, 5)], ids=["dicts", "tensors"])
def test_what_is_written_is_read_as_torchrl_reads_it(data: Any, words: Any) -> None:
    buffers = [
        library.ReplayBuffer(storage=library.CompressedListStorage(4, **words), batch_size=50)
        for library in (ours, theirs)
    ]
    for buffer in buffers:
        assert buffer.extend(data).tolist() == [0, 1, 2, 3, 0, 1]
        ring = data[[4, 5, 2, 3]]
        assert bool((buffer[:] == ring).all()) and bool((buffer[2] == data[2]).all())
        batch, info = buffer.sample(return_info=True)
        assert bool((batch == ring[torch.as_tensor(info["index"])]).all())


def test_tensors_take_the_bytes_of_their_compressed_form() -> None:
    storage = CompressedListStorage(9, compression_level=19)
    ReplayBuffer(storage=storage).extend(rows(3))
    leaves = [leaf for row in rows(3).unbind(0) for leaf in row.values(True, True)]
    right = [zstandard.compress(leaf.numpy().tobytes(), 19) for leaf in leaves]
    assert storage.bytes() == sum(map(len, right)) < 3 * 2 * 1600


def test_rows_of_any_kind_come_back_and_no_memory_is_shared(tmp_path: Path) -> None:
    given = torch.ones(2, dtype=torch.bfloat16)
    items = [(given, {"k": torch.zeros(0, 3)}), "text", TensorDict({"t": NonTensorData("x")}, [])]
    buffer = ReplayBuffer(storage=CompressedListStorage(), collate_fn=list, batch_size=3)
    buffer.extend(items)
    given += 1
    for each in (buffer, pickle.loads(pickle.dumps(buffer))):
        (tensor, others), text, named = (each[number] for number in range(3))
        assert tensor.dtype == torch.bfloat16 and tensor.tolist() == [1.0, 1.0]
        assert others["k"].shape == (0, 3) and text == "text" and named["t"] == "x"


def test_a_dump_and_a_state_have_the_rows(tmp_path: Path) -> None:
    buffer = TensorDictReplayBuffer(storage=CompressedListStorage(8), batch_size=2)
    buffer.extend(rows())
    buffer.dumps(tmp_path / "dump")
    by_dump, by_state = (TensorDictReplayBuffer(storage=CompressedListStorage(8)) for _ in "ab")
    by_dump.loads(tmp_path / "dump")
    by_state.load_state_dict(buffer.state_dict())
    for other in (by_dump, by_state):
        assert bool((other[:] == rows()).all()) and other["n"].tolist() == [*range(6)]


@pytest.mark.parametrize(
    "words", [{"compression_level": 23}, {"compression_level": 0}, {"compression_fn": packed}]
)
def test_what_cannot_be_compressed_with_is_refused(words: Any) -> None:
    with pytest.raises(UsageError):
        CompressedListStorage(5, **words)


# What TorchRL 0.14.1 dumped continues as in TorchRL; and a dump is whole, or is not there.


DUMPED_STORAGES = {name: make for name, make in STORAGES.items() if name != "list"}
DUMPED_SAMPLERS = {
    name: make for name, make in SAMPLERS.items() if name not in ("in order", "whole batches")
}


def dumped_buffer(library: Any, storage: str, sampler: str, **arguments: Any) -> Any:
    return library.ReplayBuffer(
        storage=DUMPED_STORAGES[storage](library),
        sampler=DUMPED_SAMPLERS[sampler](library),
        **arguments,
    )


def numbers_of(buffer: Any, batches: int) -> list[list[int]]:
    return [buffer.sample(3)["number"].tolist() for _ in range(batches)]


@pytest.mark.parametrize(
    ("storage", "sampler"),
    covering(itertools.product(DUMPED_STORAGES, DUMPED_SAMPLERS), together=1),
)
@settings(max_examples=3)
@given(data=st.data())
def test_what_torchrl_dumped_is_loaded_and_continues(
    tmp_path_factory: Any, storage: str, sampler: str, data: Any
) -> None:
    folder = tmp_path_factory.mktemp("dump")
    width = 2 if "of 2" in storage else None
    made = data.draw(st.builds(Calls, st.lists(st.integers(2, 4), min_size=2), st.integers(0, 99)))
    other, one = (dumped_buffer(library, storage, sampler) for library in (theirs, ours))
    made.write(other, width)
    if "priorit" in sampler:
        index = torch.stack([torch.zeros(2), torch.arange(2)], 1) if width else torch.arange(2)
        other.update_priority(index.long(), torch.tensor([3.0, 0.2]))
    other.dumps(folder)
    one.loads(folder)
    same_rows = same(kept(one), kept(other))
    assert len(one) == len(other) and same_rows
    if sampler == "priorities":
        same_priorities(one, other)
    assert made.write(one, width) == made.write(other, width)


@pytest.mark.parametrize("storage", ["memory", "files of 2"])
@settings(max_examples=6)
@given(made=calls(fewest=2), before=st.integers(0, 9))
def test_an_epoch_continues_with_the_rows_that_torchrl_has_left(
    tmp_path_factory: Any, storage: str, made: Calls, before: int
) -> None:
    folder = tmp_path_factory.mktemp("dump")
    other, one = (
        dumped_buffer(library, storage, "epoch", batch_size=3) for library in (theirs, ours)
    )
    made.write(other, 2 if "of 2" in storage else None)
    numbers_of(other, before)
    other.dumps(folder)
    one.loads(folder)
    left = -(-len(other.sampler._sample_list) // 3) if before else 0
    assert numbers_of(one, left) == numbers_of(other, left)
    epoch = list(itertools.chain(*numbers_of(one, -(-len(one) // 3))))
    assert sorted(epoch) == sorted(kept(one)["number"].flatten().tolist())


def test_such_an_epoch_is_in_the_state_and_in_a_dump_of_ours(tmp_path: Path) -> None:
    other = dumped_buffer(theirs, "memory", "epoch")
    Calls([4, 4], 0).write(other)
    numbers_of(other, 1)
    other.dumps(tmp_path)
    one, again, copy = (dumped_buffer(ours, "memory", "epoch") for _ in range(3))
    one.loads(tmp_path)
    numbers_of(one, 1)
    one.dumps(tmp_path / "ours")
    again.loads(tmp_path / "ours")
    copy.loads(tmp_path / "ours")
    copy.load_state_dict(one.state_dict())
    right = numbers_of(other, 2)[1:]
    assert numbers_of(one, 1) == numbers_of(again, 1) == numbers_of(copy, 1) == right
    assert one.state_dict()["sampler"]["order"] is not None
    numbers_of(one, 1)
    assert one.state_dict()["sampler"]["order"] is None  # a seed gives this one


def test_an_epoch_of_slices_begins_again(tmp_path: Path) -> None:
    """TorchRL numbers trajectories otherwise: short ones too, and from row 0 of a ring."""
    other, one = (dumped_buffer(library, "memory", "slices once") for library in (theirs, ours))
    Calls([4, 4, 3], 0).write(other)
    other.sample(2)
    other.dumps(tmp_path)
    one.loads(tmp_path)
    assert one.state_dict()["sampler"]["order"] is None and len(one.sample(1)) == 1


@pytest.mark.parametrize("sampler", ["priorities", "epoch"])
def test_a_dump_over_one_of_torchrl_takes_its_place(tmp_path: Path, sampler: str) -> None:
    older, newer = (dumped_buffer(library, "memory", sampler) for library in (theirs, ours))
    Calls([4], 0).write(older)
    Calls([3], 0).write(newer)
    if sampler == "priorities":
        older.update_priority(torch.arange(2), torch.ones(2))
    older.dumps(tmp_path)
    newer.dumps(tmp_path)
    found = dumped_buffer(ours, "memory", sampler)
    found.loads(tmp_path)
    assert same(found[:], newer[:])
    older.dumps(tmp_path)  # and now both are in the folder
    with pytest.raises(WrongState) as error:
        found.loads(tmp_path)
    assert error.value.path == tmp_path and "buffer_metadata.json" in str(error.value)
    (tmp_path / "buffer.pt").unlink()
    found.loads(tmp_path)
    assert same(kept(found), kept(older))


def test_a_dump_of_torchrl_without_priorities_is_refused_by_a_sampler_with_some(
    tmp_path: Path,
) -> None:
    older, found = (
        dumped_buffer(theirs, "memory", "random"),
        dumped_buffer(ours, "memory", "priorities"),
    )
    Calls([4], 0).write(older)
    older.dumps(tmp_path)
    with refused(WrongState, path=tmp_path / "sampler"):
        found.loads(tmp_path)
    (tmp_path / "writer" / "metadata.json").unlink()
    with refused(MissingFile, path=tmp_path / "writer" / "metadata.json"):
        found.loads(tmp_path)
