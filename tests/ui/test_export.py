"""Exported pages, and the page of the documentation about them."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import datasets_cli
from datasets_cli import UsageError, serve_page
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.ui import local_page, server
from datasets_cli.ui.local_page import FOLDER
from tests.support.mixture_members import rows_of, write
from tests.support.page_requests import ask, guarded
from tests.support.paths import PROJECT

LENGTHS = [3] * 30
FRAMES = np.random.default_rng(0).integers(0, 256, (90, 40, 30), np.uint8)
SCRIPTS = sorted(FOLDER.glob("static/*.js"))
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def shown(config: Config) -> str:
    rows = rows_of(0, LENGTHS) | {("pixels",): FRAMES}
    write(config.root / "datasets" / "test" / "shown", rows, "ted")
    return "test/shown"


def data_of(path: Path) -> Any:
    return json.loads(path.read_text().partition('id="page-data">')[2].partition("</script>")[0])


def test_the_first_trajectories_have_pages_frames_and_links(shown: str, tmp_path: Path) -> None:
    made = datasets_cli.export_pages(shown, tmp_path / "pages")
    pages = made.path / "test" / "shown"
    assert made.ids == (shown,)
    assert sorted(int(path.stem) for path in pages.glob("[0-9]*.html")) == [*range(20)]
    with Image.open(pages / "7" / "2.png") as image:
        np.testing.assert_array_equal(np.asarray(image), FRAMES[7 * 3 + 2])
    assert "the first 20 of 30 trajectories have a page" in (pages / "index.html").read_text()
    assert made.notes == ("test/shown: the first 20 of 30 trajectories have a page",)
    files = [path for path in made.path.rglob("*") if path.is_file()]
    assert made.num_files == len(files)
    assert made.size_bytes == sum(path.stat().st_size for path in files)


def test_numbers_of_a_trajectory_are_in_its_page(shown: str, tmp_path: Path) -> None:
    made = datasets_cli.export_pages(shown, tmp_path / "pages", trajectories=2)
    data = data_of(made.path / "test/shown/1.html")
    (reward,) = data["curves"]["columns"]["next.reward"]
    assert reward["values"] == [1.5, 2.0, 2.5]
    assert (data["address"], data["folder"], data["stride"]) == ("", "1", 1)


def test_frames_beyond_the_most_are_evenly_left_out_and_said(
    shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets_cli.ui.export.FRAMES", 4)
    monkeypatch.setattr("datasets_cli.ui.export.FRAMES_EACH", 2)
    made = datasets_cli.export_pages(shown, tmp_path / "pages", trajectories=2)
    names = sorted(path.name for path in made.path.glob("test/shown/1/*.png"))
    assert names == ["0.png", "2.png"]
    assert "a frame in 2 is here" in (made.path / "test/shown/1.html").read_text()
    assert "at most 2 frames are here" in made.notes[1]


def test_each_file_that_a_page_names_is_there(shown: str, tmp_path: Path) -> None:
    made = datasets_cli.export_pages(shown, tmp_path / "pages", trajectories=2)
    for page in made.path.rglob("*.html"):
        for name in re.findall(r'(?:href|src)="([^"#]+)"', page.read_text()):
            assert name.startswith("https://") or (page.parent / name).is_file(), (page, name)


def test_a_folder_with_files_is_left_as_it_is(shown: str, tmp_path: Path) -> None:
    dest = tmp_path / "pages"
    dest.mkdir()
    (dest / "mine").write_text("kept")
    with pytest.raises(UsageError):
        datasets_cli.export_pages(shown, dest)
    assert [path.name for path in tmp_path.glob("pages/*")] == ["mine"]


def test_an_export_that_fails_leaves_nothing(
    shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> bytes:
        raise OSError("broken")

    monkeypatch.setattr("datasets_cli.ui.curves.frame_png", failing)
    before = {*tmp_path.iterdir()}
    with pytest.raises(OSError, match="broken"):
        datasets_cli.export_pages(shown, tmp_path / "pages")
    assert {*tmp_path.iterdir()} == before


def test_the_command_prints_the_page_to_begin_with(
    shown: str, tmp_path: Path, capsys: Capture
) -> None:
    dest = tmp_path / "pages"
    assert main(["--json", "ui", shown, "--export", str(dest), "--trajectories", "1"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["path"], document["ids"]) == (str(dest), [shown])
    assert (dest / "index.html").is_file()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--export", "pages"],
        ["a/b", "c/d"],
        ["--trajectories", "3"],
        ["--export", "x", "--port", "1"],
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: list[str], capsys: Capture) -> None:
    assert main(["ui", *arguments]) == 2
    assert capsys.readouterr().err


@pytest.mark.skipif(shutil.which("node") is None, reason="node checks scripts, and is not here")
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_valid(path: Path) -> None:
    assert subprocess.run(["node", "--check", path], check=False).returncode == 0


def test_scripts_are_few_lines_and_need_no_other_host() -> None:
    texts = [path.read_text() for path in SCRIPTS]
    assert sum(text.count("\n") for text in texts) <= 500
    assert not any("http" in text or "innerHTML" in text or "eval(" in text for text in texts)


def test_trajectories_are_listed_as_a_table_and_as_json(shown: str, capsys: Capture) -> None:
    assert main(["trajectories", shown, "--sort", "-return", "-n", "1"]) == 0
    head, row = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head == ["NUMBER", "START", "LENGTH", "RETURN", "TERMINATED", "TRUNCATED"]
    assert row == ["29", "87", "3", "132", "yes"]
    assert main(["--json", "trajectories", shown, "-n", "2"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["columns"]["return"] == [1.5, 6.0]


TEXT = (PROJECT / "docs" / "page.md").read_text(encoding="utf-8")


def test_what_the_command_prints_on_the_page_is_what_it_prints(door: str) -> None:
    shown = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)[0].splitlines()
    with serve_page(door, browser=False) as page:
        assert len(shown[2].partition("?token=")[2]) == len(page.address.partition("?token=")[2])
        assert page.address.partition(f"/d/{door}?token=")[2]
        assert shown[3] == f"{page.readers} Ctrl-C ends it."


def test_every_address_of_the_page_is_one(door: str, config: Config) -> None:
    addresses = re.findall(r"`(/[^`]*)`", TEXT)
    assert len(addresses) >= 9
    for address in addresses:
        named = address.replace("ID2", "ID").replace("/K", "/0")
        got = ask(guarded(config), named.replace("ID", door))
        assert got.status == 200, address


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    assert local_page.MOST_BYTES == 1 << 30 and "more than 1 GiB" in TEXT
    assert f"With {server.MOST_CONNECTIONS} open connections, further requests" in TEXT


MOST_BYTES = 150_000


def check_shows_something(path: Path) -> None:
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("L"))
    values, counts = np.unique(pixels, return_counts=True)
    assert len(values) > 10 and counts.max() < 0.98 * pixels.size, f"{path} is blank"
    assert path.stat().st_size <= MOST_BYTES


def kept() -> list[Path]:
    return sorted((PROJECT / "docs").glob("page-*.png"))


@pytest.mark.parametrize("path", kept(), ids=lambda path: path.stem)
def test_a_picture_that_is_kept_is_small_and_not_blank(path: Path) -> None:
    check_shows_something(path)


@pytest.mark.slow
def test_the_script_takes_pictures_of_the_same_sizes(tmp_path: Path) -> None:
    taken = runpy.run_path(str(PROJECT / "scripts" / "screenshots"))["shoot"](tmp_path)
    assert sorted(path.name for path in taken) == [path.name for path in kept()]
    for new, old in zip(sorted(taken), kept(), strict=True):
        check_shows_something(new)
        with Image.open(new) as one, Image.open(old) as other:
            assert one.size == other.size
