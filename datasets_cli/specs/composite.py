"""The spec of a TensorDict: named specs, which may be nested."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import torch
from tensordict import TensorDict, unravel_key

import datasets_cli
from datasets_cli.core.quantities import MOST_LINES, few_lines, html_table
from datasets_cli.errors import NotWritable, UnknownKey, UsageError, WrongSize
from datasets_cli.schema.columns import show_key
from datasets_cli.specs.leaf import NonTensor
from datasets_cli.specs.spec import Change, ShapeLike, TensorSpec, known_device, shape_of
from datasets_cli.torchrl.keywords import accepts_keywords

if TYPE_CHECKING:
    import pandas


EntryKey = str | tuple[str, ...]
REQUIRED: Any = object()


class SpecKeys(list[Any]):
    """The keys of a Composite; ``in`` accepts a name and the tuple of it, such as ``("a",)``."""

    def __contains__(self, key: object) -> bool:
        return super().__contains__(unravel_key(key) if _is_key(key) else key)


class SpecEntries(TensorSpec):
    """A mapping of names to specs; None reserves a name without values."""

    _specs: dict[str, Any]
    _is_locked = False

    # -- adding entries

    def __setitem__(self, key: EntryKey, spec: Any) -> None:
        """Set the spec of a name or of a tuple of nested names; None reserves the name."""
        name, *below = _names(key)
        if below and self._specs.get(name) is not None:
            self._inner(name)[tuple(below)] = spec
            return
        self._refuse_locked()
        new = self.empty().set(tuple(below), spec) if below else spec
        self._specs[name] = self._fitting(name, new)

    def set(self, name: EntryKey, spec: Any) -> Self:
        """Set the spec of a name, and return this Composite."""
        self[name] = spec
        return self

    def update(self, specs: Any) -> Self:
        """Set specs by name, merging nested Composites, and return this Composite."""
        for key, new in specs.items():
            inner = self.get(key)
            if isinstance(inner, SpecEntries) and hasattr(new, "items"):
                inner.update(new)
            else:
                self[key] = new.to(self.device) if isinstance(new, TensorSpec) else new
        return self

    def _fitting(self, name: str, spec: Any) -> TensorSpec | None:
        if spec is None:
            return None
        if not isinstance(spec, TensorSpec):
            spec = self._adopted(name, spec)
        begins = self.shape[: spec.ndim] == spec.shape and spec.ndim < self.ndim
        if begins and isinstance(spec, SpecEntries | NonTensor):
            spec = spec.clone()
            spec.shape = self.shape
        if spec.shape[: self.ndim] != self.shape:
            raise WrongSize(
                f"The shape of {name!r} must begin with the shape of its Composite, "
                f"{tuple(self.shape)}; found {tuple(spec.shape)}.",
                key=name,
                expected=tuple(self.shape),
                found=tuple(spec.shape),
            )
        moved: TensorSpec = spec if spec.device is not None else spec.to(self.device)
        if self.device is not None and moved.device not in (self.device, None):
            raise UsageError(
                f"{name!r} is on {spec.device}; its Composite is on {self.device}.",
                key=name,
                expected=self.device,
                found=spec.device,
            )
        return moved

    def _adopted(self, name: str, spec: Any) -> TensorSpec:
        """Convert a mapping of specs, or a TorchRL spec, to a spec of this package."""
        kinds = [each.__name__ for each in type(spec).__mro__]
        is_spec = callable(getattr(spec, "is_in", None)) and not hasattr(spec, "stack_dim")
        if isinstance(spec, Mapping) or (is_spec and "Composite" in kinds):
            inner = self.empty()
            if not isinstance(spec, Mapping):
                inner.device = None if spec.device is None else known_device(spec.device)
                inner.shape = shape_of(spec.shape)
            return inner.update(spec)
        kind = next((each for each in kinds if is_spec and each in PARTS), None)
        if kind is None:
            raise UsageError(
                f"{name!r} must be a spec, not {type(spec).__name__} {spec!r}.",
                key=name,
                found=spec,
            )
        parts = {part: getattr(spec, part) for part in ("shape", "device", *PARTS[kind])}
        if kind == "MultiOneHot":
            parts["nvec"] = [box.n for box in spec.space]
        made: TensorSpec = getattr(datasets_cli.specs, kind)(**parts)
        return made

    # -- reading entries

    def __getitem__(self, index: Any) -> Any:
        """Return the spec of a name or nested names; for any other index, index the shape."""
        if not _is_key(index):
            return super().__getitem__(index)
        name, *below = _names(index)
        if name not in self._specs:
            raise self._unknown(index)
        return self._inner(name)[tuple(below)] if below else self._specs[name]

    def _inner(self, name: str) -> SpecEntries:
        inner = self[name]
        if not isinstance(inner, SpecEntries):
            raise UnknownKey(
                f"{name!r} has no entries: it is not a Composite but {inner!r}.", key=name
            )
        return inner

    def _unknown(self, key: EntryKey) -> UnknownKey:
        known = [*self._specs]
        message = f"The Composite has no entry {key!r}. Its entries are {known}."
        return UnknownKey(message, key=key, expected=known)

    def get(self, key: EntryKey, default: Any = None) -> Any:
        """Return the spec of a name or nested names, or ``default`` if it is missing."""
        try:
            return self[key]
        except KeyError:
            return default

    def __contains__(self, key: EntryKey) -> bool:
        return self.get(key, REQUIRED) is not REQUIRED

    def items(
        self,
        include_nested: bool = False,
        leaves_only: bool = False,
        *,
        is_leaf: Callable[[type], bool] | None = None,
        step_mdp_static_only: bool = False,
    ) -> Iterator[tuple[Any, Any]]:
        """Return pairs of name and spec, with the arguments of ``TensorDict.items``.

        ``step_mdp_static_only`` has no effect.
        """
        for name, spec in self._specs.items():
            if include_nested and isinstance(spec, SpecEntries):
                for key, inner in spec.items(include_nested, leaves_only, is_leaf=is_leaf):
                    yield (name, *_names(key)), inner
            is_kept = is_leaf(type(spec)) if is_leaf else not isinstance(spec, SpecEntries)
            if is_kept or not leaves_only:
                yield name, spec

    def keys(self, *nested: bool, **options: Any) -> list[Any]:
        """Return the names; arguments as for ``items``."""
        return SpecKeys(key for key, _ in self.items(*nested, **options))

    def values(self, *nested: bool, **options: Any) -> list[Any]:
        """Return the specs; arguments as for ``items``."""
        return [spec for _, spec in self.items(*nested, **options)]

    def _filled(self) -> Iterator[tuple[str, TensorSpec]]:
        """Yield pairs of name and spec, without reserved names."""
        return ((name, spec) for name, spec in self._specs.items() if spec is not None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)

    def is_empty(self, recurse: bool = False) -> bool:
        """Return whether this Composite is empty; ``recurse`` ignores empty nested Composites."""
        if not recurse:
            return not self._specs
        inner = (spec for _, spec in self._filled())
        return all(isinstance(spec, SpecEntries) and spec.is_empty(True) for spec in inner)

    # -- removing entries

    def __delitem__(self, key: EntryKey) -> None:
        name, *below = _names(key)
        if below:
            del self._inner(name)[tuple(below)]
            return
        self._refuse_locked()
        del self._specs[name]

    def pop(self, key: EntryKey, default: Any = REQUIRED) -> Any:
        """Remove a spec and return it, or ``default`` if it is missing."""
        if default is REQUIRED or key in self:
            default = self[key]
            del self[key]
        return default

    def empty(self) -> Self:
        """Return this Composite without its entries."""
        return self._like_this(_specs={}, _is_locked=False)

    # -- attributes

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; ``shape`` is also set on nested Composites, and checked on entries."""
        if name == "shape" and "_specs" in vars(self):
            self._refuse_locked()
            other = self._like_this(shape=shape_of(value), _names=None)
            specs = {key: other._fitting(key, spec) for key, spec in self._specs.items()}
            vars(self).update(vars(other), _specs=specs)
            return
        super().__setattr__(name, value)

    def clear_device_(self) -> Self:
        """Set the device to None, in nested Composites too, and return this Composite."""
        self.device = None
        for _, spec in self._filled():
            spec.clear_device_()
        return self

    def lock_(self, recurse: bool | None = None) -> Self:
        """Lock the entries, and nested Composites unless ``recurse`` is False."""
        self._propagate_lock(recurse is not False)
        return self

    def unlock_(self, recurse: bool | None = None) -> Self:
        """Unlock the entries, and nested Composites unless ``recurse`` is False."""
        self._propagate_unlock(recurse is not False)
        return self

    def _propagate_lock(self, recurse: bool, is_locked: bool = True, **parents: Any) -> None:
        """Lock or unlock; a TorchRL Composite calls this on its nested Composites."""
        self._is_locked = is_locked
        for _, spec in self._filled() if recurse else ():
            if isinstance(spec, SpecEntries):
                spec._propagate_lock(recurse, is_locked)

    def _propagate_unlock(self, recurse: bool) -> list[Any]:
        self._propagate_lock(recurse, is_locked=False)
        return []

    def _check_unlock(self) -> None:
        """Do nothing: a Composite may be unlocked inside a locked one."""

    @property
    def is_locked(self) -> bool:
        """Whether changing entries raises an error."""
        return self._is_locked

    locked = is_locked

    def _refuse_locked(self) -> None:
        if self._is_locked:
            raise NotWritable(
                "The Composite is locked.", advice="Call unlock_(), or change a clone()."
            )


def _is_key(index: Any) -> bool:
    is_names = isinstance(index, tuple) and len(index) > 0 and all(map(_is_key, index))
    return isinstance(index, str) or is_names


def _names(key: Any) -> tuple[str, ...]:
    """Flatten a key to a tuple of names."""
    if not _is_key(key):
        raise UsageError(f"A key must be a name or a tuple of names, not {key!r}.", found=key)
    names = unravel_key(key)
    return (names,) if isinstance(names, str) else names


PARTS = {
    "Bounded": ("low", "high", "dtype"),
    "Unbounded": ("dtype",),
    "Binary": ("dtype",),
    "MultiCategorical": ("nvec", "dtype", "mask"),
    "Categorical": ("n", "dtype", "mask"),
    "MultiOneHot": ("dtype", "mask"),
    "OneHot": ("n", "dtype", "mask"),
    "NonTensor": ("example_data",),
}
"""The constructor arguments of each kind of spec, besides shape and device."""


@accepts_keywords
class Composite(SpecEntries):
    """The spec of a TensorDict: a spec for each entry, by name.

    ``Composite(observation=Bounded(-1, 1, (4,)), reward=Unbounded((1,))).rand((32,))`` is a
    TensorDict ``[32]``. ``composite["action"] = OneHot(3)`` adds a spec, and
    ``del composite["action"]`` removes it. None reserves a name without values.

    Args:
        args: one mapping of names to specs; nested mappings become nested Composites.
        shape: the batch size; the shape of each spec begins with it.
        device: the device of all values; None for the device of each spec.
        names: the names of the dimensions of ``shape``, as for a TensorDict.
        specs: further specs by name. TorchRL specs are converted.

    Raises:
        UsageError: a spec has another device, or a value is not a spec.
        WrongSize: a spec has another batch size.
    """

    def __init__(
        self,
        *args: Mapping[str, Any],
        shape: ShapeLike | None = None,
        device: str | torch.device | None = None,
        names: Sequence[str | None] | None = None,
        **specs: Any,
    ) -> None:
        if len(args) > 1 or not all(hasattr(each, "items") for each in args):
            raise UsageError("Composite requires one mapping of names to specs, or keywords.")
        super().__init__(shape_of(shape), None, device)
        self.device = None if device is None else self.device
        self.dtype = self.domain = None
        self._names: list[str | None] | None = None
        self._specs: dict[str, Any] = {}
        for name, spec in (*(args[0].items() if args else ()), *specs.items()):
            self[name] = spec
        self.names = names

    @property
    def names(self) -> list[str | None]:
        """The names of the dimensions; None for an unnamed one."""
        return [None] * self.ndim if self._names is None else [*self._names]

    @names.setter
    def names(self, names: Sequence[str | None] | None) -> None:
        if names is not None and len(names) != self.ndim:
            raise WrongSize(
                f"names must have {self.ndim} names, one for each dimension; found {[*names]}.",
                argument="names",
                expected=self.ndim,
                found=len(names),
            )
        self._names = None if names is None else [*names]
        for _, spec in self._filled() if names is not None else ():
            if isinstance(spec, Composite):
                spec.names = [*self.names, *[None] * (spec.ndim - self.ndim)]

    # -- values

    @property
    def batch_size(self) -> torch.Size:
        """An alias of ``shape``, as in a TensorDict."""
        return self.shape

    def rand(self, shape: ShapeLike | None = None) -> TensorDict:
        """Return a TensorDict ``[*shape, *self.shape]`` of random values, drawn entry by entry."""
        return self._made("rand", shape)

    def zero(self, shape: ShapeLike | None = None) -> TensorDict:
        return self._made("zero", shape)

    def one(self, shape: ShapeLike | None = None) -> TensorDict:
        return self._made("one", shape)

    def _made(self, method: str, shape: ShapeLike | None) -> TensorDict:
        values = {name: getattr(spec, method)(shape) for name, spec in self._filled()}
        size = self._size(shape)
        names = [*[None] * (len(size) - self.ndim), *self.names] if self._names else None
        return TensorDict(values, batch_size=size, device=self.device, names=names)

    def is_in(self, value: Any) -> bool:
        """Return whether each spec has an entry that is in it; other entries are ignored."""
        return all(
            spec.is_in(value.get(name)) if _has(value, name) else _is_empty(spec)
            for name, spec in self._filled()
        )

    def type_check(self, value: Any, selected_keys: Any = None) -> None:
        if isinstance(selected_keys, str):
            value = {selected_keys: value} if isinstance(value, torch.Tensor) else value
            selected_keys = [selected_keys]
        for key, spec in self.items(include_nested=True, leaves_only=True):
            first = key if isinstance(key, str) else key[0]
            if spec is not None and (selected_keys is None or first in selected_keys):
                spec.type_check(value[key], key)

    def project(self, value: Any) -> Any:
        """Return a TensorDict with each entry projected by its spec; see ``TensorSpec``.

        ``value`` is not changed. The result shares the tensors of entries that are in their specs.

        Raises:
            UnknownKey: an entry is missing.
            WrongRows: an entry has another shape.
        """
        missing = [
            name for name, spec in self._filled() if not (_has(value, name) or _is_empty(spec))
        ]
        if missing:
            raise UnknownKey(f"Entries are missing: {missing}. Found {value}.", key=missing[0])
        if self.is_in(value):
            return value
        projected = value.copy()
        for name, spec in self._filled():
            if not _is_empty(spec):
                projected[name] = spec.project(value.get(name))
        return projected

    def encode(self, value: Any, *, ignore_device: bool = False) -> TensorDict:
        """Encode a mapping from an environment as a TensorDict.

        Raises:
            UnknownKey: a name is without a spec.
            WrongRows: an entry has another shape.
            UsageError: an entry cannot be encoded.
        """
        unknown = [name for name in value.keys() if self.get(name) is None]  # noqa: SIM118
        if unknown:
            raise self._unknown(unknown[0])
        encoded = {
            name: self._specs[name].encode(each, ignore_device=ignore_device)
            for name, each in value.items()
        }
        device = None if ignore_device else self.device
        return TensorDict(encoded, batch_size=self.shape, device=device, names=self._names)

    def to_numpy(self, value: Any, safe: bool | None = None) -> dict[str, Any]:
        """Convert a TensorDict to a dict of numpy values, nested ones to dicts."""
        return {name: spec.to_numpy(value.get(name), safe) for name, spec in self._filled()}

    def cardinality(self) -> int | float:
        """Return the product of the cardinalities of the entries."""
        return math.prod(spec.cardinality() for _, spec in self._filled())

    def enumerate(self, use_mask: bool = False) -> TensorDict:
        """Return all combinations of the entries' values, as a TensorDict ``[N, *self.shape]``.

        Raises:
            Unsupported: the values of an entry cannot be listed.
        """
        combinations = TensorDict({}, batch_size=(1, *self.shape), device=self.device)
        for name, spec in self._filled():
            values, num_before = spec.enumerate(use_mask), len(combinations)
            # Repeat each combination for every value, so that the last entry varies fastest.
            combinations = combinations.repeat_interleave(len(values), dim=0)
            combinations[name] = torch.cat([values] * num_before)
        return combinations

    # -- derived specs

    def _changed(self, change: Change) -> Self:
        specs = self._each(lambda spec: spec._with(change))
        changed = super()._changed(change)._like_this(_specs=specs, _is_locked=False)
        if self._names is not None:
            named: Any = TensorDict({}, batch_size=self.shape, names=self._names)
            changed._names = change(named).names  # type: ignore[attr-defined]
        return changed

    def _each(self, change: Callable[[Any], Any]) -> dict[str, Any]:
        """Apply a function to each spec; reserved names stay None."""
        changed = {name: change(spec) for name, spec in self._filled()}
        return {name: changed.get(name) for name in self._specs}

    def to(self, destination: str | torch.device | torch.dtype | None) -> Composite:
        if destination is None:
            return self
        specs = self._each(lambda spec: spec.to(destination))
        device = self.device if isinstance(destination, torch.dtype) else destination
        return Composite(specs, shape=self.shape, device=device, names=self._names)

    def _has_values_of(self, other: Any) -> bool:
        return bool(self._specs == other._specs)

    def __repr__(self) -> str:
        """Show each spec in full if that is short, else one line for each."""
        whole = super().__repr__()
        if not self._specs:
            return f"{self._name()}({', '.join(self._lines())})"
        if whole.count("\n") < MOST_LINES:
            return whole
        table = self.to_pandas().itertuples(index=False)
        lines = [f"    {key}: {kind}({shape}, {dtype})" for key, kind, shape, dtype in table]
        lines += [f"    {show_key(key)}: None" for key, spec in self._leaves() if spec is None]
        end = f"    device={self.device}, shape={self.shape})"
        return few_lines("\n".join((f"{self._name()}(", *lines, end)))

    def _repr_html_(self) -> str:
        return html_table(f"{self._name()}, shape {[*self.shape]}", self.to_pandas())

    def to_pandas(self) -> pandas.DataFrame:
        """Return a table of the entries: key, kind of spec, shape and dtype."""
        import pandas  # slow to import

        specs = [(key, spec) for key, spec in self._leaves() if spec is not None]
        columns = {
            "key": [show_key(key) for key, _ in specs],
            "spec": [spec._name() for _, spec in specs],
            "shape": [[*spec.shape] for _, spec in specs],
            "dtype": [str(spec.dtype).removeprefix("torch.") for _, spec in specs],
        }
        return pandas.DataFrame(columns)

    def _leaves(self) -> list[tuple[Any, Any]]:
        entries = self.items(include_nested=True, leaves_only=True)
        return [((key,) if isinstance(key, str) else key, spec) for key, spec in entries]

    def _lines(self) -> list[str]:
        entries = [f"{name}: {spec!r}" for name, spec in self._specs.items()]
        return [*entries, f"device={self.device}", f"shape={self.shape}"]


def _is_empty(spec: TensorSpec) -> bool:
    return isinstance(spec, Composite) and spec.is_empty()


def _has(value: Any, name: str) -> bool:
    return hasattr(value, "keys") and name in value.keys()  # noqa: SIM118
