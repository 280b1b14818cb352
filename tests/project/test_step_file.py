"""The project file: its steps and its declarations, read and appended."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

import datasets_cli
from datasets_cli import plan_preprocess, run_plan
from datasets_cli.cli.main import main
from datasets_cli.errors import DiskFull, PartialFailure, UnknownDataset, UsageError
from datasets_cli.project import Pipeline, PreprocessStep, StepFile
from datasets_cli.project.data import DataFile
from tests.support.disks import Disks
from tests.support.refusals import refused

Capture = pytest.CaptureFixture[str]
STEP = PreprocessStep("demo/iris", "functions:first", "x")

HOSTILE = {
    "[[preprocess]\n": "is not valid TOML",
    "x = " + "[" * 5000: "is not valid TOML",
    "preprocess = 3\n": "write [[preprocess]] above each step",
    "[preprocess]\ninput = 'a'\n": "write [[preprocess]] above each step",
    "[other]\n": "expected only tables [[preprocess]] and [data.NAME]",
    "[[preprocess]]\n": "input and fn and name is missing; expected at least input, fn and name",
    "[[preprocess]]\ninput='a'\nfn='m:f'\nname='x'\nworkers=4\n": "unknown key workers",
    "[[preprocess]]\ninput=1\nfn='m:f'\nname='x'\n": "input is 1; expected ids",
    "[[preprocess]]\ninput=['a', 1]\nfn='m:f'\nname='x'\n": "expected ids or globs, at least one",
    "[[preprocess]]\ninput='a'\nfn='m'\nname='x'\n": "is not MODULE:FUNCTION, such as",
    "[[preprocess]]\ninput='a'\nfn=['m:f']\nname='x'\n": "fn is ['m:f']; expected text",
    "[[preprocess]]\ninput='a'\nfn='m:f'\nname='../x'\n": "Expected family/name",
    "[[preprocess]]\ninput='a'\nfn='m:f'\nname='{id}'\n": "has braces. Expected none, or {name}",
    "[[preprocess]]\ninput='a'\nfn='m:f'\nname='x'\nseed=true\n": "expected a whole number",
    "[[preprocess]]\ninput='a'\nfn='m:f'\nname='x'\nchunksize=-1\n": "expected 0 or more",
    "[[preprocess]]\ninput='a'\nfn='m:f'\nname='x'\nper='row'\n": "chunk, trajectory, transition",
    "[[preprocess]]\ninput='no-*'\nfn='m:f'\nname='x'\n": "To install published ones: rlds",
    "[[preprocess]]\ninput='derived/x'\nfn='m:f'\nname='x'\n": "Change the input or the name",
}


@pytest.mark.parametrize("text", HOSTILE)
def test_a_file_that_is_wrong_is_named_with_the_remedy(
    here: Path, text: str, capsys: Capture
) -> None:
    (here / "rlds.toml").write_text(text)
    assert main(["preprocess", "--dry-run"]) in (2, 3)
    captured = capsys.readouterr()
    assert HOSTILE[text] in captured.err and captured.out == ""
    assert captured.err.startswith("rlds: ") and captured.err.count("\n") == 1
    assert "rlds.toml" in captured.err or "cycle" in captured.err


@pytest.mark.parametrize("kind", ["pipe", "device", "huge"])
def test_a_file_that_never_ends_is_refused(here: Path, kind: str) -> None:
    path = here / "rlds.toml"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as file:
            file.truncate(2 << 30)
    for read in (StepFile(here).read, lambda: DataFile(path), lambda: StepFile(here).add(STEP)):
        with refused(UsageError, expected="a UTF-8 text of at most 1,048,576 bytes"):
            read()


def test_a_file_behind_a_link_is_read(here: Path) -> None:
    (here / "elsewhere.toml").write_text("# nothing\n")
    (here / "rlds.toml").symlink_to("elsewhere.toml")
    assert StepFile(here).read() == []


def test_a_file_that_is_no_text_is_refused(here: Path) -> None:
    (here / "rlds.toml").write_bytes(b"\xff")
    with refused(UsageError, expected="a UTF-8 text of at most 1,048,576 bytes"):
        StepFile(here).read()
    assert StepFile(here.parent).read() is None


def test_every_argument_of_a_step_is_read(here: Path) -> None:
    path = here / "rlds.toml"
    path.write_text(
        '[[preprocess]]\ninput = ["a", "b-*"]\nfn = "m.n:f"\nname = "{name}-x"\n'
        'per = "transition"\nchunksize = 5\nnum_frames = 7\nseed = 3\n'
    )
    expected = PreprocessStep(
        ("a", "b-*"), "m.n:f", "{name}-x", per="transition", chunksize=5, num_frames=7, seed=3
    )
    assert StepFile().read() == [expected]


@pytest.mark.parametrize("before", ["", "# mine\n", "# mine", "# a\n[[preprocess]] # b\n%s\n"])
def test_a_saved_step_is_appended_and_all_else_stays(here: Path, before: str) -> None:
    other = "input = 'demo/door-human' # c\nfn='m:f'\nname='other'"
    text = before.replace("%s", other)
    path = here / "rlds.toml"
    path.write_text(text)
    assert StepFile().add(PreprocessStep(("a'b", 'ü"d\\'), "m:f", "{name}-x", chunksize=4))
    assert path.read_text().startswith(text)
    assert tomllib.loads(path.read_text())["preprocess"][-1] == {
        "input": ["a'b", 'ü"d\\'],
        "fn": "m:f",
        "name": "{name}-x",
        "chunksize": 4,
    }
    assert len(StepFile().read() or []) == 1 + ("%s" in before)


def test_an_equal_step_is_not_written_twice(here: Path) -> None:
    assert StepFile(here).add(STEP)
    text = (here / "rlds.toml").read_text()
    assert not StepFile(here).add(STEP)
    assert (here / "rlds.toml").read_text() == text


def test_another_step_with_the_same_out_is_refused(here: Path) -> None:
    StepFile().add(STEP)
    text = (here / "rlds.toml").read_text()
    with refused(UsageError, argument="name", path=here / "rlds.toml"):
        StepFile().add(PreprocessStep("demo/iris", "functions:second", "derived/x"))
    assert (here / "rlds.toml").read_text() == text


def test_save_on_a_call_writes_its_step(module: str, here: Path, capsys: Capture) -> None:
    call = ["--fn", f"{module}:first", "--name", "x", "--workers", "0", "--seed", "3", "--save"]
    assert main(["preprocess", "iris", *call]) == 3, "it is openml/iris, which is not installed"
    assert not (here / "rlds.toml").exists()
    assert main(["preprocess", "demo/iris", *call]) == 0
    assert StepFile(here).read() == [PreprocessStep("demo/iris", f"{module}:first", "x", seed=3)]
    assert main(["preprocess"]) == 0
    assert ", 1 up to date" in capsys.readouterr().err


def test_a_function_that_is_not_there_is_not_saved(installed: list[str], here: Path) -> None:
    call = ["preprocess", "demo/iris", "--fn", "nothing_here:f", "--name", "x", "--save"]
    assert main(call) == 2
    assert not (here / "rlds.toml").exists()


TEXT = '# mine\n[data.old]\ndataset = "demo/iris"  # small\n\n[[preprocess]]\nsource = "x"'


def test_a_table_is_added_and_all_else_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "rlds.toml"
    path.write_text(TEXT)
    call = ["data", "add", "a-name", "--dataset", "demo/pong", "--where", 'length > 1 # "x"']
    assert main([*call, "--split", "0.9,.1", "--part", "1", "--seed", "3"]) == 0
    assert path.read_text().startswith(TEXT)
    added = tomllib.loads(path.read_text())["data"]
    views = [{"filter": 'length > 1 # "x"'}, {"split": [0.9, 0.1], "part": 1, "seed": 3}]
    assert added == {
        "old": {"dataset": "demo/iris"},
        "a-name": {"dataset": "demo/pong", "views": views},
    }


def test_what_is_added_opens(hopper: str, tmp_path: Path) -> None:
    datasets_cli.add_data("whole", hopper, project=tmp_path)
    datasets_cli.add_data("part", hopper, where="length > 0", split=[0.5, 0.5], project=tmp_path)
    whole, part = datasets_cli.declared_datasets(project=tmp_path)
    assert (whole.num_transitions, part.num_trajectories) == (911, 1)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("old", {}),
        ("add", {}),
        ("", {}),
        ("a name", {}),
        ("\x1b[1m", {}),
        ("x", {"where": "foo >"}),
        ("x", {"split": [0.5], "seed": -1}),
        ("x", {"split": "a,b"}),
        ("x", {"split": []}),
        ("x", {"split": "0.9,0.1", "part": 2}),
        ("x", {"part": 1}),
        ("x", {"where": ""}),
    ],
)
def test_what_would_be_no_table_is_refused(
    name: str, options: dict[str, object], tmp_path: Path
) -> None:
    path = tmp_path / "rlds.toml"
    path.write_text(TEXT)
    with pytest.raises(UsageError):
        datasets_cli.add_data(name, "demo/iris", project=path, **options)
    assert path.read_text() == TEXT


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, disks: Disks) -> None:
    disks.put(tmp_path / "disk", size_bytes=8192)
    path = tmp_path / "disk" / "rlds.toml"
    path.write_text(TEXT)
    (tmp_path / "disk" / "other").write_bytes(bytes(4096))
    with pytest.raises(DiskFull):
        datasets_cli.add_data("x", "demo/iris", project=path)
    assert path.read_text() == TEXT
    assert {each.name for each in path.parent.iterdir()} == {"rlds.toml", "other"}


def test_a_dataset_that_is_not_known_is_refused_and_one_to_be_made_is_not(tmp_path: Path) -> None:
    with pytest.raises(UnknownDataset):
        datasets_cli.add_data("x", "demo/nosuch", project=tmp_path)
    with refused(UsageError, argument="dataset"):
        datasets_cli.add_data("x", "", project=tmp_path)
    assert datasets_cli.add_data("made", "derived/x", project=tmp_path).name == "made"


def test_a_table_that_is_wrong_does_not_hide_the_others(hopper: str, tmp_path: Path) -> None:
    datasets_cli.add_data("whole", hopper, project=tmp_path)
    with (tmp_path / "rlds.toml").open("a") as file:
        file.write('[data.bad]\ncolour = 1\n[data.gone]\ndataset = "demo/pong"\n')
    with pytest.raises(PartialFailure, match=r"bad, gone.*\n.*colour.*\n.*demo/pong") as caught:
        datasets_cli.declared_datasets(project=tmp_path)
    assert [each.num_transitions for each in caught.value.results] == [911]


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with refused(UsageError, path=tmp_path / "no" / "rlds.toml"):
        datasets_cli.add_data("x", "demo/iris", project=tmp_path / "no" / "rlds.toml")


def test_a_file_that_is_not_toml_is_left(tmp_path: Path) -> None:
    (tmp_path / "rlds.toml").write_text("x = ")
    with refused(UsageError, path=tmp_path / "rlds.toml"):
        datasets_cli.add_data("x", "demo/iris", project=tmp_path)
    assert (tmp_path / "rlds.toml").read_text() == "x = "


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
