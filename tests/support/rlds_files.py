"""RLDS folders: what a real one must become, and small ones that are written plainly.

It shares no code with the readers. ``read_bridge`` decodes the records of ``unplugged_records`` and
the images by Pillow; ``write_rlds`` writes episodes as TensorFlow Datasets does.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.support.paths import TEST_DATA
from tests.support.unplugged_files import Value, example, record
from tests.support.unplugged_records import lists, records
from tests.support.values import Expected, Key

BRIDGE = TEST_DATA / "rlds" / "bridge_dataset" / "1.0.0"
GCS = "https://storage.googleapis.com/"
SHAPES = {"action": (7,), "observation/state": (7,), "language_embedding": (512,)}
KEYS: dict[str, Key] = {
    "reward": ("next", "reward"),
    "language_instruction": ("language",),
    "action": ("action",),
    "observation/state": ("observation", "state"),
    **{f"observation/image_{n}": ("observation", "images", f"image_{n}") for n in range(4)},
}


def read_bridge(folder: Path = BRIDGE) -> Expected:
    """Return the rows of the cut Bridge dataset: its episodes end without ``is_last``."""
    rows: dict[Key, list[Any]] = {}
    final: dict[Key, list[Any]] = {}
    offsets, num_steps = [0], 0
    for split in ("train", "val"):
        data = (folder / f"bridge_dataset-{split}.tfrecord-00000-of-00001").read_bytes()
        for episode, steps in enumerate(map(read_steps, records(data)), len(offsets) - 1):
            assert not any(step["is_last"] or step["is_terminal"] for step in steps)
            for number, step in enumerate(steps):
                row = {KEYS.get(name, ("info", name)): value for name, value in step.items()}
                flags = [row.pop(("info", f"is_{name}")) for name in ("first", "last", "terminal")]
                assert flags == [number == 0, 0, 0]
                row |= {("split",): split, ("episode",): np.int64(episode)}
                if number == len(steps) - 1:
                    no = np.array([False])
                    row |= {("next", "terminated"): no, ("next", "truncated"): no}
                    row["recorded_step",] = np.int64(num_steps + number)
                for key, value in row.items():
                    (final if number == len(steps) - 1 else rows).setdefault(key, []).append(value)
            num_steps += len(steps)
            offsets.append(offsets[-1] + len(steps) - 1)
    for key in [key for key in rows if key[0] == "observation"]:
        last = iter(final[key])
        following = [*rows[key][1:], None]
        for end in offsets[1:]:
            following[end - 1] = next(last)
        rows["next", *key] = following
    texts = {key: values for key, values in rows.items() if isinstance(values[0], str)}
    leaves = {key: np.stack(values) for key, values in rows.items() if key not in texts}
    numbers = {key: np.stack(values) for key, values in final.items() if key not in texts}
    ends = np.zeros((offsets[-1], 1), np.bool_)
    ends[np.array(offsets[1:]) - 1] = True
    leaves |= {("next", "done"): ends, ("next", "truncated"): ends}
    for key in (("next", "terminated"), ("done",), ("terminated",), ("truncated",)):
        leaves[key] = np.zeros_like(ends)
    return Expected(leaves, offsets, False, numbers, texts)


def read_steps(data: bytes) -> list[dict[str, Any]]:
    """Return the values of each step of a record, and those of the episode in every step."""
    found = lists(data)
    num_steps = len(found["steps/is_first"])
    steps: list[dict[str, Any]] = [{} for _ in range(num_steps)]
    for path, values in found.items():
        root, _, name = path.partition("/")
        for number, step in enumerate(steps):
            if root == "episode_metadata":
                value = values[0]
            else:
                size = len(values) // num_steps
                value = values[number * size : (number + 1) * size]
                value = np.reshape(value, SHAPES[name]) if name in SHAPES else value[0]
            if "/image" in name:
                value = np.asarray(Image.open(io.BytesIO(value)))
            elif isinstance(value, bytes):
                value = value.decode()
            elif name.startswith("has_"):
                value = np.bool_(value)
            elif name == "episode_id":
                value = np.int32(value)
            step[name] = np.reshape(value, (1,)) if name == "reward" else value
    return steps


def listed_pages(folder: Path, bucket: str, path: str) -> dict[str, bytes]:
    """Return the pages of a bucket that contains a folder's files below a path."""
    files = {f"{path}{each.name}": each.read_bytes() for each in sorted(folder.iterdir())}
    items = [
        {
            "name": name,
            "size": str(len(data)),
            "md5Hash": base64.b64encode(hashlib.md5(data).digest()).decode(),
        }
        for name, data in files.items()
    ]
    pages = {f"{GCS}{bucket}/{name}": data for name, data in files.items()}
    pages[f"{GCS}storage/v1/b/{bucket}/o?prefix={path}"] = json.dumps({"items": items}).encode()
    return pages


def tensor(dtype: str, *shape: int, encoding: str = "none") -> dict[str, Any]:
    """Return the node of a tensor in ``features.json``."""
    dimensions = {"dimensions": [str(size) for size in shape]} if shape else {}
    return {"tensor": {"shape": dimensions, "dtype": dtype, "encoding": encoding}}


def image(dtype: str, *shape: int) -> dict[str, Any]:
    """Return the node of an image in ``features.json``."""
    return {"image": {"shape": {"dimensions": [str(n) for n in shape]}, "dtype": dtype}}


def image_file(pixels: np.ndarray, width: int | None = None) -> bytes:
    """Return a PNG file; ``width`` is what its header claims."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    data = file.getvalue()
    if width is None:
        return data
    header = b"IHDR" + width.to_bytes(4, "big") + data[20:29]
    return data[:12] + header + zlib.crc32(header).to_bytes(4, "big") + data[33:]


def dict_of(**nodes: Any) -> dict[str, Any]:
    return {"featuresDict": {"features": nodes}}


FLAGS = {name: tensor("bool") for name in ("is_first", "is_last", "is_terminal")}
STEP = {"observation": dict_of(x=tensor("float32", 2)), "action": tensor("float32", 1)}


def write_rlds(
    folder: Path,
    episodes: Iterable[Mapping[str, Value]],
    steps: Mapping[str, Any] = {},
    *,
    split: str = "train",
    name: str = "made",
    **others: Any,
) -> Path:
    """Write a dataset of one split, whose features are those of ``STEP``, ``steps``, others."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [record(example(dict(episode))) for episode in episodes]
    tree = dict_of(
        steps={"sequence": {"feature": dict_of(**FLAGS, **(STEP | dict(steps)))}}, **others
    )
    info = {"name": name, "splits": [{"name": split, "shardLengths": [str(len(written))]}]}
    (folder / "features.json").write_text(json.dumps(tree))
    (folder / "dataset_info.json").write_text(json.dumps(info))
    (folder / f"{name}-{split}.tfrecord-00000-of-00001").write_bytes(b"".join(written))
    return folder


def episode(num_steps: int, *, terminal: bool = True, **changes: Value) -> dict[str, Value]:
    """Return an episode whose last step is void; the observation of step t is [t, -t]."""
    at = np.arange(num_steps)
    last = (at == num_steps - 1).astype(np.int64)
    made: dict[str, Value] = {
        "steps/is_first": (at == 0).astype(np.int64),
        "steps/is_last": last,
        "steps/is_terminal": last * terminal,
        "steps/observation/x": np.stack([at, -at], 1).reshape(-1).astype(np.float32),
        "steps/action": np.where(last, 0, at + 1).astype(np.float32),
    }
    return made | {path.replace("__", "/"): value for path, value in changes.items()}
