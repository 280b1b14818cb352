"""Numbers with their nouns."""

from __future__ import annotations

import pytest

from datasets_cli.core.quantities import counted


@pytest.mark.parametrize(
    ("count", "noun", "shown"),
    [
        (1, "trajectory", "1 trajectory"),
        (0, "trajectory", "0 trajectories"),
        (1_200, "row", "1,200 rows"),
        (2, "batch", "2 batches"),
        (3, "key", "3 keys"),
        (2, "index", "2 indexes"),
    ],
)
def test_a_noun_is_in_the_singular_or_the_plural(count: int, noun: str, shown: str) -> None:
    assert counted(count, noun) == shown
