"""Episode after episode: the same dataset as of one run, however often the writer was killed."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import datasets_cli
from datasets_cli import DatasetWriter, create_dataset
from datasets_cli.config import Config
from datasets_cli.core.progress import silent
from datasets_cli.errors import DiskFull, LockedError, NotWritable, UsageError, WrongRows
from datasets_cli.store.manifest import MANIFEST_FILENAME, read_manifest
from tests.cli.test_wrong_calls import small_disk
from tests.support.forked import Forked


def episode(number: int, longer: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(number)
    count = 1 + number % 5 * longer
    return {
        "observation": rng.normal(size=(count + 1, 3)).astype(np.float32),
        "action": rng.normal(size=(count, 2)),
        "reward": rng.normal(size=count),
        "truncated": number % 2 == 0,
        "terminated": number % 2 == 1,
        "info": {"task": [f"line\n{number}"] * count},
    }


def write(episodes: range, config: Config, **options: Any) -> DatasetWriter:
    with DatasetWriter("mine/robot", config=config, **options) as writer:
        for number in episodes:
            writer.add_episode(episode(number))
    return writer


def test_it_has_the_content_that_create_dataset_gives(config: Config) -> None:
    write(range(7), config)
    assert not list(config.root.glob("downloads/mine/*"))
    of_writer = read_manifest(config.root / "datasets/mine/robot").content
    parts = [episode(number) for number in range(7)]
    joined = {
        "observation": np.concatenate([part["observation"][:-1] for part in parts]),
        "next_observation": np.concatenate([part["observation"][1:] for part in parts]),
        "action": np.concatenate([part["action"] for part in parts]),
        "reward": np.concatenate([part["reward"] for part in parts]),
        "info": {"task": [*chain(*(part["info"]["task"] for part in parts))]},
    }
    lengths = [len(part["reward"]) for part in parts]
    last = np.cumsum(lengths) - 1
    for flag in ("terminated", "truncated"):
        joined[flag] = np.zeros(sum(lengths), bool)
        joined[flag][last] = [part[flag] for part in parts]
    create_dataset("mine/robot", joined, lengths=lengths, config=config)
    assert read_manifest(config.root / "datasets/mine/robot").content == of_writer


CHANGES = {"write", "tofile", "truncate", "fsync", "mkdir", "rename", "replace", "unlink", "rmdir"}


class Calls:
    """Counts the calls of C functions that change the disk, and dies before one of them."""

    def __init__(self, last: int) -> None:
        self.last, self.count = last, 0

    def __call__(self, frame: object, event: str, called: Any) -> None:
        self.count += event == "c_call" and called.__name__ in CHANGES
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)


def write_counted(root: Path, last: int = -1) -> int:
    """Write the episodes after those that a killed writer left; return the number of calls."""
    sys.setprofile(calls := Calls(last))
    try:
        with DatasetWriter("mine/robot", root=root, force=True, progress=silent) as writer:
            for number in range(writer.num_episodes, 20):
                writer.add_episode(episode(number, longer=60))
    finally:
        sys.setprofile(None)
    return calls.count


def note_calls(root: Path) -> int:
    root.with_suffix(".txt").write_text(str(write_counted(root)))
    return 0


def files_of(root: Path) -> dict[str, bytes]:
    """Return every file below a root, but the empty ones that processes lock."""
    paths = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in paths if path.stat().st_size}


@pytest.mark.parametrize("kills", [6, pytest.param(30, marks=pytest.mark.slow)])
def test_killed_at_any_moment_it_goes_on(tmp_path: Path, kills: int) -> None:
    write_counted(tmp_path / "whole")  # with what is imported once
    expected = files_of(tmp_path / "whole")
    # Counted where it is killed: this process also writes for others, such as coverage.
    assert Forked(partial(note_calls, tmp_path / "counted"), tmp_path).finish() == (0, "")
    num_calls = int((tmp_path / "counted.txt").read_text())
    assert f"datasets/mine/robot/{MANIFEST_FILENAME}" in expected
    stages = set()
    for number in range(kills):
        root = tmp_path / str(number)
        last = num_calls - int(num_calls * ((number + 0.5) / kills) ** 3)  # more in the commit
        code, error = Forked(partial(write_counted, root, last), tmp_path).finish()
        assert code == -signal.SIGKILL, error
        stages.add("commit" if any((root / "tmp").glob("*")) else "adding")
        write_counted(root)
        assert files_of(root) == expected, last
    assert stages == {"adding", "commit"}


@pytest.mark.parametrize("size", [1, 7, 40, 200, 1000])
def test_what_a_kill_cut_off_is_dropped(config: Config, size: int) -> None:
    write(range(9), config)
    expected = read_manifest(config.root / "datasets/mine/robot")
    datasets_cli.delete("mine/robot", config=config)
    with pytest.raises(KeyboardInterrupt), DatasetWriter("mine/robot", config=config) as writer:
        for number in range(5):
            writer.add_episode(episode(number))
        raise KeyboardInterrupt
    for path in (config.root / "downloads/mine/robot").iterdir():
        if path.name not in ("columns.json", "episodes"):
            os.truncate(
                path, max(0, path.stat().st_size - size)
            )  # never after `episodes`: a lost page
    with DatasetWriter("mine/robot", config=config) as writer:
        assert writer.num_episodes < 5
        for number in range(writer.num_episodes, 9):
            writer.add_episode(episode(number))
    made = read_manifest(config.root / "datasets/mine/robot")
    assert (made.content, made.files) == (expected.content, expected.files)


def test_episodes_that_an_error_stopped_are_kept_or_dropped(config: Config) -> None:
    with pytest.raises(KeyboardInterrupt), DatasetWriter("mine/robot", config=config) as writer:
        writer.add_episode(episode(0))
        raise KeyboardInterrupt
    assert not (config.root / "datasets").exists()
    with DatasetWriter("mine/robot", config=config) as writer:
        assert (writer.num_episodes, writer.num_steps) == (1, 1)
        writer.discard()
        assert writer.num_episodes == 0
        assert writer.add_episode(episode(4)) == 1
    assert writer.dataset is not None and writer.dataset.num_transitions == 5


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("action", np.zeros((2, 3))),
        ("action", np.zeros((2, 2), np.float32)),
        ("reward", np.zeros(0)),
        ("terminated", np.array([True, False])),
        ("truncated", np.array([0, 3])),
        ("observation", np.zeros((5, 3), np.float32)),
        ("terminated", 0.5),
        ("terminated", [0, 0]),
        ("terminated", np.nan),
        ("truncated", "no"),
        ("info", {"task": ["\ud800", "a"]}),
    ],
)
def test_an_episode_unlike_the_others_is_named(
    config: Config, column: str, values: np.ndarray
) -> None:
    with DatasetWriter("mine/robot", config=config) as writer:
        writer.add_episode({**episode(1), "terminated": [0, 1], "truncated": [0, 0]})
        wrong = {**episode(1), "terminated": [0, 1], "truncated": [0, 0], column: values}
        with pytest.raises(UsageError):
            writer.add_episode(wrong)
        assert writer.num_episodes == 1


def test_two_writers_of_one_id_do_not_meet(config: Config) -> None:
    impatient = replace(config, lock_timeout=0.1)
    with DatasetWriter("mine/robot", config=config) as writer:
        writer.add_episode(episode(0))
        with pytest.raises(LockedError):
            DatasetWriter("mine/robot", config=impatient).__enter__()


def test_without_episodes_there_is_no_dataset(config: Config) -> None:
    with pytest.raises(WrongRows):
        write(range(0), config)
    with pytest.raises(NotWritable):
        DatasetWriter("mine/robot", config=config).add_episode(episode(0))


def test_an_installed_dataset_is_replaced_by_force_alone(config: Config) -> None:
    write(range(3), config)
    with pytest.raises(NotWritable) as raised:
        write(range(4), config)
    assert raised.value.id == "mine/robot" and "force=True" in str(raised.value.advice)
    made = write(range(4), config, force=True).dataset
    assert made is not None and made.num_trajectories == 4


def test_a_full_disk_leaves_whole_episodes_that_others_follow(config: Config) -> None:
    write(range(9), config)
    expected = read_manifest(config.root / "datasets/mine/robot")
    datasets_cli.delete("mine/robot", config=config)
    with DatasetWriter("mine/robot", config=config) as writer:
        with small_disk(300), pytest.raises(DiskFull):
            for number in range(9):
                writer.add_episode(episode(number))
        assert 0 < writer.num_episodes < 9
        for number in range(writer.num_episodes, 9):
            writer.add_episode(episode(number))
    made = read_manifest(config.root / "datasets/mine/robot")
    assert (made.content, made.files) == (expected.content, expected.files)


def test_a_full_disk_in_the_commit_keeps_the_episodes(config: Config) -> None:
    full = ExitStack()
    with pytest.raises(DiskFull), DatasetWriter("mine/robot", config=config) as writer:
        writer.add_episode(episode(4))
        full.enter_context(small_disk(200))
    full.close()
    assert not list(config.root.glob("datasets/mine/*")) and not list(config.root.glob("tmp/*"))
    with DatasetWriter("mine/robot", config=config) as writer:
        assert writer.num_episodes == 1


def test_files_of_episodes_that_were_half_deleted_are_not_read(config: Config) -> None:
    expected = write(range(3), config).dataset
    datasets_cli.delete("mine/robot", config=config)
    with pytest.raises(KeyboardInterrupt), DatasetWriter("mine/robot", config=config) as writer:
        writer.add_episode(episode(4))
        raise KeyboardInterrupt
    (config.root / "downloads/mine/robot/columns.json").unlink()
    assert write(range(3), config).dataset == expected


def test_text_as_bytes_and_numbers_that_numpy_lacks_are_kept(config: Config) -> None:
    scale = np.arange(2, dtype="<u2").view([("bfloat16", "<u2")])
    given = {**episode(1), "scale": scale, "info": {"task": [b"\xff", None]}}
    with DatasetWriter("mine/robot", config=config) as writer:
        writer.add_episode(given)
    replay = datasets_cli.ExperienceReplay("mine/robot", text=True, root=config.root)
    assert replay[:]["info", "task"] == ["\udcff", ""]
    assert (config.root / "datasets/mine/robot/scale.memmap").read_bytes() == scale.tobytes()


def test_a_closed_writer_rejects_episodes(config: Config) -> None:
    writer = write(range(2), config)
    with pytest.raises(NotWritable):
        writer.add_episode(episode(2))
