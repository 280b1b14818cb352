"""What a layout costs: bytes, opening, cold reads, rows beyond the memory, frames in batches.

    python -m benchmarks.layouts [CASE]... [--quick]

Beside TorchRL, numpy's arrays, uncompressed frames, and what no reader can leave out. ``frames``
needs ale-py. ``beyond_memory`` limits its processes by a cgroup, which takes Linux and root.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import mmap
import os
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

import datasets_cli
from benchmarks import measure
from benchmarks.measure import ID, LAYOUTS, Call, Figure, Row, Rows, Run
from datasets_cli import ExperienceReplay, TensorDictReplayBuffer, open_storage

# Vectors


def vectors(run: Run) -> Iterator[Row]:
    """Bytes of a transition, and batches of 256 from files outside the page cache."""
    num_rows = run.pick(1_000_000, 200_000)
    for leaves in (11, 17)[: run.pick(2, 1)]:
        rows = measure.mujoco_like(num_rows, infos=leaves == 17)
        folders = {
            name: measure.install(name, run.folder / f"{name}-{leaves}", rows) for name in LAYOUTS
        }
        arrays = Figure(sum(values.nbytes for values in rows.values()) / num_rows)
        for layout, folder in folders.items():
            size = open_storage(folder).dataset.manifest.size_bytes / num_rows
            yield Row(f"a transition, {leaves} leaves", layout, Figure(size), "arrays", arrays, "B")
        cold = {
            layout: measure.cold_batches(partial(drawing, path), path)
            for layout, path in folders.items()
        }
        ted = folders["ted"]
        cold["TorchRL"] = measure.cold_batches(partial(torchrls, ted), ted)
        yield from measure.rows_of(f"cold batches, {leaves} leaves", cold, ("TorchRL",), "1/s")


def drawing(folder: Path) -> Call:
    return TensorDictReplayBuffer(storage=open_storage(folder), batch_size=256).sample


def torchrls(folder: Path) -> Call:
    return measure.torchrls(measure.torchrls_mapped(folder), 256).sample


def opening(run: Run) -> Iterator[Row]:
    """Opening a dataset of few rows and of many, beside its manifest and its mappings alone."""
    block, many = measure.mujoco_like(10_000), run.pick(10_000_000, 1_000_000)
    for layout in LAYOUTS:
        few, long = (run.folder / f"{name}-{layout}" for name in ("few", "long"))
        folder = measure.installed(layout, few, block)
        tall = measure.install(layout, long, block, many // len(block["action",]))
        replay = partial(ExperienceReplay, ID, root=few, download=False)
        calls = {
            f"{layout}, open_storage": partial(open_storage, folder),
            f"{layout}, {many:,} rows": partial(open_storage, tall),
            f"{layout}, ExperienceReplay": replay,
            "json and mmap": partial(least, folder),
        }
        if layout == "ted":
            calls["load_memmap"] = partial(TensorDict.load_memmap, folder)
        times = measure.in_turn(calls, run.pick(500, 100))
        yield from measure.rows_of("opening", times, ("load_memmap", "json and mmap"))


def least(folder: Path) -> None:
    """Parse the manifest and map every file that it names."""
    for name in json.loads((folder / "manifest.json").read_bytes())["files"]:
        with (folder / name).open("rb") as file:
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


# Rows beyond the memory

BY_ROWS = "SamplerWithoutReplacement"
BY_BLOCKS = "BlockShuffleSampler 1024 64"
SOURCE_ROWS, GIGABYTES, LIMIT_MB = 500_000, 3, 1024


def beyond_memory(run: Run) -> Iterator[Row | str]:
    """Epochs over 3 GB below a memory limit of 1 GB, by rows and by blocks of rows.

    Linux reads ``read_ahead_kb`` around each row that is not in the memory: 128 on most machines
    and 8,192 on some, which is wasted on single rows.
    """
    if run.is_quick:
        yield "beyond_memory: a quick run does not write 3 GB"
        return
    folder = make_large(run.folder)
    rates: dict[str, list[float]] = {BY_BLOCKS: [], BY_ROWS: []}
    with limited(LIMIT_MB) as group:
        if group is None:
            yield "the memory limit: no cgroup can be made, the page cache is emptied instead"
        for _ in range(3):
            for name, found in rates.items():
                measure.drop_from_page_cache(
                    folder
                )  # pages that are there do not count for a process
                step = measure.fresh("layouts", "epoch", folder, name, 3, group or "")
                found.append(step["batches a second"])
    figures = {name: Figure(statistics.median(found)) for name, found in rates.items()}
    yield from measure.rows_of(
        f"{GIGABYTES} GB, {LIMIT_MB} MB of memory", figures, (BY_ROWS,), "1/s"
    )


def make_large(folder: Path) -> Path:
    """Write the dataset, and compare batches of it with the source."""
    rows = measure.mujoco_like(SOURCE_ROWS, infos=True)
    size = open_storage(
        measure.install("compact", folder / "once", rows)
    ).dataset.manifest.size_bytes
    large = measure.install(
        "compact", folder / "large", rows, max(1, round(GIGABYTES * 1e9 / size))
    )
    for name in (BY_ROWS, BY_BLOCKS):
        batch = drawing_by(large, name).sample()
        for key, values in rows.items():
            assert (batch[key].numpy() == values[batch["index"].numpy() % SOURCE_ROWS]).all()
    return large


def drawing_by(folder: Path, name: str) -> Any:
    """Return a buffer with a sampler, which is named with its arguments."""
    kind, *sizes = name.split()
    sampler = getattr(datasets_cli, kind)(*map(int, sizes))
    return TensorDictReplayBuffer(storage=open_storage(folder), sampler=sampler, batch_size=256)


def epoch(folder: str, name: str, seconds: str, group: str = "") -> dict[str, float]:
    """Return the batches a second of whole windows; the first batches of one read all of it."""
    if group:
        (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
    buffer = drawing_by(Path(folder), name)
    sampler = buffer.sampler
    window = getattr(sampler, "block_len", 256) * getattr(sampler, "window", 1) // 256
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < float(seconds):
        for _ in range(window):
            buffer.sample()
        count += window
    return {"batches a second": count / (time.perf_counter() - start)}


@contextlib.contextmanager
def limited(megabytes: int) -> Iterator[Path | None]:
    """Make a cgroup below this process's, or yield None if that is not possible."""
    try:
        group, limit_file = own_group()
        group.mkdir()
    except OSError:
        yield None
        return
    try:
        (group / limit_file).write_text(str(megabytes * 2**20))
        yield group
    finally:
        group.rmdir()


def own_group() -> tuple[Path, str]:
    """Return where a cgroup can be made, and the name of the file for its limit."""
    for line in Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            own = Path("/sys/fs/cgroup/memory" + path)
            return own / f"rlds-cold-{os.getpid()}", "memory.limit_in_bytes"
    own = Path("/sys/fs/cgroup") / path.strip("/")
    for parent in (own, own.parent):  # version 2: a group with processes has no groups below it
        control = parent / "cgroup.subtree_control"
        if control.exists() and "memory" in control.read_text().split():
            return parent / f"rlds-cold-{os.getpid()}", "memory.max"
    raise OSError(f"neither {own} nor the group above it limits the memory of groups below it")


# Frames

GAMES = ("breakout", "pong", "seaquest", "qbert")
FRAME_BYTES = 84 * 84
STACK = 4


def frames(run: Run) -> Iterator[Row | str]:
    """Real Atari frames: bytes of each, and batches of stacks of 4, current and next."""
    if not measure.is_installed("ale_py"):
        yield "frames: ale-py is not installed"
        return
    for game in GAMES[: run.pick(4, 1)]:
        yield from of_game(run, game, run.pick(20_000, 2_000))


def of_game(run: Run, game: str, num_frames: int) -> Iterator[Row]:
    """Yield the rows of one game; batches have other rows in every call, cold in the caches."""
    rows, folder = play(game, num_frames), run.folder / game / "compact"
    storage = open_storage(measure.install("compact", folder, rows))
    size = Figure(storage.dataset.manifest.size_bytes / num_frames)
    yield Row(f"{game}, a frame", "compact", size, "84x84 bytes", Figure(FRAME_BYTES), "B")
    pixels = torch.from_numpy(rows["observation",])
    check_stacks(storage, rows, pixels)
    yield from stack_times(run, game, storage, pixels)
    del storage  # so that this process does not have the files mapped
    raw = run.folder / game / "raw"
    raw.mkdir()
    pixels.numpy().tofile(raw / "frames.bin")
    rates = {
        "compact": measure.cold_batches(partial(stacks_of, folder, num_frames), folder),
        "uncompressed file": measure.cold_batches(
            partial(mapped, raw / "frames.bin", num_frames), raw
        ),
    }
    yield from measure.rows_of(f"{game}, cold batches of 32", rates, ("uncompressed file",), "1/s")


def stack_times(run: Run, game: str, storage: Any, pixels: torch.Tensor) -> Iterator[Row]:
    """Yield the times of batches of stacks, beside uncompressed memory and the decoder."""
    stacks = datasets_cli.FrameStack(storage, STACK).get
    for batch in (32, 256):
        index = partial(torch.randint, STACK, len(pixels) - 1, (batch,))
        calls: dict[str, Call] = {
            "compact": lambda: stacks(index()),  # noqa: B023
            "frame by frame": lambda: frame_by_frame(pixels, index()),  # noqa: B023
            "one window": lambda: windows(pixels, index()),  # noqa: B023
            "decoder alone": decoder_alone(storage.dataset.folder, batch * (STACK + 1)),
        }
        times = measure.in_turn(calls, run.pick(200, 50), "ms")
        yield from measure.rows_of(f"{game}, {batch} stacks", times, [*calls][1:], "ms")


def play(game: str, num_frames: int) -> Rows:
    """Return TED columns of a random policy in an Atari game."""
    from tests.support import ale_games

    episodes = ale_games.play(game, num_frames)
    ends = np.cumsum([len(each.actions) for each in episodes]) - 1
    terminated, truncated = np.zeros((2, num_frames, 1), np.bool_)
    terminated[ends, 0] = [each.terminated for each in episodes]
    truncated[ends, 0] = [not each.terminated for each in episodes]
    none = np.zeros_like(terminated)
    return {
        ("observation",): np.concatenate([each.frames[:-1] for each in episodes]),
        ("next", "observation"): np.concatenate([each.frames[1:] for each in episodes]),
        ("action",): np.concatenate([each.actions for each in episodes]),
        ("next", "reward"): np.concatenate([each.rewards for each in episodes])[:, None],
        ("next", "terminated"): terminated,
        ("next", "truncated"): truncated,
        ("next", "done"): terminated | truncated,
        **{(name,): none for name in ("done", "terminated", "truncated")},
    }


def check_stacks(storage: Any, rows: Rows, pixels: torch.Tensor) -> None:
    """Compare rows with the source, and stacks that are not padded with those of plain indexing."""
    every = storage.get(torch.arange(len(storage)))
    for key, values in rows.items():
        assert np.array_equal(every[key].numpy(), values), key
    index = torch.arange(STACK, int(storage.offsets[1]) - 1)
    batch = datasets_cli.FrameStack(storage, STACK).get(index)
    current, following = frame_by_frame(pixels, index)
    assert torch.equal(batch["observation"], current)
    assert torch.equal(batch["next", "observation"], following)


def frame_by_frame(pixels: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Stack uncompressed frames as plain PyTorch code does: one indexing operation a frame."""
    stacks = (
        torch.stack([pixels[index - back + ahead] for back in (3, 2, 1, 0)], 1) for ahead in (0, 1)
    )
    return torch.stack([*stacks])


def windows(pixels: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Gather whole windows of five frames: what uncompressed memory does at best."""
    size = (len(pixels) - STACK, (STACK + 1) * FRAME_BYTES)
    return pixels.as_strided(size, (FRAME_BYTES, 1)).index_select(0, index - STACK + 1)


def stacks_of(folder: Path, num_frames: int) -> Call:
    """Return a draw of 32 stacks from the dataset, which is opened first."""
    stack = datasets_cli.FrameStack(open_storage(folder), STACK)
    return lambda: stack.gather(torch.randint(num_frames, (32,)))


def mapped(path: Path, count: int) -> Call:
    """Return a draw of 32 windows from an uncompressed file, which is mapped first."""
    with path.open("rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    pixels = torch.frombuffer(mapping, dtype=torch.uint8).view(count, 84, 84)
    return lambda: windows(pixels, torch.randint(STACK, count - 1, (32,)))


def decoder_alone(folder: Path, num_frames: int) -> Callable[[], None]:
    """Return zstandard's decoding of as many frames, joined before, into memory that is there."""
    import zstandard

    from datasets_cli.store.layouts.frames import for_zstd, read_dictionary

    path = folder / "frames" / "observation.zst"
    blob, offsets = path.read_bytes(), np.fromfile(f"{path}.offsets", np.int64)
    dictionary = for_zstd(read_dictionary(Path(f"{path}.dictionary")))
    decompressor = zstandard.ZstdDecompressor(dict_data=dictionary)
    count = num_frames // (STACK + 1)
    first = np.random.default_rng(0).integers(len(offsets) - 1 - STACK, size=(50, count))
    bounds = zip(offsets[first].tolist(), offsets[first + STACK + 1].tolist(), strict=True)
    sources = [
        b"".join(blob[start:end] for start, end in zip(*pair, strict=True)) for pair in bounds
    ]
    turns, out = itertools.cycle(sources), np.zeros(num_frames * FRAME_BYTES, np.uint8)

    def decode() -> None:
        stream = decompressor.stream_reader(next(turns), read_across_frames=True)
        assert stream.readinto(out.data) == len(out)

    return decode


CASES = {
    "vectors": vectors,
    "opening": opening,
    "frames": frames,
    "beyond_memory": beyond_memory,
}

if __name__ == "__main__":
    measure.run(CASES, {"epoch": epoch})
