"""Several specs by name: what a TensorDict may be."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

import torch
from tensordict import TensorDict

from datasets_cli.errors import UsageError
from datasets_cli.quantities import MOST_LINES, few_lines, html_table
from datasets_cli.schema.columns import show_key
from datasets_cli.specs.arguments import Change, ShapeLike, shape_of
from datasets_cli.specs.spec import TensorSpec

if TYPE_CHECKING:
    import pandas

EntryKey = str | tuple[str, ...]


class Composite(TensorSpec):
    """What the entries of a TensorDict may be, by name.

    ``Composite(observation=Bounded(-1, 1, (4,)), reward=Unbounded((1,))).rand((32,))`` is a
    TensorDict ``[32]``. Specs can be put into it, ``composite["action"] = OneHot(3)``.

    Args:
        args: one mapping of names to specs; mappings in it are specs of nested entries.
        shape: the batch size, with which the shape of each spec begins.
        device: where all values are; wherever the specs say where None.
        specs: further specs by name.

    Raises:
        UsageError: a spec has another batch size or device, or something is not a spec.
    """

    def __init__(
        self,
        *args: Mapping[str, Any],
        shape: ShapeLike | None = None,
        device: str | torch.device | None = None,
        **specs: Any,
    ) -> None:
        if len(args) > 1 or not all(isinstance(each, Mapping | Composite) for each in args):
            raise UsageError("Composite takes one mapping of names to specs, or specs by name.")
        super().__init__(shape_of(shape), None, device)
        self.device = None if device is None else self.device
        self.dtype = self.domain = None
        self._specs: dict[str, TensorSpec] = {}
        for name, spec in (*(args[0].items() if args else ()), *specs.items()):
            self[name] = spec

    # -- entries

    def __setitem__(self, key: EntryKey, spec: Any) -> None:
        """Put a spec under a name, or under the last of several nested ones."""
        name, *below = (key,) if isinstance(key, str) else key
        if below:
            inner = self._specs.get(name, Composite(shape=self.shape, device=self.device))
            if not isinstance(inner, Composite):
                raise UsageError(f"{name!r} is not a Composite, so that {key!r} cannot be in it.")
            inner = inner.clone()
            inner[tuple(below)] = spec
            spec = inner
        self._specs[name] = self._fitting(name, spec)

    def _fitting(self, name: str, spec: Any) -> TensorSpec:
        if isinstance(spec, Mapping):
            spec = Composite(spec, shape=self.shape, device=self.device)
        if not isinstance(spec, TensorSpec):
            raise UsageError(f"{name!r} must be a spec, not {type(spec).__name__} {spec!r}.")
        if isinstance(spec, Composite) and spec.ndim < self.ndim:
            spec = Composite(dict(spec.items()), shape=self.shape, device=spec.device)
        if spec.shape[: self.ndim] != self.shape:
            raise UsageError(
                f"The shape of {name!r} is {tuple(spec.shape)}, and must begin with that of its "
                f"Composite, {tuple(self.shape)}."
            )
        moved: TensorSpec = spec if spec.device is not None else spec.to(self.device)
        if self.device is not None and moved.device not in (self.device, None):
            raise UsageError(f"{name!r} is on {spec.device}, its Composite on {self.device}.")
        return moved

    def __getitem__(self, index: Any) -> Any:
        """Return a spec by its name or nested names, or that of indexed TensorDicts."""
        key = (index,) if isinstance(index, str) else index
        if not (isinstance(key, tuple) and key and all(isinstance(name, str) for name in key)):
            return super().__getitem__(index)
        name, *below = key
        if name not in self._specs:
            raise KeyError(f"There is no spec {index!r} among {[*self._specs]}.")
        spec = self._specs[name]
        if not below:
            return spec
        if not isinstance(spec, Composite):
            raise KeyError(f"There is no spec {index!r}: {name!r} is not a Composite.")
        return spec[tuple(below)]

    def get(self, key: EntryKey, default: Any = None) -> Any:
        """Return a spec by its name or nested names, ``default`` where there is none."""
        try:
            return self[key]
        except KeyError:
            return default

    def __contains__(self, key: EntryKey) -> bool:
        return self.get(key) is not None

    def items(
        self, include_nested: bool = False, leaves_only: bool = False
    ) -> Iterator[tuple[Any, TensorSpec]]:
        """Return names and specs.

        Args:
            include_nested: also those inside of others, by tuples of names.
            leaves_only: without those that have others inside.
        """
        for name, spec in self._specs.items():
            if not (leaves_only and isinstance(spec, Composite)):
                yield name, spec
            if include_nested and isinstance(spec, Composite):
                for key, inner in spec.items(include_nested, leaves_only):
                    below = (key,) if isinstance(key, str) else key
                    yield (name, *below), inner

    def keys(self, include_nested: bool = False, leaves_only: bool = False) -> list[Any]:
        """Return names; see ``items``."""
        return [key for key, _ in self.items(include_nested, leaves_only)]

    def values(self, include_nested: bool = False, leaves_only: bool = False) -> list[TensorSpec]:
        """Return specs; see ``items``."""
        return [spec for _, spec in self.items(include_nested, leaves_only)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)

    @property
    def batch_size(self) -> torch.Size:
        """``shape``, by the name that it has in a TensorDict."""
        return self.shape

    # -- values

    def rand(self, shape: ShapeLike | None = None) -> TensorDict:
        """Return a TensorDict ``[*shape, *self.shape]`` of random values, drawn in this order."""
        return self._made("rand", shape)

    def zero(self, shape: ShapeLike | None = None) -> TensorDict:
        return self._made("zero", shape)

    def one(self, shape: ShapeLike | None = None) -> TensorDict:
        return self._made("one", shape)

    def _made(self, method: str, shape: ShapeLike | None) -> TensorDict:
        values = {name: getattr(spec, method)(shape) for name, spec in self._specs.items()}
        return TensorDict(values, batch_size=self._size(shape), device=self.device)

    def is_in(self, value: Any) -> bool:
        """Return whether each entry that has a spec is there and in it; others may be there."""
        return all(
            _has(value, name) and spec.is_in(value.get(name)) for name, spec in self._specs.items()
        )

    def type_check(self, value: Any) -> None:
        for key, spec in self.items(include_nested=True, leaves_only=True):
            try:
                spec.type_check(value[key])
            except TypeError as error:
                raise TypeError(f"{key!r}: {error}") from error

    def project(self, value: Any) -> Any:
        """Return a TensorDict whose entries are the nearest of their specs; see ``TensorSpec``.

        The tensors of entries that are in their specs are those of ``value``, which is not changed.

        Raises:
            UsageError: an entry is missing, or of another shape.
        """
        missing = [name for name in self._specs if not _has(value, name)]
        if missing:
            raise UsageError(f"{missing} are missing in {value}.")
        if self.is_in(value):
            return value
        projected = value.copy()
        for name, spec in self._specs.items():
            projected[name] = spec.project(value.get(name))
        return projected

    def encode(self, value: Any) -> TensorDict:
        """Return what an environment gives, a mapping by name, as a TensorDict.

        Raises:
            UsageError: a name has no spec; or as the specs of the entries.
        """
        unknown = [name for name in value.keys() if name not in self._specs]  # noqa: SIM118
        if unknown:
            raise UsageError(f"{unknown} have no spec. There are specs of {[*self._specs]}.")
        encoded = {name: self._specs[name].encode(each) for name, each in value.items()}
        return TensorDict(encoded, batch_size=self.shape, device=self.device)

    def to_numpy(self, value: Any) -> dict[str, Any]:
        """Return the entries of a TensorDict as environments take them, nested ones as dicts."""
        return {name: spec.to_numpy(value.get(name)) for name, spec in self._specs.items()}

    def cardinality(self) -> int | float:
        """Return the product of how many values each entry has."""
        return math.prod(spec.cardinality() for spec in self._specs.values())

    def enumerate(self) -> TensorDict:
        """Return all combinations of the entries' values, as a TensorDict ``[N, *self.shape]``.

        Raises:
            UsageError: those of an entry cannot be counted.
        """
        combinations = TensorDict({}, batch_size=(1, *self.shape), device=self.device)
        for name, spec in self._specs.items():
            values, num_before = spec.enumerate(), len(combinations)
            # Each combination so far, as often as there are values: the last entry is the fastest.
            combinations = combinations.repeat_interleave(len(values), dim=0)
            combinations[name] = torch.cat([values] * num_before)
        return combinations

    # -- other specs

    def _changed(self, change: Change) -> Self:
        specs = {name: spec._with(change) for name, spec in self._specs.items()}
        return super()._changed(change)._like_this(_specs=specs)

    def to(self, destination: str | torch.device | torch.dtype | None) -> Composite:
        if destination is None:
            return self
        specs = {name: spec.to(destination) for name, spec in self._specs.items()}
        device = self.device if isinstance(destination, torch.dtype) else destination
        return Composite(specs, shape=self.shape, device=device)

    def _has_values_of(self, other: Any) -> bool:
        return bool(self._specs == other._specs)

    def __repr__(self) -> str:
        """Show all of each spec where that takes few lines, else a line each."""
        whole = super().__repr__()
        if whole.count("\n") < MOST_LINES:
            return whole
        table = self.to_pandas().itertuples(index=False)
        lines = [f"    {key}: {kind}({shape}, {dtype})" for key, kind, shape, dtype in table]
        end = f"    device={self.device}, shape={self.shape})"
        return few_lines("\n".join((f"{self._name()}(", *lines, end)))

    def _repr_html_(self) -> str:
        return html_table(f"{self._name()}, shape {[*self.shape]}", self.to_pandas())

    def to_pandas(self) -> pandas.DataFrame:
        """Return a table of the entries: key, kind of spec, shape and element type."""
        import pandas  # heavy, and few ask for it

        specs = [*self.items(include_nested=True, leaves_only=True)]
        columns = {
            "key": [show_key((key,) if isinstance(key, str) else key) for key, _ in specs],
            "spec": [spec._name() for _, spec in specs],
            "shape": [[*spec.shape] for _, spec in specs],
            "dtype": [str(spec.dtype).removeprefix("torch.") for _, spec in specs],
        }
        return pandas.DataFrame(columns)

    def _lines(self) -> list[str]:
        entries = [f"{name}: {spec!r}" for name, spec in self._specs.items()]
        return [*entries, f"device={self.device}", f"shape={self.shape}"]


CompositeSpec = Composite


def _has(value: Any, name: str) -> bool:
    return hasattr(value, "keys") and name in value.keys()  # noqa: SIM118
