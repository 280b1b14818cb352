"""A small dataset to query, that no test writes to."""

from __future__ import annotations

import pytest

from datasets_cli import ExperienceReplay
from tests.replay.views.conftest import install


@pytest.fixture(scope="session", params=["ted", "compact"])
def replay(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> ExperienceReplay:
    root = tmp_path_factory.mktemp("queried")
    return ExperienceReplay(install(root, request.param), 6, root=root, download=False, text=True)
