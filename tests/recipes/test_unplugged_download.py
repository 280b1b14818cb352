"""The way of an Atari dataset when its first publisher is closed: RL Unplugged, over loopback."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.store.dataset import open_dataset
from tests.support.origin import Fault, Origin
from tests.support.unplugged_files import episodes, expected, in_shards, shard_name, write_run
from tests.support.values import assert_same, everything

Capture = pytest.CaptureFixture[str]

FIRST_LIST = "storage/v1/b/atari-replay-datasets/o?prefix=dqn/Pong/5/replay_logs/"
LIST = "storage/v1/b/rl_unplugged/o?prefix=atari_episodes_ordered/Pong/run_5-"
FOLDER = "rl_unplugged/atari_episodes_ordered/Pong/"
UNPLUGGED = "atari_dqn/Pong/5~unplugged"
SOME = slice(1, 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The 50 files of a run, most of them without a record."""
    return write_run(tmp_path_factory.mktemp("run_5"), in_shards(episodes()[SOME]), run=5)


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Iterator[Origin]:
    """Stand for Google: the first bucket is closed."""
    with Origin() as origin:
        monkeypatch.setattr("datasets_cli.sources.buckets.HOST", origin.url)
        origin.always(FIRST_LIST, Fault(status=403))
        origin.always(
            "atari-replay-datasets/dqn/Pong/5/replay_logs/add_count_ckpt.0.gz", Fault(status=403)
        )
        yield origin


def publish(google: Origin, folder: Path) -> None:
    """Put a run into the second bucket, with its list."""
    items = []
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        google.put(FOLDER + path.name, data)
        md5 = base64.b64encode(hashlib.md5(data).digest()).decode()
        name = f"{FOLDER.partition('/')[2]}{path.name}"
        items.append({"name": name, "size": str(len(data)), "md5Hash": md5})
    google.put(LIST, json.dumps({"items": items}).encode())


def installed(config: Config, capsys: Capture) -> dict[str, Any]:
    """Compare what is installed with what happened, and return its manifest."""
    output = capsys.readouterr().out.strip()
    assert output == str(config.root / "datasets" / UNPLUGGED)
    assert_same(everything(open_dataset(Path(output))), expected(episodes()[SOME]))
    manifest: dict[str, Any] = json.loads((Path(output) / "manifest.json").read_text())
    return manifest


def test_the_second_form_is_downloaded_by_its_name(
    google: Origin, folder: Path, config: Config, capsys: Capture
) -> None:
    publish(google, folder)
    assert main(["download", "Pong/5~unplugged"]) == 0
    manifest = installed(config, capsys)
    assert (manifest["layout"], manifest["metadata"]["upstream"]) == ("compact", "rl_unplugged")
    assert {entry["checked"] for entry in manifest["resources"]} == {"md5"}
    assert not google.ranges(FIRST_LIST)


def test_a_closed_first_publisher_leads_to_the_second_in_one_line(
    google: Origin, folder: Path, config: Config, capsys: Capture
) -> None:
    publish(google, folder)
    assert main(["download", "Pong/5"]) == 0
    output = capsys.readouterr()
    lines = [line for line in output.err.splitlines() if "denies access" in line]
    assert len(lines) == 1
    assert UNPLUGGED in lines[0]
    assert main(["path", "Pong/5"]) == 0
    installed(config, capsys)


def test_a_dry_run_says_which_form_would_be_taken(
    google: Origin, folder: Path, capsys: Capture
) -> None:
    publish(google, folder)
    assert main(["download", "Pong/5", "--dry-run"]) == 0
    assert (
        f"the publisher denies access to atari_dqn/Pong/5; {UNPLUGGED}" in capsys.readouterr().err
    )
    assert main(["download", "Pong/5", "--dry-run", "--json"]) == 0
    (plan,) = json.loads(capsys.readouterr().out)
    assert (plan["id"], plan["instead_of"]) == (UNPLUGGED, "atari_dqn/Pong/5")


def test_two_closed_publishers_are_one_clear_paragraph(google: Origin, capsys: Capture) -> None:
    google.always(LIST, Fault(status=403))
    google.always(FOLDER + shard_name(0, run=5), Fault(status=403))
    assert main(["download", "Pong/5"]) == 6
    error = capsys.readouterr().err
    assert "HTTP 403" in error
    assert "--source" in error
    assert "Traceback" not in error


def test_the_first_publisher_alone_may_be_asked(
    google: Origin, folder: Path, capsys: Capture
) -> None:
    publish(google, folder)
    assert main(["download", "Pong/5", "--upstream", "dqn_replay"]) == 6
    assert not google.ranges(LIST)


def test_a_game_that_only_the_closed_publisher_had_says_so(google: Origin, capsys: Capture) -> None:
    google.always(FIRST_LIST.replace("Pong/5", "Venture/1"), Fault(status=403))
    assert main(["download", "Venture/1"]) == 6
    assert "403" in capsys.readouterr().err


def test_a_file_that_is_not_as_listed_is_refused(
    google: Origin, folder: Path, capsys: Capture
) -> None:
    publish(google, folder)
    google.always(FOLDER + shard_name(2, run=5), Fault(flip=30))
    assert main(["download", "Pong/5~unplugged"]) == 4
    assert f"{shard_name(2, run=5)} is not the published file: expected md5" in (
        capsys.readouterr().err
    )


def test_a_folder_of_the_files_needs_no_network(
    folder: Path, config: Config, capsys: Capture
) -> None:
    arguments = ["download", "Pong/5~unplugged", "--source", str(folder), "--offline"]
    assert main(arguments) == 0
    installed(config, capsys)


def test_a_plain_mirror_of_the_files_is_enough(
    google: Origin, folder: Path, config: Config, capsys: Capture
) -> None:
    publish(google, folder)
    google.always(LIST, Fault(status=404))
    assert main(["download", "Pong/5~unplugged"]) == 0
    assert {entry["checked"] for entry in installed(config, capsys)["resources"]} == {"nothing"}
