"""Settings of the config file, compared with what Python's own reader of TOML reads there."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

import datasets_cli
from datasets_cli.cli.main import main
from datasets_cli.config import load_config
from datasets_cli.errors import UsageError
from tests.support.disks import Disks

TEXT = """# mine
[core]  # of all
root = "/tmp/a # b"  # the "big" disk
# speed
lowest_speed = 10

[mirrors]
"http://a.b/" = "https://me:secret@c.d/?token=x"
"""
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The config file, which has comments and a secret."""
    path = tmp_path / "config" / "rlds" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(TEXT)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    ("key", "typed", "value"),
    [
        ("core.root", "~/data", "~/data"),
        ("core.offline", "yes", True),
        ("core.lowest_speed", "0", 0.0),
        ("core.lock_timeout", "inf", float("inf")),
        ("limits.row_bytes", "1000", 1000),
        ("mirrors.http://a.b/", "https://e.f/", "https://e.f/"),
        ("mirrors.http://g.h/", "https://e.f/", "https://e.f/"),
    ],
)
def test_one_value_changes_and_comments_stay(
    key: str, typed: str, value: object, path: Path
) -> None:
    table, _, name = key.partition(".")
    expected = tomllib.loads(TEXT)
    expected.setdefault(table, {})[name] = value
    changed = datasets_cli.change_setting(key, typed)
    assert (changed.value, changed.origin) == (value, "file")
    assert tomllib.loads(path.read_text()) == expected
    for comment in ("# mine\n", "# of all\n", '# the "big" disk\n', "# speed\n"):
        assert comment in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600 and [*path.parent.iterdir()] == [path]


def test_a_file_is_made_and_read_and_a_relative_root_does_not_depend_on_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RLDS_HOME")
    assert main(["config", "set", "core.root", "here"]) == 0
    monkeypatch.chdir("/")
    assert load_config().root == tmp_path / "here"
    capsys.readouterr()
    assert main(["config", "get", "core.root"]) == 0
    assert capsys.readouterr() == (f"{tmp_path / 'here'}\n", "")
    assert main(["config", "path"]) == 0
    assert Path(capsys.readouterr().out.strip()).is_file()


def test_what_is_not_set_has_its_default_and_a_variable_that_wins_is_named(
    path: Path, capsys: Capture
) -> None:
    assert main(["config", "get", "--json"]) == 0
    known = {each["key"]: each for each in json.loads(capsys.readouterr().out)}
    assert known["core.lock_timeout"]["value"] == 600 and known["core.lowest_speed"]["value"] == 10
    assert known["core.root"]["variable"] == "RLDS_HOME"
    assert known["core.lock_timeout"]["origin"] == "default"
    assert datasets_cli.settings("limits.row_bytes")[0].value == 64 << 20
    assert main(["config", "get"]) == 0
    assert "secret" not in (told := capsys.readouterr()).out and "RLDS_HOME is set" in told.err


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("core.rot", "x", "Did you mean core.root"),
        ("root", "x", "Did you mean core.root"),
        ("nosuch", "x", "Expected such as core.root"),
        ("mirrors.x", "https://y/", "Expected such as"),
        ("mirrors.http://x/", "y", "PREFIX=REPLACEMENT"),
        ("core.offline", "maybe", "is true or false"),
        ("core.lowest_speed", "fast", "is a number"),
        ("core.lowest_speed", "nan", "core.lowest_speed is a number of 0 or more, not 'nan'"),
        ("core.lowest_speed", "-5", "core.lowest_speed is a number of 0 or more, not '-5'"),
        ("core.root", "", "expected a folder"),
        ("", "x", "There is no setting ''"),
        ("core.root", "/dev/null/x", "is not a folder"),
        ("limits.row_bytes", "0", "a whole number of 1 or more, not '0'"),
        ("limits.rowbytes", "9", "Did you mean limits.row_bytes"),
        ("core.root", "a\x00b", "printable"),
    ],
)
def test_what_no_run_could_begin_with_is_not_written(
    key: str, value: str, words: str, path: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        datasets_cli.change_setting(key, value)
    assert words in str(caught.value) and path.read_text() == TEXT


@pytest.mark.parametrize("text", ['core.root = "/x"\n', 'core = { root = "/x" }\n'])
def test_a_file_of_another_form_is_left_and_the_line_to_write_is_told(
    text: str, path: Path
) -> None:
    path.write_text(text)
    with pytest.raises(UsageError, match=r'Write there yourself, in .core.: root = "/y"'):
        datasets_cli.change_setting("core.root", "/y")
    assert path.read_text() == text


def test_a_new_file_and_one_that_gets_a_secret_are_the_users_alone(path: Path) -> None:
    path.chmod(0o644)
    datasets_cli.change_setting("core.offline", "1")
    assert path.stat().st_mode & 0o777 == 0o600  # TEXT has a secret
    path.write_text("")
    path.chmod(0o644)
    datasets_cli.change_setting("core.offline", "1")
    assert path.stat().st_mode & 0o777 == 0o644
    path.unlink()
    datasets_cli.change_setting("core.offline", "1")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_disk_that_is_read_only_is_a_usage_error(path: Path, disks: Disks) -> None:
    disks.put(path.parent)
    disks.remount(path.parent, "ro")
    with pytest.raises(UsageError, match="Read-only file system"):
        datasets_cli.change_setting("core.offline", "1")


def test_a_broken_file_has_its_place_and_its_problem(path: Path, capsys: Capture) -> None:
    path.write_text("x = ")
    assert main(["config", "path"]) == 0 and capsys.readouterr().out == f"{path}\n"
    assert main(["env"]) == 0 and "is not valid TOML" in capsys.readouterr().err
    for call in (["config", "get"], ["config", "set", "core.offline", "1"], ["list"]):
        assert main(call) == 2 and "is not valid TOML" in capsys.readouterr().err


def test_a_variable_that_wins_is_named_when_a_setting_changes(path: Path, capsys: Capture) -> None:
    assert main(["config", "set", "core.root", "/tmp/x"]) == 0
    assert "RLDS_HOME is set and wins" in capsys.readouterr().err


def test_a_link_to_the_file_stays_a_link(path: Path, tmp_path: Path) -> None:
    kept = path.rename(tmp_path / "kept.toml")
    path.symlink_to(kept)
    datasets_cli.change_setting("core.offline", "1")
    assert path.is_symlink() and tomllib.loads(kept.read_text())["core"]["offline"] is True


def test_words_below_a_command_are_shown_and_named(capsys: Capture) -> None:
    assert main(["config", "--help"]) == 0
    assert {"get", "set", "path"} <= {*capsys.readouterr().out.split()}
    for call, words in (("config", "rlds config --help"), ("config gett", "rlds config get?")):
        assert main(call.split()) == 2
        assert words in capsys.readouterr().err
