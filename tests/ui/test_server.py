"""The server: where it answers, who is told what, and how it ends."""

from __future__ import annotations

import gc
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import pytest

import datasets_cli
from datasets_cli import UsageError
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import install_extra
from datasets_cli.results import ServedPage
from datasets_cli.sources.new_files import TEMPORARY
from datasets_cli.ui.server import MOST_CONNECTIONS, PageCall
from tests.support.refusals import refused

Capture = pytest.CaptureFixture[str]

# Connections beyond the limit are dropped by asyncio, and an HTTPError keeps its connection: both
# leave sockets to the collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture
def page(config: Config) -> Iterator[ServedPage]:
    with datasets_cli.serve_page(browser=False, config=config) as page:
        yield page
    gc.collect()  # else the warnings of sockets arrive in whichever test runs then


def opened(address: str) -> str:
    """Return the page at an address, fetched as a browser does: with cookies and redirects."""
    cookies = urllib.request.HTTPCookieProcessor(CookieJar())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies)
    with opener.open(address, timeout=10) as answer:
        assert "token" not in answer.url
        text: str = answer.read().decode()
        return text


def place_of(page: ServedPage) -> tuple[str, int]:
    host, _, port = page.address.partition("/?")[0].rpartition("//")[2].rpartition(":")
    return host, int(port)


def test_the_address_opens_the_page(page: ServedPage) -> None:
    assert "<h1>Datasets</h1>" in opened(page.address)
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(page.address.partition("?")[0], timeout=10)
    assert page.readers.endswith("on this machine alone.")


def test_a_page_may_begin_with_a_dataset(config: Config) -> None:
    with datasets_cli.serve_page("hopper-medium-v2", browser=False, config=config) as page:
        assert "/d/d4rl/hopper-medium-v2?token=" in page.address
        assert "<h1>d4rl/hopper-medium-v2</h1>" in opened(page.address)


def test_every_page_has_a_token_of_its_own(page: ServedPage, config: Config) -> None:
    with datasets_cli.serve_page(browser=False, config=config) as other:
        tokens = {each.address.partition("?token=")[2] for each in (page, other)}
        assert len(tokens) == 2 and all(len(token) >= 43 for token in tokens)


def test_a_closed_page_answers_no_more(config: Config) -> None:
    with datasets_cli.serve_page(browser=False, config=config) as page:
        opened(page.address)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(place_of(page), timeout=1)
    page.wait()  # returns


def test_what_cannot_be_served_is_refused(page: ServedPage, config: Config) -> None:
    port = place_of(page)[1]
    served: dict[str, Any] = {"browser": False, "config": config}

    def serve(**options: Any) -> ServedPage:
        return datasets_cli.serve_page(**options, **served)

    for number in (port, 70_000, -1):
        with refused(UsageError, argument="port", found=number):
            serve(port=number)
    for host, allow_remote in (
        ("0.0.0.0", False),
        ("203.0.113.7", True),
        ("no.such.name.invalid", True),
    ):
        with refused(UsageError, argument="host", found=host):
            serve(host=host, allow_remote=allow_remote)
    with pytest.raises(datasets_cli.errors.UnknownDataset):
        serve(id="nope")


def test_who_can_read_from_elsewhere_is_told(config: Config) -> None:
    call: dict[str, Any] = {"host": "0.0.0.0", "allow_remote": True, "browser": False}
    with datasets_cli.serve_page(**call, config=config) as page:
        assert f"every machine that reaches {socket.gethostname()}" in page.readers
        assert "not encrypted" in page.readers
        token = page.address.partition("?")[2]
        assert "<h1>Datasets" in opened(f"http://127.0.0.1:{place_of(page)[1]}/?{token}")


@pytest.mark.parametrize("module", ["starlette", "uvicorn", "jinja2"])
def test_a_missing_extra_is_named(
    module: str, config: Config, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert main(["ui", "--no-browser"]) == 2
    assert install_extra("ui") in capsys.readouterr().err


def test_a_browser_opens_where_there_is_a_desktop_with_what_is_used_up(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses: list[str] = []
    monkeypatch.setattr("webbrowser.open", addresses.append)
    monkeypatch.setenv("DISPLAY", ":0")
    with datasets_cli.serve_page(config=config) as page:
        assert addresses[0] != page.address
        assert "<h1>Datasets" in opened(addresses[0])
        with pytest.raises(urllib.error.HTTPError, match="403"):
            opened(addresses[0])


def test_beyond_so_many_connections_requests_are_refused_until_some_close(page: ServedPage) -> None:
    with ExitStack() as stack:
        for _ in range(MOST_CONNECTIONS):
            stack.enter_context(socket.create_connection(place_of(page), timeout=10))
        with pytest.raises(urllib.error.HTTPError) as refused:
            opened(page.address)
        assert refused.value.code == 503
    assert "<h1>Datasets</h1>" in opened(page.address)


def test_what_is_no_request_closes_its_connection(page: ServedPage) -> None:
    for data in (b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\nx: " + bytes(1 << 17)):
        with socket.create_connection(place_of(page), timeout=10) as wrong, suppress(OSError):
            wrong.sendall(data + b"\r\n\r\n")
            assert wrong.recv(64).startswith(b"HTTP/1.1 400")
    assert "<h1>Datasets</h1>" in opened(page.address)


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, *arguments], **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_signal_ends_the_command_with_its_code(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with started("-m", "datasets_cli", "ui", "--no-browser") as process:
        assert process.stdout is not None and process.stderr is not None
        address = process.stdout.readline().strip()
        assert "<h1>Datasets</h1>" in opened(address)
        assert [*tmp_path.glob(f"{TEMPORARY}*")]
        with socket.create_connection(("127.0.0.1", int(address.split(":")[2].split("/")[0]))):
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 143
        token = address.partition("=")[2]
        rest, told = process.stdout.read(), process.stderr.read()
        assert not rest and token not in told and "Traceback" not in told
        assert "on this machine alone. Ctrl-C ends it." in told
        assert not [*tmp_path.glob(f"{TEMPORARY}*")]


def test_an_interrupt_waits_for_no_request(config: Config, tmp_path: Path) -> None:
    # As while the rows of a large dataset are read in a thread.
    code = (
        "import time, sys; from datasets_cli.ui import application as room;"
        "room.activity_in = lambda root: time.sleep(600);"
        "from datasets_cli.cli.main import main; sys.exit(main(['ui', '--no-browser', '--json']))"
    )
    with started("-c", code) as process:
        assert process.stdout is not None
        document = ""
        while not document.endswith("}\n"):
            document += process.stdout.readline()
        address = json.loads(document)["address"]
        token, port = address.partition("=")[2], int(address.split(":")[2].split("/")[0])
        with socket.create_connection(("127.0.0.1", port)) as slow:
            head = f"GET /activity HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            slow.sendall(f"{head}Cookie: rlds-{port}={token}\r\n\r\n".encode())
            time.sleep(0.3)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 130


def test_the_command_takes_what_the_function_does(config: Config, capsys: Capture) -> None:
    assert main(["ui", "--help"]) == 0
    shown = capsys.readouterr().out
    for option in ("--port", "--host", "--no-browser", "--allow-remote"):
        assert option in shown
    assert main(["ui", "--host", "0.0.0.0", "--no-browser"]) == 2
    assert "--host 0.0.0.0 is reachable from other machines" in capsys.readouterr().err
    assert PageCall().port == 0 and PageCall().host == "127.0.0.1"
