"""Views as files: they open as what they were, or are refused."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datasets_cli import D4RLExperienceReplay, ExperienceReplay
from datasets_cli.errors import DamagedDataset, UnknownDataset, UsageError
from datasets_cli.store.sealed_json import seal
from tests.replay.views.conftest import LENGTHS, install
from tests.support.refusals import check_refused


def opened(path: Path, root: Path) -> ExperienceReplay:
    return ExperienceReplay(path, 4, root=root, download=False, text=True)


@pytest.mark.parametrize("numbers", [[], [2], [4, 0, 1, 2, 2], [0, 1, 2, 3, 4]])
def test_a_saved_view_opens_as_it_was(
    replay: ExperienceReplay, root: Path, tmp_path: Path, numbers: list[int]
) -> None:
    view = replay.episodes_at(numbers)
    view.save(path := tmp_path / "best.json")
    again = opened(path, root)
    assert again.trajectories["number"].tolist() == numbers
    assert again.storage.dataset.selection.digest == view.storage.dataset.selection.digest
    assert again.storage.dataset.selection.steps == view.storage.dataset.selection.steps


def test_cut_trajectories_and_whole_datasets_are_saved_too(
    replay: ExperienceReplay, root: Path, tmp_path: Path
) -> None:
    cut = replay.episodes_at([4, 1, 2]).rows(2, 11)
    cut.save(tmp_path / "cut.json")
    replay.save(tmp_path / "all.json")
    assert opened(tmp_path / "cut.json", root)["action"].tolist() == cut["action"].tolist()
    assert len(opened(tmp_path / "all.json", root)) == sum(LENGTHS)


def test_a_file_of_many_trajectories_is_short_where_they_are_in_order(
    root: Path, tmp_path: Path
) -> None:
    replay = ExperienceReplay(install(root, "ted", (1,) * 5000), root=root, download=False)
    replay.episodes_at(np.arange(100, 4900)).save(path := tmp_path / "some.json")
    assert json.loads(path.read_bytes())["trajectories"] == [[100, 4800]]


def test_a_view_opens_in_the_other_layout(tmp_path: Path) -> None:
    roots = tmp_path / "one", tmp_path / "two"
    for root, layout in zip(roots, ["ted", "compact"], strict=True):
        install(root, layout)
    replay = ExperienceReplay("toy/missions", root=roots[0], download=False)
    replay.take(2, by="return").save(path := tmp_path / "best.json")
    assert opened(path, roots[1]).trajectories["number"].tolist() == [4, 2]


def test_a_view_of_other_data_is_refused(replay: ExperienceReplay, tmp_path: Path) -> None:
    replay.episodes_at([1]).save(path := tmp_path / "best.json")
    install(other := tmp_path / "other", "ted", (4, 1, 6, 3, 7))
    with pytest.raises(UsageError, match="other data"):
        opened(path, other)


def test_a_view_of_a_dataset_that_is_not_installed_says_which(
    replay: ExperienceReplay, tmp_path: Path
) -> None:
    replay.episodes_at([1]).save(path := tmp_path / "best.json")
    with pytest.raises(UnknownDataset, match="toy/missions"):
        opened(path, tmp_path / "empty")
    with pytest.raises(UsageError, match=r"is of toy/missions, and D4RLExperienceReplay"):
        D4RLExperienceReplay(path, root=replay.config.root, download=False)


WRONG: dict[str, dict[str, Any]] = {
    "the format": {"format": "rlds dump"},
    "the version": {"version": 2},
    "id: expected a text": {"id": 3},
    r"steps\[0\]: expected a text": {"steps": [3]},
    "no numbers": {"trajectories": [[0.5, 1]]},
    "no numbers ": {"trajectories": [[-1, 1]]},
    "no numbers  ": {"trajectories": [[0, 0]]},
    "trajectories: expected a list": {"trajectories": "all"},
    "several lengths": {"trajectories": [[0, 1], [2]]},
    "a trajectory that does not exist": {"trajectories": [[3, 3]]},
    "numbers that no dataset has": {"trajectories": [[2**60, 1]]},
    "a place that it does not have": {"cut": [[9, 0, 1]]},
    "rows that do not exist": {"cut": [[0, 3, 2]]},
}


def test_a_file_that_is_no_view_s_is_refused(
    replay: ExperienceReplay, root: Path, tmp_path: Path
) -> None:
    replay.save(path := tmp_path / "view.json")
    document = json.loads(path.read_bytes())
    for what, entries in WRONG.items():
        path.write_bytes(seal(document | entries))
        check_refused(DamagedDataset, [(what.strip(), partial(opened, path, root))])


def test_a_changed_file_is_refused(replay: ExperienceReplay, root: Path, tmp_path: Path) -> None:
    replay.save(path := tmp_path / "view.json")
    whole = path.read_bytes()
    for data in whole.replace(b"0", b"1", 1), whole[:-9], b"", b"[]", b"\xff":
        path.write_bytes(data)
        with pytest.raises(DamagedDataset, match=r"view\.json"):
            opened(path, root)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        opened(path, root)


def test_a_file_or_folder_that_is_missing_is_named(
    replay: ExperienceReplay, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError, match=r"the file of a view, which its save\(\) wrote"):
        ExperienceReplay(tmp_path / "none.json")
    with pytest.raises(FileNotFoundError, match=r"no folder .*none for best\.json"):
        replay.take(1).save(tmp_path / "none" / "best.json")


def test_a_name_without_json_is_a_folder_for_dumps(
    replay: ExperienceReplay, tmp_path: Path
) -> None:
    view = replay.episodes_at([1, 2])
    view.save(tmp_path / "dump")
    view.loads(tmp_path / "dump")
    assert (tmp_path / "dump").is_dir()
