"""Downloads: resumed, checked, named only when right; and nothing asked twice that is here."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from datasets_cli.config import Config
from datasets_cli.core.progress import File, Note, Rows, silent
from datasets_cli.errors import (
    DiskFull,
    IntegrityError,
    NetworkError,
    SourceError,
)
from datasets_cli.sources.download import fetch
from datasets_cli.sources.http import Http
from datasets_cli.sources.resource import HDF5_MAGIC, Content, RawFile, Resource
from tests.cli.test_wrong_calls import small_disk
from tests.support.events import Events
from tests.support.origin import Fault, Origin, Stall, closed_port_url, redirect

DATA = HDF5_MAGIC + bytes(range(256)) * 800
OTHER = HDF5_MAGIC + bytes(reversed(range(256))) * 800
SIZE = len(DATA)
CUT = 100_000
REST = f"bytes={CUT}-"


class Client:
    """Fetches ``file.bin`` of an origin into one folder."""

    def __init__(self, origin: Origin, config: Config, folder: Path) -> None:
        self.origin = origin
        self.config = config
        self.folder = folder
        self.path = folder / "file.bin"
        self.part = folder / "file.bin.part"
        self.events = Events()
        self.read_timeout = 10.0

    def resource(self, *urls: str, **fields: object) -> Resource:
        return Resource(urls or (self.origin.url + "file.bin",), "file.bin", **fields)  # type: ignore[arg-type]

    def fetch(self, *urls: str, retries: int = 2, any: bool = False, **fields: object) -> RawFile:
        http = Http(
            self.config,
            retries=retries,
            backoff_seconds=0.001,
            timeout_seconds=(2.0, self.read_timeout),
        )
        resource = self.resource(*urls, **fields)
        return fetch(resource, self.folder, http, self.events, accept_any=any)

    def leave_part(self, data: bytes, **note: object) -> None:
        """Lay down what a killed run left."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.part.write_bytes(data)
        known = {"url": self.origin.url + "file.bin", "validator": '"1"', "size": SIZE}
        Path(f"{self.part}.json").write_text(json.dumps(known | note))

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin() as running:
        running.put("file.bin", DATA, etag='"1"')
        yield running


@pytest.fixture
def client(origin: Origin, config: Config, tmp_path: Path) -> Client:
    return Client(origin, config, tmp_path / "downloads")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


PINNED = {"size": SIZE, "checksums": {"sha256": sha256(DATA)}}


class Writer:
    """A fetch in another thread, which is held up after its first block until it may finish."""

    def __init__(self, client: Client) -> None:
        self.stall = Stall()
        self.has_written = threading.Event()
        self.results: list[RawFile] = []
        client.origin.script("file.bin", Fault(stall=self.stall, stall_after=CUT))
        arguments = (client.resource(), client.folder, Http(client.config), self)
        self.thread = threading.Thread(target=lambda: self.results.append(fetch(*arguments)))
        self.thread.start()
        self.has_written.wait()

    def __call__(self, event: File | Rows | Note) -> None:
        if isinstance(event, File) and event.done:
            self.has_written.set()

    def finish(self) -> RawFile:
        self.stall.release.set()
        self.thread.join()
        return self.results[0]


# --- a good server ------------------------------------------------------------------------------


def test_file_is_fetched_once_with_one_get(client: Client, origin: Origin) -> None:
    raw = client.fetch(**PINNED)
    assert raw.path.read_bytes() == DATA
    assert (raw.size, raw.sha256, raw.checked) == (SIZE, sha256(DATA), "sha256")
    assert (raw.validator, raw.url) == ('"1"', origin.url + "file.bin")
    assert [request.method for request in origin.requests] == ["GET"]
    assert client.names() == ["file.bin", "file.bin.json"]


def test_completed_file_is_reused_without_a_request(client: Client, origin: Origin) -> None:
    first = client.fetch(**PINNED)
    assert client.fetch(**PINNED) == first
    assert len(origin.requests) == 1


def test_tampered_completed_file_is_fetched_again(client: Client, origin: Origin) -> None:
    client.fetch()
    client.path.write_bytes(OTHER)
    assert client.fetch().path.read_bytes() == DATA
    assert len(origin.requests) == 2


@pytest.mark.parametrize("note", ["", "{", "[]", '{"sha256": "x"}', "null"])
def test_completed_file_without_a_valid_note_is_fetched_again(
    note: str, client: Client, origin: Origin
) -> None:
    client.fetch()
    Path(f"{client.path}.json").write_text(note)
    assert client.fetch().path.read_bytes() == DATA
    assert len(origin.requests) == 2


def test_completed_file_that_is_no_longer_accepted_is_fetched_again(
    client: Client, origin: Origin
) -> None:
    client.fetch()
    origin.put("file.bin", OTHER)
    raw = client.fetch(checksums={"sha256": sha256(OTHER)})
    assert raw.path.read_bytes() == OTHER


def test_file_in_a_folder_of_its_own_is_laid_there(client: Client, origin: Origin) -> None:
    resource = Resource((origin.url + "file.bin",), "data/main/file.bin")
    raw = fetch(resource, client.folder, Http(client.config), silent)
    assert raw.path == client.folder / "data/main/file.bin"
    assert raw.path.read_bytes() == DATA


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "a//b", "a\\b", "", "a\0b", "."])
def test_file_name_that_leaves_its_folder_is_refused(name: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        Resource(("http://127.0.0.1/x",), name)
    assert caught.value.found == name


def test_redirected_file_is_named_by_the_url_asked_for(client: Client, origin: Origin) -> None:
    origin.always("old/file.bin", redirect("/file.bin"))
    raw = client.fetch(origin.url + "old/file.bin", **PINNED)
    assert raw.url == origin.url + "old/file.bin"
    assert raw.path.read_bytes() == DATA


# --- resuming -----------------------------------------------------------------------------------


def test_stalled_body_is_resumed(client: Client, origin: Origin) -> None:
    origin.script("file.bin", Fault(stall=Stall(), stall_after=CUT))
    client.read_timeout = 0.2
    assert client.fetch(**PINNED).path.read_bytes() == DATA
    first, second = origin.ranges("file.bin")
    assert first is None
    assert second == REST  # every byte that had come


def test_attempts_that_make_progress_are_not_counted(client: Client, origin: Origin) -> None:
    origin.script("file.bin", *[Fault(cut=20_000)] * 8)
    assert client.fetch(retries=1, **PINNED).path.read_bytes() == DATA
    assert len(origin.requests) == 9


def test_next_run_resumes_what_the_last_one_kept(client: Client, origin: Origin) -> None:
    origin.script("file.bin", Fault(cut=CUT), Fault(status=503))
    with pytest.raises(NetworkError):
        client.fetch(retries=0)
    assert client.fetch().path.read_bytes() == DATA
    assert origin.ranges("file.bin") == [None, REST, REST]


@pytest.mark.parametrize("lay", [os.link, os.symlink])
def test_a_part_that_is_another_file_too_is_left_to_it(
    lay: Callable[[Path, Path], None], client: Client, origin: Origin
) -> None:
    client.leave_part(DATA[:CUT])
    kept = client.folder.parent / "backup.part"
    client.part.rename(kept)
    lay(kept, client.part)
    assert client.fetch(**PINNED).path.read_bytes() == DATA
    assert origin.ranges("file.bin") == [None]
    assert kept.read_bytes() == DATA[:CUT]


def test_server_without_ranges_sends_the_whole_file_again(client: Client, origin: Origin) -> None:
    origin.script("file.bin", Fault(cut=CUT), Fault(ignore_range=True))
    assert client.fetch(**PINNED).path.read_bytes() == DATA
    assert origin.ranges("file.bin") == [None, REST]
    assert min(client.events.bytes[2:]) < CUT  # the count began anew


def test_changed_file_is_fetched_whole(client: Client, origin: Origin) -> None:
    origin.script("file.bin", Fault(cut=CUT), Fault(status=503))
    with pytest.raises(NetworkError):
        client.fetch(retries=0)
    origin.put("file.bin", OTHER, etag='"2"')
    assert client.fetch().path.read_bytes() == OTHER
    assert origin.ranges("file.bin") == [None, REST, REST]


def test_part_of_one_mirror_outlives_the_failure_of_another(client: Client, origin: Origin) -> None:
    client.leave_part(DATA[:CUT])
    raw = client.fetch(closed_port_url() + "file.bin", origin.url + "file.bin", retries=0)
    assert raw.path.read_bytes() == DATA
    assert origin.ranges("file.bin") == [REST]


def test_progress_counts_every_byte_once(client: Client, origin: Origin) -> None:
    origin.script("file.bin", Fault(cut=CUT), Fault(cut=50_000))
    client.fetch(**PINNED)
    assert client.events.bytes == sorted(set(client.events.bytes))
    assert client.events.bytes[-1] == SIZE


def test_second_writer_without_locks_continues_and_the_first_one_is_done_too(
    client: Client, origin: Origin
) -> None:
    first = Writer(client)
    second = client.fetch()
    assert [raw.path.read_bytes() for raw in (first.finish(), second)] == [DATA, DATA]
    begun, resumed = origin.ranges("file.bin")
    assert begun is None and resumed is not None
    assert client.names() == ["file.bin", "file.bin.json"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_second_writer_without_locks_begins_anew_and_both_are_done(
    order: tuple[int, int], client: Client, origin: Origin
) -> None:
    origin.put("file.bin", DATA, etag=None)  # so that no part may be continued
    writers = [Writer(client), Writer(client)]
    for number in order:
        assert writers[number].finish().path.read_bytes() == DATA
    assert origin.ranges("file.bin") == [None, None]
    assert client.names() == ["file.bin", "file.bin.json"]


# --- bodies that lie ----------------------------------------------------------------------------


@pytest.mark.parametrize("longer", [10, -10])
def test_other_size_than_the_catalogue_is_refused_before_the_body(
    longer: int, client: Client, origin: Origin
) -> None:
    origin.always("file.bin", Fault(longer=longer))
    with pytest.raises(IntegrityError) as caught:
        client.fetch(**PINNED)
    assert (caught.value.expected, caught.value.found) == (SIZE, SIZE + longer)
    assert (len(origin.requests), client.names(), client.events.bytes) == (1, [], [0])


def test_body_that_is_longer_than_the_file_is_stopped(client: Client, origin: Origin) -> None:
    origin.always("file.bin", Fault(chunked=1000, body=DATA + bytes(1 << 20)))
    with pytest.raises(IntegrityError) as caught:
        client.fetch(**PINNED)
    assert caught.value.expected == SIZE
    assert max(client.events.bytes) <= SIZE
    assert client.names() == []


@pytest.mark.parametrize(
    ("page", "found"),
    [
        (b"<!DOCTYPE html><p>Sign in", "a web page"),
        (b"\xef\xbb\xbf\n <HTML><p>Quota exceeded", "a web page"),
        (b"<?xml version='1.0'?><Error/>", "a web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "a Git LFS pointer"),
        (b"nonsense", "b'nonsense'"),
        (b"\x89HDF", r"b'\x89HDF'"),
        (b"", "b''"),
    ],
)
def test_page_instead_of_the_file_is_named_and_not_kept(
    page: bytes, found: str, client: Client, origin: Origin
) -> None:
    origin.put("file.bin", page, content_type="text/html")
    with pytest.raises(SourceError) as caught:
        client.fetch(magic=HDF5_MAGIC)
    assert caught.value.exit_code == 4
    assert caught.value.expected == "an HDF5 file" and found in str(caught.value.found)
    assert origin.url + "file.bin" in str(caught.value)
    assert (len(origin.requests), client.names()) == (1, [])


def test_no_verify_does_not_take_a_page_for_the_file(client: Client, origin: Origin) -> None:
    origin.put("file.bin", b"<html>Sign in</html>")
    with pytest.raises(SourceError) as caught:
        client.fetch(magic=HDF5_MAGIC, any=True)
    assert caught.value.found == "a web page"


def test_a_page_is_refused_also_for_a_file_of_any_beginning(client: Client, origin: Origin) -> None:
    origin.always("file.bin", Fault(chunked=1, body=b"<!DOCTYPE html><p>Not found"))
    with pytest.raises(SourceError) as caught:
        client.fetch()
    assert (caught.value.expected, caught.value.found) == ("the published file", "a web page")
    assert client.names() == []


def test_file_is_known_by_its_first_bytes_though_they_come_one_by_one(
    client: Client, origin: Origin
) -> None:
    origin.put("file.bin", DATA[:2000])
    origin.script("file.bin", Fault(chunked=1))
    assert client.fetch(magic=HDF5_MAGIC).path.read_bytes() == DATA[:2000]


# --- checksums ----------------------------------------------------------------------------------


def test_wrong_checksum_names_both_hashes_and_keeps_nothing(client: Client, origin: Origin) -> None:
    origin.put("file.bin", OTHER)
    with pytest.raises(IntegrityError) as caught:
        client.fetch(**PINNED)
    assert caught.value.exit_code == 4 and caught.value.found == sha256(OTHER)
    for text in (sha256(DATA), sha256(OTHER), origin.url + "file.bin", "verify=False"):
        assert text in str(caught.value)
    assert (len(origin.requests), client.names()) == (1, [])


def test_flipped_byte_is_noticed_and_the_next_mirror_tried(client: Client, origin: Origin) -> None:
    bad = origin.put("bad/file.bin", DATA)
    origin.always("bad/file.bin", Fault(flip=150_000))
    raw = client.fetch(bad, origin.url + "file.bin", **PINNED)
    assert raw.url == origin.url + "file.bin"
    assert raw.path.read_bytes() == DATA
    assert len(origin.log("bad/file.bin")) == 1


def test_checksums_of_other_kinds_are_checked_too(client: Client, origin: Origin) -> None:
    md5 = hashlib.md5(DATA).hexdigest()
    assert client.fetch(checksums={"md5": md5}).checked == "md5"
    client.path.unlink()
    with pytest.raises(IntegrityError) as caught:
        client.fetch(checksums={"md5": "0" * 32})
    assert (caught.value.expected, caught.value.found) == (f"md5 {'0' * 32}", md5)


def test_file_that_nobody_vouches_for_is_taken_and_says_so(client: Client) -> None:
    assert client.fetch().checked == "nothing"


def test_older_version_is_accepted_and_labelled(client: Client, origin: Origin) -> None:
    older = Content(len(OTHER) - 8, {"sha256": sha256(OTHER[:-8])}, "before the fix")
    origin.put("file.bin", OTHER[:-8])
    raw = client.fetch(**PINNED, older=(older,))
    assert (raw.version, raw.checked) == ("before the fix", "sha256")
    assert client.fetch(**PINNED, older=(older,)) == raw


def test_size_and_checksum_must_be_of_the_same_version(client: Client, origin: Origin) -> None:
    older = Content(len(OTHER) - 8, {"sha256": sha256(OTHER[:-8])}, "before the fix")
    origin.put("file.bin", DATA[:-8])
    with pytest.raises(IntegrityError) as caught:
        client.fetch(**PINNED, older=(older,))
    assert (caught.value.expected, caught.value.found) == (f"{SIZE} bytes", str(SIZE - 8))


@pytest.mark.parametrize("data", [OTHER, OTHER + b"more"])
def test_no_verify_takes_another_file_and_records_the_difference(
    data: bytes, client: Client, origin: Origin
) -> None:
    origin.put("file.bin", data)
    raw = client.fetch(**PINNED, any=True)
    assert raw.path.read_bytes() == data
    assert raw.checked.startswith("not verified: file.bin is not the published file: expected")


def test_file_taken_without_verifying_is_not_reused_by_a_run_that_verifies(
    client: Client, origin: Origin
) -> None:
    origin.script("file.bin", Fault(body=OTHER))
    client.fetch(**PINNED, any=True)
    assert client.fetch(**PINNED).path.read_bytes() == DATA


# --- mirrors, refusals, offline -----------------------------------------------------------------


def test_offline_mode_reuses_a_completed_file(client: Client, origin: Origin) -> None:
    client.fetch(**PINNED)
    client.config = replace(client.config, offline=True)
    assert client.fetch(**PINNED).path.read_bytes() == DATA


# --- the disk -----------------------------------------------------------------------------------


def test_full_disk_is_named_and_the_part_is_resumed_later(client: Client, origin: Origin) -> None:
    with small_disk(CUT), pytest.raises(DiskFull) as caught:
        client.fetch()
    assert caught.value.exit_code == 7 and str(client.part) in str(caught.value)
    assert client.part.stat().st_size == CUT
    assert client.fetch(**PINNED).path.read_bytes() == DATA
    assert origin.ranges("file.bin") == [None, REST]


def test_file_that_will_not_fit_is_refused_before_its_body(
    client: Client, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "shutil.disk_usage", lambda path: SimpleNamespace(total=1 << 40, free=SIZE - 1)
    )
    with pytest.raises(DiskFull) as caught:
        client.fetch()
    assert (caught.value.exit_code, caught.value.expected) == (7, SIZE)
    assert "root=" in str(caught.value.advice)
    assert (client.names(), client.events.bytes) == ([], [0])
