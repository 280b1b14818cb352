"""Every element type of torch: from a recipe or a function into both layouts, and out again."""

from __future__ import annotations

from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

import datasets_cli
from datasets_cli import (
    FrameStack,
    ReplayBuffer,
    SliceSampler,
    TensorDictReplayBuffer,
    open_storage,
)
from datasets_cli.config import Config
from datasets_cli.errors import DamagedDataset, SourceError, UsageError, WrongRows
from datasets_cli.experience.qlearning import qlearning_dataset
from datasets_cli.schema.columns import Key, can_store, column_of
from datasets_cli.schema.transitions import Transitions, iterate_rows
from datasets_cli.schema.tree import entry
from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.ted_writer import TedWriter
from datasets_cli.store.manifest import Manifest, read_manifest, write_manifest
from datasets_cli.store.sealed_json import parse, seal
from tests.support.derived import preprocess
from tests.support.element_types import (
    KNOWN_TO_TENSORDICT,
    NUMPY,
    SHAPES,
    keys_of,
    random_rows,
    same,
)
from tests.support.refusals import refused

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
Rows = dict[Key, np.ndarray]
LAYOUTS = {"ted": TedWriter, "compact": CompactWriter}
LENGTHS = (5, 1, 9)
NUM_STEPS = sum(LENGTHS) + len(LENGTHS)


@cache
def block(seed: int = 0) -> Rows:
    """Steps of three trajectories as a recipe has them, a leaf of every type and shape."""
    rng = np.random.default_rng(seed)
    ends = np.zeros(NUM_STEPS, np.bool_)
    ends[np.cumsum([length + 1 for length in LENGTHS]) - 1] = True
    rows: Rows = {("cut",): ends, ("action",): rng.normal(size=(NUM_STEPS, 2))}
    rows["next", "reward"] = rng.normal(size=NUM_STEPS)
    for group in ("observation", "info"):
        for key, name, shape in keys_of(group):
            rows[key] = random_rows(name, (NUM_STEPS, *shape), rng)
    for key, name, shape in keys_of("same"):  # what compact keeps once
        rows[key] = random_rows(name, (1, *shape), rng).repeat(NUM_STEPS, axis=0)
    for key, name, shape in keys_of("zero"):
        rows[key] = np.zeros((NUM_STEPS, *shape), np.dtype(NUMPY[name]))
    return rows


def observed(rows: np.ndarray) -> Rows:
    """Return steps whose observations are these rows, without the leaves of every type."""
    steps = {key: each for key, each in block().items() if key[0] in ("cut", "action", "next")}
    return {**steps, ("observation",): rows}


def expected_of(steps: Rows) -> Rows:
    """Which rows the steps become: the last of each trajectory gives only its observation."""
    kept = np.flatnonzero(~steps["cut",])
    rows = {key: values[kept] for key, values in steps.items() if key != ("cut",)}
    for key in [key for key in rows if key[0] == "observation"]:
        rows["next", *key] = steps[key][kept + 1]
    del rows["next", "reward"]  # it gets another shape
    return rows


def write(layout: str, folder: Path, steps: Rows) -> Path:
    with closing(LAYOUTS[layout](folder, "test/types")) as writer:
        parts = [{key: rows[a : a + 7] for key, rows in steps.items()} for a in range(0, 99, 7)]
        parts = [part for part in parts if len(part["cut",])]
        for rows in iterate_rows(Transitions("test/types"), iter(parts)):
            writer.write(rows)
        written = writer.finish({})
    fields = {name: getattr(written, name) for name in vars(written)}
    write_manifest(folder, Manifest(id="test/types", **fields))
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    steps = block()
    return {name: write(name, tmp_path_factory.mktemp(name) / "rows", steps) for name in LAYOUTS}


def compare(batch: Any, rows: Rows, index: Any = slice(None)) -> None:
    for key, values in rows.items():
        name = values.dtype.names[0] if values.dtype.names else values.dtype.name
        same(batch[key], values[index], name)


@pytest.mark.parametrize(
    ("layout", "options"),
    [("ted", {}), ("compact", {"device": "cpu"}), ("ted", {"contiguous": True})],
)
def test_every_type_comes_back_bit_for_bit(
    folders: dict[str, Path], layout: str, options: Any
) -> None:
    rows = expected_of(block())
    storage = open_storage(folders[layout], **options)
    assert {column.dtype for column in storage.dataset.manifest.columns} == NUMPY.keys()
    replay = TensorDictReplayBuffer(storage=storage, batch_size=32)
    compare(replay[:], rows)
    compare(replay[[3, 0, 3, 14]], rows, [3, 0, 3, 14])
    batch = replay.sample()
    compare(batch, rows, batch["index"].numpy())
    for key, name, _ in keys_of("info"):
        same(replay[key], rows[key], name)
    same(replay[5]["observation", "uint64", "2"], rows["observation", "uint64", "2"][5], "uint64")
    before = replay[:2]["same", "float8_e8m0fnu", "2"]
    batch["same", "float8_e8m0fnu", "2"].view(torch.uint8).zero_()  # a copy, whatever the type
    assert torch.equal(
        replay[:2]["same", "float8_e8m0fnu", "2"].view(torch.uint8), before.view(torch.uint8)
    )


@pytest.mark.parametrize(("layout", "contiguous"), [("ted", True), ("compact", False)])
def test_a_block_of_rows_has_every_type_in_numpy(
    folders: dict[str, Path], layout: str, contiguous: bool
) -> None:
    index = [3, 0, 3, 14, 7]
    dataset = open_storage(folders[layout], contiguous=contiguous).dataset
    part = dataset.read(torch.tensor(index)).arrays(1, 4)
    for key, values in expected_of(block()).items():
        found = entry(part, key)
        assert found.dtype == values.dtype, key
        assert found.tobytes() == values[index[1:4]].tobytes(), key
        assert found.flags.writeable and (found.flags.c_contiguous or not contiguous), key
    assert dataset.read(torch.tensor([], dtype=torch.int64)).arrays(0, 0)["action"].shape == (0, 2)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_slices_have_every_type(folders: dict[str, Path], layout: str) -> None:
    sampler = SliceSampler(slice_len=4)
    storage = open_storage(folders[layout])
    replay = TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=16)
    batch = replay.sample()
    compare(batch, expected_of(block()) | {}, batch["index"].numpy())


@pytest.mark.parametrize(("layout", "padding"), [("ted", "repeat"), ("compact", "zeros")])
def test_stacks_have_every_type(folders: dict[str, Path], layout: str, padding: Any) -> None:
    rows = expected_of(block())
    firsts = np.repeat(np.cumsum([0, *LENGTHS[:-1]]), LENGTHS)
    whole = open_storage(folders[layout])
    for key, name, _ in keys_of("observation"):
        found = FrameStack(whole, 3, key=key, padding=padding).get(torch.arange(len(whole)))
        steps = np.arange(len(firsts))[:, None] - [2, 1, 0]
        stack = rows[key][np.maximum(steps, firsts[:, None])]
        after = np.concatenate([stack[:, 1:], rows["next", *key][:, None]], axis=1)
        if padding == "zeros":
            stack[steps < firsts[:, None]] = 0
            after[:, :2][steps[:, 1:] < firsts[:, None]] = 0
        same(found[key], stack, name)
        same(found["next", *key], after, name)


def test_a_layout_that_changes_keeps_every_bit(config: Config) -> None:
    folder = write("ted", config.root / "datasets" / "test" / "types", block())
    for layout in ("compact", "ted"):
        datasets_cli.convert("test/types", layout, config=config)
        compare(ReplayBuffer(storage=open_storage(folder))[:], expected_of(block()))


def test_tensordict_opens_the_types_that_it_knows(tmp_path: Path) -> None:
    unknown = NUMPY.keys() - KNOWN_TO_TENSORDICT
    steps = {key: rows for key, rows in block().items() if not unknown.intersection(key)}
    compare(TensorDict.load_memmap(write("ted", tmp_path / "rows", steps)), expected_of(steps))


def moved(batch: TensorDict) -> TensorDict:
    return TensorDict(
        {"observation": batch["next", "observation"], "info": batch["info"]}, len(batch)
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_function_gives_every_type(folders: dict[str, Path], tmp_path: Path, layout: str) -> None:
    rows = expected_of(block())
    made = preprocess(folders[layout], moved, tmp_path / "made", num_workers=0, chunksize=4)
    expected = {key: values for key, values in rows.items() if key[0] == "info"}
    expected |= {key[1:]: values for key, values in rows.items() if key[0] == "next"}
    assert len(made.dataset.keys) == len(expected) == 2 * len(NUMPY) * len(SHAPES)
    compare(ReplayBuffer(storage=made)[:], expected)


@pytest.mark.parametrize("name", ["int4", "uint1", "bits8"])
def test_a_function_that_gives_a_shell_type_is_refused(
    folders: dict[str, Path], tmp_path: Path, name: str
) -> None:
    def shell(batch: TensorDict) -> TensorDict:
        bad = torch.zeros(len(batch), dtype=torch.uint8).view(getattr(torch, name))
        return TensorDict({"bad": bad}, len(batch))

    with refused(UsageError, found=f"torch.{name}"):
        preprocess(folders["ted"], shell, tmp_path / "made", num_workers=0)


@pytest.mark.parametrize(
    "dtype",
    [
        np.dtype(object),
        np.dtype("U3"),
        np.dtype("S3"),
        np.dtype("M8[s]"),
        np.dtype(np.longdouble),
        np.dtype([("bfloat16", "<u4")]),
        np.dtype([("bfloat16", "<i2")]),
        np.dtype([("uint16", "<u2")]),
        np.dtype([("bfloat16", "<u2"), ("more", "<u2")]),
        np.dtype([("int4", "u1")]),
    ],
    ids=str,
)
def test_rows_of_another_type_are_refused(dtype: np.dtype) -> None:
    assert not can_store(("x",), dtype)
    with pytest.raises(SourceError) as caught:
        column_of(("x",), np.empty((2, 3), dtype))
    assert (caught.value.key, caught.value.found) == (("x",), str(dtype))


def test_bytes_in_the_other_order_become_native(tmp_path: Path) -> None:
    steps = block()
    swapped = steps | {
        key: rows.astype(rows.dtype.newbyteorder(">"))
        for key, rows in steps.items()
        if key[0] == "observation"
    }
    storage = open_storage(write("ted", tmp_path / "rows", swapped))
    compare(ReplayBuffer(storage=storage)[:], expected_of(steps))


@pytest.mark.parametrize("name", ["bfloat16", "float8_e5m2"])
def test_rewards_of_any_float_stay_as_they_are(tmp_path: Path, name: str) -> None:
    rewards = random_rows(name, (NUM_STEPS,), np.random.default_rng(1))
    steps = observed(np.zeros((NUM_STEPS, 1)))
    folder = write("ted", tmp_path / "rows", steps | {("next", "reward"): rewards})
    kept = np.flatnonzero(~block()["cut",])
    same(open_storage(folder).column(("next", "reward")), rewards[kept][:, None], name)


def test_flags_of_no_number_are_refused() -> None:
    flags = random_rows("bfloat16", (NUM_STEPS,), np.random.default_rng(0))
    steps = block() | {("next", "terminated"): flags}
    with pytest.raises(SourceError) as caught:
        Transitions("test/types").rows(steps)
    assert (caught.value.id, caught.value.key) == ("test/types", ("next", "terminated"))


@pytest.mark.parametrize("name", ["uint16", "uint64", "bfloat16", "float8_e4m3fn"])
def test_numbers_of_other_types_are_float32_of_a_q_learning_dataset(
    tmp_path: Path, name: str
) -> None:
    steps = observed(random_rows(name, (NUM_STEPS, 3), np.random.default_rng(2)))
    storage = open_storage(write("ted", tmp_path / "rows", steps))
    found = qlearning_dataset(storage)
    for prefix, key in {"": ("observation",), "next_": ("next", "observation")}.items():
        whole: Any = storage.column(key)
        assert found[f"{prefix}observations"].dtype == np.float32
        np.testing.assert_array_equal(found[f"{prefix}observations"], whole.float().numpy())


@pytest.mark.parametrize("name", ["complex64", "complex32", "float4_e2m1fn_x2"])
def test_what_float32_cannot_have_is_no_q_learning_dataset(tmp_path: Path, name: str) -> None:
    steps = observed(random_rows(name, (NUM_STEPS, 3), np.random.default_rng(2)))
    with pytest.raises(WrongRows) as caught:
        qlearning_dataset(open_storage(write("ted", tmp_path / "rows", steps)))
    assert (caught.value.key, caught.value.found) == (("observation",), getattr(torch, name))


def test_a_manifest_with_an_unknown_type_is_damaged(folders: dict[str, Path]) -> None:
    document = parse((folders["ted"] / "manifest.json").read_bytes())
    document["columns"][0]["dtype"] = "bfloat17"
    copy = folders["ted"].parent / "copy"
    copy.mkdir()
    (copy / "manifest.json").write_bytes(seal(document))
    with pytest.raises(DamagedDataset) as caught:
        read_manifest(copy)
    assert Path(caught.value.path).name == "manifest.json"
