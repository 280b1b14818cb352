"""What is here of a file is continued where it is of the same version, or else fetched anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from datasets_cli.config import Config
from tests.sources.test_download import CUT, DATA, OTHER, PINNED, REST, SIZE, Client
from tests.support.origin import Fault, Origin

CONTINUED, ANEW = [None, REST], [None, REST, None]
NO_ETAG: dict[str, Any] = {"etag": None}
MONDAY: dict[str, Any] = {"etag": None, "last_modified": "monday"}
WEAK = {"etag": 'W/"1"'}
IS_CUT = Fault(cut=CUT)


def range_of(data: bytes, **headers: str) -> Fault:
    """Answer with the rest of some file, which does not say by itself of which version."""
    known = {"Content-Range": f"bytes {CUT}-{SIZE - 1}/{SIZE}"}
    return Fault(status=206, body=data[CUT:], headers=known | headers)


@dataclass(frozen=True)
class Case:
    """A download, by the ranges that it asks for, one request each."""

    asked: Sequence[str | None]
    faults: Sequence[Fault] = ()
    wanted: dict[str, Any] = field(default_factory=dict)  # what the resource states
    published: dict[str, Any] = field(default_factory=lambda: {"etag": '"1"'})
    if_range: str | None = '"1"'
    part: bytes | None = None  # what a killed run left
    note: dict[str, Any] | str = field(default_factory=dict)  # beside it


LATER = f"bytes={SIZE}-"
BEYOND = f"bytes={SIZE + 7}-"
TAIL = {"Content-Range": f"bytes 100-{SIZE - 1}/{SIZE}"}
LARGER = {"Content-Range": f"bytes {CUT}-{SIZE}/{SIZE + 1}", "ETag": '"1"'}
CASES = {
    "a cut body": Case(CONTINUED, [IS_CUT], PINNED),
    "a cut body in chunks": Case(CONTINUED, [Fault(chunked=1000, cut=CUT)], PINNED),
    "a cut body without a length": Case(CONTINUED, [Fault(no_length=True, cut=CUT)], PINNED),
    "a size that a later answer tells": Case(
        [None, REST, f"bytes={CUT + 1000}-"],
        [Fault(chunked=1000, cut=CUT), Fault(no_length=True, cut=1000)],
    ),
    "all bytes, but no end": Case([None, LATER], [Fault(chunked=1000, cut=SIZE)]),
    "a length that is too long": Case([None, LATER, None], [Fault(longer=10)]),
    "a range that begins later": Case(ANEW, [IS_CUT, Fault(shift_range=1)]),
    "a range that begins earlier": Case(ANEW, [IS_CUT, Fault(shift_range=-1)]),
    "a range far away": Case(ANEW, [IS_CUT, Fault(shift_range=50_000)]),
    "a range that nobody asked for": Case(
        [None, None], [Fault(status=206, body=DATA[100:], headers=TAIL)]
    ),
    "a range of a larger file": Case(
        ANEW, [IS_CUT, Fault(status=206, body=DATA[CUT:] + b"x", headers=LARGER)]
    ),
    "a range of another ETag": Case(ANEW, [IS_CUT, range_of(OTHER, ETag='"2"')]),
    "a range of a weak ETag": Case(ANEW, [IS_CUT, range_of(OTHER, ETag='W/"1"')]),
    "a range of another day": Case(
        ANEW,
        [IS_CUT, range_of(OTHER, **{"Last-Modified": "tuesday"})],
        published=MONDAY,
        if_range="monday",
    ),
    "a range of no known version": Case(ANEW, [IS_CUT, range_of(OTHER)]),
    "a range of no known day": Case(
        ANEW, [IS_CUT, range_of(OTHER)], published=MONDAY, if_range="monday"
    ),
    "a range that the checksum vouches for": Case(CONTINUED, [IS_CUT, range_of(DATA)], PINNED),
    "a range that the checksum does not know": Case(ANEW, [IS_CUT, range_of(OTHER)], PINNED),
    "a day in place of an ETag": Case(CONTINUED, [IS_CUT], published=MONDAY, if_range="monday"),
    "a weak ETag": Case([None, None], [IS_CUT], published=WEAK, if_range=None),
    "nothing that vouches": Case([None, None], [IS_CUT], published=NO_ETAG, if_range=None),
    "a weak ETag, and a checksum": Case(CONTINUED, [IS_CUT], PINNED, published=WEAK, if_range=None),
    "any content, and nothing that vouches": Case(
        [None, None],
        [IS_CUT],
        {"any": True, "checksums": {"sha256": "0" * 64}},
        published=NO_ETAG,
        if_range=None,
    ),
    "a damaged part": Case([REST, None], wanted=PINNED, part=OTHER[:CUT]),
    "a complete part": Case([], wanted=PINNED, part=DATA),
    "a part of another mirror": Case([None], part=OTHER[:CUT], note={"url": "http://x/file.bin"}),
    **{
        f"a part beside {note or 'nothing'}": Case([None], part=OTHER[:CUT], note=note)
        for note in ("", "{", '{"url": "x"}', '{"url": 1, "odd": 2}')
    },
    **{
        f"a part that is longer, of {size}": Case(
            [BEYOND, None], part=DATA + b"rubbish", note={"size": size}
        )
        for size in (None, SIZE, SIZE + 99)
    },
}


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin() as running:
        yield running


@pytest.mark.parametrize("name", CASES)
def test_what_is_here_is_continued_or_fetched_anew(
    name: str, origin: Origin, config: Config, tmp_path: Path
) -> None:
    case, client = CASES[name], Client(origin, config, tmp_path / "downloads")
    origin.put("file.bin", DATA, **case.published)
    origin.script("file.bin", *case.faults)
    if case.part is not None:
        client.leave_part(case.part, **(case.note if isinstance(case.note, dict) else {}))
    if isinstance(case.note, str):
        Path(f"{client.part}.json").write_text(case.note)
    assert client.fetch(**case.wanted).path.read_bytes() == DATA
    assert origin.ranges("file.bin") == [*case.asked]
    continued = [request for request in origin.requests if request.range]
    assert all(request.headers["If-Range"] == case.if_range for request in continued[:1])
    assert client.names() == ["file.bin", "file.bin.json"]
