"""The arrays that all episodes of a Minari dataset have, and their dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from datasets_cli.recipe import Key, SourceError

from .storage import EpisodeStorage, Stored, StoredEpisode, read_runs

KEYS: dict[str, Key] = {
    "observations": ("observation",),
    "actions": ("action",),
    "rewards": ("next", "reward"),
    "terminations": ("next", "terminated"),
    "truncations": ("next", "truncated"),
}
"""The arrays of every episode."""
NUMBERS = ("rewards", "terminations", "truncations")


@dataclass
class CommonArrays:
    """The arrays that all episodes so far have."""

    arrays: dict[str, Stored] = field(default_factory=dict)
    types: dict[str, set[np.dtype]] = field(default_factory=dict)
    varying: set[str] = field(default_factory=set)

    def add(self, name: str, found: Mapping[str, Stored]) -> None:
        """Compare the arrays of another episode; ``rows`` counts rows beyond one per step."""
        self.arrays = self.arrays or dict(found)
        if found == self.arrays:
            return
        for path in self.arrays.keys() | found.keys():
            first, other = self.arrays.get(path), found.get(path)
            if first != other:
                self._add_other(name, path, first, other)

    def _add_other(self, name: str, path: str, first: Stored | None, other: Stored | None) -> None:
        root = path.partition("/")[0]
        if first and other and (path in NUMBERS or root not in KEYS) and _widen(first, other):
            # Lists of Python numbers: an episode that never scores has integers as rewards.
            self.types.setdefault(path, {first.dtype}).add(other.dtype)
            self.arrays[path] = first._replace(dtype=np.result_type(first.dtype, other.dtype))
        elif root in KEYS:
            raise SourceError(
                f"{name} differs from the episodes before it: {path} is {_show(other)}, and was "
                f"{_show(first)}. One dataset has one observation and one action.",
                key=path,
                expected=_show(first),
                found=_show(other),
            )
        else:
            self.varying.add(path)


def _widen(first: Stored, other: Stored) -> bool:
    """Return whether two arrays differ only in their numeric dtypes."""
    kinds = {first.dtype.kind, other.dtype.kind}
    return first._replace(dtype=other.dtype) == other and kinds <= set("biufc") and not first.jpeg


def inexact_paths(
    storage: EpisodeStorage, episodes: list[StoredEpisode], common: CommonArrays
) -> set[str]:
    """Return the paths of infos with an integer that the common dtype cannot represent exactly."""
    inexact = set()
    for path in common.types.keys() - common.varying - set(NUMBERS):
        dtype = common.arrays[path].dtype
        for episode in episodes:
            runs = read_runs(storage, episode.name, path, episode.steps + 1, common.arrays[path])
            if any(rows.dtype.kind in "iu" and not _is_exact(rows, dtype) for rows in runs):
                inexact.add(path)
                break
    return inexact


def _is_exact(integers: np.ndarray, dtype: np.dtype) -> bool:
    """Return whether another dtype represents every integer exactly."""
    if dtype.kind not in "fc":
        return True
    limit = 1 << (np.finfo(dtype).nmant + 1)  # every smaller integer is exact
    large = integers[(integers > limit) | (integers < -limit)]
    return all(int(large[i]) == int(large[i].astype(dtype).real) for i in range(len(large)))


def _show(stored: Stored | None) -> str:
    return f"{stored.dtype} {list(stored.shape)}" if stored else "missing"
