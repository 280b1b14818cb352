"""What a terminal shows: no line too long, one progress for all files, one question."""

from __future__ import annotations

import inspect
import re
import socket
import sys
from pathlib import Path

import pytest

import datasets_cli
from datasets_cli.cli.commands import Rlds
from datasets_cli.cli.main import main
from datasets_cli.cli.terminal import table
from datasets_cli.config import Config
from datasets_cli.errors import UnknownDataset
from datasets_cli.store.cache_root import CacheRoot
from tests.support.demo_pages import PUBLISHERS, pages
from tests.support.interpreters import imported_by
from tests.support.killed import of_dead
from tests.support.origin import Origin
from tests.support.terminals import in_terminal

Capture = pytest.CaptureFixture[str]
WIDTHS = (40, 100)
ENTRIES = {name: each for group in Rlds.groups.values() for name, each in group.items()}


def on_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.parametrize("columns", WIDTHS)
def test_no_line_is_longer_than_the_terminal(
    columns: int, door: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_terminal(monkeypatch, columns)
    for command in (
        "list *",
        "list --installed",
        "info hopper-medium-v2",
        "info atari_dqn/Venture/1",
        "info openml/61",
        *(f"{name} --help" for name in ENTRIES),
        "--help",
    ):
        assert main(command.split()) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) > 1
        assert [line for line in lines if len(line) > columns] == [], command


@pytest.mark.parametrize("columns", WIDTHS)
def test_nor_is_one_about_what_is_installed(
    columns: int, door: str, config: Config, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (config.root / "datasets" / door / "manifest.json").write_text("{}")
    of_dead(CacheRoot(config.root).new_staging("mine/a")).mkdir(parents=True)
    on_terminal(monkeypatch, columns)
    for command in ("verify", "repair --dry-run", "du", "prune --dry-run", f"delete -y {door}"):
        assert main(command.split()) in (0, 4, 9)
        lines = capsys.readouterr().out.splitlines()
        assert lines and [line for line in lines if len(line) > columns] == [], command


def test_a_pipe_gets_the_whole_reason_of_damage(door: str, config: Config, capsys: Capture) -> None:
    (config.root / "datasets" / door / "manifest.json").write_text("{}")
    assert main(["list", "--installed"]) == 0
    assert f"Run: rlds repair {door}" in capsys.readouterr().out


def test_a_real_terminal_has_its_width_too(door: str) -> None:
    plan = ["download", "--dry-run", door, "hopper-medium-v2", "walker2d-medium-v2"]
    screen = in_terminal(["list"], ["info", door], plan, columns=60)
    assert screen.code == 0
    assert len(screen.lines) > 20
    assert [line for line in screen.lines if len(line) > 60] == []


def test_the_first_screen_has_the_families_and_what_is_installed(
    door: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_terminal(monkeypatch, 80)
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"^d4rl +\d{3} +1$", text, re.MULTILINE)
    assert re.search(r"^minari +\d{3} +-$", text, re.MULTILINE)
    assert re.search(rf"^{door} +unverified ", text, re.MULTILINE)
    assert len(text.splitlines()) <= 24
    monkeypatch.undo()


def test_a_terminal_imports_nothing_more() -> None:
    code = (
        "import sys; sys.stdout.isatty = lambda: True;"
        "from datasets_cli.cli.main import main; assert main(['list']) == main(['--help']) == 0"
    )
    heavy = {"rich", "pydantic", "multiprocessing", "numpy", "torch"}
    assert not imported_by(code) & heavy


def test_states_have_a_colour_unless_none_is_wanted(
    door: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert main(["list", "--installed"]) == 0
    assert "\x1b[33munverified\x1b[0m" in capsys.readouterr().out
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert main(["list", "--installed"]) == 0
            assert "\x1b" not in capsys.readouterr().out


def test_an_id_is_whole_where_the_columns_do_not_fit() -> None:
    rows = [{"ID": "family/a-long-name", "STATE": state, ">N": "1"} for state in ("-", "damaged")]
    lines = table(rows, 26, (">N",))
    assert lines == ["ID  STATE", "family/a-long-name", "family/a-long-name  damag…"]


def test_a_download_of_several_files_leaves_no_line_for_a_file(config: Config) -> None:
    """A server on this machine answers instead of the publisher: 2 files of Minari."""
    with Origin() as origin:
        for path, content in pages().items():
            origin.put(path.removeprefix("/"), content)
        arguments = ["--mirror", f"{PUBLISHERS['hf']}={origin.url}hf/"]
        screen = in_terminal(
            ["download", "minari/D4RL/door/human-v2", *arguments],
            columns=40,
            RLDS_HOME=str(config.root),
        )
    assert screen.code == 0, screen.raw
    assert any("file 2 of 2" in line or "100%" in line for line in screen.lines)
    drawn = [line for line in screen.lines if "%" in line or "main_data" in line]
    assert drawn and max(map(len, drawn)) < 40
    assert not any("main_data" in line or "%" in line for line in screen.left), screen.left


def test_what_became_of_a_download_begins_its_own_line(config: Config) -> None:
    screen = in_terminal(["download", "demo/pong"], columns=84, RLDS_HOME=str(config.root))
    assert any("transitions written" in line for line in screen.lines), "a bar was drawn"
    assert any(line.startswith("demo/pong: 999 transitions") for line in screen.lines)


def test_one_question_names_ids_sizes_total_and_free_disk(config: Config) -> None:
    screen = in_terminal(
        ["download", "hopper-medium-v?"],
        columns=80,
        answer="n\n",
        RLDS_HOME=str(config.root),
    )
    text = " ".join(" ".join(screen.lines).split())
    assert screen.code == 1
    assert "Download d4rl/hopper-medium-v0 (" in text and "d4rl/hopper-medium-v2 (152.8 MB)" in text
    assert "In total 3 datasets, " in text and "are free on the disk of" in text
    # A folder's path is one word, which stays whole to be copied.
    assert max(len(line) for line in screen.lines if str(config.root) not in line) <= 80
    assert not config.root.exists()


def test_a_glob_of_several_without_a_terminal_needs_yes(config: Config, capsys: Capture) -> None:
    assert main(["download", "hopper-medium-v?", "--offline"]) == 2
    error = capsys.readouterr().err
    assert "In total 3 datasets" in error and "--yes" in error
    assert main(["download", "hopper-medium-v?", "--offline", "--yes"]) == 9
    assert capsys.readouterr().err.count("RLDS_OFFLINE or --offline") == 3


def test_advice_is_given_once_in_a_run(
    config: Config, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_address(*arguments: object, **options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no_address)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    assert main(["download", "hopper-medium-v2", "walker2d-medium-v2"]) == 9
    error = capsys.readouterr().err
    assert error.count("Check the connection.") == 1
    assert error.count("Name or service not known") == 2  # once for each dataset
    assert "trying again" not in error


def test_a_plan_has_the_sizes_of_local_files_the_total_and_the_free_disk(
    door_source: str, config: Config, capsys: Capture
) -> None:
    assert main(["download", "d4rl/door-human-v0", "--source", door_source, "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "door-v0_demos_clipped.hdf5 (377.4 kB)" in text
    assert "In total 1 dataset, 377.4 kB; " in text and "are free on the disk of" in text


def test_output_on_a_full_disk_exits_with_7(
    door: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    for command in (
        *("list", "list --json", f"info {door}", f"path {door}", "verify --quick"),
        *(f"delete --dry-run {door}", f"download {door}", "download hopper-medium-v2 --dry-run"),
        *("--version", "--help", "list -h"),
    ):
        with monkeypatch.context() as patch, Path("/dev/full").open("w") as stdout:
            patch.setattr(sys, "stdout", stdout)
            assert main(command.split()) == 7, command
        assert "cannot be written: No space left" in capsys.readouterr().err


def test_each_glob_that_finds_nothing_is_named(capsys: Capture) -> None:
    assert main(["list", "hopper-medium-v2", "nosuch", "zz*", "-q"]) == 0
    assert capsys.readouterr() == ("d4rl/hopper-medium-v2\n", "")
    several = ("hopper-medium-v2 nosuch zz*", "'nosuch', 'zz*'")
    for call, told in (several, ("hopper-* --installed", "'hopper-*'"), ("a yy", "'yy'")):
        assert main(["list", *call.split()]) == 0
        assert capsys.readouterr().err == f"Nothing matches {told}.\n"
    assert main(["list", "--installed"]) == 0
    assert capsys.readouterr().err == "Nothing found.\n"


def test_a_variable_with_an_unknown_value_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    for name, value, words in (
        ("RLDS_OFFLINE", "maybe", "Expected 1, true, yes or on; or 0, false, no or off"),
        ("RLDS_LOCK_TIMEOUT", "x", "is not a number of seconds"),
        ("RLDS_RECIPES", "/nosuch/folder", "names /nosuch/folder, which is not a folder"),
        ("RLDS_HOME", "/dev/null/below", "/dev/null is not a folder"),
        ("RLDS_MIRRORS", "x", "PREFIX=REPLACEMENT"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert main(["list"]) == 2
        assert words in capsys.readouterr().err


def test_a_word_finds_the_ids_that_contain_it(capsys: Capture) -> None:
    assert main(["download", "hopper"]) == 3
    error = capsys.readouterr().err
    assert re.search(r"Did you mean (d4rl/hopper-\S+-v2,? ?){3}\?", error)
    assert "See: rlds list hopper" in error
    assert main(["info", "pong"]) == 3
    error = capsys.readouterr().err
    assert "atari_dqn/Pong/1" in error and "See: rlds list Pong" in error


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("hoper", "d4rl/hopper-expert-v2"),
        ("d4rl/walker2-medium", "d4rl/walker2d-medium-v2"),
        ("pongg", "atari_dqn/Pong/1"),
        ("minari/D4RL/dor/human-v2", "minari/D4RL/door/human-v2"),
    ],
)
def test_a_misspelt_word_finds_the_names_that_begin_with_it_one_for_each_version(
    typed: str, first: str
) -> None:
    with pytest.raises(UnknownDataset) as caught:
        datasets_cli.dataset_info(typed)
    assert caught.value.found[0] == first
    unversioned = [re.sub(r"[-/]v?\d+$", "", id) for id in caught.value.found]
    assert len({*unversioned}) == len(unversioned) > 1


def test_every_help_has_an_example_and_plain_words_and_no_name_of_python(capsys: Capture) -> None:
    for name, entry in ENTRIES.items():
        assert main([*name.split(), "-h"]) == 0
        text = capsys.readouterr().out
        assert f"{entry.about}." in " ".join(text.partition("\n\n")[2].split())
        assert inspect.getdoc(entry.function()).startswith(f"{entry.about}.\n\n"), name
        assert "rlds " in text.partition("Examples:")[2], name
        assert "<str>" not in text and "list[" not in text
        for known in ("the column returns_to_go", "x_0..16"):  # names of columns
            text = text.replace(known, "")
        assert not re.findall(r"\w+_\w+|`|True|False", text), name


@pytest.mark.parametrize(
    ("call", "columns"),
    [
        ("info no-such-dataset-of-any-family", 40),
        ("preprocess demo/pong --fn mycode:f --name x", 100),
    ],
)
def test_an_error_is_broken_between_words(call: str, columns: int, config: Config) -> None:
    screen = in_terminal(call.split(), columns=columns, RLDS_HOME=str(config.root))
    text = " ".join(" ".join(screen.lines).split())
    assert screen.code in (2, 3) and text.startswith("rlds: ")
    assert "rlds list" in text or "the module mycode" in text
    assert max(map(len, screen.lines)) <= columns
