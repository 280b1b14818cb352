"""Small files that say they are huge, and a child process that reads them in little memory.

``python -m tests.support.bombs FOLDER`` makes each of them below a folder, installs it, and prints
one line of JSON for each: what was raised, and the most memory that it took.
"""

from __future__ import annotations

import gzip
import json
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
import zstandard

from tests.support.unplugged_files import FILES, example, record, run_of_bytes, shard_name, varint

MOST_ADDRESSES = 8 << 30  # torch alone maps some gigabytes
D4RL, MINARI, OPENML = "d4rl/hopper-medium-v2", "minari/mine/mine-v0", "openml/mine"
ATARI, UNPLUGGED = "atari_dqn/Pong/1~ckpt0-1", "atari_dqn/unplugged/Pong/1"
Make = Callable[[Path], str]
"""Writes the files of a dataset into a folder and returns the id that they are for."""


@dataclass(frozen=True)
class Outcome:
    """What became of one dataset.

    Args:
        name: of the bomb.
        error: class of what was raised; "" for nothing.
        text: its message.
        peak: bytes of memory that the process had at most.
        size: bytes of all files.
    """

    name: str
    error: str
    text: str
    peak: int
    size: int


def d4rl(edit: Callable[[h5py.File], None], missing: str = "") -> Make:
    """Return what writes a D4RL file of 300 steps without one column, which an edit then makes."""

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
    """Return what adds an array that is nothing but its fill value."""
    return lambda file: file.create_dataset(name, shape, options.pop("dtype", "f4"), **options)


def twice_packed(file: h5py.File) -> None:
    """Add an array of one chunk of 1.2 GB of zeros that gzip has packed twice."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk((300, 1 << 20))
    properties.set_deflate(9)
    properties.set_filter(h5py.h5z.FILTER_DEFLATE, 0, (9,))
    space = h5py.h5s.create_simple((300, 1 << 20))
    item = h5py.h5d.create(file.id, b"observations", h5py.h5t.IEEE_F32LE, space, properties)
    item.write_direct_chunk((0, 0), zlib.compress(zeros(300 << 22), 9))


def zeros(num_bytes: int) -> bytes:
    """Return zlib's form of zeros without ever having them."""
    packing = zlib.compressobj(9)
    parts = [packing.compress(bytes(1 << 20)) for _ in range(num_bytes >> 20)]
    return b"".join([*parts, packing.flush()])


def rows_of_nothing(num_rows: int) -> Make:
    """Return what writes a D4RL file that says it has a number of rows, and has none."""

    def make(folder: Path) -> str:
        with h5py.File(folder / "hopper_medium-v2.hdf5", "w") as file:
            file.create_dataset("observations", (num_rows, 11), "f4")
            file.create_dataset("actions", (num_rows, 3), "f4")
            file.create_dataset("rewards", (num_rows,), "f4")
            file.create_dataset("terminals", (num_rows,), "?")
        return D4RL

    return make


def groups_in_groups(file: h5py.File) -> None:
    """Nest groups deeper than Python calls may be."""
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


def minari(write: Callable[[Path], str], **metadata: Any) -> Make:
    """Return what writes a Minari dataset whose data a function writes; it returns their form."""

    def make(folder: Path) -> str:
        document = {"dataset_id": "mine/mine-v0", "total_episodes": 1, **metadata}
        document["data_format"] = write(folder)
        (folder / "metadata.json").write_text(json.dumps(document))
        return MINARI

    return make


def episode(steps: int, shape: tuple[int, ...] = (2,)) -> Callable[[Path], str]:
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


def table(num_rows: int, **columns: Any) -> pa.Table:
    """Return an episode as Minari's Arrow form has it."""
    flags = pa.array(np.zeros(num_rows, np.bool_))
    observations = pa.array(np.zeros(num_rows))
    names = {"observations": observations, "actions": observations, "rewards": observations}
    return pa.table({**names, "terminations": flags, "truncations": flags, **columns})


def arrow(make_table: Callable[[], pa.Table], codec: str) -> Callable[[Path], str]:
    """Return what writes an Arrow file of compressed buffers."""

    def write(folder: Path) -> str:
        found = make_table()
        (folder / "0").mkdir()
        options = pa.ipc.IpcWriteOptions(compression=codec)
        with pa.ipc.new_file(folder / "0" / "part-0.arrow", found.schema, options=options) as file:
            file.write_table(found)
        return "arrow"

    return write


def zstd_buffer(folder: Path) -> str:
    """Write an Arrow file of one buffer that says that 98 kB of zstd are 6 GB."""
    arrow(lambda: table(100_000), "zstd")(folder)
    path = folder / "0" / "part-0.arrow"
    data = path.read_bytes()
    at = data.index(struct.pack("<q", 800_000))
    path.write_bytes(data[:at] + struct.pack("<q", 6 << 30) + data[at + 8 :])
    return "arrow"


def parquet(make_table: Callable[[], pa.Table], **options: Any) -> Callable[[Path], str]:
    """Return what writes a Parquet file of an episode."""

    def write(folder: Path) -> str:
        (folder / "0").mkdir()
        pq.write_table(make_table(), folder / "0" / "part-0.parquet", **options)
        return "parquet"

    return write


def openml(
    write: Callable[[Path], None], num_columns: int = 2, document: bytes | None = None
) -> Make:
    """Return what writes an OpenML dataset whose rows a function writes."""

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


HEADER = "@relation t\n@attribute c0 real\n@attribute c1 real\n@data\n"


def arff(text: str) -> Callable[[Path], None]:
    """Return what writes an ARFF file."""
    return lambda folder: (folder / "dataset.arff").write_text(text) and None


def openml_parquet(make_table: Callable[[], pa.Table], **options: Any) -> Callable[[Path], None]:
    """Return what writes a table of OpenML's."""
    return lambda folder: pq.write_table(make_table(), folder / "dataset.pq", **options)


def log(header: bytes, num_bytes: int) -> Make:
    """Return what writes the logs of a run of which one column is a header and many zeros."""

    def make(folder: Path) -> str:
        for store in ("observation", "action", "reward", "terminal", "add_count"):
            path = folder / f"$store$_{store}_ckpt.0.gz"
            path = path.with_name(f"add_count_ckpt.0.gz") if store == "add_count" else path
            with gzip.open(path, "wb", 1) as file:
                file.write(header)
                for _ in range(num_bytes >> 20):
                    file.write(bytes(1 << 20))
        return ATARI

    return make


def npy_header(version: int, length: int) -> bytes:
    """Return how an array begins whose header is that long."""
    return b"\x93NUMPY" + bytes((version, 0)) + struct.pack("<I", length)


def shard(*records: bytes, head: bytes = b"") -> Make:
    """Return what writes the files of RL Unplugged, of which the first has some records."""

    def make(folder: Path) -> str:
        for number in range(FILES):
            data = head + b"".join(map(record, records)) if number == 0 else b""
            (folder / shard_name(number, run=1)).write_bytes(gzip.compress(data))
        return UNPLUGGED

    return make


BOMBS: dict[str, Make] = {
    "an HDF5 row of 1.2 TB": d4rl(empty("infos/x", (300, 2**38)), ""),
    "an HDF5 row of 2 GB": d4rl(empty("observations", (300, 1 << 29)), "observations"),
    "HDF5 shapes of 300 x 2^40": d4rl(empty("observations", (300, 2**40)), "observations"),
    "an HDF5 chunk packed twice": d4rl(twice_packed, "observations"),
    "an HDF5 text of 2 GB": d4rl(empty("infos/x", (300,), dtype="S2000000000")),
    "an HDF5 scalar of 2 GB": d4rl(empty("metadata/x", (), dtype="S2000000000")),
    "HDF5 texts that share their bytes": d4rl(shared_texts),
    "HDF5 groups in groups": d4rl(groups_in_groups),
    "HDF5 rows that fill the disk": rows_of_nothing(10**9 // 2),
    "10^15 HDF5 rows": rows_of_nothing(10**15),
    "an HDF5 episode of 10^12 steps": minari(episode(10**12)),
    "an HDF5 episode of 10^9 steps": minari(episode(10**9)),
    "HDF5 observations of 2 GB": minari(episode(300, (1 << 29,))),
    "an Arrow buffer of zstd": minari(zstd_buffer),
    "98 kB of zstd in Arrow": minari(
        arrow(lambda: table(2, infos=pa.array([bytes(2_000_000_000)] * 2, "large_binary")), "zstd")
    ),
    "a Parquet page of 2 GB": minari(
        parquet(
            lambda: table(2, infos=pa.array([bytes(2_000_000_000), b""], "large_binary")),
            compression="zstd",
        )
    ),
    "a Parquet dictionary used by all rows": minari(
        parquet(lambda: table(20_000, infos=pa.array(["x" * 200_000] * 20_000, "large_string")))
    ),
    "a Parquet row group of 10^8 rows": minari(parquet(lambda: table(10**8), compression="zstd")),
    "a table of 10^8 rows": openml(
        openml_parquet(
            lambda: pa.table({name: pa.array(np.zeros(10**8)) for name in ("c0", "c1")}),
            compression="zstd",
        )
    ),
    "a quote that never ends": openml(arff(f"{HEADER}1,'{'x,' * 10_000_000}")),
    "an ARFF row of 20 MB": openml(arff(HEADER + "," * 20_000_000)),
    "an ARFF row of quotes": openml(arff(HEADER + "''," * 6_000_000)),
    "a label list of 20 MB": openml(
        arff("@attribute c0 {" + ",".join(map(str, range(2_700_000))) + "}\n@data\n1\n"), 1
    ),
    "a million attributes": openml(arff("@attribute c real\n" * 1_100_000 + "@data\n")),
    "a name of 20 MB": openml(arff(f"@attribute '{'x' * 20_000_000}")),
    "numbers of 5,000 digits": openml(arff(HEADER), 2, b'{"data_features":' + b"9" * 5000 + b"}"),
    "JSON of 100,000 levels": openml(arff(HEADER), 2, b"[" * 100_000),
    "30 MB of empty lists": openml(arff(HEADER), 2, b"[" + b"[]," * 10_000_000 + b"[]]"),
    "an npy header of 3 GB": log(npy_header(2, 3 << 30), 1 << 30),
    "a TFRecord of 400 MB of varints": shard(
        run_of_bytes(1, run_of_bytes(1, run_of_bytes(1, b"actions") + run_of_bytes(2, b"")))
    ),
}


def install(name: str, folder: Path) -> Outcome:
    """Install one dataset, and return what became of it."""
    from datasets_cli.config import Config
    from datasets_cli.install.install import install_dataset
    from datasets_cli.install.options import InstallOptions

    source = folder / "source"
    source.mkdir(parents=True)
    id = BOMBS[name](source)
    error: BaseException | None = None
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    try:
        options = InstallOptions(source=str(source), accept_any=True)
        install_dataset(id, Config(folder / "root", offline=True), options)
    except Exception as raised:
        error = raised
    size = sum(file.stat().st_size for file in source.rglob("*") if file.is_file())
    kind = type(error).__name__ if error else ""
    return Outcome(name, kind, str(error or ""), peak_bytes(), size)


def peak_bytes() -> int:
    """Return the most memory that this process has had since its peak was forgotten."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def main(folder: Path, names: list[str]) -> None:
    """Install bombs in little memory, and print what became of each."""
    for name in names or BOMBS:
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, before[1]))
        outcome = install(name, folder / str(len([*folder.iterdir()])))
        print(json.dumps(asdict(outcome)), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
