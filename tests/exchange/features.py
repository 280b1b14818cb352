"""The features that a dataset of one's own can have, each as steps that have it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from tests.exchange.made_steps import Columns

LENGTHS = [3, 1, 2]
COUNT = sum(LENGTHS)
LAST = np.isin(np.arange(COUNT), np.cumsum(LENGTHS) - 1)

NUMPYS = (
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
PACKED = {"bfloat16": "<u2", "float8_e4m3fn": "<u1", "complex32": "<u4"}
TEXTS = {
    "words": ["a", "té ж", "a,b\n", '"', " ", "a"],
    "empty": ["", "", "a", "", "", ""],
    "only empty": [""] * COUNT,
    "zeros at the end": ["a\0", "a", "\0", "b\0\0", "", "a"],
    "a zero inside": ["a\0b", "a", "b", "c", "d", "e"],
    "bytes": ["\udcff", "a", "\udcfe\udcff", "", "b", "c"],
}
SHAPES = [(), (1,), (1, 1), (2, 3), (0,), (3, 0, 2)]
NAMES = ("a.b", "a/b", "..", "a b%", "é", "_index_3", "shape", "keys", "Data.memmap", "0", "a\0")
TOPS = ("weight", "data", "metadata", "observations", "obs", "rewards", "lengths", "ends", "rlds")


def basic() -> Columns:
    """Return steps whose observations chain in each trajectory, and nothing else of note."""
    rng = np.random.default_rng(3)
    return {
        **chained(("observation",), rng.normal(size=(COUNT, 2))),
        ("action",): rng.integers(0, 9, (COUNT, 3)),
        ("next", "reward"): rng.normal(size=(COUNT, 1)),
        ("next", "terminated"): LAST.copy(),
        ("next", "truncated"): np.zeros(COUNT, bool),
    }


def chained(key: tuple[str, ...], after: np.ndarray) -> Columns:
    """Return a column and its successor, which is the column's next row in each trajectory."""
    before = after[::-1].copy()
    for start, stop in pairwise(np.cumsum([0, *LENGTHS])):
        before[start + 1 : stop] = after[start : stop - 1]
    return {key: before, ("next", *key): after}


def bits(dtype: str, shape: tuple[int, ...] = (4,)) -> np.ndarray:
    """Return rows of any bits: NaN with payloads, -0.0, infinities and the largest numbers."""
    kind = np.dtype([(dtype, PACKED[dtype])]) if dtype in PACKED else np.dtype(dtype)
    data = np.random.default_rng(5).bytes(COUNT * int(np.prod(shape)) * kind.itemsize)
    if dtype == "bool":
        return np.frombuffer(data, np.uint8).reshape(COUNT, *shape) > 127
    rows = np.frombuffer(data, kind).reshape(COUNT, *shape).copy()
    if kind.kind == "f" and rows.size:
        rows[0] = [np.nan, -0.0, np.inf, -np.inf]
        width = f"u{kind.itemsize}"
        rows.view(width)[1] = np.array(np.nan, kind).view(width) + 3 + np.arange(4)
    return rows


def _with(**columns: np.ndarray) -> Columns:
    return {**basic(), **{tuple(name.split("__")): rows for name, rows in columns.items()}}


def _nested() -> Columns:
    steps = basic()
    state, after = steps.pop(("observation",)), steps.pop(("next", "observation"))
    steps["observation", "deep", "state"], steps["next", "observation", "deep", "state"] = (
        state,
        after,
    )
    move = steps.pop(("action",))
    frames = np.arange(COUNT * 1800).reshape(COUNT, 30, 20, 3).astype("u1")
    return {
        **steps,
        **chained(("observation", "on"), np.arange(COUNT) % 2 == 0),
        **chained(("observation", "frame"), frames),
        **chained(("observation", "words"), text("words")),
        ("action", "0"): move,
        ("action", "1"): np.arange(COUNT),
        ("action", "words"): text("words"),
        ("next", "reward"): bits("float16")[:, :1],
        ("next", "truncated"): LAST.copy(),
    }


def _jumps() -> Columns:
    steps = basic()
    steps["next", "observation"] = steps["next", "observation"] + 1
    return steps


def _of_one_step() -> Columns:
    return {key: rows[3:4] for key, rows in basic().items()}


def _with_infos(columns: Mapping[str, np.ndarray]) -> Columns:
    return {**basic(), **{("info", name): rows for name, rows in columns.items()}}


def text(name: str) -> np.ndarray:
    """Return texts as objects."""
    return np.array(TEXTS[name], object)


def _infos() -> Columns:
    """Return infos of every type and of many shapes, with their successors and alone."""
    infos = {kind: bits(kind) for kind in (*NUMPYS, *PACKED)}
    infos |= {f"x{number}": bits("int16", shape) for number, shape in enumerate(SHAPES)}
    infos |= {name: text(name) for name in ("words", "empty", "only empty")}
    infos["table of words"] = np.repeat(text("words"), 2).reshape(COUNT, 2)
    return {
        **_with_infos(infos),
        **chained(("info", "speed"), bits("float32")),
        ("next", "info", "later"): bits("float32"),
    }


def _without_successors() -> Columns:
    steps = {**basic(), ("action",): np.arange(COUNT)}
    del steps["next", "observation"]
    return {**steps, ("info", "x"): bits("int8", (0,)), ("info", "y"): bits("int8", (2, 0))}


FEATURES = {
    "nested": _nested,
    "infos": _infos,
    "no successors, and a group of no width": _without_successors,
    "successors that jump": _jumps,
    "a dataset of one step": _of_one_step,
    "a reward of bfloat16": lambda: _with(next__reward=bits("bfloat16")[:, :1]),
    "actions of bfloat16": lambda: _with(action=bits("bfloat16")),
    "an info that jumps": lambda: _with(info__x=bits("int8"), next__info__x=bits("int8") + 1),
    "one info": lambda: _with(info=bits("int8")),
    "two columns by a dot": lambda: {
        **basic(), ("info", "a.b"): bits("int8"), ("info", "a", "b"): bits("int16")
    },
    **{
        f"text: {name}": lambda n=name: _with(info__x=text(n))
        for name in ("zeros at the end", "a zero inside", "bytes")
    },
    "odd names": lambda: _with_infos({name: bits("int8") for name in NAMES}),
    "an action a/b": lambda: {
        **{key: rows for key, rows in basic().items() if key != ("action",)},
        **{("action", "0"): np.arange(COUNT), ("action", "a/b"): bits("int8")},
    },
    "names of others": lambda: {**basic(), **{(name,): bits("int8") for name in TOPS}},
    "groups with names of others": lambda: {
        **basic(), **{(name, "x"): bits("int8") for name in TOPS}
    },
    "one more after the step": lambda: _with(next__weight=bits("int8")),
}  # fmt: skip
