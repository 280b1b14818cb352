"""Cases outside the matrix of test_parity.py: defects of TorchRL 0.14.1, and the right result.

Each test shows the defect in TorchRL too, so that it fails once TorchRL fixes it.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli.errors import Unsupported
from tests.support.parity import CAPACITY, Calls, kept, ours, same, theirs
from tests.support.torchrl_trees import trees  # noqa: F401

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


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
    with pytest.raises(Unsupported) as error:
        Calls([4], 0).write(buffer, 2)
    assert (error.value.argument, error.value.expected, error.value.found) == ("storage", 1, 2)
