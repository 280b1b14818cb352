"""What the audit found, on the page of a dataset: as `rlds info --json` has it, with its rows."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

import datasets_cli
from datasets_cli.audit.report import AuditReport
from datasets_cli.audit.rules.finding import Finding
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.tables import save_table
from tests.support.d4rl_cuts import CUTS
from tests.support.page_requests import ask, guarded
from tests.ui.test_pages import ESCAPED, HOSTILE, rows_of

ANT = "d4rl/ant-medium-v0"
ADDRESS = f"/d/{ANT}/trajectories"


@pytest.fixture(scope="module")
def root_with_ant(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache root with real steps that the ant is reset in, audited when it was made."""
    folder = tmp_path_factory.mktemp("ant")
    source = str(CUTS["ant-medium-v0"].lay_out(folder / "source"))
    install_dataset(ANT, Config(folder / "root"), InstallOptions(source=source, accept_any=True))
    return folder / "root"


@pytest.fixture
def ant(config: Config, root_with_ant: Path) -> str:
    shutil.copytree(root_with_ant, config.root, dirs_exist_ok=True)
    return ANT


def keep(config: Config, report: AuditReport) -> None:
    """Keep another report of the ant's rows."""
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
