"""Batches in numpy and in jax are those of torch, whatever draws them and wherever they are."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import torch
from tensordict import TensorDict, is_tensor_collection

from datasets_cli import (
    DistributedSampler,
    DoubleToFloat,
    ExperienceReplay,
    FrameStack,
    LazyTensorStorage,
    ListStorage,
    PrioritizedSampler,
    PrioritizedSliceSampler,
    RandomSampler,
    ReplayBuffer,
    SamplerWithoutReplacement,
    SliceSampler,
    SliceSamplerWithoutReplacement,
    TensorDictReplayBuffer,
    TensorStorage,
    open_storage,
)
from datasets_cli.errors import (
    EmptyBuffer,
    UnknownKey,
    Unsupported,
    UsageError,
    WrongRows,
    WrongSize,
)
from datasets_cli.replay import LazyStackStorage
from datasets_cli.replay.batches.jax import RowWords, _below
from datasets_cli.schema.tree import leaves_in
from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.ted_writer import TedWriter
from tests.store.test_compact import pixel_rows, transitions, write
from tests.support.covering import covering
from tests.support.refusals import refused
from tests.support.text_rows import steps_of
from tests.support.text_rows import write as write_text

LAYOUTS = {"ted": TedWriter, "compact": CompactWriter}
FORMATS = ["numpy", "jax"]
LENGTHS = [9, 4, 12, 6]
SAMPLERS: dict[str, Callable[[], Any]] = {
    "uniform": RandomSampler,
    "without replacement": SamplerWithoutReplacement,
    "slices": lambda: SliceSampler(num_slices=4),
    "slice epochs": lambda: SliceSamplerWithoutReplacement(slice_len=2),
    "priorities": lambda: PrioritizedSampler(100, alpha=0.7, beta=0.5),
    "priorities of slices": lambda: PrioritizedSliceSampler(100, 0.7, 0.5, num_slices=4),
    "ranks": lambda: DistributedSampler(seed=0),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {}
    for name, kind in LAYOUTS.items():
        found[name] = tmp_path_factory.mktemp(name) / "rows"
        write(kind, found[name], transitions(LENGTHS, 0))
        found[f"{name} frames"] = tmp_path_factory.mktemp(name) / "frames"
        write(kind, found[f"{name} frames"], pixel_rows(LENGTHS))
    return found


def leaves(batch: Any, key: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the leaves of a TensorDict, or of a nested dict, which are compared below."""
    for name, leaf in batch.items():
        if isinstance(leaf, dict) or is_tensor_collection(leaf):
            yield from leaves(leaf, (*key, name))
        else:
            yield (*key, name), leaf


def same(found: Any, torch_batch: Any, name: str) -> None:
    """Compare a batch with that of torch: keys, values, shapes and types, which jax may narrow."""
    given, expected = dict(leaves(found)), dict(leaves(torch_batch))
    assert given.keys() == expected.keys()
    for key, tensor in expected.items():
        array = tensor.numpy()
        assert isinstance(given[key], np.ndarray if name == "numpy" else jax.Array), key
        dtype = array.dtype if name == "numpy" else jax.dtypes.canonicalize_dtype(array.dtype)
        assert given[key].dtype == dtype, key
        assert np.array_equal(given[key], array.astype(dtype), equal_nan=dtype.kind == "f"), key


def opened(folder: Path, name: str, **arguments: Any) -> ReplayBuffer:
    storage = open_storage(folder)
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=8, seed=3, **arguments)
    return buffer.with_format(name, cast=name == "jax")


@pytest.mark.parametrize(
    ("layout", "sampler", "name"), covering(itertools.product(LAYOUTS, SAMPLERS, FORMATS))
)
def test_every_sampler_gives_the_batches_of_torch(
    folders: dict[str, Path], layout: str, sampler: str, name: str
) -> None:
    expected = opened(folders[layout], "torch", sampler=SAMPLERS[sampler]())
    found = opened(folders[layout], name, sampler=SAMPLERS[sampler]())
    for _ in range(3):
        batch, info = found.sample(return_info=True)
        torch_batch, torch_info = expected.sample(return_info=True)
        same(batch, torch_batch, name)
        assert info.keys() == torch_info.keys()
        assert np.array_equal(info["index"], torch_info["index"].numpy())
    for batch, torch_batch in zip(found, expected, strict=False):
        same(batch, torch_batch, name)
        if expected.ran_out or "replacement" not in sampler:
            break


@pytest.mark.parametrize(
    ("kind", "name", "stack"),
    [
        ("ted frames", "numpy", None),
        ("ted frames", "jax", 3),
        ("compact frames", "numpy", 3),
        ("compact frames", "jax", None),
    ],
)
def test_frames_and_stacks_are_those_of_torch(
    folders: dict[str, Path], kind: str, name: str, stack: int | None
) -> None:
    storage = open_storage(folders[kind])
    rows = storage if stack is None else FrameStack(storage, stack)
    torch_buffer = TensorDictReplayBuffer(storage=rows, batch_size=8, seed=0)
    found = TensorDictReplayBuffer(storage=rows, batch_size=8, seed=0)
    same(found.with_format(name, cast=name == "jax").sample(), torch_buffer.sample(), name)


@pytest.mark.parametrize(("layout", "name"), [("ted", "jax"), ("compact", "numpy")])
def test_indexed_rows_are_those_of_torch(folders: dict[str, Path], layout: str, name: str) -> None:
    buffer = opened(folders[layout], name)
    for index in (5, slice(2, 9), [7, 0, 7], ...):
        same(buffer[index], buffer.with_format("torch")[index], name)


@pytest.mark.parametrize("name", FORMATS)
def test_columns_are_those_of_torch(folders: dict[str, Path], name: str) -> None:
    buffer = opened(folders["compact"], name)
    column = buffer["next", "observation", "float32"]
    expected = buffer.with_format("torch")["next", "observation", "float32"]
    assert np.array_equal(column, expected.numpy(), equal_nan=True)
    same(buffer["next"], buffer.with_format("torch")["next"], name)
    assert buffer["episode"].dtype == (np.int64 if name == "numpy" else np.int32)


@pytest.mark.parametrize(("layout", "name"), [("ted", "numpy"), ("compact", "jax")])
def test_text_is_lists_of_str(tmp_path: Path, layout: str, name: str) -> None:
    folder = write_text(tmp_path, layout, steps_of(["left", "right", "stay"]))
    buffer = TensorDictReplayBuffer(storage=open_storage(folder, text=True), batch_size=4, seed=0)
    found = buffer.with_format(name, cast=name == "jax")
    batch = found.sample()
    expected = buffer[np.asarray(batch["index"]).tolist()]
    assert batch["observation"]["mission"] == expected["observation", "mission"]
    assert batch["next"]["observation"]["mission"] == expected["next", "observation", "mission"]
    assert found[2]["observation"]["mission"] == "stay"
    assert found["observation", "mission"] == buffer["observation", "mission"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_batches_of_numpy_are_views_of_one_gather_and_none_of_the_file(
    folders: dict[str, Path], layout: str
) -> None:
    buffer = opened(folders[layout], "numpy")
    before = buffer["action"]
    batch = buffer.sample()
    for _, leaf in leaves(batch):
        leaf[...] = 0  # memory of its own, that can be written
    assert np.array_equal(buffer["action"], before)
    if layout == "compact":
        parts = [batch["action"], batch["observation"]["float32"], batch["next"]["reward"]]
        assert len({id(part.base) for part in parts}) <= len(parts)
        assert all(not part.flags.owndata for part in parts)


def steps(count: int = 20) -> TensorDict:
    rows = torch.arange(count)
    return TensorDict(
        {
            "observation": torch.randn(count, 3, generator=torch.Generator().manual_seed(0)),
            "step": rows.int(),
            "next": TensorDict({"reward": rows.float().unsqueeze(1)}, count),
        },
        count,
    )


STORAGES: dict[str, Callable[[], Any]] = {
    "tensors": lambda: LazyTensorStorage(50),
    "list": lambda: ListStorage(50),
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("storage", STORAGES)
def test_rows_of_ones_own_come_in_every_format(storage: str, name: str) -> None:
    buffers = []
    for format in (name, "torch"):
        buffers.append(
            TensorDictReplayBuffer(storage=STORAGES[storage](), batch_size=8, seed=1, format=format)
        )
        buffers[-1].extend(steps())
    found, expected = buffers
    same(found.sample(), expected.sample(), name)
    same(found[3:7], expected[3:7], name)
    same(found[4], expected[4], name)


def test_a_batch_of_rows_that_are_written_does_not_share_their_memory() -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(50), batch_size=8, format="numpy")
    buffer.extend(steps())
    buffer.sample()["observation"][...] = 7
    assert torch.equal(buffer.with_format("torch")[:]["observation"], steps()["observation"])


@pytest.mark.parametrize("name", FORMATS)
def test_rows_that_are_no_tensordicts_keep_their_structure(name: str) -> None:
    kind = np.ndarray if name == "numpy" else jax.Array
    buffer = ReplayBuffer(storage=LazyTensorStorage(50), batch_size=4, format=name)
    buffer.extend((torch.arange(10.0), {"b": torch.ones(10, 2)}))
    first, second = buffer.sample()
    assert isinstance(first, kind) and isinstance(second["b"], kind)
    assert second["b"].shape == (4, 2)


@pytest.mark.parametrize("name", FORMATS)
def test_transforms_see_torch_and_their_result_is_converted(
    folders: dict[str, Path], name: str
) -> None:
    def scaled(batch: TensorDict) -> TensorDict:
        assert isinstance(batch, TensorDict)
        return batch.set("action", batch["action"] * 2)

    found = opened(folders["ted"], name, transform=scaled)
    expected = opened(folders["ted"], "torch", transform=scaled)
    same(found.sample(), expected.sample(), name)
    same(found[2:5], expected[2:5], name)


@pytest.mark.parametrize("sampler", ["uniform", "without replacement", "slices"])
def test_batches_of_one_block_may_be_of_several_formats(
    folders: dict[str, Path], sampler: str
) -> None:
    expected = opened(folders["compact"], "torch", sampler=SAMPLERS[sampler]())
    one = opened(folders["compact"], "torch", sampler=SAMPLERS[sampler]())
    for name in ["torch", "numpy", "jax", "numpy", "jax", "torch", "numpy", "jax"]:
        batch = one.with_format(name, cast=name == "jax").sample()
        right = expected.sample()
        if name == "torch":
            assert torch.equal(batch["index"], right["index"])
        else:
            same(batch, right, name)


def test_both_formats_are_one_buffer() -> None:
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(50), batch_size=5, sampler=SamplerWithoutReplacement(), seed=0
    )
    arrays = buffer.with_format("numpy")
    assert (buffer.format, arrays.format) == ("torch", "numpy")
    arrays.extend(steps())
    drawn = [*arrays.sample()["index"], *buffer.sample()["index"], *arrays.sample(10)["index"]]
    assert sorted(map(int, drawn)) == [*range(20)]
    assert buffer.ran_out and arrays.ran_out


@pytest.mark.parametrize("name", FORMATS)
def test_priorities_return_from_every_format(name: str) -> None:
    sampler = PrioritizedSampler(50, alpha=1.0, beta=1.0, eps=0.0)
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(50), sampler=sampler, batch_size=64)
    buffer.extend(steps())
    found = buffer.with_format(name)
    batch = found[:]
    index = batch["step"]  # an array of numpy, or of jax
    found.update_priority(index, (index == 4) * 1.0)
    assert set(np.asarray(found.sample()["index"]).tolist()) == {4}
    batch = {"index": index[5:6], "td_error": index[5:6] * 1.0, "other": None}
    found.update_tensordict_priority(batch)
    found.update_priority(index[4:5], index[:1] * 0.0)
    assert set(np.asarray(found.sample()["index"]).tolist()) == {5}
    with refused(UnknownKey, key="td_error"):
        found.update_tensordict_priority({"index": index})


def test_a_pickled_buffer_keeps_its_format(folders: dict[str, Path]) -> None:
    buffer = opened(folders["compact"], "numpy")
    copied = pickle.loads(pickle.dumps(buffer))
    assert copied.format == "numpy"
    same(copied.sample(), opened(folders["compact"], "torch").sample(), "numpy")


def test_types_that_numpy_lacks_are_refused_by_their_columns(tmp_path: Path) -> None:
    bits = np.zeros((20, 2), np.dtype([("bfloat16", "<u2")]))
    folder = write_text(tmp_path, "ted", steps_of(["a"], half=bits[:14]))
    buffer = TensorDictReplayBuffer(storage=open_storage(folder), batch_size=4)
    with pytest.raises(UsageError, match=r"of next\.observation\.half \(bfloat16\)"):
        TensorDictReplayBuffer(storage=open_storage(folder), format="numpy")
    assert buffer.with_format("jax", cast=True).sample()["observation"]["half"].dtype == "bfloat16"
    own = ReplayBuffer(storage=LazyTensorStorage(9), batch_size=2, format="numpy")
    own.extend(TensorDict({"half": torch.ones(4, dtype=torch.bfloat16)}, 4))
    with pytest.raises(UsageError, match=r"of half \(bfloat16\)"):
        own.sample()


def test_columns_of_64_bits_are_refused_where_jax_has_32(folders: dict[str, Path]) -> None:
    storage = open_storage(folders["ted"])
    with pytest.raises(UsageError, match=r'float64\).*"jax_enable_x64", True\).*cast=True') as info:
        TensorDictReplayBuffer(storage=storage, format="jax")
    assert "episode" not in str(info.value) and "action (float64)" in str(info.value)
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=4, transform=DoubleToFloat())
    with pytest.raises(UsageError, match=r"\(int64\)"):  # what the transform leaves
        buffer.with_format("jax").sample()
    with jax.enable_x64(True):
        batch = TensorDictReplayBuffer(storage=storage, batch_size=4, format="jax").sample()
        assert batch["action"].dtype == np.float64 and batch["index"].dtype == np.int64


@pytest.mark.parametrize(
    "numbers",
    [torch.tensor([2**31]), torch.tensor([-(2**31) - 1]), torch.tensor([1e39], dtype=torch.double)],
    ids=str,
)
def test_a_number_that_32_bits_cannot_hold_is_refused(numbers: torch.Tensor) -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(9), batch_size=2)
    buffer.extend(TensorDict({"id": numbers}, 1))
    with refused(Unsupported, argument="cast", key=("id",), found=numbers[0]):
        buffer.with_format("jax", cast=True).sample()


def test_rows_of_unlike_shapes_are_refused_as_one_array() -> None:
    storage = LazyStackStorage(9)
    buffer = ReplayBuffer(storage=storage, batch_size=6, seed=0, format="numpy")
    buffer.extend([TensorDict({"x": torch.zeros(n)}) for n in (1, 2, 3)])
    with refused(WrongRows, key=("x",)):
        buffer.sample()


def test_wrong_formats_are_refused() -> None:
    with refused(UsageError, argument="format", expected=("torch", "numpy", "jax"), found="np"):
        ReplayBuffer(format="np")
    with refused(UsageError, argument="cast", found="numpy"):
        ReplayBuffer().with_format("numpy", cast=True)
    rows = TensorDict({"x": torch.zeros(4, device="meta")}, 4)
    with refused(Unsupported, argument="format", found="meta"):
        ReplayBuffer(storage=TensorStorage(rows, device="meta"), format="numpy")


# Batches drawn on JAX's device are rows of the dataset, value by value, and slices end in time.


ROWS = transitions(LENGTHS, 0)
REWARD = ROWS["next", "reward"]
COLUMNS = [("next", "reward"), ("next", "done"), ("observation", "uint16")]
EPISODE = np.repeat(np.arange(4), LENGTHS)


def install(layout: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp(layout)
    write(LAYOUTS[layout], root / "datasets" / "test" / "rows", ROWS)
    return root


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install("compact", tmp_path_factory)


def opened_dataset(root: Path, **arguments: Any) -> ExperienceReplay:
    arguments = {"root": root, "download": False, "batch_size": 8} | arguments
    return ExperienceReplay("test/rows", **arguments)


def assert_rows(batch: Any, rows: np.ndarray) -> None:
    """Compare a batch with what was written: values, shapes and types, as jax canonicalizes."""
    given = dict(leaves_in(batch))
    expected = ROWS | {("episode",): EPISODE, ("index",): np.arange(len(EPISODE))}
    assert given.keys() == expected.keys()
    for key, found in given.items():
        right = expected[key][rows]
        right = right.astype(jax.dtypes.canonicalize_dtype(right.dtype))
        assert isinstance(found, jax.Array) and found.dtype == right.dtype, key
        np.testing.assert_array_equal(found, right, err_msg=str(key))


@pytest.mark.parametrize(("layout", "has_64_bits"), [("compact", False), ("ted", True)])
def test_batches_are_rows_of_the_dataset_whatever_their_types(
    layout: str, has_64_bits: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = install(layout, tmp_path_factory)
    with jax.enable_x64(has_64_bits):
        sample = opened_dataset(root).with_format("jax", cast=True).jax_sampler(40)
        batch = sample(jax.random.key(0))
        assert_rows(batch, np.asarray(batch["index"]))
    drawn = np.unique(np.asarray(batch["index"]))
    assert len(drawn) > 10 and drawn.min() >= 0 and drawn.max() < sum(LENGTHS)


def test_batches_drawn_in_a_scan_are_those_of_their_keys(root: Path) -> None:
    sample = opened_dataset(root, columns=COLUMNS).jax_sampler(5)
    keys = jax.random.split(jax.random.key(1), 4)
    scan = jax.jit(
        lambda sample, keys: jax.lax.scan(lambda _, key: (None, sample(key)), None, keys)
    )
    batches = scan(sample, keys)[1]
    for number, key in enumerate(keys):
        index = np.asarray(sample(key)["index"])
        np.testing.assert_array_equal(batches["index"][number], index)
        np.testing.assert_array_equal(batches["next"]["reward"][number], REWARD[index])


def test_slices_are_runs_within_trajectories_drawn_as_slice_sampler_draws_them(root: Path) -> None:
    columns = [("next", name) for name in ("reward", "done", "truncated")]
    sample = opened_dataset(root, columns=columns).jax_sampler(12_000, num_slices=2_000)
    batch = sample(jax.random.key(3))
    index = np.asarray(batch["index"])
    np.testing.assert_array_equal(batch["next"]["reward"], REWARD[index])
    slices = index.reshape(2_000, 6)
    assert (np.diff(slices) == 1).all() and (EPISODE[slices] == EPISODE[slices[:, :1]]).all()
    last = np.tile([*5 * [False], True], 2_000)[:, None]
    np.testing.assert_array_equal(batch["next"]["truncated"], last)
    np.testing.assert_array_equal(batch["next"]["done"], ROWS["next", "done"][index] | last)
    # The second trajectory is too short; of the others each is as likely, and each of its starts.
    begins = np.bincount(slices[:, 0], minlength=31) / 2_000
    right = np.zeros(31)
    for first, room in ((0, 4), (13, 7), (25, 1)):
        right[first : first + room] = 1 / 3 / room
    assert abs(begins - right).max() < 6 * (1 / 3 / 2_000) ** 0.5


def test_marks_of_slices_are_there_where_their_columns_are_not_read(root: Path) -> None:
    replay = opened_dataset(root, columns=["episode"])
    batch = replay.jax_sampler(8, 2)(jax.random.key(0))
    expected = opened_dataset(root, columns=["episode"], num_slices=2, batch_size=8).sample()
    assert {key for key, _ in leaves_in(batch)} == {
        key if isinstance(key, tuple) else (key,) for key in expected.keys(True, True)
    }
    for name in ("done", "terminated", "truncated"):
        np.testing.assert_array_equal(batch["next"][name], expected["next", name])


def test_a_view_gives_its_own_rows(root: Path) -> None:
    view = opened_dataset(root, columns=COLUMNS).episodes_at([2, 1])
    rows = np.concatenate((np.arange(13, 25), np.arange(9, 13)))
    batch = view.jax_sampler(64)(jax.random.key(0))
    index = np.asarray(batch["index"])
    assert {*index} == {*range(16)}
    np.testing.assert_array_equal(batch["next"]["reward"], REWARD[rows[index]])
    sliced = np.asarray(view.jax_sampler(64, 8)(jax.random.key(0))["index"]).reshape(8, 8)
    assert (np.diff(sliced) == 1).all() and sliced.max() < 12


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "complex64"])
def test_words_keep_the_bits_of_every_type(name: str) -> None:
    bits = np.random.default_rng(0).integers(0, 256, (7, 24), dtype=np.uint8)
    leaves = {("a",): bits.view(jax.numpy.dtype(name)), ("b",): np.arange(7, dtype=np.uint8)}
    packing = RowWords(leaves)
    words = np.zeros((7, packing.count), np.uint32)
    packing.put(words, leaves)
    given = jax.jit(packing.leaves)(words)
    assert np.asarray(given["a",]).tobytes() == bits.tobytes() and given["b",].shape == (7,)


@pytest.mark.parametrize("limit", [1, 3, 65_535, 65_537, 10_000_000, 2**31 - 1])
def test_numbers_below_a_limit_are_the_upper_word_of_a_product(limit: int) -> None:
    key = jax.random.key(limit)
    given = _below(key, 5_000, jax.numpy.uint32(limit))
    bits = np.asarray(jax.random.bits(key, (5_000,), "uint32")).astype(np.uint64)
    np.testing.assert_array_equal(given, bits * np.uint64(limit) >> np.uint64(32))


REFUSED: list[tuple[Callable[[], dict[str, Any]], str]] = [
    (lambda: {"transform": DoubleToFloat()}, "a transform or collate_fn"),
    (lambda: {"sampler": PrioritizedSampler(31, 0.7, 0.5)}, "priorities"),
]


@pytest.mark.parametrize(("arguments", "found"), REFUSED)
def test_batches_that_are_no_plain_rows_are_refused(
    root: Path, arguments: Callable[[], dict[str, Any]], found: str
) -> None:
    with refused(Unsupported, found=found):
        opened_dataset(root, **arguments()).jax_sampler(8)


def test_rows_and_slices_that_cannot_be_drawn_are_refused(root: Path) -> None:
    replay = opened_dataset(root)
    for arguments in ((0,), (8, 3)):
        with pytest.raises(UsageError):
            replay.jax_sampler(*arguments)
    with refused(Unsupported, argument="format", found="float64"):
        replay.jax_sampler(8)
    cast = replay.with_format("jax", cast=True)
    with refused(WrongSize, argument="slice_len", found=13):
        cast.jax_sampler(13, 1)
    with pytest.raises(EmptyBuffer):
        cast.filter("length > 100").jax_sampler(8)


def test_compressed_frames_are_refused(tmp_path: Path) -> None:
    write(CompactWriter, tmp_path / "datasets/test/rows", pixel_rows(LENGTHS))
    with refused(Unsupported, found="compressed frames"):
        opened_dataset(tmp_path).jax_sampler(8)
    with refused(Unsupported, found="FrameStack"):
        opened_dataset(tmp_path, frame_stack=2).jax_sampler(8)


def test_rows_that_do_not_fit_are_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets_cli.core.system_errors.SMALL_BYTES", 100)
    monkeypatch.setattr("datasets_cli.core.system_errors.free_memory", lambda: 400)
    with refused(WrongSize, expected="200 bytes at most", found=248):
        opened_dataset(root, columns=["action"]).with_format("jax", cast=True).jax_sampler(8)
