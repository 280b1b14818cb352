"""A step: a function, or a pipeline, over one dataset or several, as ``rlds.toml`` has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from datasets_cli.catalogue.names import is_glob
from datasets_cli.errors import UsageError
from datasets_cli.preprocessing.derived import derived_id
from datasets_cli.preprocessing.functions import split_function
from datasets_cli.preprocessing.options import Per, PreprocessOptions
from datasets_cli.preprocessing.pipelines.pipeline import NAMES, Pipeline

NAME = "{name}"


@dataclass(frozen=True)
class PreprocessStep:
    """A function over datasets, by its name, or a pipeline.

    Args:
        input: an id, a name that resolves to one, a glob over what is installed, or several of
            them. A glob matches derived datasets only where it begins with ``derived/``, and never
            what this step makes.
        fn: ``module:function``; or a ``Pipeline``, whose values ``rlds.toml`` has in its place.
        out: name of the new dataset; ``{name}`` in it stands for the last part of the input's id.
        per: ``"trajectory"``, or ``"transition"`` where the function looks at rows alone.
        chunksize: rows that the function takes at once, at least, to the next end of a trajectory.
        num_frames: only the first ``num_frames`` rows.
        seed: seeds torch for every chunk, and draws ``max_trajectories``.
        where: only trajectories for which a condition holds.
        max_trajectories: at most this many of these.

    Raises:
        UsageError: a value is of another type or out of range.
    """

    input: str | tuple[str, ...]
    fn: str | Pipeline
    out: str
    per: Per = "trajectory"
    chunksize: int | None = None
    num_frames: int | None = None
    seed: int = 0
    where: str | None = None
    max_trajectories: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.input, list):
            object.__setattr__(self, "input", tuple(self.input))
        for name, value in self._values().items():
            _check(name, value)
        if isinstance(self.fn, str):
            split_function(self.fn)
        _ = self.options  # refuses what is out of range
        if self.seed and isinstance(self.fn, Pipeline) and self.max_trajectories is None:
            raise UsageError(
                "seed draws max_trajectories, and is for functions that draw; neither is given, "
                "and transforms draw nothing. Leave it out"
            )
        self.out_of("family/name")

    @property
    def inputs(self) -> tuple[str, ...]:
        """The ids and globs."""
        return (self.input,) if isinstance(self.input, str) else self.input

    @property
    def is_single(self) -> bool:
        """Whether it is over one dataset, by its id."""
        return len(self.inputs) == 1 and not is_glob(self.inputs[0])

    @property
    def options(self) -> PreprocessOptions:
        """What decides the values, besides the input and the function."""
        return PreprocessOptions(
            self.num_frames,
            self.chunksize,
            None,
            self.per,
            self.seed,
            self.where,
            self.max_trajectories,
        )

    def out_of(self, id: str) -> str:
        """Return the id of what is made of one input.

        Raises:
            UsageError: it cannot be an id.
        """
        name = self.out.replace(NAME, id.rpartition("/")[2])
        if "{" in name or "}" in name:
            raise UsageError(f"The out {self.out!r} has braces. Expected none, or {NAME}.")
        return derived_id(name)

    def to_json(self) -> dict[str, Any]:
        """Return what differs from the defaults, as JSON values: what ``rlds.toml`` has."""
        named = self._values()
        if isinstance(self.fn, Pipeline):
            del named["fn"]
            named |= self.fn.to_json()
        return named

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Self:
        """Return the step that a table of ``rlds.toml`` is, or a call of the command.

        Args:
            table: its fields by their names, those of a ``Pipeline`` beside the others.

        Raises:
            UsageError: a key is unknown or missing, or a value is of another type.
        """
        names = [*(field.name for field in fields(cls)), *NAMES]
        if unknown := [name for name in table if name not in names]:
            raise UsageError(f"there is no key {', '.join(unknown)}; expected {', '.join(names)}")
        does = {name: value for name, value in table.items() if name in NAMES}
        needs_none = does or "where" in table or "max_trajectories" in table
        needed = ("input", "out") if needs_none else ("input", "fn", "out")
        if missing := [name for name in needed if name not in table]:
            raise UsageError(
                f"{' and '.join(missing)} is missing; expected at least input, fn and out, such as "
                'input = "hopper-*", fn = "mycode:scale", out = "{name}-scaled", or in place of fn '
                'what needs no function, such as cast = "float32"'
            )
        if does and "fn" in table:
            raise UsageError(
                f"fn cannot stand beside {', '.join(does)}, because nothing says which is done "
                "first. Make two calls or steps of it, the second of which reads what the first "
                "makes"
            )
        rest = {name: value for name, value in table.items() if name not in does}
        return cls(**{"fn": Pipeline.from_json(does), **rest})

    def _values(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        defaults = {field.name: field.default for field in fields(self)}
        named = {name: value for name, value in values.items() if value != defaults[name]}
        if isinstance(self.input, tuple):
            named["input"] = list(self.input)
        return named


def _check(name: str, value: Any) -> None:
    """Refuse a value of another type; True is no number."""
    if name == "fn" and isinstance(value, Pipeline):
        return
    if name in ("chunksize", "num_frames", "seed", "max_trajectories"):
        if type(value) is not int:
            raise UsageError(f"{name} is {value!r}; expected a whole number")
    elif name == "input" and isinstance(value, list):
        if not value or not all(isinstance(each, str) and each for each in value):
            raise UsageError(f"input is {value!r}; expected ids or globs, at least one")
    elif not isinstance(value, str):
        raise UsageError(f"{name} is {value!r}; expected text")
