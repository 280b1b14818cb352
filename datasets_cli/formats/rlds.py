"""RLDS: episodes of TensorFlow Datasets, each one ``tf.train.Example`` of a TFRecord file.

    features.json                    the tree of features: name, dtype, shape and encoding of each

    steps/observation/state          7 T floats: a tensor [7] of each of T steps
    steps/observation/image_0        T JPEG or PNG files
    steps/language_instruction       T texts
    steps/is_last                    T integers
    episode_metadata/file_path       1 text

A tensor may also be T runs of bytes, compressed by zlib or not. Lists whose length differs between
steps, videos and audio are left out.

Facts: tensorflow/datasets, ``core/features`` and ``core/proto/feature.proto``; RLDS's README.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from datasets_cli.errors import SourceError
from datasets_cli.formats.gzip import GZIP_MAGIC, GzipStream
from datasets_cli.formats.images import decode_image
from datasets_cli.formats.limits import check_limit, read_json_file
from datasets_cli.formats.tfrecord import FeatureValue, TFRecord, parse_example, read_records

FEATURES = "features.json"
STEPS = "steps"
VARIES = "its length varies"
TEXT = np.dtype(object)
STORED = {"f": "float32", "i": "int64", "u": "int64", "b": "int64"}
"""The dtype of a list of numbers in a record, by the kind of a tensor's dtype."""
IMAGE_DTYPES = ("uint8", "uint16", "float32")
ENCODINGS = ("none", "bytes", "zlib")


@dataclass(frozen=True)
class Feature:
    """A feature with one value for each step, or one for each episode.

    Args:
        path: its names, from the root of the tree.
        dtype: of its values; object for text.
        shape: of one value; the height and width of an image may be -1, which means any.
        is_image: whether a value is an image file.
        encoding: of a tensor in a run of bytes, or of an image: ``jpeg``, ``png`` or ``none``.
    """

    path: tuple[str, ...]
    dtype: np.dtype
    shape: tuple[int, ...] = ()
    is_image: bool = False
    encoding: str = "none"

    @property
    def name(self) -> str:
        """The name of its list in a record."""
        return "/".join(self.path)

    @property
    def row_bytes(self) -> int:
        """The memory of one value, without the characters of texts."""
        return math.prod(map(abs, self.shape)) * self.dtype.itemsize


@dataclass(frozen=True)
class Features:
    """The features of a dataset.

    Args:
        steps: those with a value for each step.
        episodes: those with a value for each episode.
        left_out: the reason for each feature that is not read, by its name.
    """

    steps: tuple[Feature, ...]
    episodes: tuple[Feature, ...]
    left_out: Mapping[str, str]


def read_features(path: Path) -> Features:
    """Return the features in a ``features.json``.

    Raises:
        SourceError: it is not the tree of an RLDS dataset.
    """
    left_out: dict[str, str] = {}
    try:
        tree = _items(read_json_file(path))
        steps = tree.pop(STEPS)["sequence"]["feature"]
        inner = tuple(_leaves(_items(steps), (STEPS,), left_out))
        outer = tuple(_leaves(tree, (), left_out))
        check_limit("row_bytes", sum(each.row_bytes for each in inner), f"{path.name}: a step")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SourceError(
            f"{path.name} is not the tree of features of an RLDS dataset: expected a sequence of "
            f"{STEPS} ({type(error).__name__}: {error}).",
            path=path,
            expected=STEPS,
            found=str(error),
        ) from error
    except SourceError as error:
        error.path = path
        raise
    return Features(inner, outer, left_out)


def _items(node: Any) -> dict[str, Any]:
    return dict(node["featuresDict"]["features"])


def _leaves(
    items: Mapping[str, Any], above: tuple[str, ...], left_out: dict[str, str]
) -> Iterator[Feature]:
    for name, node in items.items():
        path = (*above, name)
        if "featuresDict" in node:
            yield from _leaves(_items(node), path, left_out)
            continue
        feature = _feature(path, node)
        if isinstance(feature, Feature):
            yield feature
        else:
            left_out["/".join(path)] = feature


def _feature(path: tuple[str, ...], node: Mapping[str, Any]) -> Feature | str:
    """Return a feature, or the reason why it is not read."""
    if "text" in node:
        return Feature(path, TEXT)
    if "classLabel" in node:
        return Feature(path, np.dtype("int64"))
    if "image" in node:
        return _image(path, node["image"])
    if "sequence" in node:
        inner = _feature(path, node["sequence"]["feature"])
        length = int(node["sequence"].get("length", -1))
        return inner if isinstance(inner, str) else _list_of(inner, length)
    return _tensor(path, node)


def _tensor(path: tuple[str, ...], node: Mapping[str, Any]) -> Feature | str:
    tensor = node.get("tensor", node.get("boundingBox"))
    if tensor is None:
        return f"{str(node.get('pythonClassName')).rpartition('.')[2]} is not supported"
    name, encoding = tensor["dtype"], tensor.get("encoding", "none")
    shape = _shape(tensor)
    if min(shape, default=1) <= 0:
        return "it is empty" if 0 in shape else VARIES
    try:
        dtype = TEXT if name == "string" else np.dtype(name)
    except TypeError:
        return f"numpy has no {name}"
    if (dtype.kind not in STORED and dtype != TEXT) or encoding not in ENCODINGS:
        return f"a tensor of {name} with the encoding {encoding} is not supported"
    return Feature(path, dtype, shape, encoding=encoding)


def _image(path: tuple[str, ...], image: Mapping[str, Any]) -> Feature | str:
    shape, dtype = _shape(image), image.get("dtype", "uint8")
    if len(shape) != 3 or shape[2] not in (1, 3, 4) or 0 in shape or dtype not in IMAGE_DTYPES:
        return f"an image of {dtype} {list(shape)} is not supported"
    encoding = image.get("encodingFormat", "none")
    return Feature(path, np.dtype(dtype), shape, is_image=True, encoding=encoding)


def _list_of(inner: Feature, length: int) -> Feature | str:
    if inner.path[0] == STEPS or inner.is_image or inner.encoding != "none":
        return "it is a list of values"
    return replace(inner, shape=(length, *inner.shape)) if length > 0 else VARIES


def _shape(node: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(int(size) for size in node.get("shape", {}).get("dimensions", ()))


@dataclass(frozen=True)
class RldsEpisode:
    """One record.

    Args:
        path: its file.
        number: its number in the file.
        where: its place, for messages.
        num_steps: the number of steps T.
        lists: the list of each feature, by name.
    """

    path: Path
    number: int
    where: str
    num_steps: int
    lists: Mapping[str, FeatureValue]

    def values(self, feature: Feature, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Return the values of a feature at some steps, ``[n, *shape]``.

        The height and width of images are those of the first one.

        Raises:
            SourceError: a value is damaged, or does not fit dtype and shape.
        """
        stop = self.num_steps if stop is None else stop
        try:
            return self._read(feature, start, stop)
        except SourceError as error:
            error.path, error.row = self.path, self.number
            raise

    def _read(self, feature: Feature, start: int, stop: int) -> np.ndarray:
        where = f"{self.where}, {feature.name}"
        stored = self.lists[feature.name]
        size = math.prod(feature.shape)
        if isinstance(stored, list):
            if feature.is_image:
                return _frames(stored[start:stop], feature, where, start)
            if feature.dtype != TEXT:
                return _unpacked(stored[start:stop], feature, where)
            texts = np.empty(size * (stop - start), object)
            texts[:] = [bytes(text) for text in stored[start * size : stop * size]]
            return texts.reshape(stop - start, *feature.shape)
        flat = stored[start * size : stop * size]
        values = flat.astype(feature.dtype)
        # An uint64 is stored as the int64 of the same bits.
        if flat.dtype == np.int64 and feature.dtype != np.uint64 and (values != flat).any():
            found = int(flat[(values != flat).argmax()])
            raise SourceError(
                f"{where} is {found}, which is not a {feature.dtype}.",
                expected=str(feature.dtype),
                found=found,
            )
        return values.reshape(stop - start, *feature.shape)


def read_episodes(path: Path, features: Features) -> Iterator[RldsEpisode]:
    """Yield the episodes of a file in its order, one in memory at a time.

    Raises:
        SourceError: a record is damaged, lacks a feature, or its lists differ in length.
    """
    for number, record in enumerate(file_records(path)):
        try:
            num_steps, lists = _lists(record, features)
        except SourceError as error:
            error.path, error.row = path, number
            raise
        yield RldsEpisode(path, number, record.where, num_steps, lists)


def file_records(path: Path) -> Iterator[TFRecord]:
    """Yield the records of a file that may be compressed by gzip.

    Raises:
        SourceError: a record is damaged.
    """
    with path.open("rb") as file:
        is_gzip = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    with GzipStream(path) if is_gzip else path.open("rb") as stream:
        yield from read_records(stream, path.name)


def _lists(record: TFRecord, features: Features) -> tuple[int, Mapping[str, FeatureValue]]:
    """Return the number of steps, and the lists of all features, whose lengths are checked."""
    lists = parse_example(record.data, record.where)
    counts = {each.name: _count(each, lists.get(each.name), record) for each in features.steps}
    if len(set(counts.values())) > 1:
        found = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise SourceError(
            f"{record.where}: expected one value of every feature for each step, found {found}.",
            expected="lists of one length",
            found=counts,
        )
    for each in features.episodes:
        if (count := _count(each, lists.get(each.name), record)) != 1:
            raise SourceError(
                f"{record.where}: expected one value of {each.name}, found {count}.",
                key=each.name,
                expected=1,
                found=count,
            )
    return next(iter(counts.values()), 0), lists


def _count(feature: Feature, stored: FeatureValue | None, record: TFRecord) -> int:
    """Return the number of values in a list, after checking its kind."""
    if stored is None:
        return 0
    found = "bytes" if isinstance(stored, list) else str(stored.dtype)
    is_bytes = feature.is_image or feature.dtype == TEXT
    kinds = ("bytes",) if is_bytes else ("bytes", STORED[feature.dtype.kind])
    size = 1 if found == "bytes" and feature.dtype != TEXT else math.prod(feature.shape)
    if found not in kinds or len(stored) % size:
        raise SourceError(
            f"{record.where}, {feature.name}: expected {' or '.join(kinds)}, {size} for each step, "
            f"found {len(stored)} of {found}.",
            key=feature.name,
            expected=[*kinds],
            found=found,
        )
    return len(stored) // size


def _unpacked(packed: list[memoryview], feature: Feature, where: str) -> np.ndarray:
    """Return tensors ``[n, *shape]`` from runs of bytes."""
    size, is_packed = feature.row_bytes, feature.encoding == "zlib"
    runs = []
    for number, data in enumerate(packed):
        place = f"{where}, value {number}"
        try:
            # One byte more shows that there are too many, however many they are.
            unpacking = zlib.decompressobj()
            run = unpacking.decompress(data, size + 1) if is_packed else bytes(data)
        except zlib.error as error:
            raise SourceError(f"{place}: {error}.", found=bytes(data[:16])) from error
        if len(run) != size:
            problem = f"expected {size} bytes, found {len(run)}"
            raise SourceError(f"{place}: {problem}.", expected=size, found=len(run))
        runs.append(run)
    dtype = feature.dtype.newbyteorder("<")
    return np.frombuffer(b"".join(runs), dtype).reshape(len(runs), *feature.shape)


def _frames(files: list[memoryview], feature: Feature, where: str, first: int) -> np.ndarray:
    """Return the frames of image files ``[n, height, width, channels]``."""
    frames: np.ndarray | None = None
    for number, file in enumerate(files):
        place = f"{where}, step {first + number}"
        frame = decode_image(file, place)
        if feature.dtype == np.float32 and frame.shape[2] == 4:  # TFDS stores depth as four bytes
            frame = np.ascontiguousarray(frame).view(np.float32)
        if feature.shape[2] == 3 and frame.shape[2] == 1:
            frame = np.repeat(frame, 3, axis=2)  # as TensorFlow decodes grey
        expected = feature.shape if frames is None else frames.shape[1:]
        fits = all(size in (-1, own) for size, own in zip(expected, frame.shape, strict=True))
        if not fits or frame.dtype != feature.dtype:
            raise SourceError(
                f"{place}: expected an image of {feature.dtype} {list(expected)}, found "
                f"{frame.dtype} {list(frame.shape)}.",
                key=feature.name,
                expected=[*expected],
                found=[*frame.shape],
            )
        if frames is None:
            frames = np.empty((len(files), *frame.shape), frame.dtype)
        frames[number] = frame
    assert frames is not None, "there are steps"
    return frames
