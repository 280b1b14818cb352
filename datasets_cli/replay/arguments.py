"""Arguments as users write them: whole numbers, generators and seeds, reductions."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Callable, Sequence
from types import EllipsisType
from typing import Any, SupportsIndex

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch.utils.dlpack import from_dlpack

from datasets_cli.errors import UsageError, argument
from datasets_cli.schema.columns import Key

Rows = Any
"""Rows of any form: a TensorDict, a tensor, tensors in tuples and dicts, or a list of objects."""

StateDict = dict[str, Any]
"""What ``state_dict`` returns: numbers, texts, tensors, and dicts of them."""

Index = str | tuple[Any, ...] | int | slice | EllipsisType | Sequence[int] | torch.Tensor
"""What indexes a buffer: a key, rows, or rows of each dimension."""

Numbers = torch.Tensor | ArrayLike
"""A number or several, as a tensor, an array of numpy or jax, or nested lists."""

REDUCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "max": lambda several: several.amax(1),
    "min": lambda several: several.amin(1),
    "mean": lambda several: several.mean(1),
    "median": lambda several: several.median(1).values,
}
"""By name: functions that make one number a row ``[n]`` of several a row ``[n, k]``."""


def whole_number(name: str, value: SupportsIndex, least: int | None = None) -> int:
    """Return a whole number as an int."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except (TypeError, ValueError):
        number = None
    if number is None or (least is not None and number < least):
        limit = "" if least is None else f" from {least} on"
        found = number if number is not None else f"{type(value).__name__} {reprlib.repr(value)}"
        raise UsageError(f"{name} must be a whole number{limit}, not {found}.")
    return number


def as_tensor(numbers: Numbers) -> torch.Tensor:
    """Return numbers as a tensor, which has the memory of an array that can be written."""
    if isinstance(numbers, torch.Tensor):
        return numbers
    try:
        if isinstance(numbers, np.ndarray):
            return torch.as_tensor(numbers if numbers.flags.writeable else numbers.copy())
        if hasattr(numbers, "__dlpack__"):
            found: torch.Tensor = from_dlpack(numbers)
            return found
        return torch.as_tensor(numbers)
    except (TypeError, ValueError, RuntimeError) as error:
        kind = getattr(numbers, "dtype", type(numbers).__name__)
        raise UsageError(
            f"Expected numbers, as a tensor, an array or a list; {kind} {reprlib.repr(numbers)} "
            f"is none: {error}"
        ) from error


def choose_generator(generator: torch.Generator | None, seed: int | None) -> torch.Generator:
    """Return the generator that was given, a new one with a seed, or torch's global one."""
    if generator is not None and seed is not None:
        raise UsageError("Give a generator or a seed, not both.")
    if not isinstance(generator, torch.Generator | None):
        raise UsageError(
            f"generator must be a torch.Generator, not {reprlib.repr(generator)}. For draws that "
            "repeat, give a seed."
        )
    return generator or seeded(seed)


def pickled_generator(generator: torch.Generator) -> StateDict | None:
    """Return what a copy of a generator is made of; None for torch's global one."""
    # The state is 5 KiB; it is left out where the seed gives it, because nothing was drawn yet.
    if generator is torch.default_generator:
        return None
    seed, state = generator.initial_seed(), generator.get_state()
    fresh = torch.Generator(generator.device).manual_seed(seed).get_state()
    has_begun = not torch.equal(state, fresh)
    return {"device": str(generator.device), "seed": seed, "state": state if has_begun else None}


def unpickled_generator(pickled: StateDict | None) -> torch.Generator:
    """Return a generator that continues as the one pickled would; see ``pickled_generator``."""
    if pickled is None:
        return torch.default_generator
    generator = torch.Generator(pickled["device"]).manual_seed(pickled["seed"])
    if pickled["state"] is not None:
        generator.set_state(pickled["state"])
    return generator


def seeded(seed: int | None) -> torch.Generator:
    """Return a new generator, or torch's global one where the seed is None."""
    if seed is None:
        return torch.default_generator
    number = whole_number("seed", seed, 0)
    if number >= 2**64:
        raise UsageError(f"{argument('seed')} must have at most 64 bits, not {number}.")
    return torch.Generator().manual_seed(number)


NestedKey = str | tuple[str, ...]
NestedKeys = NestedKey | Sequence[NestedKey]
"""One key or several. A tuple of names is one nested key; several are in a list."""


def key_of(name: NestedKey) -> Key:
    """Return one key as a tuple of names."""
    if isinstance(name, str):
        return (name,)
    if not isinstance(name, Sequence):
        raise UsageError(
            f"A key is a name, or names such as ('next', 'reward'), not {reprlib.repr(name)}."
        )
    return tuple(name)


def optional_key(name: NestedKey | None) -> Key | None:
    """Return one key as a tuple of names, or None."""
    return None if name is None else key_of(name)


def keys_of(names: NestedKeys) -> list[Key]:
    """Return one key or several as tuples of names."""
    if isinstance(names, str) or (isinstance(names, tuple) and _is_one(names)):
        return [key_of(names)]
    return [key_of(name) for name in names]


def _is_one(names: Sequence[NestedKey]) -> bool:
    return all(isinstance(name, str) for name in names)
