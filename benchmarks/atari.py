"""Converting an Atari checkpoint: memory above the bare imports, and frames a second on one core.

    python benchmarks/atari.py [--frames 100000] [--games pong seaquest]      needs ale-py

One log of the DQN Replay Dataset in the publisher's format, of real ALE frames (84x84 grey, frame
skip 4, sticky actions, a random policy), which are repeated up to the number of frames: neither
gzip, whose window is 5 frames, nor our frames, each compressed by itself, can see that. The log is
installed into the compact layout by one process that may run on one core alone. All work counts:
checksums of the log, unpacking, packing, checksums of what was written. Prints JSON; processor time
is given too, because it says less of what else the machine does; beside the whole stand its two
parts that nothing can avoid: unpacking gzip and packing zstd.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np

PROJECT = Path(__file__).resolve().parent.parent
PLAYED_STEPS = 5_000
FULL_RUN = 50_000_000


def play_rows(game: str) -> dict[str, np.ndarray]:
    """Return the rows of some whole episodes as the ring holds them, with their empty rows."""
    sys.path.insert(0, str(PROJECT))
    from tests.support.ale_games import play

    rows: dict[str, list[np.ndarray]] = {}
    for episode in play(game, PLAYED_STEPS):
        terminal = np.zeros(len(episode.actions), np.uint8)
        terminal[-1] = 1
        columns = {
            "observation": episode.frames[:-1],
            "action": episode.actions,
            "reward": episode.rewards,
            "terminal": terminal,
        }
        for name, values in columns.items():
            rows.setdefault(name, []).append(np.zeros((3, *values.shape[1:]), values.dtype))
            rows[name].append(values)
    return {name: np.concatenate(values) for name, values in rows.items()}


def write_log(folder: Path, rows: dict[str, np.ndarray], repeats: int) -> int:
    """Write the first log of a run, rows repeated so often; return its number of rows."""
    num_rows = len(rows["action"]) * repeats
    for name, values in rows.items():
        path = folder / f"$store$_{name}_ckpt.0.gz"
        write_repeated(path, values, (num_rows, *values.shape[1:]), repeats)
    write_repeated(folder / "add_count_ckpt.0.gz", np.array(num_rows - 1), (), 1)
    return num_rows


def write_repeated(path: Path, values: np.ndarray, shape: tuple[int, ...], repeats: int) -> None:
    """Write one gzip member with one ``.npy`` stream; its repeated part is compressed once."""
    header = npy_header(values, shape)
    data = values.tobytes()
    checksum = zlib.crc32(header)
    for _ in range(repeats):
        checksum = zlib.crc32(data, checksum)
    size = (len(header) + len(data) * repeats) & 0xFFFFFFFF
    with path.open("wb") as file:
        file.write(b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + deflated(header))
        file.write(deflated(data) * repeats)
        file.write(zlib.compressobj(wbits=-15).flush())
        file.write(checksum.to_bytes(4, "little") + size.to_bytes(4, "little"))


def npy_header(values: np.ndarray, shape: tuple[int, ...]) -> bytes:
    """Return what numpy writes before an array of this shape."""
    import io

    stream = io.BytesIO()
    description = np.lib.format.header_data_from_array_1_0(values) | {"shape": shape}
    np.lib.format.write_array_header_1_0(stream, description)
    return stream.getvalue()


def deflated(data: bytes) -> bytes:
    """Return a run of deflate blocks that stands for itself, at gzip's default level of Python."""
    compressor = zlib.compressobj(9, wbits=-15)
    return compressor.compress(data) + compressor.flush(zlib.Z_FULL_FLUSH)


def convert(folder: str, root: str) -> None:
    """Install the log in this process and print what it took; runs on one core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import datasets_cli.install.convert
    import datasets_cli.install.installation
    import datasets_cli.sources.http
    import datasets_cli.store.layouts.compact_writer
    from datasets_cli.catalogue.names import resolve
    from datasets_cli.config import load_config
    from datasets_cli.store.cache_root import CacheRoot
    from datasets_cli.store.manifest import read_manifest

    resolve("atari_dqn/Pong/1", CacheRoot(Path(root)))  # imports the recipes
    bare = peak_kilobytes()
    start, cpu_start = time.perf_counter(), time.process_time()
    wish = datasets_cli.install.options.InstallOptions(source=folder)
    installed = datasets_cli.install.ensure.install_dataset(
        "atari_dqn/Pong/1", load_config(root=root), wish
    ).path
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    peak = peak_kilobytes()
    manifest = read_manifest(installed)
    num_rows = manifest.num_transitions
    report = {
        "transitions": num_rows,
        "frames a second": round(num_rows / seconds),
        "frames a second of processor time": round(num_rows / cpu_seconds),
        "minutes of processor time for 50,000,000": round(
            FULL_RUN * cpu_seconds / num_rows / 60, 1
        ),
        "bytes a frame": round(manifest.size_bytes / num_rows, 1),
        "peak MB above bare imports": round((peak - bare) / 1024, 1),
        "MB of bare imports": round(bare / 1024, 1),
    }
    print(json.dumps(report))


def peak_kilobytes() -> int:
    """Return the largest size so far that this process had in memory."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0])


def unavoidable(folder: Path, frames: np.ndarray) -> dict[str, float]:
    """Return microseconds a frame of unpacking gzip alone, and of packing zstd alone."""
    from datasets_cli.formats.gzip import GzipStream
    from datasets_cli.store.layouts.frames import FrameSegments, make_dictionary

    pictures = folder / "$store$_observation_ckpt.0.gz"
    num_bytes, start = 0, time.process_time()
    with GzipStream(pictures) as stream:
        while data := stream.read(8 << 20):
            num_bytes += len(data)
    gunzip = (time.process_time() - start) / (num_bytes / 7056)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "frames.zst"
        segments = FrameSegments(path, 7056, make_dictionary(path, frames[:1024]))
        start = time.process_time()
        for first in range(0, len(frames), 1024):
            segments.write(first, frames[first : first + 1024])
        segments.close()
    zstd = (time.process_time() - start) / len(frames)
    return {"gunzip alone": round(gunzip * 1e6, 2), "zstd alone": round(zstd * 1e6, 2)}


def measure(game: str, num_frames: int) -> dict[str, Any]:
    """Return the record of one game."""
    rows = play_rows(game)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        folder.mkdir()
        num_rows = write_log(folder, rows, -(-num_frames // len(rows["action"])))
        command = [sys.executable, __file__, "--convert", str(folder), str(Path(scratch) / "root")]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return {
            "rows": num_rows,
            **json.loads(done.stdout),
            "microseconds of processor time a frame": unavoidable(folder, rows["observation"]),
        }


def main() -> None:
    """Measure every game and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--games", nargs="+", default=["pong", "seaquest"])
    parser.add_argument("--convert", nargs=2, metavar=("FOLDER", "ROOT"), help="used by itself")
    arguments = parser.parse_args()
    if arguments.convert:
        convert(*arguments.convert)
        return
    records = {game: measure(game, arguments.frames) for game in arguments.games}
    print(json.dumps({"cores": 1, "games": records}, indent=1))


if __name__ == "__main__":
    main()
