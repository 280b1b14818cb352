"""Where trajectories end, by numbers of steps that come in runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets_cli import create_dataset, import_dataset
from datasets_cli.config import Config
from datasets_cli.errors import WrongRows
from datasets_cli.exchange.steps import ends_of, episode_lengths

LENGTHS = st.lists(st.integers(1, 4), min_size=1, max_size=6)


@given(lengths=LENGTHS, cuts=st.lists(st.integers(0, 24), max_size=4))
def test_lengths_are_the_same_for_any_runs(lengths: list[int], cuts: list[int]) -> None:
    numbers = np.repeat([7, -1, 3, 0, 9, 5][: len(lengths)], lengths)
    told = episode_lengths(np.split(numbers, sorted(min(cut, len(numbers)) for cut in cuts)))
    assert told.tolist() == lengths
    assert np.flatnonzero(ends_of(told)).tolist() == (np.cumsum(lengths) - 1).tolist()


@given(cut=st.integers(0, 5))
def test_a_number_of_steps_that_are_not_consecutive_is_rejected_across_runs(cut: int) -> None:
    with pytest.raises(WrongRows) as raised:
        episode_lengths(np.split(np.array([1, 1, 2, 2, 1]), [cut]))
    assert (raised.value.key, raised.value.found) == (("episode",), 1)


@pytest.mark.parametrize("flag", ["terminated", "truncated", "ends"])
@pytest.mark.parametrize(("value", "dtype"), [(0.5, "float64"), (2, "int64"), (np.nan, "float32")])
@pytest.mark.parametrize("call", ["create_dataset", "import_dataset"])
def test_a_value_other_than_0_and_1_is_named_with_its_dtype(
    call: str, flag: str, value: float, dtype: str, config: Config, tmp_path: Path
) -> None:
    flags = np.where(np.arange(8) == 2, value, 0).astype(dtype)  # at the end of a trajectory
    rows = {"observation": np.zeros((8, 1)), "action": np.zeros(8), "reward": np.zeros(8)}
    lengths = {"lengths": np.array([3, 5])} if flag != "ends" else {}
    np.savez(path := tmp_path / "steps.npz", **{**rows, **lengths, flag: flags})
    with pytest.raises(WrongRows) as raised:
        if call == "import_dataset":
            import_dataset(path, "mine/x", config=config)
        elif flag == "ends":
            create_dataset("mine/x", rows, ends=flags, config=config)
        else:
            create_dataset("mine/x", {**rows, flag: flags}, config=config, **lengths)
    assert raised.value.found == f"{value} ({dtype}) in row 2"
    assert not (config.root / "datasets").exists()
