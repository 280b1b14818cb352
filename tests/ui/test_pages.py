"""Pages of datasets and of the findings of an audit."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from html import unescape
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import datasets_cli
from datasets_cli.audit.report import AuditReport
from datasets_cli.audit.rules.finding import Finding
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.core.quantities import human_bytes
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.lock import locked
from datasets_cli.store.tables import save_table
from datasets_cli.ui import local_page
from datasets_cli.ui.application import application
from datasets_cli.ui.local_page import FOLDER, LocalPage
from tests.conftest import root_with
from tests.support.d4rl_cuts import CUTS
from tests.support.page_requests import ask, guarded

HOSTILE = '<script>alert(\'x\')</script>" onload="x" javascript:alert(1) \u202egnp.exe \x1b[2J'
ESCAPED = "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&#34; onload=&#34;x&#34;"
OWN = "mine/evil"
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def hostile(config: Config) -> str:
    """The id of a dataset whose words are all of an attacker's."""
    steps = {"observation": np.arange(6.0)[:, None], "action": np.zeros(6), "reward": np.ones(6)}
    columns: dict[Any, Any] = {**steps, ("info", HOSTILE): np.ones(6)}
    columns["said"] = np.array([HOSTILE] * 6, object)
    info = dict.fromkeys(("title", "licence", "citation", "homepage", "note"), HOSTILE)
    datasets_cli.create_dataset(OWN, columns, lengths=[3, 3], info=info, config=config)
    return OWN


def printed(capsys: Capture, *arguments: str) -> Any:
    capsys.readouterr()
    assert main([*arguments, "--json"]) in (0, 10)
    return json.loads(capsys.readouterr().out)


def rows_of(page: str) -> list[list[str]]:
    rows = re.findall("<tr[^>]*>(.*?)</tr>", page, re.DOTALL)
    cells = [re.findall("<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL) for row in rows]
    return [[unescape(re.sub("<[^>]*>", "", each)).strip() for each in row] for row in cells]


@pytest.mark.parametrize(
    ("address", "command"),
    [
        ("/api/catalogue", "list"),
        ("/api/d/{id}/stats", "stats {id}"),
        ("/api/d/{id}/stats?columns=action,next.reward", "stats {id} --columns action,next.reward"),
    ],
)
def test_data_are_what_the_command_prints(
    address: str, command: str, door: str, config: Config, capsys: Capture
) -> None:
    datasets_cli.dataset_stats(door, config=config)
    got = ask(guarded(config), address.format(id=door))
    assert got.header("content-type") == "application/json"
    assert got.json() == printed(capsys, *command.format(id=door).split())


def test_the_first_page_has_what_is_installed_and_counts_of_families(
    door: str, config: Config, capsys: Capture
) -> None:
    known = Counter(each["id"].partition("/")[0] for each in printed(capsys, "list"))
    heads, installed, families, *rows = rows_of(ask(guarded(config), "/").text)
    assert (heads[0], installed[0], families) == (
        "Dataset",
        door,
        ["Family", "Datasets", "Installed"],
    )
    assert {name: int(count) for name, count, _ in rows} == known
    assert {name: int(count) for name, _, count in rows if count != "0"} == {"d4rl": 1}


def test_a_search_has_fifty_datasets_a_page_and_installed_ones_first(
    door: str, config: Config, capsys: Capture
) -> None:
    guard, address, parts = guarded(config), "/?family=d4rl", list[list[str]]()
    while address:
        page = ask(guard, address).text
        parts.append([row[0] for row in rows_of(page)[1:]])
        after = re.search('href="([^"]*)">After', page)
        address = unescape(after[1]) if after else ""
    ids = [each for part in parts for each in part]
    assert [len(part) for part in parts] == [50, 50, 50, 29] and ids[0] == door
    assert sorted(ids) == [each["id"] for each in printed(capsys, "list", "d4rl/*")]
    asked = ask(guard, "/?q=HUMAN+door&family=d4rl&state=unverified&size=1GB&sort=transitions").text
    size = human_bytes(datasets_cli.dataset_info(door, config=config).size_bytes)
    assert rows_of(asked)[1:] == [[door, "unverified", "note", size, "1,495", "5"]]
    assert 'value="HUMAN door"' in asked and '<option value="d4rl" selected>' in asked


def test_a_dataset_shows_its_first_rows_and_frame(config: Config) -> None:
    datasets_cli.download("demo/pong", config=config)
    guard = guarded(config)
    page = ask(guard, "/d/demo/pong").text
    columns = datasets_cli.peek("demo/pong", columns="action,next.reward", config=config).columns
    rows = rows_of(page)
    assert rows[0] == ["row", "action", "next.reward", "next.terminated", "next.truncated"]
    values = zip(*(each.values.ravel().tolist() for each in columns), strict=True)
    expected = [[f"{value:g}" for value in (row, *pair)] for row, pair in enumerate(values)]
    assert [row[:3] for row in rows[1:6]] == expected and len(expected) == 5
    (frame,) = re.findall('<img class="frame"[^>]* src="([^"]*)"', page)
    assert ask(guard, frame).header("content-type") == "image/png"


def test_a_dataset_has_the_tables_of_its_card(door: str, config: Config, capsys: Capture) -> None:
    page = ask(guarded(config), f"/d/{door}").text
    card = printed(capsys, "card", door)["text"]
    lines = [line.strip("| ").split(" | ") for line in card.splitlines() if line[:2] == "| "]
    plain = [[re.sub(r"\\(.)", r"\1", each).strip() for each in line] for line in lines]
    rows = [[each for each in row if each] for row in plain if row[0].islower()]
    shown = [[each for each in row if each] for row in rows_of(page)]
    assert len(rows) > 30
    assert [row for row in rows if row not in shown] == [["column", "type", "shape"]]
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    assert [headings.pop(0) for _ in range(2)] == ["First rows", "Findings of the audit"]
    assert headings == re.findall("^## (.*)$", card, re.MULTILINE)


def test_the_bars_of_a_dataset_are_those_of_its_plots(door: str, config: Config) -> None:
    page = ask(guarded(config), f"/d/{door}").text
    (series,) = datasets_cli.plot(door, kind="lengths", config=config).series
    counts = [f"{count:g} trajectories" for count in series.counts if count]
    figures = [each for each in page.split("<figure>") if "<b>Lengths</b>" in each]
    told = re.findall(r'class="bar0".*?<title>.*?: (.*?)</title>', figures[0])
    assert told == counts
    assert "<b>Returns</b>" in page and "<b>Observations</b>" in page


def test_a_dataset_that_is_not_installed_has_its_page(config: Config) -> None:
    page = ask(guarded(config), "/d/d4rl/hopper-medium-v2").text
    assert "rlds download d4rl/hopper-medium-v2" in page and "152.8 MB" in page
    assert "/trajectories" not in page


def test_three_ways_to_load_a_dataset_can_be_copied_and_work(door: str, config: Config) -> None:
    page = ask(guarded(config), f"/d/{door}").text
    codes = [unescape(each) for each in re.findall("<code>(.*?)</code>", page, re.DOTALL)][-3:]
    assert f"rlds download {door}" in codes[0]
    with pytest.warns(datasets_cli.errors.UnverifiedDataset):
        for code in codes[1:]:
            names: dict[str, Any] = {}
            exec(code, names)
    assert len(names["arrays"]["action"]) == 100


def test_two_datasets_are_compared_as_the_command_does(
    door: str, hostile: str, config: Config, capsys: Capture
) -> None:
    difference = printed(capsys, "diff", door, hostile)
    page = ask(guarded(config), f"/compare?a={door}&b={hostile}").text
    assert "<h2>Different</h2>" in page
    rows = rows_of(page)
    assert ["transitions", *(f"{each:,}" for each in difference["num_transitions"])] in rows
    number = {row[0]: row[2] for row in rows if len(row) == 7}
    for column in difference["columns"]:
        assert number[".".join(column["key"])] == f"{column['num_different']:,}"
    same = ask(guarded(config), f"/compare?a={door}&b={door}").text
    assert "<h2>Equal</h2>" in same and "Nothing was read" in same


def test_what_is_too_large_for_a_page_is_told_with_the_command(
    door: str, hostile: str, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_page, "MOST_BYTES", 0)
    page = ask(guarded(config), f"/compare?a={door}&b={hostile}")
    assert page.status == 200 and "transitions are not</h2>" in page.text
    assert f"Run: rlds diff {door} {hostile}" in page.text
    got = ask(guarded(config), f"/api/d/{door}/stats")
    assert got.status == 400 and got.json()["error"]["message"].endswith(f"Run: rlds stats {door}")
    assert f"Run: rlds stats {door}" in ask(guarded(config), f"/d/{door}").text


def test_no_text_of_a_dataset_is_more_than_text(hostile: str, door: str, config: Config) -> None:
    for address in (f"/d/{hostile}", f"/compare?a={hostile}&b={door}"):
        got = ask(guarded(config), address)
        assert got.status == 200
        assert ESCAPED in got.text and r"\u202egnp.exe \x1b[2J" in got.text
        assert "<script>alert" not in got.text and not {"\u202e", "\x1b"} & {*got.text}
        assert not re.search("<[^>]*(href|src)=[\"']?javascript:", got.text)
    data = ask(guarded(config), f"/api/d/{hostile}/stats")
    assert data.header("content-type") == "application/json"
    assert f"info.{HOSTILE}" in data.json()["columns"]


def test_a_search_for_a_script_finds_nothing_and_stays_text(config: Config) -> None:
    page = ask(guarded(config), "/?q=%22%3E%3Cscript%3Ealert(1)%3C/script%3E").text
    assert 'value="&#34;&gt;&lt;script&gt;alert(1)&lt;/script&gt;"' in page
    assert "0 datasets" in page and "<script>alert" not in page


def test_a_dataset_that_is_deleted_meanwhile_is_told(door: str, config: Config) -> None:
    guard = guarded(config)
    assert ask(guard, f"/d/{door}").status == 200
    datasets_cli.delete(door, config=config)
    assert "not installed" in ask(guard, f"/d/{door}").text
    got = ask(guard, f"/api/d/{door}/stats")
    assert got.status == 404
    assert got.json()["error"]["type"] == "DatasetNotInstalled"
    assert ask(guard, f"/compare?a={door}&b={door}").status == 404


def test_a_dataset_that_is_replaced_meanwhile_shows_what_is_there(
    hostile: str, config: Config
) -> None:
    guard = guarded(config)
    before = ask(guard, f"/api/d/{hostile}/stats").json()
    steps = {"observation": np.ones((4, 2)), "action": np.zeros(4), "reward": np.ones(4)}
    datasets_cli.create_dataset(hostile, steps, lengths=[4], force=True, config=config)
    after = ask(guard, f"/api/d/{hostile}/stats").json()
    assert before["content"] != after["content"] and after["num_trajectories"] == 1
    assert ask(guard, f"/d/{hostile}").status == 200


@pytest.mark.parametrize("spoil", ["cut", "no manifest", "garbled", "another's"])
def test_a_dataset_that_is_damaged_meanwhile_is_told(
    spoil: str, door: str, hostile: str, config: Config
) -> None:
    guard, folder = guarded(config), CacheRoot(config.root).dataset(door)
    assert ask(guard, f"/d/{door}").status == 200
    manifest = folder / "manifest.json"
    if spoil == "cut":
        leaf = next(folder.glob("*.memmap"))
        leaf.write_bytes(leaf.read_bytes()[:-8])
    elif spoil == "no manifest":
        manifest.unlink()
    elif spoil == "garbled":
        manifest.write_text("{")
    else:
        shutil.copy(CacheRoot(config.root).dataset(hostile) / "manifest.json", manifest)
    is_gone = spoil == "no manifest"
    for address in (f"/api/d/{door}/stats", f"/compare?a={door}&b={hostile}"):
        assert ask(guard, address).status == (404 if is_gone else 409)
    page = ask(guard, f"/d/{door}")
    assert page.status == 200
    assert ("not installed" if is_gone else "damaged") in page.text
    assert ask(guard, "/").status == 200


def test_what_another_request_works_on_for_long_is_told_and_not_waited_for(
    door: str, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets_cli.ui.local_page.LOCK_SECONDS", 0.01)
    page = LocalPage.of(config)
    tables = page.root.tables(page.installed(door).manifest.content)
    with locked(tables / ".statistics.lock", "it", 1):
        got = ask(application(page), f"/api/d/{door}/stats")
    assert got.status == 409 and got.json()["error"]["type"] == "LockedError"


def test_a_dataset_that_nobody_knows_is_told(config: Config) -> None:
    got = ask(guarded(config), "/d/nope/nope")
    assert got.status == 404 and "Unknown dataset nope/nope." in got.text
    error = ask(guarded(config), "/api/nope").json()["error"]
    assert error["message"] == "This page does not exist."


def test_work_under_way_is_shown(config: Config, capsys: Capture) -> None:
    root, id = CacheRoot(config.root), "d4rl/hopper-medium-v2"
    part = root.downloads(id) / "hopper.hdf5.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(bytes(5_000_000))
    Path(f"{part}.json").write_text('{"url": "http://x/", "validator": null, "size": 9000000}')
    interrupted = rows_of(ask(guarded(config), "/activity").text)[1]
    assert interrupted[:5] == [id, "download", "interrupted", "5.0 MB", "152.8 MB"]
    staging = root.new_staging("mine/new")
    staging.mkdir(parents=True)
    with locked(root.lock(id), id, 1):
        rows = rows_of(ask(guarded(config), "/activity").text)[1:]
    assert [row[1:3] for row in rows] == [["download", "running"], ["conversion", "running"]]
    assert rows[1][0].startswith("mine.new.")
    capsys.readouterr()
    listed = printed(capsys, "du")["activity"]
    assert listed == ask(guarded(config), "/api/activity").json() and listed[-1]["id"] == id


def test_templates_escape_all_and_hold_no_script_and_no_style() -> None:
    templates = [*(FOLDER / "templates").glob("*.html")]
    assert len(templates) > 5
    for path in templates:
        text = path.read_text(encoding="utf-8")
        found = re.findall(r"\|\s*safe|autoescape|Markup|<script>|<style| style=| on\w+=", text)
        assert not found, path.name
        assert not re.search(r"https?:", text), path.name


ANT = "d4rl/ant-medium-v0"
ADDRESS = f"/d/{ANT}/trajectories"


@pytest.fixture(scope="module")
def root_with_ant(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache root with real steps that the ant is reset in, audited when it was made."""
    folder = tmp_path_factory.mktemp("ant")
    source = str(CUTS["ant-medium-v0"].lay_out(folder / "source"))
    return root_with(ANT, source, folder / "root")


@pytest.fixture
def ant(config: Config, root_with_ant: Path) -> str:
    shutil.copytree(root_with_ant, config.root, dirs_exist_ok=True)
    return ANT


def keep(config: Config, report: AuditReport) -> None:
    manifest = datasets_cli.dataset_info(ANT, config=config).manifest
    assert manifest is not None
    save_table(CacheRoot(config.root), manifest.content, "audit", report.to_json())


def test_findings_are_those_that_info_prints(
    ant: str, config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    page = ask(guarded(config), f"/d/{ant}").text
    capsys.readouterr()
    assert main(["info", ant, "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)["audited"]["findings"]
    assert len(findings) == 2
    for each in findings:
        (row,) = (row for row in rows_of(page) if f"{each['rule']} {each['version']}" in row)
        assert row[0] == each["severity"] and row[2] == f"{each['text']} {each['measure']}"
        assert row[3] == f"{each['count']} {each['unit']}{'s' * (each['count'] > 1)}"
        assert row[4].split() == ["All", *(f"{number:,}" for number in each["rows"])]


def test_rows_that_a_repair_changed_are_those_of_diff(
    ant: str, config: Config, tmp_path: Path
) -> None:
    source = str(CUTS["ant-medium-v0"].lay_out(tmp_path / "source"))
    repaired = f"{ant}~repaired"
    install_dataset(repaired, config, InstallOptions(source=source, accept_any=True))
    page = ask(guarded(config), f"/compare?a={ant}&b={repaired}").text
    shown = re.findall(r"<li>(rows .*?)</li>", page)
    assert shown[:2] == [f"rows of {ant} alone: 210, 1,208", f"rows of {repaired} alone: 998"]
    assert "rows that differ in next.done: 209, 998, 1,207" in shown


def test_a_row_leads_to_its_step_of_its_trajectory(ant: str, config: Config) -> None:
    guard = guarded(config)
    links = re.findall(r'href="([^"]*[?]t=\d+)"', ask(guard, f"/d/{ant}").text)
    # The timeout of step 999 of the file ends the first trajectory, and is no row.
    assert links == [f"{ADDRESS}/0?t=998", f"{ADDRESS}/0?t=211", f"{ADDRESS}/1?t=210"]
    data = ask(guard, links[-1]).text.partition('id="page-data">')[2].partition("</script>")[0]
    steps, step = json.loads(data)["steps"], json.loads(data)["step"]
    (column,) = (each for each in steps["columns"] if each["key"] == ["action"])
    with h5py.File(CUTS["ant-medium-v0"].path) as file:
        assert file["timeouts"][999] and not file["timeouts"][1000:1211].any()
        expected = file["actions"][1000 + 210]
    np.testing.assert_array_equal(np.float32(column["values"][step - steps["first"]]), expected)


def test_rows_that_were_not_audited_are_told_with_the_command(ant: str, config: Config) -> None:
    shutil.rmtree(config.root / "tables")
    page = ask(guarded(config), f"/d/{ant}").text
    assert f"<code>rlds audit {ant}</code>" in page
    assert not [*config.root.glob("tables/*/audit.json")]
    uninstalled = ask(guarded(config), "/d/d4rl/hopper-medium-v2").text
    assert "rlds audit" not in uninstalled and "Findings" not in uninstalled


def test_nothing_found_is_said(ant: str, config: Config) -> None:
    keep(config, AuditReport({"false-end": 1, "terminal-run": 1}, ()))
    guard = guarded(config)
    assert "<p>None, of 2 rules.</p>" in ask(guard, f"/d/{ant}").text
    assert [row[2] for row in rows_of(ask(guard, f"/?q={ant}").text)[1:]] == ["clean"]


def test_many_rows_are_folded_and_those_that_are_not_kept_are_counted(
    ant: str, config: Config
) -> None:
    many = Finding("rule", 3, "note", "row", 1_234, tuple(range(100)), "", "Many.")
    keep(config, AuditReport({"rule": 3}, (many,)))
    page = ask(guarded(config), f"/d/{ant}").text
    assert "<details><summary>The first 100</summary>" in page and "1,234 rows" in page
    assert page.count(f'href="{ADDRESS}/0?t=') == 100


def test_a_report_that_somebody_else_wrote_is_text_and_breaks_nothing(
    ant: str, config: Config
) -> None:
    rows = (-1, 3, 1_998, 10**30)
    evil = Finding(HOSTILE, 1, "wrong", HOSTILE, 4, rows, HOSTILE, HOSTILE)
    keep(config, AuditReport({HOSTILE: 1}, (evil,)))
    got = ask(guarded(config), f"/d/{ant}")
    assert got.status == 200 and got.text.count(ESCAPED) == 4
    assert "<script>alert" not in got.text and not {"\u202e", "\x1b"} & {*got.text}
    assert re.findall(r'href="([^"]*[?]t=\d+)"', got.text) == [f"{ADDRESS}/0?t=3"]


def test_exported_pages_have_findings_with_links_to_pages_that_are_there(
    ant: str, config: Config, tmp_path: Path
) -> None:
    made = datasets_cli.export_pages(ant, tmp_path / "pages", trajectories=1, config=config)
    page = (made.path / ant / "index.html").read_text(encoding="utf-8")
    assert re.findall(r'href="([^"]*[?]t=\d+)"', page) == ["0.html?t=998", "0.html?t=211"]
    (row,) = (row for row in rows_of(page) if row[0] == "wrong" and "1,209" in row[4])
    assert row[1] == "unflagged-reset 1"


def test_the_catalogue_has_the_gravest_finding(ant: str, config: Config) -> None:
    page = ask(guarded(config), f"/?q={ant}").text
    assert [row[:3] for row in rows_of(page)[1:]] == [[ant, "unverified", "wrong"]]
