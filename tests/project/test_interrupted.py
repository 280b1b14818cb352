"""Interrupted runs are found, named and continued; what stands in the root is never trusted."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from datasets_cli import plan_preprocess, preprocess, run_plan
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import RldsError
from datasets_cli.parallel.functions import load_function
from datasets_cli.preprocessing import origin
from datasets_cli.preprocessing.options import PreprocessOptions
from datasets_cli.store.cache_root import CacheRoot, runs_to

GATED = """
from pathlib import Path

def gated(batch):
    with open("calls", "a") as file:
        file.write("x")
    if int(batch["action"][-1]) == 2 and not Path("gate").exists():
        raise ValueError("not yet")
    return batch.select("action")
"""


@pytest.fixture
def dest(config: Config) -> Path:
    return CacheRoot(config.root).dataset("derived/x")


@pytest.fixture
def work(
    installed: list[str], module: str, here: Path, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """What a run left that ended in the middle, of a function in the working directory."""
    monkeypatch.setattr(origin, "rows_per_block", lambda row_bytes: 50)
    source = here / f"{module}.py"
    source.write_text(GATED)
    call = ["preprocess", "demo/iris", "--fn", f"{module}:gated", "--out", "x", "--workers", "0"]
    assert main([*call, "--per", "transition", "--seed", "3"]) == 1
    return runs_to(dest)[0]


def test_the_request_of_a_run_is_kept(work: Path, module: str, here: Path) -> None:
    request = json.loads((work / "request.json").read_text())
    assert request.pop("options") == {
        **{"num_frames": None, "chunksize": None, "num_chunks": None},
        **{
            "per": "transition",
            "order": "same",
            "layout": None,
            "seed": 3,
            "where": None,
            "max_trajectories": None,
        },
    }
    fn = f"{module}:gated"
    assert request == {"input": "demo/iris", "fn": fn, "folder": str(here), "replaces": False}


def test_an_interrupted_run_goes_on_where_it_was(work: Path, here: Path, dest: Path) -> None:
    done = len([*work.glob("parts/*.done")])
    assert 0 < done < 3
    (task,) = plan_preprocess().tasks
    assert (task.state, task.kind) == ("due", "interrupted run")
    (here / "gate").touch()
    calls = len((here / "calls").read_text())
    assert main(["preprocess", "--workers", "0"]) == 0
    assert len((here / "calls").read_text()) - calls == 1 + 3 - done, "the first rows are tried"
    assert [path.name for path in dest.parent.iterdir()] == ["x"]


def test_a_run_of_another_folder_is_listed_and_is_no_error(
    work: Path,
    here: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(here)])
    assert main(["preprocess"]) == 0
    shown = capsys.readouterr().err
    assert f"(left); cannot be resumed from here: cd {here}. To drop it: rm -r {work}" in shown


def test_a_function_that_was_edited_does_not_go_on(work: Path, here: Path, module: str) -> None:
    (here / f"{module}.py").write_text(GATED + "# edited")
    (task,) = plan_preprocess().tasks
    command = f"rlds preprocess demo/iris --out x --fn {module}:gated --seed 3 --per transition"
    assert task.state == "left" and command in task.reason
    assert run_plan(plan_preprocess()).datasets == ()


def test_a_run_of_a_function_without_a_name_is_listed(
    installed: list[str], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(origin, "rows_per_block", lambda row_bytes: 50)

    def fails(batch: Any) -> Any:
        if int(batch["action"][-1]) == 2:
            raise ValueError
        return batch

    with pytest.raises(RldsError):
        preprocess("demo/iris", fails, "x", per="transition")
    (task,) = plan_preprocess().tasks
    assert task.state == "left" and "no name to import it by" in task.reason


def test_a_step_takes_up_what_a_run_to_its_result_left(work: Path, here: Path, module: str) -> None:
    (here / "rlds.toml").write_text(
        f'[[preprocess]]\ninput = "demo/iris"\nfn = "{module}:gated"\nout = "x"\n'
        'per = "transition"\nseed = 3\n'
    )
    (task,) = plan_preprocess().tasks
    assert (task.kind, task.state) == ("step", "due") and "was interrupted" in task.reason
    (here / "gate").touch()
    calls = len((here / "calls").read_text())
    run_plan(plan_preprocess())
    assert len((here / "calls").read_text()) - calls < 4


OPTIONS = [field.name for field in fields(PreprocessOptions)]
HOSTILE: list[dict[str, Any]] = [
    {"fn": "os:system"},
    {"fn": "../evil:f"},
    {"fn": "evil:trap"},
    {"fn": 3},
    {"fn": ["evil", "trap"]},
    {"input": "../../etc"},
    {"input": None},
    {"folder": 1},
    {"replaces": "yes"},
    {"options": None},
    {"options": {"seed": 1}},
    {"more": 1},
    *(
        {"options": dict.fromkeys(OPTIONS) | wrong}
        for wrong in (
            {"per": "trajectory", "seed": True},
            {"per": "trajectory", "seed": -1},
            {"per": "x", "seed": 1},
            {"per": 1, "seed": 1},
            {"per": "trajectory", "seed": 1, "chunksize": -1},
            {"per": "trajectory", "seed": 1.5},
        )
    ),
]


def test_a_request_that_was_tampered_with_runs_nothing(work: Path, here: Path) -> None:
    source = "import pathlib\npathlib.Path('trapped').touch()\ndef trap(batch):\n    return batch\n"
    (here / "evil.py").write_text(source)
    request = json.loads((work / "request.json").read_text())
    for wrong in HOSTILE:
        (work / "request.json").write_text(json.dumps(request | wrong))
        plan = plan_preprocess()
        assert [task.state for task in plan.tasks] == ["left"], wrong
        assert f"rm -r {work}" in plan.tasks[0].reason
        run_plan(plan)
    assert not (here / "trapped").exists() and work.exists()


def test_files_of_a_run_that_are_none_are_named(work: Path) -> None:
    for name in ("request.json", "plan.json"):
        data = (work / name).read_bytes()
        for wrong in (b"", b"[]", b"\xff", b"{" * 5000, b"x" * 2_000_000, None):
            (work / name).unlink()
            if wrong is None:
                os.mkfifo(work / name)
            else:
                (work / name).write_bytes(wrong)
            (task,) = plan_preprocess().tasks
            assert task.state == "left" and "cannot be resumed: " in task.reason, (name, wrong)
        (work / name).unlink()
        (work / name).write_bytes(data)
    assert [task.state for task in plan_preprocess().tasks] == ["due"]


def test_a_link_that_looks_like_a_run_is_not_followed(work: Path, tmp_path: Path) -> None:
    moved = work.rename(tmp_path / "moved")
    work.symlink_to(moved)
    (work.parent / f".a b{work.name[2:]}").mkdir()  # no name of a dataset
    assert plan_preprocess().tasks == ()


def test_what_a_function_wrote_of_an_escape_sequence_reaches_no_terminal(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = json.loads((work / "request.json").read_text())
    (work / "request.json").write_text(json.dumps(request | {"folder": "/\x1b[2J\nx"}))
    assert main(["preprocess", "--dry-run"]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_a_function_is_loaded_again_where_its_file_was_edited(here: Path, module: str) -> None:
    path = here / f"{module}.py"
    path.write_text("def f(batch):\n    return 1\n")
    assert load_function(f"{module}:f")(None) == 1  # type: ignore[arg-type]
    path.write_text("def f(batch):\n    return 1 + 1\n")
    assert load_function(f"{module}:f")(None) == 2  # type: ignore[arg-type]
