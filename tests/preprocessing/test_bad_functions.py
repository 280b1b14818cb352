"""Functions that raise, change their columns or return NaN: named, and no half dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from datasets_cli import ExperienceReplay
from datasets_cli.errors import RldsError
from datasets_cli.store.check import check_digests


@pytest.fixture
def replay(door: str) -> ExperienceReplay:
    return ExperienceReplay(door, download=False)


def raises(batch: TensorDict) -> TensorDict:
    if int(batch["episode"][0]) == 3:
        raise ValueError("the fourth")
    return batch


def changes(batch: TensorDict) -> TensorDict:
    return batch if int(batch["episode"][0]) != 3 else batch.exclude("action")


BAD: dict[str, tuple[Any, str]] = {
    "raises": (raises, r"rows 897 to 1195 .*\(trajectory 3\): ValueError: .* line \d+, in raises"),
    "a lambda": (lambda batch: raises(batch.clone()), r"\(trajectory 3\): ValueError: the fourth"),
    "changes": (
        changes,
        r"for rows 897 to 1195 of .* \(trajectory 3\), action is None, but for the first ",
    ),
}


@pytest.mark.parametrize(("function", "message"), BAD.values(), ids=BAD.keys())
def test_a_bad_function_in_a_process_is_named_and_leaves_no_dataset(
    function: Any, message: str, replay: ExperienceReplay, tmp_path: Path
) -> None:
    with pytest.raises(RldsError, match=message):
        replay.preprocess(function, dest=tmp_path / "out", num_workers=1, chunksize=1)
    assert not (tmp_path / "out").exists()
    check_digests(replay.data_path, replay.manifest)  # the source is as it was


def test_nan_is_a_value_and_leaves_the_other_statistics_right(
    replay: ExperienceReplay, tmp_path: Path
) -> None:
    def broken_reward(batch: TensorDict) -> TensorDict:
        if int(batch["episode"][0]) == 3:
            batch["next", "reward"][7] = torch.nan
        return batch

    storage = replay.preprocess(broken_reward, dest=tmp_path / "out", num_workers=0, chunksize=1)
    reward = storage.column(("next", "reward"))
    assert torch.isnan(reward).nonzero().tolist() == [[897 + 7, 0]]
    statistics = storage.dataset.manifest.statistics
    lengths = np.diff(replay.storage.offsets)
    assert statistics["length"]["mean"] == lengths.mean()
    nothing = dict.fromkeys(("min", "max", "mean", "std"))
    assert statistics["reward"] == statistics["return"] == nothing  # JSON has no NaN
