"""The plan: what is due, in which order, told without importing a line of the user's code."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from datasets_cli import open_dataset, plan_preprocess, run_plan
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import DatasetNotInstalled, PartialFailure, RldsError, UsageError
from datasets_cli.project import PreprocessStep
from datasets_cli.project.plan import in_order
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.manifest import read_manifest
from tests.support.refusals import refused

Capture = pytest.CaptureFixture[str]


def write_steps(here: Path, *steps: str) -> None:
    (here / "rlds.toml").write_text("".join(f"[[preprocess]]\n{step}\n" for step in steps))


def step(module: str, input: str | list[str], out: str, name: str = "first", more: str = "") -> str:
    return f'input = {json.dumps(input)}\nfn = "{module}:{name}"\nname = "{out}"\n{more}'


def states(capsys: Capture) -> dict[str, str]:
    """The state of every dataset of the plan, as ``--dry-run`` prints it."""
    capsys.readouterr()
    assert main(["preprocess", "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    return {task["id"].removeprefix("derived/"): task["state"] for task in plan["tasks"]}


def prepare() -> int:
    return main(["preprocess", "--workers", "0"])


def test_steps_are_done_once_and_then_one_line_says_that_all_is(
    module: str, here: Path, capsys: Capture
) -> None:
    write_steps(here, step(module, "demo/*", "{name}-x"), step(module, "demo/iris", "y"))
    assert prepare() == 0
    shown = capsys.readouterr()
    assert "3 datasets pending:\n  derived/door-human-x: " in shown.err
    assert [Path(path).name for path in shown.out.splitlines()] == ["door-human-x", "iris-x", "y"]
    assert prepare() == 0
    assert capsys.readouterr() == ("", "Nothing is due, 3 up to date.\n")


def test_an_input_may_be_a_list_of_ids_and_globs(module: str, here: Path, capsys: Capture) -> None:
    write_steps(here, step(module, ["demo/iris", "*human", "demo/iris"], "{name}-x"))
    assert states(capsys) == {"iris-x": "due", "door-human-x": "due"}


def test_a_dry_run_imports_nothing_and_writes_nothing(
    module: str, here: Path, config: Config
) -> None:
    (here / f"{module}.py").write_text(
        "import pathlib\npathlib.Path('imported').touch()\ndef first(batch):\n    return batch\n"
    )
    write_steps(here, step(module, "demo/iris", "x"))
    before = sorted(config.root.rglob("*"))
    assert main(["preprocess", "--dry-run"]) == 0
    assert sorted(config.root.rglob("*")) == before and not (here / "imported").exists()
    assert prepare() == 0
    assert (here / "imported").exists()


def test_a_step_is_outdated_where_function_arguments_or_data_changed(
    module: str, here: Path, capsys: Capture
) -> None:
    write_steps(here, step(module, "demo/iris", "x"), step(module, "derived/x", "y"))
    assert prepare() == 0
    assert states(capsys) == {"x": "done", "y": "done"}
    source = here / f"{module}.py"
    source.write_text(source.read_text() + "# edited\n")
    assert states(capsys) == {"x": "due", "y": "due"}
    assert prepare() == 0
    write_steps(here, step(module, "demo/iris", "x", "second"), step(module, "derived/x", "y"))
    assert states(capsys) == {"x": "unknown", "y": "due"}, "another name may be the same function"
    assert prepare() == 0
    assert states(capsys) == {"x": "done", "y": "done"}
    write_steps(here, step(module, "derived/x", "y", more="seed = 1"))
    assert states(capsys) == {"y": "due"}


def test_a_module_that_a_functions_file_imports_decides_too_and_is_named(
    module: str, here: Path, capsys: Capture
) -> None:
    source, helper = here / f"{module}.py", here / f"helper_of_{module}.py"
    source.write_text(f"import {helper.stem}\n{source.read_text()}made = lambda batch: batch\n")
    helper.write_text("FACTOR = 1\n")
    write_steps(here, step(module, "demo/iris", "x"), step(module, "demo/iris", "y", "made"))
    assert prepare() == 0
    assert states(capsys) == {"x": "done", "y": "unknown"}
    (here / "unrelated.py").write_text("FACTOR = 1\n")
    assert states(capsys) == {"x": "done", "y": "unknown"}
    helper.write_text("FACTOR = 2\n")
    assert states(capsys) == {"x": "due", "y": "due"}, "the text tells that, whatever made is"
    changes = (f"code of {helper.name} changed",)
    assert [task.changes for task in plan_preprocess().tasks] == [changes, changes]
    assert main(["preprocess", "--dry-run"]) == 0
    assert (
        f"it was created with different settings: code of {helper.name} changed"
        in capsys.readouterr().out
    )
    call = ["preprocess", "demo/iris", "--fn", f"{module}:first", "--name", "x", "--dry-run"]
    assert main([*call, "--seed", "1"]) == 0
    shown = capsys.readouterr().out
    changes_shown = f"code of {helper.name} changed; the seed 0, now 1"
    assert f"derived/x was created with different settings: {changes_shown}" in shown
    assert main([*call, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changes"] == [*changes]
    assert prepare() == 0
    assert states(capsys) == {"x": "done", "y": "unknown"}


def test_the_data_of_the_input_decides_too(module: str, here: Path, capsys: Capture) -> None:
    call = ["preprocess", "demo/iris", "--fn", f"{module}:second", "--name", "x", "--workers", "0"]
    assert main(call) == 0
    write_steps(here, step(module, "derived/x", "y"))
    assert prepare() == 0
    assert main(["delete", "derived/x", "--yes"]) == 0
    assert states(capsys) == {"y": "blocked"}
    assert main([*call, "--num", "100"]) == 0
    assert states(capsys) == {"y": "due"}
    assert prepare() == 0
    assert len(open_dataset("derived/y")) == 100


def test_the_old_result_stays_until_the_new_one_is_committed(
    module: str, here: Path, config: Config
) -> None:
    write_steps(here, step(module, "demo/iris", "x"))
    assert prepare() == 0
    folder = CacheRoot(config.root).dataset("derived/x")
    old = read_manifest(folder).content
    write_steps(here, step(module, "demo/iris", "x", "fails"))
    assert prepare() == 1
    assert read_manifest(folder).content == old
    write_steps(here, step(module, "demo/iris", "x", "second"))
    assert prepare() == 0
    assert read_manifest(folder).content != old
    assert [*(config.root / "tmp").iterdir()] == []
    assert [path.name for path in folder.parent.iterdir()] == ["x"]


def test_a_rebuild_that_was_killed_between_two_renames_gives_the_old_result_back(
    module: str, here: Path, config: Config
) -> None:
    write_steps(here, step(module, "demo/iris", "x"))
    assert prepare() == 0
    root = CacheRoot(config.root)
    trash = root.new_trash("derived/x")
    trash.parent.mkdir(exist_ok=True)
    root.dataset("derived/x").rename(trash)
    inode = trash.stat().st_ino
    assert prepare() == 0
    assert root.dataset("derived/x").stat().st_ino == inode and not trash.exists()


def test_steps_may_use_results_of_one_another_in_any_order(
    module: str, here: Path, capsys: Capture
) -> None:
    write_steps(
        here,
        step(module, "derived/*-b", "{name}-c"),
        step(module, "derived/a", "a-b"),
        step(module, "demo/iris", "a"),
    )
    assert list(states(capsys)) == ["a", "a-b", "a-b-c"]
    assert prepare() == 0
    assert set(states(capsys).values()) == {"done"}, "a glob does not take what its step made"


@pytest.mark.parametrize(
    "needs",
    [{"a": "b", "b": "a"}, {"a": "a"}, {"x": "a", "a": "b", "b": "c", "c": "a"}],
)
def test_a_circle_is_a_usage_error(needs: dict[str, str]) -> None:
    with refused(UsageError, argument="input", id="a"):
        in_order(needs)


def test_globs_that_match_one_anothers_results_are_refused(module: str, here: Path) -> None:
    steps = (("demo/iris", "a"), ("derived/a*", "{name}b"), ("derived/*b", "a{name}"))
    write_steps(here, *(step(module, input, out) for input, out in steps))
    with refused(UsageError, argument="input"):
        plan_preprocess()


def test_a_plain_glob_matches_no_derived_dataset(module: str, capsys: Capture) -> None:
    """Else the same call a second time would map the results, too."""
    call = ["preprocess", "*iris*", "--fn", f"{module}:first", "--name", "{name}-x"]
    assert main([*call, "--workers", "0"]) == main([*call, "--workers", "0"]) == 0
    assert main(["list", "--installed", "derived/*", "-q"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "derived/iris-x"


def test_two_inputs_that_give_one_out_are_refused(module: str, here: Path) -> None:
    with refused(UsageError, argument="name", id="derived/x"):
        plan_preprocess(PreprocessStep("demo/*", f"{module}:first", "x"))
    write_steps(here, step(module, "demo/iris", "x"), step(module, "*human", "x"))
    with refused(UsageError, argument="name", id="derived/x"):
        plan_preprocess()


def test_a_call_takes_several_ids_and_its_result_is_not_replaced(
    installed: list[str], module: str, capsys: Capture
) -> None:
    call = ["preprocess", *installed, "--name", "{name}-x", "--workers", "0", "-q"]
    capsys.readouterr()
    assert main([*call, "--fn", f"{module}:first"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main([*call, "--fn", f"{module}:second"]) == 9
    error = capsys.readouterr().err
    assert "2 of 2 datasets failed: derived/door-human-x, derived/iris-x" in error


def test_a_failure_of_one_of_several_is_partial_and_what_needs_it_is_not_made(
    module: str, here: Path
) -> None:
    write_steps(
        here,
        step(module, "demo/iris", "a", "fails"),
        step(module, "derived/a", "b"),
        step(module, "demo/iris", "c"),
    )
    with pytest.raises(PartialFailure, match="2 of 3 datasets failed: derived/a, ") as caught:
        run_plan(plan_preprocess())
    results = caught.value.results
    assert [made.id for made in results.datasets] == ["derived/c"]
    assert "on purpose" in str(results.failures[0].error)
    assert results.failures[1].error.id == "derived/a"
    assert results.to_json()["failures"][0]["id"] == "derived/a"
    assert prepare() == 9


def test_an_input_that_is_not_installed_is_named_with_the_command(
    module: str, here: Path, capsys: Capture
) -> None:
    write_steps(here, step(module, "hopper-medium-v2", "x"))
    assert main(["preprocess", "--dry-run"]) == 0
    assert "(blocked); d4rl/hopper-medium-v2 is not installed. Run: rlds download d4rl/hopper" in (
        capsys.readouterr().out
    )
    with refused(DatasetNotInstalled, id="d4rl/hopper-medium-v2"):
        run_plan(plan_preprocess())


def test_who_has_nothing_installed_is_told_how_to_begin(here: Path, capsys: Capture) -> None:
    assert main(["preprocess"]) == 0
    assert "Start with: rlds download demo/door-human or rlds demo" in capsys.readouterr().err
    assert main(["download", "demo/iris", "-q"]) == 0
    assert main(["preprocess"]) == 0
    capsys.readouterr()
    assert main(["preprocess"]) == 0
    assert capsys.readouterr().err == "Nothing is due.\n"


def test_options_without_a_function_are_not_ignored(here: Path, capsys: Capture) -> None:
    assert main(["preprocess", "--seed", "3", "--save"]) == 2
    shown = capsys.readouterr().err
    assert (
        "--seed and --save need ID, --fn and --name, too; transforms such as --cast float32"
        in shown
    )


def test_a_plan_runs_on_any_executor_later(module: str, here: Path, tmp_path: Path) -> None:
    """The plan is plain data: a folder, and for each dataset what derive() takes."""
    write_steps(here, step(module, "demo/*", "{name}-x"))
    plan = plan_preprocess()
    os.chdir(tmp_path)
    with ThreadPoolExecutor(1) as executor:
        made = run_plan(replace(plan), executor=executor)
    assert [dataset.id for dataset in made.datasets] == ["derived/door-human-x", "derived/iris-x"]
    assert plan_preprocess(folder=here).due == ()


def test_a_name_that_a_published_dataset_has_makes_no_room(
    module: str, here: Path, config: Config
) -> None:
    root = CacheRoot(config.root)
    root.dataset("derived").mkdir()
    root.dataset("demo/iris").rename(root.dataset("derived/x"))
    write_steps(here, step(module, "demo/door-human", "x"))
    with pytest.raises(RldsError):
        run_plan(plan_preprocess())
    assert (root.dataset("derived/x") / "manifest.json").exists()
