"""A pipeline: transforms of the library as plain values, in place of a user's function."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

from datasets_cli.core.options import check_numbers
from datasets_cli.errors import UsageError, argument, wrong_value
from datasets_cli.preprocessing.function import FunctionIdentity, RowFunction, digest_of

FLOATS = ("float16", "bfloat16", "float32", "float64")
TYPES = (*FLOATS, "bool", "uint8", "int8", "int16", "int32", "int64")
"""The dtypes that a column can be cast to."""

RULES = 1
"""The version of the meaning of the fields; it is part of the identity of results."""

SeveralTexts = str | Sequence[str]
"""Several texts: a list, or one text with commas."""

_SIZE = re.compile(r"([1-9]\d{0,4})x([1-9]\d{0,4})")


@dataclass(frozen=True)
class Pipeline:
    """A sequence of transforms, which ``preprocess`` takes in place of a function.

        Pipeline(normalise="observation", cast="float32")

    Transforms are applied in the order of the arguments below. Keys are written with dots,
    ``next.observation``; the key of a group means all its columns. Keys refer to the input;
    ``cast``, ``select``, ``exclude`` and ``rename`` also accept columns that earlier transforms
    add.

    Args:
        crop: cut all frames to their middle, ``"HxW"``; frames are columns of bytes with two or
            three dimensions.
        resize: resize all frames, ``"HxW"``; ``Resize`` documents how bytes are rounded.
        normalise: scale columns, and their successors below ``next``, to mean 0 and deviation 1;
            both by the statistics of all rows that are read. Integers become float32.
        returns_to_go: add the column ``"returns_to_go"``, the sum of the rewards from each step on,
            including the final step.
        n_step: make rows span N steps, as ``MultiStep`` does; needs ``gamma``. A row whose span
            reaches a terminal state is marked as terminated.
        gamma: discount factor for ``n_step`` and ``returns_to_go``; 1 by default for the latter.
        cast: cast all columns of floats, ``"float32"``, or one column, ``"action=int64"``.
        select: keep these columns, the reward, the flags and added columns.
        exclude: drop these columns.
        rename: rename a column or a group, ``"observation=state"``.

    Raises:
        UsageError: a value is of another type or out of range.
    """

    crop: str | None = field(
        default=None,
        metadata={"metavar": "HxW", "help": "Crop the center of all frames to HxW pixels."},
    )
    resize: str | None = field(
        default=None, metadata={"metavar": "HxW", "help": "Resize all frames to HxW pixels."}
    )
    normalise: SeveralTexts = field(
        default=(),
        metadata={
            "flag": ("--normalize", "--normalise"),
            "metavar": "KEYS",
            "help": (
                "Scale columns, and their successors below next, to mean 0 and standard "
                "deviation 1."
            ),
        },
    )
    returns_to_go: bool = field(
        default=False,
        metadata={"help": "Add the column returns_to_go, the return from each step to the end."},
    )
    n_step: int | None = field(
        default=None,
        metadata={
            "least": 1,
            "help": "Turn steps into N-step transitions, as MultiStep does; needs --gamma.",
        },
    )
    gamma: float | None = field(
        default=None,
        metadata={"metavar": "G", "help": "Discount factor for --n-step and --returns-to-go."},
    )
    cast: SeveralTexts = field(
        default=(),
        metadata={
            "metavar": "[KEY=]TYPE",
            "help": "Cast all float columns, e.g. float32, or one column, e.g. action=int64.",
        },
    )
    select: SeveralTexts = field(
        default=(),
        metadata={
            "metavar": "KEYS",
            "help": "Keep these columns, the reward, the flags and added columns.",
        },
    )
    exclude: SeveralTexts = field(
        default=(), metadata={"metavar": "KEYS", "help": "Drop these columns."}
    )
    rename: SeveralTexts = field(
        default=(),
        metadata={
            "metavar": "OLD=NEW",
            "help": "Rename a column or a group of columns, e.g. observation=state.",
        },
    )

    def __post_init__(self) -> None:
        for name in ("normalise", "cast", "select", "exclude", "rename"):
            object.__setattr__(self, name, texts_of(name, getattr(self, name)))
        for name in ("crop", "resize"):
            size_of(name, getattr(self, name))
        if not isinstance(self.returns_to_go, bool):
            raise wrong_value("returns_to_go", "true or false", self.returns_to_go)
        check_numbers(self)
        if self.gamma is not None:
            object.__setattr__(self, "gamma", checked_gamma(self.gamma))
        if self.gamma is not None and not self.needs_trajectories:
            raise UsageError(
                f"{argument('gamma')} is the discount factor of {argument('n_step')} or "
                f"{argument('returns_to_go')}; pass one of them.",
                argument="gamma",
                found=self.gamma,
            )
        if self.n_step is not None and self.gamma is None:
            raise UsageError(
                f"{argument('n_step')} needs {argument('gamma')}, the discount factor of a step, "
                "such as 0.99; 1 does not discount.",
                argument="gamma",
            )
        _ = self.casts, self.renames  # parsed, to refuse wrong texts here

    def __str__(self) -> str:
        """The transforms for messages, ``n-step=3, gamma=0.99``; ``copy`` without any."""
        shown = []
        for name, value in self.to_json().items():
            values = ",".join(value) if isinstance(value, list) else value
            shown.append(name.replace("_", "-") + (f"={values}" if value is not True else ""))
        return ", ".join(shown) or "copy"

    @property
    def needs_trajectories(self) -> bool:
        """Whether a row depends on other rows of its trajectory."""
        return self.returns_to_go or self.n_step is not None

    @property
    def sizes(self) -> dict[str, tuple[int, int]]:
        """Height and width of ``crop`` and ``resize``, if given."""
        sizes = {name: size_of(name, getattr(self, name)) for name in ("crop", "resize")}
        return {name: size for name, size in sizes.items() if size is not None}

    @property
    def casts(self) -> list[Cast]:
        """The casts."""
        return [Cast.of(text) for text in self.cast]

    @property
    def renames(self) -> list[tuple[str, str]]:
        """Old and new names, with dots."""
        return pairs_of(self.rename)

    @property
    def identity(self) -> FunctionIdentity:
        """The identity of the pipeline: its name, its digest and its values.

        The digest is computed from the values and ``RULES``, so a new release does not make a
        result outdated that it would not change.
        """
        data = self.to_json()
        digest = digest_of({"pipeline": data, "rules": RULES})
        return FunctionIdentity(str(self), digest, pipeline=data)

    def to_json(self) -> dict[str, Any]:
        """Return the values that differ from the defaults, as written in ``rlds.toml``."""
        document: dict[str, Any] = {}
        for name, value in vars(self).items():
            if value in (None, (), False):
                continue
            is_list = isinstance(value, tuple) and (len(value) > 1 or "," in value[0])
            document[name] = list(value) if is_list else value
            if isinstance(value, tuple) and not is_list:
                document[name] = value[0]
        return document

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> Self:
        """Return the pipeline of plain values, such as a table of ``rlds.toml``.

        Raises:
            UsageError: a transform is unknown, or a value is wrong.
        """
        if unknown := [name for name in table if name not in NAMES]:
            raise UsageError(
                f"unknown transform {', '.join(unknown)}; expected {', '.join(NAMES)}.",
                argument=unknown[0],
                expected=NAMES,
            )
        return cls(**table)


Mapped = RowFunction | Pipeline
"""A function or a pipeline that ``preprocess`` maps over rows."""

NAMES = tuple(each.name for each in fields(Pipeline))
"""The names of the transforms, in their order."""


@dataclass(frozen=True)
class Cast:
    """One cast."""

    key: str | None
    dtype: str

    @classmethod
    def of(cls, text: str) -> Cast:
        """Return the cast of ``float32`` or ``action=int64``."""
        key, equals, dtype = text.rpartition("=")
        if dtype not in TYPES or (equals and not key):
            raise wrong_value(
                "cast",
                "TYPE or KEY=TYPE, such as float32 or action=int64, of the types "
                f"{', '.join(TYPES)}",
                text,
            )
        if not key and dtype not in FLOATS:
            raise UsageError(
                f"{argument('cast')} is {text!r}, which would truncate all columns of "
                "floating-point numbers.",
                argument="cast",
                expected=FLOATS,
                found=text,
                advice=f"Name the column, such as action={dtype}.",
            )
        return cls(key or None, dtype)


def texts_of(name: str, value: object) -> tuple[str, ...]:
    """Return several texts; one text is split at its commas."""
    several: Sequence[object] = value.split(",") if isinstance(value, str) else ()
    if isinstance(value, list | tuple):
        several = [".".join(map(str, each)) if isinstance(each, tuple) else each for each in value]
    texts = tuple(text.strip() for text in several if isinstance(text, str))
    is_known = isinstance(value, str | list | tuple) and len(texts) == len(several)
    if not is_known or not all(texts) or len({*texts}) < len(texts):
        raise wrong_value(name, "names, none empty, each once", value)
    return texts


def size_of(name: str, value: object) -> tuple[int, int] | None:
    """Return height and width of ``"HxW"``; None for None."""
    if value is None:
        return None
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise wrong_value(name, "height and width in pixels, such as 64x64", value)
    return int(match[1]), int(match[2])


def checked_gamma(value: object) -> float:
    """Return a discount as a float."""
    if type(value) not in (int, float) or not 0 < float(value) <= 1:  # type: ignore[arg-type]
        raise wrong_value("gamma", "a number above 0 and up to 1", value)
    return float(value)  # type: ignore[arg-type]


def pairs_of(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Return old and new names."""
    pairs = []
    for text in texts:
        old, equals, new = text.partition("=")
        if not (old and equals and new):
            raise wrong_value("rename", "OLD=NEW, such as observation=state", text)
        pairs.append((old, new))
    names = [name for pair in pairs for name in pair]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(
            f"{argument('rename')} has {', '.join(twice)} twice.",
            argument="rename",
            key=twice[0],
            advice="Give each column one new name; exchanging two names takes two calls.",
        )
    return pairs
