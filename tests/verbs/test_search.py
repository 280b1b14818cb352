"""Searching, filtering and ordering the catalogues, without a network."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import pytest

import datasets_cli
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import UsageError
from tests.support.refusals import refused

Capture = pytest.CaptureFixture[str]


def ids(text: str, config: Config) -> list[str]:
    return [each.id for each in datasets_cli.list_datasets(search=text, config=config)]


def test_all_words_must_be_there_and_ids_come_first(config: Config) -> None:
    found = ids("HOPPER expert", config)
    assert all("hopper" in id and "expert" in id for id in found[:5])
    known = {record.id for record in datasets_cli.list_datasets(["*hopper*expert*"], config=config)}
    assert known <= {*found}
    globbed = datasets_cli.list_datasets("minari/*", search="hopper expert", config=config)
    assert [each.id for each in globbed] == [id for id in found if id.startswith("minari/")]


def test_titles_environments_tags_and_notes_are_searched(config: Config) -> None:
    assert ids("corrupt issue", config)[0].startswith("atari_dqn/")
    assert "demo/pong" in ids("random player", config)
    assert any(id.startswith("minari/") for id in ids("Farama", config))
    assert ids("younis", config)
    assert ids("nosuchword", config) == []


def test_installed_datasets_are_searched_too(config: Config, door: str, capsys: Capture) -> None:
    assert main(["preprocess", door, "--max-trajectories", "1", "--name", "mine", "-q"]) == 0
    capsys.readouterr()
    assert ids("derived mine", config) == ["derived/mine"]
    assert main(["list", "--search", "derived mine"]) == 0
    assert "derived/mine" in capsys.readouterr().out
    assert main(["list", "--search", "nosuchword"]) == 0
    assert capsys.readouterr().err
    with pytest.raises(UsageError) as error:
        ids(" ", config)
    assert error.value.argument == "search"


def test_filters_are_those_of_each_record(config: Config, door: str) -> None:
    records = datasets_cli.list_datasets(config=config)

    def listed(*filters: str) -> list[str]:
        return [each.id for each in datasets_cli.list_datasets(filter=filters, config=config)]

    def expected(holds: Callable[[datasets_cli.results.DatasetRecord], bool]) -> list[str]:
        return [record.id for record in records if holds(record)]

    assert listed("download>=300MB") == expected(lambda r: (r.download_bytes or 0) >= 300e6)
    assert listed("download < 1 MiB") == expected(lambda r: (r.download_bytes or 1e9) < 1 << 20)
    assert listed("id~HOPPER", "family!=minari") == expected(
        lambda r: "hopper" in r.id.lower() and not r.id.startswith("minari/")
    )
    assert listed("state=unverified") == [door] == listed("transitions==1,495", "disk>0")
    assert listed("transitions<1k") == expected(lambda r: r.num_transitions in range(1000))


def test_lists_are_ordered_and_what_is_not_known_comes_last(config: Config) -> None:
    def sizes(sort: str) -> list[int | None]:
        found = datasets_cli.list_datasets(sort=sort, config=config)
        return [each.download_bytes for each in found]

    known = [size for size in sizes("id") if size is not None]
    assert sizes("-download")[: len(known)] == sorted(known, reverse=True)
    assert sizes("download")[: len(known)] == sorted(known)
    assert set(sizes("-download")[len(known) :]) == {None}
    names = [each.id for each in datasets_cli.list_datasets(sort="-id", n=3, config=config)]
    assert len(names) == 3 and names == sorted(names, reverse=True)


def test_the_command_tells_what_is_not_known_and_shows_columns(
    config: Config, capsys: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    words = ["--filter", "size>300MB", "--sort", "-size", "-n", "2", "--columns", "size,id"]
    assert main(["list", *words]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["SIZE", "ID"] and len(out) == 3
    assert "size is not known of" in caplog.text


def test_columns_without_room_are_named(
    config: Config, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr("datasets_cli.cli.terminal._is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["list", "--search", "hopper"]) == 0
    out, err = capsys.readouterr()
    assert "TRAJECTORIES" not in out and "TRAJECTORIES" in err


def test_wrong_filters_name_the_fields(config: Config) -> None:
    def listed(**arguments: object) -> Callable[[], object]:
        return lambda: datasets_cli.list_datasets(config=config, **arguments)  # type: ignore[arg-type]

    with refused(UsageError, argument="filter", found="instaled"):
        listed(filter="state=instaled")()
    all_known = datasets_cli.list_datasets(config=config)
    assert datasets_cli.list_datasets(config=config, filter="state=-") == all_known
    wrong = ["size", "size>", "size>big", "size~1", "size>1 XB", "nosuch>1", "id>3", ">1GB", ""]
    for text in wrong:
        with refused(UsageError, argument="filter", found=text):
            listed(filter=text)()
    for name, value in {"sort": "nosuch", "n": 0}.items():
        with refused(UsageError, argument=name, found=value):
            listed(**{name: value})()


def test_ids_come_from_stdin(
    config: Config, door: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def given(text: str, *words: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        return main([*words]), *capsys.readouterr()

    code, out, _ = given(f"{door}\n\n", "verify", "-", "--json")
    assert code == 0 and [each["id"] for each in json.loads(out)] == [door]
    assert given(f"{door}\n", "path", "-")[0] == 0
    assert given("", "verify", "-")[0] == 2
    code, _, error = given("a\nb\n", "info", "-")
    assert code == 2 and "takes one id, but stdin has 2: a, b." in error
    assert given(f"{door}\n", "delete", "-")[0] == 2, "it still asks"
    assert given("", "delete", "-", "--yes")[0] == 2 and (config.root / "datasets" / door).exists()


def test_files_and_schema_of_a_copy(config: Config, door: str, capsys: Capture) -> None:
    assert main(["info", door, "--files", "--schema"]) == 0
    out = capsys.readouterr().out
    manifest = datasets_cli.dataset_info(door, config=config).manifest
    assert manifest is not None
    for name, file in manifest.files.items():
        assert name in out and file["sha256"] in out
    shown = [line.split()[:2] for line in out.splitlines() if line.startswith("  ")]
    assert shown == [[".".join(column.key), column.dtype] for column in manifest.columns]
    assert manifest.resources[0]["sha256"] in out
    (datasets_cli.dataset_path(door, config=config).path / "manifest.json").write_text("{")
    assert main(["info", door, "--files"]) == 4
    assert "rlds repair" in capsys.readouterr().err
    assert main(["info", "hopper-medium-v2", "--files"]) == 3
    assert "rlds download d4rl/hopper-medium-v2" in capsys.readouterr().err
