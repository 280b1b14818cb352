"""A reader of datasets, written from docs/format.md alone: it imports nothing of this project."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

SIZES = {
    **dict.fromkeys(("bool", "uint8", "int8", "float8_e4m3fn", "float8_e4m3fnuz"), 1),
    **dict.fromkeys(("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2"), 1),
    **dict.fromkeys(("uint16", "int16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("uint32", "int32", "float32", "complex32"), 4),
    **dict.fromkeys(("uint64", "int64", "float64", "complex64"), 8),
    "complex128": 16,
}
RESERVED = {"shape", "device", "_type", "_class", "_format_version", "_names"}
ENDINGS = (".memmap", ".json", ".npy", ".utf8", ".zst", ".offsets", ".dictionary", ".part")
OF_ROWS = (["episode"], ["done"], ["terminated"], ["truncated"], ["next", "done"])


class FormatReader:
    """The rows and the final steps of one dataset, as arrays of bytes and lists of text."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        data = (folder / "manifest.json").read_bytes()
        self.manifest: dict[str, Any] = json.loads(data)
        if self.manifest["format_version"] != 2:
            raise ValueError("another version")
        before, _, after = data.partition(b'\n "digest": "')
        sealed = before + b'\n "digest": "' + b"0" * 64 + after[64:]
        if hashlib.sha256(sealed).hexdigest() != self.manifest["digest"]:
            raise ValueError("the manifest is damaged")
        for name, entry in self.manifest["files"].items():
            if hashlib.sha256((folder / name).read_bytes()).hexdigest() != entry["sha256"]:
                raise ValueError(f"{name} is damaged")
        self.num_rows = self.manifest["num_transitions"]
        self.offsets = np.frombuffer((folder / "trajectories.npy").read_bytes()[128:], "<i8")

    def rows(self) -> dict[tuple[str, ...], Any]:
        """Return every column of the rows."""
        is_ted = self.manifest["layout"] == "ted"
        columns = self.manifest["columns"] if is_ted else []
        numbers = {tuple(c["key"]): self._array("", c, self.num_rows) for c in columns}
        texts = self.manifest.get("texts", [])
        return numbers | ({} if is_ted else self._records()) | self._texts("", texts, self.num_rows)

    def final(self) -> dict[tuple[str, ...], Any]:
        """Return every column of the final steps; empty where there are none."""
        if not (count := self.manifest.get("final_steps", 0)):
            return {}
        both = [*self.manifest["columns"], *self.manifest.get("texts", [])]
        kept = [c for c in both if c["key"] not in OF_ROWS]
        kept = [c for c in kept if c["key"][:2] != ["next", "observation"]]
        made = ("episode", "recorded_step")
        kept += [{"key": [name], "dtype": "int64", "shape": []} for name in made]
        numbers = [c for c in kept if "dtype" in c]
        texts = [c for c in kept if "dtype" not in c]
        found = {tuple(c["key"]): self._array("final/", c, count) for c in numbers}
        return found | self._texts("final/", texts, count)

    def _array(self, folder: str, column: dict[str, Any], count: int) -> np.ndarray:
        """Return a leaf file as bytes, uint8 ``[count, row bytes]``."""
        size = math.prod(column["shape"]) * SIZES[column["dtype"]]
        path = self.folder / (folder + path_of(column["key"]) + ".memmap")
        data = path.read_bytes() if size else b""
        return np.frombuffer(data, np.uint8).reshape(count, size)

    def _records(self) -> dict[tuple[str, ...], Any]:
        record = self.manifest["record"]
        size, num_records = record["record_bytes"], record["num_records"]
        data = (self.folder / "rows.memmap").read_bytes()
        records = np.frombuffer(data, np.uint8).reshape(num_records, size)
        dtype = "<i4" if num_records < 2**31 else "<i8"
        row = np.frombuffer((self.folder / "row.memmap").read_bytes(), dtype)
        found: dict[tuple[str, ...], Any] = {}
        for field in record["fields"]:
            end = field["offset"] + math.prod(field["shape"]) * SIZES[field["dtype"]]
            self._put(found, field, records[:, field["offset"] : end], row)
        for frames in record["frames"]:
            self._put(found, frames, self._frames(frames, num_records), row)
        for constant in record["constants"]:
            value = np.frombuffer(bytes.fromhex(constant["value"]), np.uint8)
            found[tuple(constant["key"])] = np.tile(value, (self.num_rows, 1))
        for made in record["made"]:
            numbers = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
            found[tuple(made["key"])] = numbers.astype("<i8")[:, None].view(np.uint8)
        return found

    @staticmethod
    def _put(found: Any, field: dict[str, Any], records: np.ndarray, row: np.ndarray) -> None:
        found[tuple(field["key"])] = records[row]
        if field["successor"] is not None:
            found[tuple(field["successor"])] = records[row + 1]

    def _frames(self, field: dict[str, Any], count: int) -> np.ndarray:
        name = f"frames/{path_of(field['key'])}.zst"
        data = (self.folder / name).read_bytes()
        offsets = np.frombuffer((self.folder / f"{name}.offsets").read_bytes(), "<i8")
        dictionary = None
        if f"{name}.dictionary" in self.manifest["files"]:
            packed = (self.folder / f"{name}.dictionary").read_bytes()
            raw = zstandard.ZstdDecompressor().decompress(packed)
            kind = zstandard.DICT_TYPE_RAWCONTENT
            dictionary = zstandard.ZstdCompressionDict(raw, dict_type=kind)
        decompressor = zstandard.ZstdDecompressor(dict_data=dictionary)
        frames = [data[offsets[n] : offsets[n + 1]] for n in range(count)]
        joined = b"".join(map(decompressor.decompress, frames))
        return np.frombuffer(joined, np.uint8).reshape(count, -1)

    def _texts(self, folder: str, texts: list[Any], count: int) -> dict[tuple[str, ...], Any]:
        if not texts:
            return {}
        data = (self.folder / f"{folder}text.utf8").read_bytes()
        ends = np.frombuffer((self.folder / f"{folder}text.offsets").read_bytes(), "<i8")
        values = [
            data[start:stop].decode(errors="surrogateescape")
            for start, stop in itertools.pairwise(ends)
        ]
        found = {}
        for text in texts:
            codes = self._array(f"{folder}text/", {**text, "dtype": "int32"}, count).view("<i4")
            found[tuple(text["key"])] = [[values[code] for code in row] for row in codes.tolist()]
        return found


def path_of(key: list[str]) -> str:
    """Return the path of a column's file, without its ending."""
    names = []
    for depth, name in enumerate(key):
        plain, is_folder = name.rstrip("~"), depth < len(key) - 1
        is_file = plain.lower().endswith(ENDINGS)
        is_file |= depth == 0 and plain.lower() in ("text", "final")
        is_escaped = plain in RESERVED or (is_file and (is_folder or name != plain))
        special = '/<>:"|?*\\ %\x7f' + ("." if name in (".", "..") else "")
        letters = (f"%{ord(c):02X}" if c in special or ord(c) < 32 else c for c in name)
        names.append("".join(letters) + "~" * is_escaped)
    return "/".join(names)
