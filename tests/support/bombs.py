"""Small files that say they are huge, and a child process that reads them in little memory.

``python -m tests.support.bombs FOLDER`` makes them below a folder, installs each, and prints one
line of JSON for each: what was raised, and the most memory that the process had.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import resource
import struct
import sys
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from datasets_cli.config import Config
from datasets_cli.formats.tfrecord import masked
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from tests.support.unplugged_files import FILES, example, run_of_bytes, shard_name

MOST_ADDRESSES = 8 << 30  # torch alone maps some gigabytes
D4RL, MINARI, OPENML = "d4rl/hopper-medium-v2", "minari/mine/mine-v0", "openml/mine"
ATARI, UNPLUGGED = "atari_dqn/Pong/1~ckpt0-1", "atari_dqn/Pong/1~unplugged"
Make = Callable[[Path], str]
"""Writes the files of a dataset into a folder and returns the id that they are for."""


@dataclass(frozen=True)
class Outcome:
    """What one bomb raised, the most memory that it took, and the bytes of its files."""

    name: str
    error: str
    text: str
    peak: int
    size: int


def d4rl(edit: Callable[[h5py.File], None], missing: str = "") -> Make:

    def make(folder: Path) -> str:
        columns = {"observations": (300, 11), "actions": (300, 3), "rewards": 300, "terminals": 300}
        with h5py.File(folder / "hopper_medium-v2.hdf5", "w") as file:
            for name, shape in columns.items():
                if name != missing:
                    file.create_dataset(name, data=np.zeros(shape, "f4"))
            edit(file)
        return D4RL

    return make


def empty(name: str, shape: tuple[int, ...], **options: Any) -> Callable[[h5py.File], None]:
    return lambda file: file.create_dataset(name, shape, options.pop("dtype", "f4"), **options)


def twice_packed(file: h5py.File) -> None:
    shape = (1200, 1 << 16)
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk(shape)
    for _ in range(2):
        properties.set_filter(h5py.h5z.FILTER_DEFLATE, 0, (9,))
    space = h5py.h5s.create_simple(shape)
    item = h5py.h5d.create(file.id, b"observations", h5py.h5t.IEEE_F32LE, space, properties)
    item.write_direct_chunk((0, 0), zlib.compress(zeros(1200 << 18), 9))


def zeros(num_bytes: int) -> bytes:
    packing = zlib.compressobj(9)
    parts = [packing.compress(bytes(1 << 20)) for _ in range(num_bytes >> 20)]
    return b"".join([*parts, packing.flush()])


def rows_of_nothing(num_rows: int) -> Make:

    def make(folder: Path) -> str:
        with h5py.File(folder / "hopper_medium-v2.hdf5", "w") as file:
            file.create_dataset("observations", (num_rows, 11), "f4")
            file.create_dataset("actions", (num_rows, 3), "f4")
            file.create_dataset("rewards", (num_rows,), "f4")
            file.create_dataset("terminals", (num_rows,), "?")
        return D4RL

    return make


def groups_in_groups(file: h5py.File) -> None:
    group = file.id
    for _ in range(3000):
        group = h5py.h5g.create(group, b"g")


def shared_texts(file: h5py.File) -> None:
    """Add a text for each step, all of which are the same 4 MB of the file."""
    texts = file.create_dataset("infos/text", (300,), h5py.string_dtype())
    texts[0] = "x" * (4 << 20)
    at, size = texts.id.get_offset(), texts.id.get_storage_size()
    file.flush()
    path = Path(file.filename)
    data = bytearray(path.read_bytes())
    data[at : at + size] = data[at : at + 16] * 300
    file.close()
    path.write_bytes(data)


def shared_scalars(file: h5py.File) -> None:
    """Add 900 texts below ``metadata``, all of which are the same 1 MB of the file."""
    for number in range(900):
        file[f"metadata/k{number}"] = "x" * (1 << 20 if number == 0 else 1)
    places = [file[f"metadata/k{number}"].id.get_offset() for number in range(900)]
    path = Path(file.filename)
    file.close()
    data = bytearray(path.read_bytes())
    for at in places[1:]:
        data[at : at + 16] = data[places[0] : places[0] + 16]
    path.write_bytes(data)


Write = Callable[[Path], str]


def minari(write: Write, **metadata: Any) -> Make:
    """Return what writes a Minari dataset whose data a function writes; it returns their form."""

    def make(folder: Path) -> str:
        document = {"dataset_id": "mine/mine-v0", "total_episodes": 1, **metadata}
        document["data_format"] = write(folder)
        (folder / "metadata.json").write_text(json.dumps(document))
        return MINARI

    return make


def episode(steps: int, shape: tuple[int, ...] = (2,)) -> Write:
    """Return what writes an episode that says it has a number of steps, and has none."""

    def write(folder: Path) -> str:
        with h5py.File(folder / "main_data.hdf5", "w") as file:
            group = file.create_group("episode_0")
            group.create_dataset("observations", (steps + 1, *shape), "f4")
            group.create_dataset("actions", (steps, 1), "f4")
            group.create_dataset("rewards", (steps,), "f4")
            for name in ("terminations", "truncations"):
                group.create_dataset(name, (steps,), "?")
        return "hdf5"

    return write


def with_array(path: str, shape: tuple[int, ...], dtype: str, **options: Any) -> Write:
    def write(folder: Path) -> str:
        episode(3)(folder)
        with h5py.File(folder / "main_data.hdf5", "a") as file:
            file.pop(path, None)
            file.create_dataset(path, shape, dtype, **options)
        return "hdf5"

    return write


def table(num_rows: int, **columns: Any) -> pa.Table:
    flags = pa.array(np.zeros(num_rows, np.bool_))
    observations = pa.array(np.zeros(num_rows))
    names = {"observations": observations, "actions": observations, "rewards": observations}
    return pa.table({**names, "terminations": flags, "truncations": flags, **columns})


def arrow(make_table: Callable[[], pa.Table], codec: str) -> Write:

    def write(folder: Path) -> str:
        found = make_table()
        (folder / "0").mkdir()
        options = pa.ipc.IpcWriteOptions(compression=codec)
        with pa.ipc.new_file(folder / "0" / "part-0.arrow", found.schema, options=options) as file:
            file.write_table(found)
        return "arrow"

    return write


def lying_buffer(folder: Path) -> str:
    arrow(lambda: table(100_000), "zstd")(folder)
    path = folder / "0" / "part-0.arrow"
    data = path.read_bytes()
    at = data.index(struct.pack("<q", 800_000))
    path.write_bytes(data[:at] + struct.pack("<q", 6 << 30) + data[at + 8 :])
    return "arrow"


def long_value(num_bytes: int) -> pa.Table:
    ends = pa.py_buffer(np.array([0, num_bytes], np.int64))
    content = pa.py_buffer(np.zeros(num_bytes, np.uint8))  # which are not in memory so far
    return table(1, infos=pa.Array.from_buffers(pa.large_binary(), 1, [None, ends, content]))


PLAIN = {"store_schema": False}
"""The reader of a file then does not know that texts were dictionaries."""


def one_text(num_rows: int, num_bytes: int) -> pa.Table:
    codes = pa.array(np.zeros(num_rows, np.int32))
    texts = pa.array(["x" * num_bytes], pa.large_string())
    infos = pa.DictionaryArray.from_arrays(codes, texts)
    return table(num_rows, infos=infos)


def parquet(make_table: Callable[[], pa.Table], **options: Any) -> Write:

    def write(folder: Path) -> str:
        (folder / "0").mkdir()
        pq.write_table(make_table(), folder / "0" / "part-0.parquet", **options)
        return "parquet"

    return write


def openml(
    write: Callable[[Path], None], num_columns: int = 2, document: bytes | None = None
) -> Make:

    def make(folder: Path) -> str:
        write(folder)
        description = {"id": "1", "name": "mine", "version": "1"}
        entries = [
            {"index": str(i), "name": f"c{i}", "data_type": "numeric", "is_target": "false"}
            for i in range(num_columns)
        ]
        features = {"data_features": {"feature": entries}}
        (folder / "features.json").write_bytes(document or json.dumps(features).encode())
        text = json.dumps({"data_set_description": description})
        (folder / "description.json").write_text(text)
        return OPENML

    return make


FIVE = 5_000_000


def nominal(num_labels: int) -> str:
    return f"@attribute c0 {{{','.join(map(str, range(num_labels)))}}}\n"


HEADER = "@relation t\n@attribute c0 real\n@attribute c1 real\n@data\n"


def arff(text: str) -> Callable[[Path], None]:

    def write(folder: Path) -> None:
        (folder / "dataset.arff").write_text(text)

    return write


def log(header: bytes, num_bytes: int) -> Make:

    def make(folder: Path) -> str:
        for store in ("observation", "action", "reward", "terminal", "add_count"):
            path = folder / f"$store$_{store}_ckpt.0.gz"
            path = path.with_name("add_count_ckpt.0.gz") if store == "add_count" else path
            with gzip.open(path, "wb", 1) as file:
                file.write(header)
                for _ in range(num_bytes >> 20):
                    file.write(bytes(1 << 20))
        return ATARI

    return make


def npy_header(version: int, length: int) -> bytes:
    return b"\x93NUMPY" + bytes((version, 0)) + struct.pack("<I", length)


def frames(*files: bytes) -> Make:
    steps = len(files)
    numbers = {name: np.zeros(1, np.int64) for name in ("checkpoint_idx", "episode_idx")}
    returns = ("episode_return", "clipped_episode_return")
    rewards = ("clipped_rewards", "unclipped_rewards", "discounts")
    features = {
        **numbers,
        **{name: np.zeros(1, np.float32) for name in returns},
        **{name: np.zeros(steps, np.float32) for name in rewards},
        "actions": np.zeros(steps, np.int64),
        "observations": list(files),
    }
    return shard(example(features))


def png(height: int, width: int, num_bytes: int) -> bytes:
    """Return a PNG file whose header says one size, and whose rows have any number of bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)

    header = struct.pack(">II5B", width, height, 8, 0, 0, 0, 0)
    chunks = chunk(b"IHDR", header), chunk(b"IDAT", zeros(num_bytes)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def jpegs(folder: Path) -> str:
    file = io.BytesIO()
    Image.new("RGB", (16, 16)).save(file, "JPEG")
    data = file.getvalue()
    at = data.index(b"\xff\xc0") + 5  # height and width in the header of the frame
    data = data[:at] + struct.pack(">HH", 13_000, 13_000) + data[at + 4 :]
    episode(3)(folder)
    with h5py.File(folder / "main_data.hdf5", "a") as edited:
        del edited["episode_0/observations"]
        frame = np.frombuffer(data, np.uint8)
        edited["episode_0/observations"] = np.stack([frame] * 4)
    return "hdf5"


def shard(*records: bytes, head: bytes = b"") -> Make:

    def make(folder: Path) -> str:
        for number in range(FILES):
            data = head + b"".join(map(framed, records)) if number == 0 else b""
            (folder / shard_name(number, run=1)).write_bytes(gzip.compress(data))
        return UNPLUGGED

    return make


def framed(data: bytes) -> bytes:
    return sized(len(data)) + data + struct.pack("<I", masked(data))


def sized(num_bytes: int) -> bytes:
    length = struct.pack("<Q", num_bytes)
    return length + struct.pack("<I", masked(length))


def list_feature(name: bytes, kind: int, content: bytes) -> bytes:
    """Return a ``tf.train.Example`` of one feature, whose list has these bytes."""
    value = run_of_bytes(2, run_of_bytes(kind, content))
    return run_of_bytes(1, run_of_bytes(1, run_of_bytes(1, name) + value))


@dataclass(frozen=True)
class Bomb:
    """A dataset, and which limit refuses it; "" where it is refused for what it is."""

    limit: str
    make: Make


BOMBS: dict[str, Bomb] = {
    "an HDF5 row of 1 TB": Bomb("row_bytes", d4rl(empty("infos/x", (300, 2**38)))),
    "a chunk of 315 MB packed twice": Bomb("table_bytes", d4rl(twice_packed, "observations")),
    "HDF5 texts that share their bytes": Bomb("text_bytes", d4rl(shared_texts)),
    "HDF5 groups in groups": Bomb("nesting", d4rl(groups_in_groups)),
    "HDF5 scalars that share their bytes": Bomb("json_bytes", d4rl(shared_scalars)),
    "an HDF5 episode of chunks of one value": Bomb(
        "row_bytes", minari(with_array("episode_0/infos/x", (3, 1 << 20), "f4", chunks=(1, 1)))
    ),
    "10^15 HDF5 rows": Bomb("rows", rows_of_nothing(10**15)),
    "HDF5 flags of 2 GB": Bomb(
        "row_bytes", minari(with_array("episode_0/terminations", (3, 1 << 31), "?"))
    ),
    "JPEG frames of 13,000 x 13,000": Bomb("row_bytes", minari(jpegs)),
    "an Arrow buffer that says it has 6 GB": Bomb("", minari(lying_buffer)),
    "300 MB of zstd in Arrow": Bomb(
        "table_bytes", minari(arrow(lambda: long_value(300 << 20), "zstd"))
    ),
    "a Parquet page of 300 MB": Bomb(
        "table_bytes",
        minari(parquet(lambda: long_value(300 << 20), compression="zstd", use_dictionary=False)),
    ),
    "a Parquet text of all rows": Bomb(
        "table_bytes", minari(parquet(lambda: one_text(20_000, 200_000), **PLAIN))
    ),
    "a quote that never ends": Bomb("row_bytes", openml(arff(HEADER + "'" + "x," * FIVE))),
    "lists of labels": Bomb("text_bytes", openml(arff(nominal(200_000) * 6 + "@data\n"), 6)),
    "260,000 attributes": Bomb("columns", openml(arff("@attribute c real\n" * 260_000))),
    "JSON of 100,000 levels": Bomb("nesting", openml(arff(HEADER), 2, b"[" * 100_000)),
    "15 MB of empty lists": Bomb(
        "json_bytes", openml(arff(HEADER), 2, b"[" + b"[]," * FIVE + b"[]]")
    ),
    "an npy header of 3 GB": Bomb("", log(npy_header(2, 3 << 30), 1 << 20)),
    "a TFRecord that says it has 1 GB": Bomb("record_bytes", shard(head=sized(1 << 30))),
    "3,000,000 frames of no bytes": Bomb(
        "record_bytes", shard(list_feature(b"observations", 1, b"\x0a\x00" * 3_000_000))
    ),
    "a PNG of 60,000 x 60,000": Bomb("", frames(png(60_000, 60_000, 1 << 20))),
}


def make_all(folder: Path) -> dict[str, str]:
    """Write all of them below a folder, in a process of its own, and return their ids."""
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0
        return dict(json.loads((folder / "ids.json").read_text()))
    ids = {}
    for number, (name, bomb) in enumerate(BOMBS.items()):
        source = folder / str(number)
        source.mkdir()
        ids[name] = bomb.make(source)
    (folder / "ids.json").write_text(json.dumps(ids))
    os._exit(0)


def install(name: str, id: str, source: Path, root: Path) -> Outcome:
    error: BaseException | None = None
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    try:
        options = InstallOptions(source=str(source), accept_any=True)
        install_dataset(id, Config(root, offline=True), options)
    except Exception as raised:
        error = raised
    size = sum(file.stat().st_size for file in source.rglob("*") if file.is_file())
    kind = type(error).__name__ if error else ""
    return Outcome(name, kind, str(error or ""), peak_bytes(), size)


def peak_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def main(folder: Path) -> None:
    """Install all of them in little memory, and print what became of each."""
    ids = make_all(folder)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, MOST_ADDRESSES))
    for number, (name, id) in enumerate(ids.items()):
        # In a process of its own: what another one left in the heap is not its memory.
        if child := os.fork():
            assert os.waitpid(child, 0)[1] == 0, name
            continue
        outcome = install(name, id, folder / str(number), folder / "root")
        print(json.dumps(asdict(outcome)), flush=True)
        os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
