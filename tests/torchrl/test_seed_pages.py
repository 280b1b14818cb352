"""The examples of TorchRL's pages on datasets and their buffers, with only the imports changed.

The examples stand as the pages have them, with small data in place of downloads. What a page prints
is compared as keys, shapes, element types and batch sizes (``tests/pages.py``). All differences:

- flags are bool ``[N, 1]``; the page prints uint8 ``[N]`` for Atari, below ``next`` too where it
  samples single rows, and none at the root for Minari;
- a reward is ``[N, 1]``; the page prints ``[N]`` for Atari;
- every dataset has ``episode``; the page prints none for Atari;
- ``metadata`` of a dataset is its attribute, and no entry of each batch;
- of a run cut by ``_max_runs``, the id says which part it is;
- a dataset keeps no group that has become empty, as ``observation`` does on the page;
- a buffer over what ``preprocess`` made refuses to be written to;
- ``mp_start_method="fork"`` is warned of.
"""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from datasets_cli import (
    AtariDQNExperienceReplay,
    CatTensors,
    Compose,
    MinariExperienceReplay,
    ReplayBuffer,
    ReplayBufferEnsemble,
)
from datasets_cli.config import Config
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.schema.columns import show_key
from tests.conftest import DEMO
from tests.support import minari_files
from tests.support.minari_files import box
from tests.support.pages import printed, printed_storage

LOGS = str(DEMO / "atari_dqn" / "Pong" / "5" / "replay_logs")


@pytest.fixture
def atari(config: Config) -> None:
    install_dataset("demo/pong", config)


def batch_of(*size: int) -> dict[str, str]:
    """What the Atari page prints for a batch, but for the differences."""
    lead = ", ".join(map(str, size))
    flag, number, screen = f"bool [{lead}, 1]", f"int64 [{lead}]", f"uint8 [{lead}, 84, 84]"
    return {
        "": f"[{lead}]",
        "action": f"int32 [{lead}]",
        "done": flag,  # the page: uint8 [N]
        "episode": number,  # not on the page
        "index": number,
        "next": f"[{lead}]",
        "next.done": flag,
        "next.observation": screen,
        "next.reward": f"float32 [{lead}, 1]",  # the page: [N]
        "next.terminated": flag,
        "next.truncated": flag,
        "observation": screen,
        "terminated": flag,  # the page: uint8 [N]
        "truncated": flag,  # the page: uint8 [N]
    }


def index_of(*size: int) -> dict[str, str]:
    """What it prints for the ``index`` of a batch of several datasets."""
    lead = list(size)
    return {
        "index": f"{lead}",
        "index.buffer_ids": f"int64 {lead}",
        "index.index": f"int64 {lead}",
    }


@pytest.mark.usefixtures("atari")
def test_a_run_of_atari_is_iterated(capsys: pytest.CaptureFixture[str]) -> None:
    dataset = AtariDQNExperienceReplay("demo/pong", batch_size=128)
    for data in dataset:
        print(data)
        break
    assert printed(capsys.readouterr().out) == batch_of(128)
    # The page's "metadata" is of the dataset.
    assert dataset.dataset_id == "demo/pong" and "checkpoints" in dataset.metadata
    assert dataset.episodes.shape == (len(dataset),)
    assert {"Pong/5", "Krull/2"} <= set(AtariDQNExperienceReplay.available_datasets)


def test_two_datasets_are_sampled_as_one(
    config: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first_two = InstallOptions(source=LOGS, accept_any=True, options={"checkpoints": "0:2"})
    for name in ("Pong/5", "Asterix/5"):  # the same bytes serve for both
        install_dataset(f"atari_dqn/{name}", config, first_two)
    monkeypatch.setattr(AtariDQNExperienceReplay, "_max_runs", None)  # set back afterwards
    # we change this parameter for quick experimentation, in practice it should be left untouched
    AtariDQNExperienceReplay._max_runs = 2
    dataset_asterix = AtariDQNExperienceReplay(
        "Asterix/5", batch_size=128, slice_len=64, num_procs=4
    )
    dataset_pong = AtariDQNExperienceReplay("Pong/5", batch_size=128, slice_len=64, num_procs=4)
    dataset = ReplayBufferEnsemble(
        dataset_pong, dataset_asterix, batch_size=128, sample_from_all=True
    )
    sample = dataset.sample()
    print("first sample, Asterix", sample[0])
    assert printed(capsys.readouterr().out) == batch_of(64) | index_of(64)
    print("second sample, Pong", sample[1])
    assert printed(capsys.readouterr().out) == batch_of(64) | index_of(64)
    print("Aggregate (metadata hidden)", sample)
    assert printed(capsys.readouterr().out) == batch_of(2, 64) | index_of(2, 64)
    # The page's "metadata" of the parts names these.
    assert dataset[0].dataset_id == "atari_dqn/Pong/5~ckpt0-2"
    assert dataset[1].dataset_id == "atari_dqn/Asterix/5~ckpt0-2"


NUMBERS = (
    *("distance_from_origin", "forward_reward", "reward_ctrl", "reward_forward", "reward_survive"),
    *("x_position", "x_velocity", "y_position", "y_velocity"),
)


@pytest.fixture
def antmaze(config: Config) -> None:
    """50 steps with the columns of the page, under the first id that Minari's catalogue has."""
    rng = np.random.default_rng(0)
    states: dict[str, tuple[int, ...]] = {"goal": (2,), "qpos": (15,), "qvel": (14,)}
    states |= dict.fromkeys(NUMBERS, ())

    def infos(steps: int) -> dict[str, Any]:
        floats = {name: list(rng.random((steps + 1, *row))) for name, row in states.items()}
        return {**floats, "success": list(np.arange(steps + 1) > 5)}

    real = np.float64
    goals = {"achieved_goal": box(2, dtype=real), "desired_goal": box(2, dtype=real)}
    space = spaces.Dict({"observation": box(27, dtype=real), **goals})
    folder = minari_files.build(space, box(8), (30, 20), infos=infos)
    name = MinariExperienceReplay.available_datasets[0]
    minari_files.change_metadata(folder, dataset_id=name)
    install_dataset(f"minari/{name}", config, InstallOptions(source=str(folder), accept_any=True))


def page_of_antmaze(rows: int) -> dict[str, str]:
    number, flag = f"float64 [{rows}]", f"bool [{rows}, 1]"
    found = {"action": f"float32 [{rows}, 8]", "episode": f"int64 [{rows}]"}
    for at in ("", "next."):
        found |= {f"{at}info.{name}": number for name in NUMBERS}
        found |= {
            f"{at}info.goal": f"float64 [{rows}, 2]",
            f"{at}info.qpos": f"float64 [{rows}, 15]",
            f"{at}info.qvel": f"float64 [{rows}, 14]",
            f"{at}info.success": f"bool [{rows}]",
            f"{at}observation.achieved_goal": f"float64 [{rows}, 2]",
            f"{at}observation.desired_goal": f"float64 [{rows}, 2]",
            f"{at}observation.observation": f"float64 [{rows}, 27]",
            # The page prints no flags at the root.
            **{f"{at}{name}": flag for name in ("done", "terminated", "truncated")},
        }
    return {**found, "next.reward": f"float64 [{rows}, 1]"}


@pytest.mark.filterwarnings("ignore:mp_start_method:UserWarning")
@pytest.mark.usefixtures("antmaze")
def test_goals_are_joined_by_preprocessing(capsys: pytest.CaptureFixture[str]) -> None:
    data = MinariExperienceReplay(
        list(MinariExperienceReplay.available_datasets)[0],  # noqa: RUF015
        batch_size=32,
    )
    print(data)
    text = capsys.readouterr().out
    assert text.startswith("MinariExperienceReplay(") and "batch_size=32" in text
    assert "RandomSampler" in text and "ImmutableDatasetWriter" in text
    # The page prints 41 leaves; here the first ones are shown, and how many more there are.
    page = page_of_antmaze(50)
    shown = printed_storage(text)
    assert shown and shown.items() <= page.items() and "more lines" in text
    leaves = {show_key(column.key): column for column in data.manifest.columns}
    assert {
        name: f"{column.dtype} {[50, *column.shape]}" for name, column in leaves.items()
    } == page

    cat_tensors = CatTensors(
        in_keys=[
            ("observation", "observation"),
            ("observation", "achieved_goal"),
            ("observation", "desired_goal"),
        ],
        out_key="obs",
    )
    cat_next_tensors = CatTensors(
        in_keys=[
            ("next", "observation", "observation"),
            ("next", "observation", "achieved_goal"),
            ("next", "observation", "desired_goal"),
        ],
        out_key=("next", "obs"),
    )
    t = Compose(cat_tensors, cat_next_tensors)

    def func(td):  # type: ignore[no-untyped-def]
        td = td.select(
            "action",
            "episode",
            ("next", "done"),
            ("next", "observation"),
            ("next", "reward"),
            ("next", "terminated"),
            ("next", "truncated"),
            "observation",
        )
        td = t(td)
        return td  # noqa: RET504

    with TemporaryDirectory() as tmpdir:
        new_storage = data.preprocess(
            func, num_workers=4, pbar=True, mp_start_method="fork", dest=tmpdir
        )
        rb = ReplayBuffer(storage=new_storage)
        print(rb)
        rows, source = rb[:], data[:]
    text = capsys.readouterr().out
    flags = {f"next.{name}": "bool [50, 1]" for name in ("done", "terminated", "truncated")}
    assert printed_storage(text) == {
        "action": "float32 [50, 8]",
        "episode": "int64 [50]",
        "obs": "float64 [50, 31]",  # the page has an empty group "observation" beside it
        "next.obs": "float64 [50, 31]",
        "next.reward": "float64 [50, 1]",
        **flags,
    }
    assert text.startswith("ReplayBuffer(") and "batch_size=None" in text
    assert "RandomSampler" in text and "ImmutableDatasetWriter" in text  # the page: RoundRobin
    # CatTensors sorts its keys, as TorchRL's does.
    for at in ((), ("next",)):
        parts = [
            source[(*at, "observation", name)]
            for name in ("achieved_goal", "desired_goal", "observation")
        ]
        assert torch.equal(rows[(*at, "obs")], torch.cat(parts, -1))
