"""The repaired dataset as users ask for it: opened, compared, and where there is none, refused."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from functools import partial
from pathlib import Path

import h5py
import pytest

import datasets_cli
from datasets_cli import D4RLExperienceReplay, ExperienceReplay, errors
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.experience import opening
from datasets_cli.install.options import InstallOptions
from tests.audit.test_real_files import install
from tests.support.d4rl_cuts import CUTS

ANT, CHEETAH = "ant-medium-v0", "halfcheetah-medium-v0"
Capture = pytest.CaptureFixture[str]
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both forms of two cuts, and a dataset that is derived from one."""
    folder = tmp_path_factory.mktemp("made")
    for cut in (ANT, CHEETAH):
        for name in (cut, f"{cut}~repaired"):
            config = install(cut, folder, name)
    datasets_cli.preprocess(f"d4rl/{ANT}", "copy:copy", "same", config=config, num_workers=0)
    return config.root


@pytest.fixture
def root(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLDS_HOME", str(made))
    return made


@pytest.mark.parametrize("family", [ExperienceReplay, D4RLExperienceReplay])
def test_a_buffer_of_the_repaired_dataset_has_its_rows_however_it_is_asked_for(
    family: type[ExperienceReplay], root: Path
) -> None:
    with h5py.File(CUTS[CHEETAH].path) as file:
        last = file["observations"][897]  # step 898 is cut off, and no row
    folder = root / "datasets" / "d4rl" / f"{CHEETAH}~repaired"
    for given in (CHEETAH, f"{CHEETAH}~repaired", f"d4rl/{CHEETAH}", folder):
        replay = family(given, repaired=True, audit="raise")
        assert replay.dataset_id == f"d4rl/{CHEETAH}~repaired" and len(replay) == 1896
        assert (
            replay[897]["next", "truncated"].item() and (replay[897]["observation"] == last).all()
        )
    assert len(family(f"d4rl/{CHEETAH}", audit="ignore")) == 1897


def test_what_is_missing_is_installed_and_the_published_dataset_never_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, root = str(tmp_path / "source"), install(CHEETAH, tmp_path).root
    with pytest.raises(errors.DatasetNotInstalled):
        ExperienceReplay(CHEETAH, repaired=True, download=False, root=root)
    monkeypatch.setattr(opening, "InstallOptions", partial(InstallOptions, accept_any=True))
    replay = ExperienceReplay(CHEETAH, repaired=True, source=source, root=root)
    assert (replay.dataset_id, len(replay)) == (f"d4rl/{CHEETAH}~repaired", 1896)
    assert len(ExperienceReplay(CHEETAH, audit="ignore", root=root)) == 1897


def test_a_folder_of_the_published_dataset_is_not_opened_as_repaired(root: Path) -> None:
    with pytest.raises(errors.UsageError):
        ExperienceReplay(root / "datasets" / "d4rl" / CHEETAH, repaired=True)
    with pytest.raises(errors.IntegrityError):
        ExperienceReplay(CHEETAH, audit="raise")


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        ("audit --rule fals-end", errors.UsageError, "Did you mean false-end"),
        ("audit --severity nonsense", errors.UsageError, "wrong, suspicious, note"),
        ("audit pen-human-v0", errors.DatasetNotInstalled, "rlds download d4rl/pen-human-v0"),
        (f"audit {ANT}~repaired nosuch", errors.PartialFailure, "nosuch"),
        (f"audit {ANT} --strict", errors.IntegrityError, ANT),
        ("download demo/pong~repaired", errors.UsageError, "Checked: false-end"),
        ("download demo/iris~repaired", errors.UsageError, "Checked: false-end"),
        ("download derived/same~repaired", errors.UsageError, "rlds audit derived/same"),
        ("info same~repaired", errors.UsageError, "rlds audit same"),
        (
            f"download {ANT}~repaired~repaired",
            errors.UsageError,
            f"d4rl/{ANT}~repaired is repaired already",
        ),
        ("download d4rl/hopper-medum-v2~repaired", errors.UnknownDataset, "hopper-medium-v2"),
        ("download hopper-medum-v2~repaired", errors.UnknownDataset, "hopper-medium-v2"),
        ("download derived/nosuch~repaired", errors.UnknownDataset, "rlds preprocess"),
        (f"download {ANT}~repaired --force --offline", errors.OfflineError, "--source DIR"),
        ("download door-human-v0~repaired --offline", errors.OfflineError, "--source DIR"),
        (
            "download atari_dqn/Pong/1~repaired --checkpoints 0:1 --offline",
            errors.OfflineError,
            "--source DIR",
        ),
    ],
)
def test_a_wrong_call_has_its_exit_code_and_leaves_nothing(
    call: str, error: type[errors.RldsError], words: str, root: Path, capsys: Capture
) -> None:
    before = sorted((root / "datasets").glob("*/*"))
    assert main([*shlex.split(call), "--json"]) == error.exit_code
    output = capsys.readouterr()
    told = json.loads(output.err.splitlines()[-1])["error"]
    assert (told["type"], told["exit_code"]) == (error.__name__, error.exit_code)
    assert words in told["message"] and (not output.out or json.loads(output.out))
    assert sorted((root / "datasets").glob("*/*")) == before


def test_a_damaged_dataset_is_told_before_what_is_wrong_with_it(
    root: Path, tmp_path: Path, capsys: Capture
) -> None:
    shutil.copytree(root, tmp_path / "copy")
    os.truncate(tmp_path / "copy" / "datasets" / "d4rl" / ANT / "action.memmap", 10)
    for more in ((), ("--strict",), ("--strict", "--json")):
        assert main(["--root", str(tmp_path / "copy"), "audit", ANT, *more]) == 4
        assert "rlds repair" in (told := capsys.readouterr().err) and "found something" not in told
    assert json.loads(told.splitlines()[-1])["error"]["type"] == "DamagedDataset"


def test_a_trap_that_rules_find_is_one_line_with_their_rows(root: Path, capsys: Capture) -> None:
    def lines(name: str) -> list[str]:
        assert main(["info", name]) == 0
        told = capsys.readouterr().out.splitlines()
        return [line for line in told if line.startswith(("known trap", "audit"))]

    [seen], [repaired] = lines(ANT), lines(f"{ANT}~repaired")
    assert seen.endswith("Seen in your copy: 2 rows: rows 211, 1,209; 1 row: row 998")
    assert repaired.endswith("Not seen in this copy")


def test_limits_of_the_audit_are_below_a_heading_apart_from_findings(
    config: Config, capsys: Capture
) -> None:
    datasets_cli.download("demo/door-human", config=config)
    assert main(["audit", "demo/door-human"]) == 0
    first, heading, *limits = capsys.readouterr().out.splitlines()
    assert first.startswith("demo/door-human: 0 findings of ")
    assert heading == "Not detected by these rules:"
    assert [line.split(":")[0] for line in limits] == ["  false-end", "  time-limit-terminal"]


def test_the_difference_is_told_by_rows_in_text_and_in_json(root: Path, capsys: Capture) -> None:
    names = (ANT, f"{ANT}~repaired")
    assert main(["diff", *names, "--json"]) == 10
    told = json.loads(capsys.readouterr().out)
    # Steps 210 and 1,209 are new ends, and step 999 is none.
    assert told["only_rows"] == [[[210, 1], [1208, 1]], [[998, 1]]]
    changed = {".".join(each["key"]): each["rows"] for each in told["columns"] if each["rows"]}
    rows = [[209, 1], [998, 1], [1207, 1]]
    assert changed == {"next.done": rows, "next.truncated": rows}
    assert main(["diff", *names]) == 10
    text = capsys.readouterr().out
    assert f"rows of d4rl/{ANT} alone: 210, 1,208\n" in text
    assert "rows that differ in next.truncated: 209, 998, 1,207\n" in text
