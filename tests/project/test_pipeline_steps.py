"""Steps that are pipelines."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from datasets_cli import plan_preprocess, run_plan
from datasets_cli.cli.main import main
from datasets_cli.errors import UsageError
from datasets_cli.project import Pipeline, PreprocessStep, StepFile
from tests.support.refusals import refused

Capture = pytest.CaptureFixture[str]
TABLE = """
[[preprocess]]
input = "demo/iris"
cast = "float32"
where = "number < 100"
max_trajectories = 7
seed = 3
name = "small"
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
    call = [*flags, "--where", "number < 9", "--name", "{name}-small", "--workers", "0", "--save"]
    assert main(["preprocess", "demo/iris", *call]) == 0
    assert tomllib.loads((here / "rlds.toml").read_text())["preprocess"] == [
        {
            "input": "demo/iris",
            "name": "{name}-small",
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
        ('fn = "m:f"', "fn and cast exclude each other"),
        ("cats = 3", "unknown key cats; expected input, fn, name"),
        ("select = 3", "select is 3; expected names, none empty, each once"),
        ("n_step = 3", "n_step needs gamma"),
        ("where = 3", "where is 3; expected text"),
        ("seed = 3", "transforms are not random. Leave it out"),
        ("max_trajectories = true", "max_trajectories is True; expected a whole number"),
    ],
)
def test_a_table_that_is_wrong_is_named(
    here: Path, line: str, message: str, capsys: Capture
) -> None:
    plain = '[[preprocess]]\ninput = "demo/iris"\nname = "x"\ncast = "float32"\n'
    (here / "rlds.toml").write_text(plain + line)
    assert main(["preprocess"]) == 2
    shown = capsys.readouterr().err
    assert message in shown and "Step 1 of " in shown


def test_a_step_is_a_pipeline_or_a_function(here: Path) -> None:
    with refused(UsageError, argument="fn", found=["input", "name"]):
        PreprocessStep.of({"input": "a", "name": "b"})
    step = PreprocessStep("a", Pipeline(cast="float32"), "b")
    assert StepFile().add(step) and StepFile().read() == [step]
