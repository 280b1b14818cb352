"""User, password and token of an address are sent, and are nowhere afterwards."""

from __future__ import annotations

import base64
import itertools
import json
import logging
import traceback
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets_cli.cli.main import main
from datasets_cli.config import Config, load_config
from datasets_cli.core.progress import silent
from datasets_cli.errors import NetworkError, RldsError, UsageError, public_text, public_url
from datasets_cli.sources.download import fetch
from datasets_cli.sources.http import Http
from datasets_cli.sources.resource import Resource
from tests.conftest import DEMO
from tests.support.origin import Fault, Origin, closed_port_url, redirect

ID = "minari/my/door-v0"
FILES = DEMO / "minari" / "D4RL" / "door" / "human-v2" / "data"
NAMES = ("main_data.hdf5", "metadata.json")
SECRETS = ("s3cr3t", base64.b64encode(b"me:s3cr3t").decode())
TOKEN = "?token=s3cr3t"
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def origin() -> Iterator[Origin]:
    """A server whose files are below ``f``, each with a token."""
    with Origin() as running:
        for name in NAMES:
            running.put(f"f/{name}{TOKEN}", (FILES / name).read_bytes())
        yield running


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    return caplog


def secret(url: str) -> str:
    return url.replace("http://", "http://me:s3cr3t@")


def assert_kept(config: Config, *texts: str) -> None:
    """Assert that neither a file below the root nor a text has a secret, and that there are any."""
    files = [path for path in config.root.rglob("*") if path.is_file()]
    assert files and any(texts)
    for word, text in itertools.product(SECRETS, texts):
        assert word not in text
    for word, path in itertools.product(SECRETS, files):
        assert word.encode() not in path.read_bytes(), path


def test_a_source_with_a_secret_leaves_none(
    origin: Origin, config: Config, capsys: Capture, logged: pytest.LogCaptureFixture
) -> None:
    source = f"{secret(origin.url)}f{TOKEN}"
    for more in (["--dry-run"], ["--dry-run", "--json"], ["--keep-raw"], ["--json"]):
        assert main(["download", ID, "--source", source, "--debug", *more]) == 0
    assert main(["info", ID, "--json"]) == 0
    out, err = capsys.readouterr()
    assert_kept(config, out, err, logged.text)
    assert out.count(f"{origin.url}f/main_data.hdf5?***") >= 3
    assert {request.headers["Authorization"] for request in origin.requests} == {
        f"Basic {SECRETS[1]}"
    }


@pytest.mark.parametrize(
    "fault",
    [
        Fault(cut=0),
        Fault(status=404),
        Fault(status=503),
        Fault(body=b"<html>"),
        Fault(headers={"\0": "no header", "Content-Length": "x"}),
    ],
)
def test_the_failure_of_a_source_with_a_secret_shows_none(
    fault: Fault,
    origin: Origin,
    config: Config,
    capsys: Capture,
    logged: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("datasets_cli.sources.http.time.sleep", lambda seconds: None)
    if fault.cut == 0:  # after a part, which is kept with its note
        origin.script(f"f/{NAMES[0]}{TOKEN}", Fault(cut=9))
    origin.always(f"f/{NAMES[0]}{TOKEN}", fault)
    source = f"{secret(origin.url)}f{TOKEN}"
    for more in ([], ["--json"]):
        assert main(["download", ID, "--source", source, "--debug", *more]) in (4, 5, 6)
    out, err = capsys.readouterr()
    assert_kept(config, out, err, logged.text)
    assert f"{origin.url}f/main_data.hdf5" in err


@pytest.mark.parametrize(
    "address", ["http://me:a s3cr3t@127.0.0.1:1/f", "http://h/f?token=a s3cr3t", "http://[::1"]
)
@pytest.mark.parametrize("option", ["--source=", "--mirror=http://rail.eecs.berkeley.edu/="])
def test_an_address_with_a_space_is_refused_without_what_follows_it(
    option: str, address: str, capsys: Capture
) -> None:
    assert main(["download", "d4rl/door-human-v0", "--offline", f"{option}{address}"]) in (2, 5)
    err = capsys.readouterr().err
    assert "s3cr3t" not in err and "Unexpected" not in err


@pytest.mark.parametrize("how", ["mirror", "redirect"])
@pytest.mark.parametrize("fails", [False, True])
def test_a_mirror_or_redirect_with_a_secret_leaves_none(
    how: str, fails: bool, origin: Origin, config: Config, logged: pytest.LogCaptureFixture
) -> None:
    data, target = b"x" * 70_000, f"{secret(origin.url)}m/file.bin{TOKEN}"
    origin.put(f"m/file.bin{TOKEN}", data, etag='"1"')
    origin.script(f"m/file.bin{TOKEN}", Fault(cut=66_000))
    if fails:
        origin.always(f"m/file.bin{TOKEN}", Fault(cut=0))
    url = origin.put("file.bin", b"")
    origin.always("file.bin", redirect(target) if how == "redirect" else Fault(status=404))
    mirrors = [f"{url}={target}"] if how == "mirror" else []
    http = Http(load_config(mirrors=mirrors), retries=1, backoff_seconds=0.001)
    text = ""
    try:
        raw = fetch(Resource((url,), "file.bin"), config.root, http, silent)
        text = json.dumps(raw.to_json())
    except RldsError as error:
        text = f"{error!r} {error.to_json()}"
    assert fails == (not (config.root / "file.bin").exists())
    assert_kept(config, text, logged.text)
    assert '"GET /m/file.bin?*** HTTP/1.1"' in logged.text


def test_a_traceback_shows_no_secret(
    config: Config, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets_cli.sources.http.time.sleep", lambda seconds: None)
    closed = closed_port_url()
    arguments = ["download", ID, "--source", f"{secret(closed)}f{TOKEN}", "--debug"]
    config.root.mkdir(parents=True)
    (config.root / "file").touch()
    assert main(arguments) == 5
    err = capsys.readouterr().err
    assert "Traceback" in err and "refused" in err
    assert_kept(config, err)


def test_what_the_libraries_say_of_a_failure_is_not_shown_with_it(config: Config) -> None:
    url = f"{secret(closed_port_url())}f{TOKEN}"
    with pytest.raises(NetworkError) as caught, Http(config).open(url):
        pass
    assert caught.value.found == "ConnectionRefusedError"
    assert "s3cr3t" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("mirror", ["http://a/=me:s3cr3t@b/f?token=s3cr3t", "me:s3cr3t@b/f#s3cr3t"])
def test_a_mirror_that_is_none_is_named_without_its_secret(mirror: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_config(mirrors=[mirror])
    assert caught.value.argument == "mirrors"
    assert caught.value.expected == "PREFIX=REPLACEMENT"
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://example.org:8443/a/b", "https://example.org:8443/a/b"),
        ("https://me@example.org/a@b", "https://example.org/a@b"),
        ("https://me:p@ss@[::1]:80/a?x=1&alt=media#here", "https://[::1]:80/a?***&alt=media"),
        ("https://h/o?prefix=a/b&pageToken=x", "https://h/o?prefix=a/b&***"),
        ("https://h/f?dG9rZW4==", "https://h/f?***"),
        ("https://h/f?s3cr3t", "https://h/f?***"),
        ("http://[::1", "http://[::1"),
        ("http://me:pa/ss@h/f", "http://***"),
        ("http://me:pa#ss@h/f", "http://***"),
        ("http://me:pa?ss@h/f", "http://***?***"),
        ("/f?token=x", "/f?***"),
        ("", ""),
    ],
)
def test_host_path_and_what_names_the_file_stay(url: str, shown: str) -> None:
    assert public_url(url) == shown


def test_what_follows_an_address_in_a_sentence_is_not_of_it() -> None:
    for text in ('address="tcp://host:8786" (--address)', "at tcp://host:1, tcp://host:2."):
        assert public_text(text) == text


IN_PASSWORD = st.text(":@&=%;+'\"\\[]x1", max_size=5)
IN_QUERY = st.text("/?#:@&=%;+'\"\\[]x1", max_size=5)


@settings(max_examples=50)
@given(IN_PASSWORD, IN_PASSWORD, IN_QUERY, IN_QUERY)
def test_no_spelling_of_a_secret_is_shown(a: str, b: str, c: str, d: str) -> None:
    url = f"https://me:{a}s3cr3t{b}@example.org/f?{c}s3cr3t{d}"
    assert "s3cr3t" not in public_url(url)
    assert "s3cr3t" not in public_text(f"It is ({url}), and {url}.")
    assert "s3cr3t" not in repr(NetworkError(f"{url} cannot be read"))
