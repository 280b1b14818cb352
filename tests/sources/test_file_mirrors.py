"""A mirror that has a publisher's files, but not its lists of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from datasets_cli.catalogue.entries import load_recipe
from datasets_cli.config import Config
from datasets_cli.errors import NetworkError, OfflineError
from datasets_cli.recipe import Resource
from datasets_cli.sources.http import Http
from tests.support.origin import Fault, Origin, closed_port_url

FILES = {
    "atari_dqn/Pong/5~ckpt0-1": "atari-replay-datasets/dqn/Pong/5/replay_logs/",
    "atari_dqn/Pong/5~unplugged": "rl_unplugged/atari_episodes_ordered/Pong/",
    "minari/D4RL/door/human-v2": "datasets/farama-minari/D4RL/",
}


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> str:
    """A publisher whose server does not answer."""
    url = closed_port_url()
    monkeypatch.setattr("datasets_cli.sources.buckets.HOST", url)
    monkeypatch.setattr("datasets_cli.recipes.minari.catalogue.HUGGING_FACE", url)
    return url


@pytest.fixture
def mirror() -> Iterator[Origin]:
    """A server with one log of a run of Atari."""
    with Origin() as origin:
        origin.put(f"{FILES['atari_dqn/Pong/5~ckpt0-1']}add_count_ckpt.0.gz", b"")
        yield origin


def resources(id: str, config: Config) -> list[Resource]:
    family, _, name = id.partition("/")
    return load_recipe(family).resources(name, Http(config, retries=0))


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("id", FILES)
def test_it_is_enough_where_the_server_of_the_list_does_not_answer(
    id: str, whole: bool, publisher: str, mirror: Origin, config: Config
) -> None:
    part = "" if whole else FILES[id]
    found = resources(id, replace(config, mirrors=((publisher + part, mirror.url + part),)))
    assert len(found) == {"5~ckpt0-1": 5, "5~unplugged": 50, "human-v2": 2}[id.rpartition("/")[2]]
    assert all(resource.urls[0].startswith(publisher + FILES[id]) for resource in found)


@pytest.mark.parametrize("id", FILES)
def test_without_one_of_these_files_the_failure_of_the_list_stands(
    id: str, publisher: str, mirror: Origin, config: Config
) -> None:
    with pytest.raises(NetworkError) as caught:
        resources(id, replace(config, mirrors=(("https://other/", mirror.url),)))
    assert caught.value.found == "ConnectionRefusedError" and not mirror.requests


def test_a_mirror_that_has_nothing_leaves_the_failure_of_the_list(
    publisher: str, mirror: Origin, config: Config
) -> None:
    mirror.always(f"{FILES['atari_dqn/Pong/5~ckpt0-1']}add_count_ckpt.0.gz", Fault(status=404))
    with pytest.raises(NetworkError) as caught:
        resources("atari_dqn/Pong/5~ckpt0-1", replace(config, mirrors=((publisher, mirror.url),)))
    assert "o?prefix=dqn/Pong" in str(caught.value)


@pytest.mark.parametrize("id", FILES)
def test_offline_mode_is_no_silent_server(
    id: str, publisher: str, mirror: Origin, config: Config
) -> None:
    with pytest.raises(OfflineError):
        resources(id, replace(config, offline=True, mirrors=((publisher, mirror.url),)))
