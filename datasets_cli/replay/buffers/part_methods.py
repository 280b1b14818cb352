"""Methods of a buffer that are those of one of its parts: what they take and do is said there.

    class ReplayBuffer:
        dumps = method_of("persistence", Persistence.dumps)

`inspect.signature`, `help()` and type checkers see the part's method as one of the buffer.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

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
