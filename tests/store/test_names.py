"""Names of leaves: any that a file can have, those that tensordict or another file takes too."""

from __future__ import annotations

import gc
import tempfile
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict

from datasets_cli import (
    LazyMemmapStorage,
    LazyTensorStorage,
    ListStorage,
    ReplayBuffer,
    TensorDictReplayBuffer,
    open_storage,
)
from datasets_cli.errors import SourceError, UsageError
from datasets_cli.schema import columns
from datasets_cli.schema.columns import Key, column_of, escape_key
from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.ted_writer import TedWriter
from datasets_cli.store.manifest import Manifest, write_manifest
from tests.support.derived import preprocess
from tests.support.refusals import refused

LAYOUTS: dict[str, Any] = {"ted": TedWriter, "compact": CompactWriter}
RESERVED = ["shape", "device", "_type", "_class", "_format_version", "_names"]
TAKEN = [
    *RESERVED,
    *("shape~", "shape~~", "~", "a~", "batch_size", "names", "data", "index", "type", "dtype"),
    *("meta.json", "manifest.json", "trajectories.npy", "a.memmap", "a.memmap~", "META.JSON"),
    *("text", "text~", "Text", "text.utf8", "text.offsets", "frames", "leaves", "rows", "row"),
    *("rows.memmap", "a.zst", "a.zst.offsets", "a.zst.dictionary", "a.zst.part", "a.json~"),
    *(".", "..", "%", "%2E", "a/b", "a b", "\0", "\n", "0", "stack_dim", "_tensordict", "é", "a.b"),
]
FRAME = (32, 32)


def rows_of(keys: list[Key], frames: bool = False, num_rows: int = 6) -> dict[Key, np.ndarray]:
    """Rows of two trajectories with a leaf of each key, all different, and frames if asked."""
    done = np.zeros((num_rows, 1), np.bool_)
    done[[2, -1]] = True
    rows: dict[Key, np.ndarray] = {("next", "done"): done, ("action",): np.arange(num_rows * 1.0)}
    for number, key in enumerate(keys):
        shape = (num_rows, *FRAME) if frames else (num_rows, 2)
        values = np.random.default_rng(number).integers(0, 256, shape)
        rows[key] = values.astype(np.uint8 if frames else np.int32)
    return rows


def write(kind: Any, folder: Path, rows: dict[Key, np.ndarray]) -> Path:
    with closing(kind(folder, "test/names")) as writer:
        writer.write({key: values[:4] for key, values in rows.items()})
        writer.write({key: values[4:] for key, values in rows.items()})
        written = writer.finish({})
    fields = {name: getattr(written, name) for name in vars(written)}
    write_manifest(folder, Manifest(id="test/names", **fields))
    return folder


def compare(found: Any, rows: dict[Key, np.ndarray]) -> None:
    for key, values in rows.items():
        leaf = found
        for name in key:  # as TensorDict's own methods of the same names must not come between
            leaf = leaf.get(name)
        assert isinstance(leaf, torch.Tensor), key
        assert leaf.numpy().tobytes() == values.tobytes(), key


def special_keys() -> list[Key]:
    """Each name as a leaf at the root and in a group, and as a group at the root and in one."""
    keys = [(name,) for name in TAKEN] + [("leaves in", name) for name in TAKEN]
    keys += [("groups in", name, "x") for name in TAKEN]
    return [*keys, ("leaves in", "a"), ("groups in", "a"), ("a",)]


def group_keys() -> list[Key]:
    names = [name for name in TAKEN if name not in ("a", "action")]
    return [(name, "a") for name in names] + [(name, "b", name) for name in names] + [("a",)]


@pytest.mark.parametrize(
    ("keys", "layout", "frames"),
    [
        (special_keys(), "ted", False),
        (special_keys(), "compact", True),
        (group_keys(), "ted", True),
        (group_keys(), "compact", False),
    ],
    ids=["leaves-ted", "leaves-compact-frames", "groups-ted-frames", "groups-compact"],
)
def test_names_that_others_take_are_stored(
    tmp_path: Path, layout: str, keys: list[Key], frames: bool
) -> None:
    rows = rows_of(keys, frames)
    folder = write(LAYOUTS[layout], tmp_path / "rows", rows)
    storage = open_storage(folder)
    assert set(storage.dataset.keys) == {*rows, ("episode",)}
    compare(storage.run(0, 6), rows)
    for key in keys:
        assert storage.column(key).numpy().tobytes() == rows[key].tobytes()  # type: ignore[union-attr]
    if layout == "ted":
        loaded = TensorDict.load_memmap(folder)
        compare(loaded, {escape_key(key): values for key, values in rows.items()})
        assert len(list(loaded.keys(True, True))) == len(rows) + 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_batches_carry_every_name(tmp_path: Path, layout: str) -> None:
    keys = [key for key in special_keys() if key != ("index",)]
    rows = rows_of(keys)
    folder = write(LAYOUTS[layout], tmp_path / "rows", rows)
    replay = TensorDictReplayBuffer(storage=open_storage(folder), batch_size=5)
    batch = replay.sample()
    compare(batch, {key: rows[key][batch["index"].numpy()] for key in keys})
    compare(batch[2], {key: rows[key][int(batch["index"][2])] for key in keys})
    compare(batch.select(*keys), {key: rows[key][batch["index"].numpy()] for key in keys})
    compare(torch.stack([replay[0], replay[3]]), {key: rows[key][[0, 3]] for key in keys})
    compare(batch.to("cpu").clone(), {key: rows[key][batch["index"].numpy()] for key in keys})
    compare(replay[:], rows)


@pytest.mark.parametrize("kind", [LazyTensorStorage, LazyMemmapStorage, ListStorage])
def test_storages_take_every_name(tmp_path: Path, kind: Any) -> None:
    rows = rows_of(special_keys())
    data = TensorDict({}, [6])
    for key, values in rows.items():
        data[key] = torch.from_numpy(values)
    arguments = {"scratch_dir": tmp_path / "rows"} if kind is LazyMemmapStorage else {}
    buffer = ReplayBuffer(storage=kind(6, **arguments), batch_size=3)
    buffer.extend(data)
    compare(buffer[:], rows)
    if arguments:
        loaded = TensorDict.load_memmap(tmp_path / "rows")
        compare(loaded, {escape_key(key): values for key, values in rows.items()})


def renamed(batch: TensorDict) -> TensorDict:
    return TensorDict(
        {"shape": batch["action"], "meta.json": {"device": batch["action"]}}, len(batch)
    )


def test_a_function_gives_any_name(tmp_path: Path) -> None:
    folder = write(TedWriter, tmp_path / "rows", rows_of([]))
    made = preprocess(folder, renamed, tmp_path / "made", num_workers=0, chunksize=2)
    action = rows_of([])["action",]
    compare(made.run(0, 6), {("shape",): action, ("meta.json", "device"): action})


# What may be a key at all.

NAMES = st.one_of(
    st.sampled_from(TAKEN),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12),
    st.sampled_from(TAKEN).map(lambda name: f"{name}~"),
)
KEYS = st.lists(st.lists(NAMES, min_size=1, max_size=3).map(tuple), min_size=1, max_size=6)


def tree_of(keys: list[Key]) -> list[Key]:
    """Those of the keys that can be leaves of one tree, beside the ones of every dataset."""
    kept: list[Key] = [("next", "done"), ("action",), ("episode",)]
    for key in keys:
        if not any(key[: len(k)] == k or k[: len(key)] == key for k in kept):
            kept.append(key)
    return kept[3:]


@given(KEYS)
@settings(max_examples=25)
def test_any_names_are_stored_and_read_again(keys: list[Key]) -> None:
    rows = rows_of(tree_of(keys))
    for kind in LAYOUTS.values():
        with tempfile.TemporaryDirectory() as folder:
            compare(open_storage(write(kind, Path(folder) / "rows", rows)).run(0, 6), rows)
    data = TensorDict({}, [6])
    for key, values in rows.items():
        data[key] = torch.from_numpy(values)
    with tempfile.TemporaryDirectory() as folder:
        storage = LazyMemmapStorage(6, scratch_dir=folder)
        ReplayBuffer(storage=storage, batch_size=3).extend(data)
        compare(storage.contents(), rows)
        loaded = TensorDict.load_memmap(folder)
        compare(loaded, {escape_key(key): values for key, values in rows.items()})
        del storage, loaded


@given(KEYS)
@settings(max_examples=100)
def test_no_two_keys_share_a_file_or_a_name(keys: list[Key]) -> None:
    kept = tree_of(keys)
    escaped = [escape_key(key) for key in kept]
    assert len(set(escaped)) == len(kept)
    assert len(set(tree_of(escaped))) == len(kept)
    # Two groups are one on the disk only where they are one in memory.
    for one, first in zip(kept, escaped, strict=True):
        for other, second in zip(kept, escaped, strict=True):
            for depth in range(1, min(len(one), len(other))):
                assert (one[:depth] == other[:depth]) == (first[:depth] == second[:depth])
    assert not {name for key in escaped for name in key} & set(RESERVED)


def test_plain_names_are_those_of_their_files() -> None:
    for key in [("observation",), ("next", "reward"), ("info", "text"), ("text",), ("a.json",)]:
        assert escape_key(key) == key
    assert columns.Column(("info", "a b"), "bool", ()).filename == "info/a%20b.memmap"


@pytest.mark.parametrize(
    "key", [(), ("a", ""), ("\ud800",), ("x" * 200,), ("é" * 100,), ("/" * 67,), ("x" * 300,)]
)
def test_keys_that_no_file_can_have_are_refused(tmp_path: Path, key: Key) -> None:
    with refused(SourceError, key=key):
        column_of(key, np.zeros(3))
    assert not columns.can_store(key, np.dtype(float))
    if key and "" not in key:
        storage = LazyMemmapStorage(3, scratch_dir=tmp_path / "rows")
        with refused(UsageError, key=key):
            ReplayBuffer(storage=storage, batch_size=2).extend(
                TensorDict({key: torch.ones(3)}, [3])
            )


@pytest.mark.parametrize("name", ["x" * 199, "é" * 99, "/" * 66])
def test_the_longest_names_are_stored(tmp_path: Path, name: str) -> None:
    keys: list[Key] = [(name,), (f"{name[:-5]}.json", name)]
    for frames in (False, True):
        for layout, kind in LAYOUTS.items():
            rows = rows_of(keys, frames)
            folder = tmp_path / f"{layout}{frames}"
            compare(open_storage(write(kind, folder, rows)).run(0, 6), rows)


# Disks that do not tell the case of letters apart.


@pytest.fixture
def folding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are made by names in lower case, as if the disk took others for the same."""
    plain = columns.encode_name
    monkeypatch.setattr(columns, "encode_name", lambda name: plain(name).lower())
    monkeypatch.setattr(
        "datasets_cli.store.layouts.ted_writer.encode_name", lambda name: plain(name).lower()
    )


@pytest.mark.usefixtures("folding")
@pytest.mark.parametrize(("layout", "frames"), [("ted", False), ("compact", True)])
@pytest.mark.parametrize("keys", [[("A",), ("a",)], [("A", "b"), ("a", "B")]])
def test_a_disk_that_takes_two_leaves_for_one_is_refused(
    tmp_path: Path, layout: str, frames: bool, keys: list[Key]
) -> None:
    with pytest.raises(SourceError) as caught:
        write(LAYOUTS[layout], tmp_path / "rows", rows_of(keys, frames))
    assert tmp_path in Path(caught.value.path).parents
    assert caught.value.advice == "Rename one, or choose another disk with root= or RLDS_HOME."


@pytest.mark.usefixtures("folding")
def test_a_disk_that_takes_frames_read_apart_for_another_leaf_is_refused(tmp_path: Path) -> None:
    rows, frames = rows_of([("A",)]), np.zeros((2, 36, 36), np.uint8)
    with closing(TedWriter(tmp_path, "test/rows")) as writer:
        writer.write(rows)
        with pytest.raises(SourceError) as caught:
            writer.add_frames(column_of(("a",), frames), np.array([0, 2]), lambda _: frames)
    assert caught.value.key == ("a",)


@pytest.mark.usefixtures("folding")
def test_a_disk_that_takes_two_groups_for_one_is_refused(tmp_path: Path) -> None:
    keys: list[Key] = [("A", "x"), ("a", "y")]
    with pytest.raises(SourceError) as caught:
        write(TedWriter, tmp_path / "rows", rows_of(keys))
    assert caught.value.path == tmp_path / "rows" / "a" / "meta.json"
    with pytest.raises(SourceError) as caught:
        write(TedWriter, tmp_path / "other", rows_of([("Episode",)]))
    assert caught.value.key == ("episode",)


@pytest.mark.usefixtures("folding")
def test_files_of_a_storage_are_never_one(tmp_path: Path) -> None:
    rows = TensorDict({"A": torch.zeros(3), "a": torch.ones(3)}, [3])
    for exists in (False, True):
        storage = LazyMemmapStorage(3, scratch_dir=tmp_path / str(exists), existsok=exists)
        with refused(UsageError, key=("a",)):
            ReplayBuffer(storage=storage, batch_size=2).extend(rows)
    gc.collect()  # a buffer that is left would be shared at the fork of another test


# The number of a row, which buffers call index too.


@pytest.mark.parametrize("key", [("index",), ("index", "x")])
def test_a_leaf_index_that_batches_hide_is_told(tmp_path: Path, key: Key) -> None:
    rows = rows_of([key])
    storage = open_storage(write(TedWriter, tmp_path / "rows", rows))
    with pytest.warns(UserWarning, match=rf"{'.'.join(key)} of test/names"):
        replay = TensorDictReplayBuffer(storage=storage, batch_size=4)
    assert replay.sample()["index"].dtype == torch.int64
    compare(replay[:], rows)
    assert replay[key].numpy().tobytes() == rows[key].tobytes()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = ReplayBuffer(storage=storage, batch_size=4)
    assert plain.sample()[key].shape == (4, 2)
