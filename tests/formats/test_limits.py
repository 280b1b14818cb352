"""Small files that say they are huge: refused by a limit's name, in less than 1 GB of memory."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest

from datasets_cli.errors import DamagedDataset
from tests.support.refusals import refused

pytest.importorskip("pyarrow")

from datasets_cli.cli.main import main
from datasets_cli.config import Config, load_config  # needs pyarrow
from datasets_cli.errors import DiskFull, SourceError, UsageError
from datasets_cli.formats.hdf5 import read_rows
from datasets_cli.formats.hdf5_check import CHUNK_BYTES, read_array
from datasets_cli.formats.limits import LIMITS, check_limit, raised_limits
from datasets_cli.formats.npy import read_array as read_npy
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.store.layouts.frames import FrameReader
from datasets_cli.store.texts import VocabularyWriter
from tests.support.atari_files import save
from tests.support.bombs import BOMBS, D4RL, Outcome, rows_of_nothing
from tests.support.paths import PROJECT

MOST_BYTES = 1_000_000_000


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """What became of each bomb in a process with little memory."""
    folder = tmp_path_factory.mktemp("bombs")
    command = [sys.executable, "-m", "tests.support.bombs", str(folder)]
    done = subprocess.run(command, cwd=PROJECT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = [Outcome(**json.loads(line)) for line in done.stdout.splitlines()]
    shutil.rmtree(folder)
    return {outcome.name: outcome for outcome in found}


@pytest.mark.slow
def test_a_small_file_that_says_it_is_huge_is_refused_in_little_memory(
    outcomes: dict[str, Outcome],
) -> None:
    assert outcomes.keys() == BOMBS.keys()
    for name, outcome in outcomes.items():
        limit = BOMBS[name].limit
        assert outcome.error == "SourceError", outcome
        assert not limit or f'(("{limit}", NUMBER),)' in outcome.text, outcome
        assert "MemoryError" not in outcome.text and "RecursionError" not in outcome.text, outcome
        assert outcome.peak < MOST_BYTES, outcome


def install(source: Path, root: Path, *limits: tuple[str, int]) -> Path:
    options = InstallOptions(source=str(source), accept_any=True)
    return install_dataset(D4RL, Config(root, offline=True, limits=limits), options).path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A D4RL file of 300 rows."""
    folder = tmp_path / "source"
    folder.mkdir()
    rows_of_nothing(300)(folder)
    return folder


def test_a_limit_can_be_set_for_one_run(source: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        install(source, tmp_path / "root", ("rows", 299))
    error = caught.value
    assert (error.argument, error.key, error.expected, error.found) == ("limits", "rows", 299, 300)
    assert install(source, tmp_path / "root", ("rows", 300)).is_dir()


def test_as_many_arrays_as_a_limit_says_are_read(source: Path, tmp_path: Path) -> None:
    with h5py.File(next(source.iterdir())) as file:
        count = len(file)
    with pytest.raises(SourceError) as caught:
        install(source, tmp_path / "root", ("columns", count - 1))
    assert caught.value.key == "columns"
    assert install(source, tmp_path / "root", ("columns", count)).is_dir()


def test_a_limit_that_there_is_not_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        install(source, tmp_path / "root", ("row", 300))
    assert (caught.value.found, caught.value.expected) == ("row", [*LIMITS])


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("rows=299", 4, "has 300 rows; at most 299 are read"),
        ("rows=300", 0, ""),
        ("rows", 2, "--limit rows is not NAME=NUMBER. Example: --limit row_bytes=1000000000"),
        ("row=300", 2, "'row' is not a limit. Expected one of: rows, row_bytes"),
    ],
)
def test_the_command_line_takes_limits(
    text: str,
    code: int,
    words: str,
    source: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = ["--root", str(tmp_path / "root"), "--source", str(source), "--no-verify"]
    assert main(["download", D4RL, *place, "--limit", text]) == code
    assert words in " ".join(capsys.readouterr().err.split())


def test_limits_stand_in_the_config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "rlds").mkdir()
    (tmp_path / "rlds" / "config.toml").write_text("[limits]\nrow_bytes = 5\n")
    assert load_config(environ={}).limits == (("row_bytes", 5),)
    (tmp_path / "rlds" / "config.toml").write_text('[limits]\nrow_bytes = "much"\n')
    with pytest.raises(UsageError) as caught:
        load_config(environ={})
    assert "limits.row_bytes: expected a whole number of 1" in str(caught.value)


def test_rows_that_the_disk_has_no_room_for_are_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, root = tmp_path / "source", tmp_path / "root"
    source.mkdir()
    rows_of_nothing(900_000_000)(source)  # 55 GB of nothing in 2 kB
    free = SimpleNamespace(total=1 << 40, free=50_000_000_000)
    monkeypatch.setattr("datasets_cli.sources.disk.shutil.disk_usage", lambda path: free)
    with pytest.raises(DiskFull) as caught:
        install(source, root)
    assert caught.value.expected == 54_900_000_000
    assert not [file for file in (root / "tmp").rglob("*") if file.is_file()]


def test_a_column_of_one_value_is_read_however_well_it_is_packed(tmp_path: Path) -> None:
    source, num_rows = tmp_path / "source", 1_000_000
    source.mkdir()
    with h5py.File(source / "hopper_medium-v2.hdf5", "w") as file:
        for name, width in {"observations": (1,), "actions": (1,), "rewards": ()}.items():
            values = np.zeros((num_rows, *width), "f4")
            file.create_dataset(name, data=values, compression="gzip", compression_opts=9)
        file.create_dataset("terminals", data=np.zeros(num_rows, "?"), compression="gzip")
    assert num_rows * 13 > 150 * (source / "hopper_medium-v2.hdf5").stat().st_size
    assert install(source, tmp_path / "root").is_dir()


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_rows_in_many_chunks_are_read_by_a_few_at_a_time(
    compression: str | None, tmp_path: Path
) -> None:
    values = np.arange(700, dtype="f4").reshape(100, 7)
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file.create_dataset("x", data=values, chunks=(3, 2), compression=compression)
        with raised_limits({"row_bytes": 8 * CHUNK_BYTES}):
            (block,) = read_rows({"x": file["x"]})
            part = read_array(file["x"], 5, 50)
    assert (block["x"] == values).all() and (part == values[5:50]).all()


def test_an_array_of_too_many_values_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "action.gz"
    save(path, np.zeros(1_001, np.uint8))
    with raised_limits({"table_bytes": 1_000}), pytest.raises(SourceError) as caught:
        read_npy(path, "uint8", (None,))
    assert (caught.value.key, caught.value.found) == ("table_bytes", 1_001)
    assert len(read_npy(path, "uint8", (None,))) == 1_001


def test_frames_of_gigabytes_are_not_opened(tmp_path: Path) -> None:
    with refused(DamagedDataset, found=3221225472):
        FrameReader(tmp_path / "f.zst", 2, (3 << 15, 1 << 15), has_dictionary=False)


def test_distinct_texts_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    with raised_limits({"text_bytes": 2 * 64}):
        vocabulary = VocabularyWriter(tmp_path)
        assert vocabulary.codes(np.array([["a"], ["b"], ["a"]], object)).tolist() == [[0], [1], [0]]
        with pytest.raises(SourceError) as caught:
            vocabulary.codes(np.array([["c"]], object))
    assert caught.value.key == "text_bytes"
    vocabulary.close()


def test_every_limit_says_why_it_is_where_it_is() -> None:
    page = (PROJECT / "docs" / "format.md").read_text()
    for name, limit in LIMITS.items():
        assert limit.reason.endswith(".")
        check_limit(name, limit.value, "a file")
        with pytest.raises(SourceError) as caught:
            check_limit(name, limit.value + 1, "a file")
        assert f'Config(limits=(("{name}", NUMBER),))' in str(caught.value.advice)
        assert f"| `{name}` | {limit.value:,} {limit.unit} | {limit.reason} |" in page
