"""What two datasets have in common is what numpy counts in the rows that were planted."""

from __future__ import annotations

import json
import tracemalloc
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import datasets_cli
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import DatasetNotInstalled, DiskFull, UsageError
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.verbs import overlap, row_digests
from tests.support.d4rl_cuts import CUTS

KEYS = (("observation",), ("action",))
IDS = ("mine/one", "mine/other")
Rows = dict[tuple[str, ...], np.ndarray]


def rows_of(rng: np.random.Generator, count: int, width: int = 3) -> Rows:
    """Return rows with numbers that compare otherwise than their bits do."""
    observation = rng.normal(size=(count, width)).astype(np.float32)
    observation[rng.integers(0, count, count // 8), 0] = rng.choice([np.nan, 0.0, -0.0])
    reward = rng.normal(size=(count, 1)).astype(np.float32)
    action = rng.integers(-9, 9, (count, 2))
    return {KEYS[0]: observation, KEYS[1]: action, ("next", "reward"): reward}


def make(id: str, rows: Rows, lengths: list[int], config: Config, layout: str = "ted") -> None:
    """Install rows, all of which stay."""
    following = np.roll(rows[KEYS[0]], -1, 0)
    columns = {**rows, ("next", "observation"): following}
    datasets_cli.create_dataset(id, columns, lengths=lengths, layout=layout, config=config)


def expected(one: Rows, cuts: list[int], other: Rows, other_cuts: list[int]) -> tuple[Any, Any]:
    """Return how many rows and trajectories of each dataset are in the other, by their bytes."""
    packed = [[b"".join(each[key][n].tobytes() for key in KEYS) for n in range(len(each[KEYS[0]]))]
              for each in (one, other)]  # fmt: skip
    whole = [[b"".join(each[start:stop]) for start, stop in pairwise([0, *np.cumsum(lengths)])]
             for each, lengths in zip(packed, (cuts, other_cuts), strict=True)]  # fmt: skip

    def common(first: list[bytes], second: list[bytes]) -> tuple[int, int]:
        counts = [Counter(each) for each in (first, second)]
        shared = counts[0].keys() & counts[1].keys()
        return tuple(sum(count[each] for each in shared) for count in counts)  # type: ignore[return-value]

    return common(*packed), common(*whole)


@pytest.mark.parametrize("layouts", [("ted", "ted"), ("ted", "compact"), ("compact", "compact")])
def test_planted_copies_are_counted_as_numpy_counts_them(
    layouts: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlap, "RUN", 64)  # several runs and ranges
    rng, config = np.random.default_rng(0), Config(tmp_path)
    one, other = rows_of(rng, 400), rows_of(rng, 300)
    lengths, others = [20] * 20, [10, 30, 20, 20, 20, 100, 20, 20, 60]
    for mine, its in [(20, 40), (100, 205), (140, 80), (20, 60)]:  # one across an end
        for key in KEYS:
            other[key][its : its + 20] = one[key][mine : mine + 20]
    other[KEYS[0]][79] = 7  # and all but one row of the last
    for key in KEYS:
        one[key][300:320] = one[key][300]  # one row many times, and once there
        other[key][299] = one[key][300]
    make(IDS[0], one, lengths, config, layouts[0])
    make(IDS[1], other, others, config, layouts[1])
    (both,) = datasets_cli.find_overlap(IDS, config=config)
    assert both.transitions and both.trajectories and not both.left_out
    counts = both.transitions.counts, both.trajectories.counts
    assert counts == expected(one, lengths, other, others)
    assert both.transitions.examples[0] == (20, 40) and both.trajectories.examples == (
        (1, 2),
        (7, 4),
    )
    assert not list((tmp_path / "tmp").iterdir())


def test_the_sign_of_zero_counts_and_nan_is_itself(tmp_path: Path) -> None:
    config, zero = Config(tmp_path), np.zeros((4, 1), np.float32)
    values = np.array([[0.0], [np.nan], [1], [2]], np.float32)
    for id, observation in zip(IDS, (values, -values), strict=True):
        make(id, {KEYS[0]: observation, KEYS[1]: zero, ("next", "reward"): zero}, [4], config)
    (both,) = datasets_cli.find_overlap(IDS, config=config)
    assert both.transitions and both.transitions.counts == (0, 0)
    (same,) = datasets_cli.find_overlap([IDS[0], IDS[0], IDS[1]], config=config)
    assert same == both


def test_an_equal_digest_is_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_digests, "_mixed", np.zeros_like)
    config = Config(tmp_path)
    for seed, id in enumerate(IDS):
        make(id, rows_of(np.random.default_rng(seed), 40), [20, 20], config)
    (both,) = datasets_cli.find_overlap(IDS, config=config)
    assert both.transitions and both.trajectories
    assert both.transitions.counts == both.trajectories.counts == (0, 0)


def test_other_columns_are_named_and_left_out(tmp_path: Path) -> None:
    config, rng = Config(tmp_path), np.random.default_rng(0)
    one, narrow = rows_of(rng, 40), rows_of(rng, 40, 2)
    floats = one | {KEYS[1]: one[KEYS[1]].astype(np.float32)}
    for id, rows in zip((*IDS, "mine/third"), (one, narrow, floats), strict=True):
        make(id, rows, [40], config)
    apart, floating, _ = datasets_cli.find_overlap("mine/*", config=config)
    assert (apart.columns, apart.left_out) == ((KEYS[1],), (KEYS[0],)) and apart.transitions is None
    assert (floating.columns, floating.left_out) == ((KEYS[0],), (KEYS[1],))
    assert floating.transitions and floating.transitions.counts == (40, 40)


def test_two_published_files_have_in_common_what_h5py_reads(tmp_path: Path) -> None:
    names, config, packed = ("door-human-v0", "door-human-v1"), Config(tmp_path), []
    for name in names:
        source = CUTS[name].lay_out(tmp_path / name)
        install_dataset(f"d4rl/{name}", config, InstallOptions(accept_any=True, source=str(source)))
        with h5py.File(next(source.rglob("*.hdf5"))) as file:
            rows = np.concatenate([file["observations"][:], file["actions"][:]], 1)
            is_row = ~file["timeouts"][:] | file["terminals"][:].astype(bool)
        packed.append([each.tobytes() for each in rows[is_row]])
    (both,) = datasets_cli.find_overlap(names, config=config)
    counts = tuple(sum(row in packed[1 - n] for row in packed[n]) for n in range(2))
    assert both.transitions and both.transitions.totals == tuple(map(len, packed))
    assert (
        both.transitions.counts == counts == (298, 298)
    )  # all but the end, which v0 has otherwise


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    peaks, config = [], Config(tmp_path)
    for count in (50_000, 200_000):
        observation = np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32)
        zero = np.zeros((count, 1), np.float32)
        for id in IDS:
            rows = {KEYS[0]: observation, KEYS[1]: zero, ("next", "reward"): zero}
            make(f"{id}-{count}", rows, [1000] * (count // 1000), config)
        tracemalloc.start()
        try:
            (both,) = datasets_cli.find_overlap(f"mine/*-{count}", config=config)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert both.transitions and both.transitions.counts == (count, count)
    assert peaks[1] < peaks[0] + (8 << 20) and peaks[1] < 40 << 20


def test_wrong_calls_and_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(tmp_path)
    for seed, id in enumerate(IDS):
        make(id, rows_of(np.random.default_rng(seed), 40), [40], config)
    with pytest.raises(UsageError):
        datasets_cli.find_overlap(IDS[0], config=config)
    with pytest.raises(DatasetNotInstalled):
        datasets_cli.find_overlap([*IDS, "d4rl/door-human-v0"], config=config)
    root = ("--root", str(tmp_path), "audit", *IDS, "--overlap")
    assert main([*root, "--strict"]) == main([*root, "--rule", "false-end"]) == 2
    monkeypatch.setattr("datasets_cli.sources.disk.free_bytes", lambda folder: 100)
    with pytest.raises(DiskFull):
        datasets_cli.find_overlap(IDS, config=config)
    assert not list((tmp_path / "tmp").iterdir())


def test_the_command_line_has_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(np.random.default_rng(0), 40)
    for id in IDS:
        make(id, rows, [40], Config(tmp_path))
    assert main(["--root", str(tmp_path), "--json", "audit", *IDS, "--overlap"]) == 0
    (document,) = json.loads(capsys.readouterr().out)
    assert document["ids"] == [*IDS] and document["trajectories"]["counts"] == [1, 1]
    assert document["transitions"] == {"totals": [40, 40], "counts": [40, 40],
                                "examples": [[n, n] for n in range(5)]}  # fmt: skip
