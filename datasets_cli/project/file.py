"""``rlds.toml``: its tables, its steps, and steps added as text so that comments stay."""

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
    """The steps of a folder.

    Args:
        folder: that has the file, or will have it; the working directory where None.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(folder or "").absolute() / FILENAME

    def read(self) -> list[PreprocessStep] | None:
        """Return the steps, in their order; None where there is no file.

        Raises:
            UsageError: it is not TOML, or has something else than steps.
        """
        text = read_user_text(self.path)
        return None if text is None else parse_steps(text, self.path)

    def has(self, step: PreprocessStep) -> bool:
        """Return whether a step is in the file.

        Raises:
            UsageError: another step has the same ``out``, or the file is not such a file.
        """
        for number, known in enumerate(self.read() or (), 1):
            if known == step:
                return True
            if known.out.removeprefix("derived/") == step.out.removeprefix("derived/"):
                raise UsageError(
                    f"Step {number} of {self.path} makes {step.out} otherwise: {as_text(known)}. "
                    f"Edit it there, or choose another out. To be saved is: {as_text(step)}."
                )
        return False

    def add(self, step: PreprocessStep) -> bool:
        """Add a step to the end of the file, which is made if need be; all else in it stays.

        Returns:
            False where the file has the same step already.

        Raises:
            UsageError: another step has the same ``out``, or the file is not such a file.
        """
        if self.has(step):
            return False
        table = "\n".join([f"[[{STEPS}]]", *_lines(step), ""])
        append(self.path, table, lambda text: step in parse_steps(text, self.path))
        return True


def data_file(path: str | os.PathLike[str]) -> Path:
    """Return the path of an ``rlds.toml`` that a user names by itself or by its folder."""
    place = Path(path).absolute()
    return place / FILENAME if place.is_dir() else place


def data_tables(path: Path) -> dict[str, Any]:
    """Return the tables ``[data.NAME]`` of a file, which must be there."""
    text = read_user_text(path)
    if text is None:
        raise UsageError(
            f"There is no {path}. Data are declared there, such as "
            f'[{DATA}.train] with dataset = "d4rl/hopper-medium-v2".'
        )
    tables = parse_tables(text, path).get(DATA, {})
    if not isinstance(tables, dict):
        raise UsageError(f"{path} has a {DATA} that is not a table; write [{DATA}.NAME].")
    return tables


def append(path: Path, table: str, is_right: Callable[[str], bool]) -> None:
    """Add a table to the end of a file, which is made if need be; all else in it stays."""
    before = read_user_text(path) or ""
    gap = "" if not before else "\n" if before.endswith("\n") else "\n\n"
    if not is_right(before + gap + table):
        raise UsageError(f"{path} cannot be added to. Write this there yourself: {table.strip()}")
    if not path.parent.is_dir():
        raise UsageError(f"{path} cannot be made: there is no folder {path.parent}.")
    write_text(path, before + gap + table)


def parse_tables(text: str, path: Path) -> dict[str, Any]:
    """Return the tables of a text; ``path`` is named in messages."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(
            f"{path} is not valid TOML ({error}). Correct it or move it away."
        ) from error


def parse_steps(text: str, path: Path) -> list[PreprocessStep]:
    """Return the steps of a text."""
    tables = parse_tables(text, path)
    if unknown := [name for name in tables if name not in (STEPS, DATA)]:
        raise UsageError(
            f"{path} has {', '.join(unknown)}; expected tables [[{STEPS}]] and [{DATA}.NAME] alone."
        )
    step_tables = tables.get(STEPS, [])
    if not isinstance(step_tables, list) or not all(
        isinstance(table, dict) for table in step_tables
    ):
        raise UsageError(
            f"{path} has a {STEPS} that is not a list; write [[{STEPS}]] above each step."
        )
    steps = []
    for number, table in enumerate(step_tables, 1):
        try:
            with arguments_named(as_in_python):
                steps.append(PreprocessStep.of(table))
        except UsageError as error:
            raise UsageError(f"Step {number} of {path}: {str(error).rstrip('.')}.") from error
    return steps


def as_text(step: PreprocessStep) -> str:
    """Return a step on one line."""
    return ", ".join(_lines(step))


def _lines(step: PreprocessStep) -> list[str]:
    return [f"{name} = {toml(value)}" for name, value in step.to_json().items()]


def toml(value: Any) -> str:
    """Return a value as TOML has it, on one line."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {toml(each)}' for name, each in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    # JSON writes texts, numbers and truth as TOML does, but for infinity.
    return "inf" if value == math.inf else json.dumps(value, ensure_ascii=False)


def toml_name(name: str) -> str:
    """Return a name of a table or a value as TOML has it."""
    return name if re.fullmatch(r"[\w-]+", name, re.ASCII) else toml(name)
