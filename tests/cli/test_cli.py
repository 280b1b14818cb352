"""The command line: output, exit codes, messages."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from datasets_cli.cli.main import app, main
from datasets_cli.cli.parser.command import in_front
from datasets_cli.cli.terminal import table
from datasets_cli.config import Config
from datasets_cli.core.quantities import human_bytes
from datasets_cli.store.sealed_json import seal
from tests.conftest import DOOR
from tests.support.paths import PROJECT

Capture = pytest.CaptureFixture[str]


def run_json(capsys: Capture, *arguments: str) -> Any:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_download_prints_the_folder_on_stdout_alone(
    config: Config, door_source: str, capsys: Capture
) -> None:
    assert main(["download", DOOR, "--source", door_source, "--no-verify"]) == 0
    output = capsys.readouterr()
    assert output.out.strip() == str(config.root / "datasets" / DOOR)
    assert "1,495 transitions in 5 trajectories" in output.err
    told = "1,500 recorded steps, 1,495 transitions: 5 final steps have no successor"
    assert f"{DOOR}: {told}\n" in output.err
    assert main(["info", DOOR]) == 0
    assert told in capsys.readouterr().out
    assert "not verified" in output.err


def test_download_of_an_installed_dataset_changes_nothing(door: str, capsys: Capture) -> None:
    (before,) = run_json(capsys, "download", door)["datasets"]
    manifest = Path(before["path"]) / "manifest.json"
    written = manifest.stat().st_mtime_ns
    assert main(["download", door, "-q"]) == 0
    assert capsys.readouterr().out.strip() == before["path"]
    assert manifest.stat().st_mtime_ns == written


def test_info_shows_what_is_false(capsys: Capture) -> None:
    assert main(["info", "atari_dqn/Venture/1"]) == 0
    assert "rl_unplugged       False" in capsys.readouterr().out


def test_dry_run_names_files_and_writes_nothing(config: Config, capsys: Capture) -> None:
    (plan,) = run_json(capsys, "download", "--dry-run", "hopper-medium-v2")
    assert plan["bytes"] == plan["files"][0]["bytes"] > 0
    assert plan["files"][0]["urls"][0].startswith("http://rail.eecs.berkeley.edu/")
    assert not config.root.exists()


def test_dry_run_says_the_state(door: str, capsys: Capture) -> None:
    plans = run_json(capsys, "download", "--dry-run", door, "d4rl/hopper-medium-v2")
    states = [(plan["installed"], plan["state"]) for plan in plans]
    assert states == [(True, "unverified"), (False, "not installed")]


def num_published(family: str) -> int:
    """Return the number of rows of a catalogue."""
    table = PROJECT / "recipes" / family / "catalogue.tsv"
    return len(table.read_text(encoding="utf-8").splitlines()) - 1


def test_list_shows_every_catalogue_row_and_what_is_installed(door: str, capsys: Capture) -> None:
    records = run_json(capsys, "list")
    families = [record["id"].split("/")[0] for record in records]
    for family in ("d4rl", "minari", "openml"):
        assert families.count(family) == num_published(family)
    assert [record["id"] for record in records if record["installed"]] == [door]


def test_list_takes_globs_words_and_families(capsys: Capture) -> None:
    ids = [record["id"] for record in run_json(capsys, "list", "hopper-medium-v*")]
    assert ids == [f"d4rl/hopper-medium-v{version}" for version in (0, 1, 2)]
    words = [record["id"] for record in run_json(capsys, "list", "kitchen", "--family", "d4rl")]
    assert words == [f"d4rl/kitchen-{kind}-v0" for kind in ("complete", "mixed", "partial")]


def test_info_of_a_dataset_that_is_not_installed_is_an_answer(capsys: Capture) -> None:
    document = run_json(capsys, "info", "hopper-medium-v2")
    assert document["installed"] is False
    assert document["details"]["ref_max_score"] == pytest.approx(3234.3)
    assert document["licence"] == "CC BY 4.0"


def test_a_name_without_a_version_is_the_newest_and_says_so(
    config: Config, capsys: Capture
) -> None:
    assert main(["download", "hopper-medium", "--offline"]) == 5
    assert "hopper-medium is d4rl/hopper-medium-v2" in capsys.readouterr().err


OUTSIDE = [
    "../x",
    "/etc/passwd",
    "d4rl/../../x",
    "d4rl/.hidden",
    "..\\x",
    "d4rl\\..\\x",
    "d4rl/a\0b",
]
OUTSIDE += ["d4rl/%2e%2e%2fx", "d4rl/%2fx", "d4rl//x", "d4rl/$store$", "d4rl/x\n", "x" * 300, "~/x"]


def test_an_id_that_would_leave_the_root_is_refused(config: Config, capsys: Capture) -> None:
    for id, command in itertools.product(OUTSIDE, ("download", "info", "path", "verify", "delete")):
        assert main([command, id]) == 2, (command, id)
        assert "is not a dataset id" in capsys.readouterr().err
    assert not config.root.exists()


def test_verify_finds_a_flipped_byte_and_a_short_file(
    door: str, config: Config, capsys: Capture
) -> None:
    folder = config.root / "datasets" / door
    assert main(["verify"]) == 0
    with (folder / "action.memmap").open("r+b") as file:
        file.write(bytes([file.read(1)[0] ^ 1]))
    assert main(["verify", "--quick"]) == 0
    assert main(["verify", door]) == 4
    assert "action.memmap" in capsys.readouterr().out
    os.truncate(folder / "observation.memmap", 10)
    assert main(["verify", "--quick"]) == 4


def test_delete_without_a_terminal_needs_yes(door: str, config: Config, capsys: Capture) -> None:
    assert main(["delete", door]) == 2
    assert "--yes" in capsys.readouterr().err
    assert main(["delete", door, "--dry-run"]) == 0
    assert (config.root / "datasets" / door / "manifest.json").exists()
    assert main(["delete", door, "--yes"]) == 0
    assert list((config.root / "datasets").iterdir()) == []


def test_preprocess_writes_a_derived_dataset(
    door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    (tmp_path / "my_functions.py").write_text(
        "def halve(batch):\n    batch['observation'] /= 2\n    return batch\n"
    )
    monkeypatch.chdir(tmp_path)
    arguments = ["preprocess", door, "--fn", "my_functions:halve", "--name", "half"]
    document = run_json(capsys, *arguments, "--workers", "0")
    assert document["id"] == "derived/half"
    assert main(["verify", "derived/half"]) == 0
    assert not document["unchanged"]
    assert main([*arguments, "--workers", "0"]) == 0
    assert "derived/half is up to date" in capsys.readouterr().err
    assert run_json(capsys, *arguments) == {**document, "unchanged": True}
    assert main([*arguments, "--workers", "0", "--chunksize", "300"]) == 2
    assert "the argument chunksize=1495, now 300" in capsys.readouterr().err
    assert main([*arguments, "--per", "row"]) == 2
    assert "row" in capsys.readouterr().err


def test_global_options_may_stand_before_or_after_the_command(tmp_path: Path) -> None:
    options = get_command(app).params
    after = in_front(["list", "--root", "/data", "x", "--json", "--mirror=a=b"], options)
    assert after == ["--root", "/data", "--json", "--mirror=a=b", "list", "x"]
    assert in_front(["path", "--", "--json"], options) == ["path", "--", "--json"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_with_its_shell_code(number: int, code: int) -> None:
    script = (
        "import time, sys; from datasets_cli.verbs import download;"
        "from datasets_cli.cli.main import main;"
        "download.install_dataset = lambda *a, **k: (print('ready', flush=True), time.sleep(60));"
        "sys.exit(main(['download', 'hopper-medium-v2']))"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.05)
    child.send_signal(number)
    _, error = child.communicate(timeout=30)
    assert child.returncode == code
    assert "run the same command again" in error


def test_a_closed_pipe_is_no_error() -> None:
    pipeline = f"set -o pipefail; {sys.executable} -m datasets_cli.cli.main list | head -1"
    done = subprocess.run(["bash", "-c", pipeline], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("ID")
    assert (done.stderr, done.returncode) == ("", 0)


def test_tables_align_and_sizes_read_well() -> None:
    assert table([{"A": "x", ">B": "10"}, {"A": "long", ">B": "2"}]) == [
        "A      B",
        "x     10",
        "long   2",
    ]
    assert [human_bytes(size) for size in (None, 999, 137_721_019)] == ["?", "999 B", "137.7 MB"]


def test_a_source_folder_is_never_deleted(config: Config, door_source: str) -> None:
    kept = config.root / "downloads" / DOOR
    kept.mkdir(parents=True)
    for path in Path(door_source).iterdir():
        (kept / path.name).write_bytes(path.read_bytes())
    arguments = ["download", DOOR, "--source", str(kept), "--no-verify"]
    assert main(arguments) == 0
    assert main([*arguments, "--force"]) == 0
    assert len(list(kept.iterdir())) == 1


def test_the_demo_does_not_go_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert main(["demo", "-q"]) == 0


def test_a_dataset_taken_with_no_verify_stays_marked(door: str, capsys: Capture) -> None:
    assert main(["list", "--installed"]) == 0
    assert "unverified" in capsys.readouterr().out
    assert main(["info", door]) == 0
    (line,) = (line for line in capsys.readouterr().out.split("\n") if "VERIFIED" in line)
    assert line.split()[:2] == ["NOT", "VERIFIED"] and "not verified" not in line
    assert main(["download", door]) == 0
    assert "is installed, but not verified" in capsys.readouterr().err
    assert main(["verify", door]) == 0
    assert "not verified" in capsys.readouterr().out


def test_a_manifest_with_fields_of_another_version_is_read(door: str, config: Config) -> None:
    path = config.root / "datasets" / door / "manifest.json"
    path.write_bytes(seal(json.loads(path.read_text()) | {"later": 1}))
    assert main(["verify", door]) == 0


def test_debug_shows_the_traceback_and_keeps_the_exit_code(capsys: Capture) -> None:
    assert main(["info", "nosuch", "--debug"]) == 3
    assert "Traceback" in capsys.readouterr().err


def test_the_bare_command_shows_its_help(capsys: Capture) -> None:
    assert main([]) == 0
    assert "download" in capsys.readouterr().out


def test_a_module_that_ends_the_program_is_an_error_of_ours(
    door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    (tmp_path / "ends_at_import.py").write_text("import sys\nsys.exit(3)\n")
    monkeypatch.chdir(tmp_path)
    assert main(["preprocess", door, "--fn", "ends_at_import:f", "--name", "x"]) == 1
    assert "Raise an error instead" in " ".join(capsys.readouterr().err.split())
