"""The digest of a function: what it is made of, the same on every machine.

It covers the name of the function, the source text that defines it, and its state: closure,
defaults, the arguments of a partial, and what the object of a callable class holds, to any depth.
The source text is that of the whole file, so that helpers beside the function count. Where there is
no file, as in a notebook, it is that of the function alone, and the globals that it names count
too; bytecode is used only where there is no source. Folders, line endings and the order of sets are
left out. What Python, numpy, torch and tensordict define is known by its name.

Its limits: functions of other files that are called, and the versions of libraries, are not in it,
so that with equal digests the values can differ where those do. An edit anywhere in the file, a
comment too, gives another digest, so that digests can differ where the values do not. A path that
the function holds counts as it is, and may differ between machines.
"""

from __future__ import annotations

import builtins
import functools
import hashlib
import inspect
import pickle
import sys
import sysconfig
import tokenize
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import torch

from datasets_cli.preprocessing.functions import FUNCTION_NAME
from datasets_cli.store.content import canonical_json

PLAIN = (str, int, bool, type(None))
LIBRARIES = frozenset({"numpy", "tensordict", "torch"})


def function_entry(function: Callable[..., Any]) -> dict[str, str]:
    """Return the manifest's entry of a function: its name, and the digest of all it consists of."""
    return {"name": name_of(function), "digest": _digest(_Describer().describe(function))}


def entry_of_code(
    module: str, code: types.CodeType, source: str, defaults: Any, keyword_defaults: Any
) -> dict[str, str]:
    """Return the same entry of a function that is not imported."""
    name, state = code.co_qualname, _Describer().describe([[], defaults, keyword_defaults])
    parts = ["function", name, _sha256(source.encode()), _position(code), state]
    digest = _digest(["digest", _digest(parts)])
    return {"name": f"{module}.{name}", "digest": digest}


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function, or of the class of a callable object, for people."""
    while isinstance(function, functools.partial):
        function = function.func
    named = function if hasattr(function, "__qualname__") else type(function)
    module = getattr(named, "__module__", None)
    prefix = "" if module in (None, "__main__", "builtins") else f"{module}."
    return f"{prefix}{named.__qualname__}"


def where_from(function: object) -> tuple[str, str] | None:
    """Return the name ``module:function`` and the folder that find a function again, or None."""
    module_name, name = getattr(function, "__module__", None), getattr(function, "__name__", None)
    module = sys.modules.get(module_name or "")
    file = getattr(module, "__file__", None)
    text = f"{module_name}:{name}"
    if module_name == "__main__" or file is None or not FUNCTION_NAME.fullmatch(text):
        return None
    if getattr(module, str(name), None) is not function:
        return None
    # The folder of mycode.py for mycode, and the one above pkg/ for pkg.code and for pkg/__init__.
    levels = str(module_name).count(".") + (Path(file).stem == "__init__")
    return text, str(Path(file).absolute().parents[levels])


class _Describer:
    """Describes values as JSON, each object by the digest of what it consists of."""

    def __init__(self) -> None:
        self._digests: dict[int, str] = {}
        self._kept: list[Any] = []  # an object that is gone could leave its id to another one
        self._path: list[int] = []

    def describe(self, value: Any) -> Any:
        """Return JSON values that are equal for equal values."""
        if type(value) in PLAIN:
            return value
        number = id(value)
        if number in self._path:  # a circle: how many levels above this one it is
            return ["level", len(self._path) - self._path.index(number)]
        if number not in self._digests:
            self._path.append(number)
            self._digests[number] = _digest(self._describe_new(value))
            self._path.pop()
            self._kept.append(value)
        return ["digest", self._digests[number]]

    def _describe_new(self, value: Any) -> Any:  # noqa: PLR0911 one line a kind
        match value:
            case float():
                return ["float", float.hex(value)]
            case complex() | range() | slice():
                return [type(value).__name__, repr(value)]
            case bytes() | bytearray():
                return ["bytes", hashlib.sha256(value).hexdigest()]
            case torch.Tensor():
                return self._tensor(value)
            case np.ndarray() if not value.dtype.hasobject:
                data = np.ascontiguousarray(value).tobytes()
                return ["array", value.dtype.str, list(value.shape), _sha256(data)]
            case list() | tuple() | dict() if type(value) in (list, tuple, dict):
                return [type(value).__name__, self._items(value)]
            case set() | frozenset():
                items = [canonical_json(self.describe(item)).decode() for item in value]
                return ["set", sorted(items)]
            case types.ModuleType():
                return ["module", value.__name__]
            case types.FunctionType():
                return self._function(value)
            case types.MethodType():
                return ["method", self.describe(value.__func__), self.describe(value.__self__)]
            case type():
                return self._class(value)
        return self._object(value)

    def _items(self, value: Any) -> Any:
        if isinstance(value, dict):
            return [[self.describe(k), self.describe(v)] for k, v in value.items()]
        return [self.describe(item) for item in value]

    def _tensor(self, tensor: torch.Tensor) -> Any:
        try:
            flat = tensor.detach().cpu().contiguous().view(-1)
            data = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        except RuntimeError:  # sparse, quantised, and so on
            return ["tensor", _pickled(tensor)]
        return ["tensor", str(tensor.dtype), list(tensor.shape), _sha256(data)]

    def _function(self, function: types.FunctionType) -> Any:
        name = function.__qualname__
        if _is_known_by_name(function):
            return ["function", function.__module__, name]
        cells = [_content(cell) for cell in function.__closure__ or ()]
        state = [cells, function.__defaults__, function.__kwdefaults__]
        if source := _file_of(function):
            return ["function", name, source, _position(function.__code__), self.describe(state)]
        code, known = function.__code__, function.__globals__
        state.append({name: known[name] for name in sorted(_names_in(code)) if name in known})
        source = _own_source(function)
        return ["function", name, source or self._bytecode(code), self.describe(state)]

    def _class(self, kind: type) -> Any:
        name = kind.__qualname__
        if _is_known_by_name(kind):
            return ["class", kind.__module__, name]
        if source := _file_of(kind) or _own_source(kind):
            return ["class", name, source]
        methods = [self.describe(item) for item in vars(kind).values() if inspect.isfunction(item)]
        return ["class", name, methods]

    def _bytecode(self, code: types.CodeType) -> Any:
        """Describe what has no source, without the path and the lines that code also has."""
        constants = [
            self._bytecode(item) if isinstance(item, types.CodeType) else self.describe(item)
            for item in code.co_consts
        ]
        return [list(sys.version_info[:2]), _sha256(code.co_code), list(code.co_names), constants]

    def _object(self, value: Any) -> Any:
        """Describe an object by its class and by what pickling would keep of it."""
        try:
            reduced = value.__reduce_ex__(4)
        except Exception:  # anyone's class; cloudpickle knows some that do not reduce
            return ["pickle", type(value).__qualname__, _pickled(value)]
        if isinstance(reduced, str):  # the name of something global
            return ["global", reduced]
        make, arguments, *rest = reduced
        state, items, pairs = (*rest, None, None, None)[:3]
        return [
            "object",
            self.describe(type(value)),
            getattr(make, "__qualname__", None) or self.describe(make),
            self.describe(arguments),
            self.describe(state),
            self.describe(None if items is None else list(items)),
            self.describe(None if pairs is None else list(pairs)),
        ]


def _is_known_by_name(thing: Any) -> bool:
    if thing.__module__ == "builtins":  # which what exec defines claims too
        return vars(builtins).get(thing.__qualname__) is thing
    name = str(thing.__module__).partition(".")[0]
    return name in LIBRARIES or (name in sys.stdlib_module_names and _is_pythons_own(name))


def _is_pythons_own(name: str) -> bool:
    """Return whether a module of Python's library is Python's: a user's file may have its name."""
    path = getattr(sys.modules.get(name), "__file__", None)
    if path is None:
        return True  # built in
    folder = Path(path).resolve()
    homes = {Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "platstdlib")}
    is_installed = {"site-packages", "dist-packages"} & set(folder.parts)
    return not is_installed and not homes.isdisjoint(folder.parents)


def _names_in(code: types.CodeType) -> set[str]:
    """Return the names that a function looks up, and those that functions within it do."""
    inner = (item for item in code.co_consts if isinstance(item, types.CodeType))
    return set(code.co_names).union(*map(_names_in, inner))


def _file_of(thing: Any) -> str | None:
    """Return the sha256 of the text of the file that defines a function or class, or None."""
    path = getattr(sys.modules.get(thing.__module__ or ""), "__file__", None)
    if not path or Path(path).suffix != ".py":
        return None
    try:
        return _sha256(read_source(path).encode())
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None


def read_source(path: str) -> str:
    """Return the text of a Python file, in the encoding that it names, and with plain lines."""
    with tokenize.open(path) as file:
        return file.read()


def _own_source(thing: Any) -> str | None:
    try:
        return _sha256(inspect.getsource(thing).encode())
    except (OSError, TypeError):
        return None


def _position(code: types.CodeType) -> list[int]:
    """Return line and column of the first expression: one name may stand for two functions."""
    found = [
        [line, column]
        for line, _, column, end_column in code.co_positions()
        if line is not None and column is not None and end_column
    ]
    return min(found, default=[code.co_firstlineno, 0])


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a function that names itself before it is defined
        return None


def _pickled(value: Any) -> str:
    try:
        return _sha256(cloudpickle.dumps(value))
    except (pickle.PicklingError, TypeError, AttributeError, RuntimeError):
        return ""


def _digest(description: Any) -> str:
    return _sha256(canonical_json(description))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
