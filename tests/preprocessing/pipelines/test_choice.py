"""Which trajectories are read: those of a condition, or some drawn by a seed."""

from __future__ import annotations

import json
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datasets_cli import ExperienceReplay, preprocess, preprocess_columns
from datasets_cli import open_dataset as opened
from datasets_cli.cli.main import main
from datasets_cli.errors import UsageError
from datasets_cli.project import Pipeline
from datasets_cli.results import DerivedColumns
from datasets_cli.store.manifest import read_manifest
from tests.support.paths import TEST_DATA
from tests.support.values import expect, read_source

Capture = pytest.CaptureFixture[str]
FILE = TEST_DATA / "d4rl" / "demonstrations" / "door-v0_demos_clipped.hdf5"


def trajectories_of_the_file() -> list[dict[str, np.ndarray]]:
    """Return the rows of each trajectory that an independent reader finds."""
    expected = expect(read_source(FILE))
    return [
        {".".join(key): values[start:stop] for key, values in expected.leaves.items()}
        for start, stop in pairwise(expected.offsets)
    ]


def actions(id: str = "derived/x") -> np.ndarray:
    found: np.ndarray = opened(id).column(("action",)).numpy()
    return found


def call(*words: str) -> int:
    return main(["preprocess", *words, "--name", "x", "--workers", "0"])


def test_a_condition_keeps_the_trajectories_of_the_file_for_which_it_holds(door: str) -> None:
    known = trajectories_of_the_file()
    returns = [float(part.sum()) for part in expect(read_source(FILE)).rewards()]
    middle = sorted(returns)[2]
    where = f"return > {middle} and length >= 100"
    assert call(door, "--where", where) == 0
    kept = [rows for rows, total in zip(known, returns, strict=True) if total > middle]
    assert len(kept) == 2
    assert np.array_equal(actions(), np.concatenate([rows["action"] for rows in kept]))
    observations = opened("derived/x").column(("observation",)).numpy()
    assert np.array_equal(observations, np.concatenate([rows["observation"] for rows in kept]))
    parent = opened("derived/x").dataset.manifest.parent
    assert parent and parent["where"] == where and parent["view"] == f"filter({where!r})"


def test_a_view_of_the_library_gives_the_same_data(door: str, tmp_path: Path) -> None:
    where = "number > 1"
    assert call(door, "--where", where, "--cast", "float16") == 0
    view = ExperienceReplay(door).filter(where)
    made = view.preprocess(Pipeline(cast="float16"), dest=tmp_path / "x", num_workers=0)
    assert made.dataset.manifest.content == opened("derived/x").dataset.manifest.content


def test_some_trajectories_are_drawn_by_the_seed_and_keep_their_order(door: str) -> None:
    assert call(door, "--max-trajectories", "3", "--seed", "5") == 0
    known = trajectories_of_the_file()
    numbers = [
        next(number for number, rows in enumerate(known) if np.array_equal(rows["action"], found))
        for found in np.split(actions(), opened("derived/x").offsets.numpy()[1:-1])
    ]
    assert numbers == sorted(set(numbers)) and len(numbers) == 3
    drawn = set()
    for seed in range(6):
        found = preprocess(door, Pipeline(), f"seed-{seed}", max_trajectories=2, seed=seed)
        drawn.add(actions(found.id).tobytes())
    assert len(drawn) > 1
    preprocess(door, Pipeline(), "all", max_trajectories=9)
    whole = opened("derived/all").dataset.manifest
    assert whole.num_transitions == sum(len(rows["action"]) for rows in known)
    assert whole.parent and "view" not in whole.parent, "none is left out"


def half(batch: Any) -> Any:
    return batch.select("action").apply(lambda value: value / 2)


def test_a_function_may_read_some_trajectories_too(door: str) -> None:
    preprocess(door, half, "x", where="number == 3")
    assert np.array_equal(actions(), trajectories_of_the_file()[3]["action"] / 2)
    with pytest.raises(UsageError) as caught:
        preprocess(door, half, "x", where="number == 4")
    assert caught.value.found == ["the rows filter('number == 3'), now filter('number == 4')"]


def test_a_dry_run_shows_how_much_is_kept_and_writes_nothing(door: str, capsys: Capture) -> None:
    assert call(door, "--where", "number < 2", "--returns-to-go", "--dry-run") == 0
    rows = sum(len(found["action"]) for found in trajectories_of_the_file()[:2])
    shown = capsys.readouterr().out
    assert f"{rows:,} transitions in 2 trajectories" in shown
    assert "returns_to_go                float32  [1]" in shown
    assert call(door, "--where", "number < 2", "--cast", "float16", "--dry-run", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    columns = preprocess_columns(door, Pipeline(cast="float16"), "x", where="number < 2")
    assert isinstance(columns, DerivedColumns) and document == columns.to_json()
    assert (document["num_transitions"], document["num_trajectories"]) == (rows, 2)
    assert document["columns"]["action"] == ["float16", [28]]
    assert main(["path", "derived/x"]) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--where", "return >"], "Condition 'return >' cannot be read"),
        (["--where", "returns > 3"], "have no column 'returns'. Expected one of number, start"),
        (["--where", "length > 1000"], "matches none of the 5 trajectories of d4rl/door-human"),
        (["--max-trajectories", "0"], "--max-trajectories is 0; expected 1 or more"),
        (["--select", "observatoin"], "Did you mean observation"),
    ],
)
def test_a_wrong_call_is_refused_and_leaves_nothing(
    door: str, words: list[str], message: str, capsys: Capture
) -> None:
    assert call(door, *words) == 2
    assert message in capsys.readouterr().err
    assert main(["path", "derived/x"]) == 3


def test_the_command_of_a_damaged_result_gives_the_same_bytes(door: str, capsys: Capture) -> None:
    words = ["--where", "return > -60", "--max-trajectories", "2", "--seed", "3", "--n-step", "2"]
    assert call(door, *words, "--gamma", "0.9", "--select", "observation,action") == 0
    folder = opened("derived/x").dataset.folder
    files = read_manifest(folder).files
    (folder / "action.memmap").write_bytes(b"")
    capsys.readouterr()
    assert main(["repair", "derived/x"]) == 9
    advice = " ".join(capsys.readouterr().out.split()).partition("rlds delete")[2]
    delete, _, again = f"rlds delete{advice}".partition(", then ")
    assert main([*shlex.split(delete)[1:3], "--yes"]) == 0
    assert main([*shlex.split(again.rstrip("."))[1:], "--workers", "0"]) == 0
    assert read_manifest(folder).files == files


def test_what_was_read_is_shown(door: str, capsys: Capture) -> None:
    assert call(door, "--where", "number > 1", "--returns-to-go") == 0
    assert main(["info", "derived/x"]) == 0
    shown = capsys.readouterr().out
    assert "filter('number > 1')" in shown and "function           returns-to-go (" in shown
    assert main(["verify", "derived/x", "--deep"]) == 0


def test_an_equal_call_does_nothing_and_another_is_refused(door: str, capsys: Capture) -> None:
    assert call(door, "--cast", "float16") == 0
    assert call(door, "--cast", "float16") == 0
    assert "derived/x is up to date" in capsys.readouterr().err
    assert call(door, "--cast", "bfloat16") == 2
    shown = capsys.readouterr().err
    assert "the function cast=float16, now cast=bfloat16. Choose another destination, or" in shown
    assert shown.endswith("delete it first: rlds delete derived/x\n")
