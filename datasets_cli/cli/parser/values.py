"""Values typed for parameters, without pydantic where nothing has to be converted.

Typer gives every value to pydantic, also text that stays text and options that are not given, and
to import pydantic takes as long as the rest of ``rlds list``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

_WHOLE = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True)
class LazyConversion:
    """The conversion of one parameter's values: typer's own, made when the first is due."""

    annotation: Any  # as the command declares it, without its `| None`
    has_bounds: bool  # such as ``min=0``, which typer's own checks
    make: Callable[[], Any]  # imports pydantic

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the converted value of an option, or its default."""
        is_list = get_origin(self.annotation) is list
        if value is None:
            return () if is_list else None
        is_choice = get_origin(self.annotation) is Literal and value in get_args(self.annotation)
        is_completed = ctx is not None and ctx.resilient_parsing  # where no command is called
        if is_completed or is_choice or type(value) is self.annotation:
            return value
        if self.annotation is int and not self.has_bounds and _WHOLE.fullmatch(str(value)):
            return int(value)
        if is_list and isinstance(value, list | tuple):
            (item_type,) = get_args(self.annotation)
            if all(type(item) is item_type for item in value):
                return [*value]
        return self.make().coerce(value, param=param, ctx=ctx)


def convert_lazily(parameters: list[Any]) -> list[Any]:
    """Return the parameters of a command; they import pydantic only for a conversion."""
    # Parameters are changed in place, unless this version of typer has no pydantic.
    for parameter in parameters:
        # A command is asked for its parameters several times.
        if hasattr(parameter, "get_runtime_param") and "get_runtime_param" not in vars(parameter):
            declared = parameter.type_descriptor
            has_bounds = (declared.parameter_info.min, declared.parameter_info.max) != (None, None)
            conversion = LazyConversion(
                declared.annotation, has_bounds, parameter.get_runtime_param
            )
            parameter.get_runtime_param = lambda conversion=conversion: conversion
    return parameters
