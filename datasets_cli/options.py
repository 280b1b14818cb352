"""Options: arguments that travel together, declared once, as the fields of a frozen dataclass.

    @dataclass(frozen=True)
    class OpenOptions:          # its docstring has Args
        id: str
        _: KW_ONLY
        text: bool = False

    @takes_fields(OpenOptions)
    def open_rows(options: OpenOptions) -> Rows: ...    # its docstring has no Args

    open_rows("demo/iris", text=True)

`inspect.signature`, `help()` and type checkers see `open_rows(id: str, *, text: bool = False)`; the
docstring gets the Args of the dataclass, and a misspelt keyword is an error that names `open_rows`.
A method, or an `__init__`, is written `(self, options)`; of an `__init__` the class has the Args.

A dataclass whose bases are others, each `kw_only=True`, takes what all of them take, and `part_of`
returns one of them: `part_of(options, PreprocessOptions)`.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

P = ParamSpec("P")
Options = TypeVar("Options")
Owner = TypeVar("Owner")
Result = TypeVar("Result")

_SECTION = re.compile(r"^(?:Attributes|Returns|Yields|Raises):$", re.MULTILINE)
_ARGUMENT = re.compile(r" {4}(\w+): ")


def takes_fields(kind: Callable[P, Options]) -> _Taking[P, Options]:
    """Return a decorator of a function of one dataclass that lets it take the fields instead."""
    return _Taking(kind)


def part_of(options: Any, kind: type[Options]) -> Options:
    """Return the fields of one of the bases of a dataclass, as an object of that base."""
    return kind(**{field.name: getattr(options, field.name) for field in fields(kind)})  # type: ignore[arg-type]


def parameters_of(kind: type) -> list[inspect.Parameter]:
    """Return what a dataclass takes: keywords that are its own before those of its bases."""
    places = {
        name: place
        for place, each in reversed([*enumerate(kind.__mro__)])
        for name in inspect.get_annotations(each)
    }
    parameters = inspect.signature(kind).parameters.values()
    by_place = [each for each in parameters if each.kind is not each.KEYWORD_ONLY]
    keywords = [each for each in parameters if each.kind is each.KEYWORD_ONLY]
    return [*by_place, *sorted(keywords, key=lambda each: places[each.name])]


def argument_docs(kind: type) -> dict[str, str]:
    """Return what the docstrings of a dataclass and its bases say of each field, as lines."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        _, _, section = inspect.cleandoc(each.__doc__ or "").partition("\nArgs:\n")
        name = ""
        for line in section.splitlines():
            if line and not line.startswith(" "):  # the next section
                break
            if argument := _ARGUMENT.match(line):
                name = argument[1]
                found[name] = line
            elif line:
                found[name] += f"\n{line}"
    return found


@dataclass(frozen=True)
class _Taking(Generic[P, Options]):
    """The decorator; its overloads are of a function, and of a method or one more argument."""

    kind: Callable[P, Options]

    @overload
    def __call__(self, body: Callable[[Options], Result]) -> Callable[P, Result]: ...

    @overload
    def __call__(
        self, body: Callable[[Owner, Options], Result]
    ) -> Callable[Concatenate[Owner, P], Result]: ...

    def __call__(self, body: Callable[..., Any]) -> Callable[..., Any]:
        make: Any = self.kind
        own = inspect.signature(body)
        *first, _ = own.parameters.values()
        taken = parameters_of(make)
        signature = own.replace(parameters=[*first, *taken])

        @functools.wraps(body)
        def call(*positional: Any, **named: Any) -> Any:
            owner, rest = positional[: len(first)], positional[len(first) :]
            try:
                options = make(*rest, **named)
            except TypeError:  # of a wrong call, or of a wrong value, or what is first has its name
                owner, options = bound(positional, named)
            return body(*owner, options)

        # `Signature.bind` takes longer than the rest of a call: it words what is wrong.
        def bound(positional: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any]:
            try:
                given = signature.bind(*positional, **named).arguments
            except TypeError as error:
                unknown = [name for name in named if name not in signature.parameters]
                # Python names such a keyword first, and `bind` what is missing.
                reason = f"got an unexpected keyword argument {unknown[0]!r}" if unknown else error
                raise TypeError(f"{_called(body, positional)}() {reason}") from None
            return tuple(given.pop(each.name) for each in first), make(**given)

        call.__signature__ = signature  # type: ignore[attr-defined]
        call.__taken__ = make  # type: ignore[attr-defined]
        call.__annotations__ = {
            **{name: each.annotation for name, each in signature.parameters.items()},
            "return": signature.return_annotation,
        }
        docs = argument_docs(make)
        arguments = [docs[each.name] for each in taken if each.name in docs]
        if body.__name__ == "__init__":
            return _Constructor(call, arguments)  # type: ignore[return-value]
        call.__doc__ = _with_arguments(body.__doc__, arguments)
        return call


@dataclass(frozen=True)
class _Constructor:
    """An ``__init__`` until its class is made, whose docstring then gets the Args."""

    call: Callable[..., Any]
    arguments: list[str]

    def __set_name__(self, owner: type, name: str) -> None:
        owner.__doc__ = _with_arguments(owner.__doc__, self.arguments)
        setattr(owner, name, self.call)


def _called(body: Callable[..., Any], positional: tuple[Any, ...]) -> str:
    """Return what a user called: the class that is made, which may be one derived from ours."""
    if body.__name__ == "__init__" and positional:
        return f"{type(positional[0]).__name__}.__init__"
    return body.__qualname__


def _with_arguments(doc: str | None, arguments: list[str]) -> str | None:
    """Return a docstring with these Args, before what it says of results and errors."""
    if doc is None or not arguments:
        return doc
    text = inspect.cleandoc(doc)
    section = _SECTION.search(text)
    place = len(text) if section is None else section.start()
    before, after = text[:place].rstrip(), text[place:]
    head = "" if "\nArgs:\n" in before else "\n\nArgs:"
    return "\n".join([f"{before}{head}", *arguments, *(["", after] if after else [])])
