"""Nothing in a dump is run, and whatever is wrong in it is an error of ours that names the file."""

from __future__ import annotations

import itertools
import json
import math
import os
import pickle
import random
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
from datasets_cli.errors import DamagedDataset, RldsError, UsageError
from tests.replay.storages.test_storages import steps

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


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def check(name: str, folder: Path) -> bool:
    """Load a dump into a buffer that has rows, and draw; tell whether it was refused.

    A refusal leaves the buffer's rows.
    """
    buffer = made(name)
    buffer.extend(rows(name)[:5])
    before = buffer.storage.contents()
    try:
        buffer.loads(folder)
    except (RldsError, FileNotFoundError) as error:
        assert str(folder) in str(error)
        assert repr(buffer.storage.contents()) == repr(before)
        return True
    if len(buffer):
        for _ in range(4):
            index = buffer.reader.sampler.sample(buffer.storage, 3, buffer.generator)[0]
            buffer.storage.gather(index)
    return False


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(
        [10**30, -1, 0, 1, 2**63, 2**64, 1e400, -1e400, math.nan, 0.5, "8", "torch.load"]
    )
    | st.floats()
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


def places(value: Any) -> list[Any]:
    """All dicts and lists in a JSON value, with their keys and indexes."""
    if isinstance(value, dict | list):
        keys = list(value) if isinstance(value, dict) else range(len(value))
        return [(value, key) for key in keys] + [
            place for key in keys for place in places(value[key])
        ]
    return []


@pytest.mark.parametrize("name", PARTS)
@settings(max_examples=NUM_EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_json_is_loaded_or_refused(tmp_path_factory: Any, name: str, data: Any) -> None:
    folder = dumped(tmp_path_factory.mktemp("dump"), name)
    path = data.draw(st.sampled_from([p for p in files_of(folder) if p.suffix == ".json"]))
    content = json.loads(path.read_text())
    new = data.draw(JSON)
    if data.draw(st.booleans()) and places(content):
        holder, key = data.draw(st.sampled_from(places(content)))
        if data.draw(st.booleans()):
            holder[key] = new
        else:
            del holder[key]
    else:
        content = new
    path.write_text(json.dumps(content))
    check(name, folder)


@pytest.mark.parametrize("name", PARTS)
def test_any_bytes_are_loaded_or_refused(tmp_path: Path, name: str) -> None:
    folder = dumped(tmp_path, name)
    draw = random.Random(name)
    for path in files_of(folder):
        content = path.read_bytes()
        for _ in range(12):
            changed = bytearray(content)
            kind = draw.randrange(3)
            if kind == 0:
                changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
            elif kind == 1:
                del changed[draw.randrange(len(changed)) :]
            else:
                changed += bytes(8)
            path.write_bytes(changed)
            check(name, folder)
        path.write_bytes(content)
    assert not check(name, folder)


@pytest.mark.parametrize("name", PARTS)
def test_every_file_is_a_regular_one_or_refused(tmp_path: Path, name: str) -> None:
    folder = dumped(tmp_path, name)
    kinds = [*itertools.product(files_of(folder), ["missing", "link", "pipe", "folder"])]
    kinds += [(path, "a folder linked") for path in folder.rglob("*/") if path != folder]
    for path, kind in kinds:
        away = tmp_path / "away"
        path.rename(away)
        if "link" in kind:
            path.symlink_to(away)
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        is_optional = kind == "missing" and path.parent.name in ("rng_state", "sampler")
        assert check(name, folder) or is_optional, path
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
        away.rename(path)
    assert not check(name, folder)


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


def _root_type(folder: Path, marker: Path) -> None:
    with_pickle(folder / "storage", marker)
    set_meta(folder / "storage", _type=TENSORCLASS)


def _child_type(folder: Path, marker: Path) -> None:
    with_pickle(folder / "storage" / "next", marker)
    set_meta(folder / "storage" / "next", _type=TENSORCLASS)


def _stack_type(folder: Path, marker: Path) -> None:
    with_pickle(folder / "storage" / "next", marker)
    kind = "<class 'tensordict.tensorclass.NonTensorStack'>"
    set_meta(folder / "storage" / "next", _type=kind, data="pickle.pkl", device=None)


def _unknown_type(folder: Path, marker: Path) -> None:
    with_pickle(folder / "storage", marker)
    set_meta(folder / "storage", _type=f"<class '{__name__}.Carrier'>")


def _root_pickle(folder: Path, marker: Path) -> None:
    with_pickle(folder / "storage", marker)


def _child_pickle(folder: Path, marker: Path) -> None:
    with_pickle(folder / "storage" / "next", marker)


def _sampler(folder: Path, marker: Path) -> None:
    (folder / "sampler").mkdir(exist_ok=True)
    with_pickle(folder / "sampler", marker)
    set_meta(folder / "sampler", _type=TENSORCLASS)


def _sampler_list(folder: Path, marker: Path) -> None:
    TensorDict({"len_storage": torch.tensor(8)}).memmap(folder / "sampler")
    set_meta(folder / "sampler", _sample_list={"type": "NonTensorData"})
    set_meta(folder / "sampler" / "_sample_list", _type=TENSORCLASS)
    with_pickle(folder / "sampler" / "_sample_list", marker)


def _generator(folder: Path, marker: Path) -> None:
    with_pickle(folder / "rng_state", marker)
    set_meta(folder / "rng_state", _type=TENSORCLASS)


def _bytes(name: str) -> Any:
    def put(folder: Path, marker: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(pickle.dumps(Payload(marker)))

    return put


def _saved(name: str) -> Any:
    def put(folder: Path, marker: Path) -> None:
        torch.save({"a": Payload(marker)}, folder / name)

    return put


PAYLOADS: dict[str, Any] = {
    "_type at the root": _root_type,
    "_type of a child": _child_type,
    "_type of a stack": _stack_type,
    "_type of a class that is there": _unknown_type,
    "other.pickle at the root": _root_pickle,
    "other.pickle of a child": _child_pickle,
    "the sampler's _type": _sampler,
    "the sampler's list": _sampler_list,
    "the generator": _generator,
    **{
        name: _bytes(name)
        for name in (
            "storage/storage_metadata.json",
            "storage/meta.json",
            "storage/number.memmap",
            "sampler/state.json",
            "sampler/sampler_metadata.json",
            "sampler/priorities.memmap",
            "sampler/sumtree.memmap",
            "writer/metadata.json",
            "buffer_metadata.json",
            "dataset.json",
            "prefetch.pkl",
        )
    },
    "transform.t": _saved("transform.t"),
    "states.pt": _saved("states.pt"),
}


@pytest.mark.parametrize("name", ["epoch", "priorities", "list"])
def test_a_payload_does_not_run(tmp_path: Path, name: str) -> None:
    marker = tmp_path / "marker"
    pickle.loads(pickle.dumps(Payload(marker)))  # it does run where it is unpickled
    marker.rmdir()
    for number, (place, put) in enumerate(PAYLOADS.items()):
        folder = dumped(tmp_path / str(number), name)
        put(folder, marker)
        check(name, folder)
        assert not marker.exists(), place


@pytest.mark.parametrize("at", ["root", "child"])
def test_what_tensordict_pickled_is_refused_by_name(tmp_path: Path, at: str) -> None:
    marker = tmp_path / "marker"
    folder = dumped(tmp_path, "random")
    storage = folder / "storage"
    data = TensorDict({"number": torch.arange(8)}, [8])
    if at == "root":
        data = Carrier(number=torch.arange(8), other=Payload(marker), batch_size=[8])
    else:
        data["in"] = NonTensorData(Payload(marker), batch_size=[8])
    counts = (storage / "storage_metadata.json").read_text()
    for path in files_of(storage):
        path.unlink()
    data.memmap(storage)
    (storage / "storage_metadata.json").write_text(counts)
    with pytest.raises(UsageError, match=r"storage/.* pickled"):
        made("random").loads(folder)
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


def test_nothing_that_reads_files_unpickles() -> None:
    import datasets_cli

    package = Path(datasets_cli.__file__).parent
    files = {*package.glob("replay/**/*.py"), *package.glob("store/**/*.py")}
    # What a loader pickles, its own workers read, and no file is in between.
    for path in files - {package / "replay" / "loaders.py"}:
        text = path.read_text(encoding="utf-8")
        for call in ("pickle.load", "torch.load(", "load_memmap(", "load_memmap_("):
            assert call not in text.replace("``TensorDict.load_memmap``", ""), f"{path}: {call}"


@pytest.mark.parametrize("count", [63, 64, 500])
def test_a_tensor_of_more_dimensions_than_any_is_refused(tmp_path: Path, count: int) -> None:
    folder = dumped(tmp_path, "random")
    for path, name in ((folder / "rng_state", "rng_state"), (folder / "storage", "number")):
        content = (path / "meta.json").read_text()
        entry = json.loads(content)[name]
        shape = entry["shape"] + [1] * (count - len(entry["shape"]))
        set_meta(path, **{name: entry | {"shape": shape}})
        with pytest.raises(DamagedDataset, match="at most 62 sizes"):
            made("random").loads(folder)
        (path / "meta.json").write_text(content)
    made("random").loads(folder)


def test_a_generator_of_many_dimensions_is_refused_by_its_shape(tmp_path: Path) -> None:
    folder = dumped(tmp_path, "random")
    entry = json.loads((folder / "rng_state" / "meta.json").read_text())["rng_state"]
    set_meta(folder / "rng_state", rng_state=entry | {"shape": entry["shape"] + [1] * 40})
    with pytest.raises(DamagedDataset, match=r"a tensor of torch\.uint8 and the shape"):
        made("random").loads(folder)


@pytest.mark.parametrize("lost", ["number", "next"])
def test_a_leaf_or_folder_that_the_json_lost_is_refused(tmp_path: Path, lost: str) -> None:
    folder = dumped(tmp_path, "random")
    path = folder / "storage" / "meta.json"
    content = json.loads(path.read_text())
    del content[lost]
    path.write_text(json.dumps(content))
    with pytest.raises(DamagedDataset, match=f"no entry for {lost}"):
        made("random").loads(folder)


def test_a_short_file_of_priorities_is_found(tmp_path: Path) -> None:
    folder = dumped(tmp_path, "priorities")
    path = folder / "sampler" / "priorities.memmap"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(DamagedDataset, match=r"priorities\.memmap has 56 bytes; .* 8 rows"):
        made("priorities").loads(folder)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("writer/metadata.json", {}, r"writer/metadata\.json: cursor is None, expected the row"),
        ("writer/metadata.json", {"write_count": 8}, r"cursor is None"),
        ("buffer_metadata.json", {"batch_size": "3"}, r"batch_size: expected a whole .*'3'"),
        ("buffer_metadata.json", {"batch_size": 0}, r"batch_size: expected a whole .* 0"),
    ],
)
def test_settings_that_are_wrong_are_refused(
    tmp_path: Path, name: str, content: Any, message: str
) -> None:
    folder = dumped(tmp_path, "random")
    (folder / name).write_text(json.dumps(content))
    buffer = made("random")
    buffer.extend(steps(5))
    with pytest.raises(DamagedDataset, match=message):
        buffer.loads(folder)
    assert len(buffer) == 5


FIRST, SECOND = ({"__rlds__": ["tensor", number]} for number in range(2))
STRUCTURES = [
    *(FIRST, 7, [FIRST], [FIRST, FIRST], {"a": FIRST}, [FIRST, {"__rlds__": ["tensor", 2]}]),
    *({"__rlds__": ["tuple", 3]}, {"__rlds__": ["set", [FIRST, SECOND]]}, [0, 1], "x"),
    {"__rlds__": ["dict", [[[], FIRST], ["b", SECOND]]]},
]


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_structure_that_is_not_of_the_rows_is_damage(tmp_path: Path, structure: Any) -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(4))
    buffer.extend((torch.arange(4), torch.zeros(4)))
    buffer.dumps(tmp_path)
    path = tmp_path / "storage" / "storage_metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"structure": structure}))
    with pytest.raises(DamagedDataset, match=r"storage_metadata\.json: structure is not that of"):
        buffer.loads(tmp_path)
