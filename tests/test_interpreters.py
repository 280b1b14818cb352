"""Forks of the server are like started Pythons, or tests that use them show nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.interpreters import preloaded, started

TOLD = """
import multiprocessing, os, sys
main = sys.modules["__main__"]
print(__name__, main.__dict__ is globals(), getattr(main, "__file__", ""))
print(getattr(main.__spec__, "name", None))
print(sys.argv, sys.path[0], os.getcwd(), os.environ["RLDS_HOME"])
print(multiprocessing.get_start_method(), sys.stdin.read(), file=sys.stderr)
"""


@pytest.mark.parametrize("way", ["script", "stdin", "text", "module"])
def test_a_fork_is_told_what_a_started_python_is(way: str, tmp_path: Path) -> None:
    (tmp_path / "told.py").write_text(TOLD)
    first = {"script": ["told.py"], "stdin": ["-"], "text": ["-c", TOLD], "module": ["-m", "told"]}
    arguments, text = [*first[way], "a", "-b"], TOLD if way == "stdin" else "typed"
    right = started(*arguments, folder=tmp_path, text=text)
    found = preloaded(*arguments, folder=tmp_path, text=text)
    assert right.returncode == found.returncode == 0, found.stderr
    assert (found.stdout, found.stderr) == (right.stdout, right.stderr)


@pytest.mark.parametrize(
    "end", ["import sys; sys.exit(3)", "exit('why')", "1 / 0", "import os; os.kill(os.getpid(), 9)"]
)
def test_a_fork_ends_as_a_started_python(end: str) -> None:
    right, found = started("-c", end), preloaded("-c", end)
    assert found.returncode == right.returncode != 0
    assert found.stderr.splitlines()[-1:] == right.stderr.splitlines()[-1:]


def test_a_fork_has_torch_and_nothing_of_ours() -> None:
    names = "{name.partition('.')[0] for name in sys.modules}"
    ours = "{'datasets_cli', 'recipes', 'torchrl', 'minari'}"
    found = preloaded("-c", f"import sys; print('torch' in {names}, {names} & {ours})")
    assert found.stdout == "True set()\n"
