"""The Tab key in bash, zsh and fish: what it offers, quickly and without a word of error."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from datasets_cli.catalogue.entries import families
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from tests.conftest import DOOR
from tests.support.interpreters import preloaded

START = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "--interactive"],
}
SHOW = {
    "bash": 'eval "$(rlds --show-completion)"',
    "zsh": 'autoload -Uz compinit; compinit -u -D; eval "$(rlds --show-completion)"',
    "fish": "rlds --show-completion | source",
}
# One process answers for all lines, as each line's own would.
COMPLETE_EACH = """
import contextlib, json, os, sys
from datasets_cli.cli.main import run
for told in json.load(sys.stdin):
    os.environ.update(told)
    with contextlib.suppress(SystemExit):
        run()
    print(end="\\0", flush=True)
"""
SECONDS = 60


def environment(home: Path) -> dict[str, str]:
    folder = home / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    command = folder / "rlds"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m datasets_cli "$@"\n')
    command.chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    return {
        **os.environ,
        **{"HOME": str(home), "PATH": path, "TERM": "xterm"},
        **{"XDG_CONFIG_HOME": str(home / ".config"), "ENV": "", "BASH_ENV": ""},
    }


def offered(shell: str, home: Path, *lines: str, **variables: str) -> list[list[str]]:
    """Return for each line what the script of a shell is told by the variables that it sets."""
    told = [
        {
            "bash": {"COMP_WORDS": words, "COMP_CWORD": str(len(re.split(r"\s+", words)) - 1)},
            "zsh": {"_TYPER_COMPLETE_ARGS": words},
            "fish": {"_TYPER_COMPLETE_ARGS": words, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
        }[shell]
        for words in lines
    ]
    with pytest.MonkeyPatch.context() as patch:
        asked = {"_RLDS_COMPLETE": f"complete_{shell}"}
        for name, value in {**environment(home), **asked, **variables}.items():
            patch.setenv(name, value)
        done = preloaded("-c", COMPLETE_EACH, text=json.dumps(told))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    *answers, rest = done.stdout.split("\0")
    assert len(answers) == len(lines) and not rest
    if shell == "zsh":
        return [re.findall(r'"([^"]*)"(?::"[^"]*")?', answer) for answer in answers]
    return [[each.partition("\t")[0] for each in a.splitlines() if each] for a in answers]


def line_after_tab(shell: str, typed: str, home: Path, prepare: str = "") -> list[str]:
    """Return the words of a command line after the Tab key, in a shell with a terminal."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(home)
        os.execve(str(shutil.which(shell)), START[shell], environment(home))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
    try:
        _type(terminal, f"{prepare or SHOW[shell]}\rprintf 'rea%s' dy\r", "ready")
        # Ctrl-A goes to the beginning of the line, whose words are then printed.
        text = _type(terminal, f"{typed}\t\x01printf '<%s>' \r", "<rlds>")
    finally:
        os.close(terminal)
        os.waitpid(process, 0)
    (words,) = re.findall(r"(?:<[^<>]*>)+", text[text.index("<rlds>") :])[:1]
    return words.strip("<>").split("><")


def _type(terminal: int, keys: str, awaited: str) -> str:
    """Type keys, and return what the terminal shows up to a text and what comes with it."""
    os.write(terminal, keys.encode())
    shown, end = "", time.monotonic() + SECONDS
    while awaited not in shown:
        assert time.monotonic() < end, shown
        if select.select([terminal], [], [], 0.1)[0]:
            shown += os.read(terminal, 1 << 16).decode(errors="replace")
    time.sleep(0.2)
    if select.select([terminal], [], [], 0)[0]:
        shown += os.read(terminal, 1 << 16).decode(errors="replace")
    return shown


SHELLS = [
    pytest.param(
        shell, marks=pytest.mark.skipif(not shutil.which(shell), reason=f"{shell} is not here")
    )
    for shell in START
]
INSTALLED_SCRIPT = {
    "bash": "rlds --install-completion; source ~/.bashrc",
    "zsh": "rlds --install-completion; source ~/.zshrc",
    "fish": "rlds --install-completion; source ~/.config/fish/completions/rlds.fish",
}


@pytest.fixture
def home(tmp_path: Path, config: Config) -> Path:
    """A home with ``rlds`` in its path, and a root with four datasets."""
    for id in (DOOR, "derived/scaled", "recorded/cartpole", "openml/61"):
        folder = config.root / "datasets" / id
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text("{}")
    environment(tmp_path)
    return tmp_path


OFFERED = {
    "rlds in": ["info"],
    "rlds download d4rl/hopper-medium-v": [f"d4rl/hopper-medium-v{n}" for n in (0, 1, 2)],
    "rlds download hopper-medium-v": [f"hopper-medium-v{n}" for n in (0, 1, 2)],
    "rlds info demo/ir": ["demo/iris"],
    "rlds info derived/": ["derived/scaled"],
    "rlds download d": ["d4rl/", "demo/", "derived/"],
    "rlds convert ": [DOOR, "derived/scaled", "openml/61", "recorded/cartpole"],
    "rlds delete derived/scaled rec": ["recorded/cartpole"],
    "rlds path door-": ["door-human-v0"],
    "rlds preprocess der": ["derived/scaled"],
    "rlds preprocess x --name ": ["scaled"],
    "rlds record CartPole-v1 --name ca": ["cartpole"],
    "rlds list --family ": sorted(families()),
    "rlds download x --layout ": ["ted", "compact"],
    "rlds convert x --layout c": ["compact"],
    "rlds download x --engine d": ["dask"],
    "rlds import x --from p": ["parquet"],
    "rlds list --installe": ["--installed"],
    "rlds conf": ["config"],
    "rlds recipe show d4": ["d4rl"],
    "rlds diff derived/scaled rec": ["recorded/cartpole"],
    "rlds data add x --dataset derived/": ["derived/scaled"],
    "rlds list --off": ["--offline"],
    "rlds --json verify open": ["openml/61"],
    "rlds list --root /nowhere recorded/": [],
    "rlds --root /nowhere list recorded/": [],
    "rlds nosuch d": [],
    "rlds list --version d": ["d4rl/", "demo/", "derived/"],
}


# The shells differ in how they ask, and not in what they are told.
@pytest.mark.parametrize("shell", START)
def test_the_words_that_may_follow_are_offered(shell: str, home: Path) -> None:
    assert dict(zip(OFFERED, offered(shell, home, *OFFERED), strict=True)) == OFFERED


@pytest.mark.parametrize(
    ("name", "value"),
    [("RLDS_OFFLINE", "maybe"), ("RLDS_RECIPES", "/nowhere"), ("RLDS_HOME", "/dev/null")],
)
def test_nothing_is_said_where_nothing_can_be_offered(name: str, value: str, home: Path) -> None:
    assert offered("bash", home, "rlds download d4rl/x", **{name: value}) == [[]]


def test_a_broken_recipe_stays_silent(home: Path) -> None:
    (home / "recipes").mkdir()
    (home / "recipes" / "broken.py").write_text("1 / 0")
    variables = {"RLDS_RECIPES": str(home / "recipes")}
    lines = ["rlds download hopper-medium-v2", "rlds download broken/"]
    assert offered("bash", home, *lines, **variables) == [["hopper-medium-v2"], []]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_tab_key_completes_in_a_terminal(shell: str, home: Path) -> None:
    assert line_after_tab(shell, "rlds convert recorded/", home) == [
        *("rlds", "convert", "recorded/cartpole")
    ]
    assert line_after_tab(shell, "rlds downl", home) == ["rlds", "download"]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_that_was_installed_completes(shell: str, home: Path) -> None:
    (home / ".bashrc").touch()
    # In zsh the first Tab of a session loads the script that typer installs.
    keys = "rlds info demo/ir\t" if shell == "zsh" else "rlds info demo/ir"
    line = line_after_tab(shell, keys, home, prepare=INSTALLED_SCRIPT[shell])
    assert line == ["rlds", "info", "demo/iris"]


def test_completion_imports_nothing_heavy(home: Path) -> None:
    heavy = {"torch", "tensordict", "numpy", "pandas", "requests", "rich", "pydantic"}
    heavy |= {"h5py", "tqdm"}
    lines = ("rlds download d4rl/hopper-", "rlds ", "rlds preprocess x --")
    text = json.dumps([{"_TYPER_COMPLETE_ARGS": line} for line in lines])
    found = f"[name for name in {heavy} if sys.modules.get(name)]"
    report = f"print('HEAVY', {found}, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", f"{COMPLETE_EACH}\n{report}"], input=text, text=True,
        env={**environment(home), "_RLDS_COMPLETE": "complete_zsh"},
        capture_output=True, check=True,
    )  # fmt: skip
    assert done.stderr == "HEAVY []\n" and all(done.stdout.split("\0")[:3])


def test_only_the_command_that_is_asked_for_is_built() -> None:
    script = (
        "import sys; from datasets_cli.cli import main; code = main.main(['list', '-q']);"
        "print([name for name in sys.modules if name.endswith(('.preprocess', '.download'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_shell_that_is_not_known_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("tcsh", "/bin/tcsh"))
    assert main(["--show-completion"]) == 1
    assert main(["--install-completion"]) == 1
