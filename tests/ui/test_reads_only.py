"""The page reads: no request changes a file of the cache root, or of the user's cache."""

from __future__ import annotations

import gc
import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import datasets_cli
from datasets_cli.config import Config
from datasets_cli.core.progress import silent
from datasets_cli.ui.application import application
from datasets_cli.ui.local_page import LocalPage
from tests.support.page_requests import ask, guarded

PONG, DOOR = "demo/pong", "demo/door-minari"
ADDRESSES = [
    *("/", "/?q=pong&sort=transitions", "/api/catalogue", "/activity", "/api/activity"),
    *("/compare", f"/compare?a={PONG}&b={DOOR}", f"/compare?a={PONG}&b={PONG}"),
    *("/d/demo/iris", f"/d/{PONG}", f"/d/{DOOR}", "/static/style.css"),
    *(f"/api/d/{DOOR}/stats", f"/api/d/{DOOR}/stats?columns=action"),
    *(f"/d/{DOOR}/trajectories", f"/api/d/{DOOR}/trajectories?sort=return"),
    *(f"/d/{PONG}/trajectories/0", f"/api/d/{PONG}/trajectories/0/curves"),
    *(f"/api/d/{PONG}/trajectories/0/steps", f"/api/d/{PONG}/trajectories/0/frames/3.png"),
]
Files = dict[Path, tuple[int, int]]


@pytest.fixture
def folders(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The cache root, with demos, a lock and a part of a download, and the user's cache."""
    users = tmp_path / "users"
    monkeypatch.setenv("XDG_CACHE_HOME", str(users))
    for id in (PONG, DOOR):
        datasets_cli.download(id, config=config, progress=silent)
    for name in ("locks/demo.iris.0.lock", "downloads/demo/iris/iris.part"):
        (config.root / name).parent.mkdir(parents=True, exist_ok=True)
        (config.root / name).touch()
    users.mkdir()
    return [config.root, users]


def files_of(folders: list[Path]) -> Files:
    stats = {path: path.stat() for folder in folders for path in (folder, *folder.rglob("*"))}
    return {path: (each.st_size, each.st_mtime_ns) for path, each in stats.items()}


def test_no_request_changes_a_file(folders: list[Path], config: Config) -> None:
    guard, before = guarded(config), files_of(folders)
    assert len(before) > 20
    for address in ADDRESSES:
        assert ask(guard, address).status == 200, address
        assert files_of(folders) == before, address


def test_every_route_is_among_the_addresses(config: Config) -> None:
    routes = [route.path_regex for route in application(LocalPage.of(config)).routes]  # type: ignore[attr-defined]
    paths = [each.partition("?")[0] for each in ADDRESSES]
    assert len(routes) > 12
    for route in routes:
        assert any(re.match(route, path) for path in paths), route


def test_an_export_changes_no_file_of_the_root(
    folders: list[Path], config: Config, tmp_path: Path
) -> None:
    before = files_of(folders)
    made = datasets_cli.export_pages(PONG, tmp_path / "pages", trajectories=1, config=config)
    assert made.num_files > 3 and files_of(folders) == before


def test_what_a_page_works_out_is_the_same_as_is_kept_and_goes_with_it(
    folders: list[Path], config: Config
) -> None:
    page = LocalPage.of(config)
    apart, client = page.apart, TestClient(application(page), "http://127.0.0.1")
    shown = client.get(f"/api/d/{DOOR}/stats").json()
    kept = datasets_cli.dataset_stats(DOOR, config=config).to_json()
    assert shown["columns"] and shown == kept
    assert [*apart.glob("*/statistics.json")] and apart.stat().st_mode & 0o077 == 0
    del page, client
    gc.collect()
    assert not apart.exists()
