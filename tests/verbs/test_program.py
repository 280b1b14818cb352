"""The report on the program, with nothing that is secret, and the settings of the config file."""

from __future__ import annotations

import importlib.metadata
import json
import tomllib
from pathlib import Path

import pytest

import datasets_cli
from datasets_cli.cli.main import main
from tests.support.paths import PROJECT

Capture = pytest.CaptureFixture[str]


def test_versions_and_extras_are_those_of_the_distribution() -> None:
    info = datasets_cli.program_info()
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    assert info.version == datasets_cli.__version__
    assert len(info.packages) == len(project["dependencies"])
    assert info.packages["numpy"] == importlib.metadata.version("numpy")
    assert {*info.extras} == {*project["optional-dependencies"]}


def test_a_package_that_is_missing_is_absent(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    needs = ["numpy>=1", 'nosuch-package>=2; extra == "fast"']
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: needs)
    assert datasets_cli.program_info().extras == {"fast": {"nosuch-package": None}}
    assert main(["env"]) == 0
    assert "nosuch-package absent" in capsys.readouterr().out


def test_nothing_secret_is_told(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
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


TEXT = """[core]
root = "/tmp/a # b"  # the "big" disk
lowest_speed = 10

[limits]
row_bytes = 1000

[mirrors]
"http://a.b/" = "https://me:secret@c.d/?token=x"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The config file, which has a secret."""
    path = tmp_path / "config" / "rlds" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(TEXT)
    return path


def test_each_setting_has_its_value_its_origin_and_the_variable_that_overrides_it(
    path: Path, capsys: Capture
) -> None:
    assert main(["config", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    known = {each["key"]: each for each in document["settings"]}
    assert document["path"] == str(path)
    assert known["core.root"] == {
        **{"key": "core.root", "value": "/tmp/a # b", "origin": "file"},
        "variable": "RLDS_HOME",
    }
    assert (known["core.lock_timeout"]["value"], known["core.lock_timeout"]["origin"]) == (
        *(600, "default"),
    )
    assert known["limits.row_bytes"]["value"] == 1000


def test_people_see_the_file_its_settings_and_no_secret(path: Path, capsys: Capture) -> None:
    assert main(["config"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == str(path) and "core.lowest_speed = 10" in out
    assert "secret" not in out and "RLDS_HOME" in err
    assert main(["config", "-q"]) == 0 and capsys.readouterr().out == f"{path}\n"


def test_a_file_that_does_not_exist_has_the_defaults(capsys: Capture) -> None:
    found = datasets_cli.settings()
    assert not found.path.exists()
    assert {each.origin for each in found.settings} == {"default"}


def test_a_broken_file_is_refused_but_env_reports_it(path: Path, capsys: Capture) -> None:
    path.write_text("x = ")
    assert main(["env"]) == 0 and "is not valid TOML" in capsys.readouterr().err
    for call in (["config"], ["list"]):
        assert main(call) == 2 and str(path) in capsys.readouterr().err
