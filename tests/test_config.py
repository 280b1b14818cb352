"""The configuration: what is not a value is refused by its name."""

from __future__ import annotations

import math

import pytest

from datasets_cli.config import load_config
from datasets_cli.errors import UsageError


@pytest.mark.parametrize("text", ["soon", "-1", "nan", ""])
def test_a_lock_timeout_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"lock timeout .* RLDS_LOCK_TIMEOUT"):
        load_config(environ={"RLDS_LOCK_TIMEOUT": text})


@pytest.mark.parametrize(("text", "seconds"), [("0", 0.0), ("2.5", 2.5), ("inf", math.inf)])
def test_a_lock_timeout_is_seconds(text: str, seconds: float) -> None:
    assert load_config(environ={"RLDS_LOCK_TIMEOUT": text}).lock_timeout == seconds
