"""A command that runs in a real pseudo-terminal of a given width, and what it printed there."""

from __future__ import annotations

import fcntl
import json
import os
import re
import struct
import termios
from dataclasses import dataclass

from tests.support.interpreters import fork

_SCRIPT = (
    "import json, sys; from datasets_cli.cli.main import main;"
    "sys.exit(max([main(command) for command in json.loads(sys.argv[1])]))"
)
_CODES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass(frozen=True)
class Screen:
    raw: str
    code: int | None

    @property
    def lines(self) -> list[str]:
        """Every line that was ever drawn, without codes; a line that was drawn again is another."""
        return [_CODES.sub("", line) for line in re.split(r"[\r\n]+", self.raw)]

    @property
    def left(self) -> list[str]:
        rows: list[str] = [""]
        at = 0
        for part in re.split(r"(\r|\n|\x1b\[[0-9;]*[A-Za-z])", self.raw):
            if part == "\n":
                at += 1
                rows += [""] * (at + 1 - len(rows))
            elif part and part != "\r" and not _CODES.fullmatch(part):
                rows[at] = part + rows[at][len(part) :]
        return [row.rstrip() for row in rows if row.strip()]


def in_terminal(
    *commands: list[str], columns: int, answer: str = "", program: str = _SCRIPT, **environment: str
) -> Screen:
    descriptor, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    values = {**os.environ, "TERM": "xterm", **environment}
    values.pop("COLUMNS", None)
    process = fork("-c", program, json.dumps(commands), streams=[terminal] * 3, environment=values)
    os.close(terminal)
    if answer:
        os.write(descriptor, answer.encode())
    raw = b""
    try:
        while data := os.read(descriptor, 1 << 16):
            raw += data
    except OSError:  # the child has closed its side
        pass
    os.close(descriptor)
    process.join()
    return Screen(raw.decode(), process.exitcode)
