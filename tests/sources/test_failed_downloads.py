"""Downloads that fail for good: the exit code of each, and what of it stays on the disk."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from datasets_cli.config import Config
from datasets_cli.errors import RldsError
from tests.sources.test_continued import range_of
from tests.sources.test_download import CUT, DATA, OTHER, PINNED, REST, Client
from tests.support.origin import Fault, Origin, Stall, closed_port_url, redirect

NOTHING: list[str] = []
PART = ["file.bin.part", "file.bin.part.json"]
TORN = (
    Fault(chunked=1000, cut=CUT + 500),
    Fault(chunked=1000, cut=0),
)  # in the middle of a chunk, then before the first
DAY = Fault(status=429, headers={"Retry-After": "86400"})


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin() as running:
        running.put("file.bin", DATA, etag='"1"')
        yield running


@pytest.fixture
def client(origin: Origin, config: Config, tmp_path: Path) -> Client:
    found = Client(origin, config, tmp_path / "downloads")
    found.read_timeout = 0.3
    return found


@dataclass(frozen=True)
class End:
    """How a download ends."""

    faults: tuple[Fault, ...]  # of the first answers; the last one is that of all others too
    code: int
    requests: int | None  # None where it depends on the moment of a cut
    shown: str  # in the message
    names: list[str]  # of the files that stay
    fields: Any = None  # of the resource


CUT_FIRST = Fault(cut=CUT)
UNNAMED = range_of(DATA)  # which does not say of which version it is
ENDS = {
    "3 a body that stalls": End((CUT_FIRST, Fault(stall=Stall())), 5, None, "timed out", PART),
    "4 a length that is too long": End((Fault(longer=10),), 5, 6, "HTTP 416", NOTHING),
    "5 cut, without a length": End(
        (Fault(no_length=True, cut=CUT), Fault(no_length=True, cut=0)), 5, 3, "file.bin", PART,
        PINNED,
    ),
    "6 chunks that are cut": End(TORN, 5, None, "file.bin", PART),
    "6 chunks that are cut, of a known size": End(TORN, 5, None, "file.bin", PART, PINNED),
    "7 a body that is too long": End(
        (Fault(chunked=1000, body=DATA + b"x" * 9999),), 4, 1, "sends more", NOTHING, PINNED
    ),
    "10 always another range": End(
        (CUT_FIRST, Fault(shift_range=1), CUT_FIRST, Fault(shift_range=1), CUT_FIRST,
         Fault(shift_range=1)), 5, 6, "with the range bytes", NOTHING,
    ),
    "16 another encoding": End((Fault(headers={"Content-Encoding": "br"}),), 5, 1, "br", NOTHING),
    "18 a circle of redirects": End((redirect("/file.bin"),), 5, 11, "more than 10 times", NOTHING),
    "20 a refusal after a part": End((CUT_FIRST, Fault(status=403)), 6, 2, "HTTP 403", PART),
    "20 a refusal": End((Fault(status=404),), 6, 1, "HTTP 404", NOTHING),
    "12 another file after a part": End(
        (CUT_FIRST, Fault(body=OTHER, headers={"ETag": '"2"'}, ignore_range=True)), 4, 2,
        "expected sha256", NOTHING, PINNED,
    ),
    "12 never said of which version": End(
        (CUT_FIRST, UNNAMED, CUT_FIRST, UNNAMED, CUT_FIRST, UNNAMED), 5, 6,
        "neither ETag nor Last-Modified", NOTHING,
    ),
    "24 a pause of a day after a part": End((CUT_FIRST, DAY), 5, 2, "is kept", PART),
    "25 a busy server after a part": End((CUT_FIRST, Fault(status=503)), 5, 3, "HTTP 503", PART),
}  # fmt: skip


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_failure_for_good_has_its_code_and_keeps_what_may_be_continued(
    end: End, client: Client, origin: Origin
) -> None:
    origin.script("file.bin", *end.faults)
    origin.always("file.bin", end.faults[-1])
    with pytest.raises(RldsError) as caught:
        client.fetch(retries=1, **(end.fields or {}))
    assert caught.value.exit_code == end.code and end.shown in str(caught.value)
    assert "file.bin" in str(caught.value) and origin.url in str(caught.value)
    assert client.names() == end.names
    origin.heal("file.bin")
    origin.always("file.bin", Fault())
    before = len(origin.requests)
    assert end.requests in (None, before)
    assert client.fetch(**(end.fields or {})).path.read_bytes() == DATA
    continued = origin.ranges("file.bin")[before]
    assert (continued is not None) == (end.names == PART)


@pytest.mark.parametrize("place", [closed_port_url, lambda: "http://nowhere.invalid/"])
def test_a_server_that_is_not_there_leaves_nothing(
    place: Callable[[], str], client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_address(*_: Any, **__: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    if "invalid" in (url := place()):
        monkeypatch.setattr(socket, "getaddrinfo", no_address)
    with pytest.raises(RldsError) as caught:
        client.fetch(f"{url}file.bin")
    assert caught.value.exit_code == 5
    assert caught.value.found in ("ConnectionRefusedError", "Name or service not known")
    assert f"{url}file.bin" in str(caught.value) and client.names() == NOTHING


def test_a_part_that_is_shorter_and_refused_with_416_is_fetched_whole_once(
    client: Client, origin: Origin
) -> None:
    client.leave_part(DATA[:CUT])
    origin.script("file.bin", Fault(status=416))
    assert client.fetch().path.read_bytes() == DATA
    assert origin.ranges("file.bin") == [REST, None]
    assert client.names() == ["file.bin", "file.bin.json"]
