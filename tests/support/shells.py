"""Interactive shells in a real pseudo-terminal, whose Tab key completes words of ``rlds``."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shutil
import struct
import sys
import termios
import time
from pathlib import Path

import pytest

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
