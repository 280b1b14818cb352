"""RL Unplugged's bucket: its list by the storage JSON API, and what to do without one."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from datasets_cli.config import Config
from datasets_cli.errors import AccessError, NetworkError, OfflineError, SourceError
from datasets_cli.recipe import Resource
from datasets_cli.recipes.atari_dqn.unplugged_catalogue import GAMES, resources
from datasets_cli.sources.http import Http
from tests.support.origin import Fault, Origin

HOST = "https://storage.googleapis.com/"
LIST = "storage/v1/b/rl_unplugged/o?prefix=atari_episodes_ordered/Pong/run_5-"
NAMES = [f"atari_episodes_ordered/Pong/run_5-{number:05d}-of-00050" for number in range(50)]
Find = Callable[..., list[Resource]]


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin() as origin:
        yield origin


@pytest.fixture
def find(origin: Origin, config: Config) -> Find:
    """Ask for a run's files where the origin stands for Google's, and nothing is asked twice."""
    mirrored = replace(config, mirrors=((HOST, origin.url),))
    http = Http(mirrored, retries=0)
    http.candidates = lambda url: [url.replace(HOST, origin.url)]  # type: ignore[method-assign]
    return lambda game="Pong", run=5: resources(game, run, http)


def item(name: str) -> dict[str, Any]:
    md5 = base64.b64encode(hashlib.md5(name.encode()).digest()).decode()
    return {"kind": "storage#object", "name": name, "size": str(len(name)), "md5Hash": md5}


def put_list(origin: Origin, names: list[str], **extra: Any) -> None:
    page = {"kind": "storage#objects", "items": [item(name) for name in names]} | extra
    origin.put(LIST, json.dumps(page).encode())


def test_there_are_46_games() -> None:
    assert (len(GAMES), len(set(GAMES)), sorted(GAMES)) == (46, 46, list(GAMES))


def test_without_the_network_the_files_have_their_names_alone() -> None:
    found = resources("Pong", 5, None)
    assert [resource.urls for resource in found] == [(f"{HOST}rl_unplugged/{n}",) for n in NAMES]
    assert [resource.filename for resource in found] == [name.split("/")[2] for name in NAMES]
    assert {(item.size, bool(item.checksums), item.magic) for item in found} == {
        (None, False, b"\x1f\x8b")
    }


@pytest.mark.parametrize(("game", "number"), [("Gravitar", 49), ("Zaxxon", 50)])
def test_three_games_have_a_file_less(game: str, number: int) -> None:
    found = resources(game, 1, None)
    assert len(found) == number
    assert found[-1].filename == f"run_1-{number - 1:05d}-of-{number:05d}"


def test_the_list_gives_sizes_and_checksums(origin: Origin, find: Find) -> None:
    put_list(origin, NAMES)
    found = find()
    assert [resource.size for resource in found] == [len(name) for name in NAMES]
    assert [resource.checksums for resource in found] == [
        {"md5": hashlib.md5(name.encode()).hexdigest()} for name in NAMES
    ]


def test_a_list_of_several_pages_is_read_whole(origin: Origin, find: Find) -> None:
    put_list(origin, NAMES[:30], nextPageToken="a/b=")
    page = {"items": [item(name) for name in NAMES[30:]]}
    origin.put(f"{LIST}&pageToken=a%2Fb%3D", json.dumps(page).encode())
    assert [resource.size for resource in find()] == [len(name) for name in NAMES]


def test_a_composite_file_has_no_md5(origin: Origin, find: Find) -> None:
    items = [{"name": name, "size": "7", "crc32c": "AAAAAA=="} for name in NAMES]
    origin.put(LIST, json.dumps({"items": items}).encode())
    assert {(resource.size, *resource.checksums) for resource in find()} == {(7,)}


def test_the_list_says_how_many_files_there_are(origin: Origin, find: Find) -> None:
    put_list(origin, [name.replace("-of-00050", "-of-00048") for name in NAMES[:48]])
    assert [resource.size for resource in find()] == [len(name) for name in NAMES[:48]]


@pytest.mark.parametrize("status", [401, 403, 404])
def test_where_the_list_is_closed_the_known_names_are_asked_for(
    status: int, origin: Origin, find: Find
) -> None:
    origin.always(LIST, Fault(status=status))
    assert find() == resources("Pong", 5, None)


def test_an_empty_list_is_a_run_that_is_gone(origin: Origin, find: Find) -> None:
    origin.put(LIST, b'{"kind": "storage#objects"}')
    with pytest.raises(AccessError) as caught:
        find()
    assert str(caught.value.path).endswith("Pong/run_5-")


def test_a_list_that_lacks_a_file_is_refused(origin: Origin, find: Find) -> None:
    put_list(origin, NAMES[:7] + NAMES[8:20] + NAMES[21:])
    with pytest.raises(SourceError) as caught:
        find()
    assert (caught.value.expected, caught.value.found) == (50, 48)


@pytest.mark.parametrize("answer", ["[]", '{"items": [{"name": "a"}]}', '{"items": [{"size": 1}]}'])
def test_another_answer_than_a_list_is_refused(answer: str, origin: Origin, find: Find) -> None:
    origin.put(LIST, answer.encode())
    with pytest.raises(SourceError) as caught:
        find()
    assert caught.value.expected == "items with name and size"


def test_a_web_page_is_no_list(origin: Origin, find: Find) -> None:
    origin.put(LIST, b"<html>Sign in</html>")
    with pytest.raises(NetworkError) as caught:
        find()
    assert caught.value.exit_code == 5


def test_offline_mode_stays_offline(config: Config) -> None:
    with pytest.raises(OfflineError):
        resources("Pong", 5, Http(replace(config, offline=True)))


def test_a_game_that_rl_unplugged_lacks_is_named() -> None:
    with pytest.raises(AccessError) as caught:
        resources("Venture", 1, None)
    assert caught.value.found == "Venture"
