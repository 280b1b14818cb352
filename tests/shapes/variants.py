"""A program with some of its import lines changed from torchrl to datasets_cli.torchrl."""

from __future__ import annotations

import ast
import inspect
import traceback
from pathlib import Path
from typing import Any

import torchrl.data

from tests.shapes.parts import Losses, use_quietly

PROGRAMS = Path(__file__).parent / "programs"
FILES = {
    "online": (
        *("cql_online", "crossq", "ddpg", "discrete_cql", "discrete_iql", "discrete_sac"),
        *("dqn", "iql_online", "redq", "sac", "td3", "tqc"),
    ),
    "offline": ("cql_offline", "dt", "iql_offline", "online_dt", "td3_bc"),
    "dreamer": ("dreamer",),
    "gail": ("gail",),
}
"""Which programs, one function each, a file has."""
NAMES = sorted(name for names in FILES.values() for name in names)
VARIANTS = {
    "torchrl": (),
    "data": ("data",),
    "collectors": ("data", "collectors"),
    "specs": ("data", "collectors", "specs"),
}
"""Which import lines are changed; where none are, TorchRL runs, and says what is right."""
Outcome = Losses | str | None
"""What the losses were, or the error that a program ended in, or nothing: no such line."""


def part_of(module: str, name: str) -> str | None:
    """Return the part that a name of a module of torchrl belongs to."""
    if module.startswith("torchrl.collectors"):
        return "collectors"
    if not module.startswith("torchrl.data"):
        return None
    named = getattr(torchrl.data, name, None)
    spec = inspect.isclass(named) and issubclass(named, torchrl.data.TensorSpec)
    return "specs" if spec else "data"


class Swap(ast.NodeTransformer):
    """Changes the import lines of some parts, and notes which parts have one."""

    def __init__(self, parts: tuple[str, ...]) -> None:
        self.parts, self.changed = parts, set[str]()

    def visit_ImportFrom(self, node: ast.ImportFrom) -> list[ast.ImportFrom]:
        lines = []
        for alias in node.names:
            module = node.module or ""
            part = part_of(module, alias.name)
            if part in self.parts:
                self.changed.add(part)
                module = f"datasets_cli.{module}"
            line = ast.ImportFrom(module=module, names=[alias], level=node.level)
            lines.append(ast.copy_location(line, node))
        return lines


def run(name: str, variant: str) -> Outcome:
    """Run a program whose import lines are changed."""
    (file,) = (file for file, names in FILES.items() if name in names)
    path, swap = PROGRAMS / f"{file}.py", Swap(VARIANTS[variant])
    tree = swap.visit(ast.parse(path.read_text(encoding="utf-8")))
    if variant not in swap.changed and variant != "torchrl":
        return None
    namespace: dict[str, Any] = {"__name__": f"{name}_{variant}"}
    try:
        exec(compile(ast.fix_missing_locations(tree), str(path), "exec"), namespace)
        return use_quietly(namespace[name])
    except Exception as error:
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"


def run_all(name: str) -> dict[str, Outcome]:
    """Run each variant of a program, one after the other."""
    return {variant: run(name, variant) for variant in VARIANTS}
