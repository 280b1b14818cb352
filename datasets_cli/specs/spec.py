"""`TensorSpec`, the base class of all specs, and changes of their shape."""

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

from datasets_cli.errors import OutOfRange, Unsupported, UsageError, wrong_value

ShapeLike = SupportsIndex | Iterable[SupportsIndex]
"""One size, or the size of each dimension."""

SCALAR = torch.Size(())

Change = Callable[[torch.Tensor], torch.Tensor]
"""A change of the leading dimensions of a tensor, which keeps the remaining ones."""


def shape_of(shape: ShapeLike | None) -> torch.Size:
    """Return a shape; None is the shape of a scalar."""
    if shape is None:
        return SCALAR
    try:
        sizes: Any = tuple(shape) if isinstance(shape, Iterable) else (shape,)
        known = torch.Size(sizes)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"A shape must be integers, not {shape!r}.", argument="shape", found=shape
        ) from error
    if any(size < 0 for size in known):
        raise wrong_value("shape", "sizes of at least 0", tuple(known))
    return known


def written_sizes(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """Return the sizes of ``expand(2, 3)`` or ``expand((2, 3))``; -1 is kept."""
    is_sequence = len(sizes) == 1 and isinstance(sizes[0], Iterable)
    return tuple(sizes[0] if is_sequence else sizes)


def dimension(number: int, ndim: int) -> int:
    """Return the number of a dimension, with negative numbers counted from the end."""
    if not -ndim <= number < ndim:
        raise OutOfRange(
            f"Dimension {number} is out of range: the spec has {ndim} dimensions.",
            expected=ndim,
            found=number,
        )
    return number % ndim


def ends_with(shape: torch.Size, end: torch.Size) -> bool:
    """Return whether the last sizes of a shape are ``end``."""
    return len(shape) >= len(end) and shape[len(shape) - len(end) :] == end


def after_change(shape: torch.Size, change: Change) -> torch.Size:
    """Apply a change to a shape."""
    return change(_no_memory(shape)).shape


def keeps_last(shape: torch.Size, change: Change) -> torch.Size:
    """Apply a change to a shape, or raise an error if it affects the last dimension."""
    places = torch.arange(shape[-1])
    changed = change(places.expand(shape))
    if changed.shape[-1:] != places.shape or not torch.equal(changed, places.expand_as(changed)):
        raise UsageError(
            f"The last dimension of {tuple(shape)} is one vector and cannot be changed or indexed.",
            found=tuple(changed.shape),
            advice="Change or index the dimensions before it.",
        )
    return changed.shape


def indexing(index: Any, ndim: int) -> Change:
    """Return the change that applies an index to the first ``ndim`` dimensions."""
    items = index if isinstance(index, tuple) else (index,)
    ellipses = [place for place, item in enumerate(items) if item is Ellipsis]
    if ellipses:
        # With 3 dimensions, [..., 0] is [:, :, 0]: later dimensions must not be indexed.
        missing = ndim - sum(map(_num_indexed, items))
        first = ellipses[0]
        items = (*items[:first], *(slice(None),) * missing, *items[first + 1 :])
    if sum(map(_num_indexed, items)) > ndim:
        raise OutOfRange(
            f"The index {index!r} has more items than the {ndim} dimensions of the spec.",
            expected=ndim,
            found=index,
        )
    return lambda tensor: tensor[items]


def can_become(first: Iterable[int], second: Iterable[int]) -> bool:
    """Return whether splitting or merging dimensions turns one shape into the other."""
    # Splitting or merging keeps the running products of the sizes: [6] and [2, 3] have 6, and 2, 6.
    # [2, 3] and [3, 2] have 2, 6 and 3, 6: a reshape would mix rows and columns.
    ends, others = (tuple(accumulate(shape, mul, initial=1)) for shape in (first, second))
    return ends[-1] == others[-1] and ({*ends} <= {*others} or {*others} <= {*ends})


def _num_indexed(item: Any) -> int:
    """Return the number of dimensions that an item of an index applies to."""
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
"""The dtypes that torch can compare and sample."""


def as_tensor(value: Any) -> torch.Tensor:
    """Return a tensor unchanged, and other numbers as a new tensor."""
    if isinstance(value, torch.Tensor):
        return value
    try:
        return torch.from_numpy(np.array(value))
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"A value must be an array of numbers, not {value!r}.", found=value
        ) from error


def known_dtype(dtype: torch.dtype | None) -> torch.dtype:
    """Return a dtype, or torch's default for None."""
    if dtype is None:
        return torch.get_default_dtype()
    if not isinstance(dtype, torch.dtype):
        raise wrong_value("dtype", "a torch dtype, for example torch.float32", dtype)
    return dtype


def torch_dtype(name: Any) -> torch.dtype:
    """Return the torch dtype of a name such as ``float32``."""
    dtype = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(dtype, torch.dtype):
        raise UsageError(
            f"torch {torch.__version__} does not have the dtype {name!r}.",
            argument="dtype",
            found=name,
        )
    return dtype


def cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Convert numbers to a dtype, or raise an error if an integer dtype would change them."""
    converted = tensor.to(dtype)
    is_whole = not dtype.is_floating_point and not dtype.is_complex and tensor.dtype != dtype
    if is_whole and not bool((converted == tensor).all()):
        raise UsageError(
            f"{dtype} cannot represent {tensor.tolist()}.", expected=dtype, found=tensor.tolist()
        )
    return converted


def clamped(value: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Clamp values to bounds, in the dtype of the bounds."""
    low, high = low.to(value.device), high.to(value.device)
    near = value if low.dtype.is_floating_point else value.round()
    # Compared before the cast, because values beyond the bounds may overflow the dtype.
    near = torch.where(value <= low, low, near.to(low.dtype))
    return torch.where(value >= high, high, near)


def known_device(device: str | torch.device | None) -> torch.device:
    """Return a device with its index, or torch's default device for None."""
    if device is None:
        return torch.get_default_device()
    try:
        named = torch.device(device)
        if named.type == "cuda" and named.index is None:
            named = torch.device("cuda", torch.cuda.current_device())
    except (RuntimeError, TypeError, AssertionError) as error:
        raise UsageError(
            f"{device!r} is not a device of this machine: {error}", argument="device", found=device
        ) from error
    return named


class Shaped(ABC):
    """The changes of shape of a spec; each returns a new spec."""

    shape: torch.Size
    _mask: torch.Tensor | None = None

    def __new__(cls, *args: Any, **named: Any) -> Self:
        _register_in_torchrl(cls)
        return super().__new__(cls)

    def _changed(self, change: Change) -> Self:
        """Apply a change to the shape and the mask."""
        mask = None if self._mask is None else change(self._mask)
        return self._like_this(shape=after_change(self.shape, change), _mask=mask)

    @property
    def mask(self) -> torch.Tensor | None:
        """The mask of the constructor, or None."""
        return self._mask

    @property
    def ndim(self) -> int:
        """The number of dimensions of a value."""
        return len(self.shape)

    def expand(self, *sizes: Any) -> Self:
        """Return this spec expanded, as by ``torch.Tensor.expand``."""
        new, ndim = written_sizes(sizes), self.ndim
        return self._with(lambda tensor: tensor.expand((*new, *tensor.shape[ndim:])))

    def reshape(self, *sizes: Any) -> Self:
        """Return this spec reshaped; one size may be -1."""
        new, ndim = written_sizes(sizes), self.ndim
        return self._with(lambda tensor: tensor.reshape((*new, *tensor.shape[ndim:])))

    def flatten(self, start_dim: int, end_dim: int) -> Self:
        """Return this spec with a range of dimensions merged."""
        first, last = dimension(start_dim, self.ndim), dimension(end_dim, self.ndim)
        return self._with(lambda tensor: tensor.flatten(first, last))

    def unflatten(self, dim: int, sizes: Iterable[int]) -> Self:
        """Return this spec with one dimension split."""
        place, new = dimension(dim, self.ndim), tuple(sizes)
        return self._with(lambda tensor: tensor.unflatten(place, new))

    def squeeze(self, dim: int | None = None) -> Self:
        """Return this spec without one dimension of size 1, or without all of them."""
        ones = tuple(place for place, size in enumerate(self.shape) if size == 1)
        places = ones if dim is None else (dimension(dim, self.ndim),)
        # One at a time, the last first, as in a TensorDict.
        return self._with(lambda tensor: reduce(torch.squeeze, reversed(places), tensor))

    def unsqueeze(self, dim: int) -> Self:
        """Return this spec with a new dimension of size 1."""
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
            raise OutOfRange(f"{self} cannot be indexed: {error}") from error
        except (RuntimeError, TypeError) as error:
            raise UsageError(f"The shape of {self} cannot be changed: {error}") from error

    def view(self, *sizes: Any) -> Self:
        """Return this spec reshaped; an alias of ``reshape``."""
        return self.reshape(*sizes)

    @property
    def _safe_shape(self) -> torch.Size:
        """An alias of ``shape``, which TorchRL's modules read."""
        return self.shape

    def ndimension(self) -> int:
        """Return the number of dimensions of a value."""
        return self.ndim

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Apply a torch function, such as ``torch.stack``, to specs."""
        done = FUNCTIONS.get(function)
        return NotImplemented if done is None else done(*args, **(kwargs or {}))


def _stack(tensors: Iterable[Shaped], dim: int = 0) -> Shaped:
    """Return the spec of stacked values."""
    first, *others = tensors
    if different := [other for other in others if first != other]:
        raise UsageError(
            f"Only equal specs can be stacked; found {first} and {different[0]}.",
            expected=first,
            found=different[0],
        )
    place = dimension(dim, first.ndim + 1)
    sizes = (*first.shape[:place], len(others) + 1, *first.shape[place:])
    return first.unsqueeze(place).expand(sizes)


def _index_select(input: Shaped, dim: int, index: torch.Tensor) -> Shaped:  # torch's names
    """Return the spec of selected items of a dimension."""
    place = dimension(dim, input.ndim)
    if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < input.shape[place]:
        raise OutOfRange(
            f"{index} is out of range: dimension {dim} has {input.shape[place]} items.",
            expected=input.shape[place],
            found=index,
        )
    selected: Shaped = input[(slice(None),) * place + (index.reshape(-1),)]
    return selected


FUNCTIONS: dict[Any, Callable[..., Shaped]] = {
    torch.stack: _stack,
    torch.index_select: _index_select,
    torch.squeeze: lambda input, dim=None: input.squeeze(dim),
    torch.unsqueeze: lambda input, dim: input.unsqueeze(dim),
}
"""The torch functions that accept specs."""


def _register_in_torchrl(kind: type) -> None:
    """Register a class as a subclass of TorchRL's class of that name, if torchrl is imported."""
    # TorchRL's modules test specs by isinstance, and its actors and losses look up their class.
    specs, utils = (sys.modules.get(f"torchrl.data.{name}") for name in ("tensor_specs", "utils"))
    if kind in REGISTERED or specs is None or not hasattr(utils, "ACTION_SPACE_MAP"):
        return
    REGISTERED.add(kind)
    for each in kind.__mro__:
        known: Any = getattr(specs, each.__name__, None)
        if isinstance(known, ABCMeta) and each.__module__.startswith("datasets_cli."):
            known.register(each)
            spaces = utils.ACTION_SPACE_MAP  # type: ignore[union-attr]
            if known in spaces:
                spaces[each] = spaces[known]


REGISTERED: set[type] = set()
"""The classes that are registered in TorchRL."""


class TensorSpec(Shaped):
    """The spec of a tensor: its shape, space, device and dtype.

    A value of a spec may have batch dimensions before those of ``shape``. A method that changes the
    shape, device or dtype returns a new spec.

    Args:
        shape: the shape of a value.
        space: the set of values.
        device: the device of values; None for torch's default device.
        dtype: the dtype of values.
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

    def _size(self, shape: ShapeLike | None) -> torch.Size:
        """Return the shape of a batch of values."""
        return shape_of(shape) + self.shape

    @abstractmethod
    def rand(self, shape: ShapeLike | None = None) -> Any:
        """Return random values ``[*shape, *self.shape]`` from torch's global generator."""

    @abstractmethod
    def zero(self, shape: ShapeLike | None = None) -> Any:
        """Return zeros ``[*shape, *self.shape]``, even if 0 is not in the space."""

    @abstractmethod
    def one(self, shape: ShapeLike | None = None) -> Any:
        """Return ones ``[*shape, *self.shape]``, even if 1 is not in the space."""

    @abstractmethod
    def is_in(self, value: Any) -> bool:
        """Return whether a value has the shape and dtype of this spec, and is in its space."""

    def assert_is_in(self, value: Any) -> None:
        """Check that a value is in this spec.

        Raises:
            AssertionError: the value is not in this spec.
        """
        if not self.is_in(value):
            raise AssertionError(
                f"A value is not in its spec. Expected {self}. Found {value}. project(value) "
                "returns the nearest value of the spec."
            )

    @abstractmethod
    def type_check(self, value: Any, key: Any = None) -> None:
        """Check the dtype of a value.

        Args:
            value: a tensor.
            key: the key of the value, for the message.

        Raises:
            TypeError: the value has another dtype.
        """

    @abstractmethod
    def project(self, value: Any) -> Any:
        """Return the nearest value of this spec.

        NaN stays NaN in a continuous spec.

        Args:
            value: numbers ``[..., *self.shape]``; returned unchanged if they are in this spec.

        Raises:
            WrongRows: the value has another shape.
            UsageError: the value is NaN, and the spec is discrete.
        """

    @abstractmethod
    def encode(self, value: Any, *, ignore_device: bool = False) -> Any:
        """Encode a value from an environment with the shape, dtype and device of this spec.

        Raises:
            WrongRows: the value has another shape.
            UsageError: the value cannot be encoded.
        """

    def memoize_encode(self, mode: bool = True) -> None:
        """Do nothing; for compatibility: ``encode`` does not have a cache."""

    def erase_memoize_cache(self) -> None:
        """Do nothing; for compatibility: ``encode`` does not have a cache."""

    @abstractmethod
    def to_numpy(self, value: Any, safe: bool | None = None) -> Any:
        """Convert a value to numpy for an environment; ``safe`` checks that it is in this spec."""

    def cardinality(self) -> int | float:
        """Return the number of values, or ``inf`` if they cannot be counted."""
        return float("inf")

    def enumerate(self, use_mask: bool = False) -> Any:
        """Return all values ``[cardinality, *self.shape]``.

        Args:
            use_mask: return only the values that the mask allows.

        Raises:
            Unsupported: the values cannot be counted.
        """
        raise Unsupported(f"The values of {self} cannot be listed: they cannot be counted.")

    def index(self, index: Any, tensor_to_index: torch.Tensor) -> torch.Tensor:
        """Index the last dimension of a tensor by the categories of a value.

        Args:
            index: a value of this spec, ``[*B]`` categories.
            tensor_to_index: the tensor ``[..., cardinality]``.

        Returns:
            The items ``[..., *B]``.

        Raises:
            Unsupported: the values of this spec are not categories.
        """
        raise Unsupported(
            f"A value of {type(self).__name__} is not an index.",
            advice="Use Categorical, MultiCategorical, OneHot or MultiOneHot.",
        )

    @abstractmethod
    def to(self, destination: str | torch.device | torch.dtype | None) -> TensorSpec:
        """Return this spec with another device or dtype."""

    def clear_device_(self) -> Self:
        """Return this spec; a Composite sets its device to None."""
        return self

    # -- aliases

    def sample(self, shape: ShapeLike | None = None) -> Any:
        """Return random values; an alias of ``rand``."""
        return self.rand(shape)

    def zeros(self, shape: ShapeLike | None = None) -> Any:
        """Return zeros; an alias of ``zero``."""
        return self.zero(shape)

    def ones(self, shape: ShapeLike | None = None) -> Any:
        """Return ones; an alias of ``one``."""
        return self.one(shape)

    def contains(self, value: Any) -> bool:
        """Return whether a value is in this spec; an alias of ``is_in``."""
        return self.is_in(value)

    def cpu(self) -> TensorSpec:
        """Return this spec on the CPU."""
        return self.to("cpu")

    def cuda(self, device: int | str | torch.device | None = None) -> TensorSpec:
        """Return this spec on a GPU; None for the current one."""
        return self.to(torch.device("cuda" if device is None else device))

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not isinstance(other, TensorSpec):
            return False
        same = (self.shape, self.device) == (other.shape, other.device)
        return same and self._has_values_of(other)

    __hash__ = None  # type: ignore[assignment]

    @abstractmethod
    def _has_values_of(self, other: Any) -> bool:
        """Compare space, dtype and mask with a spec of the same class, shape and device."""

    def __repr__(self) -> str:
        lines = ",\n".join(self._lines())
        return f"{self._name()}(\n{indent(lines, '    ')})"

    def _name(self) -> str:
        return type(self).__name__

    def _lines(self) -> list[str]:
        """Return the lines of ``repr``: one for each attribute or entry."""
        names = ("shape", "space", "device", "dtype", "domain")
        return [f"{name}={getattr(self, name)}" for name in names]
