"""Functions of users: what each is, by which name it is found, where in it an error came from."""

from __future__ import annotations

import functools
import hashlib
import importlib
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from datasets_cli.errors import UsageError, argument
from datasets_cli.parallel.user_modules import UserModule, imported_by, is_of_user
from datasets_cli.store.content import canonical_json

if TYPE_CHECKING:
    from tensordict import TensorDict

RowFunction = Callable[["TensorDict"], "TensorDict"]
"""Takes a TensorDict ``[n]`` of consecutive rows, a copy, and returns one of as many or fewer."""

_imported: dict[str, str | None] = {}  # the digest of each module that was imported here
FUNCTION_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


Parts = Mapping[str, str]
"""What something is made of, in words, and the digest of each."""


@dataclass(frozen=True)
class FunctionIdentity:
    """What a function or a pipeline is, the same on every machine."""

    # own_digest: of all but the modules of the user's that its file imports.
    # imported: the digests of these modules, as `codes_of` has them.
    # parts: what it is made of besides them, to say what has changed.
    # pipeline: what it is as data, if it is one.

    name: str
    own_digest: str
    imported: Parts = field(default_factory=dict)
    parts: Parts = field(default_factory=dict)
    pipeline: Mapping[str, Any] | None = None

    @property
    def digest(self) -> str:
        """The digest of all; of a function that imports no module of the user's, its own one."""
        if not self.imported:
            return self.own_digest
        return digest_of(["imports", self.own_digest, sorted(self.imported.items())])

    @property
    def all_parts(self) -> dict[str, str]:
        """What it is made of, those modules among it."""
        return {**self.parts, **self.imported}

    @property
    def entry(self) -> dict[str, Any]:
        """What a manifest says of it."""
        data = {"parts": self.all_parts} if self.pipeline is None else {"pipeline": self.pipeline}
        return {"name": self.name, "digest": self.digest, **data}

    def changes(self, made: Mapping[str, Any]) -> list[str]:
        """Return what has changed since a manifest's entry was made, one text for each change."""
        before = made.get("parts")
        # An entry without parts is older than the rule that imported modules count.
        digest = self.digest if before is not None else self.own_digest
        if made.get("digest") == digest:
            return []
        name = made.get("name")
        renamed = [f"the function {name}, now {self.name}"] if name != self.name else []
        changed = [] if before is None else changed_parts(before, self.all_parts)
        return renamed + changed or [f"the function {name}, now {name} after an edit"]


def changed_parts(before: Parts, now: Parts) -> list[str]:
    """Return what differs between two sets of parts, one text for each difference."""
    return [
        *(f"{part} changed" for part in now if part in before and now[part] != before[part]),
        *(f"{part} is new" for part in now if part not in before),
        *(f"{part} is gone" for part in before if part not in now),
    ]


def codes_of(modules: Iterable[UserModule]) -> dict[str, str]:
    """Return the digests of modules as parts; a module without text is known by its place alone."""
    digests = {f"code of {each.place}": each.digest or "" for each in modules}
    return dict(sorted(digests.items()))


def digest_of(description: Any) -> str:
    """Return the digest of JSON values."""
    return hashlib.sha256(canonical_json(description)).hexdigest()


def load_function(text: str, folder: Path | None = None, name: str = "fn") -> RowFunction:
    """Return the function that ``module:function`` names; importing its module runs the module."""
    module_name, function_name = split_function(text, name)
    asked = f"{argument(name)} {text}"
    here = str(folder or Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = _newest(module_name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{asked}: there is no module {error.name} in {here} or the Python path."
        ) from error
    except Exception as error:  # whatever a user's module does
        raise UsageError(
            f"{asked}: {module_name} cannot be imported ({type(error).__name__}: {error}). "
            "Expected a module's name, such as mycode for mycode.py in this folder."
        ) from error
    if not hasattr(module, function_name):
        raise UsageError(f"{asked}: the module {module_name} has no {function_name}.")
    function = getattr(module, function_name)
    if not callable(function):
        kind = type(function).__name__
        raise UsageError(f"{asked}: {function_name} is of type {kind}, not a function.")
    return function  # type: ignore[no-any-return]


def _newest(name: str) -> ModuleType:
    """Import a module; again where its file, or one that it imports, has another text by now."""
    before = {*sys.modules}
    module = importlib.import_module(name)
    digests = _digests_of_loaded(module)
    known = [each for each in digests if each in _imported]
    if any(_imported[each] != digests[each] for each in known):
        for each in known:  # what a module imports comes before it
            importlib.reload(sys.modules[each])
        module = sys.modules[name]
        digests = _digests_of_loaded(module)
    # A module that the program imported itself is not changed.
    ours = [each for each in digests if each in _imported or each not in before]
    _imported.update((each, digests[each]) for each in ours)
    return module


def _digests_of_loaded(module: ModuleType) -> dict[str, str | None]:
    """Return the digest of a module, after those of the user's modules that it has loaded."""
    root = UserModule.of(module)
    modules = [] if root is None else [*imported_by([root]), root]
    return {each.name: each.digest for each in modules if each.name in sys.modules}


def split_function(text: str, name: str = "fn") -> tuple[str, str]:
    """Return module and function of ``module:function``."""
    if not FUNCTION_NAME.fullmatch(text):
        raise UsageError(
            f"{argument(name)} {text!r} is not MODULE:FUNCTION, such as mycode:scale_rewards."
        )
    module, _, function = text.partition(":")
    return module, function


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
    loaded = sys.modules.get(module_name or "")
    text = f"{module_name}:{name}"
    if loaded is None or module_name == "__main__" or not FUNCTION_NAME.fullmatch(text):
        return None
    module = UserModule.of(loaded)
    if module is None or getattr(loaded, str(name), None) is not function:
        return None
    return text, str(module.folder)


def failure_of(error: BaseException) -> str:
    """Return type and message of an exception, and the user's innermost file and line in it."""
    text = f"{type(error).__name__}: {error}"
    for frame, line in reversed([*traceback.walk_tb(error.__traceback__)]):
        file = frame.f_code.co_filename
        if file == "<dynamic-code>":  # cloudpickle tells the file of the globals alone
            file = frame.f_globals.get("__file__", file)
        if is_of_user(file):
            return f"{text} ({file}, line {line}, in {frame.f_code.co_name})"
    return text
