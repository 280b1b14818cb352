"""The report on the program: versions, and nothing that is secret."""

from __future__ import annotations

import importlib.metadata
import json
import tomllib

import pytest

import datasets_cli
from datasets_cli.cli.main import main
from tests.support.paths import PROJECT


def test_versions_and_extras_are_those_of_the_distribution() -> None:
    info = datasets_cli.program_info()
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    assert info.version == datasets_cli.__version__
    assert len(info.packages) == len(project["dependencies"])
    assert info.packages["numpy"] == importlib.metadata.version("numpy")
    assert {*info.extras} == {*project["optional-dependencies"]} - {"bench", "dev", "docs"}


def test_a_package_that_is_missing_is_absent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    needs = ["numpy>=1", 'nosuch-package>=2; extra == "fast"', 'x; extra == "dev"']
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: needs)
    assert datasets_cli.program_info().extras == {"fast": {"nosuch-package": None}}
    assert main(["env"]) == 0
    assert "nosuch-package absent" in capsys.readouterr().out


def test_nothing_secret_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = "hunter2"
    mirror = f"http://u:{secret}@a.b/=https://u:{secret}@c.d/?token={secret}"
    monkeypatch.setenv("RLDS_MIRRORS", mirror)
    monkeypatch.setenv("HTTPS_PROXY", f"u:{secret}@proxy:80")
    monkeypatch.setenv("HF_TOKEN", secret)
    for call in (["env"], ["env", "--json"]):
        assert main(call) == 0
        out = capsys.readouterr().out
        assert secret not in out and "HF_TOKEN" in out and "HTTPS_PROXY" in out
    assert json.loads(out)["mirrors"] == {"http://a.b/": "https://c.d/?***"}
