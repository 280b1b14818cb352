"""The seams: parts made from the protocols alone, on which every buffer and sampler works.

A sampler that is made so is in samplers/test_protocol.py.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import (
    BlockShuffleSampler,
    DistributedSampler,
    LazyTensorStorage,
    PrioritizedSampler,
    PrioritizedSliceSampler,
    RandomSampler,
    ReplayBuffer,
    ReplayBufferEnsemble,
    SamplerWithoutReplacement,
    SliceSampler,
    SliceSamplerWithoutReplacement,
    TensorDictMaxValueWriter,
    TensorDictReplayBuffer,
)
from datasets_cli.errors import UsageError
from datasets_cli.replay.buffer.parts import members_of
from datasets_cli.replay.samplers.protocol import Info, Sampler
from datasets_cli.replay.storages.protocol import Storage, WritableStorage
from datasets_cli.replay.trajectories.bounds import (
    TrajectoryIndex,
    TrajectoryKeys,
    find_trajectories,
)
from datasets_cli.replay.writing.writers import Writer
from datasets_cli.schema.columns import Key
from datasets_cli.schema.mapping import ON_DISK, DeviceOptions
from datasets_cli.torchrl import PrioritizedReplayBuffer, TensorDictPrioritizedReplayBuffer
from tests.support.covering import covering
from tests.support.refusals import check_refused

LENGTH = 5  # rows of each trajectory
ROWS = 20


def rows(count: int = ROWS, start: int = 0) -> TensorDict:
    number = torch.arange(start, start + count)
    done = (number % LENGTH == LENGTH - 1).unsqueeze(1)
    following = TensorDict({"done": done, "reward": number.unsqueeze(1).double()}, [count])
    return TensorDict({"number": number, "td_error": number + 1.0, "next": following}, [count])


class Reversed:
    """Rows kept last first, in plain dicts; it derives from nothing."""

    ndim = 1
    row_batch_size = ()
    is_tensordict = True
    is_writable = True
    takes_lists = False
    device_options: DeviceOptions = ON_DISK
    index_device: torch.device | None = None
    device: torch.device | None = None
    width = 1
    row_bytes = 0
    no_rows = "No rows yet."
    generations = None
    seams = None
    checkpointer = None

    def __init__(self, max_size: int) -> None:
        self.max_size = self.capacity = max_size
        self.revision = self.cursor = 0
        self._rows: dict[int, TensorDict] = {}

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def grid(self) -> tuple[int, ...]:
        return (len(self),)

    def gather(self, index: torch.Tensor) -> dict[str, Any]:
        if not self._rows:
            raise AssertionError("a buffer gathered rows that are not there")
        return dict(self.get(index).items())

    def read(self, index: torch.Tensor) -> None:
        return None

    def reference(self) -> None:
        return None

    def collate(self, rows: Any) -> Any:
        raise AssertionError("only rows that are not TensorDicts are collated")

    def as_batch(self, tree: dict[str, Any], shape: torch.Size) -> TensorDict:
        return TensorDict(tree, shape)

    def get(self, index: torch.Tensor) -> TensorDict:
        return torch.stack([self._rows[-number] for number in index.tolist()])

    def item(self, row: int) -> TensorDict:
        return self._rows[-row].clone()

    def run(self, start: int, stop: int) -> TensorDict:
        return self.get(torch.arange(start, stop))

    def contents(self) -> TensorDict:
        return self.run(0, len(self))

    def column(self, key: Key) -> Any:
        return self.contents()[key]

    def has(self, key: Key) -> bool:
        return any(key in row.keys(True) for row in self._rows.values())

    def entry(self, key: Key, rows: torch.Tensor) -> torch.Tensor | None:
        return self.get(rows)[key] if self.has(key) else None

    def scalar_column(self, key: Key) -> torch.Tensor:
        found: torch.Tensor = self.column(key).reshape(-1, 1)
        return found

    def trajectories(self, keys: TrajectoryKeys) -> TrajectoryIndex:
        full = len(self) == self.capacity
        return find_trajectories(self, keys, self.cursor if full else 0)

    def flatten(self, data: TensorDict) -> list[list[TensorDict]]:
        return [list(data.unbind(0))]

    def write(self, rows: slice | torch.Tensor, columns: list[list[TensorDict]]) -> None:
        numbers = range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist()
        self._rows |= {-n: row.clone() for n, row in zip(numbers, columns[0], strict=True)}
        if isinstance(rows, slice):
            self.cursor = rows.stop % self.max_size
        self.revision += 1

    def one_row(self, data: TensorDict) -> TensorDict:
        return data.unsqueeze(0)

    def clear(self) -> None:
        self._rows.clear()
        self.cursor = 0
        self.revision += 1


class Backwards:
    """Writes the last row first; it derives from nothing."""

    write_count = 0
    tracks_generations = False

    def write(self, storage: WritableStorage, data: TensorDict) -> torch.Tensor:
        columns = storage.flatten(data)
        index = torch.arange(len(columns[0])).flip(0)
        storage.write(index, columns)
        self.write_count += len(index)
        return index

    def on_clear(self) -> None:
        self.write_count = 0

    def generations_of(self, index: torch.Tensor) -> torch.Tensor:
        return torch.full_like(index, -1)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass


@pytest.mark.parametrize(
    ("part", "protocol"),
    [(Reversed(3), WritableStorage), (Backwards(), Writer)],
    ids=["storage", "writer"],
)
def test_the_parts_of_this_file_have_a_protocols_members_and_no_others(
    part: Any, protocol: type
) -> None:
    own = {name for name in dir(part) if not name.startswith("_")} | {"__len__"} & set(dir(part))
    assert own == members_of(protocol)
    assert type(part).__mro__ == (type(part), object)


SAMPLERS: list[Callable[[], Sampler]] = [
    RandomSampler,
    SamplerWithoutReplacement,
    lambda: SliceSampler(slice_len=2),
    lambda: SliceSamplerWithoutReplacement(slice_len=2),
    lambda: PrioritizedSampler(ROWS, 0.7, 0.5),
    lambda: PrioritizedSliceSampler(ROWS, 0.7, 0.5, slice_len=2),
    lambda: DistributedSampler(1, 0),
    lambda: BlockShuffleSampler(2, 2),
]


@pytest.mark.parametrize(
    ("sampler", "kind", "prefetch"),
    covering(itertools.product(SAMPLERS, (ReplayBuffer, TensorDictReplayBuffer), (None, 2))),
)
def test_every_sampler_and_buffer_works_on_a_storage_made_from_the_protocol(
    sampler: Callable[[], Sampler], kind: type[ReplayBuffer], prefetch: int | None
) -> None:
    made = kind(storage=Reversed(ROWS), sampler=sampler(), batch_size=4, prefetch=prefetch, seed=0)
    made.extend(rows(16))
    made.extend(rows(8, start=16))  # around the end of the ring
    batch, info = made.sample(return_info=True)
    expected = torch.cat((torch.arange(20, 24), torch.arange(4, 20)))
    assert torch.equal(batch["number"], expected[info["index"]])
    assert torch.equal(made[:]["number"], expected)
    assert int(made[3]["number"]) == 23
    made.update_priority(info["index"], 2.0)
    state = made.state_dict()
    made.empty()
    assert len(made) == 0
    made.load_state_dict(state)
    assert torch.equal(made["number"], expected)


def test_prioritised_buffers_ensembles_and_dumps_work_on_it(tmp_path: Any) -> None:
    plain = PrioritizedReplayBuffer(alpha=0.6, beta=0.4, storage=Reversed(ROWS), batch_size=4)
    named = TensorDictPrioritizedReplayBuffer(alpha=0.6, beta=0.4, storage=Reversed(ROWS))
    for made in (plain, named):
        made.extend(rows())
    named.update_tensordict_priority(named.sample(4))
    both = ReplayBufferEnsemble(plain, named, batch_size=8, sample_from_all=True)
    assert both.sample()["number"].shape == (2, 4)
    named.dumps(tmp_path)
    other = TensorDictPrioritizedReplayBuffer(alpha=0.6, beta=0.4, storage=Reversed(ROWS))
    other.loads(tmp_path)
    assert torch.equal(other["number"], named["number"])


WITH_DEFAULTS = {"as_batch", "capacity", "column", "contents", "device", "item"}
WITHOUT = WITH_DEFAULTS | {"__dict__", "__weakref__"}
OTHERS = {name: member for name, member in vars(Reversed).items() if name not in WITHOUT}
Incomplete: Any = type("Incomplete", (), OTHERS)


def test_a_storage_without_what_has_a_default_works_in_every_buffer() -> None:
    for kind in (PrioritizedReplayBuffer, TensorDictPrioritizedReplayBuffer):
        made = kind(alpha=0.6, beta=0.4, storage=Incomplete(ROWS), batch_size=4)
        made.extend(rows())
        assert set(made.sample()["number"].tolist()) <= set(rows()["number"].tolist())


def test_writers_that_choose_rows_write_into_it() -> None:
    best = TensorDictReplayBuffer(storage=Reversed(4), writer=TensorDictMaxValueWriter())
    best.extend(rows(9))
    assert sorted(best["number"].tolist()) == [5, 6, 7, 8]


def test_a_writer_made_from_the_protocol_writes_in_a_buffer() -> None:
    made = ReplayBuffer(storage=Reversed(ROWS), writer=Backwards())
    assert made.extend(rows(3)).tolist() == [2, 1, 0]
    assert made[:]["number"].tolist() == [2, 1, 0]


def test_the_defaults_of_the_protocols_are_enough_for_parts_that_derive_from_them() -> None:
    class Count(Storage):
        """The numbers from 0 on."""

        is_tensordict = False

        def __len__(self) -> int:
            return 6

        def gather(self, index: torch.Tensor) -> torch.Tensor:
            return index.clone()

        def has(self, key: Key) -> bool:
            return False

        def scalar_column(self, key: Key) -> torch.Tensor:
            raise KeyError(key)

    class Last(Sampler):
        """Draws the last row alone."""

        def sample(
            self, storage: Storage, batch_size: int, generator: torch.Generator
        ) -> tuple[torch.Tensor, Info]:
            return torch.full((batch_size,), len(storage) - 1), {}

    made = ReplayBuffer(storage=Count(), sampler=Last(), batch_size=2)
    assert made.sample().tolist() == [5, 5]
    assert made[1:3].tolist() == [1, 2] and int(made[4]) == 4
    assert "ImmutableDatasetWriter" in repr(made)


class Newest:
    """Draws the rows that were written last, and takes priorities; it has no more than that."""

    def __init__(self) -> None:
        self.priority: list[float] = []

    def sample(self, storage: Storage, batch_size: int, generator: torch.Generator) -> Any:
        return torch.arange(len(storage) - batch_size, len(storage)), {}

    def update_priority(self, index: torch.Tensor, priority: Any) -> None:
        self.priority += index.tolist()


def test_a_sampler_with_two_methods_is_completed_and_given_back_as_it_was() -> None:
    newest = Newest()
    storage = LazyTensorStorage(ROWS)
    made = TensorDictReplayBuffer(storage=storage, sampler=newest, batch_size=2)
    made.extend(rows(4))
    assert made.sample()["number"].tolist() == [2, 3]
    made.update_tensordict_priority(made[:2].set("index", torch.arange(2)))
    assert newest.priority == [0, 1, 2, 3, 0, 1]  # of the rows that were written, then of the batch
    assert made.reader.sampler.has_priorities and not made.reader.sampler.has_slices
    assert repr(made.reader.sampler) == repr(newest)
    assert made.sampler is newest and made.set_sampler(RandomSampler()) is newest


def test_a_completed_storage_goes_to_another_process_and_into_another_buffer() -> None:
    first = ReplayBuffer(storage=Incomplete(ROWS), batch_size=2)
    first.extend(rows())
    copy = pickle.loads(pickle.dumps(first))
    assert torch.equal(copy["number"], first["number"])
    copy.extend(rows(3, start=100))
    assert copy["number"][:3].tolist() == [100, 101, 102]
    other = ReplayBuffer(storage=first.reader.storage, batch_size=2)
    assert other.storage is first.storage and type(other.storage) is Incomplete


def test_a_sampler_that_derives_from_sampler_and_takes_priorities_gets_them() -> None:
    class Mine(Sampler):
        """Draws the rows whose priorities were given last."""

        def __init__(self) -> None:
            self.given: list[int] = []

        def sample(
            self, storage: Storage, batch_size: int, generator: torch.Generator
        ) -> tuple[torch.Tensor, Info]:
            return torch.tensor(self.given[:batch_size]), {}

        def update_priority(self, index: torch.Tensor, priority: Any) -> None:
            self.given = index.tolist()

    made = TensorDictReplayBuffer(storage=LazyTensorStorage(ROWS), sampler=Mine(), batch_size=2)
    made.extend(rows(6))
    made.update_tensordict_priority(made[3:5].set("index", torch.tensor([3, 4])))
    assert made.sample()["number"].tolist() == [3, 4]


def test_what_a_part_lacks_is_named() -> None:
    def made(name: str, base: type, members: str) -> Any:
        return type(name, (base,), {each: vars(Reversed)[each] for each in members.split()})()

    has = "__len__ gather has scalar_column"
    with pytest.raises(UsageError, match="Half lacks members of WritableStorage: cursor, max_size"):
        ReplayBuffer(storage=made("Half", WritableStorage, f"{has} flatten write clear"))
    with pytest.raises(UsageError, match=r"Both lacks members of Writable.*: clear, cursor,"):
        ReplayBuffer(storage=made("Both", Storage, f"{has} write"))


class FromTorchRL:
    """A sampler, a storage or a writer with the methods that TorchRL's bases have."""

    def sample(self, storage: Any, batch_size: int) -> Any: ...
    def get(self, index: Any) -> Any: ...
    def set(self, cursor: Any, data: Any) -> None: ...
    def __len__(self) -> int: ...
    def add(self, data: Any) -> int: ...
    def extend(self, data: Any) -> Any: ...
    def register_storage(self, storage: Any) -> None: ...


def test_a_part_that_is_written_for_torchrl_is_refused_with_the_method_to_write() -> None:
    part: Any = FromTorchRL()
    class_of_ours: Any = type("Ours", (Sampler,), {"sample": FromTorchRL.sample})
    written = r"Define sample\(self, storage, batch_size, generator\)"
    check_refused(
        UsageError,
        [
            (f"^FromTorchRL.sample has other .*{written}", lambda: ReplayBuffer(sampler=part)),
            (f"^Ours.sample .*{written}", lambda: ReplayBuffer(sampler=class_of_ours())),
            ("derives from WritableStorage .* gather, has,", lambda: ReplayBuffer(storage=part)),
            (r"derives from Writer and defines write\.$", lambda: ReplayBuffer(writer=part)),
        ],
    )
