"""Actions and rewards that are NaN or infinite: counted in one warning, or refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datasets_cli import DatasetWriter, create_dataset, import_dataset
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import UsageError, WrongRows

ROWS = {name: np.zeros((70_000, 1)) for name in ("observation", "action", "reward")}
"""More rows than a block has."""


def with_holes() -> dict[str, Any]:
    rows = {name: values.copy() for name, values in ROWS.items()}
    rows["observation"][3] = np.nan  # may mean that a sensor was off
    rows["action"][66_000:66_002], rows["reward"][66_001:69_000:1_000] = np.inf, np.nan
    return rows


def create(rows: dict[str, Any], config: Config, folder: Path, **options: Any) -> None:
    create_dataset("mine/x", rows, lengths=[40_000, 30_000], config=config, **options)


def write(rows: dict[str, Any], config: Config, folder: Path, **options: Any) -> None:
    with DatasetWriter("mine/x", config=config, **options) as writer:
        for part in (slice(0, 40_000), slice(40_000, None)):
            steps = {name: values[part] for name, values in rows.items()}
            writer.add_episode({**steps, "truncated": True})


def read(rows: dict[str, Any], config: Config, folder: Path, **options: Any) -> None:
    np.savez(folder / "x.npz", **rows, lengths=[40_000, 30_000])
    import_dataset(folder / "x.npz", "mine/x", config=config, **options)


def command(rows: dict[str, Any], config: Config, folder: Path, **options: Any) -> None:
    np.savez(folder / "x.npz", **rows, lengths=[40_000, 30_000])
    flags = [f"--{name}" for name in options]
    code = main(["import", str(folder / "x.npz"), "--name", "mine/x", "--yes", *flags])
    if code:
        raise UsageError(str(code))


CALLS = pytest.mark.parametrize("call", [create, write, read, command])


@CALLS
def test_they_are_counted_in_one_warning_with_the_first_step(
    call: Callable[..., None], config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call(with_holes(), config, tmp_path)
    [told] = [line for line in capsys.readouterr().err.splitlines() if "infinite" in line]
    # Two actions and three rewards in four steps.
    assert "4 steps: action is inf in step 66,000;" in told
    assert ("--strict" if call is command else "strict=True") in told


@CALLS
def test_strict_refuses_them_and_takes_others(
    call: Callable[..., None], config: Config, tmp_path: Path
) -> None:
    with pytest.raises(UsageError):
        call(with_holes(), config, tmp_path, strict=True)
    assert not (config.root / "datasets").exists()
    call(ROWS, config, tmp_path, strict=True)


def test_numbers_of_dtypes_that_numpy_lacks_are_checked(config: Config, tmp_path: Path) -> None:
    half = np.full(70_000, 0x7F80, "<u2").view([("bfloat16", "<u2")])  # infinite
    with pytest.raises(WrongRows) as raised:
        create({**ROWS, "action": half}, config, tmp_path, strict=True)
    assert (raised.value.key, raised.value.row) == (("action",), 0)
