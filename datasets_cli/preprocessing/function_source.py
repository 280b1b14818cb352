"""The digest of a function that is not imported, from the text of its file alone.

Importing a module runs it, and to look what is due must run nothing. Where the text alone does not
tell, as for what is decorated, bound twice or made by a call, the answer is that it is not known.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from types import CodeType

from datasets_cli.preprocessing.function_digest import LIBRARIES, entry_of_code, read_source
from datasets_cli.preprocessing.functions import split_function


def source_entry(text: str, folder: Path) -> dict[str, str] | None:
    """Return what ``function_entry`` gives once the function is imported; None where unknown."""
    module, name = split_function(text)
    path = _file_of(module, folder)
    if path is None:
        return None
    try:
        source = read_source(path)
        tree = ast.parse(source)
        code = compile(tree, path, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError):
        return None
    definition = _only_definition(tree, name)
    codes = [each for each in code.co_consts if isinstance(each, CodeType) and each.co_name == name]
    if definition is None or len(codes) != 1:
        return None
    try:
        defaults = tuple(map(ast.literal_eval, definition.args.defaults)) or None
        pairs = zip(definition.args.kwonlyargs, definition.args.kw_defaults, strict=True)
        keyword_defaults = {
            argument.arg: ast.literal_eval(value) for argument, value in pairs if value is not None
        }
    except (ValueError, TypeError, MemoryError, RecursionError):
        return None
    return entry_of_code(module, codes[0], source, defaults, keyword_defaults or None)


def _file_of(module: str, folder: Path) -> str | None:
    """Return the file that an import would run; what is found in another way is not looked for."""
    first, *rest = module.split(".")
    # Python's own library may be imported already, under the name of a file of the user's.
    if first in sys.stdlib_module_names or first in LIBRARIES:
        return None
    spec = PathFinder.find_spec(first, [str(folder), *sys.path])
    if spec is None:
        return None
    if not rest:
        return spec.origin if Path(spec.origin or "").suffix == ".py" else None
    # Below it by hand: importlib imports each package to ask it where its modules are.
    *packages, last = rest
    for parent in map(Path, spec.submodule_search_locations or ()):
        found = parent.joinpath(*packages, last)
        for path in (found / "__init__.py", found.with_name(f"{last}.py")):
            if path.is_file():
                return str(path)
    return None


def _only_definition(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    """Return the ``def`` at the top of a file that alone gives a name its value, or None."""
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    bindings = [bound for node in ast.walk(tree) for bound in _bound_by(node)]
    is_only = bindings.count(name) == 1 and "*" not in bindings
    return found[0] if len(found) == 1 and is_only and not found[0].decorator_list else None


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
