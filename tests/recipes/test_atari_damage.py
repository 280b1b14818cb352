"""A damaged file of a DQN Replay run is refused, and nothing of it stays."""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datasets_cli.config import Config
from datasets_cli.errors import SourceError
from datasets_cli.formats.npy import read_array
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from tests.recipes.test_atari import ID, invented
from tests.support.atari_files import Logger, record, save

CAPACITY = 40


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Logger:
    """The logs of a run: checkpoints 0 to 3, each of 40 rows."""
    folder = tmp_path_factory.mktemp("atari") / "run"
    return record(folder, invented([30, 25, 40, 20]), CAPACITY)


def rewrite(path: Path, change: Callable[[np.ndarray], np.ndarray]) -> None:
    with gzip.open(path) as stream:
        values = np.load(stream)
    save(path, change(values.copy()))


def put(slot: int, value: int) -> Callable[[np.ndarray], np.ndarray]:
    def change(values: np.ndarray) -> np.ndarray:
        values[slot] = value
        return values

    return change


def edit(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], None]:
    return lambda folder: rewrite(folder / name, change)


def replace_bytes(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        (folder / name).write_bytes(change((folder / name).read_bytes()))

    return apply


def pickled() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.zeros(CAPACITY, object), allow_pickle=True)
    return gzip.compress(stream.getvalue())


FRAMES, REWARD, TERMINAL = (
    f"$store$_{name}_ckpt.1.gz" for name in ("observation", "reward", "terminal")
)
NOT_EMPTY = "expected one of the 3 empty rows before an episode"
DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a file cut off": (replace_bytes(FRAMES, lambda d: d[:-20]), r"observation_ckpt\.1.*cut off"),
    "a byte flipped": (
        replace_bytes(FRAMES, lambda d: d[:-6] + bytes([d[-6] ^ 1]) + d[-5:]),
        r"observation_ckpt\.1",
    ),
    "a web page": (replace_bytes(REWARD, lambda _: b"<!DOCTYPE html>"), "found a web page"),
    "no array": (
        replace_bytes(REWARD, lambda _: gzip.compress(b"hello")),
        "is not a numpy array",
    ),
    "a header that is no Python": (
        replace_bytes(
            REWARD, lambda d: gzip.compress(gzip.decompress(d).replace(b"), }", b", ,}"))
        ),
        "is not a numpy array",
    ),
    "a header that ends too early": (
        replace_bytes(REWARD, lambda d: gzip.compress(gzip.decompress(d).replace(b"), }", b"   "))),
        "is not a numpy array",
    ),
    "a pickle": (
        replace_bytes(REWARD, lambda _: pickled()),
        r"expected float32 \[n\], found object",
    ),
    "bytes after the array": (
        replace_bytes(REWARD, lambda d: gzip.compress(gzip.decompress(d) + b"\0")),
        "expected 160 bytes of float32",
    ),
    "an array that claims too much": (
        replace_bytes(
            TERMINAL,
            lambda d: gzip.compress(gzip.decompress(d).replace(b"(40,), ", b"(40000000,), ")),
        ),
        "claims an array",
    ),
    "another shape": (edit(FRAMES, lambda rows: rows[:, :80]), r"expected uint8 \[n, 84, 84\]"),
    "another type": (edit(REWARD, lambda rows: rows.astype("f8")), r"float32 \[n\], found float64"),
    "fewer rewards": (edit(REWARD, lambda rows: rows[:-1]), "has 40 observations but 39 rows in"),
    "a file missing": (
        lambda folder: (folder / REWARD).unlink(),
        rf"lacks {re.escape(REWARD)},",
    ),
    "an odd flag": (edit(TERMINAL, put(3, 2)), "expected 0 or 1 in every row, found 2"),
    "an action in an empty row": (edit("$store$_action_ckpt.0.gz", put(1, 1)), NOT_EMPTY),
    "a frame in an empty row": (edit("$store$_observation_ckpt.0.gz", put(1, 1)), NOT_EMPTY),
    "another capacity": (
        lambda folder: [
            edit(f"$store$_{name}_ckpt.1.gz", lambda rows: rows[:-1])(folder)
            for name in ("observation", "action", "reward", "terminal")
        ],
        "different numbers of rows",
    ),
    **{
        f"arrays of length {length}": (
            lambda folder, length=length: [  # type: ignore[misc]
                edit(f"$store$_{name}_ckpt.{number}.gz", lambda rows: rows[:length])(folder)
                for name in ("observation", "action", "reward", "terminal")
                for number in range(4)
            ],
            f"Checkpoint 0 has {length} rows",
        )
        for length in (0, 1)
    },
    "a count between": (edit("add_count_ckpt.1.gz", lambda _: np.array(77)), "is impossible"),
    "a count that falls": (edit("add_count_ckpt.1.gz", lambda _: np.array(39)), "is impossible"),
    "a count below 0": (edit("add_count_ckpt.3.gz", lambda _: np.array(-1)), "is impossible"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_refused_and_nothing_is_left(
    run: Logger, config: Config, tmp_path: Path, damage: str
) -> None:
    apply, message = DAMAGES[damage]
    for file in run.folder.iterdir():
        (tmp_path / "run").mkdir(exist_ok=True)
        (tmp_path / "run" / file.name).write_bytes(file.read_bytes())
    apply(tmp_path / "run")
    with pytest.raises(SourceError, match=message):
        install_dataset(
            ID,
            config,
            InstallOptions(
                source=str(tmp_path / "run"), options={"checkpoints": f"0:{run.num_logs}"}
            ),
        )
    assert not list((config.root / "datasets").rglob("*.json"))
    assert not list((config.root / "tmp").glob("*"))


def test_a_header_of_python_2_is_read_without_a_word(
    run: Logger, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    rewarded = gzip.decompress((run.folder / REWARD).read_bytes())
    (tmp_path / REWARD).write_bytes(gzip.compress(rewarded.replace(b"(40,), ", b"(40L,),")))
    found = read_array(tmp_path / REWARD, "float32", (None,))
    assert found.tobytes() == read_array(run.folder / REWARD, "float32", (None,)).tobytes()
    assert not recwarn.list
