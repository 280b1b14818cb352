"""The parts that a user gives a buffer: checked, and completed by their protocol's defaults."""

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
    part = _made(part, "gather")
    if not _has_method(part, "gather") or not hasattr(part, "has"):
        raise UsageError(
            f"A storage is expected, such as LazyTensorStorage(1000), not {type(part).__name__}. "
            f"{_to_write(WritableStorage)}"
        )
    is_writable = hasattr(part, "write")
    protocol = WritableStorage if is_writable else Storage
    return cast(Storage, _complete(part, protocol, {"is_writable": is_writable}))


def storage_or_list(part: Any) -> Storage:
    """Return a storage that has every member: the one that is given, or a new list."""
    return as_storage(ListStorage(DEFAULT_SIZE) if part is None else part)


def as_sampler(part: Any) -> Sampler:
    """Return a sampler that has every member."""
    part = _made(part, "sample")
    if not callable(getattr(part, "sample", None)):
        raise UsageError(
            f"A sampler is expected, such as RandomSampler(), not {part!r}. {_to_write(Sampler)}"
        )
    _check_call(part, "sample", "storage", "batch_size", "generator")
    has_priorities = hasattr(part, "update_priority")
    has_slices = getattr(part, "has_slices", hasattr(part, "truncated_key"))
    protocol = PrioritySampler if has_priorities else Sampler
    known = {"has_priorities": has_priorities, "has_slices": has_slices}
    return cast(Sampler, _complete(part, protocol, known))


def _to_write(protocol: Any) -> str:
    """Return what a user's own part, perhaps one written for TorchRL, must have."""
    return (
        f"One of your own derives from {protocol.__name__}, and writes "
        f"{', '.join(sorted(protocol.__abstractmethods__))}."
    )


def _check_call(part: Any, method: str, *arguments: str) -> None:
    """Check that a method of a user's part takes what it will be given."""
    try:
        inspect.signature(getattr(part, method)).bind(*arguments)
    except TypeError as error:
        raise UsageError(
            f"{type(part).__name__}.{method} does not take what it is given: {error}. Write "
            f"{method}(self, {', '.join(arguments)})."
        ) from error
    except ValueError:  # a function of C tells nothing
        return


def make_room(sampler: Sampler, storage: Storage) -> None:
    """Let a sampler have priorities for all rows of a storage."""
    if isinstance(sampler, PrioritizedSampler):
        sampler.draw.reserve(len(storage))


def warn_of_index(storage: Storage, sample_info: SampleInfo) -> None:
    """Warn where batches have the rows' numbers in place of what a dataset has under ``index``."""
    dataset: Dataset | None = getattr(storage, "dataset", None)
    if dataset is None or not (sample_info.index or sample_info.marks):
        return
    if hidden := [show_key(key) for key in dataset.keys if key[0] == "index"]:
        warnings.warn(
            f"{dataset.id} has {', '.join(hidden)}, which the batches of this buffer do "
            "not carry: index is the rows' numbers there. Read it as "
            'replay["index"] or replay[rows], or rename it with preprocess().',
            stacklevel=4,
        )


def as_writer(part: Any) -> Writer:
    """Return a writer that has every member."""
    part = _made(part, "write")
    if not _has_method(part, "write"):
        raise UsageError(
            f"A writer is expected, such as RoundRobinWriter(), not {part!r}. {_to_write(Writer)}"
        )
    _check_call(part, "write", "storage", "data")
    return cast(Writer, _complete(part, Writer, {}))


def given(part: Any) -> Any:
    """Return what the user gave: the part itself, or the one that was completed."""
    return part.part if isinstance(part, _Completed) else part


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
    """A user's part with the members that it lacks, which are the defaults of its protocol."""

    part: Any
    completed_by: tuple[Any, ...]

    def __repr__(self) -> str:
        return repr(self.part)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:  # its class is made here
        return _complete, (self.part, *self.completed_by)


def _complete(part: Any, protocol: Any, known: dict[str, bool]) -> Any:
    """Return a part if it has every member of a protocol, and else with what it lacks added."""
    lacking = {name for name in members_of(protocol) if not hasattr(part, name)}
    if not lacking and all(getattr(part, name) == value for name, value in known.items()):
        return part
    required = protocol.__abstractmethods__
    if missing := [name for name in lacking if name in required or not hasattr(protocol, name)]:
        raise UsageError(
            f"{type(part).__name__} does not have {', '.join(sorted(missing))}, which a "
            f"{protocol.__name__} has. Derive from {protocol.__name__}, and add these."
        )
    own: dict[str, Any] = {name: _forward(name) for name in members_of(protocol) - lacking}
    if "__len__" in own:
        own["__len__"] = lambda self: len(self.part)
    completed: Any = type(type(part).__name__, (_Completed, protocol), {**own, **known})()
    completed.part, completed.completed_by = part, (protocol, known)
    return completed


def _forward(name: str) -> property:
    def read(completed: _Completed) -> Any:
        return getattr(completed.part, name)

    def write(completed: _Completed, value: Any) -> None:
        setattr(completed.part, name, value)

    return property(read, write)


def _made(part: Any, method: str) -> Any:
    """Return a part that is given as such, or as a class or a function that makes it."""
    if not isinstance(part, type) and (not callable(part) or _has_method(part, method)):
        return part
    try:
        inspect.signature(part).bind()
    except (TypeError, ValueError) as error:
        name = getattr(part, "__name__", repr(part))
        raise UsageError(
            f"{name} is called to make a part of the buffer, and needs arguments: {error}. Give "
            f"what it makes, such as {name}(...), or functools.partial({name}, ...)."
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
