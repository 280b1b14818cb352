"""Types and checks of arguments: whole numbers, generators and seeds, keys, reductions."""

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

from datasets_cli.errors import UsageError, WrongSize, wrong_value
from datasets_cli.schema.columns import Key

Rows = Any
"""Rows: a TensorDict, a tensor, tensors in tuples and dicts, or a list of objects."""

StateDict = dict[str, Any]
"""A state of ``state_dict``: numbers, texts, tensors, and dicts of them."""

Index = str | tuple[Any, ...] | int | slice | EllipsisType | Sequence[int] | torch.Tensor
"""An index of a buffer: a key, rows, or rows of each dimension."""

Numbers = torch.Tensor | ArrayLike
"""One or more numbers: a tensor, an array of numpy or jax, or nested lists."""

REDUCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "max": lambda several: several.amax(1),
    "min": lambda several: several.amin(1),
    "mean": lambda several: several.mean(1),
    "median": lambda several: several.median(1).values,
}
"""Functions by name that reduce numbers ``[n, k]`` to ``[n]``."""


def whole_number(name: str, value: SupportsIndex, least: int | None = None) -> int:
    """Return a whole number as an int."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except (TypeError, ValueError):
        number = None
    if number is None or (least is not None and number < least):
        limit = "" if least is None else f" from {least} on"
        raise wrong_value(name, f"a whole number{limit}", value)
    return number


def chosen_size(batch_size: int | None, default: int | None) -> int:
    """Return the size of a batch as an int, or that of the buffer by default."""
    size = default if batch_size is None else batch_size
    if size is None:
        raise WrongSize(
            "A batch needs a size.",
            argument="batch_size",
            advice="Call sample(batch_size), or pass batch_size= to the buffer.",
        )
    return whole_number("batch_size", size, 1)


def checked_fraction(name: str, value: float) -> float:
    """Return a number from 0 to 1."""
    try:
        is_fraction = not isinstance(value, str | bool) and 0 <= float(value) <= 1
    except (TypeError, ValueError, RuntimeError):  # the last of tensors
        is_fraction = False
    if not is_fraction:
        raise wrong_value(name, "a number from 0 to 1", value)
    return float(value)


def as_tensor(numbers: Numbers) -> torch.Tensor:
    """Return numbers as a tensor, which shares the memory of a writable array."""
    if isinstance(numbers, torch.Tensor):
        return numbers
    try:
        if isinstance(numbers, np.ndarray):
            return torch.as_tensor(numbers if numbers.flags.writeable else numbers.copy())
        if hasattr(numbers, "__dlpack__"):
            tensor: torch.Tensor = from_dlpack(numbers)
            return tensor
        return torch.as_tensor(numbers)
    except (TypeError, ValueError, RuntimeError) as error:
        kind = getattr(numbers, "dtype", type(numbers).__name__)
        raise UsageError(
            f"Expected numbers, as a tensor, an array or a list; found {kind} "
            f"{reprlib.repr(numbers)}: {error}",
            expected="numbers",
            found=numbers,
        ) from error


def choose_generator(generator: torch.Generator | None, seed: int | None) -> torch.Generator:
    """Return the generator, a new generator with the seed, or torch's global generator."""
    if generator is not None and seed is not None:
        raise UsageError("Give a generator or a seed, not both.", argument="seed", found=seed)
    if not isinstance(generator, torch.Generator | None):
        raise wrong_value(
            "generator", "a torch.Generator", generator, "For reproducible draws, give a seed."
        )
    return generator or seeded(seed)


def pickled_generator(generator: torch.Generator) -> StateDict | None:
    """Return a generator as plain values, or None for torch's global generator."""
    # The state, 5 KiB, follows from the seed until the first draw, and is then left out.
    if generator is torch.default_generator:
        return None
    seed, state = generator.initial_seed(), generator.get_state()
    fresh = torch.Generator(generator.device).manual_seed(seed).get_state()
    has_begun = not torch.equal(state, fresh)
    # An array is pickled by value. Of a tensor, a spawned process gets shared memory, which is gone
    # by then.
    kept = state.numpy() if has_begun else None
    return {"device": str(generator.device), "seed": seed, "state": kept}


def unpickled_generator(pickled: StateDict | None) -> torch.Generator:
    """Return a generator in the pickled state; see ``pickled_generator``."""
    if pickled is None:
        return torch.default_generator
    generator = torch.Generator(pickled["device"]).manual_seed(pickled["seed"])
    if pickled["state"] is not None:
        generator.set_state(torch.as_tensor(pickled["state"]))
    return generator


def seeded(seed: int | None) -> torch.Generator:
    """Return a new generator with the seed, or torch's global generator if it is None."""
    if seed is None:
        return torch.default_generator
    number = whole_number("seed", seed, 0)
    if number >= 2**64:
        raise wrong_value("seed", "64 bits at most", number)
    return torch.Generator().manual_seed(number)


NestedKey = str | tuple[str, ...]
NestedKeys = NestedKey | Sequence[NestedKey]
"""One key or a list of keys. A tuple of names is one nested key."""


def key_of(name: NestedKey) -> Key:
    """Return one key as a tuple of names."""
    if isinstance(name, str):
        return (name,)
    if not isinstance(name, Sequence):
        raise UsageError(
            f"A key is a name, or names such as ('next', 'reward'), not {reprlib.repr(name)}.",
            expected="a name or names",
            found=name,
        )
    return tuple(name)


def optional_key(name: NestedKey | None) -> Key | None:
    """Return one key as a tuple of names, or None."""
    return None if name is None else key_of(name)


def nested_key(key: Key) -> NestedKey:
    """Return a key as users write it: a str, or a tuple of several names."""
    return key[0] if len(key) == 1 else key


def keys_of(names: NestedKeys) -> list[Key]:
    """Return one or more keys as tuples of names."""
    if isinstance(names, str) or (isinstance(names, tuple) and _is_one_key(names)):
        return [key_of(names)]
    return [key_of(name) for name in names]


def _is_one_key(names: Sequence[NestedKey]) -> bool:
    return all(isinstance(name, str) for name in names)
