"""Declared data: they open as the methods they name would make them, or are refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from datasets_cli import ExperienceReplay, declared_datasets, open_dataset
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import DatasetNotInstalled, UsageError, WrongRows
from datasets_cli.project.data import DataFile
from tests.replay.views.conftest import install
from tests.support.refusals import refused

DOUBLE = """
def double(batch):
    batch["action"] = batch["action"] * 2
    return batch
"""


@pytest.fixture
def folder(config: Config, tmp_path: Path) -> Path:
    """Return a folder for ``rlds.toml``, with a dataset of trajectories 4, 1, 6, 3 and 6 long."""
    install(config.root, "ted")
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def declare(folder: Path, text: str) -> Path:
    (folder / "rlds.toml").write_text(text)
    return folder


def opened(folder: Path, views: str, more: str = "") -> Any:
    declare(folder, f'[data.x]\ndataset = "toy/missions"\nviews = [{views}]\n{more}')
    return open_dataset("x", project=folder / "rlds.toml")


@pytest.mark.parametrize(
    ("views", "numbers"),
    [
        ('{ filter = "length > 3" }', [0, 2, 4]),
        ('{ filter = "length > 3" }, { take = 2, by = "-return" }', [4, 2]),
        ('{ take = 0.4, by = "return" }', [1, 0]),
        ("{ episodes_at = [3, 0] }", [3, 0]),
        ("{ rows = [4, 11] }", [1, 2]),
    ],
)
def test_views_are_chosen_one_after_the_other(folder: Path, views: str, numbers: list[int]) -> None:
    assert opened(folder, views).trajectories["number"].tolist() == numbers


def test_parts_of_a_split_are_those_of_the_method(folder: Path, config: Config) -> None:
    replay = ExperienceReplay("toy/missions", root=config.root)
    for part, view in enumerate(replay.split(0.6, seed=7)):
        found = opened(folder, f"{{ split = [0.6], seed = 7, part = {part} }}")
        assert found.trajectories["number"].tolist() == view.trajectories["number"].tolist()
    with refused(UsageError, argument="part", found=2):
        opened(folder, "{ split = [0.6], part = 2 }")


def test_draws_and_transforms_are_those_declared(folder: Path, config: Config) -> None:
    (folder / "doubles.py").write_text(DOUBLE)
    more = 'slice_len = 3\nbatch_size = 6\nseed = 3\ntransforms = ["doubles:double"]'
    batch = opened(folder, "{ episodes_at = [2, 4] }", more).sample()
    replay = ExperienceReplay("toy/missions", 6, slice_len=3, seed=3, root=config.root)
    plain = replay.episodes_at([2, 4]).sample()
    assert torch.equal(batch["action"], plain["action"] * 2)
    assert torch.equal(batch["index"], plain["index"])


# Mixtures


MEMBERS = """
[data.long]
dataset = "toy/missions"
views = [{ filter = "length > 3" }]

[data.short]
dataset = "toy/missions"
views = [{ filter = "length <= 3" }]

[data.x]
"""


def test_members_are_drawn_by_their_weights(folder: Path) -> None:
    declare(folder, f"{MEMBERS}members = {{ long = 0.9, short = 0.1 }}\nseed = 0")
    batch = open_dataset("x", project=folder).sample(4000)
    assert (batch["member"] == 0).float().mean() == pytest.approx(0.9, abs=0.03)
    short = batch["action"][batch["member"] == 1].flatten()
    assert {*short.tolist()} == {4, 11, 12, 13}  # trajectories 1 and 3


def test_an_epoch_has_every_row_of_its_members_once(folder: Path) -> None:
    declare(folder, f'{MEMBERS}members = ["long", "short"]\nepoch = "all"\nbatch_size = 7')
    batches = [*open_dataset("x", project=folder)]
    assert sorted(row for batch in batches for row in batch["action"].flatten()) == [*range(20)]


def test_columns_of_members_are_mapped(folder: Path) -> None:
    maps = 'map.short = { scale = { "next.reward" = 2.0 }, rename = { "observation.x" = "state" } }'
    declare(folder, f"{MEMBERS}members = {{ long = 1, short = 1 }}\n{maps}\n")
    with refused(WrongRows, argument="members", key=("observation", "x")):
        open_dataset("x", project=folder)
    maps = 'map.short.scale = { "next.reward" = 2.0 }'
    declare(folder, f"{MEMBERS}members = {{ long = 1, short = 1 }}\n{maps}\n")
    batch = open_dataset("x", project=folder).sample(100)
    factor = batch["next", "reward"].flatten() * 2 / batch["action"].flatten().clamp(min=1)
    assert torch.equal(factor[batch["action"].flatten() > 0].unique(), torch.tensor([1.0, 2.0]))


def test_a_mixture_s_digest_has_its_weights_and_members(folder: Path) -> None:
    mixtures = ["{ long = 1, short = 1 }", "{ long = 1, short = 2 }", "{ short = 1, long = 1 }"]
    found = []
    for members in mixtures:
        declare(folder, f"{MEMBERS}members = {members}\n")
        found.append(declared_datasets("x", project=folder)[0])
    assert len({each.digest for each in found}) == 3
    assert {(each.num_transitions, each.num_trajectories) for each in found} == {(20, 5)}


def test_a_member_of_itself_is_refused(folder: Path) -> None:
    text = '[data.a]\nmembers = ["b"]\n[data.b]\nmembers = ["a"]\n'
    with refused(UsageError, argument="members", found=("a", "b", "a")):
        DataFile(declare(folder, text)).get("a")


# Digests


def digest_of(folder: Path, text: str) -> str:
    declare(folder, text)
    return declared_datasets("x", project=folder)[0].digest


def test_a_digest_is_of_the_data_and_not_of_how_they_are_called(folder: Path) -> None:
    plain = '[data.x]\ndataset = "toy/missions"\n'
    first = digest_of(folder, plain + 'views = [{ filter = "length > 3" }]')
    same = digest_of(folder, plain + "views = [{ episodes_at = [0, 2, 4] }]")
    others = [
        plain,
        plain + "views = [{ episodes_at = [4, 2, 0] }]",
        plain + 'views = [{ filter = "length > 3" }]\nseed = 1',
        plain + 'views = [{ filter = "length > 3" }]\nbatch_size = 3',
    ]
    assert first == same
    assert len({first, *(digest_of(folder, text) for text in others)}) == 5


def test_a_digest_changes_with_the_text_of_a_function(folder: Path) -> None:
    text = '[data.x]\ndataset = "toy/missions"\ntransforms = ["changes:double"]\n'
    (folder / "changes.py").write_text(DOUBLE)
    first = digest_of(folder, text)
    (folder / "changes.py").write_text(DOUBLE.replace("* 2", "* 3"))
    assert digest_of(folder, text) != first


def test_the_command_prints_digests(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(declare(folder, '[data.x]\ndataset = "toy/missions"\n'))
    digest = declared_datasets()[0].digest
    assert main(["data"]) == 0
    assert capsys.readouterr().out.split()[-4:] == ["x", "20", "5", digest]
    assert main(["data", "x", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["digest"] for each in found] == [digest]
    assert main(["data", "y"]) == 2
    assert "has no [data.y]. It has: x." in capsys.readouterr().err


def test_a_file_without_declarations_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(declare(folder, ""))
    assert main(["data"]) == 0
    assert "rlds.toml has no" in capsys.readouterr().out


def test_a_dataset_that_is_missing_is_named(folder: Path) -> None:
    declare(folder, '[data.x]\ndataset = "demo/pong"\n')
    with refused(DatasetNotInstalled, id="demo/pong"):
        declared_datasets(project=folder)
    assert declared_datasets(project=folder, download=True)[0].num_transitions > 0


# What is refused


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("data = 3", "write .data.NAME."),
        ("[data.x]\n", "expected either dataset"),
        (
            '[data.x]\ndataset = ""',
            "dataset: expected an id, found ''",
        ),
        ('[data.x]\ndataset = "a"\nsize = 3', "expected some of dataset, .* found 'size'"),
        (
            '[data.x]\ndataset = "a"\nseed = -1',
            "seed: expected a whole number .* found -1",
        ),
        ('[data.x]\ndataset = "a"\nviews = [{take = 1, rows = [0, 1]}]', "expected one of"),
        ('[data.x]\ndataset = "a"\nviews = [{take = 1, part = 1}]', "take has no argument part"),
        ('[data.x]\ndataset = "a"\nviews = [{rows = [1]}]', "expected two whole numbers"),
        ('[data.x]\ndataset = "a"\ntransforms = ["scale"]', "is not MODULE:FUNCTION"),
        ('[data.x]\ndataset = "a"\nepoch = "all"', "epoch is not a key of a dataset"),
        ('[data.x]\nmembers = ["a"]\nviews = [{take = 1}]', "views is not a key of a mixture"),
        ("[data.x]\nmembers = {a = 0}", "expected names with weights above 0"),
        ('[data.x]\nmembers = {a = 1}\nweights = "rows"', "members already have weights"),
        ('[data.x]\nmembers = ["a"]\nmap.b.drop = ["c"]', "map has b, which is not a member"),
        ('[data.x]\nmembers = ["a"]\nmap.a.drop = [3]', "map.a.drop.0.: expected a text, found 3"),
        ('[data.x]\ndataset = "a"\nnum_slices = 2\nslice_len = 2', "exclude each other"),
    ],
)
def test_a_declaration_that_is_none_is_refused_by_its_name(
    folder: Path, text: str, why: str
) -> None:
    with pytest.raises(UsageError, match=why) as raised:
        DataFile(declare(folder, text)).get("x")
    assert "rlds.toml" in str(raised.value)


def test_a_condition_that_is_none_names_the_table(folder: Path) -> None:
    with pytest.raises(UsageError) as raised:
        opened(folder, '{ filter = "score > 3" }')
    assert str(raised.value).startswith("[data.x] of ") and "'score > 3'" in str(raised.value)


def test_arguments_of_a_dataset_are_refused_for_a_project(folder: Path) -> None:
    declare(folder, '[data.x]\ndataset = "toy/missions"\n')
    with refused(UsageError, argument="project"):
        open_dataset("x", project=folder, text=True)  # type: ignore[call-overload]
