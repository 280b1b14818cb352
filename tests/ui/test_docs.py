"""The page of docs/page.md says what the page does."""

from __future__ import annotations

import re
from typing import Any

import pytest

from datasets_cli import serve_page
from datasets_cli.config import Config
from datasets_cli.ui import local_page, server
from tests.support.page_requests import ask, guarded
from tests.support.paths import PROJECT

TEXT = (PROJECT / "docs" / "page.md").read_text(encoding="utf-8")


def test_the_python_of_the_page_runs(config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        names: dict[str, Any] = {}
        exec(block, names)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=.{43}\n", capsys.readouterr().out)


def test_what_the_command_prints_on_the_page_is_what_it_prints(door: str) -> None:
    shown = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)[0].splitlines()
    with serve_page(door, browser=False) as page:
        assert len(shown[2].partition("?token=")[2]) == len(page.address.partition("?token=")[2])
        assert page.address.partition(f"/d/{door}?token=")[2]
        assert shown[3] == f"{page.readers} Ctrl-C ends it."


def test_every_address_of_the_page_is_one(door: str, config: Config) -> None:
    addresses = re.findall(r"`(/[^`]*)`", TEXT)
    assert len(addresses) >= 9
    for address in addresses:
        named = address.replace("ID2", "ID").replace("/K", "/0")
        got = ask(guarded(config), named.replace("ID", door))
        assert got.status == 200, address


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    assert local_page.MOST_BYTES == 1 << 30 and "more than 1 GiB" in TEXT
    assert f"With {server.MOST_CONNECTIONS} open connections, further requests" in TEXT
