"""Frames on disk and in batches: the compact layout against uncompressed tensors.

    python benchmarks/frames.py [--frames 20000] [--calls 200]        needs ale-py

Real ALE frames (84x84 grey, frame skip 4, sticky actions, a random policy) of four games. Prints
JSON: bytes a frame with all overhead, and the milliseconds, medians and means, of a batch of stacks
of 4, current and next. Rows are cold, others in every call, or warm: the same in every call, so
that the processor's cache has what it can. Beside ours: plain PyTorch indexing of an uncompressed
tensor in memory, frame by frame; one gather of whole windows there; the floor, which is zstandard
alone, decoding as many frames into memory that is there already; and, from a cold disk, an
uncompressed file that is mapped. A batch of ours is compared with the source.
"""

from __future__ import annotations

import argparse
import itertools
import json
import mmap
import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import zstandard
from PIL import Image
from tables import install
from timing import Time, cold_per_second, compare, shown

from datasets_cli import FrameStack, TensorDictReplayBuffer, open_storage
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.schema.columns import Key
from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.frames import for_zstd, read_dictionary

GAMES = ("pong", "breakout", "seaquest", "qbert")
RAW_BYTES = 84 * 84
STACK = 4
RUN_FRAMES = 50_000_000


def play(game: str, num_frames: int) -> dict[Key, np.ndarray]:
    """Return TED columns of a random policy in an Atari game."""
    from ale_py import ALEInterface, LoggerMode, roms

    ALEInterface.setLoggerMode(LoggerMode.Error)
    ale = ALEInterface()
    ale.setInt("random_seed", 0)
    ale.setInt("frame_skip", 4)
    ale.setFloat("repeat_action_probability", 0.25)
    ale.loadROM(roms.get_rom_path(game))
    rng = np.random.default_rng(0)
    actions = ale.getMinimalActionSet()
    steps: dict[str, list[Any]] = {name: [] for name in ("frame", "action", "reward", "end")}
    following = []
    frame = look(ale)
    for number in range(num_frames):
        choice = int(rng.integers(len(actions)))
        reward = ale.act(actions[choice])
        over = ale.game_over(with_truncation=False)
        after = look(ale)
        for name, value in zip(steps, (frame, choice, reward, over), strict=True):
            steps[name].append(value)
        following.append(after)
        if over or number == num_frames - 1:
            ale.reset_game()
            after = look(ale)
        frame = after
    end = np.array(steps["end"])[:, None]
    cut = np.zeros_like(end)
    cut[-1] = not end[-1]
    none = np.zeros_like(end)
    return {
        ("observation",): np.stack(steps["frame"]),
        ("next", "observation"): np.stack(following),
        ("action",): np.array(steps["action"], np.int32),
        ("next", "reward"): np.array(steps["reward"], np.float32)[:, None],
        ("next", "terminated"): end,
        ("next", "truncated"): cut,
        ("next", "done"): end | cut,
        ("done",): none,
        ("terminated",): none,
        ("truncated",): none,
    }


def look(ale: Any) -> np.ndarray:
    """Return the screen shrunk by averaging areas, as dopamine does, uint8 ``[84, 84]``."""
    screen = Image.fromarray(ale.getScreenGrayscale())
    return np.asarray(screen.resize((84, 84), Image.Resampling.BOX))


def frame_by_frame(frames: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Stack as plain PyTorch code does: one indexing operation a frame of the stack."""
    return torch.stack(
        [
            torch.stack([frames[index - back + ahead] for back in (3, 2, 1, 0)], 1)
            for ahead in (0, 1)
        ]
    )


def windows(frames: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Gather whole windows of five frames at once: what uncompressed memory can do at best."""
    run = frames.as_strided((len(frames) - STACK, (STACK + 1) * RAW_BYTES), (RAW_BYTES, 1))
    return run.index_select(0, index - STACK + 1)


def mapped_frames(path: Path, count: int) -> Callable[[], Any]:
    """Return a draw of 32 windows from an uncompressed file that is mapped anew."""
    with path.open("rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    frames = torch.frombuffer(mapping, dtype=torch.uint8).view(count, 84, 84)
    return lambda: windows(frames, torch.randint(STACK, count - 1, (32,)))


def decoder_alone(folder: Path, num_frames: int) -> Callable[[], Any]:
    """Return a decoding of some windows of frames by zstandard, other ones in every call.

    Nothing but the decoder: the windows' bytes are joined before, and the memory is there.
    """
    path = folder / "frames" / "observation.zst"
    blob, offsets = path.read_bytes(), np.fromfile(f"{path}.offsets", np.int64)
    dictionary = for_zstd(read_dictionary(Path(f"{path}.dictionary")))
    decompressor = zstandard.ZstdDecompressor(dict_data=dictionary)
    count = num_frames // (STACK + 1)
    first = np.random.default_rng(0).integers(len(offsets) - 1 - STACK, size=(50, count))
    starts, ends = offsets[first], offsets[first + STACK + 1]
    sources = [
        b"".join(blob[start:end] for start, end in zip(*pair, strict=True))
        for pair in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    fresh, out = itertools.cycle(sources), np.zeros(num_frames * RAW_BYTES, np.uint8)

    def decode() -> None:
        stream = decompressor.stream_reader(next(fresh), read_across_frames=True)
        assert stream.readinto(out.data) == len(out)

    return decode


def batch_times(
    storage: DatasetStorage, frames: torch.Tensor, batch: int, calls: int
) -> dict[str, Time]:
    """Return the milliseconds of a batch of stacks, ours and from uncompressed memory."""
    stack = FrameStack(storage, STACK)
    plain = TensorDictReplayBuffer(storage=stack, batch_size=batch)
    ahead = TensorDictReplayBuffer(storage=stack, batch_size=batch, prefetch=2)
    fresh = partial(torch.randint, STACK, len(frames) - 1, (batch,))
    same = fresh()
    times = compare(
        {
            "compact, cold rows": lambda: stack.get(fresh()),
            "frame by frame, cold rows": lambda: frame_by_frame(frames, fresh()),
            "compact, warm rows": lambda: stack.get(same),
            "frame by frame, warm rows": lambda: frame_by_frame(frames, same),
            "one window, cold rows": lambda: windows(frames, fresh()),
            "compact, whole sample()": plain.sample,
            "compact, prefetched": ahead.sample,
            "decoder alone": decoder_alone(storage.dataset.folder, batch * (STACK + 1)),
        },
        calls,
    )
    return {label: time.divided(1e3, 3) for label, time in times.items()}


def check(storage: DatasetStorage, rows: dict[Key, np.ndarray]) -> None:
    """Compare every row with the source, and the stacks of a batch with those of plain indexing."""
    num_rows = len(storage)
    every = storage.get(torch.arange(num_rows))
    for key, values in rows.items():
        assert np.array_equal(every[key].numpy(), values), key
    start = np.repeat(storage.offsets[:-1].numpy(), storage.offsets.diff().numpy())
    (whole,) = np.nonzero((np.arange(num_rows) - start >= STACK)[:-1])  # nothing is padded
    index = torch.from_numpy(np.random.default_rng(0).choice(whole, 256))
    batch = FrameStack(storage, STACK).get(index)
    frames = torch.from_numpy(rows["observation",])
    current, following = frame_by_frame(frames, index)
    assert torch.equal(batch["observation"], current)
    assert torch.equal(batch["next", "observation"][:, :-1], following[:, :-1])
    last = torch.from_numpy(rows["next", "observation"])[
        index
    ]  # of another trajectory than row + 1
    assert torch.equal(batch["next", "observation"][:, -1], last)


def measure(game: str, num_frames: int, calls: int, folder: Path) -> dict[str, Any]:
    """Return the record of one game."""
    rows = play(game, num_frames)
    install(CompactWriter, folder / "compact", rows)
    storage = open_storage(folder / "compact")
    size = storage.dataset.manifest.size_bytes
    check(storage, rows)
    frames = torch.from_numpy(rows["observation",])
    (folder / "raw").mkdir()
    frames.numpy().tofile(folder / "raw" / "frames.bin")
    record: dict[str, Any] = {
        "bytes a frame, all overhead counted": round(size / num_frames, 1),
        "times smaller than raw frames": round(RAW_BYTES * num_frames / size, 1),
    }
    for batch in (32, 256):
        times = batch_times(storage, frames, batch, calls)
        record[f"batch {batch}, stack 4, current and next, ms"] = shown(times, 3)
        record[f"batch {batch}: compact / frame by frame"] = {
            kind: times[f"compact, {kind}"].over(times[f"frame by frame, {kind}"])
            for kind in ("cold rows", "warm rows")
        }

    def opened() -> Callable[[], Any]:
        stack = FrameStack(open_storage(folder / "compact"), STACK)
        return lambda: stack.gather(torch.randint(num_frames, (32,)))

    del storage
    raw = folder / "raw" / "frames.bin"
    record["cold batches of 32 a second"] = {
        "compact": cold_per_second(opened, folder / "compact"),
        "uncompressed file": cold_per_second(lambda: mapped_frames(raw, num_frames), raw.parent),
    }
    return record


def main() -> None:
    """Measure every game and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, default=20_000)
    parser.add_argument("--calls", type=int, default=200)
    arguments = parser.parse_args()
    games = {}
    for game in GAMES:
        with tempfile.TemporaryDirectory() as folder:
            games[game] = measure(game, arguments.frames, arguments.calls, Path(folder))
    sizes = [record["bytes a frame, all overhead counted"] for record in games.values()]
    document = {
        "cores": os.cpu_count(),
        "frames a game": arguments.frames,
        "games": games,
        "a run of 50,000,000 frames, GB": {
            "raw": RUN_FRAMES * RAW_BYTES / 1e9,
            "compact": [round(RUN_FRAMES * size / 1e9, 1) for size in (min(sizes), max(sizes))],
        },
    }
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
