"""The pictures of docs/page.md: their sizes, and that they show something."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.support.paths import PROJECT

MOST_BYTES = 150_000


def check_shows_something(path: Path) -> None:
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("L"))
    values, counts = np.unique(pixels, return_counts=True)
    assert len(values) > 10 and counts.max() < 0.98 * pixels.size, f"{path} is blank"
    assert path.stat().st_size <= MOST_BYTES


def kept() -> list[Path]:
    return sorted((PROJECT / "docs").glob("page-*.png"))


@pytest.mark.parametrize("path", kept(), ids=lambda path: path.stem)
def test_a_picture_that_is_kept_is_small_and_not_blank(path: Path) -> None:
    check_shows_something(path)


@pytest.mark.slow
def test_the_script_takes_pictures_of_the_same_sizes(tmp_path: Path) -> None:
    taken = runpy.run_path(str(PROJECT / "scripts" / "screenshots"))["shoot"](tmp_path)
    assert sorted(path.name for path in taken) == [path.name for path in kept()]
    for new, old in zip(sorted(taken), kept(), strict=True):
        check_shows_something(new)
        with Image.open(new) as one, Image.open(old) as other:
            assert one.size == other.size
