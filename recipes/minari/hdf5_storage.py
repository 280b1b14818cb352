"""Minari's HDF5 file: one group an episode, one array or group of arrays for each of its parts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import h5py
import numpy as np

from datasets_cli.formats.hdf5 import arrays_below, read_part
from datasets_cli.formats.hdf5_check import read_texts
from datasets_cli.formats.images import JPEG_MAGIC, starts_jpeg
from datasets_cli.formats.limits import check_limit
from datasets_cli.recipe import SourceError

from .spaces import Space, find_space
from .storage import TEXT, Stored

EPISODE = re.compile(r"episode_(\d+)")


class Hdf5Storage:
    """An ``EpisodeStorage`` that is one HDF5 file."""

    def __init__(self, file: h5py.File, spaces: Mapping[str, Space | None], *, jpeg: bool) -> None:
        self._file = file
        self._spaces = spaces
        self._jpeg = jpeg
        self.names = _episode_names(file)
        self.others = sorted(set(file) - set(self.names))

    def arrays(self, episode: str) -> dict[str, Stored]:
        """Return the storage of an episode's arrays, by path."""
        group = h5py.h5g.open(self._file.id, episode.encode())
        found: dict[str, Stored] = {}
        for path, array in arrays_below(group):
            found[path] = self._stored(array, path)
            check_limit("columns", len(found), episode)
        return found

    def read(self, episode: str, path: str, start: int, stop: int) -> np.ndarray:
        """Return the stored rows of an array."""
        return read_part(self._file.id, f"{episode}/{path}", start, stop)

    def _stored(self, array: h5py.h5d.DatasetID, path: str) -> Stored:
        """Return the storage of an array, equal for all encodings of the same values."""
        shape, dtype = array.shape or (), array.dtype
        rows = shape[0] if shape else None
        if self._jpeg and rows and dtype.kind in "Ou":
            space = find_space(self._spaces, path)
            if _is_jpeg(array, dtype, space):
                return Stored(rows, (), np.dtype(np.uint8), jpeg=True)
        if h5py.check_string_dtype(dtype) is not None:
            return Stored(rows, shape[1:], TEXT)
        if dtype.kind not in "biufc":
            return Stored(rows, (), np.dtype(object))
        return Stored(rows, shape[1:], dtype)


def _episode_names(file: h5py.File) -> list[str]:
    """Return the episodes' names by number: h5py sorts episode_10 before episode_2."""
    numbers = {name: int(match[1]) for name in file if (match := EPISODE.fullmatch(name))}
    if not numbers:
        raise SourceError(
            f"{Path(file.filename).name} has no episodes: expected groups episode_0, episode_1, … "
            f"and found {', '.join(sorted(file)[:10]) or 'nothing'}. It is not a Minari file.",
            path=file.filename,
            expected="episode_0",
            found=sorted(file)[:10],
        )
    return sorted(numbers, key=lambda name: numbers[name])


def _is_jpeg(array: h5py.h5d.DatasetID, dtype: np.dtype, space: Space | None) -> bool:
    """Return whether the rows are JPEG files, judged by their bytes."""
    # Minari 0.5.3 also encoded small frames and infos. Frames are rows of variable length, or a
    # matrix of bytes if all frames of an episode have the same length.
    matrix = dtype == np.uint8 and array.rank == 2
    if matrix and space is not None and len(space.get("shape", ())) not in (2, 3):
        return False
    variable = h5py.check_vlen_dtype(dtype) == np.uint8
    if matrix:
        return starts_jpeg(h5py.Dataset(array)[0, : len(JPEG_MAGIC)])
    return variable and starts_jpeg(read_texts(h5py.Dataset(array), 0, 1)[0])
