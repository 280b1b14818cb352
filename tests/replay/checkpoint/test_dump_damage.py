"""Nothing in a dump is run; damage and a killed process leave whole rows or an error of ours."""

from __future__ import annotations

import json
import math
import os
import pickle
import random
import resource
import shutil
import signal
import struct
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensordict import NonTensorData, NonTensorStack, TensorDict, tensorclass

from datasets_cli import (
    BlockShuffleSampler,
    DistributedSampler,
    LazyMemmapStorage,
    LazyTensorStorage,
    ListStorage,
    PrioritizedSampler,
    RandomSampler,
    ReplayBuffer,
    SamplerWithoutReplacement,
    TensorDictMaxValueWriter,
    TensorDictReplayBuffer,
)
from datasets_cli.errors import (
    DamagedDataset,
    MissingFile,
    RldsError,
    Unsupported,
    UsageError,
    WrongState,
)
from tests.replay.storages.test_storages import steps
from tests.support.refusals import refused
from tests.support.torchrl_trees import trees  # noqa: F401

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl.data import replay_buffers as peer

NUM_EXAMPLES = int(os.environ.get("RLDS_TEST_MUTATIONS", "10"))

PARTS: dict[str, Any] = {
    "random": lambda: {"storage": LazyTensorStorage(8), "sampler": RandomSampler()},
    "epoch": lambda: {"storage": LazyMemmapStorage(8), "sampler": SamplerWithoutReplacement()},
    "priorities": lambda: {
        "storage": LazyTensorStorage(8),
        "sampler": PrioritizedSampler(8, 0.7, 0.5),
    },
    "distributed": lambda: {"storage": LazyTensorStorage(8), "sampler": DistributedSampler(2, 1)},
    "blocks": lambda: {"storage": LazyTensorStorage(8), "sampler": BlockShuffleSampler(2, 2)},
    "ranks": lambda: {
        "storage": LazyTensorStorage(8),
        "writer": TensorDictMaxValueWriter("number"),
    },
    "list": lambda: {"storage": ListStorage(8), "sampler": SamplerWithoutReplacement()},
}


def made(name: str) -> TensorDictReplayBuffer:
    return TensorDictReplayBuffer(**PARTS[name](), batch_size=3, seed=0)


def rows(name: str) -> TensorDict:
    found = steps(8)
    if name == "list":
        found["note"] = NonTensorStack(*"abcd", b"e", None, math.nan, {"f": (1,)})
    return found


def dumped(folder: Path, name: str) -> Path:
    buffer = made(name)
    buffer.extend(rows(name))
    if name != "list":
        buffer.sample()
    buffer.dumps(folder / "dump")
    return folder / "dump"


def check(name: str, folder: Path) -> bool:
    """Load a dump into a buffer that has rows, and draw; tell whether it was refused.

    A refusal leaves the buffer's rows.
    """
    buffer = made(name)
    buffer.extend(rows(name)[:5])
    before = buffer.storage.contents()
    try:
        buffer.loads(folder)
    except RldsError as error:
        assert str(folder) in str(error)
        assert repr(buffer.storage.contents()) == repr(before)
        return True
    if len(buffer):
        for _ in range(4):
            index = buffer.reader.sampler.sample(buffer.storage, 3, buffer.generator)[0]
            buffer.storage.gather(index)
    return False


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**30, -1, 0, 1, 2**63, math.inf, math.nan, 0.5, "8", "torch.load"])
    | st.sampled_from([torch.zeros(0), torch.full((8,), -3), torch.ones(2, 2), torch.tensor(True)])
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


def places(value: Any) -> list[Any]:
    """Return all dicts and lists in a state, with their keys and indexes."""
    if isinstance(value, dict | list):
        keys = list(value) if isinstance(value, dict) else range(len(value))
        return [(value, key) for key in keys] + [
            place for key in keys for place in places(value[key])
        ]
    return []


@pytest.mark.parametrize("name", PARTS)
@settings(max_examples=NUM_EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_state_is_loaded_or_refused(tmp_path_factory: Any, name: str, data: Any) -> None:
    folder = dumped(tmp_path_factory.mktemp("dump"), name)
    state = torch.load(folder / "buffer.pt")
    new = data.draw(VALUES)
    if data.draw(st.booleans()):
        holder, key = data.draw(st.sampled_from(places(state)))
        if data.draw(st.booleans()):
            holder[key] = new
        else:
            del holder[key]
    else:
        state = new
    torch.save(state, folder / "buffer.pt")
    check(name, folder)


@pytest.mark.parametrize("name", PARTS)
def test_a_changed_byte_is_refused_or_changes_nothing(tmp_path: Path, name: str) -> None:
    folder = dumped(tmp_path, name)
    path, right = folder / "buffer.pt", made(name)
    right.loads(folder)
    content, draw = path.read_bytes(), random.Random(name)
    for number in range(2 * NUM_EXAMPLES):
        changed = bytearray(content)
        if number % 3:
            changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
        else:
            del changed[draw.randrange(len(changed)) :]
        path.write_bytes(changed)
        if not check(name, folder):
            found = made(name)
            found.loads(folder)
            assert repr(found.state_dict()) == repr(right.state_dict())


def test_an_offset_before_the_start_of_the_file_is_refused(tmp_path: Path) -> None:
    folder = dumped(tmp_path, "random")
    path = folder / "buffer.pt"
    content = bytearray(path.read_bytes())
    # The zip64 record at the end states at its byte 48 where the archive's directory starts.
    place = content.rindex(b"PK\x06\x06") + 48
    (start,) = struct.unpack_from("<Q", content, place)
    struct.pack_into("<Q", content, place, start + 1_000)
    path.write_bytes(content)
    with refused(DamagedDataset, path=path):
        made("random").loads(folder)


@pytest.mark.parametrize("kind", ["missing", "link", "pipe", "folder", "text", "empty"])
def test_a_path_that_is_not_a_dump_is_refused(tmp_path: Path, kind: str) -> None:
    folder = dumped(tmp_path, "random")
    path, away = folder / "buffer.pt", tmp_path / "away"
    path.rename(away)
    if kind == "link":
        path.symlink_to(away)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind != "missing":
        path.write_text("text" * (kind == "text"))
    expected = MissingFile if kind == "missing" else DamagedDataset
    with refused(expected, path=path):
        made("random").loads(folder)


class Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


@tensorclass
class Carrier:
    number: torch.Tensor
    other: Any


TENSORCLASS = "<class 'tensordict.tensorclass.NonTensorData'>"


def with_pickle(folder: Path, marker: Path) -> None:
    for name in ("other.pickle", "pickle.pkl"):
        (folder / name).write_bytes(pickle.dumps(Payload(marker)))


def set_meta(folder: Path, **entries: Any) -> None:
    path = folder / "meta.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    folder.mkdir(exist_ok=True)
    path.write_text(json.dumps(found | entries))


def _type_of(name: str, **entries: Any) -> Any:
    def put(folder: Path, marker: Path) -> None:
        (folder / name).mkdir(exist_ok=True)
        with_pickle(folder / name, marker)
        set_meta(folder / name, **{"_type": TENSORCLASS} | entries)

    return put


def _sampler_list(folder: Path, marker: Path) -> None:
    TensorDict({"len_storage": torch.tensor(8)}).memmap(folder / "sampler")
    set_meta(folder / "sampler", _sample_list={"type": "NonTensorData"})
    set_meta(folder / "sampler" / "_sample_list", _type=TENSORCLASS)
    with_pickle(folder / "sampler" / "_sample_list", marker)


def _bytes(name: str) -> Any:
    def put(folder: Path, marker: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(pickle.dumps(Payload(marker)))

    return put


STACK = "<class 'tensordict.tensorclass.NonTensorStack'>"
PAYLOADS: dict[str, Any] = {
    "_type at the root": _type_of("storage"),
    "_type of a child": _type_of("storage/next"),
    "_type of a stack": _type_of("storage/next", _type=STACK, data="pickle.pkl", device=None),
    "_type of an importable class": _type_of("storage", _type=f"<class '{__name__}.Carrier'>"),
    "the sampler's _type": _type_of("sampler"),
    "the sampler's list": _sampler_list,
    "the generator": _type_of("rng_state"),
    **{
        name: _bytes(name)
        for name in (
            "storage/storage_metadata.json",
            "storage/meta.json",
            "storage/number.memmap",
            "sampler/sampler_metadata.json",
            "sampler/sumtree.memmap",
            "writer/metadata.json",
            "buffer_metadata.json",
            "prefetch.pkl",
            "transform.t",
        )
    },
}


def dumped_by_torchrl(folder: Path, name: str) -> Path:
    sampler = {
        "epoch": peer.SamplerWithoutReplacement,
        "priorities": lambda: peer.PrioritizedSampler(8, 0.7, 0.5),
    }[name]()
    generator = torch.Generator()
    storage = peer.LazyTensorStorage(8)
    buffer = peer.ReplayBuffer(storage=storage, sampler=sampler, generator=generator, batch_size=3)
    buffer.extend(steps(8))
    if name == "priorities":
        buffer.update_priority(torch.arange(8), torch.ones(8))
    buffer.sample()
    buffer.dumps(folder)
    return folder


@pytest.mark.parametrize(
    ("name", "place"),
    [
        *(("epoch", place) for place in PAYLOADS),
        *(("priorities", place) for place in PAYLOADS if "sampler" in place),
    ],
)
def test_a_payload_in_a_dump_of_torchrl_does_not_run(tmp_path: Path, name: str, place: str) -> None:
    folder, marker = dumped_by_torchrl(tmp_path / "dump", name), tmp_path / "marker"
    assert not check(name, folder)
    PAYLOADS[place](folder, marker)
    check(name, folder)
    assert not marker.exists()


@pytest.mark.parametrize("key", [None, "rows", "sampler", "writer", "generator"])
def test_a_payload_in_a_dump_does_not_run(tmp_path: Path, key: str | None) -> None:
    folder, marker = dumped(tmp_path, "epoch"), tmp_path / "marker"
    pickle.loads(pickle.dumps(Payload(marker)))  # it does run where it is unpickled
    marker.rmdir()
    payload, state = Payload(marker), torch.load(folder / "buffer.pt")
    torch.save(payload if key is None else state | {key: payload}, folder / "buffer.pt")
    with pytest.raises(DamagedDataset):
        made("epoch").loads(folder)
    assert not marker.exists()


def test_a_state_that_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    folder = dumped(tmp_path, "random")
    content = (folder / "buffer.pt").read_bytes()
    buffer = made("random")
    buffer.sampler.state_dict = lambda: {"other": Payload(tmp_path)}  # type: ignore[method-assign]
    with refused(WrongState, path=folder / "buffer.pt"):
        buffer.dumps(folder)
    assert (folder / "buffer.pt").read_bytes() == content and not [*folder.glob(".*")]


@pytest.mark.parametrize("at", ["root", "child"])
def test_what_tensordict_pickled_is_refused_by_name(tmp_path: Path, at: str) -> None:
    marker = tmp_path / "marker"
    folder = dumped_by_torchrl(tmp_path / "dump", "epoch")
    storage = folder / "storage"
    data = TensorDict({"number": torch.arange(8)}, [8])
    if at == "root":
        data = Carrier(number=torch.arange(8), other=Payload(marker), batch_size=[8])
    else:
        data["in"] = NonTensorData(Payload(marker), batch_size=[8])
    counts = (storage / "storage_metadata.json").read_text()
    shutil.rmtree(storage)
    data.memmap(storage)
    (storage / "storage_metadata.json").write_text(counts)
    with refused(Unsupported, advice="Dump rows of tensors, numbers and texts."):
        made("epoch").loads(folder)
    assert not marker.exists()


def test_a_state_with_a_payload_is_refused_where_it_is_loaded(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    buffer = ReplayBuffer(storage=LazyTensorStorage(8))
    buffer.extend(steps(8))
    torch.save(buffer.state_dict() | {"rows": Payload(marker)}, tmp_path / "states.pt")
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "states.pt")
    assert not marker.exists()
    with pytest.raises(UsageError):
        buffer.load_state_dict(buffer.state_dict() | {"rows": Payload(marker)})
    assert not marker.exists() and len(buffer) == 8


def test_only_weights_are_unpickled_from_files() -> None:
    import datasets_cli

    package = Path(datasets_cli.__file__).parent
    files = {*package.glob("replay/**/*.py"), *package.glob("store/**/*.py")}
    # What a loader pickles, its own workers read, and no file is in between.
    for path in files - {package / "replay" / "loaders.py"}:
        text = path.read_text(encoding="utf-8")
        for call in ("pickle.load", "load_memmap(", "load_memmap_("):
            assert call not in text.replace("``TensorDict.load_memmap``", ""), f"{path}: {call}"
        safe = text.count("weights_only=True")
        assert text.count("torch.load(") == safe, path


@pytest.mark.parametrize("count", [63, 64, 500])
def test_a_tensor_of_more_dimensions_than_any_is_refused(tmp_path: Path, count: int) -> None:
    folder = dumped_by_torchrl(tmp_path / "dump", "epoch")
    for path, name in ((folder / "rng_state", "rng_state"), (folder / "storage", "number")):
        content = (path / "meta.json").read_text()
        entry = json.loads(content)[name]
        shape = entry["shape"] + [1] * (count - len(entry["shape"]))
        set_meta(path, **{name: entry | {"shape": shape}})
        with refused(DamagedDataset, path=path / f"{name}.memmap"):
            made("epoch").loads(folder)
        (path / "meta.json").write_text(content)
    made("epoch").loads(folder)


@pytest.mark.parametrize("lost", ["short", "missing"])
def test_a_leaf_that_is_not_whole_is_never_filled_with_zeros(tmp_path: Path, lost: str) -> None:
    folder = dumped_by_torchrl(tmp_path / "dump", "epoch")
    leaf = folder / "storage" / "next" / "done.memmap"
    leaf.unlink() if lost == "missing" else leaf.write_bytes(leaf.read_bytes()[:-1])
    with refused(DamagedDataset, expected=8, found=7 * (lost == "short")):
        made("epoch").loads(folder)


@pytest.mark.parametrize(
    ("name", "key", "content"),
    [
        ("writer/metadata.json", "cursor", {}),
        ("writer/metadata.json", "cursor", {"cursor": -1}),
        ("buffer_metadata.json", "batch_size", {"batch_size": "3"}),
        ("buffer_metadata.json", "batch_size", {"batch_size": 0}),
    ],
)
def test_settings_that_are_wrong_are_refused(
    tmp_path: Path, name: str, key: str, content: Any
) -> None:
    folder = dumped_by_torchrl(tmp_path / "dump", "epoch")
    (folder / name).write_text(json.dumps(content))
    buffer = made("epoch")
    buffer.extend(steps(5))
    with refused(DamagedDataset, path=folder / name, key=key):
        buffer.loads(folder)
    assert len(buffer) == 5


# A process killed at any system call of a dump over an older one leaves the old or the new one.


CALLS = {"open", "os.rename", "os.remove", "os.mkdir"}
"""Python says when it makes one of these; a write is one of C's, and has a test of its own."""


def buffer_of(is_new: bool) -> ReplayBuffer:
    """Return a buffer whose dump has other parts, and other rows, by age."""
    count = 3 + is_new
    sampler: Any = RandomSampler() if is_new else PrioritizedSampler(8, 0.7, 0.5)
    generator = {} if is_new else {"generator": torch.Generator()}
    buffer = ReplayBuffer(storage=LazyTensorStorage(8), sampler=sampler, **generator)
    numbers = torch.arange(count) + 100 * is_new
    nested = TensorDict({"number": numbers}, [count])
    buffer.extend(TensorDict({"number": numbers, "next": nested}, [count]))
    return buffer


def ends_by(signals: set[int], function: Callable[[], object], arm: Callable[[], object]) -> bool:
    """Call a function in a forked process; return whether a signal that ``arm`` sets ended it."""
    number = os.fork()
    if not number:
        status = 1
        try:
            torch.set_num_threads(1)
            arm()
            function()
            status = 0
        finally:
            os._exit(status)
    status = os.waitpid(number, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    assert not os.WIFSIGNALED(status) or os.WTERMSIG(status) in signals
    return os.WIFSIGNALED(status)


def kill_at(point: int) -> Callable[[], None]:
    """Return what has this process killed at a system call, before it is made."""
    calls = iter(range(point))

    def count() -> None:
        if next(calls, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    def arm() -> None:
        os.fsync = lambda descriptor: count()
        sys.addaudithook(lambda event, _: count() if event in CALLS else None)

    return arm


def kept(buffer: ReplayBuffer) -> str:
    """Return the rows of a buffer, and where the next one goes."""
    return repr((buffer[:].to_dict(), buffer.writer.state_dict()))


def read(folder: Path) -> str:
    for is_new in (True, False):
        found = buffer_of(is_new)
        with suppress(WrongState):  # each is refused by the other's sampler
            found.loads(folder)
            return kept(found)
    raise AssertionError(folder)


def points(function: Callable[[], object]) -> Iterator[int]:
    """Yield each system call after a process was killed there, until there is none left."""
    point = 0
    while ends_by({signal.SIGKILL}, function, kill_at(point)):
        yield point
        point += 1
    assert point > 4


def test_at_every_call_the_old_or_the_new_dump_is_whole(tmp_path: Path) -> None:
    """Of every buffer: the states of several are in one file, too."""
    old, new = buffer_of(False), buffer_of(True)
    results = [kept(old), kept(new)]
    assert results[0] != results[1]
    old.dumps(tmp_path)
    (tmp_path / "notes.txt").write_text("the user's")
    found = []
    for _ in points(lambda: new.dumps(tmp_path)):
        found.append(results.index(read(tmp_path)))
        assert (tmp_path / "notes.txt").read_text() == "the user's"
        old.dumps(tmp_path)  # over what the killed process left
        assert read(tmp_path) == results[0]
        assert {path.name for path in tmp_path.iterdir()} == {"notes.txt", "buffer.pt"}
    assert read(tmp_path) == results[1]
    assert found == sorted(found) and {*found} == {0, 1}


def test_a_write_that_is_cut_off_leaves_the_old_dump(tmp_path: Path) -> None:
    old, new = buffer_of(False), buffer_of(True)
    old.dumps(tmp_path)
    for size in (0, 1, 100, 1000):
        limit = (size, resource.RLIM_INFINITY)

        def arm(limit: tuple[int, int] = limit) -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)

        assert ends_by({signal.SIGXFSZ}, lambda: new.dumps(tmp_path), arm), size
        assert read(tmp_path) == kept(old)
    assert not ends_by(set(), lambda: new.dumps(tmp_path), lambda: None)
    assert read(tmp_path) == kept(new)
