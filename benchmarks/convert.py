"""Converting files, beside TorchRL, plain readers and gunzip: seconds, frames a second, memory.

    python -m benchmarks.convert [CASE]... [--quick]

Everything counts but the download: checksums of the raw files, conversion, statistics, checksums of
the result, fsync and commit. TorchRL computes no checksum and does not call fsync. Each conversion
runs in a fresh process, and its result is compared with the source. No network is used. ``atari``
and ``workers`` need ale-py.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import measure
from benchmarks.measure import Figure, Row, Rows, Run

if TYPE_CHECKING:
    import h5py

Result = dict[str, Any]
EPISODE = 1000
FILES = {
    "halfcheetah-medium-v2": "halfcheetah_medium-v2.hdf5",
    "halfcheetah-medium-v0": "halfcheetah_medium.hdf5",
}
WIDTHS = {"observation": 17, "action": 6, "reward": 1}
LEAVES = {"observation": "observations", "action": "actions", "next/reward": "rewards"}

# D4RL's files


def d4rl(run: Run) -> Iterator[Row | str]:
    """D4RL's two layouts, beside TorchRL's conversion and h5py's bare reading."""
    converters = {"h5py": "read_bare", "ours": "convert_ours", "TorchRL": "convert_torchrl"}
    if not measure.is_installed("isal"):
        yield "isal, of the extra [fast], is not installed: gunzip takes five times as long"
    for name in [*FILES][: run.pick(2, 1)]:
        folder = run.folder / name
        folder.mkdir()
        make_d4rl(folder, name, run.pick(1_000_000, 200_000))
        results: dict[str, list[Result]] = {label: [] for label in converters}
        for _ in range(run.pick(5, 1)):
            for label, step in converters.items():
                of = f"d4rl/{name}" if label == "ours" else FILES[name] if label == "h5py" else name
                results[label].append(measure.fresh("convert", step, folder, of))
            check(folder, name)
            for written in ("ours", "torchrl"):
                shutil.rmtree(folder / written)
        for key, unit in (("seconds", "s"), ("resident MB", "MB")):
            figures = {
                label: Figure(statistics.median(each[key] for each in found))
                for label, found in results.items()
            }
            peers = ("TorchRL", "h5py") if unit == "s" else ("TorchRL",)
            figures = {label: figures[label] for label in ("ours", *peers)}
            yield from measure.rows_of(f"{name}, {key}", figures, peers, unit)


def make_d4rl(folder: Path, name: str, num_rows: int) -> None:
    """Write a file with D4RL's keys, dtypes and compression, and random content."""
    import h5py

    random, row = np.random.default_rng(0), np.arange(num_rows)
    walk = np.cumsum(random.standard_normal((num_rows, 17), dtype=np.float32), axis=0)
    observations = np.sin(walk / 10)
    columns = {
        "observations": observations,
        "actions": random.uniform(-1, 1, (num_rows, 6)).astype(np.float32),
        "rewards": random.standard_normal(num_rows, dtype=np.float32),
        "terminals": row % (7 * EPISODE) == EPISODE // 2,
        "timeouts": row % EPISODE == EPISODE - 1,
    }
    if name.endswith("v2"):
        columns |= {
            "next_observations": np.roll(observations, -1, axis=0),
            "infos/qpos": random.standard_normal((num_rows, 9)),
            "infos/qvel": random.standard_normal((num_rows, 9)),
            "infos/action_log_probs": random.standard_normal(num_rows, dtype=np.float32),
        }
    with h5py.File(folder / FILES[name], "w") as file:
        for key, values in columns.items():
            file.create_dataset(key, data=values, compression="gzip")


def read_bare(folder: str, filename: str) -> Result:
    """Read every array whole with h5py, and drop it."""
    import h5py

    def read(path: str, item: h5py.HLObject) -> None:
        if isinstance(item, h5py.Dataset):
            item[()]

    with h5py.File(Path(folder) / filename) as file:
        return measure.timed(lambda: file.visititems(read))


def convert_ours(folder: str, id: str) -> Result:
    reader = f"recipes.{id.partition('/')[0]}.reader"
    for module in ("sources.download", "install.installation", reader):
        importlib.import_module(f"datasets_cli.{module}")
    import h5py  # noqa: F401

    from datasets_cli.config import Config
    from datasets_cli.install.installation import install_dataset
    from datasets_cli.install.options import InstallOptions

    config = Config(root=Path(folder) / "ours", offline=True)
    options = InstallOptions(source=folder, accept_any=True)
    result = measure.timed(lambda: install_dataset(id, config, options))
    assert "torch" not in sys.modules, "conversion imports torch, which takes seconds and memory"
    return result


def convert_torchrl(folder: str, name: str) -> Result:
    """Convert with TorchRL, whose download finds the file in place."""
    import h5py  # noqa: F401

    module = importlib.import_module("torchrl.data.datasets.d4rl")
    source = Path(folder) / FILES[name]
    module.urllib.request.urlretrieve = lambda url, to: Path(to).symlink_to(source)
    replay = module.D4RLExperienceReplay
    return measure.timed(
        lambda: replay(name, 256, direct_download=True, root=Path(folder, "torchrl"))
    )


def check(folder: Path, name: str) -> None:
    """Compare columns that this project wrote with the source, byte for byte."""
    import h5py

    converted = folder / "ours" / "datasets" / "d4rl" / name
    with h5py.File(folder / FILES[name]) as file:
        kept = np.ones(len(file["terminals"]), np.bool_)
        if name.endswith("v0"):  # without successors, a truncated step is dropped
            kept = file["terminals"][:] | ~file["timeouts"][:]
            kept[-1] = file["terminals"][-1]
        for leaf, key in LEAVES.items():
            written = (converted / f"{leaf}.memmap").read_bytes()
            assert written == file[key][:][kept].tobytes(), f"{leaf} differs from the source"


# Other families' files


def families(run: Run) -> Iterator[Row]:
    """Trajectories of 1,000 rows of 17 numbers, beside the plain reader of each format."""
    for id, (make, reader, step) in FAMILIES.items():
        folder = run.folder / id.partition("/")[0]
        folder.mkdir()
        filename = make(folder, family_rows(run.pick(1_000, 200)))
        steps = {"ours": ("convert_ours", id), reader: (step, filename)}
        found: dict[str, list[float]] = {label: [] for label in steps}
        for _ in range(run.pick(3, 1)):
            for label, (each, argument) in steps.items():
                found[label].append(measure.fresh("convert", each, folder, argument)["seconds"])
            shutil.rmtree(folder / "ours")
        times = {label: Figure(statistics.median(each)) for label, each in found.items()}
        yield from measure.rows_of(id, times, (reader,), "s")


def family_rows(num_episodes: int) -> Rows:
    random, num_rows = np.random.default_rng(0), num_episodes * EPISODE
    columns = {
        name: random.standard_normal((num_rows, width), np.float32)
        for name, width in WIDTHS.items()
    }
    columns["observation"] = np.sin(np.cumsum(columns["observation"], axis=0) / 10)
    return columns | {"last": (np.arange(num_rows) % EPISODE == EPISODE - 1).astype(np.float32)}


def make_neorl2(folder: Path, rows: Rows) -> str:
    obs, last = rows["observation"], rows["last"]
    arrays = {"obs": obs, "next_obs": np.roll(obs, -1, 0), "action": rows["action"]}
    arrays |= {"reward": rows["reward"][:, 0], "done": 0 * last, "truncated": last}
    return save_splits(folder, arrays, "Simglucose-train.npz", "Simglucose-val.npz")


def make_ogbench(folder: Path, rows: Rows) -> str:
    arrays = {"observations": rows["observation"], "actions": rows["action"]}
    name = "pointmaze-medium-navigate-v0"
    return save_splits(
        folder, arrays | {"terminals": rows["last"]}, f"{name}.npz", f"{name}-val.npz"
    )


def save_splits(folder: Path, arrays: Rows, train: str, val: str) -> str:
    """Save archives of all rows and of one trajectory; return the name of the first."""
    np.savez_compressed(folder / train, **arrays)
    np.savez_compressed(folder / val, **{name: rows[:EPISODE] for name, rows in arrays.items()})
    return train


def make_robomimic(folder: Path, rows: Rows) -> str:
    import h5py

    with h5py.File(folder / "low_dim.hdf5", "w") as file:
        for number, start in enumerate(range(0, len(rows["last"]), EPISODE)):
            of_demo = {name: values[start : start + EPISODE] for name, values in rows.items()}
            demo = file.create_group(f"data/demo_{number}")
            demo["obs/state"] = demo["next_obs/state"] = of_demo["observation"]
            demo["actions"], demo["rewards"] = of_demo["action"], of_demo["reward"][:, 0]
    return "low_dim.hdf5"


def make_tfds(folder: Path, rows: Rows) -> str:
    from tests.support.rlds_files import episode, tensor, write_rlds

    states = np.split(rows["observation"], len(rows["last"]) // EPISODE)
    episodes = (episode(EPISODE, steps__state=each.reshape(-1)) for each in states)
    write_rlds(folder, episodes, {"state": tensor("float32", 17)}, name="bridge")
    return "bridge-train.tfrecord-00000-of-00001"


def read_archive(folder: str, filename: str) -> Result:
    """Read every array whole with numpy, and drop it."""

    def read() -> None:
        with np.load(Path(folder) / filename) as arrays:
            for name in arrays:
                arrays[name]

    return measure.timed(read)


def read_checked(folder: str, filename: str) -> Result:
    """Read a file whole, and compute its CRC."""
    import google_crc32c

    return measure.timed(lambda: google_crc32c.value(Path(folder, filename).read_bytes()))


FAMILIES: dict[str, tuple[Callable[[Path, Rows], str], str, str]] = {
    "neorl2/Simglucose": (make_neorl2, "np.load", "read_archive"),
    "ogbench/pointmaze-medium-navigate-v0": (make_ogbench, "np.load", "read_archive"),
    "robomimic/lift/ph/low_dim": (make_robomimic, "h5py", "read_bare"),
    "tfds/bridge/0.1.0": (make_tfds, "CRC alone", "read_checked"),
}
"""What writes the files of a dataset, and their plain reader."""

# Atari's checkpoints

PLAYED_STEPS = 5_000
PONG = "atari_dqn/Pong/1"


def atari(run: Run) -> Iterator[Row | str]:
    """One checkpoint of real frames on one core, beside gunzip and zstd alone."""
    if not measure.is_installed("ale_py"):
        yield "atari: ale-py is not installed"
        return
    for game in ("pong", "seaquest")[: run.pick(2, 1)]:
        rows, folder = ring_rows(game), run.folder / game
        folder.mkdir()
        num_rows = write_log(folder, rows, -(-run.pick(100_000, 20_000) // len(rows["action"])))
        found = measure.fresh("convert", "convert_atari", folder)
        least = measure.fresh("convert", "unavoidable", folder)
        rates = {
            "compact": Figure(num_rows / found["core seconds"]),
            "gunzip and zstd alone": Figure(1 / sum(least.values())),
        }
        yield from measure.rows_of(
            f"{game}, frames of a core", rates, ("gunzip and zstd alone",), "1/s"
        )
        raw = Figure(num_rows * 84 * 84 / 1e6)
        memory = Figure(found["resident MB"])
        yield Row(f"{game}, memory", "compact", memory, "raw frames", raw, "MB")


def ring_rows(game: str) -> Rows:
    """Return whole episodes as a checkpoint's ring has them, with the empty rows before each."""
    from tests.support.ale_games import play

    parts: dict[str, list[np.ndarray]] = {}
    for episode in play(game, PLAYED_STEPS):
        terminal = np.zeros(len(episode.actions), np.uint8)
        terminal[-1] = 1
        columns = {"observation": episode.frames[:-1], "action": episode.actions}
        for name, values in (columns | {"reward": episode.rewards, "terminal": terminal}).items():
            empty = np.zeros((3, *values.shape[1:]), values.dtype)
            parts.setdefault(name, []).extend((empty, values))
    return {name: np.concatenate(each) for name, each in parts.items()}


def write_log(folder: Path, rows: Rows, repeats: int) -> int:
    """Write the first log of a run with rows repeated so often, and return its number of rows.

    Neither gzip, whose window is 5 frames, nor our frames, which are compressed one by one, profit
    from the repetition.
    """
    num_rows = len(rows["action"]) * repeats
    for name, values in rows.items():
        path = folder / f"$store$_{name}_ckpt.0.gz"
        write_repeated(path, values, (num_rows, *values.shape[1:]), repeats)
    write_repeated(folder / "add_count_ckpt.0.gz", np.array(num_rows - 1), (), 1)
    return num_rows


def write_repeated(path: Path, values: np.ndarray, shape: tuple[int, ...], repeats: int) -> None:
    """Write one gzip member with one ``.npy`` stream, whose repeated part is compressed once."""
    stream = io.BytesIO()
    description = np.lib.format.header_data_from_array_1_0(values) | {"shape": shape}
    np.lib.format.write_array_header_1_0(stream, description)
    header, data = stream.getvalue(), values.tobytes()
    checksum = zlib.crc32(header)
    for _ in range(repeats):
        checksum = zlib.crc32(data, checksum)
    size = (len(header) + len(data) * repeats) & 0xFFFFFFFF
    with path.open("wb") as file:
        file.write(b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + deflated(header))
        file.write(deflated(data) * repeats)
        file.write(zlib.compressobj(wbits=-15).flush())
        file.write(checksum.to_bytes(4, "little") + size.to_bytes(4, "little"))


def deflated(data: bytes) -> bytes:
    """Return deflate blocks that depend on nothing before them, at Python's level of gzip."""
    compressor = zlib.compressobj(9, wbits=-15)
    return compressor.compress(data) + compressor.flush(zlib.Z_FULL_FLUSH)


def convert_atari(folder: str) -> Result:
    """Install the log in this process, on one core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for module in ("install.installation", "store.layouts.compact_writer", "verbs.download"):
        importlib.import_module(f"datasets_cli.{module}")
    root = Path(folder).with_suffix(".root")
    return measure.timed(lambda: install_checkpoints(Path(folder), root, 0, "0:1"))


def unavoidable(folder: str) -> dict[str, float]:
    """Return the seconds of a core a frame of unpacking gzip alone, and of packing zstd alone."""
    from datasets_cli.formats.gzip import GzipStream
    from datasets_cli.store.layouts.frames import FrameSegments, make_dictionary

    num_bytes, start, parts = 0, time.process_time(), []
    with GzipStream(Path(folder) / "$store$_observation_ckpt.0.gz") as stream:
        while data := stream.read(8 << 20):
            num_bytes += len(data)
            parts += [data] if not parts else []
    gunzip = (time.process_time() - start) / (num_bytes / 7056)
    frames = np.frombuffer(parts[0][128:], np.uint8)
    frames = frames[: len(frames) // 7056 * 7056].reshape(-1, 84, 84)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "frames.zst"
        segments = FrameSegments(path, 7056, make_dictionary(path, frames[:1024]))
        start = time.process_time()
        for first in range(0, len(frames), 1024):
            segments.write(first, frames[first : first + 1024])
        segments.close()
    return {"gunzip": gunzip, "zstd": (time.process_time() - start) / len(frames)}


# Two workers

ZLIB = """
import sys, zlib
data = bytes(range(256)) * 4096
print(flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[1])):
    zlib.compress(data, 9)
"""


def workers(run: Run) -> Iterator[Row | str]:
    """Four checkpoints of Atari by two workers, beside one.

    Two processes of zlib, which share nothing, gain what two cores of this machine can give.
    """
    if not measure.is_installed("ale_py"):
        yield "workers: ale-py is not installed"
        return
    logs, root = run.folder / "logs", run.folder / "root"
    logs.mkdir()
    write_logs(logs, run.pick(500_000, 20_000))
    seconds: dict[int, list[float]] = {1: [], 2: []}
    gains, digests = [], set()
    for _ in range(run.pick(3, 1)):
        gains.append(zlib_seconds(1) / zlib_seconds(2))
        for number, found in seconds.items():
            os.sync()
            start = time.perf_counter()
            install_checkpoints(logs, root, number)
            found.append(time.perf_counter() - start)
            digests.add(digest_of(root))
    assert len(digests) == 1, "one and two workers do not write the same files"
    one, two = (Figure(statistics.median(found)) for found in seconds.values())
    limit = Figure(one.mean / statistics.median(gains))
    for peer, theirs in (("1 worker", one), ("gain of zlib", limit)):
        yield Row("4 checkpoints", "2 workers", two, peer, theirs, "s")


def write_logs(folder: Path, num_frames: int) -> None:
    """Write four logs of a run, one after the other in time."""
    rows = ring_rows("pong")
    capacity = write_log(folder, rows, -(-num_frames // len(rows["action"])))
    for number in range(1, 4):
        for name in rows:
            first = folder / f"$store$_{name}_ckpt.0.gz"
            shutil.copy(first, folder / first.name.replace(".0.", f".{number}."))
        count = np.array((number + 1) * capacity - 1)
        write_repeated(folder / f"add_count_ckpt.{number}.gz", count, (), 1)


def install_checkpoints(folder: Path, root: Path, num_workers: int, which: str = "0:4") -> None:
    import datasets_cli
    from datasets_cli.core.progress import silent

    options: Any = {"options": {"checkpoints": which}, "num_workers": num_workers, "force": True}
    datasets_cli.download(PONG, source=folder, root=root, progress=silent, **options)


def digest_of(root: Path) -> str:
    """Return one digest of all files of all datasets."""
    found = hashlib.sha256()
    for path in sorted((root / "datasets").rglob("*")):
        if path.is_file():
            found.update(path.read_bytes())
    return found.hexdigest()


def zlib_seconds(count: int, parts: int = 150) -> float:
    """Return the seconds that some processes take for all parts, once all of them have started."""
    command = [sys.executable, "-c", ZLIB, str(parts // count)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    running: Any = [subprocess.Popen(command, **pipes) for _ in range(count)]
    for process in running:
        process.stdout.readline()
    start = time.perf_counter()
    for process in running:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in running:
        process.communicate()
    return time.perf_counter() - start


# One's own data


def writer(run: Run) -> Iterator[Row]:
    """``DatasetWriter``, an episode of 1,000 steps at a time, beside ``numpy.save``.

    The peer saves the given arrays, calls fsync and computes a sha256.
    """
    num_rows, rng = run.pick(1_000_000, 200_000), np.random.default_rng(0)
    arrays = {
        name: rng.standard_normal((num_rows, width), np.float32) for name, width in WIDTHS.items()
    }
    calls: dict[str, Callable[[], None]] = {
        layout: partial(write, arrays, layout, run.folder / layout) for layout in ("compact", "ted")
    }
    calls["numpy.save"] = partial(save, arrays, run.folder)
    times = measure.medians_of(calls, 3)
    yield from measure.rows_of(f"DatasetWriter, {num_rows:,} rows", times, ("numpy.save",), "s")


def write(arrays: Rows, layout: str, folder: Path) -> None:
    """Write arrays as a dataset, an episode at a time."""
    from datasets_cli import DatasetWriter
    from datasets_cli.core.progress import silent

    shutil.rmtree(folder, ignore_errors=True)
    options: Any = {"layout": layout, "root": folder, "progress": silent}
    with DatasetWriter("bench/rows", **options) as writer:
        for start in range(0, len(arrays["reward"]), EPISODE):
            steps = {name: values[start : start + EPISODE] for name, values in arrays.items()}
            writer.add_episode({**steps, "truncated": True})


def save(arrays: Rows, folder: Path) -> None:
    """Save arrays as numpy does, bring them to the disk, and hash them."""
    for array in arrays.values():
        with (folder / "saved.npy").open("wb") as file:
            np.save(file, array)
            file.flush()
            os.fsync(file.fileno())
        hashlib.sha256(array.data).hexdigest()


CASES = {
    **{"d4rl": d4rl, "families": families, "writer": writer},
    **{"atari": atari, "workers": workers},
}
STEPS = {
    each.__name__: each
    for each in (
        *(read_bare, read_archive, read_checked, convert_ours),
        *(convert_torchrl, convert_atari, unavoidable),
    )
}

if __name__ == "__main__":
    measure.run(CASES, STEPS)
