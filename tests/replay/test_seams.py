"""The seams: parts made from the protocols alone, on which every buffer and sampler works."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import (
    BlockShuffleSampler,
    DistributedSampler,
    LazyTensorStorage,
    ListStorage,
    PrioritizedReplayBuffer,
    PrioritizedSampler,
    PrioritizedSliceSampler,
    RandomSampler,
    ReplayBuffer,
    ReplayBufferEnsemble,
    RoundRobinWriter,
    SamplerWithoutReplacement,
    SliceSampler,
    SliceSamplerWithoutReplacement,
    TensorDictMaxValueWriter,
    TensorDictPrioritizedReplayBuffer,
    TensorDictReplayBuffer,
)
from datasets_cli.errors import UsageError
from datasets_cli.replay.old_names import members_of
from datasets_cli.replay.samplers.protocol import Info, Sampler
from datasets_cli.replay.storages.protocol import Storage, WritableStorage
from datasets_cli.replay.trajectories.boundaries import TrajectoryKeys, find_trajectories
from datasets_cli.replay.trajectories.index import TrajectoryIndex
from datasets_cli.replay.writers.protocol import Writer
from datasets_cli.store.schema.columns import Key
from datasets_cli.store.schema.device_options import ON_DISK, DeviceOptions
from datasets_cli.store.schema.tree import Tree

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
    device: torch.device | None = None
    sharing = None
    width = 1
    row_bytes = 0

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

    def share(self) -> None:
        raise UsageError("rows in a dict of this process")

    def clear(self) -> None:
        self._rows.clear()
        self.cursor = 0
        self.revision += 1


class EverySecond:
    """Draws every second row in order; it derives from nothing."""

    ran_out = False
    has_priorities = has_slices = False
    truncated_key = init_key = None

    def __init__(self) -> None:
        self.next = 0
        self.told: list[Any] = []

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        index = (self.next + 2 * torch.arange(batch_size)) % len(storage)
        self.next += 2 * batch_size
        return index, {("drawn",): index * 10}

    def relabel(self, rows: Tree, info: Info) -> None:
        pass

    def on_write(self, rows: torch.Tensor) -> None:
        self.told.append(rows.tolist())

    def on_clear(self) -> None:
        self.told.append("clear")

    def state_dict(self) -> dict[str, Any]:
        return {"next": self.next}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.next = int(state["next"])


class Backwards:
    """Writes the last row first; it derives from nothing."""

    write_count = 0

    def write(self, storage: WritableStorage, data: TensorDict) -> torch.Tensor:
        columns = storage.flatten(data)
        index = torch.arange(len(columns[0])).flip(0)
        storage.write(index, columns)
        self.write_count += len(index)
        return index

    def on_clear(self) -> None:
        self.write_count = 0

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass


@pytest.mark.parametrize(
    ("part", "protocol"),
    [(Reversed(3), WritableStorage), (EverySecond(), Sampler), (Backwards(), Writer)],
    ids=["storage", "sampler", "writer"],
)
def test_the_parts_of_this_file_have_a_protocols_members_and_no_others(
    part: Any, protocol: type
) -> None:
    own = {name for name in dir(part) if not name.startswith("_")} | {"__len__"} & set(dir(part))
    extra = {"next", "told"} if isinstance(part, EverySecond) else set()
    assert own - extra == members_of(protocol)
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


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("kind", [ReplayBuffer, TensorDictReplayBuffer])
@pytest.mark.parametrize("prefetch", [None, 2])
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


def test_a_storage_without_what_has_a_default_works_in_every_buffer() -> None:
    without = {"as_batch", "device", "__dict__", "__weakref__"}
    members = {name: member for name, member in vars(Reversed).items() if name not in without}
    earlier = type("Earlier", (), members)
    for kind in (PrioritizedReplayBuffer, TensorDictPrioritizedReplayBuffer):
        made = kind(alpha=0.6, beta=0.4, storage=earlier(ROWS), batch_size=4)
        made.extend(rows())
        assert set(made.sample()["number"].tolist()) <= set(rows()["number"].tolist())


def test_writers_that_choose_rows_write_into_it() -> None:
    best = TensorDictReplayBuffer(storage=Reversed(4), writer=TensorDictMaxValueWriter())
    best.extend(rows(9))
    assert sorted(best["number"].tolist()) == [5, 6, 7, 8]


@pytest.mark.parametrize("kind", [ReplayBuffer, TensorDictReplayBuffer])
def test_a_sampler_made_from_the_protocol_draws_in_every_buffer(kind: type[ReplayBuffer]) -> None:
    sampler = EverySecond()
    made = kind(storage=Reversed(ROWS), sampler=sampler, batch_size=3, prefetch=2)
    made.extend(rows(10))
    assert made.sampler is sampler and sampler.told == [list(range(10))]
    batch, info = made.sample(return_info=True)
    assert batch["number"].tolist() == info["index"].tolist() == [0, 2, 4]
    assert info["drawn"].tolist() == [0, 20, 40]
    assert ("drawn" in batch.keys()) == (kind is TensorDictReplayBuffer)  # noqa: SIM118
    assert made.sample()["number"].tolist() == [6, 8, 0]
    made.empty()
    assert sampler.told[-1] == "clear"


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


class OldSampler:
    """A sampler as version 0.1 had it."""

    ran_out = False

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.priority: list[float] = []

    def sample(self, storage: Any, batch_size: int, generator: torch.Generator) -> Any:
        with pytest.warns(DeprecationWarning, match="numbers is scalar_column now"):
            column = storage.numbers(("number",))
        return torch.arange(batch_size), {("seen",): column[:batch_size, 0]}

    def written(self, index: torch.Tensor) -> None:
        self.told.append(index.tolist())

    def emptied(self) -> None:
        self.told.append("emptied")

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass


class OldPrioritySampler(OldSampler):
    def update_priority(self, index: torch.Tensor, priority: Any) -> None:
        self.priority += index.tolist()


class OldWriter:
    """A writer as version 0.1 had it."""

    def place(self, storage: Any, data: Any) -> torch.Tensor:
        with pytest.warns(DeprecationWarning, match="apart is flatten now"):
            columns = storage.apart(data)
        storage.write(slice(0, len(columns[0])), columns)
        return torch.arange(len(columns[0]))

    def emptied(self) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass


class OldStorage:
    """A storage as version 0.1 had it."""

    ndim = width = 1
    inner = ()
    is_tensordict = True
    placement = ON_DISK

    def __init__(self) -> None:
        self._rows: Any = None
        self.cursor = self.revision = 0
        self.max_size = self.capacity = 30

    def __len__(self) -> int:
        return 0 if self._rows is None else len(self._rows)

    def apart(self, data: TensorDict) -> list[TensorDict]:
        return [data]

    def write(self, rows: slice, columns: list[TensorDict]) -> None:
        self._rows, self.revision = columns[0].clone(), self.revision + 1

    def tree(self, index: torch.Tensor) -> dict[str, Any]:
        return dict(self._rows[index].items())

    def get(self, index: torch.Tensor) -> Any:
        return self._rows[index]

    def run(self, start: int, stop: int) -> Any:
        return self._rows[start:stop]

    def column(self, key: Key) -> Any:
        return self._rows[key]

    def has(self, key: Key) -> bool:
        return key in self._rows.keys(True)

    def runs(self, keys: TrajectoryKeys) -> TrajectoryIndex:
        return find_trajectories(self, keys, 0)  # type: ignore[arg-type]

    def numbers(self, key: Key) -> torch.Tensor:
        found: torch.Tensor = self._rows[key].reshape(-1, 1)
        return found

    scalar_column = numbers  # what find_trajectories asks for

    def empty(self) -> None:
        self._rows = None


def test_a_sampler_with_the_old_names_works_and_says_what_they_are_now() -> None:
    for kind in (OldSampler, OldPrioritySampler):
        old = kind()
        with pytest.warns(
            DeprecationWarning, match="emptied is on_clear now, written is on_write now"
        ) as caught:
            storage = LazyTensorStorage(ROWS)
            made = TensorDictReplayBuffer(storage=storage, sampler=old, batch_size=2)
        assert caught[0].filename == __file__  # Python shows it to this file's author
        made.extend(rows(4))
        assert made.sample()["seen"].tolist() == [0, 1]
        made.update_tensordict_priority(made[:2].set("index", torch.arange(2)))
        # Of the rows that were written with one, then of the batch.
        assert old.priority == ([0, 1, 2, 3, 0, 1] if kind is OldPrioritySampler else [])
        made.empty()
        assert old.told == [[0, 1, 2, 3], "emptied"]
        assert made.reader.sampler.has_priorities == (kind is OldPrioritySampler)
        assert made.sampler is old and made.set_sampler(RandomSampler()) is old


def test_a_writer_with_the_old_names_works_and_says_what_they_are_now() -> None:
    with pytest.warns(DeprecationWarning, match="place is write now"):
        made = ReplayBuffer(storage=LazyTensorStorage(9), writer=OldWriter())
    assert made.extend(rows(4)).tolist() == [0, 1, 2, 3]
    assert made["number"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("sampler", SAMPLERS[:4])
def test_a_storage_with_the_old_names_works_and_says_what_they_are_now(
    sampler: Callable[[], Sampler],
) -> None:
    with pytest.warns(DeprecationWarning, match="apart is flatten now, .*tree is gather now"):
        made = TensorDictReplayBuffer(storage=OldStorage(), sampler=sampler(), batch_size=4)
    made.extend(rows())
    batch = made.sample()
    assert torch.equal(batch["number"], batch["index"])
    made.empty()
    assert len(made) == 0


def test_a_part_with_the_old_names_goes_to_another_process() -> None:
    with pytest.warns(DeprecationWarning):
        made = ReplayBuffer(storage=OldStorage(), batch_size=2)
    made.extend(rows())
    with pytest.warns(DeprecationWarning):
        copy = pickle.loads(pickle.dumps(made))
    assert torch.equal(copy["number"], made["number"])


def test_overrides_under_old_names_of_our_own_classes_are_called() -> None:
    """A class statement warns; the override is called, and may call super() by the old name."""
    called: list[str] = []
    with pytest.warns(DeprecationWarning, match="place is write now") as caught:

        class Places(RoundRobinWriter):
            def place(self, storage: Any, data: Any) -> torch.Tensor:
                called.append("place")
                rows: torch.Tensor = super().place(storage, data)  # type: ignore[misc]
                return rows

    assert caught[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="written is on_write now"):

        class Told(PrioritizedSampler):
            def written(self, index: torch.Tensor) -> None:
                called.append("written")
                super().written(index)  # type: ignore[misc]

    with pytest.warns(DeprecationWarning, match="tree is gather now"):

        class Listed(ListStorage):
            def tree(self, index: torch.Tensor) -> list[Any]:
                called.append("tree")
                items: list[Any] = super().tree(index)  # type: ignore[misc]
                return items

    made = ReplayBuffer(storage=Listed(9), sampler=Told(9, 0.7, 0.5), writer=Places(), batch_size=3)
    made.extend([1.0, 2.0, 3.0, 4.0])
    assert made.sample().shape == (3,) and called == ["place", "written", "tree"]
    with pytest.warns(DeprecationWarning, match="place is write now"):

        class Writes(Writer):
            def place(self, storage: Any, data: Any) -> torch.Tensor:
                return torch.arange(0)

    assert len(ReplayBuffer(writer=Writes()).extend([])) == 0  # type: ignore[abstract]


def test_a_sampler_that_derives_from_sampler_and_takes_priorities_gets_them(tmp_path: Any) -> None:
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

        def state_dict(self) -> dict[str, Any]:
            return {"given": torch.tensor(self.given)}

        def load_state_dict(self, state: Mapping[str, Any]) -> None:
            self.given = list(state["given"])

    made = TensorDictReplayBuffer(storage=LazyTensorStorage(ROWS), sampler=Mine(), batch_size=2)
    made.extend(rows(6))
    made.update_tensordict_priority(made[3:5].set("index", torch.tensor([3, 4])))
    assert made.sample()["number"].tolist() == [3, 4]
    made.dumps(tmp_path)
    other = TensorDictReplayBuffer(storage=LazyTensorStorage(ROWS), sampler=Mine(), batch_size=2)
    other.loads(tmp_path)
    assert other.sample()["number"].tolist() == [3, 4]


def test_what_a_part_lacks_is_named() -> None:
    class Half(WritableStorage):
        def __len__(self) -> int:
            return 0

        def gather(self, index: torch.Tensor) -> Any: ...
        def has(self, key: Key) -> bool: ...  # type: ignore[empty-body]
        def scalar_column(self, key: Key) -> torch.Tensor: ...  # type: ignore[empty-body]
        def flatten(self, data: Any) -> list[Any]: ...  # type: ignore[empty-body]
        def write(self, rows: Any, columns: Any) -> None: ...
        def clear(self) -> None: ...

    with pytest.raises(UsageError, match="Half does not have cursor, max_size, which a Writable"):
        ReplayBuffer(storage=Half())

    class ReadAndWrite(Storage):
        def __len__(self) -> int:
            return 0

        def gather(self, index: torch.Tensor) -> Any: ...
        def has(self, key: Key) -> bool: ...  # type: ignore[empty-body]
        def scalar_column(self, key: Key) -> torch.Tensor: ...  # type: ignore[empty-body]
        def write(self, rows: Any, columns: Any) -> None: ...

    with pytest.raises(UsageError, match=r"ReadAndWrite does not have .*flatten.* WritableStorage"):
        ReplayBuffer(storage=ReadAndWrite())


def test_new_names_alone_warn_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        class Quiet(RandomSampler):
            def on_write(self, rows: torch.Tensor) -> None:
                pass

        ReplayBuffer(storage=ListStorage(3), sampler=Quiet()).extend([1.0])
