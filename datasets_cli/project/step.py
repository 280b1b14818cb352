"""A step of ``rlds.toml``: a function or a pipeline over one dataset or several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from datasets_cli.catalogue.names import INSTALLED_IDS, is_glob
from datasets_cli.core.options import parameters_of, part_of
from datasets_cli.errors import UsageError, argument, wrong_value
from datasets_cli.preprocessing.function import FUNCTION_NAME, split_function
from datasets_cli.preprocessing.options import PreprocessOptions
from datasets_cli.preprocessing.pipeline import NAMES, Pipeline

NAME = "{name}"
DEFAULTS = {each.name: each.default for each in parameters_of(PreprocessOptions)}


@dataclass(frozen=True)
class PreprocessStep(PreprocessOptions):
    """A function, by its name, or a pipeline, over one dataset or several.

    Args:
        input: an id, a name that resolves to one, a glob over installed datasets, or several of
            them. A glob matches derived datasets only if it begins with ``derived/``, and never
            the results of this step.
        fn: ``module:function``; or a ``Pipeline``, whose values are keys of ``rlds.toml``.
        name: name of the new dataset; ``{name}`` in it is the last part of the input's id.

    The other arguments are those of ``preprocess``.

    Raises:
        UsageError: a value is of another type or out of range.
    """

    input: str | tuple[str, ...] = field(
        metadata={
            **INSTALLED_IDS,
            **{"typed": list[str], "needed": False},
            "help": "Ids or globs of installed datasets.",
        }
    )
    fn: str | Pipeline = field(
        metadata={
            **{"metavar": "MODULE:FUNCTION", "needed": False},
            "help": "Function that maps a TensorDict [n] to a TensorDict [n].",
        }
    )
    name: str = field(
        metadata={
            **{"metavar": "NAME", "needed": False, "complete": "derived_names"},
            "help": (
                "Name of the result, derived/NAME; {name} is the last part of the input's id. "
                "FAMILY/NAME of another family joins the inputs."
            ),
        }
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.input, list):
            object.__setattr__(self, "input", tuple(self.input))
        inputs = self.inputs if isinstance(self.inputs, tuple) else ()
        if not inputs or not all(isinstance(each, str) and each for each in inputs):
            raise wrong_value("input", "ids or globs, at least one", self.input)
        refuse_functions(inputs)
        for name, value, kinds in (("fn", self.fn, str | Pipeline), ("name", self.name, str)):
            if not isinstance(value, kinds):
                raise wrong_value(name, "text", value)
        if isinstance(self.fn, str):
            split_function(self.fn)
        elif self.seed and self.max_trajectories is None:
            raise UsageError(
                f"{argument('seed')} chooses {argument('max_trajectories')} and seeds random "
                "functions; neither is given, and transforms are not random.",
                argument="seed",
                found=self.seed,
                advice="Leave it out.",
            )
        self.result_id("family/name")

    @property
    def inputs(self) -> tuple[str, ...]:
        """The ids and globs."""
        return (self.input,) if isinstance(self.input, str) else self.input

    @property
    def is_single(self) -> bool:
        """Whether the input is one dataset, by its id."""
        return len(self.inputs) == 1 and not is_glob(self.inputs[0])

    @property
    def options(self) -> PreprocessOptions:
        """The options that decide the values, besides the input and the function."""
        return part_of(self, PreprocessOptions)

    def result_id(self, id: str) -> str:
        """Return the id of the result for one input.

        Raises:
            UsageError: the name cannot be that of a dataset.
        """
        from datasets_cli.preprocessing.derivation import derived_id  # with torch

        name = self.name.replace(NAME, id.rpartition("/")[2])
        if "{" in name or "}" in name:
            raise UsageError(
                f"{argument('name')} {self.name!r} has braces. Expected none, or {NAME}.",
                argument="name",
                expected=NAME,
                found=self.name,
            )
        return derived_id(name)

    def to_json(self) -> dict[str, Any]:
        """Return the values that differ from the defaults, as written in ``rlds.toml``."""
        options = {name: getattr(self, name) for name in DEFAULTS}
        return {
            "input": list(self.input) if isinstance(self.input, tuple) else self.input,
            **({"fn": self.fn} if isinstance(self.fn, str) else {}),
            "name": self.name,
            **{name: value for name, value in options.items() if value != DEFAULTS[name]},
            **(self.fn.to_json() if isinstance(self.fn, Pipeline) else {}),
        }

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Self:
        """Return the step of a table of ``rlds.toml``, or of the options of a command.

        Args:
            table: the fields by their names, including the fields of a ``Pipeline``.

        Raises:
            UsageError: a key is unknown or missing, or a value is of another type.
        """
        names = ["input", "fn", "name", *DEFAULTS, *NAMES]
        if unknown := [name for name in table if name not in names]:
            raise UsageError(
                f"unknown key {', '.join(unknown)}; expected {', '.join(names)}.",
                argument=unknown[0],
                expected=names,
            )
        does = {name: value for name, value in table.items() if name in NAMES}
        needs_none = does or "where" in table or "max_trajectories" in table
        needed = ("input", "name") if needs_none else ("input", "fn", "name")
        if missing := [name for name in needed if name not in table]:
            raise UsageError(
                f"{' and '.join(missing)} is missing; expected at least input, fn and name, such "
                'as input = "hopper-*", fn = "mycode:scale", name = "{name}-scaled". Transforms '
                'such as cast = "float32" can replace fn.',
                argument=missing[0],
                expected=needed,
                found=[*table],
            )
        if does and "fn" in table:
            raise UsageError(
                f"{argument('fn')} and {', '.join(map(argument, does))} exclude each other: their "
                "order is not defined.",
                argument="fn",
                found=table["fn"],
                advice="Use two calls or steps, the second of which reads the result of the first.",
            )
        rest = {name: value for name, value in table.items() if name not in does}
        return cls(**{"fn": Pipeline.from_json(does), **rest})


def refuse_functions(ids: Iterable[str]) -> None:
    """Refuse ``module:function`` among ids, which was meant as ``fn``."""
    for id in ids:
        if FUNCTION_NAME.fullmatch(id):
            raise UsageError(
                f"{id} is a function, and not a dataset id.",
                argument="fn",
                found=id,
                advice=f"Pass it as {argument('fn', id)}.",
            )
