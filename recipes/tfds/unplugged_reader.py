"""RL Unplugged's episodes of dm_control, each one record of T + 1 rows without ``features.json``.

    row                        0     1     2     3
    observation                o0    o1    o2    o3
    reward, discount           -     r0    r1    r2     lead to the observation of their row
    action                     a0    a1    a2    -      taken at the observation of its row
    action, real-world RL      -     a0    a1    a2     leads to the observation of its row

Fields without a row (-) are dummies: NaN, zeros, and a discount of 0.0 in real-world RL. TFDS moves
that 0.0 to the end and so marks every episode there as terminal; here it is left out.

Facts: deepmind-research, ``rl_unplugged``, and one record of each part.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from datasets_cli.formats.rlds import file_records
from datasets_cli.formats.tfrecord import TFRecord, parse_example
from datasets_cli.recipe import TRAJECTORY_END, Block, Description, Key, Source, SourceError

from .catalogue import LOCOMOTION, REAL_WORLD, SUITE

CAMERA = (64, 64, 3)
NUMBERS = ("reward", "discount", "step_type")
NOTES = {
    SUITE: (
        "the NaN of reward and discount in the first row of each episode, and the action in the "
        "last row, belong to no step, and are left out",
    ),
    LOCOMOTION: (
        "an episode that is shorter than the time limit has a last discount of 1 in published "
        "records: it is truncated, although the walker may have fallen",
    ),
    REAL_WORLD: (
        "the first action, reward and discount (0.0) of each episode are dummies, and left out: "
        "episodes at the time limit are truncated, while TFDS marks them as terminal",
    ),
}


def describe(source: Source) -> Description:
    """Return the entry's details and the notes on a part of RL Unplugged."""
    part = source.name.partition("/")[0]
    details = source.entry.details if source.entry else {}
    return Description({**details, "upstream": "rl_unplugged"}, NOTES[part])


def blocks(source: Source) -> Iterator[Block]:
    """Yield the steps of each episode in the order of the files."""
    for _, path in sorted(source.files.items()):
        for number, record in enumerate(file_records(path)):
            try:
                yield _block(record, is_real_world=source.name.startswith(REAL_WORLD))
            except SourceError as error:
                error.path, error.row = path, number
                raise


def _block(record: TFRecord, *, is_real_world: bool) -> Block:
    lists = parse_example(record.data, record.where)
    rewards = lists.get("reward")
    num_rows = 0 if rewards is None else len(rewards)
    if num_rows < 2:
        raise _unexpected(record, "reward", "two rows or more", num_rows)
    columns: dict[Key, np.ndarray] = {}
    values: dict[str, np.ndarray] = {}
    for name, stored in sorted(lists.items()):
        key = tuple(name.replace(":", "/").split("/"))
        if isinstance(stored, list):
            values[name] = _pixels(record, name, stored, num_rows)
            key = (key[0], "images", *key[1:])
        elif len(stored) == 1:
            columns["info", *key] = np.repeat(stored, num_rows - 1)
            continue
        elif not len(stored):
            continue  # a sensor that this walker lacks
        elif len(stored) % num_rows:
            raise _unexpected(record, name, f"a multiple of {num_rows} numbers", len(stored))
        else:
            shape = (num_rows,) if name in NUMBERS else (num_rows, -1)
            values[name] = stored.reshape(shape)
        if key[0] == "observation":
            columns[key], columns["next", *key] = values[name][:-1], values[name][1:]
    if missing := {"action", *NUMBERS} - values.keys():
        raise _unexpected(record, min(missing), f"{num_rows} rows", "nothing")
    if np.isin(values["step_type"][1:-1], (0, 2)).any():
        raise _unexpected(record, "step_type", "one episode", "the end of another one inside")
    ends = np.arange(2, num_rows + 1) == num_rows
    return Block(
        columns
        | {
            ("action",): values["action"][1:] if is_real_world else values["action"][:-1],
            ("next", "reward"): values["reward"][1:],
            ("info", "discount"): values["discount"][1:],
            ("next", "terminated"): ends & (values["discount"][-1] == 0),
            TRAJECTORY_END: ends,
        }
    )


def _pixels(record: TFRecord, name: str, stored: list[memoryview], num_rows: int) -> np.ndarray:
    """Return the frames in one run of bytes, uint8 ``[T + 1, 64, 64, 3]``."""
    size, expected = sum(map(len, stored)), num_rows * int(np.prod(CAMERA))
    if len(stored) != 1 or size != expected:
        raise _unexpected(record, name, f"{expected} bytes in one run", f"{size} in {len(stored)}")
    return np.frombuffer(stored[0], np.uint8).reshape(num_rows, *CAMERA)


def _unexpected(record: TFRecord, name: str, expected: str, found: object) -> SourceError:
    return SourceError(
        f"{record.where} is not an episode of RL Unplugged: expected {expected} of {name}, found "
        f"{found}.",
        key=name,
        expected=expected,
        found=found,
    )
