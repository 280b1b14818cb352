"""``rlds.toml``: its tables and its steps; steps are added as text, so comments stay."""

from __future__ import annotations

import json
import math
import os
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from datasets_cli.config import read_user_text
from datasets_cli.errors import UsageError, arguments_named, as_in_python
from datasets_cli.project.step import PreprocessStep
from datasets_cli.sources.new_files import write_text

FILENAME = "rlds.toml"
STEPS = "preprocess"
DATA = "data"


class StepFile:
    """The steps of the ``rlds.toml`` of a folder.

    Args:
        folder: the folder of the file; the working directory by default.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(folder or "").absolute() / FILENAME

    def read(self) -> list[PreprocessStep] | None:
        """Return the steps, in their order; None without a file.

        Raises:
            UsageError: the file is not TOML, or has other tables than steps and data.
        """
        text = read_user_text(self.path)
        return None if text is None else parse_steps(text, self.path)

    def has(self, step: PreprocessStep) -> bool:
        """Return whether the file has a step.

        Raises:
            UsageError: another step has the same ``name``, or the file is not valid.
        """
        for number, known in enumerate(self.read() or (), 1):
            if known == step:
                return True
            if known.name.removeprefix("derived/") == step.name.removeprefix("derived/"):
                raise UsageError(
                    f"Step {number} of {self.path} has the same name and other settings: "
                    f"{as_text(known)}.",
                    argument="name",
                    path=self.path,
                    expected=as_text(step),
                    found=as_text(known),
                    advice="Edit it there, or choose another name. The new step would be: "
                    f"{as_text(step)}.",
                )
        return False

    def add(self, step: PreprocessStep) -> bool:
        """Append a step to the file, which is created if missing; the rest of it stays.

        Returns:
            False if the file already has the step.

        Raises:
            UsageError: another step has the same ``name``, or the file is not valid.
        """
        if self.has(step):
            return False
        table = "\n".join([f"[[{STEPS}]]", *_lines(step), ""])
        append(self.path, table, lambda text: step in parse_steps(text, self.path))
        return True


def data_file(path: str | os.PathLike[str]) -> Path:
    """Return the path of an ``rlds.toml``, named by its path or its folder."""
    place = Path(path).absolute()
    return place / FILENAME if place.is_dir() else place


def data_tables(path: Path) -> dict[str, Any]:
    """Return the tables ``[data.NAME]`` of a file."""
    text = read_user_text(path)
    if text is None:
        raise UsageError(
            f"{path} does not exist. It declares data, such as "
            f'[{DATA}.train] with dataset = "d4rl/hopper-medium-v2".',
            argument="project",
            path=path,
        )
    tables = parse_tables(text, path).get(DATA, {})
    if not isinstance(tables, dict):
        raise UsageError(
            f"{path} has a {DATA} that is not a table; write [{DATA}.NAME].", path=path, key=DATA
        )
    return tables


def append(path: Path, table: str, is_right: Callable[[str], bool]) -> None:
    """Append a table to a file, which is created if missing; the rest of it stays."""
    before = read_user_text(path) or ""
    gap = "" if not before else "\n" if before.endswith("\n") else "\n\n"
    if not is_right(before + gap + table):
        raise UsageError(
            f"A table cannot be appended to {path}.",
            path=path,
            advice=f"Write this there yourself: {table.strip()}",
        )
    if not path.parent.is_dir():
        raise UsageError(
            f"{path} cannot be created: the folder {path.parent} does not exist.", path=path
        )
    write_text(path, before + gap + table)


def parse_tables(text: str, path: Path) -> dict[str, Any]:
    """Return the tables of a TOML text; ``path`` is for messages."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(
            f"{path} is not valid TOML ({error}).",
            path=path,
            advice="Correct it or move it away.",
        ) from error


def parse_steps(text: str, path: Path) -> list[PreprocessStep]:
    """Return the steps of a text."""
    tables = parse_tables(text, path)
    if unknown := [name for name in tables if name not in (STEPS, DATA)]:
        raise UsageError(
            f"{path} has {', '.join(unknown)}; expected only tables [[{STEPS}]] and [{DATA}.NAME].",
            path=path,
            expected=(STEPS, DATA),
            found=unknown,
        )
    step_tables = tables.get(STEPS, [])
    if not isinstance(step_tables, list) or not all(
        isinstance(table, dict) for table in step_tables
    ):
        raise UsageError(
            f"{path} has a {STEPS} that is not a list; write [[{STEPS}]] above each step.",
            path=path,
            key=STEPS,
        )
    steps = []
    for number, table in enumerate(step_tables, 1):
        with arguments_named(as_in_python):
            try:
                steps.append(PreprocessStep.of(table))
            except UsageError as error:
                error.prepend(f"Step {number} of {path}: ")
                error.path = path
                raise
    return steps


def as_text(step: PreprocessStep) -> str:
    """Return a step on one line."""
    return ", ".join(_lines(step))


def _lines(step: PreprocessStep) -> list[str]:
    return [f"{name} = {toml(value)}" for name, value in step.to_json().items()]


def toml(value: Any) -> str:
    """Return a value as TOML text, on one line."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {toml(each)}' for name, each in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    # JSON writes texts, numbers and booleans like TOML, except infinity.
    return "inf" if value == math.inf else json.dumps(value, ensure_ascii=False)


def toml_name(name: str) -> str:
    """Return the name of a table or a value as TOML text."""
    return name if re.fullmatch(r"[\w-]+", name, re.ASCII) else toml(name)
