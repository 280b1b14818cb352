"""What decoding a grey PNG frame costs: Pillow as it is, this project's reader, and one of our own.

    python benchmarks/png.py FILE [--rounds 31]

FILE is a TFRecord file of RL Unplugged's Atari datasets. Prints JSON: median microseconds a frame
on one core, and ratios. The reader of our own unpacks many frames, puts them below each other with
a row of zeros between two, and has Pillow unfilter them as one tall image. It would have to be
more than twice as fast as Pillow to be worth its lines.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from timing import compare

from datasets_cli.formats.gzip import fastest_zlib
from datasets_cli.formats.png import _head, _packed_rows, decode_pngs
from datasets_cli.formats.tf_example import parse_example
from datasets_cli.formats.tfrecord import read_gzip_records

BATCH = 128  # frames that fit into a processor's cache together

Shape = tuple[int, int]


def frames_of(path: Path) -> list[memoryview]:
    """Return the PNG files in all records of a file."""
    found: list[memoryview] = []
    for record in read_gzip_records(path):
        found += parse_example(record.data, record.where)["observations"]
    return found


def by_pillow_alone(files: Sequence[memoryview], shape: Shape) -> np.ndarray:
    """Return the frames as Pillow opens them, which lets some damaged ones pass."""
    frames = np.empty((len(files), *shape), np.uint8)
    for number, file in enumerate(files):
        with Image.open(io.BytesIO(file), formats=("PNG",)) as image:
            frames[number] = image
    return frames


def by_our_own(files: Sequence[memoryview], shape: Shape) -> np.ndarray:
    """Return the frames, each batch of them unfiltered as one tall image; refuses what we do."""
    height, width = shape
    frames = np.empty((len(files), *shape), np.uint8)
    unpack, head = fastest_zlib().decompress, _head(*shape)
    for start in range(0, len(files), BATCH):
        batch = files[start : start + BATCH]
        # A row begins with its filter; the zeros after a frame's rows are what is above the next.
        tall = np.zeros((len(batch), height + 1, 1 + width), np.uint8)
        for number, file in enumerate(batch):
            data = unpack(_packed_rows(file, head))
            tall[number, :height] = np.frombuffer(data, np.uint8).reshape(height, 1 + width)
        # Level 0 only wraps the bytes, for Pillow's decoder of what is inside of a PNG file.
        packed, size = zlib.compress(tall.data, 0), (width, len(batch) * (height + 1))
        pixels = np.asarray(Image.frombytes("L", size, packed, "zip", "L"))
        frames[start : start + BATCH] = pixels.reshape(-1, height + 1, width)[:, :height]
    return frames


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--rounds", type=int, default=31)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    files = frames_of(arguments.file)
    shape = Image.open(io.BytesIO(files[0])).size[::-1]
    calls = {
        "Pillow alone": lambda: by_pillow_alone(files, shape),
        "this project": lambda: decode_pngs(files, shape, arguments.file.name),
        "our own": lambda: by_our_own(files, shape),
    }
    right, *others = (call().tobytes() for call in calls.values())
    assert all(other == right for other in others), "the decoders differ"
    times = {
        name: time.median / len(files)
        for name, time in compare(calls, 10 * arguments.rounds).items()
    }
    document = {
        "frames": len(files),
        "bytes a frame": round(sum(map(len, files)) / len(files)),
        "microseconds a frame": {name: round(value, 1) for name, value in times.items()},
        "Pillow alone / our own": round(times["Pillow alone"] / times["our own"], 2),
        "this project / our own": round(times["this project"] / times["our own"], 2),
    }
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
