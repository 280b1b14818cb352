"""Datasets that mixtures are made of."""

from __future__ import annotations

import pytest

from datasets_cli.replay.storages.dataset import DatasetStorage
from tests.support.mixture_members import member

LENGTHS = [[7, 12, 5], [30], [4, 9, 11, 6, 20, 8], [3, 3]]


@pytest.fixture(scope="session")
def members(tmp_path_factory: pytest.TempPathFactory) -> list[DatasetStorage]:
    """Datasets of both layouts with 24, 30, 58 and 6 rows; ``mark`` says member and row."""
    folder = tmp_path_factory.mktemp("members")
    layouts = ["compact", "ted", "compact", "compact"]
    return [
        member(folder, number, lengths, layout)
        for number, (lengths, layout) in enumerate(zip(LENGTHS, layouts, strict=True))
    ]
