"""Frames of a trajectory that are stored, one at a time, as PNG."""

from __future__ import annotations

from io import BytesIO

import numpy as np
from PIL import Image

from datasets_cli.look.frames.pictures import pictures_of
from datasets_cli.look.peek import check_below
from datasets_cli.schema.columns import show_key
from datasets_cli.store.arrays import DatasetArrays
from datasets_cli.store.layouts.records import is_frame
from datasets_cli.store.manifest import Manifest


def frame_columns(manifest: Manifest) -> list[str]:
    """Return the columns of frames, those of the step before those of its successor."""
    frames = [
        each.key
        for each in manifest.columns
        if len(each.shape) > 1 and is_frame(each.dtype, each.shape)
    ]
    return [show_key(key) for key in sorted(frames, key=lambda key: key[0] == "next")]


def frame_png(dataset: DatasetArrays, trajectory: int, step: int, column: str) -> bytes:
    """Return the frame of a step of a trajectory as the bytes of a PNG file."""
    # The column is named: an environment, whose spec names code, is never made for a page.
    pictures = pictures_of(dataset, trajectory, column)
    check_below("step", step, pictures.num_rows, "step", f"trajectory {trajectory} of {dataset.id}")
    (picture,) = pictures.read(np.array([step]))
    file = BytesIO()
    Image.fromarray(picture).save(file, format="PNG", compress_level=1)
    return file.getvalue()
