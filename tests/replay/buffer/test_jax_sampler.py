"""Batches drawn on JAX's device are rows of the dataset, value by value, and slices end in time."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from datasets_cli import DoubleToFloat, ExperienceReplay, PrioritizedSampler, RandomSampler
from datasets_cli.errors import EmptyBuffer, Unsupported, UsageError, WrongSize
from datasets_cli.replay.batches.jax import RowWords, _below
from datasets_cli.schema.columns import Key
from datasets_cli.schema.tree import leaves_in
from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.ted_writer import TedWriter
from tests.store.test_compact import pixel_rows, transitions, write
from tests.support.refusals import refused

LENGTHS = [9, 4, 12, 6]
ROWS = transitions(LENGTHS, 0)
REWARD = ROWS["next", "reward"]
COLUMNS = [("next", "reward"), ("next", "done"), ("observation", "uint16")]
EPISODE = np.repeat(np.arange(4), LENGTHS)
LAYOUTS = {"ted": TedWriter, "compact": CompactWriter}
MARKED = {("next", "done"), ("next", "truncated")}


class Goals(RandomSampler):
    def relabel(self, rows: Any, info: Any) -> None:
        """Give rows other goals."""


def install(layout: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp(layout)
    write(LAYOUTS[layout], root / "datasets" / "test" / "rows", ROWS)
    return root


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install("compact", tmp_path_factory)


def opened(root: Path, **arguments: Any) -> ExperienceReplay:
    arguments = {"root": root, "download": False, "batch_size": 8} | arguments
    return ExperienceReplay("test/rows", **arguments)


def assert_rows(batch: Any, rows: np.ndarray, besides: Collection[Key] = ()) -> None:
    """Compare a batch with what was written: values, shapes and types, as jax canonicalizes."""
    given = dict(leaves_in(batch))
    expected = ROWS | {("episode",): EPISODE, ("index",): np.arange(len(EPISODE))}
    assert given.keys() == expected.keys()
    for key in given.keys() - {*besides}:
        right = expected[key][rows]
        right = right.astype(jax.dtypes.canonicalize_dtype(right.dtype))
        assert isinstance(given[key], jax.Array) and given[key].dtype == right.dtype, key
        np.testing.assert_array_equal(given[key], right, err_msg=str(key))


@pytest.mark.parametrize(("layout", "has_64_bits"), [("compact", False), ("ted", True)])
def test_batches_are_rows_of_the_dataset_whatever_their_types(
    layout: str, has_64_bits: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = install(layout, tmp_path_factory)
    with jax.enable_x64(has_64_bits):
        sample = opened(root).with_format("jax", cast=True).jax_sampler(40)
        batch = sample(jax.random.key(0))
        assert_rows(batch, np.asarray(batch["index"]))
    drawn = np.unique(np.asarray(batch["index"]))
    assert len(drawn) > 10 and drawn.min() >= 0 and drawn.max() < sum(LENGTHS)


def test_batches_drawn_in_a_scan_are_those_of_their_keys(root: Path) -> None:
    sample = opened(root, columns=COLUMNS).jax_sampler(5)
    keys = jax.random.split(jax.random.key(1), 4)
    scan = jax.jit(
        lambda sample, keys: jax.lax.scan(lambda _, key: (None, sample(key)), None, keys)
    )
    batches = scan(sample, keys)[1]
    for number, key in enumerate(keys):
        index = np.asarray(sample(key)["index"])
        np.testing.assert_array_equal(batches["index"][number], index)
        np.testing.assert_array_equal(batches["next"]["reward"][number], REWARD[index])


def test_each_row_is_drawn_as_often_as_others(root: Path) -> None:
    sample = opened(root, columns=["episode"]).jax_sampler(31_000)
    counts = np.bincount(sample(jax.random.key(2))["index"], minlength=31)
    assert len(counts) == 31 and abs(counts - 1000).max() < 6 * 31.1  # six deviations


def test_slices_are_runs_within_trajectories_drawn_as_slice_sampler_draws_them(root: Path) -> None:
    sample = opened(root).with_format("jax", cast=True).jax_sampler(12_000, num_slices=2_000)
    batch = sample(jax.random.key(3))
    assert_rows(batch, index := np.asarray(batch["index"]), MARKED)
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
    replay = opened(root, columns=["episode"])
    batch = replay.jax_sampler(8, 2)(jax.random.key(0))
    expected = opened(root, columns=["episode"], num_slices=2, batch_size=8).sample()
    assert {key for key, _ in leaves_in(batch)} == {
        key if isinstance(key, tuple) else (key,) for key in expected.keys(True, True)
    }
    for name in ("done", "terminated", "truncated"):
        np.testing.assert_array_equal(batch["next"][name], expected["next", name])


def test_a_view_gives_its_own_rows(root: Path) -> None:
    view = opened(root, columns=COLUMNS).episodes_at([2, 1])
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
        opened(root, **arguments()).jax_sampler(8)


def test_goals_are_refused(root: Path) -> None:
    replay = opened(root)
    replay.set_sampler(Goals())
    with refused(Unsupported, found="goals"):
        replay.jax_sampler(8)


def test_rows_and_slices_that_cannot_be_drawn_are_refused(root: Path) -> None:
    replay = opened(root)
    for arguments in ((0,), (8, 3)):
        with pytest.raises(UsageError):
            replay.jax_sampler(*arguments)
    with pytest.raises(Unsupported) as caught:
        replay.jax_sampler(8)
    assert (caught.value.argument, caught.value.found) == ("format", "float64")
    cast = replay.with_format("jax", cast=True)
    with refused(WrongSize, argument="slice_len", found=13):
        cast.jax_sampler(13, 1)
    with pytest.raises(EmptyBuffer):
        cast.filter("length > 100").jax_sampler(8)


def test_compressed_frames_are_refused(tmp_path: Path) -> None:
    write(CompactWriter, tmp_path / "datasets/test/rows", pixel_rows(LENGTHS))
    with refused(Unsupported, found="compressed frames"):
        opened(tmp_path).jax_sampler(8)
    with refused(Unsupported, found="FrameStack"):
        opened(tmp_path, frame_stack=2).jax_sampler(8)


def test_rows_that_do_not_fit_are_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets_cli.core.system_errors.SMALL_BYTES", 100)
    monkeypatch.setattr("datasets_cli.core.system_errors.free_memory", lambda: 400)
    with refused(WrongSize, expected="200 bytes at most", found=248):
        opened(root, columns=["action"]).with_format("jax", cast=True).jax_sampler(8)
