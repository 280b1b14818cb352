"""The parts of a buffer: checked, and completed with the defaults of their protocol."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from datasets_cli.errors import UsageError
from datasets_cli.replay.batches.reader import SampleInfo
from datasets_cli.replay.samplers.prioritized import PrioritizedSampler
from datasets_cli.replay.samplers.protocol import PrioritySampler, Sampler
from datasets_cli.replay.storages.lists import ListStorage
from datasets_cli.replay.storages.protocol import Storage, WritableStorage
from datasets_cli.replay.writing.writers import Writer
from datasets_cli.schema.columns import show_key
from datasets_cli.store.dataset import Dataset

DEFAULT_SIZE = 1000
"""Rows of the list that a buffer without a storage gets."""


def as_storage(part: Any) -> Storage:
    """Return a storage that has every member."""
    if isinstance(part, _Completed):
        return cast(Storage, part)
    part = _made(part, "storage", "gather")
    if not _has_method(part, "gather") or not hasattr(part, "has"):
        raise _not_a_part(
            "storage", "LazyTensorStorage(1000)", type(part).__name__, WritableStorage
        )
    is_writable = hasattr(part, "write")
    protocol = WritableStorage if is_writable else Storage
    return cast(Storage, _complete(part, protocol, {"is_writable": is_writable}))


def storage_or_list(part: Any) -> Storage:
    """Return a storage that has every member; for None a new list."""
    return as_storage(ListStorage(DEFAULT_SIZE) if part is None else part)


def as_sampler(part: Any) -> Sampler:
    """Return a sampler that has every member."""
    part = _made(part, "sampler", "sample")
    if not callable(getattr(part, "sample", None)):
        raise _not_a_part("sampler", "RandomSampler()", repr(part), Sampler)
    _check_call(part, "sample", "storage", "batch_size", "generator")
    has_priorities = hasattr(part, "update_priority")
    has_slices = getattr(part, "has_slices", hasattr(part, "truncated_key"))
    protocol = PrioritySampler if has_priorities else Sampler
    known = {"has_priorities": has_priorities, "has_slices": has_slices}
    return cast(Sampler, _complete(part, protocol, known))


def _not_a_part(name: str, example: str, found: str, protocol: Any) -> UsageError:
    methods = ", ".join(sorted(protocol.__abstractmethods__))
    return UsageError(
        f"Expected a {name} such as {example}, not {found}.",
        argument=name,
        expected=protocol.__name__,
        found=found,
        advice=f"A {name} of your own derives from {protocol.__name__} and defines {methods}.",
    )


def _check_call(part: Any, method: str, *arguments: str) -> None:
    """Check that a method of a user's part accepts the arguments of the library's calls."""
    try:
        inspect.signature(getattr(part, method)).bind(*arguments)
    except TypeError as error:
        expected = f"{method}(self, {', '.join(arguments)})"
        raise UsageError(
            f"{type(part).__name__}.{method} has other arguments than {expected}: {error}.",
            expected=expected,
            advice=f"Define {expected}.",
        ) from error
    except ValueError:  # a function of C has no signature
        return


def make_room(sampler: Sampler, storage: Storage) -> None:
    """Reserve priorities for all rows of a storage."""
    if isinstance(sampler, PrioritizedSampler):
        sampler.draw.reserve(len(storage))


def warn_of_index(storage: Storage, sample_info: SampleInfo) -> None:
    """Warn if the row numbers of batches hide a dataset's column ``index``."""
    dataset: Dataset | None = getattr(storage, "dataset", None)
    if dataset is None or not (sample_info.index or sample_info.info):
        return
    if hidden := [show_key(key) for key in dataset.keys if key[0] == "index"]:
        warnings.warn(
            f"Batches of this buffer do not have {', '.join(hidden)} of {dataset.id}: their index "
            'is the row numbers. Read the column as replay["index"] or replay[rows], or rename it '
            "with preprocess().",
            stacklevel=4,
        )


def as_writer(part: Any) -> Writer:
    """Return a writer that has every member."""
    part = _made(part, "writer", "write")
    if not _has_method(part, "write"):
        raise _not_a_part("writer", "RoundRobinWriter()", repr(part), Writer)
    _check_call(part, "write", "storage", "data")
    return cast(Writer, _complete(part, Writer, {}))


def given(part: Any) -> Any:
    """Return the user's part: without the members that were added."""
    return part.part if isinstance(part, _Completed) else part


@functools.cache
def members_of(protocol: type) -> frozenset[str]:
    """Return the names of all public members of a protocol, ``__len__`` included."""
    return frozenset(
        name
        for base in protocol.__mro__
        if getattr(base, "_is_protocol", False)
        for name in (*vars(base), *getattr(base, "__annotations__", ()))
        if not name.startswith("_") or name == "__len__"
    )


class _Completed:
    """A user's part, with the defaults of its protocol for the members that it lacks."""

    part: Any
    completed_by: tuple[Any, ...]

    def __repr__(self) -> str:
        return repr(self.part)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:  # its class is made here
        return _complete, (self.part, *self.completed_by)


def _complete(part: Any, protocol: Any, known: dict[str, bool]) -> Any:
    """Return a part that has every member of a protocol; the defaults are added if need be."""
    # The class first: a property of the part may take time.
    kind = type(part)
    members = members_of(protocol)
    lacking = {name for name in members if not (hasattr(kind, name) or hasattr(part, name))}
    if not lacking and all(getattr(part, name) == value for name, value in known.items()):
        return part
    required = protocol.__abstractmethods__
    if missing := [name for name in lacking if name in required or not hasattr(protocol, name)]:
        raise UsageError(
            f"{kind.__name__} lacks members of {protocol.__name__}: {', '.join(sorted(missing))}.",
            expected=protocol.__name__,
            found=kind.__name__,
            advice=f"Derive it from {protocol.__name__}, and define them.",
        )
    own: dict[str, Any] = {name: _forward(name) for name in members - lacking}
    if "__len__" in own:
        own["__len__"] = lambda self: len(self.part)
    completed: Any = type(kind.__name__, (_Completed, protocol), {**own, **known})()
    completed.part, completed.completed_by = part, (protocol, known)
    return completed


def _forward(name: str) -> property:
    def read(completed: _Completed) -> Any:
        return getattr(completed.part, name)

    def write(completed: _Completed, value: Any) -> None:
        setattr(completed.part, name, value)

    return property(read, write)


def _made(part: Any, argument: str, method: str) -> Any:
    """Return a part; a class or a function is called to create it."""
    if not isinstance(part, type) and (not callable(part) or _has_method(part, method)):
        return part
    try:
        inspect.signature(part).bind()
    except (TypeError, ValueError) as error:
        name = getattr(part, "__name__", repr(part))
        raise UsageError(
            f"{name} is called without arguments to create a part, and needs some: {error}.",
            argument=argument,
            found=name,
            advice=f"Pass {name}(...), or functools.partial({name}, ...).",
        ) from error
    return part()


def _has_method(part: Any, name: str) -> bool:
    return callable(getattr(type(part), name, None))


P = ParamSpec("P")
Part = TypeVar("Part")
Buffer = TypeVar("Buffer")
Given = TypeVar("Given")
Function = TypeVar("Function", bound=Callable[..., Any])


def method_of(
    part: str, method: Callable[Concatenate[Part, P], Given]
) -> Callable[Concatenate[Any, P], Given]:
    """Return a method of a buffer that is the method of a part; ``part`` is its attribute."""

    def call(self: Any, /, *positional: P.args, **named: P.kwargs) -> Given:
        return method(getattr(self, part), *positional, **named)

    return as_documented(call, method)


def chained_method_of(
    part: str, method: Callable[Concatenate[Part, P], None]
) -> Callable[Concatenate[Buffer, P], Buffer]:
    """Return a method of a buffer that calls the method of a part, and returns the buffer."""

    def call(self: Buffer, /, *positional: P.args, **named: P.kwargs) -> Buffer:
        method(getattr(self, part), *positional, **named)
        return self

    return as_documented(call, method, returns="Self")


def as_documented(call: Function, method: Any, returns: str | None = None) -> Function:
    """Return a function with the name, the docstring and the signature of a part's method."""
    described: Any = functools.update_wrapper(call, method)
    signature = inspect.signature(method)
    if returns is not None:
        signature = signature.replace(return_annotation=returns)
    described.__signature__ = signature
    described.__annotations__ = {**method.__annotations__, "return": signature.return_annotation}
    described.__taken__ = method  # the one that has the docstring
    return call
