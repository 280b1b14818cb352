"""What all specs have."""

from __future__ import annotations

import sys
from abc import ABC, ABCMeta, abstractmethod
from collections.abc import Callable, Iterable
from copy import copy
from functools import reduce
from itertools import accumulate
from operator import mul
from textwrap import indent
from typing import Any, Self, SupportsIndex

import numpy as np
import torch

from datasets_cli.errors import OutOfRange, UsageError

ShapeLike = SupportsIndex | Iterable[SupportsIndex]
"""One size, or the size of each dimension."""

SCALAR = torch.Size(())

Change = Callable[[torch.Tensor], torch.Tensor]
"""Changes the first dimensions of a tensor; those that follow them stay as they are."""


def shape_of(shape: ShapeLike | None) -> torch.Size:
    """Return a shape; that of a single value where None."""
    if shape is None:
        return SCALAR
    try:
        sizes: Any = tuple(shape) if isinstance(shape, Iterable) else (shape,)
        known = torch.Size(sizes)
    except (TypeError, ValueError) as error:
        raise UsageError(f"A shape must be whole numbers, not {shape!r}.") from error
    if any(size < 0 for size in known):
        raise UsageError(f"Sizes of a shape must be 0 or more, not {tuple(known)}.")
    return known


def written_sizes(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """Return the sizes of ``expand(2, 3)`` or ``expand((2, 3))``; -1 is kept."""
    is_sequence = len(sizes) == 1 and isinstance(sizes[0], Iterable)
    return tuple(sizes[0] if is_sequence else sizes)


def dimension(number: int, ndim: int) -> int:
    """Return the number of a dimension, counted from the first."""
    if not -ndim <= number < ndim:
        raise OutOfRange(f"There is no dimension {number} among {ndim}.")
    return number % ndim


def ends_with(shape: torch.Size, end: torch.Size) -> bool:
    """Return whether a shape is another one, or that one after other dimensions."""
    return len(shape) >= len(end) and shape[len(shape) - len(end) :] == end


def after_change(shape: torch.Size, change: Change) -> torch.Size:
    """Return what a change makes of a shape."""
    return change(_no_memory(shape)).shape


def keeps_last(shape: torch.Size, change: Change) -> torch.Size:
    """Return what a change makes of a shape whose last dimension must not change."""
    places = torch.arange(shape[-1])
    changed = change(places.expand(shape))
    if changed.shape[-1:] != places.shape or not torch.equal(changed, places.expand_as(changed)):
        raise UsageError(
            f"The last dimension of {tuple(shape)} is one value and cannot be changed or indexed; "
            "what comes before it can."
        )
    return changed.shape


def indexing(index: Any, ndim: int) -> Change:
    """Return the change that an index makes to tensors whose first ``ndim`` dimensions it is of."""
    items = index if isinstance(index, tuple) else (index,)
    ellipses = [place for place, item in enumerate(items) if item is Ellipsis]
    if ellipses:
        # [..., 0] of 3 dimensions is [:, :, 0]: what follows these must not be indexed.
        missing = ndim - sum(map(_num_indexed, items))
        first = ellipses[0]
        items = (*items[:first], *(slice(None),) * missing, *items[first + 1 :])
    if sum(map(_num_indexed, items)) > ndim:
        raise OutOfRange(f"{ndim} dimensions cannot be indexed by {index!r}.")
    return lambda tensor: tensor[items]


def can_become(first: Iterable[int], second: Iterable[int]) -> bool:
    """Return whether a shape is another one, some of whose dimensions are divided or joined."""
    # Numbers [2, 3] of [3, 2] would be other rows: neither 2 nor 3 is where both begin anew.
    ends, others = (tuple(accumulate(shape, mul, initial=1)) for shape in (first, second))
    return ends[-1] == others[-1] and ({*ends} <= {*others} or {*others} <= {*ends})


def _num_indexed(item: Any) -> int:
    """Return how many dimensions an item of an index is of."""
    if item is None or item is Ellipsis:
        return 0
    is_mask = isinstance(item, torch.Tensor) and item.dtype in (torch.bool, torch.uint8)
    return item.ndim if is_mask else 1


def _no_memory(shape: torch.Size) -> torch.Tensor:
    return torch.zeros((), dtype=torch.uint8).expand(shape)


ARITHMETIC = frozenset(
    (
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    )
)
"""The element types whose values torch compares and draws."""


def as_tensor(value: Any) -> torch.Tensor:
    """Return numbers as a tensor: a copy, but of what is a tensor."""
    if isinstance(value, torch.Tensor):
        return value
    try:
        return torch.from_numpy(np.array(value))
    except (TypeError, ValueError) as error:
        raise UsageError(f"A value must be numbers of one shape, not {value!r}.") from error


def known_dtype(dtype: torch.dtype | None) -> torch.dtype:
    """Return an element type; torch's default one where None."""
    if dtype is None:
        return torch.get_default_dtype()
    if not isinstance(dtype, torch.dtype):
        raise UsageError(f"dtype must be an element type such as torch.float32, not {dtype!r}.")
    return dtype


def torch_dtype(name: Any) -> torch.dtype:
    """Return the element type of torch that has a name, such as ``float32``."""
    dtype = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(dtype, torch.dtype):
        raise UsageError(f"There is no element type {name!r} in torch {torch.__version__}.")
    return dtype


def cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return numbers in another element type; whole numbers stay what they are."""
    converted = tensor.to(dtype)
    is_whole = not dtype.is_floating_point and not dtype.is_complex and tensor.dtype != dtype
    if is_whole and not bool((converted == tensor).all()):
        raise UsageError(f"Values of {dtype} are whole numbers that it has, not {tensor.tolist()}.")
    return converted


def clamped(value: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Return the nearest values between bounds, in the element type of these."""
    low, high = low.to(value.device), high.to(value.device)
    near = value if low.dtype.is_floating_point else value.round()
    # Bounds are compared before the cast: what is beyond them may be beyond the element type.
    near = torch.where(value <= low, low, near.to(low.dtype))
    return torch.where(value >= high, high, near)


def known_device(device: str | torch.device | None) -> torch.device:
    """Return a device with its number; torch's default device where None."""
    if device is None:
        return torch.get_default_device()
    try:
        named = torch.device(device)
        if named.type == "cuda" and named.index is None:
            named = torch.device("cuda", torch.cuda.current_device())
    except (RuntimeError, TypeError, AssertionError) as error:
        raise UsageError(f"{device!r} is not a device of this machine: {error}") from error
    return named


class Shaped(ABC):
    """What has a shape; methods return another one of another shape."""

    shape: torch.Size
    _mask: torch.Tensor | None = None

    def __new__(cls, *args: Any, **named: Any) -> Self:
        _tell_torchrl(cls)
        return super().__new__(cls)

    def _changed(self, change: Change) -> Self:
        """Return this spec after a change of shape, which a mask follows."""
        mask = None if self._mask is None else change(self._mask)
        return self._like_this(shape=after_change(self.shape, change), _mask=mask)

    @property
    def mask(self) -> torch.Tensor | None:
        """The mask as the class takes it, if there is one."""
        return self._mask

    @property
    def ndim(self) -> int:
        """How many dimensions a value has."""
        return len(self.shape)

    def expand(self, *sizes: Any) -> Self:
        """Return this spec with sizes of dimensions that are new, or of size 1 so far."""
        new, ndim = written_sizes(sizes), self.ndim
        return self._with(lambda tensor: tensor.expand((*new, *tensor.shape[ndim:])))

    def reshape(self, *sizes: Any) -> Self:
        """Return this spec with its dimensions divided otherwise; -1 is what remains."""
        new, ndim = written_sizes(sizes), self.ndim
        return self._with(lambda tensor: tensor.reshape((*new, *tensor.shape[ndim:])))

    def flatten(self, start_dim: int, end_dim: int) -> Self:
        """Return this spec with dimensions made one."""
        first, last = dimension(start_dim, self.ndim), dimension(end_dim, self.ndim)
        return self._with(lambda tensor: tensor.flatten(first, last))

    def unflatten(self, dim: int, sizes: Iterable[int]) -> Self:
        """Return this spec with one dimension made several."""
        place, new = dimension(dim, self.ndim), tuple(sizes)
        return self._with(lambda tensor: tensor.unflatten(place, new))

    def squeeze(self, dim: int | None = None) -> Self:
        """Return this spec without a dimension of size 1, or all of them."""
        ones = tuple(place for place, size in enumerate(self.shape) if size == 1)
        places = ones if dim is None else (dimension(dim, self.ndim),)
        # One at a time, the last first: so does a TensorDict.
        return self._with(lambda tensor: reduce(torch.squeeze, reversed(places), tensor))

    def unsqueeze(self, dim: int) -> Self:
        """Return this spec with one more dimension of size 1."""
        place = dimension(dim, self.ndim + 1)
        return self._with(lambda tensor: tensor.unsqueeze(place))

    def unbind(self, dim: int = 0) -> tuple[Self, ...]:
        """Return the spec of each item of a dimension."""
        place = dimension(dim, self.ndim)
        return tuple(self[(slice(None),) * place + (item,)] for item in range(self.shape[place]))

    def __getitem__(self, index: Any) -> Any:
        """Return the spec of ``value[index]``."""
        return self._with(indexing(index, self.ndim))

    def clone(self) -> Self:
        """Return an equal spec that shares no memory with this one."""
        return self._with(torch.clone)

    def _like_this(self, **attributes: Any) -> Self:
        """Return a copy of this spec with other attributes."""
        other = copy(self)
        vars(other).update(attributes)
        return other

    def _with(self, change: Change) -> Self:
        try:
            return self._changed(change)
        except IndexError as error:
            raise OutOfRange(f"{self} cannot be indexed so: {error}") from error
        except (RuntimeError, TypeError) as error:
            raise UsageError(f"The shape of {self} cannot be changed so: {error}") from error

    def view(self, *sizes: Any) -> Self:
        """Return ``reshape(*sizes)``."""
        return self.reshape(*sizes)

    @property
    def _safe_shape(self) -> torch.Size:
        """``shape``; TorchRL's modules ask for one without sizes below 0."""
        return self.shape

    def ndimension(self) -> int:
        """Return ``ndim``."""
        return self.ndim

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Do what functions of torch, such as ``torch.stack``, do to values, to their specs."""
        done = FUNCTIONS.get(function)
        return NotImplemented if done is None else done(*args, **(kwargs or {}))


def _stack(tensors: Iterable[Shaped], dim: int = 0) -> Shaped:
    """Return the spec of stacked values."""
    first, *others = tensors
    if different := [other for other in others if first != other]:
        raise UsageError(f"Only equal specs can be stacked. Found {first} and {different[0]}.")
    place = dimension(dim, first.ndim + 1)
    sizes = (*first.shape[:place], len(others) + 1, *first.shape[place:])
    return first.unsqueeze(place).expand(sizes)


def _index_select(input: Shaped, dim: int, index: torch.Tensor) -> Shaped:  # torch's names
    """Return the spec of the values at some places of a dimension."""
    place = dimension(dim, input.ndim)
    if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < input.shape[place]:
        raise OutOfRange(f"{index} is out of the {input.shape[place]} items of dimension {dim}.")
    selected: Shaped = input[(slice(None),) * place + (index.reshape(-1),)]
    return selected


FUNCTIONS: dict[Any, Callable[..., Shaped]] = {
    torch.stack: _stack,
    torch.index_select: _index_select,
    torch.squeeze: lambda input, dim=None: input.squeeze(dim),
    torch.unsqueeze: lambda input, dim: input.unsqueeze(dim),
}
"""What functions of torch do to specs."""


def _tell_torchrl(kind: type) -> None:
    """Make TorchRL's classes, where it is imported, know ours of their names as kinds of them."""
    # Its modules ask a spec for its class, and actors and losses look that up in a table.
    specs, utils = (sys.modules.get(f"torchrl.data.{name}") for name in ("tensor_specs", "utils"))
    if kind in TOLD or specs is None or not hasattr(utils, "ACTION_SPACE_MAP"):
        return
    TOLD.add(kind)
    for each in kind.__mro__:
        known: Any = getattr(specs, each.__name__, None)
        if isinstance(known, ABCMeta) and each.__module__.startswith("datasets_cli."):
            known.register(each)
            spaces = utils.ACTION_SPACE_MAP  # type: ignore[union-attr]
            if known in spaces:
                spaces[each] = spaces[known]


TOLD: set[type] = set()
"""Classes of specs that TorchRL knows."""


class TensorSpec(Shaped):
    """What a tensor may be: its shape, the space of its values, its device and element type.

    A value of a spec may have further dimensions before those of ``shape``. Methods that change
    something return another spec.

    Args:
        shape: of a value.
        space: where its values are from.
        device: where they are; torch's default device where None.
        dtype: their element type.
        domain: ``"continuous"`` or ``"discrete"``.
    """

    def __init__(
        self,
        shape: ShapeLike,
        space: Any,
        device: str | torch.device | None = None,
        dtype: torch.dtype = torch.float32,
        domain: str = "",
    ) -> None:
        self.shape = shape_of(shape)
        self.space: Any = space
        self.device: Any = known_device(device)
        self.dtype: Any = known_dtype(dtype)
        self.domain: Any = domain

    def __getattr__(self, name: str) -> Any:
        instead = INSTEAD.get(name, "")
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}. {instead}".strip())

    def _size(self, shape: ShapeLike | None) -> torch.Size:
        """Return the shape of values that have further dimensions before those of one."""
        return shape_of(shape) + self.shape

    @abstractmethod
    def rand(self, shape: ShapeLike | None = None) -> Any:
        """Return random values ``[*shape, *self.shape]``, drawn by torch's global generator."""

    @abstractmethod
    def zero(self, shape: ShapeLike | None = None) -> Any:
        """Return zeros ``[*shape, *self.shape]``, which need not be in the space."""

    @abstractmethod
    def one(self, shape: ShapeLike | None = None) -> Any:
        """Return ones ``[*shape, *self.shape]``, which need not be in the space."""

    @abstractmethod
    def is_in(self, value: Any) -> bool:
        """Return whether a value has this shape and element type, and is in the space."""

    def assert_is_in(self, value: Any) -> None:
        """Refuse what is not a value of this spec.

        Raises:
            AssertionError: it is not.
        """
        if not self.is_in(value):
            raise AssertionError(
                f"A value is not in its spec, {self}. Found: {value}. project(value) gives the "
                "nearest that is."
            )

    @abstractmethod
    def type_check(self, value: Any, key: Any = None) -> None:
        """Refuse what is of another element type; ``key`` is that of the value, for the error.

        Raises:
            TypeError: it is.
        """

    @abstractmethod
    def project(self, value: Any) -> Any:
        """Return the nearest value of this spec, of its element type.

        Args:
            value: numbers ``[..., *self.shape]``; returned as they are where they are in it.

        Raises:
            UsageError: it is of another shape; or NaN, where values are discrete. Continuous ones
                stay NaN.
        """

    @abstractmethod
    def encode(self, value: Any, *, ignore_device: bool = False) -> Any:
        """Return what an environment gives as a value of this shape, element type and device.

        Raises:
            UsageError: it is of another shape, or cannot be such a value.
        """

    def memoize_encode(self, mode: bool = True) -> None:
        """Return None: ``encode`` keeps nothing, and gives the same either way."""

    def erase_memoize_cache(self) -> None:
        """Return None: ``encode`` keeps nothing."""

    @abstractmethod
    def to_numpy(self, value: Any, safe: bool | None = None) -> Any:
        """Return a value as an environment takes it, in numpy; ``safe`` refuses one not in it."""

    def cardinality(self) -> int | float:
        """Return how many values there are, as float ``inf`` where they are not counted."""
        return float("inf")

    def enumerate(self, use_mask: bool = False) -> Any:
        """Return all values ``[cardinality, *self.shape]``, or those that a mask allows.

        Raises:
            UsageError: they cannot be counted.
        """
        raise UsageError(f"The values of {self} cannot be listed: they are not counted.")

    def index(self, index: Any, tensor_to_index: torch.Tensor) -> torch.Tensor:
        """Return the items of a tensor's last dimension that a value of this spec chooses.

        Args:
            index: a value of this spec, ``[*B]`` categories.
            tensor_to_index: ``[..., cardinality]``.

        Returns:
            Items ``[..., *B]``.

        Raises:
            UsageError: values of this spec choose nothing.
        """
        raise UsageError(f"A value of {type(self).__name__} does not choose an item of a tensor.")

    @abstractmethod
    def to(self, destination: str | torch.device | torch.dtype | None) -> TensorSpec:
        """Return this spec on a device, or with an element type."""

    def clear_device_(self) -> Self:
        """Return this spec; a Composite has no device any more."""
        return self

    # -- the same by other names

    def sample(self, shape: ShapeLike | None = None) -> Any:
        """Return ``rand(shape)``."""
        return self.rand(shape)

    def zeros(self, shape: ShapeLike | None = None) -> Any:
        """Return ``zero(shape)``."""
        return self.zero(shape)

    def ones(self, shape: ShapeLike | None = None) -> Any:
        """Return ``one(shape)``."""
        return self.one(shape)

    def contains(self, value: Any) -> bool:
        """Return ``is_in(value)``."""
        return self.is_in(value)

    def cpu(self) -> TensorSpec:
        """Return ``to("cpu")``."""
        return self.to("cpu")

    def cuda(self, device: int | str | torch.device | None = None) -> TensorSpec:
        """Return ``to("cuda")``, or on one of several."""
        return self.to(torch.device("cuda" if device is None else device))

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not isinstance(other, TensorSpec):
            return False
        same = (self.shape, self.device) == (other.shape, other.device)
        return same and self._has_values_of(other)

    __hash__ = None  # type: ignore[assignment]

    @abstractmethod
    def _has_values_of(self, other: Any) -> bool:
        """Return whether another spec of this class, shape and device has the same values."""

    def __repr__(self) -> str:
        lines = ",\n".join(self._lines())
        return f"{self._name()}(\n{indent(lines, '    ')})"

    def _name(self) -> str:
        return type(self).__name__

    def _lines(self) -> list[str]:
        """Return what is printed of this spec, an attribute or an entry each."""
        names = ("shape", "space", "device", "dtype", "domain")
        return [f"{name}={getattr(self, name)}" for name in names]


INSTEAD = {
    "rand_update": "Write values.update(spec.rand()).",
    "zeros_update": "Write values.update(spec.zero()).",
    "ones_update": "Write values.update(spec.one()).",
    "refine_names": "Set names.",
    "separates": "Take out each entry by pop().",
    "make_neg_dim": "Sizes of a shape are 0 or more.",
    "set_provisional_n": "A number of categories is known from the start.",
    "n": "Each item has its number of categories: nvec.",
    "implements_for_spec": "torch.stack, index_select, squeeze and unsqueeze take specs.",
    **dict.fromkeys(
        ("to_one_hot", "to_one_hot_spec", "to_categorical", "to_categorical_spec", "update_mask"),
        "It is not of categories.",
    ),
}
"""What of TorchRL's is not here, and what to do instead."""
