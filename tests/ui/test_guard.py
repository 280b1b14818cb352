"""Only the owner of the terminal gets data, and no request changes a file."""

from __future__ import annotations

import gc
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import datasets_cli
from datasets_cli.config import Config
from datasets_cli.core.progress import silent
from datasets_cli.ui.application import application
from datasets_cli.ui.local_page import LocalPage
from datasets_cli.ui.server import BoundAddress
from tests.support.page_requests import COOKIE, HOST, TOKEN, Answer, ask, guarded

POLICY = "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'self'; "
POLICY += "frame-ancestors 'none'"


@dataclass(frozen=True)
class Attack:
    """A request that must not be answered with data."""

    what: str
    target: str = "/"
    status: int = 403
    headers: dict[str, str] = field(default_factory=dict)
    method: str = "GET"

    def __str__(self) -> str:
        return self.what


ATTACKS = [
    Attack("no token", headers={"cookie": ""}),
    Attack("no token, of a file of the page", "/static/style.css", headers={"cookie": ""}),
    Attack("a wrong token", "/?token=wrong", headers={"cookie": ""}),
    Attack("a wrong token beside the cookie", "/?token=wrong"),
    Attack("the begin of the token", f"/?token={TOKEN[:-1]}", headers={"cookie": ""}),
    Attack("the token and more", f"/?token={TOKEN}x", headers={"cookie": ""}),
    Attack("a second token", f"/?token=wrong&token={TOKEN}", headers={"cookie": ""}),
    Attack("a token that is not text", "/?token=%ff%00", headers={"cookie": ""}),
    Attack("the cookie of another port", headers={"cookie": f"rlds-8001={TOKEN}"}),
    Attack("a cookie whose name begins so", headers={"cookie": f"rlds-8000x={TOKEN}"}),
    Attack("the token as a header", headers={"cookie": "", "authorization": f"Bearer {TOKEN}"}),
    Attack("no host", headers={"host": ""}),
    Attack("the host of another site", headers={"host": "evil.example:8000"}),
    Attack("a name that an attacker points here", headers={"host": "127.0.0.1.evil.example:8000"}),
    Attack("localhost, which is not what is bound", headers={"host": "localhost:8000"}),
    Attack("0.0.0.0", headers={"host": "0.0.0.0:8000"}),
    Attack("the host without its port", headers={"host": "127.0.0.1"}),
    Attack("the host with another port", headers={"host": "127.0.0.1:8001"}),
    Attack("the host with a user", headers={"host": f"evil@{HOST}"}),
    Attack("another origin", headers={"origin": "http://evil.example"}),
    Attack("no origin of a sandbox", headers={"origin": "null"}),
    Attack("an origin of another scheme", headers={"origin": f"https://{HOST}"}),
    Attack("an origin of another port", headers={"origin": "http://127.0.0.1:9000"}),
    Attack("a request of another site", headers={"sec-fetch-site": "cross-site"}),
    Attack("a request of another port", headers={"sec-fetch-site": "same-site"}),
    Attack("a site with the token", f"/?token={TOKEN}", headers={"sec-fetch-site": "cross-site"}),
    Attack("POST", method="POST", status=405),
    Attack("OPTIONS, which asks for another site", method="OPTIONS", status=405),
    Attack("a method that nobody knows", method="<script>", status=405),
    Attack("a folder above", "/static/%2e%2e/guard.py", status=404),
    Attack("folders above", "/static/../../../../../../etc/passwd", status=404),
    Attack("a folder above an id", "/d/%2e%2e/%2e%2e/etc/passwd", status=404),
    Attack("encoded slashes", "/d/demo%2firis", status=400),
    Attack("encoded slashes above", "/static/..%2f..%2fguard.py", status=400),
    Attack("slashes encoded twice", "/d/demo%252firis", status=400),
    Attack("backslashes", "/static/..%5c..%5cguard.py", status=400),
    Attack("an id with a header", "/d/demo/iris%0d%0aset-cookie:%20x", status=400),
    Attack("an id with a null", "/d/demo/iris%00.html", status=400),
    Attack("an id that turns the direction", "/d/demo/%e2%80%aeiris", status=400),
    Attack("an address of another site", f"//evil.example/?token={TOKEN}", status=400),
    Attack("an id with a script", "/d/<script>alert(1)</script>", status=404),
    Attack("a hidden folder", "/d/demo/.iris", status=404),
    Attack("a path as the id to compare", "/compare?a=/etc&b=../../etc", status=400),
    Attack("a glob as the id to compare", "/compare?a=*&b=demo/*", status=400),
    Attack("a field that nobody has", "/?sort=__class__", status=400),
    Attack("a state with a filter", "/?size=1GB%20or%201", status=400),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_an_attack_gets_a_sentence(attack: Attack, config: Config) -> None:
    got = ask(guarded(config), attack.target, attack.headers, attack.method)
    assert got.status == attack.status
    check_headers(got)
    assert got.header("set-cookie") is None
    assert TOKEN not in got.text and "Traceback" not in got.text and "root:" not in got.text
    assert "<script>alert" not in got.text


PATHS = ["/etc", "../../etc", "~root", "docs", "x" * 300, "demo/" * 200 + "x"]


@pytest.mark.parametrize("id", PATHS)
def test_no_path_of_an_address_is_looked_for(
    id: str, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_for: list[str] = []
    monkeypatch.setattr("datasets_cli.store.cache_root.folder_advice", looked_for.append)
    monkeypatch.setattr("datasets_cli.catalogue.names.folder_advice", looked_for.append)
    for address in (f"/compare?a={id}&b={id}", f"/d/{id}", f"/api/d/{id}/stats"):
        assert ask(guarded(config), address).status in (400, 404)
    assert not looked_for


def check_headers(got: Answer) -> None:
    assert got.header("content-security-policy") == POLICY
    assert got.header("x-content-type-options") == "nosniff"
    assert got.header("referrer-policy") == "no-referrer"
    assert got.header("cross-origin-resource-policy") == "same-origin"
    assert not [name for name, _ in got.headers if name.startswith("access-control")]


def test_the_token_becomes_a_cookie_and_leaves_the_address(config: Config) -> None:
    got = ask(guarded(config), f"/d/demo/iris?t=3&token={TOKEN}&x=1", {"cookie": ""})
    assert (got.status, got.header("location")) == (303, "/d/demo/iris?t=3&x=1")
    assert got.header("set-cookie") == f"{COOKIE}; HttpOnly; Path=/; SameSite=strict"
    assert got.header("cache-control") == "no-store"


@pytest.mark.parametrize("headers", [{}, {"sec-fetch-site": "none"}, {"origin": f"http://{HOST}"}])
def test_a_request_of_the_page_is_answered(headers: dict[str, str], config: Config) -> None:
    got = ask(guarded(config), "/", headers)
    assert got.status == 200 and got.header("cache-control") == "no-store"
    check_headers(got)
    css = ask(guarded(config), "/static/style.css", headers)
    assert css.header("cache-control") == "private, no-cache"


def test_head_is_answered_without_a_body(config: Config) -> None:
    got = ask(guarded(config), "/activity", method="HEAD")
    assert got.status == 200


def test_what_a_browser_is_started_with_opens_the_page_once(config: Config) -> None:
    guard = guarded(config)
    target = f"/?token={guard.ticket()}"
    assert ask(guard, target, {"cookie": ""}).header("set-cookie") is not None
    assert ask(guard, target, {"cookie": ""}).status == 403


def test_all_addresses_of_a_machine_are_numbers_or_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "node7")
    everywhere = BoundAddress("0.0.0.0", 8000, "0.0.0.0")
    hosts = ["node7:8000", "10.0.0.7:8000", "[fe80::1]:8000"]
    others = ["evil.example:8000", "0.0.0.0:8000", "10.0.0.7:80", "10.0.0.7", "node7.evil:8000"]
    assert [everywhere.is_host(each) for each in hosts] == [True] * 3
    assert [everywhere.is_host(each) for each in others] == [False] * 5


def test_an_address_of_version_six_stands_in_brackets() -> None:
    own = BoundAddress("::1", 8000, "::1")
    assert own.url == "http://[::1]:8000" and own.is_host("[::1]:8000")
    assert not own.is_host("[::1]") and not own.is_host("::1:8000")
    assert BoundAddress("127.0.0.1", 80, "127.0.0.1").is_host("127.0.0.1")


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
