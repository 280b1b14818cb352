"""RL Unplugged's Atari files, written plainly: TFRecord, tf.train.Example, PNG, gzip.

It shares no code with the reader. Facts: TensorFlow's ``record_writer.h``, protobuf's encoding
guide, and TFDS's ``rl_unplugged/atari_utils.py`` for the names.
"""

from __future__ import annotations

import gzip
import io
import struct
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.support.ale_games import Episode, play

RUN, FILES = 2, 50
Value = list[bytes] | np.ndarray
Shards = list[list[dict[str, Value]]]
Rows = dict[tuple[str, ...], np.ndarray]


def divide(register: int) -> int:
    for _ in range(8):
        register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return register


REMAINDERS = [divide(byte) for byte in range(256)]


def crc32c(data: bytes) -> int:
    register = 0xFFFFFFFF
    for byte in data:
        register = register >> 8 ^ REMAINDERS[register & 0xFF ^ byte]
    return register ^ 0xFFFFFFFF


def masked_crc(data: bytes) -> bytes:
    checksum = crc32c(data)
    rotated = checksum >> 15 | checksum << 17 & 0xFFFFFFFF
    return struct.pack("<I", (rotated + 0xA282EAD8) % 2**32)


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + masked_crc(length) + data + masked_crc(data)


def varint(number: int) -> bytes:
    number %= 2**64  # a negative one has ten bytes
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def run_of_bytes(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def feature(value: Value, packed: bool = True) -> bytes:
    if isinstance(value, list):
        return run_of_bytes(1, b"".join(run_of_bytes(1, item) for item in value))
    if value.dtype == np.float32:
        kind, tag = 2, varint(1 << 3 | 5)
        items = [struct.pack("<f", item) for item in value]
    else:
        assert value.dtype == np.int64
        kind, tag = 3, varint(1 << 3 | 0)
        items = [varint(item) for item in value.tolist()]
    if packed:
        return run_of_bytes(kind, run_of_bytes(1, b"".join(items)) if items else b"")
    return run_of_bytes(kind, b"".join(tag + item for item in items))


def example(features: dict[str, Value], packed: bool = True) -> bytes:
    entries = [
        run_of_bytes(1, name.encode()) + run_of_bytes(2, feature(value, packed))
        for name, value in features.items()
    ]
    return run_of_bytes(1, b"".join(run_of_bytes(1, entry) for entry in entries))


def png(frame: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(frame).save(file, "PNG")
    return file.getvalue()


def features_of(episode: Episode, checkpoint: int, number: int, **changes: Any) -> dict[str, Value]:
    """Return an episode's record: the T frames before its actions, as the runs kept them."""
    steps = len(episode.actions)
    total = np.array([episode.rewards.sum()], np.float32)
    discounts = np.ones(steps, np.float32)
    if steps:
        discounts[-1] = not episode.terminated
    features: dict[str, Value] = {
        "checkpoint_idx": np.array([checkpoint]),
        "episode_idx": np.array([number]),
        "episode_return": total,
        "clipped_episode_return": total,
        "observations": [png(frame) for frame in episode.frames[:steps]],
        "actions": episode.actions.astype(np.int64),
        "unclipped_rewards": episode.rewards,
        "clipped_rewards": episode.rewards,
        "discounts": discounts,
    }
    return {name: value for name, value in (features | changes).items() if value is not None}


def shard_name(number: int, files: int = FILES, run: int = RUN) -> str:
    return f"run_{run}-{number:05d}-of-{files:05d}"


def pack(records: Iterable[bytes]) -> bytes:
    return gzip.compress(b"".join(map(record, records)), mtime=0)


def write_run(folder: Path, shards: Shards, run: int = RUN) -> Path:
    """Write a run's files, with no record in those behind the last of ``shards``."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(FILES):
        records = map(example, shards[number]) if number < len(shards) else ()
        (folder / shard_name(number, run=run)).write_bytes(pack(records))
    return folder


@cache
def episodes() -> list[Episode]:
    """Return a whole game of Pong, and games of Breakout, some of which were cut off."""
    pong = play("pong", 2000)[:1]
    breakout = play("breakout", 1000, seed=3, max_episode_steps=190)
    return [*pong, *breakout, cut(breakout[0], 1), cut(breakout[1], 2)]


def cut(episode: Episode, steps: int) -> Episode:
    return Episode(
        episode.frames[: steps + 1], episode.actions[:steps], episode.rewards[:steps], False
    )


def in_shards(played: list[Episode], **changes: Any) -> Shards:
    """Return records in three checkpoints, of which the second is empty."""
    halves = played[: len(played) // 2], [], played[len(played) // 2 :]
    return [
        [features_of(episode, shard, number, **changes) for number, episode in enumerate(half)]
        for shard, half in enumerate(halves)
    ]


def transitions(episode: Episode) -> Iterator[Rows]:
    """Yield what happened, but for the last step where no screen behind it was kept."""
    steps = len(episode.actions) - (not episode.terminated)
    for step in range(steps):
        ends = step == steps - 1
        dark = ends and episode.terminated
        flags = {
            "done": ends,
            "terminated": ends and episode.terminated,
            "truncated": ends and not episode.terminated,
        }
        yield {
            ("observation",): episode.frames[step],
            ("action",): np.int64(episode.actions[step]),
            ("next", "observation"): episode.frames[step + 1] * np.uint8(not dark),
            ("next", "reward"): episode.rewards[step : step + 1],
            **{("next", name): np.array([value]) for name, value in flags.items()},
            **{(name,): np.array([False]) for name in flags},
        }


def expected(played: list[Episode]) -> Rows:
    by_episode = [rows for episode in played if (rows := list(transitions(episode)))]
    rows = [row for rows in by_episode for row in rows]
    found = {key: np.stack([row[key] for row in rows]) for key in rows[0]}
    numbers = [np.full(len(rows), number) for number, rows in enumerate(by_episode)]
    return found | {("episode",): np.concatenate(numbers)}
