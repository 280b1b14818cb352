"""``rlds.toml``: the steps of a folder, read, and added to as text so that comments stay."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from datasets_cli.errors import UsageError
from datasets_cli.preparation.steps import PreprocessStep, step_of

FILENAME = "rlds.toml"
TABLE = "preprocess"


def read_steps(path: Path) -> list[PreprocessStep] | None:
    """Return the steps in a file, in their order; None where there is no file.

    Raises:
        UsageError: it is not TOML, or has something else than steps.
    """
    try:
        return parse_steps(path.read_text(encoding="utf-8"), path)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read ({error}). Correct it or move it away.") from error


def parse_steps(text: str, path: Path) -> list[PreprocessStep]:
    """Return the steps in a text; ``path`` is named in messages.

    Raises:
        UsageError: as ``read_steps``.
    """
    try:
        tables = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(
            f"{path} is not valid TOML ({error}). Correct it or move it away."
        ) from error
    found = tables.pop(TABLE, [])
    if tables:
        raise UsageError(f"{path} has {', '.join(tables)}; expected tables [[{TABLE}]] alone.")
    if not isinstance(found, list) or not all(isinstance(table, dict) for table in found):
        raise UsageError(
            f"{path} has a {TABLE} that is no list; write [[{TABLE}]] above each step."
        )
    steps = []
    for number, table in enumerate(found, 1):
        try:
            steps.append(step_of(table))
        except UsageError as error:
            raise UsageError(f"Step {number} of {path}: {str(error).rstrip('.')}.") from error
    return steps


def add_step(step: PreprocessStep, path: Path) -> bool:
    """Add a step to the end of a file, which is made if need be; all else in it stays.

    Returns:
        False where the file has the same step already.

    Raises:
        UsageError: it has another step with the same out, or is not such a file.
    """
    for number, known in enumerate(read_steps(path) or (), 1):
        if known == step:
            return False
        if known.out.removeprefix("derived/") == step.out.removeprefix("derived/"):
            raise UsageError(
                f"Step {number} of {path} makes {step.out} otherwise: {as_text(known)}. Edit it "
                f"there, or choose another --out. What was to be saved: {as_text(step)}."
            )
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    gap = "" if not before else "\n" if before.endswith("\n") else "\n\n"
    lines = [
        f"{name} = {json.dumps(value, ensure_ascii=False)}"
        for name, value in step.to_json().items()
    ]
    added = "\n".join([f"{gap}[[{TABLE}]]", *lines, ""])
    if step not in parse_steps(before + added, path):
        raise UsageError(f"{path} cannot be added to. Write the step there yourself:\n  {added}")
    with path.open("a", encoding="utf-8") as file:
        file.write(added)
    return True


def as_text(step: PreprocessStep) -> str:
    """Return a step on one line."""
    return ", ".join(
        f"{name} = {json.dumps(value, ensure_ascii=False)}"
        for name, value in step.to_json().items()
    )
