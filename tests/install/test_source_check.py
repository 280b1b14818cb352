"""``--source`` of an installed dataset: the files it was made of, or an error that says so."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import datasets_cli
from datasets_cli import ExperienceReplay
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.core.progress import silent
from datasets_cli.errors import DatasetNotInstalled, UsageError
from datasets_cli.sources.resource import Digests
from tests.conftest import DEMO
from tests.support.d4rl_cuts import CUTS
from tests.support.origin import Fault, Origin, closed_port_url

ID = "minari/my/door-v0"
FILES = DEMO / "minari" / "D4RL" / "door" / "human-v2" / "data"
NAMES = ("main_data.hdf5", "metadata.json")

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def source(config: Config, tmp_path: Path) -> Path:
    """A folder whose files are installed."""
    folder = Path(shutil.copytree(FILES, tmp_path / "files"))
    datasets_cli.download(ID, source=folder, progress=silent)
    return folder


def flip(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"#")


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b" ")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (flip, "metadata.json has sha256"),
        (longer, "metadata.json has 2,435 bytes, not 2,434"),
        (Path.unlink, "it does not have metadata.json"),
    ],
)
def test_other_files_are_refused_by_every_call(
    source: Path,
    tmp_path: Path,
    capsys: Capture,
    change: Callable[[Path], None],
    found: str,
) -> None:
    other = Path(shutil.copytree(source, tmp_path / "other"))
    change(other / "metadata.json")
    for more in ([], ["--dry-run"], ["--layout", "ted"], ["--offline"]):
        capsys.readouterr()
        assert main(["download", ID, "--source", str(other), *more]) == 2
        error = capsys.readouterr().err
        for words in (f"{ID} is installed from {source}", f"--source {other}", found, "--force"):
            assert words in error
    for download in (True, False):
        with pytest.raises(UsageError, match=found):
            ExperienceReplay(ID, source=str(other), download=download)


def test_a_copy_elsewhere_is_the_same_source(source: Path, tmp_path: Path) -> None:
    moved = source.rename(tmp_path / "moved")
    (moved / "of the user.txt").touch()
    for options in ([], ["--dry-run"]):
        assert main(["download", ID, "--source", str(moved), *options]) == 0
    assert len(ExperienceReplay(ID, source=str(moved), download=False)) > 0


def test_nothing_is_hashed_where_sizes_differ(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longer(source / "metadata.json")
    monkeypatch.setattr(Digests, "read", lambda *_: pytest.fail("a file is read"))
    with pytest.raises(UsageError, match="bytes, not"):
        datasets_cli.download(ID, source=source, progress=silent)


def test_force_installs_the_other_files(source: Path) -> None:
    longer(source / "metadata.json")
    datasets_cli.download(ID, source=source, force=True, progress=silent)
    assert datasets_cli.plan_download(ID, source=source)[0].installed


def test_a_folder_that_does_not_exist_matters_where_nothing_is_installed(
    source: Path, tmp_path: Path, capsys: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    gone = ["--source", str(tmp_path / "gone")]
    for more in ([], ["--dry-run"]):
        assert main(["download", ID, *gone, *more]) == 0
        assert f"The source {tmp_path / 'gone'} does not exist" in caplog.text
        caplog.clear()
        assert main(["download", "minari/other-v0", *gone, *more]) == 2
        assert f"{tmp_path / 'gone'}, which does not exist" in capsys.readouterr().err
        assert main(["download", ID, "--source", str(source / NAMES[0]), *more]) == 2
        assert f"{NAMES[0]}, which is a file" in capsys.readouterr().err
    with pytest.raises(DatasetNotInstalled):
        ExperienceReplay("minari/D4RL/pen/human-v2", source=str(source), download=False)


def test_what_was_derived_has_no_source(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "same_rows.py").write_text("def same(batch):\n    return batch\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    made = ["--fn", "same_rows:same", "--out", "same", "--workers", "0"]
    assert main(["preprocess", ID, *made]) == 0
    with pytest.raises(UsageError, match=f"installed from {ID}, from which it was derived"):
        datasets_cli.download("derived/same", source=source, progress=silent)


def test_files_below_a_url_are_compared_too(
    source: Path, capsys: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    with Origin() as origin:
        for name in NAMES:
            origin.put(f"copy/{name}", (source / name).read_bytes())
            origin.put(f"short/{name}", b"{}")
            origin.put(f"other/{name}", (source / name).read_bytes()[:-1] + b"#")
        assert main(["download", ID, "--source", f"{origin.url}copy"]) == 0
        for place, found in {
            "short": "has 2 bytes",
            "other": "has sha256",
            "none": "does not have main_data.hdf5 and 1 more",
        }.items():
            assert main(["download", ID, "--source", origin.url + place]) == 2
            assert found in capsys.readouterr().err
        origin.always("copy/metadata.json", Fault(cut=100))
        assert main(["download", ID, "--source", f"{origin.url}copy"]) == 0
        assert "without a comparison" in caplog.text
        caplog.clear()
    assert main(["download", ID, "--source", closed_port_url()]) == 0
    assert "without a comparison" in caplog.text
    caplog.clear()
    assert main(["download", ID, "--source", closed_port_url(), "--offline"]) == 0
    assert "offline mode is on" in caplog.text


def test_a_server_s_validator_spares_reading_the_files(config: Config) -> None:
    with Origin() as origin:
        for name in NAMES:
            origin.put(name, (FILES / name).read_bytes())
        assert main(["download", ID, "--source", origin.url]) == 0
        for name in NAMES:  # what these send is damaged, and nothing of it is read
            origin.always(name, Fault(flip=10))
        assert main(["download", ID, "--source", origin.url]) == 0
        origin.put(NAMES[1], (FILES / NAMES[1]).read_bytes(), etag='"changed"')
        assert main(["download", ID, "--source", origin.url]) == 2


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
    call = {"source": path, "verify": False, "progress": silent}
    for _ in range(2):  # the second time it is compared
        datasets_cli.download("d4rl/hopper-medium-v0", **call)
    (resource,) = datasets_cli.dataset_info("d4rl/hopper-medium-v0").manifest.resources
    assert (resource["url"], resource["sha256"]) == (str(path), digest(cut.path))
    longer(path)
    with pytest.raises(UsageError):
        datasets_cli.download("d4rl/hopper-medium-v0", **call)


def digest(path: Path) -> str:
    digests = Digests({"sha256"})
    digests.read(path)
    return digests.hex()["sha256"]
