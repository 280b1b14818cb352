"""Where the files of a DQN Replay run are found, and what names and options mean."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from datasets_cli import dataset_info
from datasets_cli.catalogue.entries import catalogue, load_recipe
from datasets_cli.catalogue.names import resolve
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import (
    AccessError,
    DatasetNotInstalled,
    UnknownDataset,
    UsageError,
)
from datasets_cli.install.fetch import Folder
from datasets_cli.install.find import installed_id
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.parallel.engine import Workers
from datasets_cli.recipes.atari_dqn.log_files import placed
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.dataset import open_dataset
from datasets_cli.store.manifest import Manifest
from tests.recipes.test_atari import assert_same, invented
from tests.support.atari_files import Logger, expected, record
from tests.support.moved import moved
from tests.support.origin import Fault, Origin
from tests.support.refusals import refused

ID = "atari_dqn/Pong/5"
RUN = "dqn/Pong/5/replay_logs/"
LIST = f"storage/v1/b/atari-replay-datasets/o?prefix={RUN}"
EPISODES = invented([30, 25, 40, 20])
CAPACITY = 40

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Logger:
    """The logs of a run: checkpoints 0 to 3, each of 40 rows."""
    return record(tmp_path_factory.mktemp("atari") / "run", EPISODES, CAPACITY)


def path_of(file: Path) -> str:
    return f"atari-replay-datasets/{RUN}{quote(file.name)}"


def publish(origin: Origin, run: Logger, *, pages: int) -> None:
    """Put the files into the bucket, and their list in so many pages; none where 0."""
    items = []
    for file in sorted(run.folder.iterdir()):
        data = file.read_bytes()
        origin.put(path_of(file), data)
        md5 = base64.b64encode(hashlib.md5(data).digest()).decode()
        items.append({"name": RUN + file.name, "size": str(len(data)), "md5Hash": md5})
    for page in range(pages):
        document: dict[str, Any] = {"items": items[page::pages]}
        if page + 1 < pages:
            document["nextPageToken"] = f"t{page + 1}"
        path = LIST + (f"&pageToken=t{page}" if page else "")
        origin.put(path, json.dumps(document).encode())


def part_of(run: Logger) -> str:
    """Return the id of all checkpoints of a run that is shorter than published ones."""
    return f"{ID}~ckpt0-{run.num_logs}"


def manifest_of(folder: Path) -> Manifest:
    return open_dataset(folder).manifest


# Finding the files.


def test_the_list_of_the_bucket_gives_sizes_and_checksums(
    google: Origin, run: Logger, config: Config
) -> None:
    publish(google, run, pages=3)
    dataset = open_dataset(install_dataset(part_of(run), config).path)
    assert_same(dataset, expected(EPISODES, run.logged))
    assert {entry["checked"] for entry in dataset.manifest.resources} == {"md5"}
    assert len(dataset.manifest.resources) == 5 * run.num_logs


def test_a_mirror_without_a_list_is_asked_for_each_checkpoint(
    google: Origin, run: Logger, config: Config
) -> None:
    publish(google, run, pages=0)
    dataset = open_dataset(install_dataset(part_of(run), config).path)
    assert_same(dataset, expected(EPISODES, run.logged))
    counts = [path_of(run.folder / f"add_count_ckpt.{n}.gz") for n in range(run.num_logs + 1)]
    found, fetched = 1, 1
    assert [len(google.log(path)) for path in counts] == [found + fetched] * run.num_logs + [0]


def test_a_mirror_that_refuses_the_list_and_what_it_has_not_ends_there(
    google: Origin, run: Logger, config: Config
) -> None:
    publish(google, run, pages=0)
    google.always(LIST, Fault(status=403))
    google.always(path_of(run.folder / f"add_count_ckpt.{run.num_logs}.gz"), Fault(status=403))
    assert_same(
        open_dataset(install_dataset(part_of(run), config).path), expected(EPISODES, run.logged)
    )


@pytest.mark.parametrize("kind", ["folder", "url"])
def test_a_source_of_the_user_s_own_is_enough(
    google: Origin, run: Logger, config: Config, kind: str
) -> None:
    publish(google, run, pages=0)
    url = f"{google.url}atari-replay-datasets/{RUN}"
    source = str(run.folder) if kind == "folder" else url
    dataset = open_dataset(
        install_dataset(part_of(run), config, InstallOptions(source=source)).path
    )
    assert_same(dataset, expected(EPISODES, run.logged))
    assert not google.log(LIST)
    assert (kind == "url") == bool(google.requests)


def test_part_of_a_folder_is_a_dataset_of_its_own(run: Logger, config: Config) -> None:
    wish = InstallOptions(source=str(run.folder), options={"checkpoints": "1:3"})
    folder = install_dataset("Pong/5", config, wish).path
    assert folder == config.root / "datasets" / f"{ID}~ckpt1-3"
    logged = {n: row for n, row in run.logged_from(1).items() if n < 3 * CAPACITY - 1}
    assert_same(open_dataset(folder), expected(EPISODES, logged))
    assert install_dataset("Pong/5~ckpt1-3", config).path == folder
    with refused(DatasetNotInstalled, id="atari_dqn/Pong/5"):
        installed_id("Pong/5", config)


def test_only_the_files_of_a_part_are_fetched(google: Origin, run: Logger, config: Config) -> None:
    publish(google, run, pages=1)
    install_dataset("Pong/5", config, InstallOptions(options={"checkpoints": "0:1"}))
    fetched = {request.path for request in google.requests} - {f"/{LIST}"}
    assert fetched == {f"/{path_of(file)}" for file in run.folder.glob("*_ckpt.0.gz")} - {
        f"/{path_of(run.folder / 'invalid_range_ckpt.0.gz')}"
    }


# Names.


def test_a_run_reported_as_corrupt_has_a_known_trap(config: Config) -> None:
    traps = [dataset_info(f"Asterix/{run}", config=config).known_traps for run in (1, 2)]
    assert traps == [["reported as corrupt (google-research/batch_rl issue 28)"], []]


def test_the_catalogue_has_60_games_of_5_runs(config: Config) -> None:
    rows = catalogue(load_recipe("atari_dqn"), CacheRoot(config.root))
    assert len(rows) == 300
    assert len({name.partition("/")[0] for name in rows}) == 60
    assert sum(row.details["rl_unplugged"] for row in rows.values()) == 46 * 5
    names = list(rows)
    assert (names[0], names[-1]) == ("AirRaid/1", "Zaxxon/5")


@pytest.mark.parametrize(
    ("text", "options", "id"),
    [
        ("Pong/5", {}, ID),
        ("Pong/5", {"upstream": "auto"}, ID),
        ("Pong/5", {"upstream": "dqn_replay"}, ID),
        ("Pong/5", {"upstream": "rl_unplugged"}, f"{ID}~unplugged"),
        ("Pong/5~unplugged", {"upstream": "rl_unplugged"}, f"{ID}~unplugged"),
        (ID, {"checkpoints": "0:5"}, f"{ID}~ckpt0-5"),
        ("Pong/5~ckpt0-5", {"checkpoints": "0:5", "upstream": "dqn_replay"}, f"{ID}~ckpt0-5"),
    ],
)
def test_options_make_variants(config: Config, text: str, options: dict[str, str], id: str) -> None:
    assert resolve(text, CacheRoot(config.root), options=options).id == id


@pytest.mark.parametrize(
    ("text", "options", "argument"),
    [
        ("Pong/5", {"checkpoints": "5"}, "checkpoints"),
        ("Pong/5", {"checkpoints": "5:5"}, "checkpoints"),
        ("Pong/5", {"upstream": "other"}, "upstream"),
        ("Pong/5", {"checkpoints": "0:5", "upstream": "rl_unplugged"}, "checkpoints"),
        ("Pong/5~unplugged", {"upstream": "dqn_replay"}, "upstream"),
        ("Pong/5~ckpt0-4", {"checkpoints": "0:5"}, "checkpoints"),
        ("Pong/5~ckpt4-4", {}, "id"),
        ("Pong/5~other", {}, "id"),
    ],
)
def test_options_without_sense_are_refused(
    config: Config, text: str, options: dict[str, str], argument: str
) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(text, CacheRoot(config.root), options=options)
    assert caught.value.argument == argument


def test_an_option_of_another_family_is_refused(config: Config) -> None:
    with pytest.raises(UsageError) as caught:
        resolve("d4rl/hopper-medium-v2", CacheRoot(config.root), options={"checkpoints": "0:5"})
    assert "The family d4rl has no option checkpoints" in str(caught.value)


@pytest.mark.parametrize("text", ["Pong/6", "Pong/6~unplugged", "hopper-medium-v2~unplugged"])
def test_variants_of_nothing_are_unknown(config: Config, text: str) -> None:
    with pytest.raises(UnknownDataset):
        resolve(text, CacheRoot(config.root))


def test_the_other_form_answers_where_it_alone_is_installed(
    run: Logger, config: Config, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = install_dataset(part_of(run), config, InstallOptions(source=str(run.folder))).path
    other = moved(folder, "5~unplugged")
    assert install_dataset("Pong/5", config).path == other
    assert installed_id("Pong/5", config) == f"{ID}~unplugged"
    assert f"{ID} is not installed; its fallback {ID}~unplugged is used." in caplog.messages
    with pytest.raises(DatasetNotInstalled):
        installed_id("Pong/5", config, {"upstream": "dqn_replay"})
    with pytest.raises(DatasetNotInstalled):
        installed_id("Pong/5~ckpt0-1", config)
    assert main(["delete", "Pong/5", "--yes"]) == DatasetNotInstalled.exit_code
    assert other.exists()
    assert main(["delete", "Pong/5~unplugged", "--yes"]) == 0


# What is refused.


def test_a_closed_bucket_without_another_form_is_one_paragraph(
    google: Origin, capsys: Capture
) -> None:
    for path in (LIST, f"atari-replay-datasets/{RUN}add_count_ckpt.0.gz"):
        google.always(path, Fault(status=403))
    assert main(["download", "Pong/5", "--upstream", "dqn_replay"]) == AccessError.exit_code
    error = capsys.readouterr().err
    assert error.startswith("rlds: ")
    assert "HTTP 403" in error
    assert "--source" in error
    assert len(error.splitlines()) == 1


def test_a_bucket_without_the_run_says_so(google: Origin, config: Config) -> None:
    google.put(LIST, b"{}")
    with pytest.raises(AccessError) as caught:
        install_dataset("Pong/5", config, InstallOptions(options={"upstream": "dqn_replay"}))
    assert str(caught.value.path).endswith("replay_logs/")


def test_files_in_folders_below_the_source_are_no_part_of_it(run: Logger, tmp_path: Path) -> None:
    (tmp_path / "below").symlink_to(run.folder)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "other").touch()
    assert Folder(tmp_path, ID).names() == []
    assert "add_count_ckpt.0.gz" in Folder(run.folder, ID).names()


def test_a_folder_without_a_run_says_what_to_give(tmp_path: Path, config: Config) -> None:
    with pytest.raises(UsageError) as caught:
        install_dataset(ID, config, InstallOptions(source=str(tmp_path)))
    assert caught.value.expected == "add_count_ckpt.0.gz"


@pytest.mark.parametrize(
    ("chosen", "lacking", "kind"),
    [
        ("0:6", "4, 5", "folder"),
        ("7:9", "7, 8", "url"),
        ("0:51", "4, 5, 6, 7, 8 …", "bucket"),
        ("50:51", "50", "folder"),
        ("0:999999999", "4, 5, 6, 7, 8 …", "url"),
        ("60:70", "60", "bucket"),
    ],
)
def test_checkpoints_that_are_not_there_are_refused_by_their_numbers(
    google: Origin, run: Logger, config: Config, chosen: str, lacking: str, kind: str
) -> None:
    publish(google, run, pages=1)
    url = f"{google.url}atari-replay-datasets/{RUN}"
    source = {"folder": str(run.folder), "url": url}.get(kind)
    with pytest.raises(UsageError) as caught:
        install_dataset(ID, config, InstallOptions(source=source, options={"checkpoints": chosen}))
    assert re.search(rf"lacks {lacking}[. ]|has no add_count_ckpt\.{lacking[0]}", str(caught.value))


def test_the_last_checkpoint_of_a_longer_run_may_be_missing(run: Logger, tmp_path: Path) -> None:
    for file in run.folder.glob("*_ckpt.1.gz"):
        (tmp_path / file.name.replace("_ckpt.1.", "_ckpt.49.")).write_bytes(file.read_bytes())
    place = Folder(tmp_path, ID)
    names = [resource.filename for resource in placed(place, range(49, 51))]
    assert names == [name for name in names if ".49." in name] != []
    with pytest.raises(UsageError) as caught:
        placed(place, range(49, 52))
    assert caught.value.argument == "checkpoints"


def test_workers_do_not_change_a_byte(run: Logger, config: Config) -> None:
    files = []
    for workers in (Workers(num_workers=0), Workers(num_workers=2)):
        wish = InstallOptions("compact", force=True, source=str(run.folder), workers=workers)
        folder = install_dataset(part_of(run), config, wish).path
        files.append(open_dataset(folder).manifest.files)
    assert files[0] == files[1]
