"""Several specs by name: what a TensorDict may be."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import torch
from tensordict import TensorDict

from datasets_cli.errors import UsageError
from datasets_cli.quantities import MOST_LINES, few_lines, html_table
from datasets_cli.replay.torchrl_words import Word, takes
from datasets_cli.schema.columns import show_key
from datasets_cli.specs.arguments import Change, ShapeLike, shape_of
from datasets_cli.specs.entries import SpecEntries
from datasets_cli.specs.spec import TensorSpec

if TYPE_CHECKING:
    import pandas


@takes(
    batch_size=Word(None, means="shape"),
    data_cls=Word(None, instead="Values are TensorDicts."),
    step_mdp_static=Word(False, instead="What step_mdp keeps, it says itself."),
)
class Composite(SpecEntries):
    """What the entries of a TensorDict may be, by name.

    ``Composite(observation=Bounded(-1, 1, (4,)), reward=Unbounded((1,))).rand((32,))`` is a
    TensorDict ``[32]``. Specs can be put into it, ``composite["action"] = OneHot(3)``, and taken
    out, ``del composite["action"]``. None keeps a name free: it has no values.

    Args:
        args: one mapping of names to specs; mappings in it are specs of nested entries.
        shape: the batch size, with which the shape of each spec begins.
        device: where all values are; wherever the specs say where None.
        names: of the dimensions of ``shape``, which TensorDicts have, too.
        specs: further specs by name. TorchRL's specs become ours.

    Raises:
        UsageError: a spec has another batch size or device, or something is not a spec.
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
            raise UsageError("Composite takes one mapping of names to specs, or specs by name.")
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
        """The names of the dimensions; None where one has none."""
        return [None] * self.ndim if self._names is None else [*self._names]

    @names.setter
    def names(self, names: Sequence[str | None] | None) -> None:
        if names is not None and len(names) != self.ndim:
            raise UsageError(f"There are {self.ndim} dimensions to be named, not {[*names]}.")
        self._names = None if names is None else [*names]
        for _, spec in self._filled() if names is not None else ():
            if isinstance(spec, Composite):
                spec.names = [*self.names, *[None] * (spec.ndim - self.ndim)]

    # -- values

    @property
    def batch_size(self) -> torch.Size:
        """``shape``, by the name that it has in a TensorDict."""
        return self.shape

    def rand(self, shape: ShapeLike | None = None) -> TensorDict:
        """Return a TensorDict ``[*shape, *self.shape]`` of random values, drawn in this order."""
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
        """Return whether each entry that has a spec is there and in it; others may be there."""
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
        """Return a TensorDict whose entries are the nearest of their specs; see ``TensorSpec``.

        The tensors of entries that are in their specs are those of ``value``, which is not changed.

        Raises:
            UsageError: an entry is missing, or of another shape.
        """
        missing = [
            name for name, spec in self._filled() if not (_has(value, name) or _is_empty(spec))
        ]
        if missing:
            raise UsageError(f"{missing} are missing in {value}.")
        if self.is_in(value):
            return value
        projected = value.copy()
        for name, spec in self._filled():
            if not _is_empty(spec):
                projected[name] = spec.project(value.get(name))
        return projected

    def encode(self, value: Any, *, ignore_device: bool = False) -> TensorDict:
        """Return what an environment gives, a mapping by name, as a TensorDict.

        Raises:
            UsageError: a name has no spec; or as the specs of the entries.
        """
        unknown = [name for name in value.keys() if self.get(name) is None]  # noqa: SIM118
        if unknown:
            raise UsageError(f"{unknown} have no spec. There are specs of {[*self._specs]}.")
        encoded = {
            name: self._specs[name].encode(each, ignore_device=ignore_device)
            for name, each in value.items()
        }
        device = None if ignore_device else self.device
        return TensorDict(encoded, batch_size=self.shape, device=device, names=self._names)

    def to_numpy(self, value: Any, safe: bool | None = None) -> dict[str, Any]:
        """Return the entries of a TensorDict as environments take them, nested ones as dicts."""
        return {name: spec.to_numpy(value.get(name), safe) for name, spec in self._filled()}

    def cardinality(self) -> int | float:
        """Return the product of how many values each entry has."""
        return math.prod(spec.cardinality() for _, spec in self._filled())

    def enumerate(self, use_mask: bool = False) -> TensorDict:
        """Return all combinations of the entries' values, as a TensorDict ``[N, *self.shape]``.

        Raises:
            UsageError: those of an entry cannot be counted.
        """
        combinations = TensorDict({}, batch_size=(1, *self.shape), device=self.device)
        for name, spec in self._filled():
            values, num_before = spec.enumerate(use_mask), len(combinations)
            # Each combination so far, as often as there are values: the last entry is the fastest.
            combinations = combinations.repeat_interleave(len(values), dim=0)
            combinations[name] = torch.cat([values] * num_before)
        return combinations

    # -- other specs

    def _changed(self, change: Change) -> Self:
        specs = self._each(lambda spec: spec._with(change))
        changed = super()._changed(change)._like_this(_specs=specs, _is_locked=False)
        if self._names is not None:
            named: Any = TensorDict({}, batch_size=self.shape, names=self._names)
            changed._names = change(named).names  # type: ignore[attr-defined]
        return changed

    def _each(self, change: Callable[[Any], Any]) -> dict[str, Any]:
        """Return what becomes of each entry; names that are kept free stay so."""
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
        """Show all of each spec where that takes few lines, else a line each."""
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
        """Return a table of the entries: key, kind of spec, shape and element type."""
        import pandas  # heavy, and few ask for it

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


CompositeSpec = Composite


def _is_empty(spec: TensorSpec) -> bool:
    return isinstance(spec, Composite) and spec.is_empty()


def _has(value: Any, name: str) -> bool:
    return hasattr(value, "keys") and name in value.keys()  # noqa: SIM118
