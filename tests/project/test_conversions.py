"""What the command alone finishes: killed conversions and interrupted runs."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
from pathlib import Path

import pytest

from datasets_cli import plan_preprocess, run_plan
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.preprocessing import origin
from datasets_cli.store.cache_root import CacheRoot, runs_to
from datasets_cli.verbs.verify import verify_installed as verify
from tests.support.interpreters import preloaded
from tests.support.origin import Origin
from tests.support.paths import DEMO_DATA, TEST_DATA

MAZE = "d4rl/maze2d-open-v0"
FILENAME = "maze2d-open-sparse.hdf5"
DOOR = TEST_DATA / "d4rl" / "demonstrations" / "door-v0_demos_clipped.hdf5"
MINARI = DEMO_DATA / "minari" / "D4RL" / "door" / "human-v2" / "data"
OPENML = DEMO_DATA / "openml"

KILLED_CONVERSION = """
import os, signal, sys
from datasets_cli.install import installation
from datasets_cli.cli.main import main
installation.commit = lambda *arguments, **options: os.kill(os.getpid(), signal.SIGKILL)
main(["download", sys.argv[1], "--no-verify"])
"""

KILLED_RUN = """
import sys
from datasets_cli.preprocessing import origin
origin.rows_per_block = lambda row_bytes: 50
from datasets_cli.cli.main import main
sys.exit(main(sys.argv[1:]))
"""

FUNCTION = """
import os, signal
from pathlib import Path

def dies_once(batch):
    if len(batch) == 50 and int(batch["action"][-1]) == 1 and not Path("killed").exists():
        Path("killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return batch
"""


@pytest.fixture
def root(config: Config) -> CacheRoot:
    return CacheRoot(config.root)


def put(root: CacheRoot, id: str, files: dict[str, Path]) -> None:
    """Leave files as a download does that is done."""
    folder = root.downloads(id)
    folder.mkdir(parents=True)
    for name, source in files.items():
        shutil.copy(source, folder / name)
        data = source.read_bytes()
        state = {"url": f"https://example.org/{name}", "validator": None, "size": len(data)}
        state["sha256"] = hashlib.sha256(data).hexdigest()
        (folder / f"{name}.json").write_text(json.dumps(state))


FAMILIES = {
    "minari/D4RL/door/human-v2": {
        name: MINARI / name for name in ("main_data.hdf5", "metadata.json")
    },
    "openml/iris@1": {
        "description.json": OPENML / "api/v1/json/data/61",
        "features.json": OPENML / "api/v1/json/data/features/61",
        "dataset.arff": OPENML / "data/v1/download/61/iris.arff",
    },
}


@pytest.mark.parametrize("id", FAMILIES)
def test_a_family_whose_publisher_must_be_asked_is_finished_without_it(
    root: CacheRoot, here: Path, id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(root, id, FAMILIES[id])
    (task,) = plan_preprocess().tasks
    assert (task.id, task.kind, task.state) == (id, "killed conversion", "due")
    assert main(["preprocess", "--workers", "0"]) == 0
    assert list(root.installed()) == [id]
    assert "its publisher's list of files is out of reach" in capsys.readouterr().err


@pytest.mark.parametrize("id", FAMILIES)
def test_an_incomplete_download_is_not_due(root: CacheRoot, here: Path, id: str) -> None:
    put(root, id, FAMILIES[id])
    for path in sorted(root.downloads(id).iterdir()):
        path.rename(path.with_suffix(".away"))
        assert main(["preprocess"]) == 0, path.name
        assert not [*root.installed()]
        path.with_suffix(".away").rename(path)


def test_folders_of_no_dataset_are_passed_over(root: CacheRoot, here: Path) -> None:
    for name in ("d4rl", "nothing/x", "d4rl/not-known", "d4rl/.x", "d4rl/a b"):
        (root.path / "downloads" / name).mkdir(parents=True)
    put(root, "d4rl/hopper-medium", {"hopper_medium-v2.hdf5": DOOR})  # short for another id
    assert main(["preprocess"]) == 0 and not [*root.installed()]


def test_what_was_killed_is_finished_by_the_command_alone(
    root: CacheRoot,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A conversion and a run, each ended by a signal that no handler sees."""
    assert main(["download", "demo/iris", "-q"]) == 0
    (here / "functions_that_die.py").write_text(FUNCTION)
    call = ["preprocess", "demo/iris", "--fn", "functions_that_die:dies_once", "--name", "x"]
    call += ["--per", "transition", "--workers", "0"]
    with Origin() as origin:
        origin.put(f"datasets/offline_rl/maze2d/{FILENAME}", DOOR.read_bytes())
        monkeypatch.delenv("RLDS_OFFLINE")
        mirrors = (f"{url}={origin.url}" for url in ("http://rail.eecs.berkeley.edu/",))
        monkeypatch.setenv("RLDS_MIRRORS", ",".join(mirrors))
        for script, arguments in ((KILLED_CONVERSION, [MAZE]), (KILLED_RUN, call)):
            assert preloaded("-c", script, *arguments).returncode == -signal.SIGKILL
    assert list(root.installed()) == ["demo/iris"]
    assert runs_to(root.dataset("derived/x"))
    monkeypatch.setenv("RLDS_OFFLINE", "1")
    assert preloaded("-c", KILLED_RUN, "preprocess", "--workers", "2").returncode == 0
    assert list(root.installed()) == [MAZE, "demo/iris"], "a run is continued by its own call"
    assert preloaded("-c", KILLED_RUN, *call).returncode == 0
    assert main(["preprocess"]) == 0, "its tables"
    assert list(root.installed()) == [MAZE, "demo/iris", "derived/x"]
    for id in root.installed():
        verify(id, Config(root=root.path))
    assert not runs_to(root.dataset("derived/x")) and [*(root.path / "downloads").iterdir()] == []
    capsys.readouterr()
    assert main(["preprocess"]) == 0
    assert capsys.readouterr().err == "Nothing is due.\n"


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
def call(module: str, here: Path, dest: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
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
