"""Host names without an address: asked once more, not as often as a server that does not answer."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from datasets_cli.config import Config
from datasets_cli.core.progress import silent
from datasets_cli.errors import NetworkError
from datasets_cli.sources.download import fetch
from datasets_cli.sources.http import Http
from datasets_cli.sources.resource import Resource
from tests.support.origin import Origin, redirect


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that were looked up; those under ``.invalid`` have no address (RFC 6761)."""
    names: list[str] = []
    look_up = socket.getaddrinfo

    def fail(host: str, *arguments: Any, **options: Any) -> Any:
        names.append(host)
        if host.endswith(".invalid"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return look_up(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    return names


@pytest.fixture
def http(config: Config) -> Http:
    return Http(config, retries=3, backoff_seconds=0.001)


def test_a_name_without_an_address_is_asked_once_more_in_a_run(
    http: Http, asked: list[str]
) -> None:
    for page in ("one", "two"):
        with pytest.raises(NetworkError) as caught:
            http.json(f"http://one.invalid/{page}")
        assert caught.value.found == "Name or service not known"
    assert asked == ["one.invalid"] * 3


def test_a_download_asks_each_host_once_more_and_says_what_helps(
    http: Http, asked: list[str], tmp_path: Path
) -> None:
    urls = ("http://one.invalid/a", "http://two.invalid/a")
    with pytest.raises(NetworkError) as caught:
        fetch(Resource(urls, "a"), tmp_path, http, silent)
    assert asked == ["one.invalid"] * 2 + ["two.invalid"] * 2
    for words in (*urls, "source=", "RLDS_OFFLINE", "RLDS_MIRRORS"):
        assert str(caught.value).count(words) == 1, words


def test_a_host_that_answered_meanwhile_is_asked_again(
    http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_up, failing = socket.getaddrinfo, [True, False, True, False]

    def flap(*arguments: Any, **options: Any) -> Any:
        if failing.pop(0):
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return look_up(*arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", flap)
    with Origin() as origin:
        url = origin.put("page", b"1", connection="close")
        assert [http.json(url), http.json(url)] == [1, 1]
    assert failing == []


def test_a_redirect_to_a_name_without_an_address_is_followed_twice(
    http: Http, asked: list[str]
) -> None:
    with Origin() as origin:
        origin.always("moved", redirect("http://one.invalid/"))
        with pytest.raises(NetworkError) as caught:
            http.json(origin.url + "moved")
        assert caught.value.found == "Name or service not known"
    assert asked.count("one.invalid") == 2


def test_a_mirror_without_an_address_gives_way_to_the_publisher(
    config: Config, asked: list[str]
) -> None:
    with Origin() as origin:
        url = origin.put("page", b"1")
        mirrored = replace(config, mirrors=((origin.url, "http://mirror.invalid/"),))
        assert Http(mirrored, backoff_seconds=0.001).json(url) == 1
    assert asked.count("mirror.invalid") == 2
