"""Each flag gives the values of a slow loop over the published file; frames those of Pillow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from datasets_cli import ExperienceReplay, ObservationNorm, convert, open_dataset
from datasets_cli.cli.main import main
from datasets_cli.errors import UsageError, WrongSize
from datasets_cli.preprocessing.columns import KnownColumns
from datasets_cli.project import Pipeline
from datasets_cli.replay.transforms import scaling
from datasets_cli.schema.columns import Column
from datasets_cli.store.check import check_digests
from datasets_cli.store.manifest import Manifest
from tests.support.conformance import case_of
from tests.support.d4rl_cuts import CUTS
from tests.support.refusals import refused
from tests.support.values import expect, read_source

Leaves = dict[str, np.ndarray]
"""Columns by their names with dots."""

ENDS = ("done", "terminated", "truncated")
FLAGS = {*ENDS, *(f"next.{flag}" for flag in ENDS)}


def read_rows() -> Leaves:
    """Return the rows of the published file that an independent reader finds."""
    leaves = expect(read_source(CUTS["hopper-medium-v2"].path)).leaves
    return {".".join(key): values for key, values in leaves.items()}


def returns_to_go(rows: Leaves, gamma: float) -> np.ndarray:
    found, later = np.zeros((len(rows["next.reward"]), 1)), 0.0
    for row in range(len(found) - 1, -1, -1):
        later = float(rows["next.reward"][row, 0]) + gamma * (
            0.0 if rows["next.done"][row, 0] else later
        )
        found[row] = later
    return found


def n_steps(rows: Leaves, size: int, gamma: float) -> Leaves:
    """Return the rows that span several steps, as a loop makes them."""
    count = len(rows["action"])
    found = {name: values.copy() for name, values in rows.items()}
    found["next.original_reward"] = rows["next.reward"].copy()
    found["steps_to_next_obs"] = np.zeros(count, np.int64)
    found["gamma"] = np.zeros(count, np.float32)
    found["nonterminal"] = np.zeros(count, bool)
    for row in range(count):
        last, total = row, 0.0
        while True:
            total += gamma ** (last - row) * float(rows["next.reward"][last, 0])
            if last == row + size - 1 or rows["next.done"][last, 0]:
                break
            last += 1
        found["next.reward"][row] = total
        for name in ("next.observation", "next.terminated"):
            found[name][row] = rows[name][last]
        found["steps_to_next_obs"][row] = last - row + 1
        found["gamma"][row] = gamma ** (last - row + 1)
        found["nonterminal"][row] = not rows["next.done"][row, 0]
    return found


def normalised(rows: Leaves, name: str) -> Leaves:
    """Return rows whose column and its successor have the first one's mean 0 and deviation 1."""
    source = rows[name].astype(np.float64)
    mean = source.sum(0) / len(source)
    deviation = np.sqrt(((source - mean) ** 2).sum(0) / (len(source) - 1))
    found = dict(rows)
    for key in (name, f"next.{name}"):
        if key in rows:
            scaled = (rows[key].astype(np.float64) - mean) / deviation
            found[key] = scaled.astype(rows[key].dtype)
    return found


def made(flags: str, id: str, *more: str) -> Leaves:
    assert main(["preprocess", id, *flags.split(), *more, "--name", "x", "--workers", "0"]) == 0
    dataset = open_dataset("derived/x").dataset
    check_digests(dataset.folder, dataset.manifest)
    storage = open_dataset("derived/x")
    return {".".join(key): storage.column(key).numpy() for key in dataset.keys}


def assert_rows(found: Leaves, expected: Leaves, tolerance: float = 0.0) -> None:
    assert {name: (rows.dtype, rows.shape) for name, rows in found.items()} == {
        name: (rows.dtype, rows.shape) for name, rows in expected.items()
    }
    for name, rows in expected.items():
        assert np.allclose(found[name], rows, rtol=tolerance, atol=tolerance), name


def only(rows: Leaves, names: set[str]) -> Leaves:
    return {name: values for name, values in rows.items() if name in names}


def without(rows: Leaves, *names: str) -> Leaves:
    return {name: values for name, values in rows.items() if name not in names}


def cast(rows: Leaves, dtype: str) -> Leaves:
    return {
        name: values.astype(dtype) if values.dtype.kind == "f" else values
        for name, values in rows.items()
    }


def renamed(rows: Leaves) -> Leaves:
    names = {"observation": "state", "info.qpos": "body.qpos", "info.qvel": "body.qvel"}
    names["info.action_log_probs"] = "body.action_log_probs"
    return {names.get(name, name): values for name, values in rows.items()}


def with_returns(rows: Leaves, gamma: float) -> Leaves:
    return rows | {"returns_to_go": returns_to_go(rows, gamma).astype(np.float32)}


CALLS: dict[str, tuple[Callable[[Leaves], Leaves], float]] = {
    "--cast float32": (lambda rows: cast(rows, "float32"), 0),
    "--cast float64,action=float16 --cast info.qpos=float32": (
        lambda rows: (
            cast(without(rows, "action", "info.qpos"), "float64")
            | {"action": rows["action"].astype("float16")}
            | {"info.qpos": rows["info.qpos"].astype("float32")}
        ),
        0,
    ),
    "--cast episode=int32": (lambda rows: rows | {"episode": rows["episode"].astype("int32")}, 0),
    "--select observation,action": (
        lambda rows: only(rows, FLAGS | {"observation", "action", "next.reward"}),
        0,
    ),
    "--exclude info,episode --exclude next.observation": (
        lambda rows: only(rows, FLAGS | {"observation", "action", "next.reward"}),
        0,
    ),
    "--rename observation=state --rename info=body": (renamed, 0),
    "--normalise observation": (lambda rows: normalised(rows, "observation"), 2e-5),
    "--normalise info,action": (
        lambda rows: normalised(
            normalised(
                normalised(normalised(rows, "info.qpos"), "info.qvel"), "info.action_log_probs"
            ),
            "action",
        ),
        2e-5,
    ),
    "--returns-to-go": (lambda rows: with_returns(rows, 1.0), 1e-5),
    "--returns-to-go --gamma 0.9": (lambda rows: with_returns(rows, 0.9), 1e-5),
    "--n-step 3 --gamma 0.99": (lambda rows: n_steps(rows, 3, 0.99), 1e-6),
    "--n-step 1 --gamma 1": (lambda rows: n_steps(rows, 1, 1.0), 0),
    "--n-step 1000 --gamma 0.5": (lambda rows: n_steps(rows, 1000, 0.5), 1e-6),
}


@pytest.mark.parametrize("flags", CALLS)
def test_every_value_is_that_of_a_loop_over_the_file(hopper: str, flags: str) -> None:
    expect, tolerance = CALLS[flags]
    assert_rows(made(flags, hopper), expect(read_rows()), tolerance)


def test_steps_are_done_in_one_order_however_they_are_given(hopper: str) -> None:
    flags = (
        "--rename observation=state --select observation,next.observation,action --cast float16 "
        "--n-step 2 --gamma 0.9 --returns-to-go --normalise observation"
    )
    rows = normalised(read_rows(), "observation")
    togo = with_returns(rows, 0.9)  # of the rewards before they are summed over two steps
    rows = n_steps(rows, 2, 0.9) | {"returns_to_go": togo["returns_to_go"]}
    rows = cast(without(rows, "info.qpos", "info.qvel", "info.action_log_probs"), "float16")
    rows = without(rows | {"state": rows["observation"]}, "observation", "episode")
    assert_rows(made(flags, hopper), rows, 2e-3)


def test_what_is_added_can_be_cast_dropped_and_named(hopper: str) -> None:
    flags = "--n-step 2 --gamma 0.9 --cast gamma=float64 --exclude nonterminal --rename gamma=g"
    rows = n_steps(read_rows(), 2, 0.9)
    rows = without(rows | {"g": rows["gamma"].astype(np.float64)}, "gamma", "nonterminal")
    assert_rows(made(flags, hopper), rows, 1e-6)


def test_two_workers_another_chunk_size_and_the_other_layout_give_the_same_bytes(
    hopper: str, tmp_path: Path
) -> None:
    steps = Pipeline(normalise="observation", returns_to_go=True, n_step=3, gamma=0.9)

    def files(name: str, **arguments: int) -> object:
        replay = ExperienceReplay(hopper)
        made = replay.preprocess(steps, dest=tmp_path / name, layout="ted", **arguments)
        return made.dataset.manifest.files

    alone = files("alone", num_workers=0)
    assert files("two", num_workers=2) == alone
    assert ExperienceReplay(hopper).manifest.layout == "ted"
    convert(hopper, "compact")
    assert files("other", num_workers=0, chunksize=10_000) == alone


def test_statistics_are_of_the_rows_that_are_read(hopper: str) -> None:
    rows = read_rows()
    second = {name: values[470:] for name, values in rows.items()}
    found = made("--normalise observation", hopper, "--where", "length < 450")
    assert np.allclose(found["observation"].mean(0), 0, atol=1e-4)
    assert_rows(found, normalised(second, "observation"), 2e-5)


def test_statistics_of_the_first_rows_are_those_of_the_first_rows(hopper: str) -> None:
    first = {name: values[:300].copy() for name, values in read_rows().items()}
    first["next.done"][-1] = first["next.truncated"][-1] = True  # the trajectory is cut there
    assert_rows(
        made("--normalise observation --num 300", hopper),
        normalised(first, "observation"),
        2e-5,
    )


def frames_of_the_file() -> np.ndarray:
    """Return the frames ``[n, 84, 84]`` that an independent reader finds."""
    return case_of("atari_dqn").expected().leaves["observation",]


def resized(frames: np.ndarray, height: int, width: int) -> np.ndarray:
    """Return what Pillow makes of frames, the widths first."""
    small = []
    for frame in frames:
        wide = Image.fromarray(frame).resize((width, frame.shape[0]), Image.Resampling.BILINEAR)
        small.append(np.asarray(wide.resize((width, height), Image.Resampling.BILINEAR)))
    return np.stack(small)


@pytest.fixture(params=["ted", "compact"])
def pong(request: pytest.FixtureRequest) -> str:
    assert main(["download", "demo/pong", "--layout", request.param, "-q"]) == 0
    return "demo/pong"


def test_frames_are_cropped_and_then_resized_as_by_pillow(pong: str) -> None:
    call = ["preprocess", pong, "--resize", "64x48", "--crop", "80x60", "--name", "x"]
    assert main([*call, "--workers", "0", "--num", "200"]) == 0
    expected = resized(frames_of_the_file()[:200, 2:82, 12:72], 64, 48)
    found = open_dataset("derived/x").column(("observation",)).numpy()
    assert found.dtype == np.uint8 and np.array_equal(found, expected)
    after = open_dataset("derived/x").column(("next", "observation")).numpy()
    same = ~open_dataset("derived/x").column(("next", "done")).numpy()[:-1, 0]
    assert np.array_equal(after[:-1][same], expected[1:][same]) and same.sum() > 100


@pytest.mark.parametrize(
    ("shape", "channels_last"),
    [
        ((84, 84), False),
        ((9, 4), False),
        ((4, 84, 84), False),
        ((84, 84, 3), True),
        ((10, 64, 48), False),
    ],
)
def test_where_channels_are_is_told_by_the_shape(
    shape: tuple[int, ...], channels_last: bool
) -> None:
    assert columns_of("uint8", shape).frames("resize") == {channels_last: [("pixels",)]}


def columns_of(dtype: str, shape: tuple[int, ...]) -> KnownColumns:
    column = Column(("pixels",), dtype, shape)
    return KnownColumns(Manifest("toy/frames", "ted", 1, 1, (column,), {}))


@pytest.mark.parametrize(
    ("dtype", "shape", "found"),
    [
        ("uint8", (3, 64, 3), [3, 64, 3]),
        ("uint8", (84,), ""),
        ("float32", (84, 84), "pixels float32 [84, 84]"),
        ("uint8", (4, 3, 84, 84), "pixels uint8 [4, 3, 84, 84]"),
    ],
)
def test_columns_that_are_not_frames_are_refused(
    dtype: str, shape: tuple[int, ...], found: object
) -> None:
    with refused(UsageError, argument="resize", found=found):
        columns_of(dtype, shape).frames("resize")


def test_frames_that_get_another_size_are_not_normalised_in_the_same_call(
    pong: str, tmp_path: Path
) -> None:
    replay, dest = ExperienceReplay(pong), tmp_path / "x"
    with refused(UsageError, argument="normalise", key=("observation",)):
        replay.preprocess(Pipeline(resize="64x64", normalise="observation"), dest=dest)
    with refused(WrongSize, key=("next", "observation"), found=84):
        replay.preprocess(Pipeline(crop="90x90"), dest=dest, num_workers=0)


def test_bytes_that_are_normalised_become_floats(pong: str) -> None:
    call = ["preprocess", pong, "--normalise", "observation", "--num", "50", "--name", "x"]
    assert main([*call, "--workers", "0"]) == 0
    frames = frames_of_the_file()[:50].astype(np.float64)
    varies = frames.std(0, ddof=1) > 0
    expected = (frames - frames.mean(0))[:, varies] / frames.std(0, ddof=1)[varies]
    found = open_dataset("derived/x").column(("observation",)).numpy()
    assert found.dtype == np.float32
    assert np.allclose(found[:, varies], expected, atol=1e-3)
    assert np.allclose(found[:, ~varies], 0)


def test_wide_rows_are_summed_up_a_few_at_a_time(
    pong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = ExperienceReplay(pong)
    whole = ObservationNorm.from_dataset(frames, ["observation"])
    monkeypatch.setattr(scaling, "CHUNK_NUMBERS", 84 * 84 * 100)
    parts = ObservationNorm.from_dataset(frames, ["observation"])
    assert torch.allclose(parts.loc, whole.loc) and torch.allclose(parts.scale, whole.scale)
