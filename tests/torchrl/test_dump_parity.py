"""What TorchRL 0.14.1 dumped continues as in TorchRL; and a dump is whole, or is not there."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets_cli.errors import MissingFile, WrongState
from tests.support.covering import covering
from tests.support.parity import Calls, calls, kept, ours, same, theirs
from tests.support.torchrl_trees import trees  # noqa: F401
from tests.torchrl.test_parity import SAMPLERS as ALL_SAMPLERS
from tests.torchrl.test_parity import STORAGES as ALL_STORAGES
from tests.torchrl.test_parity_priorities import same_priorities

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
STORAGES = {name: make for name, make in ALL_STORAGES.items() if name != "list"}
SAMPLERS = {
    name: make for name, make in ALL_SAMPLERS.items() if name not in ("in order", "whole batches")
}


def buffer_of(library: Any, storage: str, sampler: str, **arguments: Any) -> Any:
    return library.ReplayBuffer(
        storage=STORAGES[storage](library), sampler=SAMPLERS[sampler](library), **arguments
    )


def numbers(buffer: Any, batches: int) -> list[list[int]]:
    return [buffer.sample(3)["number"].tolist() for _ in range(batches)]


@pytest.mark.parametrize(
    ("storage", "sampler"), covering(itertools.product(STORAGES, SAMPLERS), together=1)
)
@settings(max_examples=3)
@given(data=st.data())
def test_what_torchrl_dumped_is_loaded_and_continues(
    tmp_path_factory: Any, storage: str, sampler: str, data: Any
) -> None:
    folder = tmp_path_factory.mktemp("dump")
    width = 2 if "of 2" in storage else None
    made = data.draw(st.builds(Calls, st.lists(st.integers(2, 4), min_size=2), st.integers(0, 99)))
    other, one = (buffer_of(library, storage, sampler) for library in (theirs, ours))
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
@settings(max_examples=15)
@given(made=calls(fewest=2), before=st.integers(0, 9))
def test_an_epoch_continues_with_the_rows_that_torchrl_has_left(
    tmp_path_factory: Any, storage: str, made: Calls, before: int
) -> None:
    folder = tmp_path_factory.mktemp("dump")
    other, one = (buffer_of(library, storage, "epoch", batch_size=3) for library in (theirs, ours))
    made.write(other, 2 if "of 2" in storage else None)
    numbers(other, before)
    other.dumps(folder)
    one.loads(folder)
    left = -(-len(other.sampler._sample_list) // 3) if before else 0
    assert numbers(one, left) == numbers(other, left)
    epoch = list(itertools.chain(*numbers(one, -(-len(one) // 3))))
    assert sorted(epoch) == sorted(kept(one)["number"].flatten().tolist())


def test_such_an_epoch_is_in_the_state_and_in_a_dump_of_ours(tmp_path: Path) -> None:
    other = buffer_of(theirs, "memory", "epoch")
    Calls([4, 4], 0).write(other)
    numbers(other, 1)
    other.dumps(tmp_path)
    one, again, copy = (buffer_of(ours, "memory", "epoch") for _ in range(3))
    one.loads(tmp_path)
    numbers(one, 1)
    one.dumps(tmp_path / "ours")
    again.loads(tmp_path / "ours")
    copy.loads(tmp_path / "ours")
    copy.load_state_dict(one.state_dict())
    right = numbers(other, 2)[1:]
    assert numbers(one, 1) == numbers(again, 1) == numbers(copy, 1) == right
    assert one.state_dict()["sampler"]["order"] is not None
    numbers(one, 1)
    assert one.state_dict()["sampler"]["order"] is None  # a seed gives this one


def test_an_epoch_of_slices_begins_again(tmp_path: Path) -> None:
    """TorchRL numbers trajectories otherwise: short ones too, and from row 0 of a ring."""
    other, one = (buffer_of(library, "memory", "slices once") for library in (theirs, ours))
    Calls([4, 4, 3], 0).write(other)
    other.sample(2)
    other.dumps(tmp_path)
    one.loads(tmp_path)
    assert one.state_dict()["sampler"]["order"] is None and len(one.sample(1)) == 1


@pytest.mark.parametrize("sampler", ["priorities", "epoch"])
def test_a_dump_over_one_of_torchrl_takes_its_place(tmp_path: Path, sampler: str) -> None:
    older, newer = (buffer_of(library, "memory", sampler) for library in (theirs, ours))
    Calls([4], 0).write(older)
    Calls([3], 0).write(newer)
    if sampler == "priorities":
        older.update_priority(torch.arange(2), torch.ones(2))
    older.dumps(tmp_path)
    newer.dumps(tmp_path)
    found = buffer_of(ours, "memory", sampler)
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
    older, found = buffer_of(theirs, "memory", "random"), buffer_of(ours, "memory", "priorities")
    Calls([4], 0).write(older)
    older.dumps(tmp_path)
    with pytest.raises(WrongState) as error:
        found.loads(tmp_path)
    assert error.value.path == tmp_path / "sampler"
    (tmp_path / "writer" / "metadata.json").unlink()
    with pytest.raises(MissingFile) as missing:
        found.loads(tmp_path)
    assert missing.value.path == tmp_path / "writer" / "metadata.json"
