"""Interrupted runs: those of steps are continued by the plan, and others by their own call."""

from __future__ import annotations

from pathlib import Path

import pytest

from datasets_cli import plan_preprocess, run_plan
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.preprocessing import origin
from datasets_cli.preprocessing.function import load_function
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
def call(
    installed: list[str], module: str, here: Path, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """A call that failed in the middle."""
    monkeypatch.setattr(origin, "rows_per_block", lambda row_bytes: 50)
    (here / f"{module}.py").write_text(GATED)
    call = ["preprocess", "demo/iris", "--fn", f"{module}:gated", "--name", "x", "--workers", "0"]
    call += ["--per", "transition", "--seed", "3"]
    assert main(call) == 1
    assert len(runs_to(dest)) == 1
    return call


def num_calls(here: Path) -> int:
    return len((here / "calls").read_text())


def test_a_run_of_no_step_is_continued_by_its_own_call_alone(
    call: list[str], here: Path, dest: Path
) -> None:
    (here / "gate").touch()
    before = num_calls(here)
    assert plan_preprocess().tasks == ()
    assert main(["preprocess"]) == 0
    assert num_calls(here) == before and len(runs_to(dest)) == 1
    assert main(call) == 0
    assert num_calls(here) - before < 4
    assert [path.name for path in dest.parent.iterdir()] == ["x"]


def test_a_step_continues_an_interrupted_run_to_its_result(
    call: list[str], here: Path, module: str
) -> None:
    (here / "rlds.toml").write_text(
        f'[[preprocess]]\ninput = "demo/iris"\nfn = "{module}:gated"\nname = "x"\n'
        'per = "transition"\nseed = 3\n'
    )
    (task,) = plan_preprocess().tasks
    assert (task.kind, task.state) == ("step", "due") and "was interrupted" in task.reason
    (here / "gate").touch()
    before = num_calls(here)
    run_plan(plan_preprocess())
    assert num_calls(here) - before < 4


def test_a_function_is_loaded_again_where_its_file_was_edited(here: Path, module: str) -> None:
    path = here / f"{module}.py"
    path.write_text("def f(batch):\n    return 1\n")
    assert load_function(f"{module}:f")(None) == 1  # type: ignore[arg-type]
    path.write_text("def f(batch):\n    return 1 + 1\n")
    assert load_function(f"{module}:f")(None) == 2  # type: ignore[arg-type]
