"""What a call of a function takes: a chunk of whole trajectories, one of them, or any rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from datasets_cli import create_dataset, preprocess, preprocess_columns
from datasets_cli.config import Config
from datasets_cli.errors import UsageError, WrongRows
from datasets_cli.store.dataset import open_dataset
from tests.support.events import Events
from tests.support.refusals import refused

LENGTHS = [50, 1, 7, 42, 50]
ID = "mine/ones"
TO_GO = np.concatenate([np.arange(length, 0, -1) for length in LENGTHS])[:, None]


@pytest.fixture
def source(config: Config) -> str:
    """Trajectories of rewards of 1, with text."""
    number = np.arange(sum(LENGTHS), dtype=np.float32)
    columns = {
        "observation": np.stack((number, -number), 1),
        "next_observation": np.stack((number + 1, -number - 1), 1),
        "action": number,
        "reward": np.ones_like(number),
        "info": {"words": np.array([f"row {n:.0f}" for n in number], object)},
    }
    create_dataset(ID, columns, lengths=LENGTHS, config=config)
    return ID


def to_go(batch: TensorDict) -> TensorDict:
    """As people write it, without a thought of another trajectory."""
    rewards = batch["next", "reward"]
    return TensorDict({"togo": rewards.flip(0).cumsum(0).flip(0)}, batch.batch_size)


def column(config: Config, name: str, key: str = "togo") -> np.ndarray:
    return open_dataset(config.root / "datasets" / "derived" / name).columns((key,))[(key,)].numpy()


@pytest.mark.parametrize("options", [{}, {"chunksize": 60}, {"num_chunks": 3, "num_workers": 2}])
def test_a_function_of_a_trajectory_gets_one_whatever_the_chunks(
    source: str, config: Config, options: dict[str, Any]
) -> None:
    preprocess(source, to_go, "out", per="trajectory", config=config, **options)
    assert np.array_equal(column(config, "out"), TO_GO)


@pytest.mark.parametrize("verb", [preprocess, preprocess_columns])
def test_a_function_of_one_trajectory_that_gets_several_is_refused(
    source: str, config: Config, verb: Callable[..., Any]
) -> None:
    with refused(WrongRows, argument="per", key="togo", row=0, found="150.0", expected="50.0"):
        verb(source, to_go, "out", config=config)
    assert not (config.root / "datasets" / "derived").exists()


def test_a_function_of_frames_gets_whole_trajectories(config: Config) -> None:
    frames = np.zeros((100, 32, 32), np.uint8)
    columns = {"observation": frames, "next_observation": frames, "action": np.zeros(100)}
    create_dataset("mine/film", columns, lengths=[100], layout="compact", config=config)
    lengths = []

    def counted(batch: TensorDict) -> TensorDict:
        lengths.append(len(batch))
        return batch

    preprocess("mine/film", counted, "out", per="trajectory", num_workers=0, config=config)
    assert {*lengths} == {100}


def test_rows_that_depend_on_others_of_the_chunk_are_refused_also_where_some_are_dropped(
    source: str, config: Config
) -> None:
    def first_ten(batch: TensorDict) -> TensorDict:
        return batch[torch.arange(len(batch)) < 10]

    with refused(WrongRows, argument="per", found="dropped", expected="kept"):
        preprocess(source, first_ten, "out", config=config)
    made = preprocess(source, first_ten, "out", per="trajectory", config=config)
    assert made.num_transitions == sum(min(length, 10) for length in LENGTHS)


def split(batch: TensorDict) -> TensorDict:
    """The return to go of a function that tells trajectories apart."""
    ends = batch["next", "done"].flatten().nonzero().flatten() + 1
    parts = batch.tensor_split(ends.tolist()[:-1]) if len(ends) > 1 else [batch]
    return torch.cat([to_go(part) for part in parts])


def network(batch: TensorDict) -> TensorDict:
    """Sums of many numbers, whose order depends on how many rows come at once."""
    torch.manual_seed(0)
    weights = torch.randn(2, 300) @ torch.randn(300, 1)
    return TensorDict({"togo": batch["observation"] @ weights}, batch.batch_size)


@pytest.mark.parametrize("function", [split, network])
def test_a_function_that_tells_trajectories_apart_may_have_several(
    source: str, config: Config, function: Callable[..., Any]
) -> None:
    events = Events()
    preprocess(source, function, "out", progress=events, config=config)
    assert function is network or np.array_equal(column(config, "out"), TO_GO)
    assert not events.notes


def test_a_random_function_is_noted_once_and_not_refused(source: str, config: Config) -> None:
    def noisy(batch: TensorDict) -> TensorDict:
        return TensorDict({"noise": torch.rand(len(batch))}, batch.batch_size)

    events = Events()
    preprocess(source, noisy, "out", chunksize=51, progress=events, config=config)
    assert len(events.notes) == 1 and "random" in events.notes[0]
    assert len(preprocess_columns(source, noisy, "out", config=config).notes) == 1
    for chunksize in (51, 500):  # each trajectory has its own seed
        preprocess(
            source, noisy, f"o{chunksize}", per="trajectory", chunksize=chunksize, config=config
        )
    assert np.array_equal(column(config, "o51", "noise"), column(config, "o500", "noise"))


def test_text_and_columns_that_change_are_those_of_each_trajectory(
    source: str, config: Config, tmp_path: Path
) -> None:
    def named(batch: TensorDict) -> TensorDict:
        first = batch["info", "words"][0]
        return batch.select("action").set("name", [first] * len(batch))

    preprocess(source, named, "out", per="trajectory", config=config)
    rows = open_dataset(config.root / "datasets/derived/out", text=True)
    firsts = np.repeat(np.cumsum([0, *LENGTHS[:-1]]), LENGTHS)
    assert rows.texts is not None
    assert rows.texts.column(("name",)) == [f"row {n}" for n in firsts]

    def changes(batch: TensorDict) -> TensorDict:
        return batch.select("action").double() if len(batch) == 7 else batch.select("action")

    with refused(WrongRows, key="action", found="float64 []", expected="float32 []"):
        preprocess(source, changes, "other", per="trajectory", config=config)


def test_one_tensor_for_all_calls_is_copied(source: str, config: Config) -> None:
    kept = torch.zeros(50)

    def same_memory(batch: TensorDict) -> TensorDict:
        kept[: len(batch)] = batch["action"]
        return TensorDict({"togo": kept[: len(batch)]}, batch.batch_size)

    preprocess(source, same_memory, "out", per="trajectory", config=config)
    assert column(config, "out").tolist() == [*range(sum(LENGTHS))]


def test_another_size_of_chunks_is_the_same_dataset(source: str, config: Config) -> None:
    options: dict[str, Any] = {"per": "trajectory", "config": config}
    preprocess(source, to_go, "out", chunksize=1, **options)
    assert preprocess(source, to_go, "out", chunksize=100, **options).unchanged
    with refused(UsageError, argument="chunksize", found=0):
        preprocess(source, to_go, "out", chunksize=0, **options)
