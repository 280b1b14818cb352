"""Users' functions: what identifies one, how it is loaded by name, and where in it an error arose.

A function is the text of its files and the values that it holds. Its files are the one that defines
it and the user's modules that this one imports, to any depth. Its values are its closure, its
defaults, the arguments of a partial and the attributes of a callable object. The manifest of a
result lists the digest of each.

A plan of ``rlds.toml`` imports nothing. It compares the files alone, so a default that is read from
the environment while the module is imported goes unnoticed there; the run itself compares both.
"""

from __future__ import annotations

import builtins
import functools
import hashlib
import importlib
import inspect
import pickle
import re
import sys
import textwrap
import traceback
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets_cli.errors import UsageError, argument
from datasets_cli.parallel.user_code import (
    LIBRARIES,
    UserModule,
    file_of,
    imported_by,
    is_of_user,
    is_pythons_own,
    named_in,
)
from datasets_cli.store.content import canonical_json

if TYPE_CHECKING:
    import torch
    from tensordict import TensorDict

RowFunction = Callable[["TensorDict"], "TensorDict"]
"""Takes a TensorDict ``[n]`` of consecutive rows, a copy, and returns one of as many or fewer."""

FUNCTION_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
FILE, DEFAULT = "code of ", "default of "
"""How the names of files and of defaults begin among the parts of a function."""

Parts = Mapping[str, str]
"""The files and values of a function by their names in messages, each with its digest."""

_imported: dict[str, str | None] = {}  # the digest of each module that was imported here


@dataclass(frozen=True)
class FunctionIdentity:
    """The identity of a function or a pipeline, equal on every machine."""

    # pipeline: the values of a pipeline as JSON; empty for functions.

    name: str
    digest: str
    parts: Parts = field(default_factory=dict)
    pipeline: Mapping[str, Any] | None = None

    @property
    def entry(self) -> dict[str, Any]:
        """The entry of a manifest."""
        data = {"parts": self.parts} if self.pipeline is None else {"pipeline": self.pipeline}
        return {"name": self.name, "digest": self.digest, **data}

    def changes(self, made: Mapping[str, Any]) -> list[str]:
        """Return the changes since a manifest's entry was written, one text for each."""
        if made.get("digest") == self.digest:
            return []
        name = made.get("name")
        renamed = [f"the function {name}, now {self.name}"] if name != self.name else []
        changed = changed_parts(made.get("parts", {}), self.parts)
        return renamed + changed or [f"the function {name}, now {name} after an edit"]


def identity_of(function: Callable[..., Any]) -> FunctionIdentity:
    """Return the identity of a function."""
    describer = _Describer()
    own_digest = digest_of(describer.describe(function))
    values = {
        name: digest_of(describer.describe(each)) for name, each in _values_of(function).items()
    }
    files, named = describer.files, [*describer.named.values()]
    modules = [*named, *imported_by([*files.values(), *named])]
    codes = codes_of(each for each in modules if each.file not in files)
    digest = digest_of(["imports", own_digest, sorted(codes.items())]) if codes else own_digest
    parts = {**codes_of(files.values()), **values, **codes}
    return FunctionIdentity(name_of(function), digest, parts)


def codes_by_name(text: str, folder: Path) -> dict[str, str]:
    """Return the digests of the files of ``module:function``; empty if the module is not a user's.

    The module is found as an import from ``folder`` would find it, and not imported.
    """
    name, _ = split_function(text)
    # Python's own library may be imported already, under the name of a file of the user's.
    if name.partition(".")[0] in sys.stdlib_module_names | LIBRARIES:
        return {}
    if (file := file_of(name, folder)) is None:
        return {}
    module = UserModule(name, Path(file).absolute())
    return codes_of([module, *imported_by([module])])


def changes_by_name(text: str, folder: Path, made: Mapping[str, Any]) -> list[str] | None:
    """Return the changed files of ``module:function``; None if only an import detects changes."""
    codes, parts = codes_by_name(text, folder), made.get("parts", {})
    changed = changed_parts({part: parts[part] for part in parts if part in codes}, codes)
    is_plain = all(part.startswith((FILE, DEFAULT)) for part in parts)
    is_same = bool(codes) and is_plain and made.get("name") == text.replace(":", ".")
    return changed if changed or is_same else None


def changed_parts(before: Parts, now: Parts) -> list[str]:
    """Return the differences of two sets of parts, one text for each."""
    return [
        *(f"{part} changed" for part in now if part in before and now[part] != before[part]),
        *(f"{part} is new" for part in now if part not in before),
        *(f"{part} is gone" for part in before if part not in now),
    ]


def codes_of(modules: Iterable[UserModule]) -> dict[str, str]:
    """Return the digests of modules as parts; a module without text is identified by its path."""
    digests = {f"{FILE}{each.place}": each.digest or "" for each in modules}
    return dict(sorted(digests.items()))


def digest_of(description: Any) -> str:
    """Return the digest of JSON values."""
    return hashlib.sha256(canonical_json(description)).hexdigest()


def load_function(text: str, folder: Path | None = None, name: str = "fn") -> RowFunction:
    """Import and return the function ``module:function``; the module may be in ``folder``."""
    module_name, function_name = split_function(text, name)
    given = f"{argument(name)} {text}"
    here = str(folder or Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = _newest(module_name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{given}: the module {error.name} is neither in {here} nor on the Python path.",
            argument=name,
            found=text,
        ) from error
    except Exception as error:  # a user's module may raise anything
        raise UsageError(
            f"{given}: {module_name} cannot be imported ({type(error).__name__}: {error}).",
            argument=name,
            found=text,
            advice="Expected the name of a module, such as mycode for mycode.py in this folder.",
        ) from error
    function = getattr(module, function_name, None)
    if callable(function):
        return function  # type: ignore[no-any-return]
    problem = f"the module {module_name} has no {function_name}"
    if hasattr(module, function_name):
        problem = f"{function_name} is of type {type(function).__name__}, not a function"
    raise UsageError(f"{given}: {problem}.", argument=name, found=text)


def _newest(name: str) -> types.ModuleType:
    """Import a module, again if its file or one that it imports was edited since."""
    before = {*sys.modules}
    module = importlib.import_module(name)
    digests = _digests_of_loaded(module)
    known = [each for each in digests if each in _imported]
    if any(_imported[each] != digests[each] for each in known):
        for each in known:  # imported modules precede the modules that import them
            importlib.reload(sys.modules[each])
        module = sys.modules[name]
        digests = _digests_of_loaded(module)
    # A module that the program imported itself is not changed.
    ours = [each for each in digests if each in _imported or each not in before]
    _imported.update((each, digests[each]) for each in ours)
    return module


def _digests_of_loaded(module: types.ModuleType) -> dict[str, str | None]:
    """Return the digests of a module and the user's modules that it has loaded, itself last."""
    root = UserModule.of(module)
    modules = [] if root is None else [*imported_by([root]), root]
    return {each.name: each.digest for each in modules if each.name in sys.modules}


def split_function(text: str, name: str = "fn") -> tuple[str, str]:
    """Return module and function of ``module:function``."""
    if not FUNCTION_NAME.fullmatch(text):
        raise UsageError(
            f"{argument(name)} {text!r} is not MODULE:FUNCTION, such as mycode:scale_rewards.",
            argument=name,
            found=text,
        )
    module, _, function = text.partition(":")
    return module, function


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function, or of the class of a callable object, for messages."""
    while isinstance(function, functools.partial):
        function = function.func
    named = function if hasattr(function, "__qualname__") else type(function)
    module = getattr(named, "__module__", None)
    prefix = "" if module in (None, "__main__", "builtins") else f"{module}."
    return f"{prefix}{named.__qualname__}"


def failure_of(error: BaseException) -> str:
    """Return type and message of an exception, with the innermost line of the user's code."""
    text = f"{type(error).__name__}: {error}"
    for frame, line in reversed([*traceback.walk_tb(error.__traceback__)]):
        file = frame.f_code.co_filename
        if file == "<dynamic-code>":  # cloudpickle keeps the file of the globals alone
            file = frame.f_globals.get("__file__", file)
        if is_of_user(file):
            return f"{text} ({file}, line {line}, in {frame.f_code.co_name})"
    return text


class _Describer:
    """Converts values to JSON that is equal for equal values; an object becomes a digest.

    Folders, line endings and the order of sets are left out. Where there is no file, as in a
    notebook, a function is its own text and the globals that it names; without any text, its
    bytecode. Python, numpy, torch and tensordict are known by the names of their objects.

    Versions of libraries, and modules that are imported by a computed name, are not part of it. An
    edit anywhere in a file, of a comment too, gives another digest.
    """

    def __init__(self) -> None:
        self.files: dict[Path, UserModule] = {}  # whose text is part of a description
        self.named: dict[Path, UserModule] = {}  # the user's modules that it only names
        self._digests: dict[int, str] = {}
        self._kept: list[Any] = []  # a deleted object could pass its id to a new one
        self._path: list[int] = []

    def describe(self, value: Any) -> Any:
        """Return the JSON form of a value."""
        if type(value) in (str, int, bool, type(None)):
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

    def _describe_new(self, value: Any) -> Any:  # noqa: PLR0911 one line a kind
        # Imported late: `rlds preprocess --help` needs this module, and neither of these.
        import numpy as np
        import torch

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
        import torch

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
            return ["function", name, source, _position_of(function.__code__), self.describe(state)]
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
        """Describe code that has no source, without its path and lines."""
        constants = [
            self._bytecode(item) if isinstance(item, types.CodeType) else self.describe(item)
            for item in code.co_consts
        ]
        return [list(sys.version_info[:2]), _sha256(code.co_code), list(code.co_names), constants]

    def _object(self, value: Any) -> Any:
        """Describe an object by its class and its pickled state."""
        try:
            reduced = value.__reduce_ex__(4)
        except Exception:  # anyone's class; cloudpickle knows some that do not reduce
            return ["pickle", type(value).__qualname__, _pickled(value)]
        if isinstance(reduced, str):  # the name of a global
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


def _values_of(function: Any) -> dict[str, Any]:
    """Return the values that a function holds, by their names in messages."""
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
    code, defaults = function.__code__, function.__defaults__ or ()
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    held |= {f"variable {name} of the closure": _content(cell) for name, cell in cells}
    # Defaults belong to the last positional arguments.
    names = code.co_varnames[: code.co_argcount][-len(defaults) :]
    named = dict(zip(names, defaults, strict=False)) | (function.__kwdefaults__ or {})
    return held | {f"{DEFAULT}{name}": each for name, each in named.items()}


def _attributes_of(value: Any) -> dict[str, Any]:
    """Return the attributes that pickling keeps of an object, by their names in messages."""
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
    """Return the names that a function and its inner functions look up."""
    inner = (item for item in code.co_consts if isinstance(item, types.CodeType))
    return set(code.co_names).union(*map(_names_in, inner))


def _position_of(code: types.CodeType) -> list[int]:
    """Return line and column of the first expression, as two functions may share a name."""
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
    import cloudpickle

    try:
        return _sha256(cloudpickle.dumps(value))
    except (pickle.PicklingError, TypeError, AttributeError, RuntimeError):
        return ""


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
