"""Functions travel by value: a script without a guard, stdin and a notebook can use workers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from datasets_cli import ExperienceReplay, open_storage
from tests.support.interpreters import Done, Python

# The example of TorchRL's page on Minari, for a dataset of another family.
SCRIPT = """
from tempfile import TemporaryDirectory
from datasets_cli import CatTensors, Compose, ExperienceReplay, ReplayBuffer

print("the script begins")
data = ExperienceReplay("d4rl/door-human-v0", download=False, batch_size=32)
cat_tensors = CatTensors(in_keys=["observation", "action"], out_key="obs")
cat_next_tensors = CatTensors(
    in_keys=[("next", "observation"), ("next", "reward")], out_key=("next", "obs")
)
t = Compose(cat_tensors, cat_next_tensors)

def func(td):
    td = td.select(
        "action", "episode", ("next", "done"), ("next", "observation"), ("next", "reward"),
        ("next", "terminated"), ("next", "truncated"), "observation",
    )
    td = t(td)
    return td

with TemporaryDirectory() as tmpdir:
    new_storage = data.preprocess(
        func, num_workers=2, pbar=True, mp_start_method="fork", dest=tmpdir, chunksize=500
    )
    rb = ReplayBuffer(storage=new_storage)
    print(rb[:]["obs"].shape)
"""

NOTEBOOK = """
import sys
exec(sys.stdin.read(), {"__name__": "__main__"})
"""


def test_the_example_runs_as_it_stands(door: str, tmp_path: Path, python: Python) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    assert_one_beginning(python(str(script), folder=tmp_path))


@pytest.mark.parametrize("arguments", [["-"], ["-c", NOTEBOOK]], ids=["stdin", "notebook"])
def test_the_example_runs_without_a_file(
    door: str, tmp_path: Path, arguments: list[str], python: Python
) -> None:
    text = SCRIPT.replace("num_workers=2", "num_workers=1")
    assert_one_beginning(python(*arguments, folder=tmp_path, text=text))


def assert_one_beginning(done: Done) -> None:
    assert done.returncode == 0, done.stderr
    # The script ran once, and not again in each worker.
    assert done.stdout.split("\n")[0] == "the script begins"
    assert done.stdout.count("begins") == 1
    assert "torch.Size([1495, 67])" in done.stdout


@pytest.mark.parametrize("chunksize", [600, 0])
def test_a_module_that_no_worker_can_import_travels_too(
    door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunksize: int
) -> None:
    (tmp_path / "gone_from_the_path.py").write_text(
        "FACTOR = 3\ndef triple(batch):\n    batch['action'] *= FACTOR\n    return batch\n"
    )
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        import gone_from_the_path
    replay = ExperienceReplay(door, download=False)
    out = tmp_path / "out"
    replay.preprocess(gone_from_the_path.triple, dest=out, num_workers=1, chunksize=chunksize)
    assert torch.equal(open_storage(out).column(("action",)), replay["action"] * 3)


OWN_EXECUTOR = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from datasets_cli import ExperienceReplay
replay = ExperienceReplay("d4rl/door-human-v0", download=False)
pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
replay.preprocess(lambda batch: batch, dest="out", executor=pool)
"""


def test_an_executor_of_a_script_without_a_guard_ends_and_says_so(
    door: str, tmp_path: Path, python: Python
) -> None:
    """Its workers import the script and come upon the same call, whose lock the script holds."""
    script = tmp_path / "script.py"
    script.write_text(OWN_EXECUTOR)
    run = python(str(script), folder=tmp_path)
    assert run.returncode == 1 and not (tmp_path / "out").exists()
    assert "reached the same call" in run.stderr
    # The last error: Python may end with words about its own executor, which is gone by then.
    errors = [line for line in run.stderr.splitlines() if line.startswith("datasets_cli.errors.")]
    assert errors[-1].startswith("datasets_cli.errors.RldsError: A worker"), run.stderr
