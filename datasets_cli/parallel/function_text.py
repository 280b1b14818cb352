"""The digest of a function that is not imported, from the text of its file alone.

Importing a module runs it, and to look what is due must run nothing. Where the text alone does not
tell, as for what is decorated, bound twice or made by a call, the answer is that it is not known.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

from datasets_cli.parallel.function_state import Describer, defaults_of, position_of
from datasets_cli.parallel.functions import FunctionIdentity, codes_of, digest_of, split_function
from datasets_cli.parallel.user_modules import LIBRARIES, UserModule, file_of, imported_by


def identity_by_text(text: str, folder: Path) -> FunctionIdentity | None:
    """Return what a function is once it is imported; None where the text does not tell."""
    _, name = split_function(text)
    module = _module_of(text, folder)
    source = None if module is None else module.text
    if module is None or source is None:
        return None
    try:
        tree = ast.parse(source)
        code = compile(tree, module.file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return None
    definition = _only_definition(tree, name)
    codes = [each for each in code.co_consts if isinstance(each, CodeType) and each.co_name == name]
    if definition is None or len(codes) != 1:
        return None
    try:
        defaults = tuple(map(ast.literal_eval, definition.args.defaults)) or None
        pairs = zip(definition.args.kwonlyargs, definition.args.kw_defaults, strict=True)
        by_name = {
            argument.arg: ast.literal_eval(value) for argument, value in pairs if value is not None
        }
    except (ValueError, TypeError, MemoryError, RecursionError):
        return None
    return _identity_of(module, codes[0], defaults, by_name or None)


def _identity_of(
    module: UserModule, code: CodeType, defaults: Any, by_name: Any
) -> FunctionIdentity:
    describer, name = Describer(), code.co_qualname
    state = describer.describe([[], defaults, by_name])
    parts = ["function", name, module.digest, position_of(code), state]
    held = describer.digests_of(defaults_of(code, defaults, by_name))
    return FunctionIdentity(
        f"{module.name}.{name}",
        digest_of(["digest", digest_of(parts)]),
        codes_of(imported_by([module])),
        codes_of([module]) | held,
    )


def codes_by_text(text: str, folder: Path) -> dict[str, str]:
    """Return the digests of the files that a function is surely made of, whatever else it is."""
    module = _module_of(text, folder)
    return {} if module is None else codes_of([module, *imported_by([module])])


def _module_of(text: str, folder: Path) -> UserModule | None:
    """Return the module of a function, if an import would surely run a file of the user's."""
    name, _ = split_function(text)
    # Python's own library may be imported already, under the name of a file of the user's.
    if name.partition(".")[0] in sys.stdlib_module_names | LIBRARIES:
        return None
    file = file_of(name, folder)
    return None if file is None else UserModule(name, Path(file).absolute())


def _only_definition(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    """Return the ``def`` at the top of a file that alone gives a name its value, or None."""
    definitions = [
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    bindings = [bound for node in ast.walk(tree) for bound in _bound_by(node)]
    is_only = bindings.count(name) == 1 and "*" not in bindings
    return (
        definitions[0]
        if len(definitions) == 1 and is_only and not definitions[0].decorator_list
        else None
    )


def _bound_by(node: ast.AST) -> Iterator[str]:
    """Yield the names that a piece of code gives a value, wherever it stands."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
        case ast.Name(ctx=ast.Store() | ast.Del()):
            yield node.id
        case ast.alias():
            yield node.asname or node.name.partition(".")[0]
        case ast.Global() | ast.Nonlocal():
            yield from node.names
        case ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar():
            yield node.name or ""
        case ast.MatchMapping():
            yield node.rest or ""
