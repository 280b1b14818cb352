"""``--source``: the folder, URL or file that a dataset is installed from."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import datasets_cli
from datasets_cli import ExperienceReplay
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.core.progress import silent
from datasets_cli.errors import DatasetNotInstalled
from datasets_cli.sources.resource import Digests
from tests.conftest import DEMO
from tests.support.d4rl_cuts import CUTS
from tests.support.origin import closed_port_url

ID = "minari/my/door-v0"
FILES = DEMO / "minari" / "D4RL" / "door" / "human-v2" / "data"

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def source(config: Config, tmp_path: Path) -> Path:
    """A folder whose files are installed, of which one was changed since."""
    folder = Path(shutil.copytree(FILES, tmp_path / "files"))
    datasets_cli.download(ID, source=folder, progress=silent)
    longer(folder / "metadata.json")
    return folder


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b" ")


def size_of_metadata() -> int:
    manifest = datasets_cli.dataset_info(ID).manifest
    return next(int(e["bytes"]) for e in manifest.resources if e["filename"] == "metadata.json")


def test_the_source_of_an_installed_dataset_is_not_read(source: Path, capsys: Capture) -> None:
    before = size_of_metadata()
    for place in (str(source), str(source / "gone"), closed_port_url()):
        for more in ([], ["--dry-run"], ["--offline"]):
            assert main(["download", ID, "--source", place, *more]) == 0
        assert f"{ID} is installed already; --force replaces it" in capsys.readouterr().err
        for download in (True, False):
            assert len(ExperienceReplay(ID, source=place, download=download)) > 0
    assert size_of_metadata() == before


def test_force_installs_the_files_of_the_source(source: Path) -> None:
    before = size_of_metadata()
    datasets_cli.download(ID, source=source, force=True, progress=silent)
    assert size_of_metadata() == before + 1


def test_a_source_that_does_not_fit_matters_where_nothing_is_installed(
    source: Path, tmp_path: Path, capsys: Capture
) -> None:
    for more in ([], ["--dry-run"]):
        assert main(["download", "minari/other-v0", "--source", str(tmp_path / "gone"), *more]) == 2
        assert f"{tmp_path / 'gone'}, which does not exist" in capsys.readouterr().err
    with pytest.raises(DatasetNotInstalled):
        ExperienceReplay("minari/D4RL/pen/human-v2", source=str(source), download=False)


def test_a_folder_has_the_files_of_several_datasets(config: Config, tmp_path: Path) -> None:
    cuts = [CUTS["hopper-medium-v0"], CUTS["hopper-medium-replay-v1"]]
    ids = [f"d4rl/{cut.name}" for cut in cuts]
    for cut in cuts:
        cut.lay_out(tmp_path / "datasets")
    call = {"source": tmp_path / "datasets", "verify": False, "progress": silent}
    installed = datasets_cli.download(ids, **call).datasets
    assert [each.id for each in installed] == ids
    assert [each.num_transitions for each in installed] == [
        len(ExperienceReplay(id, root=config.root)) for id in ids
    ]
    for id, cut in zip(ids, cuts, strict=True):
        (resource,) = datasets_cli.dataset_info(id).manifest.resources
        assert resource["sha256"] == digest(cut.path)


def test_a_dataset_of_one_file_is_read_from_that_file(config: Config, tmp_path: Path) -> None:
    cut = CUTS["hopper-medium-v0"]
    path = Path(shutil.copyfile(cut.path, tmp_path / "of any name.h5"))
    datasets_cli.download("d4rl/hopper-medium-v0", source=path, verify=False, progress=silent)
    (resource,) = datasets_cli.dataset_info("d4rl/hopper-medium-v0").manifest.resources
    assert (resource["url"], resource["sha256"]) == (str(path), digest(cut.path))


def digest(path: Path) -> str:
    digests = Digests({"sha256"})
    digests.read(path)
    return digests.hex()["sha256"]
