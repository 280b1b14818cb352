"""The configuration: what is not a value is refused by its name."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from datasets_cli.config import load_config
from datasets_cli.errors import UsageError
from tests.support.refusals import refused


@pytest.mark.parametrize("text", ["soon", "-1", "nan", ""])
def test_a_lock_timeout_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_config(environ={"RLDS_LOCK_TIMEOUT": text})
    assert (caught.value.argument, caught.value.found) == ("lock_timeout", text)


@pytest.mark.parametrize(("text", "seconds"), [("0", 0.0), ("2.5", 2.5), ("inf", math.inf)])
def test_a_lock_timeout_is_seconds(text: str, seconds: float) -> None:
    assert load_config(environ={"RLDS_LOCK_TIMEOUT": text}).lock_timeout == seconds


@pytest.mark.parametrize("text", ["fast", "-1", "nan", "inf", ""])
def test_a_lowest_speed_that_is_none_is_refused(text: str) -> None:
    with refused(UsageError, argument="lowest_speed", found=text):
        load_config(environ={"RLDS_LOWEST_SPEED": text})


def test_a_configuration_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config" / "rlds").mkdir(parents=True)
    os.mkfifo(tmp_path / "config" / "rlds" / "config.toml")
    with refused(UsageError, path=tmp_path / "config" / "rlds" / "config.toml"):
        load_config(environ={})


def test_the_lowest_speed_is_that_of_flag_environment_and_file(tmp_path: Path) -> None:
    assert load_config(environ={}).lowest_speed == 1000.0
    (tmp_path / "config" / "rlds").mkdir(parents=True)
    (tmp_path / "config" / "rlds" / "config.toml").write_text("[core]\nlowest_speed = 3\n")
    assert load_config(environ={}).lowest_speed == 3.0
    environ = {"RLDS_LOWEST_SPEED": "2"}
    assert load_config(environ=environ).lowest_speed == 2.0
    assert load_config(environ=environ, lowest_speed="0").lowest_speed == 0.0


def test_offline_can_be_switched_off_in_words() -> None:
    for word in ("", "0", "False", "no", "off"):
        assert not load_config(environ={"RLDS_OFFLINE": word}).offline


@pytest.mark.parametrize(
    "text",
    [
        *("core = 1", "[core]\nroot = ", 'mirrors = "x"', "[croe]"),
        *('[core]\nrot = "/data"', '[core]\noffline = "false"'),
    ],
)
def test_a_wrong_config_file_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "config" / "rlds").mkdir(parents=True)
    (tmp_path / "config" / "rlds" / "config.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        load_config(environ={})
    assert "config.toml" in str(caught.value)
