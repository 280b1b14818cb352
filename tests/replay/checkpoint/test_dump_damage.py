"""Nothing in a dump is run, and whatever is wrong in it is an error of ours that names the file."""

from __future__ import annotations

import json
import math
import os
import pickle
import random
import shutil
import struct
import warnings
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

NUM_EXAMPLES = int(os.environ.get("RLDS_TEST_MUTATIONS", "30"))

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
    with pytest.raises(DamagedDataset) as error:
        made("random").loads(folder)
    assert error.value.path == path


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
    with pytest.raises(expected) as error:
        made("random").loads(folder)
    assert error.value.path == path


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


@pytest.mark.parametrize("place", PAYLOADS)
@pytest.mark.parametrize("name", ["epoch", "priorities"])
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
    with pytest.raises(WrongState) as error:
        buffer.dumps(folder)
    assert error.value.path == folder / "buffer.pt"
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
        with pytest.raises(DamagedDataset) as error:
            made("epoch").loads(folder)
        assert error.value.path == path / f"{name}.memmap"
        (path / "meta.json").write_text(content)
    made("epoch").loads(folder)


@pytest.mark.parametrize("lost", ["short", "missing"])
def test_a_leaf_that_is_not_whole_is_never_filled_with_zeros(tmp_path: Path, lost: str) -> None:
    folder = dumped_by_torchrl(tmp_path / "dump", "epoch")
    leaf = folder / "storage" / "next" / "done.memmap"
    leaf.unlink() if lost == "missing" else leaf.write_bytes(leaf.read_bytes()[:-1])
    with pytest.raises(DamagedDataset) as error:
        made("epoch").loads(folder)
    assert (error.value.expected, error.value.found) == (8, 7 * (lost == "short"))


@pytest.mark.parametrize(
    ("name", "key", "content"),
    [
        ("writer/metadata.json", "cursor", {}),
        ("writer/metadata.json", "cursor", {"cursor": -1}),
        ("buffer_metadata.json", None, {"batch_size": "3"}),
        ("buffer_metadata.json", None, {"batch_size": 0}),
    ],
)
def test_settings_that_are_wrong_are_refused(
    tmp_path: Path, name: str, key: str | None, content: Any
) -> None:
    folder = dumped_by_torchrl(tmp_path / "dump", "epoch")
    (folder / name).write_text(json.dumps(content))
    buffer = made("epoch")
    buffer.extend(steps(5))
    with pytest.raises(DamagedDataset) as error:
        buffer.loads(folder)
    assert (error.value.path, error.value.key) == (folder / name, key)
    assert len(buffer) == 5
