"""What a function holds and is made of, told from the function itself.

It is made of its name, the text of the file that defines it, the user's modules that this file
imports, and its state: closure, defaults, the arguments of a partial, and what the object of a
callable class holds, to any depth. Where there is no file, as in a notebook, the text is that of
the function alone, and the globals that it names count too; bytecode is used only where there is no
text. Folders, line endings and the order of sets are left out. What Python, numpy, torch and
tensordict define is known by its name, and a module without text by its own.

Its limits: the versions of libraries, and modules that are imported by a name in a variable, are
not in it, so that with equal digests the values can differ where those do. An edit anywhere in a
file, a comment too, gives another digest, so that digests can differ where the values do not. A
path that the function holds counts unchanged, and may differ between machines.
"""

from __future__ import annotations

import builtins
import functools
import hashlib
import inspect
import pickle
import sys
import textwrap
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import torch

from datasets_cli.parallel.functions import (
    FunctionIdentity,
    codes_of,
    digest_of,
    name_of,
)
from datasets_cli.parallel.user_modules import (
    LIBRARIES,
    UserModule,
    imported_by,
    is_of_user,
    is_pythons_own,
    named_in,
)
from datasets_cli.store.content import canonical_json

PLAIN = (str, int, bool, type(None))


def identity_of(function: Callable[..., Any]) -> FunctionIdentity:
    """Return what a function is."""
    describer = Describer()
    own_digest = digest_of(describer.describe(function))
    held = describer.digests_of(_held_by(function))
    files, named = describer.files, describer.named
    imported = {each.file: each for each in imported_by([*files.values(), *named.values()])}
    others = [each for file, each in (named | imported).items() if file not in files]
    parts = codes_of(files.values()) | held
    return FunctionIdentity(name_of(function), own_digest, codes_of(others), parts)


class Describer:
    """Describes values as JSON, each object by the digest of what it consists of."""

    def __init__(self) -> None:
        self.files: dict[Path, UserModule] = {}
        """The modules whose text is part of a description."""
        self.named: dict[Path, UserModule] = {}
        """Those of the user's that are only named there."""
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
            self._digests[number] = digest_of(self._describe_new(value))
            self._path.pop()
            self._kept.append(value)
        return ["digest", self._digests[number]]

    def digests_of(self, values: dict[str, Any]) -> dict[str, str]:
        """Return the digest of each of some values."""
        return {name: digest_of(self.describe(each)) for name, each in values.items()}

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
                self._name([UserModule.of(value)])
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
        if source := self._file_of(function):
            return ["function", name, source, position_of(function.__code__), self.describe(state)]
        code, known = function.__code__, function.__globals__
        state.append({name: known[name] for name in sorted(_names_in(code)) if name in known})
        source = self._own_source(function)
        return ["function", name, source or self._bytecode(code), self.describe(state)]

    def _class(self, kind: type) -> Any:
        name = kind.__qualname__
        if _is_known_by_name(kind):
            return ["class", kind.__module__, name]
        if source := self._file_of(kind) or self._own_source(kind):
            return ["class", name, source]
        methods = [self.describe(item) for item in vars(kind).values() if inspect.isfunction(item)]
        return ["class", name, methods]

    def _file_of(self, thing: Any) -> str | None:
        """Return the digest of the file that defines a function or class, if it has one."""
        module = UserModule.of(sys.modules.get(thing.__module__ or ""))
        digest = None if module is None else module.digest
        if module is not None and digest is not None:
            self.files[module.file] = module
        return digest

    def _own_source(self, thing: Any) -> str | None:
        try:
            source = inspect.getsource(thing)
        except (OSError, TypeError):
            return None
        self._name(named_in(textwrap.dedent(source), Path.cwd()))
        return _sha256(source.encode())

    def _name(self, modules: Iterable[UserModule | None]) -> None:
        for module in modules:
            if module is not None and is_of_user(module.file):
                self.named[module.file] = module

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


def _held_by(function: Any) -> dict[str, Any]:
    """Return what a function holds, by what each is in words."""
    held: dict[str, Any] = {}
    while isinstance(function, functools.partial):
        arguments = dict(enumerate(function.args, 1)) | function.keywords
        held |= {f"argument {name} of the partial": each for name, each in arguments.items()}
        function = function.func
    if isinstance(function, types.MethodType):
        held |= _attributes_of(function.__self__)
        function = function.__func__
    if not isinstance(function, types.FunctionType):
        return {**held, **_attributes_of(function)}
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    held |= {f"variable {name} of the closure": _content(cell) for name, cell in cells}
    return {
        **held,
        **defaults_of(function.__code__, function.__defaults__, function.__kwdefaults__),
    }


def defaults_of(
    code: types.CodeType, defaults: tuple[Any, ...] | None, by_name: dict[str, Any] | None
) -> dict[str, Any]:
    """Return the defaults of a function, by what each is in words."""
    # Defaults are those of the last arguments that are given by position.
    names = code.co_varnames[: code.co_argcount][-len(defaults or ()) :]
    held = dict(zip(names, defaults or (), strict=False)) | (by_name or {})
    return {f"default of {name}": each for name, each in held.items()}


def _attributes_of(value: Any) -> dict[str, Any]:
    """Return what pickling would keep of an object, by what each is in words."""
    if isinstance(value, type | types.ModuleType | types.BuiltinFunctionType):
        return {}
    try:
        state = value.__reduce_ex__(4)[2]
    except Exception:  # anyone's class
        return {}
    kind = type(value).__qualname__
    if not isinstance(state, dict):
        return {f"state of {kind}": state}
    return {f"attribute {name} of {kind}": each for name, each in state.items()}


def _is_known_by_name(thing: Any) -> bool:
    if thing.__module__ == "builtins":  # which what exec defines claims too
        return vars(builtins).get(thing.__qualname__) is thing
    name = str(thing.__module__).partition(".")[0]
    return name in LIBRARIES or (name in sys.stdlib_module_names and is_pythons_own(name))


def _names_in(code: types.CodeType) -> set[str]:
    """Return the names that a function looks up, and those that functions within it do."""
    inner = (item for item in code.co_consts if isinstance(item, types.CodeType))
    return set(code.co_names).union(*map(_names_in, inner))


def position_of(code: types.CodeType) -> list[int]:
    """Return line and column of the first expression: one name may stand for two functions."""
    positions = [
        [line, column]
        for line, _, column, end_column in code.co_positions()
        if line is not None and column is not None and end_column
    ]
    return min(positions, default=[code.co_firstlineno, 0])


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


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
