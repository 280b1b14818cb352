"""The entries of a Composite: specs by name, which are put in, found and taken out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

from tensordict import unravel_key

import datasets_cli
from datasets_cli.errors import UnknownKey, UsageError
from datasets_cli.specs.arguments import known_device, shape_of
from datasets_cli.specs.non_tensor import NonTensor
from datasets_cli.specs.spec import TensorSpec

EntryKey = str | tuple[str, ...]
REQUIRED: Any = object()


class SpecKeys(list[Any]):
    """Keys of a Composite, in which a name is found as a tuple, too, such as ``("a",)``."""

    def __contains__(self, key: object) -> bool:
        return super().__contains__(unravel_key(key) if _is_key(key) else key)


class SpecEntries(TensorSpec):
    """Specs by name; None where a name is kept free."""

    _specs: dict[str, Any]
    _is_locked = False

    # -- put in

    def __setitem__(self, key: EntryKey, spec: Any) -> None:
        """Put a spec under a name, or under the last of several nested ones; None keeps it free."""
        name, *below = _names(key)
        if below and self._specs.get(name) is not None:
            self._inner(name)[tuple(below)] = spec
            return
        self._refuse_locked()
        new = self.empty().set(tuple(below), spec) if below else spec
        self._specs[name] = self._fitting(name, new)

    def set(self, name: EntryKey, spec: Any) -> Self:
        """Put a spec under a name, and return this Composite."""
        self[name] = spec
        return self

    def update(self, specs: Any) -> Self:
        """Put in specs by name, those of nested Composites among what they have; return this."""
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
            raise UsageError(
                f"The shape of {name!r} is {tuple(spec.shape)}, and must begin with that of its "
                f"Composite, {tuple(self.shape)}."
            )
        moved: TensorSpec = spec if spec.device is not None else spec.to(self.device)
        if self.device is not None and moved.device not in (self.device, None):
            raise UsageError(f"{name!r} is on {spec.device}, its Composite on {self.device}.")
        return moved

    def _adopted(self, name: str, spec: Any) -> TensorSpec:
        """Return a mapping of specs, or a spec of TorchRL's, as one of ours by its parts."""
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
            raise UsageError(f"{name!r} must be a spec, not {type(spec).__name__} {spec!r}.")
        parts = {part: getattr(spec, part) for part in ("shape", "device", *PARTS[kind])}
        if kind == "MultiOneHot":
            parts["nvec"] = [box.n for box in spec.space]
        made: TensorSpec = getattr(datasets_cli, kind)(**parts)
        return made

    # -- found

    def __getitem__(self, index: Any) -> Any:
        """Return a spec by its name or nested names, or that of indexed TensorDicts."""
        if not _is_key(index):
            return super().__getitem__(index)
        name, *below = _names(index)
        if name not in self._specs:
            raise UnknownKey(f"There is no spec {index!r} among {[*self._specs]}.")
        return self._inner(name)[tuple(below)] if below else self._specs[name]

    def _inner(self, name: str) -> SpecEntries:
        inner = self[name]
        if not isinstance(inner, SpecEntries):
            raise UnknownKey(f"There is no spec in {name!r}, which is not a Composite: {inner!r}.")
        return inner

    def get(self, key: EntryKey, default: Any = None) -> Any:
        """Return a spec by its name or nested names, ``default`` where there is none."""
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
        """Return names and specs, as a TensorDict has them; nothing here is ``step_mdp_static``."""
        for name, spec in self._specs.items():
            if include_nested and isinstance(spec, SpecEntries):
                for key, inner in spec.items(include_nested, leaves_only, is_leaf=is_leaf):
                    yield (name, *_names(key)), inner
            is_kept = is_leaf(type(spec)) if is_leaf else not isinstance(spec, SpecEntries)
            if is_kept or not leaves_only:
                yield name, spec

    def keys(self, *nested: bool, **options: Any) -> list[Any]:
        """Return names; arguments are those of ``items``."""
        return SpecKeys(key for key, _ in self.items(*nested, **options))

    def values(self, *nested: bool, **options: Any) -> list[Any]:
        """Return specs; arguments are those of ``items``."""
        return [spec for _, spec in self.items(*nested, **options)]

    def _filled(self) -> Iterator[tuple[str, TensorSpec]]:
        """Yield names and specs, without names that are kept free."""
        return ((name, spec) for name, spec in self._specs.items() if spec is not None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)

    def is_empty(self, recurse: bool = False) -> bool:
        """Return whether there is no name; by ``recurse``, no spec but Composites without any."""
        if not recurse:
            return not self._specs
        inner = (spec for _, spec in self._filled())
        return all(isinstance(spec, SpecEntries) and spec.is_empty(True) for spec in inner)

    # -- taken out

    def __delitem__(self, key: EntryKey) -> None:
        name, *below = _names(key)
        if below:
            del self._inner(name)[tuple(below)]
            return
        self._refuse_locked()
        del self._specs[name]

    def pop(self, key: EntryKey, default: Any = REQUIRED) -> Any:
        """Take out a spec and return it; ``default`` where there is none."""
        if default is REQUIRED or key in self:
            default = self[key]
            del self[key]
        return default

    def empty(self) -> Self:
        """Return this Composite without its entries."""
        return self._like_this(_specs={}, _is_locked=False)

    # -- changed

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; the shape with that of nested Composites, if all entries have it."""
        if name == "shape" and "_specs" in vars(self):
            self._refuse_locked()
            other = self._like_this(shape=shape_of(value), _names=None)
            specs = {key: other._fitting(key, spec) for key, spec in self._specs.items()}
            vars(self).update(vars(other), _specs=specs)
            return
        super().__setattr__(name, value)

    def clear_device_(self) -> Self:
        """Have no device any more, nor nested ones, and return this Composite."""
        self.device = None
        for _, spec in self._filled():
            spec.clear_device_()
        return self

    def lock_(self, recurse: bool | None = None) -> Self:
        """Refuse changes of entries from now on, of nested ones too unless ``recurse`` is False."""
        self._propagate_lock(recurse is not False)
        return self

    def unlock_(self, recurse: bool | None = None) -> Self:
        """Take changes of entries again, of nested ones too unless ``recurse`` is False."""
        self._propagate_unlock(recurse is not False)
        return self

    def _propagate_lock(self, recurse: bool, is_locked: bool = True, **parents: Any) -> None:
        """Lock or unlock this Composite; TorchRL's call it of those that are in them."""
        self._is_locked = is_locked
        for _, spec in self._filled() if recurse else ():
            if isinstance(spec, SpecEntries):
                spec._propagate_lock(recurse, is_locked)

    def _propagate_unlock(self, recurse: bool) -> list[Any]:
        self._propagate_lock(recurse, is_locked=False)
        return []

    def _check_unlock(self) -> None:
        """Return None: a Composite may be unlocked inside a locked one."""

    @property
    def is_locked(self) -> bool:
        """Whether changes of entries are refused."""
        return self._is_locked

    locked = is_locked

    def _refuse_locked(self) -> None:
        if self._is_locked:
            raise UsageError("A locked Composite cannot be changed. unlock_() it, or clone() it.")


def _is_key(index: Any) -> bool:
    is_names = isinstance(index, tuple) and len(index) > 0 and all(map(_is_key, index))
    return isinstance(index, str) or is_names


def _names(key: Any) -> tuple[str, ...]:
    """Return the names of a key, whose tuples may be nested."""
    if not _is_key(key):
        raise UsageError(f"An entry has a name, or a tuple of nested ones, not {key!r}.")
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
"""What each of TorchRL's specs is made of, but for its shape and device."""
