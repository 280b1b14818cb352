"""A pipeline is plain data: what it may be, how it is called, and what makes it another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from datasets_cli import ExperienceReplay, ReplayBuffer, open_storage
from datasets_cli.errors import NoRewards, UsageError
from datasets_cli.project import Pipeline
from tests.support.derived import preprocess
from tests.support.refusals import refused
from tests.support.text_rows import ID, steps_of, write

FULL = Pipeline(
    crop="80x60",
    resize="64x48",
    normalise="observation, action",
    returns_to_go=True,
    n_step=3,
    gamma=1,
    cast=["float32", "action=int64"],
    select="a",
    exclude=("b", "c"),
    rename="a=d",
)


def test_it_is_called_by_its_steps_and_has_a_digest_that_no_release_changes() -> None:
    assert str(FULL) == (
        "crop=80x60, resize=64x48, normalise=observation,action, returns-to-go, n-step=3, "
        "gamma=1.0, cast=float32,action=int64, select=a, exclude=b,c, rename=a=d"
    )
    # Of the values and the version of the rules alone; a change of it makes results outdated.
    digest = "d3c1f2c6f52f22c9cf096f5ae01451102ae48220e41effcf274a524a22991c7f"
    assert Pipeline(cast="float32").identity.entry["digest"] == digest
    assert FULL.identity.entry["pipeline"] == FULL.to_json()
    assert Pipeline().identity.entry["name"] == "copy"


def test_it_is_the_same_again_from_its_json() -> None:
    assert Pipeline.from_json(FULL.to_json()) == FULL
    assert Pipeline(cast="float32").to_json() == {"cast": "float32"}
    assert Pipeline(select=["a", "b"]) == Pipeline(select="a,b")
    assert Pipeline().to_json() == {}
    assert Pipeline(select=["a,b"]).to_json() == {"select": ["a,b"]}, "one key with a comma"
    assert {FULL: 1}[Pipeline.from_json(FULL.to_json())] == 1


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"crop": "80"}, "crop"),
    ({"resize": "0x4"}, "resize"),
    ({"resize": (64, 64)}, "resize"),
    ({"normalise": ""}, "normalise"),
    ({"select": ["a", "a"]}, "select"),
    ({"select": ["a", 3]}, "select"),
    ({"exclude": 3}, "exclude"),
    ({"returns_to_go": "yes"}, "returns_to_go"),
    ({"n_step": 0, "gamma": 0.9}, "n_step"),
    ({"n_step": True, "gamma": 0.9}, "n_step"),
    ({"n_step": 3}, "gamma"),
    ({"gamma": 0.9}, "gamma"),
    ({"returns_to_go": True, "gamma": 1.5}, "gamma"),
    ({"returns_to_go": True, "gamma": 0}, "gamma"),
    ({"returns_to_go": True, "gamma": "1"}, "gamma"),
    ({"returns_to_go": True, "gamma": float("nan")}, "gamma"),
    ({"cast": "float33"}, "cast"),
    ({"cast": "=float32"}, "cast"),
    ({"cast": "int64"}, "cast"),
    ({"rename": "a"}, "rename"),
    ({"rename": "a=b,b=c"}, "rename"),
    ({"nothing": 1}, "nothing"),
]


@pytest.mark.parametrize(("values", "name"), WRONG)
def test_a_value_that_cannot_be_is_refused(values: dict[str, Any], name: str) -> None:
    with refused(UsageError, argument=name):
        Pipeline.from_json(values)


@pytest.fixture
def replay(tmp_path: Path) -> ExperienceReplay:
    """Twenty rows with text: ``observation.x`` and ``observation.mission``."""
    folder = tmp_path / "root" / "datasets" / ID
    folder.parent.mkdir(parents=True)
    write(tmp_path / "staging", "ted", steps_of(["left", "", "right"], (4, 1, 6, 3, 6)))
    (tmp_path / "staging" / "data").rename(folder)
    return ExperienceReplay(ID, root=tmp_path / "root", download=False, text=True)


REFUSED: dict[str, tuple[dict[str, Any], object]] = {
    "a name that is not there": ({"exclude": "observation.y"}, "observation.y"),
    "the flags": ({"exclude": "next"}, ("next", "done")),
    "a flag": ({"rename": "done=ready"}, ("done",)),
    "a name that is there": ({"rename": "action=episode"}, ("episode",)),
    "a name within a column": ({"rename": "action=observation.x.y"}, ("observation", "x", "y")),
    "a name that no file has": ({"rename": "action=a..b"}, ("a", "", "b")),
    "a column that goes": ({"rename": "action=a", "exclude": "action"}, ("action",)),
    "text that is normalised": ({"normalise": "observation.mission"}, "observation.mission"),
    "flags that are normalised": ({"normalise": "done"}, ("done",)),
    "a column that is normalised twice": (
        {"normalise": "observation.x,next.observation"},
        ("next", "observation", "x"),
    ),
    "text that is cast": ({"cast": "observation=float32"}, ("observation", "mission")),
    "a flag that is cast": ({"cast": "next.done=uint8"}, ("next", "done")),
    "two casts of all": ({"cast": "float32,float16"}, None),
    "two casts of one": ({"cast": "action=int8,action=int16"}, ("action",)),
    "a number that a type lacks": (
        {"cast": "observation.x=uint8", "normalise": "observation.x"},  # some are below 0
        ("observation", "x"),
    ),
    "a fraction": ({"cast": "next.reward=int64"}, ("next", "reward")),
    "what is no image": ({"resize": "8x8"}, None),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_dataset_does_not_have_is_refused(
    case: str, replay: ExperienceReplay, tmp_path: Path
) -> None:
    values, key = REFUSED[case]
    with refused(UsageError, argument=next(iter(values)), key=key):
        replay.preprocess(Pipeline(**values), dest=tmp_path / "x", num_workers=0)
    assert not (tmp_path / "x").exists()


def test_a_float_that_becomes_infinite_is_refused(tmp_path: Path, replay: ExperienceReplay) -> None:
    large = replay.preprocess(_large, dest=tmp_path / "large", num_workers=0)
    with refused(UsageError, argument="cast", key=("next", "reward"), expected="torch.float32"):
        _again(large, Pipeline(cast="float32"), tmp_path / "x")


def test_rows_without_transitions_have_no_n_steps(replay: ExperienceReplay, tmp_path: Path) -> None:
    alone = replay.preprocess(_without_successors, dest=tmp_path / "alone", num_workers=0)
    with refused(UsageError, argument="n_step"):
        _again(alone, Pipeline(n_step=2, gamma=0.9), tmp_path / "x")
    bare = replay.preprocess(_bare, dest=tmp_path / "bare", num_workers=0)
    with pytest.raises(NoRewards):
        _again(bare, Pipeline(returns_to_go=True), tmp_path / "x")


def test_what_spans_trajectories_takes_them_whole(replay: ExperienceReplay, tmp_path: Path) -> None:
    steps = Pipeline(returns_to_go=True)
    with refused(UsageError, argument="num_frames", found=3):
        replay.preprocess(steps, dest=tmp_path / "x", num_frames=3)
    with refused(UsageError, argument="num_frames", found=3):
        replay.rows(0, 3).preprocess(steps, dest=tmp_path / "x")
    with refused(UsageError, argument="per", expected="chunk", found="transition"):
        replay.preprocess(steps, dest=tmp_path / "x", per="transition")
    begun = replay.rows(2, 20).preprocess(steps, dest=tmp_path / "y", num_workers=0)
    assert begun.column(("returns_to_go",))[0].item() == 2 / 2 + 3 / 2


def test_n_steps_are_not_made_of_n_steps(replay: ExperienceReplay, tmp_path: Path) -> None:
    steps = Pipeline(n_step=2, gamma=0.9)
    once = replay.preprocess(steps, dest=tmp_path / "once", num_workers=0)
    with refused(UsageError, argument="n_step", key=("steps_to_next_obs",)):
        _again(once, steps, tmp_path / "x")


def test_text_goes_with_its_rows(replay: ExperienceReplay, tmp_path: Path) -> None:
    """The mission after a row becomes that of the step after it, in its trajectory."""
    steps = Pipeline(
        n_step=2, gamma=0.5, rename="observation.mission=task", normalise="observation"
    )
    made = replay.preprocess(steps, dest=tmp_path / "x", num_workers=0)
    batch = ReplayBuffer(storage=open_storage(made.dataset.folder, text=True))[:]
    before = replay[:]
    after = before["next", "observation", "mission"]
    ends = before["next", "done"].flatten().tolist()
    assert list(batch["task"]) == list(before["observation", "mission"])
    expected = [after[row if ends[row] else row + 1] for row in range(20)]
    assert list(batch["next", "observation", "mission"]) == expected


def _large(batch: Any) -> Any:
    batch["next", "reward"] = batch["next", "reward"] * 1e39
    return batch.exclude("observation", ("next", "observation"))


def _without_successors(batch: Any) -> Any:
    return batch.exclude(("next", "observation"), ("observation", "mission"))


def _bare(batch: Any) -> Any:
    return batch.select("action")


def _again(made: Any, steps: Pipeline, dest: Path) -> None:
    preprocess(made.dataset.folder, steps, dest, num_workers=0)
