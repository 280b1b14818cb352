"""The blocks of a page of documentation, executed as a reader would.

A page's blocks run in their order, in one namespace, in one empty folder. What stands before a
block, as a comment that people do not see, says otherwise:

    <!-- not run: it needs a SLURM cluster -->     it is left out, for this reason
    <!-- recorded: d4rl, 6a465bd5 -->              ``scripts/recorded-peers`` ran it, and wrote
                                                   below it what it printed
    <!-- file: mycode.py -->                       it is the text of this file in the folder
    <!-- with: d3rlpy -->                          it needs this package, which ``dev`` does not
                                                   install: test_other_libraries.py runs it

``python`` is executed; an exception fails. In ``console``, a line ``$ command`` is run and the
lines below it are what it prints, on stdout and stderr; a line ``...`` is any number of lines. A
command with nothing below it must succeed, and may print what it likes. What differs from machine
to machine and from run to run is masked (``MASKS``), and any run of blanks or ``─`` is one.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets_cli.cli.main import main
from tests.support.paths import PROJECT

FENCE = re.compile(
    r"(?:^<!-- (?P<mark>not run|recorded|file|with): (?P<text>.+?) -->\n+)?"
    r"^(?P<indent> *)```(?P<language>\w+)\n(?P<code>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
RECORDED = re.compile(
    r"\n\nRecorded on \d{4}-\d\d-\d\d with (?P<versions>[^\n]+):\n\n```text\n(?P<output>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
EXECUTED = ("python", "console")
SHELL = re.compile(r"[|<>;&$`*?~]")

STAND_INS = {
    "d4rl/hopper-expert-v2": "d4rl/hopper-medium-v2",
    "atari_dqn/Pong/5": "demo/pong",
    "Pong/5": "demo/pong",
    'f"atari_dqn/Pong/{run}", root=f"/disk{run}/rlds"': '"demo/pong"',
    "minari/D4RL/pointmaze/umaze-v2": "minari/maze/test-v0",
    "openml/iris": "demo/iris",
    # Less of what a page has at full size.
    "num_workers=4": "num_workers=0",
    "1_000_000": "10_000",
    "take(0.1": "take(0.5",  # of two trajectories
    "split(0.9": "split(0.5",
}
"""What a published id, or a size, is replaced by. ``d4rl/hopper-medium-v2``, ``d4rl/door-human-v0``
and ``minari/D4RL/door/human-v2`` are installed, as cuts of the published files, and so is all of
``demo/*``, as it ships with the package."""

MASKS = (
    (r"\b[0-9a-f]{12,64}\b", "DIGEST"),
    (r"\b\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?Z?)?", "DATE"),
    (r"\b[\d,.]+ ?(ms|s|min|h)\b", "TIME"),
    (r"\b[\d,.]+ (B|kB|MB|GB|TB|bytes)(/s)?\b", "SIZE"),
    (r"\b[\d,.]+ [kM]?(?= (batches|rows|steps|transitions) (a|per) second)", "RATE"),
    (r"(~|/\w[\w.-]*)(/[\w.~@-]+)+", "PATH"),
    (r"[ ─]+", " "),
)
"""What is not compared: digests, dates, times, sizes, rates and folders."""


@dataclass(frozen=True)
class Block:
    """One block of a page; ``line`` is that of its first line."""

    page: str
    line: int
    language: str
    code: str
    reason: str = ""  # why it is not run
    recorded: str = ""  # what it printed, where a script ran it
    file: str = ""
    library: str = ""  # the package that it needs


def blocks(page: str, text: str | None = None) -> list[Block]:
    """Return the blocks of a page that are executed, left out or files, in their order."""
    text = (PROJECT / page).read_text(encoding="utf-8") if text is None else text
    found = []
    for match in FENCE.finditer(text):
        mark, marked = match["mark"], match["text"] or ""
        if match["language"] in EXECUTED or mark:
            found.append(
                Block(
                    page,
                    text.count("\n", 0, match.start("code")) + 1,
                    match["language"],
                    re.sub(rf"^{match['indent']}", "", match["code"], flags=re.MULTILINE),
                    reason=marked if mark == "not run" else "",
                    recorded=recorded(text, match) if mark == "recorded" else "",
                    file=marked if mark == "file" else "",
                    library=marked if mark == "with" else "",
                )
            )
    return found


def recorded(text: str, block: re.Match[str]) -> str:
    """Return what stands below a block of a peer; the mark has its package and digest."""
    package, digest = block["text"].split(", ")
    output = RECORDED.match(text, block.end())
    is_present = output and f"{package} " in output["versions"]
    is_of_code = hashlib.sha256(block["code"].encode()).hexdigest()[:8] == digest
    assert output and is_present and is_of_code, f"run scripts/recorded-peers:\n{block['code']}"
    return output["output"]


def pages() -> list[str]:
    every = [PROJECT / "README.md", PROJECT / "SKILL.md", *sorted((PROJECT / "docs").rglob("*.md"))]
    names = [path.relative_to(PROJECT).as_posix() for path in every]
    return [name for name in names if blocks(name)]


@dataclass
class Run:
    """A page that is executed in the current folder."""

    stand_ins: dict[str, str] = field(default_factory=STAND_INS.copy)
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    after: list[dict[str, Any]] = field(default_factory=list)
    """The names after each ``python`` block."""
    output: str = ""
    """What all of them print."""

    def all(self, found: Iterable[Block]) -> None:
        for block in found:
            if block.file:
                Path(block.file).write_text(self._replaced(block.code), encoding="utf-8")
            elif block.reason or block.recorded or block.library:
                continue
            elif block.language == "python":
                self._python(block)
            else:
                self._console(block)

    def _replaced(self, text: str) -> str:
        words = sorted(self.stand_ins, key=len, reverse=True)
        every = "|".join(rf"(?<![\w/-]){re.escape(word)}(?![\w@-])" for word in words)
        return re.sub(every, lambda match: self.stand_ins[match[0]], text)

    def _python(self, block: Block) -> None:
        # Empty lines before it give a traceback the page's lines; no such file has its source.
        code = "\n" * (block.line - 1) + self._replaced(block.code)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, f"<{block.page}>", "exec"), self.names)
        self.output += printed.getvalue()
        self.after.append(dict(self.names))

    def _console(self, block: Block) -> None:
        for command, shown in commands(block.code):
            code, printed = run(self._replaced(command))
            place = f"{block.page}:{block.line}: $ {command}"
            if not shown:
                assert code == 0, f"{place}\nhas exit code {code} and prints\n{printed}"
            else:
                differs = f"{place}\nprints\n{printed}\nand the page has\n{shown}"
                assert alike(printed, self._replaced(shown)), differs


def commands(code: str) -> list[tuple[str, str]]:
    parts = re.split(r"^\$ (.+(?:\\\n.+)*)\n", code, flags=re.MULTILINE)
    assert not parts[0].strip(), "a console block begins with a command"
    return [(command, shown) for command, shown in zip(parts[1::2], parts[2::2], strict=True)]


def alike(printed: str, shown: str) -> bool:
    """Return whether a page shows what was printed, but for what is masked."""
    lines = [masked(line) for line in shown.strip().splitlines()]
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else f"{re.escape(line)}\n" for line in lines)
    return re.fullmatch(pattern, masked(printed.strip()) + "\n") is not None


def masked(text: str) -> str:
    for pattern, mask in MASKS:
        text = re.sub(pattern, mask, text)
    return "\n".join(line.strip() for line in text.splitlines())


def run(command: str) -> tuple[int, str]:
    plain = not SHELL.search(re.sub(r"'[^']*'|\s#.*", "", command))
    words = shlex.split(command, comments=True) if plain else []
    if words[:1] == ["rlds"]:
        output, handlers = io.StringIO(), logging.root.handlers
        logging.root.handlers = []
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                return main(words[1:]), output.getvalue()
        finally:
            logging.root.handlers = handlers
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout
