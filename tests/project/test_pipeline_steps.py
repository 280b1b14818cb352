"""Steps without a function: in rlds.toml, in a plan, and of a run that was interrupted."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from datasets_cli import Pipeline, PreprocessStep, StepFile, plan_preprocess, preprocess, run_plan
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import UsageError
from datasets_cli.preprocessing import origin, running
from datasets_cli.preprocessing.options import PreprocessOptions
from datasets_cli.preprocessing.work import Request, read_request
from datasets_cli.store.cache_root import CacheRoot, runs_to
from datasets_cli.store.manifest import read_manifest

Capture = pytest.CaptureFixture[str]
TABLE = """
[[preprocess]]
input = "demo/iris"
cast = "float32"
where = "number < 100"
max_trajectories = 7
seed = 3
out = "small"
"""


def test_a_table_has_the_steps_by_their_names(here: Path) -> None:
    (here / "rlds.toml").write_text(TABLE)
    (step,) = StepFile().read() or []
    expected = Pipeline(cast="float32")
    assert step == PreprocessStep(
        "demo/iris", expected, "small", seed=3, where="number < 100", max_trajectories=7
    )
    assert tomllib.loads(TABLE)["preprocess"] == [step.to_json()]


def test_save_writes_plain_keys_and_the_plan_makes_them(
    installed: list[str], here: Path, capsys: Capture
) -> None:
    flags = ["--cast", "float16", "--rename", "observation=x", "--rename", "action=y"]
    call = [*flags, "--where", "number < 9", "--out", "{name}-small", "--workers", "0", "--save"]
    assert main(["preprocess", "demo/iris", *call]) == 0
    assert tomllib.loads((here / "rlds.toml").read_text())["preprocess"] == [
        {
            "input": "demo/iris",
            "out": "{name}-small",
            "where": "number < 9",
            "cast": "float16",
            "rename": ["observation=x", "action=y"],
        }
    ]
    assert main(["preprocess"]) == 0
    assert ", 1 up to date" in capsys.readouterr().err
    assert main(["delete", "derived/iris-small", "--yes"]) == 0
    assert main(["preprocess", "--workers", "0"]) == 0
    shown = capsys.readouterr().err
    assert "derived/iris-small: cast=float16, rename=observation=x,action=y of demo/iris" in shown


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('cast = "float32"', 'cast = "float16"', "the function cast=float32, now cast=float16"),
        ("number < 100", "number < 6", "the argument num_frames=7, now 6"),
        (
            "seed = 3",
            "seed = 4",
            "filter('number < 100').max_trajectories(7, seed=3), now filter(",
        ),
    ],
)
def test_a_step_that_changed_is_due_again(
    installed: list[str], here: Path, old: str, new: str, reason: str
) -> None:
    (here / "rlds.toml").write_text(TABLE)
    run_plan(plan_preprocess())
    assert plan_preprocess().tasks[0].state == "done"
    (here / "rlds.toml").write_text(TABLE.replace(old, new))
    (task,) = plan_preprocess().tasks
    assert task.state == "due" and reason in task.reason
    run_plan(plan_preprocess())
    assert plan_preprocess().tasks[0].state == "done"


def test_a_condition_that_cannot_be_is_told_by_the_plan(
    installed: list[str], here: Path, capsys: Capture
) -> None:
    (here / "rlds.toml").write_text(TABLE)
    run_plan(plan_preprocess())
    (here / "rlds.toml").write_text(TABLE.replace("number <", "nothing <"))
    (task,) = plan_preprocess().tasks
    assert task.state == "blocked" and "have no column 'nothing'" in task.reason
    assert main(["preprocess", "--workers", "0"]) == 2
    assert "have no column 'nothing'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('fn = "m:f"', "fn cannot stand beside cast"),
        ("cats = 3", "there is no key cats; expected input, fn, out"),
        ("select = 3", "select is 3; expected names, none empty, each once"),
        ("n_step = 3", "n_step needs gamma"),
        ("where = 3", "where is 3; expected text"),
        ("seed = 3", "transforms draw nothing. Leave it out"),
        ("max_trajectories = true", "max_trajectories is True; expected a whole number"),
    ],
)
def test_a_table_that_is_wrong_is_named(
    here: Path, line: str, message: str, capsys: Capture
) -> None:
    plain = '[[preprocess]]\ninput = "demo/iris"\nout = "x"\ncast = "float32"\n'
    (here / "rlds.toml").write_text(plain + line)
    assert main(["preprocess"]) == 2
    shown = capsys.readouterr().err
    assert message in shown and "Step 1 of " in shown


def test_a_step_is_a_pipeline_or_a_function(here: Path) -> None:
    with pytest.raises(UsageError, match="or in place of fn what needs no function, such as cast"):
        PreprocessStep.of({"input": "a", "out": "b"})
    step = PreprocessStep("a", Pipeline(cast="float32"), "b")
    assert StepFile().add(step) and StepFile().read() == [step]


# Interrupted runs


@pytest.fixture
def work(installed: list[str], config: Config, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a run left that ended in the middle."""
    monkeypatch.setattr(origin, "rows_per_block", lambda row_bytes: 50)
    write_rows = running.write_rows

    def fails(task: Any, dataset: Any) -> None:
        if task.start:
            raise KeyboardInterrupt
        write_rows(task, dataset)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(running, "write_rows", fails)
        steps = Pipeline(cast="float16", n_step=2, gamma=1)
        preprocess("demo/iris", steps, "x", where="number < 100", max_trajectories=80, seed=3)
    return runs_to(CacheRoot(config.root).dataset("derived/x"))[0]


def test_an_interrupted_run_of_steps_continues_from_any_folder(
    work: Path, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (task,) = plan_preprocess().tasks
    assert (task.kind, task.state) == ("interrupted run", "due")
    assert len([*work.glob("parts/*.done")]) == 1
    (made,) = run_plan(plan_preprocess()).datasets
    assert not work.exists()
    steps = Pipeline(cast="float16", n_step=2, gamma=1)
    whole = preprocess("demo/iris", steps, "y", where="number < 100", max_trajectories=80, seed=3)
    assert read_manifest(made.path).files == read_manifest(whole.path).files


def test_a_run_whose_steps_meant_something_else_is_left(work: Path, here: Path) -> None:
    plan = json.loads((work / "plan.json").read_text())
    (work / "plan.json").write_text(json.dumps({**plan, "function": "0" * 64}))
    (task,) = plan_preprocess().tasks
    command = "preprocess demo/iris --out x --n-step 2 --gamma 1.0 --cast float16"
    assert task.state == "left" and "another version of rlds began it" in task.reason
    chosen = "--where 'number < 100' --max-trajectories 80 --seed 3"
    assert f"{command} {chosen}" in task.reason


MAPPED: dict[str, Any] = {
    "input": "demo/iris",
    "fn": "mycode:scale",
    "folder": "/home/me",
    "options": {
        **{"num_frames": None, "chunksize": 5, "num_chunks": None},
        **{
            "per": "transition",
            "order": "same",
            "layout": None,
            "seed": 3,
            "where": None,
            "max_trajectories": None,
        },
    },
    "replaces": False,
}
PIPED: dict[str, Any] = {
    **MAPPED,
    "fn": {"cast": "float16"},
    "folder": "",
    "options": {**MAPPED["options"], "where": "return > 3", "max_trajectories": 5},
}


def test_a_request_is_read_as_it_was_written(tmp_path: Path) -> None:
    options = PreprocessOptions(chunksize=5, per="transition", seed=3)
    chosen = replace(options, where="return > 3", max_trajectories=5)
    expected = {
        "of a function": (MAPPED, Request("demo/iris", "mycode:scale", "/home/me", options)),
        "of a pipeline": (
            PIPED,
            Request("demo/iris", Pipeline(cast="float16"), "", chosen),
        ),
    }
    for document, request in expected.values():
        (tmp_path / "request.json").write_text(json.dumps(document))
        assert read_request(tmp_path) == request and request.to_json() == document


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fn": {"cast": 3}}, "cast is 3; expected names"),
        ({"fn": {"run": "rm"}}, "there is no transform run"),
        ({"fn": ["cast"]}, "request.json.fn: expected a text or an object, found"),
        ({"options": {}}, "request.json: it is not as a run"),
        (
            {"options": {**PIPED["options"], "where": 3}},
            "where: expected a text or null, found",
        ),
        (
            {"options": {**PIPED["options"], "more": 3}},
            "request.json.options: expected some of .* 'more'",
        ),
    ],
)
def test_a_request_that_is_wrong_is_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    (tmp_path / "request.json").write_text(json.dumps({**PIPED, **change}))
    with pytest.raises(ValueError, match=message):
        read_request(tmp_path)
