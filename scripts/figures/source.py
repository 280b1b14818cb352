"""How much there is to read: counted by the syntax tree, of the package and the recipes."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets_cli

PROJECT = Path(datasets_cli.__file__).parents[1]
ROOTS = ("datasets_cli", "recipes")
REPLAY_HALF = ("replay", "experience", "torchrl", "trainer", "specs", "environments")
FEWEST_LINES, MOST_LINES = 150, 700
MOST_BODY_LINES = 40
MOST_ARGUMENTS = 12
MOST_DECLARATIONS = 3

Function = ast.FunctionDef | ast.AsyncFunctionDef


def figures() -> dict[str, Any]:
    """Return the figures of the checkout that this Python has installed."""
    files = {path: path.read_text(encoding="utf-8") for path in source_files()}
    trees = {path: ast.parse(text) for path, text in files.items()}
    nodes = [(path, node) for path, tree in trees.items() for node in ast.walk(tree)]
    halves = {"replay": REPLAY_HALF[:1], "the replay half": REPLAY_HALF}
    folders = {path.parent for path in files if path.name != "__init__.py"}
    declared = declarations(trees)
    return {
        **sizes(files),
        **{
            name: sizes({path: text for path, text in files.items() if room(path) in rooms})
            for name, rooms in halves.items()
        },
        "public names": len(datasets_cli.__all__),
        "commands": len(re.findall(r"^    \S+ +\|", command_table(), re.MULTILINE)),
        "lines of tests": sum(text.count("\n") for text in test_texts()),
        "match= in tests": sum(text.count("match=") for text in test_texts()),
        "benchmarks": len([*(PROJECT / "benchmarks").glob("[!_]*.py")]),
        "pages": len([*(PROJECT / "docs").rglob("*.md")]),
        "docstring lines": sum(docstring_lines(node) for _, node in nodes),
        "comment lines": sum(comment_lines(text) for text in files.values()),
        "folders with code, without torchrl": sum("torchrl" not in each.parts for each in folders),
        "files over 700 lines": listed(
            (text.count("\n"), shown(path)) for path, text in files.items()
        )[MOST_LINES],
        "functions with longer bodies": long_functions(nodes),
        "constructors with more arguments": long_constructors(trees),
        "keywords declared more often": {
            name: count for name, count in declared.most_common() if count > MOST_DECLARATIONS
        },
        "def to_json": sum(
            isinstance(node, Function) and node.name == "to_json" for _, node in nodes
        ),
    }


def sizes(files: dict[Path, str]) -> dict[str, Any]:
    """Return how much there is in some files, and the share of imports."""
    nodes = [node for text in files.values() for node in ast.walk(ast.parse(text))]
    statements = sum(isinstance(node, ast.stmt) - (docstring(node) is not None) for node in nodes)
    imports = sum(isinstance(node, ast.Import | ast.ImportFrom) for node in nodes)
    lines = {path: text.count("\n") for path, text in files.items()}
    return {
        "files": len(files),
        "files under 150 lines": sum(each < FEWEST_LINES for each in lines.values()),
        "lines": sum(lines.values()),
        "statements without docstrings": statements,
        "imports among statements": f"{imports / statements:.1%}",
    }


def room(path: Path) -> str:
    """Return the first folder of a module below the package."""
    return path.relative_to(PROJECT).parts[1]


def command_table() -> str:
    return (PROJECT / "datasets_cli/cli/commands.py").read_text(encoding="utf-8")


def test_texts() -> list[str]:
    return [path.read_text(encoding="utf-8") for path in (PROJECT / "tests").rglob("*.py")]


def source_files() -> list[Path]:
    return sorted(path for root in ROOTS for path in (PROJECT / root).rglob("*.py"))


def shown(path: Path) -> str:
    return str(path.relative_to(PROJECT))


class listed(dict[int, list[str]]):  # noqa: N801
    """What is above a number, the largest first."""

    def __init__(self, sizes: Iterator[tuple[int, str]]) -> None:
        self.sizes = sorted(sizes, reverse=True)

    def __missing__(self, most: int) -> list[str]:
        return [f"{name} {size}" for size, name in self.sizes if size > most]


def docstring(node: ast.AST) -> ast.Expr | None:
    body = getattr(node, "body", None)
    is_documented = isinstance(node, ast.Module | ast.ClassDef | Function) and body
    if is_documented and isinstance(first := body[0], ast.Expr):
        is_text = isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
        return first if is_text else None
    return None


def docstring_lines(node: ast.AST) -> int:
    text = docstring(node)
    return 0 if text is None else (text.end_lineno or text.lineno) - text.lineno + 1


def comment_lines(text: str) -> int:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = text.split("\n")
    return sum(
        token.type == tokenize.COMMENT and lines[token.start[0] - 1].lstrip().startswith("#")
        for token in tokens
    )


def body_lines(node: Function) -> int:
    """Return the lines of a body, without signature and docstring."""
    text = docstring(node)
    body = node.body[1:] if text is not None else node.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def long_functions(nodes: list[tuple[Path, ast.AST]]) -> list[str]:
    return listed(
        (body_lines(node), f"{shown(path)}:{node.lineno} {node.name}")
        for path, node in nodes
        if isinstance(node, Function)
    )[MOST_BODY_LINES]


def arguments_of(node: Function) -> list[ast.arg]:
    given = node.args
    return [*given.posonlyargs, *given.args, *given.kwonlyargs]


def long_constructors(trees: dict[Path, ast.Module]) -> list[str]:
    """Return constructors of more than twelve arguments besides self, whose class is not public."""
    public = {name for tree in trees.values() for name in table_of_names(tree)}
    return listed(
        (len(arguments_of(init)) - 1, f"{shown(path)} {kind.name}")
        for path, tree in trees.items()
        for kind in ast.walk(tree)
        if isinstance(kind, ast.ClassDef) and kind.name not in public
        for init in kind.body
        if isinstance(init, Function) and init.name == "__init__"
    )[MOST_ARGUMENTS]


def table_of_names(tree: ast.Module) -> list[str]:
    """Return the keys of ``_LAZY_IMPORTS``, where a module has it."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_LAZY_IMPORTS":
            return list(ast.literal_eval(node.value))
    return []


def declarations(trees: dict[Path, ast.Module]) -> Counter[str]:
    """Count, for each keyword of a public constructor or verb, where it is declared.

    A declaration is a keyword with a default in a signature, or a field with one in a class body.
    """
    public = {name for tree in trees.values() for name in table_of_names(tree)}
    places: dict[str, int] = defaultdict(int)
    keywords: set[str] = set()
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                for name in fields(node):
                    places[name] += 1
                    keywords |= {name} if node.name in public else set()
                for init in node.body:
                    if isinstance(init, Function) and init.name == "__init__":
                        keywords |= {*defaulted(init)} if node.name in public else set()
            if isinstance(node, Function):
                for name in defaulted(node):
                    places[name] += 1
                keywords |= {*defaulted(node)} if node.name in public else set()
    return Counter({name: places[name] for name in keywords})


def fields(node: ast.ClassDef) -> list[str]:
    return [
        each.target.id
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.value
    ]


def defaulted(node: Function) -> list[str]:
    return [
        argument.arg
        for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        if default is not None
    ]
