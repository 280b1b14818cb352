"""Declarations: tables ``[data.NAME]`` of ``rlds.toml``, checked, and their datasets."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from datasets_cli.core.checked_json import Check, JsonForm, decode
from datasets_cli.errors import UsageError
from datasets_cli.preprocessing.function import split_function
from datasets_cli.store.content import canonical_json

OF_BOTH = ("batch_size", "num_slices", "slice_len", "seed")
OF_DATASETS = ("frame_stack", "replacement")
OF_MIXTURES = ("weights", "epoch", "accept")
DRAWS = (*OF_BOTH, *OF_DATASETS, *OF_MIXTURES)
"""Keys that are arguments of ``ExperienceReplay`` or ``Mixture``, by the same names."""

Text = Annotated[str, Check("text", bool)]
Texts = Annotated[tuple[Text, ...], Check("a list of texts", bool)]
Whole = Annotated[int, Check("a whole number of 0 or more", lambda number: number >= 0)]
Names = Annotated[
    tuple[Text, ...],
    Check("or a list of names", lambda names: names and len({*names}) == len(names)),
]
Weights = Annotated[
    Mapping[str, float],
    Check("names with weights above 0", lambda all: all and min(all.values()) > 0),
]
ColumnValues = Mapping[str, Any]


@dataclass(frozen=True)
class DeclaredDataset(JsonForm):
    """The data that a table ``[data.NAME]`` declares.

    Args:
        name: name of the table.
        num_transitions: number of transitions.
        num_trajectories: number of trajectories.
        identity: everything that decides the batches, as JSON values: contents of the datasets,
            digests of views and functions, weights, arguments of the draws.
    """

    JSON = "name digest num_transitions num_trajectories identity"

    name: str
    num_transitions: int
    num_trajectories: int
    identity: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """The sha256 of the identity, as 64 hexadecimal digits; equal for equal batches."""
        return hashlib.sha256(canonical_json(self.identity)).hexdigest()


@dataclass(frozen=True)
class View:
    """A step of ``views``: a method of ``ExperienceReplay`` that chooses trajectories.

    The last four are arguments of ``split`` and ``take``.
    """

    CLOSED = True

    episodes_at: Annotated[tuple[Whole, ...], Check("a list of whole numbers", bool)] | None = None
    filter: Annotated[str, Check("a condition, such as 'return > 300'", bool)] | None = None
    split: Annotated[tuple[float, ...], Check("a list of fractions", bool)] | None = None
    take: float | None = None
    rows: (
        Annotated[tuple[Whole, ...], Check("two whole numbers", lambda rows: len(rows) == 2)] | None
    ) = None
    seed: Whole | None = None
    part: Whole | None = None
    by: Annotated[str, Check("a column of trajectories, such as -return", bool)] | None = None

    def __post_init__(self) -> None:
        chosen = [name for name in METHODS if getattr(self, name) is not None]
        if len(chosen) != 1:
            raise UsageError(
                f"views has {fields_of(self)}; expected one of {', '.join(METHODS)}.",
                argument="views",
                expected=METHODS,
                found=chosen,
            )
        for name in fields_of(self):
            if name not in (*METHODS, *ARGUMENTS.get(chosen[0], ())):
                raise UsageError(
                    f"views has {fields_of(self)}, and {chosen[0]} has no argument {name}.",
                    argument="views",
                    expected=ARGUMENTS.get(chosen[0], ()),
                    found=name,
                )


METHODS = ("episodes_at", "filter", "split", "take", "rows")
ARGUMENTS = {"split": ("seed", "part"), "take": ("by",)}


@dataclass(frozen=True)
class MemberColumns:
    """The mapping of a member's columns: arguments of ``Member``."""

    CLOSED = True

    drop: tuple[str, ...] | None = None
    rename: Mapping[str, str] | None = None
    scale: ColumnValues | None = None
    cast: ColumnValues | None = None
    fill: ColumnValues | None = None
    pad: ColumnValues | None = None


@dataclass(frozen=True)
class Declaration:
    """The data of an experiment: one dataset, or several that are mixed."""

    CLOSED = True

    dataset: Annotated[str, Check("an id", bool)] | None = None
    members: Weights | Names | None = None
    weights: Literal["rows", "trajectories"] | None = None
    views: Annotated[tuple[View, ...], Check("a list of tables", bool)] | None = None
    transforms: Texts | None = None
    replacement: bool | None = None
    epoch: Literal["all", "first", "last"] | None = None
    accept: Texts | None = None
    map: Mapping[str, MemberColumns] | None = None
    batch_size: Whole | None = None
    num_slices: Whole | None = None
    slice_len: Whole | None = None
    frame_stack: Whole | None = None
    seed: Whole | None = None

    def __post_init__(self) -> None:
        if (self.dataset is None) == (self.members is None):
            raise UsageError(
                "expected either dataset, of one dataset, or members, of a mixture.",
                argument="dataset",
            )
        what, others = "a dataset", {*OF_MIXTURES, "map"}
        if self.dataset is None:
            what, others = "a mixture", {*OF_DATASETS, "views"}
        if wrong := [key for key in fields_of(self) if key in others]:
            keys = ", ".join(each.name for each in fields(self) if each.name not in others)
            raise UsageError(
                f"{wrong[0]} is not a key of {what}; expected some of {keys}.",
                argument=wrong[0],
            )
        if self.num_slices is not None and self.slice_len is not None:
            raise UsageError(
                "num_slices and slice_len exclude each other; give one.", argument="slice_len"
            )
        if isinstance(self.members, Mapping) and self.weights is not None:
            raise UsageError(
                "members already have weights; leave weights out.",
                argument="weights",
                found=self.weights,
            )
        if unknown := [name for name in self.map or () if name not in self.weight_of]:
            raise UsageError(
                f"map has {unknown[0]}, which is not a member.",
                argument="map",
                expected=[*self.weight_of],
                found=unknown[0],
            )
        for text in self.transforms or ():
            split_function(text)

    @property
    def weight_of(self) -> dict[str, float | None]:
        """The weights of the members; None for members without."""
        members = self.members or ()
        return dict(members) if isinstance(members, Mapping) else dict.fromkeys(members)

    @property
    def draws(self) -> dict[str, Any]:
        """Arguments of ``ExperienceReplay`` or ``Mixture``."""
        keys = fields_of(self)
        return {name: keys[name] for name in DRAWS if name in keys}


def declaration_of(table: object) -> Declaration:
    """Return the declaration of a table."""
    try:
        return decode(Declaration, table)
    except UsageError:
        raise
    except ValueError as error:
        raise UsageError(str(error).replace(" or null", "")) from error  # TOML has no null


def fields_of(value: Declaration | View | MemberColumns) -> dict[str, Any]:
    """Return the keys of a table with their values."""
    return {name: each for name, each in vars(value).items() if each is not None}
