"""A whole run has the checkpoints 0 to 49, and some have 50; nothing else gets a whole run's id."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from urllib.parse import quote

import pytest

from datasets_cli.catalogue.entries import load_recipe
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import SourceError
from datasets_cli.install.fetch import Folder
from datasets_cli.recipes.atari_dqn.log_files import COUNT, STORES, filename, placed
from datasets_cli.sources.http import Http
from datasets_cli.store.dataset import open_dataset
from tests.recipes.test_atari import assert_same, invented
from tests.support.atari_files import expected, record
from tests.support.origin import Fault, Origin

ID = "atari_dqn/Pong/5"
RUN = "dqn/Pong/5/replay_logs/"
BUCKET = "atari-replay-datasets"
LIST = f"storage/v1/b/{BUCKET}/o?prefix={RUN}"

Capture = pytest.CaptureFixture[str]


def names_of(numbers: Collection[int]) -> list[str]:
    return [filename(what, number) for number in numbers for what in (COUNT, *STORES)]


@pytest.mark.parametrize(("steps", "num_logs"), [(395, 50), (400, 51)])
def test_a_run_of_50_or_51_checkpoints_is_whole(
    config: Config, tmp_path: Path, steps: int, num_logs: int
) -> None:
    run = record(tmp_path / "run", invented([steps]), 8)
    assert run.num_logs == num_logs
    assert main(["download", ID, "--source", str(run.folder)]) == 0
    dataset = open_dataset(config.root / "datasets" / ID)
    assert len(dataset.manifest.resources) == 5 * num_logs
    assert_same(dataset, expected(invented([steps]), run.logged))


def test_a_mirror_without_a_list_is_asked_for_the_last_checkpoint_too(
    google: Origin, config: Config
) -> None:
    for number in range(50):
        google.put(f"{BUCKET}/{RUN}{quote(filename(COUNT, number))}", b"\x1f\x8b")
    found = load_recipe("atari_dqn").resources("Pong/5", Http(config))
    assert [resource.filename for resource in found] == names_of(range(50))
    assert len(google.log(f"{BUCKET}/{RUN}{filename(COUNT, 50)}")) == 1


CASES: dict[str, tuple[set[int], str, str]] = {
    "begins late": (set(range(1, 50)), "does not have 0 of the checkpoints", "1:50"),
    "ends early": (set(range(49)), "does not have 49 of the checkpoints", "0:49"),
    "a gap": (set(range(51)) - {20}, "does not have 20 of the checkpoints", "21:51"),
    "gaps": (set(range(50)) - {3, 7, 8}, "does not have 3, 7 to 8 of the checkpoints", "9:50"),
    "one alone": ({50}, "does not have 0 to 49 of the checkpoints", "50:51"),
}


def offer(google: Origin, folder: Path, kind: str, numbers: set[int]) -> list[str]:
    """Put the checkpoints into a place of some kind; return the arguments that lead there."""
    items = []
    for name in names_of(sorted(numbers)):
        (folder / name).write_bytes(b"\x1f\x8b")
        google.put(f"{BUCKET}/{RUN}{quote(name)}", b"\x1f\x8b")
        items.append({"name": RUN + name, "size": "2"})
    if kind == "list":
        google.put(LIST, json.dumps({"items": items}).encode())
    if kind == "refused list":
        google.always(LIST, Fault(status=403))
    places = {"folder": str(folder), "url": f"{google.url}{BUCKET}/{RUN}"}
    return ["--source", places[kind]] if kind in places else []


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        *((case, "folder") for case in CASES),
        *(("gaps", kind) for kind in ("url", "list", "refused list")),
    ],
)
def test_any_other_run_is_refused_with_what_is_missing_and_what_fits(
    google: Origin, config: Config, tmp_path: Path, capsys: Capture, case: str, kind: str
) -> None:
    numbers, found, fits = CASES[case]
    arguments = offer(google, tmp_path, kind, numbers)
    for more in ([], ["--force", "--no-verify"], ["--dry-run"]):
        assert main(["download", ID, *arguments, *more]) == 4
        error = capsys.readouterr().err
        assert found in error and f"--checkpoints {fits}." in error
    assert not (config.root / "datasets").exists()
    assert main(["download", ID, *arguments, "--checkpoints", fits, "--dry-run"]) == 0


def test_checkpoints_that_no_run_has_are_named(tmp_path: Path) -> None:
    for name in names_of(range(53)):
        (tmp_path / name).touch()
    with pytest.raises(SourceError) as caught:
        placed(Folder(tmp_path, ID), None)
    assert "--checkpoints 0:51." in str(caught.value.advice)


def test_what_fits_has_complete_checkpoints_alone(tmp_path: Path) -> None:
    for name in names_of(range(40)):
        (tmp_path / name).touch()
    (tmp_path / filename("reward", 10)).unlink()
    with pytest.raises(SourceError) as caught:
        placed(Folder(tmp_path, ID), None)
    assert "--checkpoints 11:40." in str(caught.value.advice)
