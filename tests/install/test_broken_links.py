"""Links in a cache root: to nothing, such as a disk that is not mounted, and to a folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import datasets_cli
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.core.progress import silent
from datasets_cli.errors import NotWritable, UsageError
from datasets_cli.sources.disk import make_folder
from tests.support.origin import Origin
from tests.support.refusals import refused

Capture = pytest.CaptureFixture[str]
IRIS = "demo/iris"


def broken(path: Path) -> Path:
    """Make a link to nothing under this name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(path.parent / "unmounted")
    return path


@pytest.mark.parametrize("below", ["", "rlds"])
def test_a_root_that_is_a_broken_link_is_named_with_where_it_leads(
    below: str, tmp_path: Path, capsys: Capture
) -> None:
    link = broken(tmp_path / "data")
    assert main(["--root", str(link / below), "list"]) == 2
    error = capsys.readouterr().err
    assert f"{link} is a symbolic link to {tmp_path / 'unmounted'}, which does not exist" in error


@pytest.mark.parametrize("name", ["datasets", "datasets/demo", "tmp", "locks"])
def test_a_download_names_the_broken_link_and_makes_nothing(
    name: str, config: Config, capsys: Capture
) -> None:
    link = broken(config.root / name)
    assert main(["download", IRIS, "-q"]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert f"{link} is a symbolic link to {link.parent / 'unmounted'}" in error
    assert "Is its disk mounted" in error and link.is_symlink() and not link.exists()
    assert not [
        path for path in config.root.rglob("*") if path.is_file() and path.parent.name != "locks"
    ]
    link.parent.joinpath("unmounted").mkdir()
    assert main(["download", IRIS, "-q"]) == 0


def test_raw_files_are_not_fetched_through_a_broken_link(config: Config) -> None:
    broken(config.root / "downloads")
    with Origin() as origin:
        mirrors = tuple((host, origin.url) for host in ("https://", "http://rail"))
        with pytest.raises(NotWritable):
            datasets_cli.download("d4rl/door-human-v0", config=replace(config, mirrors=mirrors))


def test_what_was_below_a_broken_link_is_said_to_be_left_out(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    link = broken(config.root / "datasets")
    assert datasets_cli.verify(config=config) == []
    assert f"{link} is a symbolic link" in caplog.text and "is skipped" in caplog.text
    with refused(UsageError, path=link):
        datasets_cli.prune(config=config)


def test_deleting_a_linked_dataset_removes_the_link_and_not_what_it_leads_to(
    config: Config, tmp_path: Path
) -> None:
    folder = Path(datasets_cli.download(IRIS, progress=silent, config=config).datasets[0].path)
    elsewhere = folder.rename(tmp_path / "elsewhere")
    names = sorted(elsewhere.rglob("*"))
    folder.symlink_to(elsewhere)
    datasets_cli.delete(IRIS, config=config)
    assert sorted(elsewhere.rglob("*")) == names
    assert not folder.is_symlink() and list((config.root / "tmp").iterdir()) == []


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotWritable):
        make_folder(tmp_path / "file" / "below")
