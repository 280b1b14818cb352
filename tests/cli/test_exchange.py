"""``rlds import`` and ``export``: what is said and asked, and the exit codes."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pandas
import pytest

from datasets_cli.cli.main import main
from datasets_cli.config import Config
from tests.support.terminals import in_terminal

Capture = pytest.CaptureFixture[str]
CSV = "observation,action,reward,episode,t\n0,1,0.5,0,1\n1,2,1.5,0,2\n"


@pytest.fixture
def table(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text(CSV)
    return "a.csv"


def test_without_a_terminal_the_guess_is_printed_and_not_taken(table: str, capsys: Capture) -> None:
    words = ["import", table, "--name", "mine/a"]
    assert main(words) == 2
    line = shlex.split(capsys.readouterr().err.strip().rpartition("paste: ")[2])
    assert line[:7] == ["rlds", *words, "--map", "observation=observation"]
    assert main(line[1:]) == 0
    out, err = capsys.readouterr()
    assert err.count("skipped: no key is mapped to it") == 1 and "--map" not in out
    assert main([*words, "--yes", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["id"], document["plan"]["format"]) == ("mine/a", "csv")


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("", 1)])
def test_on_a_terminal_it_shows_the_guess_and_asks(
    config: Config, table: str, answer: str, code: int
) -> None:
    words = ["import", table, "--name", "mine/a"]
    screen = in_terminal(words, columns=200, answer=f"{answer}\n")
    assert screen.code == code
    [skipped] = [line.split() for line in screen.lines if "skipped:" in line]
    assert skipped[:4] == ["-", "t", "int64", "[]"]
    assert any("Read these columns into mine/a? [y/N]: " in line for line in screen.lines)
    assert (config.root / "datasets" / "mine" / "a" / "manifest.json").exists() is not bool(code)
    lines = [line for line in screen.lines if line.startswith("rlds import")]
    assert len(lines) == (code == 0)
    for line in lines:
        whole = in_terminal([*shlex.split(line)[1:], "--force"], columns=200)
        assert whole.code == 0 and "[y/N]" not in whole.raw


def test_a_dry_run_shows_the_plan_and_counts_rows(
    config: Config, table: str, capsys: Capture
) -> None:
    assert main(["import", table, "--name", "mine/a", "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert "1 transition in 1 trajectory, 1 final step, nothing was written" in out
    assert out.count("rlds import a.csv --name mine/a --map") == 1 and "KEY" in err
    assert not [*config.root.glob("datasets/*")]


@pytest.mark.parametrize(
    "words",
    [
        ["--map", "observation"],
        ["--map", "observation=x"],
        ["--map", "action=action", "--map", "action=t"],
        ["--from", "zip"],
        ["--from", "npz"],
    ],
)
def test_a_wrong_import_is_exit_code_2(table: str, capsys: Capture, words: list[str]) -> None:
    assert main(["import", table, "--name", "mine/a", "--yes", *words]) == 2
    assert "\ue000" not in capsys.readouterr().err


def test_an_export_says_what_is_lost_and_replaces_when_told(table: str, capsys: Capture) -> None:
    assert main(["download", "demo/iris", "-q"]) == 0
    npz, parquet = (["export", "demo/iris", "--to", f, "--out", f"x.{f}"] for f in FORMATS)
    assert main(npz) == 2
    assert main([*npz, "--dry-run"]) == 0
    assert "not kept" in capsys.readouterr().out and not Path("x.npz").exists()
    assert main(parquet) == 0 and main(parquet) == 2 and main([*parquet, "--force"]) == 0
    assert len(pandas.read_parquet("x.parquet")) == 150
    assert main(["export", "demo/iris", "--to", "csv", "--out", "x"]) == 2


FORMATS = ("npz", "parquet")
