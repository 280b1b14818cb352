"""Whatever a server answers, or a note beside a file says: a retry, or an error of ours."""

from __future__ import annotations

import gc
import hashlib
import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from datasets_cli.config import Config, load_config
from datasets_cli.core.progress import silent
from datasets_cli.errors import NetworkError, RldsError, SourceError
from datasets_cli.sources.buckets import list_objects
from datasets_cli.sources.download import fetch
from datasets_cli.sources.failures import TransientError
from datasets_cli.sources.http import Http
from datasets_cli.sources.partial_download import read_state
from datasets_cli.sources.resource import Resource
from tests.support.origin import Fault, Origin, redirect

DATA = bytes(range(256)) * 100
MD5 = {"md5": hashlib.md5(DATA).hexdigest()}
LONG = "9" * 5000
RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes that ``ru_maxrss`` counts by


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin() as running:
        running.put("file.bin", DATA, etag='"1"')
        running.put("page.json", b"[1]")
        yield running


@pytest.fixture
def http(config: Config) -> Http:
    return Http(config, retries=1, backoff_seconds=0.001)


def get(origin: Origin, http: Http, folder: Path, **fields: Any) -> bytes:
    resource = Resource((origin.url + "file.bin",), "file.bin", **fields)
    return fetch(resource, folder, http, silent).path.read_bytes()


# --- numbers ------------------------------------------------------------------------------------

CUT = 9000
CHUNKED = {"Transfer-Encoding": "chunked", "Content-Length": None}


def other_range(content_range: str) -> Fault:
    headers = {"ETag": '"1"', "Content-Range": content_range}
    return Fault(status=206, body=DATA[CUT:], headers=headers)


NUMBERS = {
    "Content-Length": [Fault(headers={"Content-Length": LONG})],
    "negative Content-Length": [Fault(headers={"Content-Length": "-1"})],
    "Content-Length of two sizes": [Fault(headers={"Content-Length": "1, 2"})],
    "size in Content-Range": [Fault(cut=CUT), other_range(f"bytes {CUT}-{LONG}/{LONG}")],
    "start in Content-Range": [Fault(cut=CUT), other_range(f"bytes {LONG}-{LONG}/{LONG}")],
    "size of a chunk": [Fault(headers=CHUNKED, body=b"9" * 5000)],
}


@pytest.mark.parametrize("where", NUMBERS)
def test_a_number_that_is_none_is_a_failed_attempt_and_the_next_one_is_whole(
    where: str, origin: Origin, http: Http, tmp_path: Path
) -> None:
    origin.script("file.bin", *NUMBERS[where])
    assert get(origin, http, tmp_path) == DATA
    assert len(origin.requests) == len(NUMBERS[where]) + 1


@pytest.mark.parametrize(
    "retry_after",
    ["-" + LONG, f"Tue, {LONG} Nov 2026 09:00:00 GMT", "Tue, 1 Nov 999999999999 09:00:00 GMT"],
)
def test_a_pause_that_is_none_is_the_ordinary_pause(
    retry_after: str, origin: Origin, http: Http
) -> None:
    origin.script("page.json", Fault(status=503, headers={"Retry-After": retry_after}))
    assert http.json(origin.url + "page.json") == [1]


@pytest.mark.parametrize("document", [LONG.encode(), b"[" * 100_000, b"\xff\xfe\xfd", b"", b"nul"])
def test_a_document_that_cannot_be_read_is_not_json(
    document: bytes, origin: Origin, http: Http
) -> None:
    url = origin.put("page.json", document)
    with pytest.raises(NetworkError) as caught:
        http.json(url)
    assert caught.value.exit_code == 5 and not isinstance(caught.value, TransientError)


@pytest.mark.parametrize("document", [b"[" + b" " * 300_000, b"[" + b"[]," * 5_000])
def test_a_document_beyond_a_limit_is_cut_short(
    document: bytes, origin: Origin, config: Config
) -> None:
    url = origin.put("page.json", document)
    http = Http(replace(config, limits=(("json_bytes", 50_000),)), retries=0)
    with pytest.raises(NetworkError) as caught:
        http.json(url)
    assert (caught.value.exit_code, caught.value.key) == (5, "json_bytes")
    assert caught.value.found > 50_000


class Pages:
    """A publisher's list that has the same page for ever."""

    def __init__(self, token: object) -> None:
        self.page = {"items": [], "nextPageToken": token}

    def json(self, url: str, no_such_data: object = None) -> object:
        return self.page


@pytest.mark.parametrize("token", ["more", 5, ["x"]])
def test_a_list_of_a_bucket_has_an_end(token: object) -> None:
    with pytest.raises(SourceError) as caught:
        list_objects("bucket", "Pong/", Pages(token))  # type: ignore[arg-type]
    assert caught.value.expected in (100, "items with name and size")


# --- addresses ----------------------------------------------------------------------------------

NO_ADDRESSES = ["http://[::1", "http://[::1/x", "http://h:99999/", "http://h:x/", "http://["]


@pytest.fixture(params=["", "netrc and token"])
def login(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a login of the user's, requests and we look at the host of an address first."""
    if request.param:
        (tmp_path / "netrc").write_text("machine example.org login me password s3cr3t\n")
        (tmp_path / "netrc").chmod(0o600)
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        monkeypatch.setenv("HF_TOKEN", "s3cr3t")


@pytest.mark.parametrize("url", NO_ADDRESSES)
def test_no_address_is_an_error_at_once_and_the_mirrors_are_asked(
    url: str, login: None, origin: Origin, config: Config
) -> None:
    good = origin.url + "page.json"
    for mirror in (f"{good}={url}", f"{url}={good}"):
        http = Http(load_config(mirrors=[mirror]), retries=0)
        assert http.json(good if mirror.startswith(good) else url) == [1]
    with pytest.raises(NetworkError) as caught:
        Http(config, retries=5, backoff_seconds=60.0).json(url)
    assert not isinstance(caught.value, TransientError)


@pytest.mark.parametrize("url", [*NO_ADDRESSES, "//[::1", "gopher://h/", "http://\xff.org/"])
def test_a_redirect_to_no_address_is_an_error(
    url: str, login: None, origin: Origin, http: Http
) -> None:
    origin.always("page.json", redirect(url))
    with pytest.raises(NetworkError) as caught:
        http.json(origin.url + "page.json")
    assert "/page.json" in str(caught.value)


# --- notes --------------------------------------------------------------------------------------

SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text())
JSON = st.recursive(
    SCALARS, lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(), each, max_size=2)
)
FIELDS = {
    "url": SCALARS | st.just("http://h/f"),
    "validator": JSON | st.sampled_from(['"1"', "a\nb", "a\0b", " a", "é", "\ud800", "x" * 9999]),
    "size": JSON | st.sampled_from([len(DATA), -1, 10**40]),
}
NOTES = st.one_of(
    st.binary(),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries({"url": SCALARS, **FIELDS}, optional={"sha256": JSON}).map(
        lambda value: json.dumps(value).encode()
    ),
)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(NOTES)
@example(b'{"url": "", "validator": null, "size": ' + LONG.encode() + b"}")
@example(b"[" * 60_000)
@example(b'{"url": "", "validator": [], "size": null}')
def test_a_note_of_any_shape_is_a_state_or_none(tmp_path: Path, note: bytes) -> None:
    path = tmp_path / "file.bin.part.json"
    path.write_bytes(note)
    state = read_state(path)
    if state is not None:
        assert isinstance(state.url, str)
        assert state.size is None or state.size >= 0
        assert isinstance(state.validator, str | None)
        if state.validator:
            requests_takes = state.validator.encode("ascii").strip()
            assert b"\n" not in requests_takes and requests_takes.decode() == state.validator


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FIELDS["validator"], FIELDS["size"], st.binary(max_size=9))
def test_a_garbled_note_of_a_part_ends_in_the_published_file(
    origin: Origin, http: Http, tmp_path: Path, validator: Any, size: Any, part: bytes
) -> None:
    with TemporaryDirectory(dir=tmp_path) as folder:
        note = {"url": origin.url + "file.bin", "validator": validator, "size": size}
        (Path(folder) / "file.bin.part").write_bytes(part)
        (Path(folder) / "file.bin.part.json").write_text(json.dumps(note))
        assert get(origin, http, Path(folder), checksums=MD5) == DATA


# --- answers ------------------------------------------------------------------------------------


class Raw:
    """A server that answers each request with the same bytes, and hangs up; a context manager."""

    def __init__(self) -> None:
        self.answer = b""
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}/"
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def __enter__(self) -> Raw:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join()

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.socket.accept()
                with suppress(OSError), connection:
                    connection.recv(65536)
                    connection.sendall(self.answer)


NUMBER = st.sampled_from(["0", "3", "-1", "1, 1", LONG, "", "1e9", "0x3", "3.5", "\u00b2"])
HEADERS = st.one_of(
    st.tuples(st.sampled_from(["Content-Length", "Retry-After"]), NUMBER),
    st.tuples(
        st.just("Content-Range"),
        st.tuples(NUMBER, NUMBER, NUMBER).map("bytes {0[0]}-{0[1]}/{0[2]}".format),
    ),
    st.tuples(st.just("Transfer-Encoding"), st.sampled_from(["chunked", "gzip, chunked", "x"])),
    st.tuples(st.just("Location"), st.sampled_from(["", "/", "http://[::1", "a b", "\xff", "?"])),
    st.tuples(st.just("Content-Encoding"), st.sampled_from(["gzip", "identity", "br", ""])),
    st.tuples(
        st.sampled_from(["ETag", "Set-Cookie", "Last-Modified", "X", "\x00"]),
        st.text('a"=;\x00\xff:'),
    ),
)
CHUNK = st.sampled_from(
    ["3\r\nabc\r\n", "-1\r\n", f"{LONG}\r\n", "\r\n", "0\r\n\r\n", "3;\r\nab", "x"]
)
BODIES = st.one_of(st.binary(max_size=20), st.lists(CHUNK).map(lambda each: "".join(each).encode()))
STATUS = st.sampled_from(
    [100, 200, 200, 200, 204, 206, 301, 302, 304, 404, 412, 416, 429, 503, 999]
)


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """Draw an answer that is nearly one."""
    lines = [f"{name}: {value}" for name, value in draw(st.lists(HEADERS, max_size=5))]
    head = "\r\n".join([f"HTTP/1.1 {draw(STATUS)} Word", *lines, "", ""])
    return head.encode("latin-1") + draw(BODIES)


@pytest.fixture(scope="module")
def raw() -> Iterator[Raw]:
    with Raw() as running:
        yield running


@pytest.fixture
def collected() -> Iterator[None]:
    """Collect garbage before the next test, whose warnings count."""
    yield
    gc.collect()


# urllib3 leaves the socket of an answer whose headers it cannot read to the collector.
@pytest.mark.usefixtures("collected")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(answers(), answers(), st.binary(max_size=100)))
def test_whatever_a_server_answers_is_data_or_an_error_of_ours(
    raw: Raw, config: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: bytes
) -> None:
    monkeypatch.setattr("datasets_cli.sources.http.time.sleep", lambda seconds: None)
    raw.answer = answer
    http = Http(config, retries=0)
    with suppress(RldsError):
        http.json(raw.url)
    with suppress(RldsError):
        http.has(raw.url)
    with suppress(RldsError), TemporaryDirectory(dir=tmp_path) as folder:
        fetch(Resource((raw.url,), "file"), Path(folder), http, silent)
