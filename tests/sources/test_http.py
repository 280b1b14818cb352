"""The client: what is retried, what is not, who is asked, and what is told to whom."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from email.utils import formatdate
from types import SimpleNamespace
from typing import Any

import pytest
import requests

from datasets_cli.config import Config, load_config
from datasets_cli.errors import AccessError, NetworkError, OfflineError, UnknownDataset
from datasets_cli.sources.failures import TransientError
from datasets_cli.sources.http import Http
from tests.support.origin import Fault, Origin, Stall, closed_port_url, redirect

NOW = 1_700_000_000.0
BODY = {"answer": 42}


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin() as running:
        yield running


@pytest.fixture
def url(origin: Origin) -> str:
    return origin.put("page.json", json.dumps(BODY).encode())


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that the client would have made, on a clock that stands still."""
    slept: list[float] = []
    clock = SimpleNamespace(sleep=slept.append, time=lambda: NOW)
    for module in ("http", "failures"):
        monkeypatch.setattr(f"datasets_cli.sources.{module}.time", clock)
    return slept


@pytest.fixture
def http(config: Config, waits: list[float]) -> Http:
    return Http(config, retries=3, backoff_seconds=1.0, timeout_seconds=(2.0, 0.2))


def test_a_list_is_read_page_by_page_and_never_from_another_host_or_for_ever(
    origin: Origin, http: Http
) -> None:
    origin.put("first", b"[1]", link='</second?cursor=a>; rel="next", </first>; rel="prev"')
    origin.put("second?cursor=a", b"[2]", link=None)
    assert [*http.pages(f"{origin.url}first")] == [[1], [2]]
    origin.put("away", b"[1]", link='<http://192.0.2.1/second>; rel="next"')
    with pytest.raises(NetworkError) as caught:
        next(http.pages(f"{origin.url}away"))
    assert caught.value.found == "192.0.2.1"
    origin.put("round", b"[1]", link='</round>; rel="next"')
    with pytest.raises(NetworkError) as caught:
        list(http.pages(f"{origin.url}round"))
    assert caught.value.expected == 100
    assert len(origin.log("round")) == 100


def test_refused_connection_is_a_network_error_after_all_retries(
    http: Http, waits: list[float]
) -> None:
    url = closed_port_url()
    with pytest.raises(NetworkError) as caught:
        http.json(url)
    assert (caught.value.exit_code, caught.value.found) == (5, "ConnectionRefusedError")
    assert url in str(caught.value)
    assert len(waits) == 3


def test_pauses_double_with_jitter(http: Http, waits: list[float]) -> None:
    with pytest.raises(NetworkError):
        http.json(closed_port_url())
    assert all(0.75 * 2**n <= wait <= 1.25 * 2**n for n, wait in enumerate(waits)), waits


def test_stalled_answer_is_retried(http: Http, origin: Origin, url: str) -> None:
    origin.script("page.json", Fault(stall=Stall(), stall_after=3))
    assert http.json(url) == BODY
    assert len(origin.log("page.json")) == 2


def test_cut_answer_is_retried(http: Http, origin: Origin, url: str) -> None:
    origin.script("page.json", Fault(cut=3), Fault(chunked=4, cut=8))
    assert http.json(url) == BODY
    assert len(origin.log("page.json")) == 3


def test_timeouts_reach_the_connection(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = capture_sending(monkeypatch)
    with pytest.raises(NetworkError), http.open("https://example.org/"):
        pass
    assert sent[0]["timeout"] == (2.0, 0.2)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_busy_server_is_asked_again(status: int, http: Http, origin: Origin, url: str) -> None:
    origin.script("page.json", *[Fault(status=status)] * 3)
    assert http.json(url) == BODY
    assert len(origin.log("page.json")) == 4


def test_server_that_stays_busy_is_a_network_error(http: Http, origin: Origin, url: str) -> None:
    origin.always("page.json", Fault(status=503))
    with pytest.raises(NetworkError) as caught:
        http.json(url)
    assert (caught.value.exit_code, caught.value.found) == (5, 503)
    assert len(origin.log("page.json")) == 4


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        ("7", 7.0),
        ("0", 0.0),
        (formatdate(NOW + 42, usegmt=True), 42.0),
        (formatdate(NOW - 42, usegmt=True), 0.0),
    ],
)
def test_retry_after_is_honoured(
    retry_after: str, seconds: float, http: Http, origin: Origin, url: str, waits: list[float]
) -> None:
    origin.script("page.json", Fault(status=429, headers={"Retry-After": retry_after}))
    assert http.json(url) == BODY
    assert waits == [seconds]


@pytest.mark.parametrize("retry_after", ["86400", "inf", formatdate(NOW + 86400, usegmt=True)])
def test_absurd_retry_after_is_told_and_not_waited_for(
    retry_after: str, http: Http, origin: Origin, url: str, waits: list[float]
) -> None:
    origin.always("page.json", Fault(status=429, headers={"Retry-After": retry_after}))
    with pytest.raises(NetworkError) as caught:
        http.json(url)
    assert caught.value.found in (86400, float("inf"))
    assert not isinstance(caught.value, TransientError)
    assert waits == []


@pytest.mark.parametrize("status", [401, 403, 404, 410, 451])
def test_refusal_is_an_access_error_at_once(
    status: int, http: Http, origin: Origin, url: str, waits: list[float]
) -> None:
    origin.always("page.json", Fault(status=status))
    with pytest.raises(AccessError) as caught:
        http.json(url)
    assert (caught.value.exit_code, caught.value.found) == (6, status)
    assert isinstance(caught.value, PermissionError)
    assert url in str(caught.value)
    assert "source=" in str(caught.value)
    assert (len(origin.log("page.json")), waits) == (1, [])


def test_odd_status_is_a_network_error_at_once(http: Http, origin: Origin, url: str) -> None:
    origin.always("page.json", Fault(status=418))
    with pytest.raises(NetworkError) as caught:
        http.json(url)
    assert caught.value.found == 418
    assert len(origin.log("page.json")) == 1


OPENML = b'{"error": {"code": "372", "message": "No results"}}'


@pytest.fixture
def mirrored(http: Http, origin: Origin) -> Http:
    """A client with a mirror that answers 412, as OpenML does, to what another server has."""
    origin.always("mirrored/page.json", Fault(status=412, body=OPENML))
    prefix = f"{origin.url}page"
    return Http(replace(http.config, mirrors=((prefix, f"{origin.url}mirrored/page"),)))


def test_412_is_an_ordinary_failure_after_which_the_next_server_is_asked(
    mirrored: Http, origin: Origin, url: str
) -> None:
    assert mirrored.json(url) == BODY
    assert mirrored.has(url)
    paths = [request.path for request in origin.requests]
    assert paths == ["/mirrored/page.json", "/page.json"] * 2


def test_412_of_every_server_is_a_network_error_at_once(
    mirrored: Http, origin: Origin, url: str, waits: list[float]
) -> None:
    origin.always("page.json", Fault(status=412, body=OPENML))
    with pytest.raises(NetworkError) as caught:
        mirrored.json(url)
    assert "/page.json answered HTTP 412" in str(caught.value).partition("  2. ")[2]
    assert (len(origin.log("page.json")), waits) == (1, [])


def test_a_publisher_may_say_by_a_refusal_that_there_is_no_such_data(
    mirrored: Http, origin: Origin, url: str
) -> None:
    asked = []

    def no_such_data(status: int, body: bytes) -> str | None:
        asked.append((status, body))
        return "No results"

    with pytest.raises(UnknownDataset) as caught:
        mirrored.json(url, no_such_data)
    assert caught.value.found == 412 and "No results." in str(caught.value)
    assert asked == [(412, OPENML)]
    assert [request.path for request in origin.requests] == ["/mirrored/page.json"]


def test_a_refusal_that_says_nothing_of_the_data_is_an_ordinary_failure(
    mirrored: Http, origin: Origin, url: str
) -> None:
    assert mirrored.json(url, lambda status, body: None) == BODY


def test_identity_encoding_is_asked_for_and_another_refused(
    http: Http, origin: Origin, url: str
) -> None:
    origin.always("page.json", Fault(headers={"Content-Encoding": "gzip"}))
    with pytest.raises(NetworkError) as caught:
        http.json(url)
    assert (caught.value.expected, caught.value.found) == ("identity", "gzip")
    (request,) = origin.log("page.json")
    assert request.headers["Accept-Encoding"] == "identity"


def test_ten_redirects_in_a_row_are_followed(http: Http, origin: Origin, url: str) -> None:
    for step in range(9):
        origin.always(f"{step}", redirect(f"/{step + 1}"))
    origin.always("9", redirect(url))
    assert http.json(origin.url + "0") == BODY
    assert len(origin.requests) == 11


def test_circle_of_redirects_ends_after_ten(http: Http, origin: Origin) -> None:
    origin.always("circle", redirect("/circle"))
    with pytest.raises(NetworkError) as caught:
        http.json(origin.url + "circle")
    assert caught.value.expected == 10
    assert len(origin.requests) == 11


@pytest.mark.parametrize("location", ["ftp://127.0.0.1/x", "file:///etc/hostname"])
def test_redirect_to_another_protocol_is_refused(location: str, http: Http, origin: Origin) -> None:
    origin.always("elsewhere", redirect(location))
    with pytest.raises(NetworkError):
        http.json(origin.url + "elsewhere")
    assert len(origin.requests) == 1


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/x", "no-scheme/x", "http://", "http://[::1/x"])
def test_text_that_is_no_address_is_refused_at_once(
    url: str, http: Http, waits: list[float]
) -> None:
    with pytest.raises(NetworkError):
        http.json(url)
    assert waits == []


def test_authorization_follows_a_redirect_on_the_same_host(http: Http, origin: Origin) -> None:
    origin.put("data", b"{}")
    origin.always("moved", redirect("/data"))
    with http.open(origin.url + "moved", {"Authorization": "Bearer secret"}):
        pass
    assert [request.headers["Authorization"] for request in origin.requests] == [
        "Bearer secret",
        "Bearer secret",
    ]


def test_authorization_is_not_sent_on_to_another_host(http: Http, origin: Origin) -> None:
    with Origin() as other:
        origin.always("moved", redirect(other.put("data", b"{}")))
        with http.open(origin.url + "moved", {"Authorization": "Bearer secret"}):
            pass
        assert origin.requests[0].headers["Authorization"] == "Bearer secret"
        assert other.requests[0].headers["Authorization"] is None


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://huggingface.co/datasets/x", True),
        ("http://huggingface.co/datasets/x", False),
        ("https://huggingface.co.example.org/x", False),
        ("https://huggingface.co@example.org/x", False),
        ("https://example.org/huggingface.co", False),
    ],
)
def test_hugging_face_token_goes_to_hugging_face_only(
    url: str, told: bool, http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    sent = capture_sending(monkeypatch)
    with pytest.raises(NetworkError), http.open(url):
        pass
    authorization = sent[0]["request"].headers.get("Authorization")
    assert ("secret" in (authorization or "")) is told


def test_hugging_face_token_does_not_go_to_a_mirror(
    config: Config, origin: Origin, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    http = Http(replace(config, mirrors=(("https://huggingface.co/", origin.url),)))
    assert http.json("https://huggingface.co/page.json") == BODY
    assert origin.requests[0].headers["Authorization"] is None


@pytest.mark.parametrize("login", ["", "me:s3cr3t@"])
def test_a_server_on_this_machine_is_asked_without_a_proxy(
    login: str, http: Http, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", closed_port_url())
    assert http.json(url.replace("http://", f"http://{login}")) == BODY


def test_mirrors_are_tried_in_order_and_the_url_last(
    config: Config, origin: Origin, url: str
) -> None:
    prefix = origin.url + "page"
    mirrors = ((prefix, origin.url + "one"), ("http://else", "x"), (prefix, origin.url + "two"))
    http = Http(replace(config, mirrors=mirrors))
    assert http.json(url) == BODY
    tried = [request.path for request in origin.requests]
    assert tried == ["/one.json", "/two.json", "/page.json"]


def test_every_failure_is_in_the_message(config: Config, origin: Origin) -> None:
    origin.always("old/a", Fault(status=410))
    closed = closed_port_url()
    mirrors = ((origin.url + "new/", origin.url + "old/"), (origin.url + "new/", closed))
    http = Http(replace(config, mirrors=mirrors), retries=0)
    with pytest.raises(NetworkError) as caught:
        http.json(origin.url + "new/a")
    for part in ("old/a", "HTTP 410", f"{closed}a", "refused", "new/a", "HTTP 404"):
        assert part in str(caught.value)


def test_only_a_refusal_by_every_server_is_a_refusal(config: Config, origin: Origin) -> None:
    mirrors = ((origin.url + "new/", origin.url + "old/"),)
    http = Http(replace(config, mirrors=mirrors), retries=0)
    for status, kind in ((403, AccessError), (503, NetworkError)):
        origin.always("old/a", Fault(status=401))
        origin.always("new/a", Fault(status=status))
        for ask in (http.json, http.has):
            with pytest.raises(kind):
                ask(origin.url + "new/a")


def test_a_server_without_an_answer_ends_with_what_to_do(http: Http, origin: Origin) -> None:
    origin.always("a", Fault(status=503))
    with pytest.raises(NetworkError) as caught:
        http.json(origin.url + "a")
    assert type(caught.value) is NetworkError
    assert "HTTP 503" in str(caught.value)
    assert str(caught.value).endswith("Partial downloads are kept.")


def test_offline_mode_opens_no_socket(
    config: Config, origin: Origin, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_socket(*_: object) -> None:
        pytest.fail("a socket was opened")

    monkeypatch.setattr(socket, "socket", no_socket)
    monkeypatch.setattr(socket, "getaddrinfo", no_socket)
    http = Http(replace(config, offline=True, mirrors=((origin.url, "http://mirror/"),)))
    with pytest.raises(OfflineError) as caught:
        http.json(url)
    assert (caught.value.exit_code, caught.value.argument) == (5, "offline")


def test_exception_that_the_caller_handles_is_not_taken_for_the_cause(http: Http) -> None:
    try:
        raise KeyError("unrelated")
    except KeyError:
        with pytest.raises(NetworkError) as caught:
            http.json(closed_port_url())
    assert "unrelated" not in str(caught.value)
    assert "refused" in str(caught.value)


def capture_sending(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Record what would be sent instead of sending it."""
    sent: list[dict[str, Any]] = []

    def send(self: object, request: requests.PreparedRequest, **options: Any) -> None:
        sent.append({"request": request, **options})
        raise requests.ConnectionError("not sent")

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", send)
    return sent


def test_a_file_is_there_or_not(http: Http, origin: Origin, url: str) -> None:
    assert http.has(url)
    assert not http.has(origin.url + "other.json")
    assert origin.ranges("page.json") == [None]


def test_whether_a_file_is_there_can_be_refused(http: Http, origin: Origin, url: str) -> None:
    origin.always("page.json", Fault(status=403))
    with pytest.raises(AccessError) as caught:
        http.has(url)
    assert caught.value.found == 403 and not caught.value.missing


def test_the_first_server_that_knows_says_whether_a_file_is_there(origin: Origin, url: str) -> None:
    mirror = f"{origin.url}={origin.url}mirror/"
    http = Http(load_config(mirrors=[mirror]), retries=0)
    assert not http.has(url)
    origin.always("mirror/page.json", Fault(status=403))
    assert http.has(url)
