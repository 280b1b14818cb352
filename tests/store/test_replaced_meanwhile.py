"""A dataset that is deleted, converted or replaced while it is open, or while it is opened."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict, assert_allclose_td

import datasets_cli
from datasets_cli import ExperienceReplay, open_storage
from datasets_cli.cli.main import main
from datasets_cli.cli.state import State
from datasets_cli.config import Config
from datasets_cli.core.progress import Progress, silent
from datasets_cli.errors import DamagedDataset, DatasetNotInstalled, LockedError, PartialFailure
from datasets_cli.install import layout
from datasets_cli.preprocessing import derivation
from datasets_cli.store import dataset as opening
from datasets_cli.store import deep_check as deep_checks
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.dataset import Dataset, open_dataset
from datasets_cli.store.deep_report import DeepReport
from datasets_cli.store.manifest import LAYOUTS
from datasets_cli.store.tables import save_table
from datasets_cli.verbs import delete as deleting
from datasets_cli.verbs import prune as pruning
from datasets_cli.verbs import repair as repairing
from datasets_cli.verbs.verify import verify_deep
from tests.support.processes import Child
from tests.support.refusals import refused

pytestmark = pytest.mark.filterwarnings("ignore:.*:datasets_cli.errors.UnverifiedDataset")
HUMAN, PONG = "demo/door-human", "demo/pong"


@pytest.fixture
def install(config: Config) -> Callable[..., Path]:
    def download(id: str, layout: str = "ted") -> Path:
        done = datasets_cli.download(id, layout=layout, progress=silent, config=config)
        return Path(done.datasets[0].path)

    return download


def delete(id: str, config: Config) -> None:
    datasets_cli.delete(id, config=config)


def convert(id: str, config: Config) -> None:
    layout = datasets_cli.dataset_info(id, config=config).manifest.layout
    datasets_cli.convert(id, LAYOUTS[layout == LAYOUTS[0]], progress=silent, config=config)


@pytest.mark.parametrize(("layout", "change"), [("ted", convert), ("compact", delete)])
def test_an_open_slice_buffer_that_was_not_sampled_yet_draws_the_same_batches(
    layout: str, change: Callable[[str, Config], None], install: Callable, config: Config
) -> None:
    install(PONG, layout)
    buffers = [
        ExperienceReplay(PONG, download=False, slice_len=4, batch_size=64, generator=seeded())
        for _ in range(2)
    ]
    expected = [buffers[0].sample() for _ in range(3)]
    change(PONG, config)
    for batch in expected:
        assert_allclose_td(buffers[1].sample(), batch, rtol=0, atol=0)


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(3)


@pytest.mark.parametrize("stage", ["check_sizes", "Dataset"])
def test_a_copy_that_takes_the_place_while_the_first_is_opened_is_opened_whole(
    stage: str, install: Callable, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, changes = install(HUMAN), iter([convert])
    original = getattr(opening, stage)

    def change_first(*arguments: object, **options: object) -> object:
        for change in changes:
            change(HUMAN, config)
        return original(*arguments, **options)

    monkeypatch.setattr(opening, stage, change_first)
    found = open_dataset(folder)
    assert found.manifest.layout == "compact"
    assert found.run(0, 3)["action"].shape == (3, 28)


@pytest.mark.parametrize("stage", ["read_manifest", "check_sizes", "Dataset"])
def test_a_dataset_that_is_deleted_while_it_is_opened_is_not_installed(
    stage: str, install: Callable, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, original = install(HUMAN), getattr(opening, stage)

    def delete_first(*arguments: object, **options: object) -> object:
        if folder.exists():
            delete(HUMAN, config)
        return original(*arguments, **options)

    monkeypatch.setattr(opening, stage, delete_first)
    for open_it in (
        lambda: ExperienceReplay(HUMAN, download=False),
        lambda: datasets_cli.open_dataset(HUMAN),
        lambda: open_storage(folder),
        lambda: open_dataset(folder),
    ):
        install(HUMAN)
        with refused(DatasetNotInstalled, expected="manifest.json", exit_code=3):
            open_it()


def test_a_file_that_is_deleted_alone_while_it_is_opened_is_damage(
    install: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = install(HUMAN)

    def delete_first(*arguments: object, **options: object) -> object:
        (folder / "next" / "reward.memmap").unlink(missing_ok=True)
        return Dataset(*arguments, **options)

    monkeypatch.setattr(opening, "Dataset", delete_first)
    with pytest.raises(DamagedDataset) as caught:
        open_dataset(folder)
    assert Path(caught.value.path).name == "door-human"


def check_while_it_changes(pipe: object, root: str, expected: dict[str, torch.Tensor]) -> int:
    """Open and read rows until the dataset is gone for good; return how many reads were right."""
    done, pipe_ = 0, pipe
    while not pipe_.poll():  # type: ignore[attr-defined]
        try:
            replay = ExperienceReplay(HUMAN, download=False, root=root, batch_size=16)
        except DatasetNotInstalled:  # also where it is deleted while it is opened
            continue
        for _ in range(5):
            index = torch.randint(len(replay), (16,))
            batch = replay[index]
            assert isinstance(batch, TensorDict)
            for name, values in expected.items():
                assert torch.equal(batch[name], values[index]), name
            done += 1
    return done


class InThread:
    """What ``Child`` is for a process."""

    def __init__(self, function: Callable, *arguments: object) -> None:
        self._stop = threading.Event()
        self._found: list[object] = []
        self._thread = threading.Thread(target=self._run, args=(function, arguments))
        self._thread.start()
        self.pipe = self

    def poll(self) -> bool:
        return self._stop.is_set()

    def send(self, _: object) -> None:
        self._stop.set()

    def _run(self, function: Callable, arguments: tuple) -> None:
        try:
            self._found.append(function(self, *arguments))
        except Exception as error:
            self._found.append(error)

    def result(self) -> object:
        self._thread.join(60)
        return self._found[0]


@pytest.mark.parametrize(
    "start", [InThread, lambda *job: Child("fork", *job)], ids=["threads", "processes"]
)
def test_readers_have_right_values_while_it_is_converted_deleted_and_installed(
    start: Callable, install: Callable, config: Config
) -> None:
    install(HUMAN)
    replay = ExperienceReplay(HUMAN, download=False)
    expected = {name: replay[:][name] for name in ("observation", "action", "episode")}
    readers = [start(check_while_it_changes, str(config.root), expected) for _ in range(2)]
    for _ in range(3):
        convert(HUMAN, config)
        convert(HUMAN, config)
        delete(HUMAN, config)
        install(HUMAN)
    for reader in readers:
        reader.pipe.send(None)
    counts = [reader.result() for reader in readers]
    assert all(isinstance(count, int) and count > 0 for count in counts), counts
    assert list((CacheRoot(config.root).path / "tmp").iterdir()) == []


def codes_while_it_changes(pipe: object, root: str) -> set[tuple[str, int]]:
    """Run commands until the dataset is gone for good; return their exit codes."""
    found = set()
    while not pipe.poll():  # type: ignore[attr-defined]
        for command in ("verify", "verify --deep", "info", "path"):
            found.add((command, main([*command.split(), HUMAN, "--root", root])))
    return found


def test_commands_exit_with_0_or_3_while_it_is_converted_deleted_and_installed(
    install: Callable, config: Config
) -> None:
    install(HUMAN)
    reader = Child("fork", codes_while_it_changes, str(config.root))
    for _ in range(3):
        convert(HUMAN, config)
        delete(HUMAN, config)
        install(HUMAN)
    reader.pipe.send(None)
    codes = reader.result()
    assert isinstance(codes, set) and {code for _, code in codes} <= {0, 3}, codes
    assert 0 in {code for _, code in codes}


@pytest.mark.parametrize("change", [convert, delete])
def test_a_deep_check_of_a_copy_that_was_replaced_begins_again(
    change: Callable[[str, Config], None],
    install: Callable,
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(HUMAN)
    check, calls = deep_checks.deep_check, []

    def replaced(dataset: Dataset, progress: Progress) -> DeepReport:
        if not calls:
            change(HUMAN, config)
            calls.append(HUMAN)
            raise FileNotFoundError(dataset.folder / "rows.memmap")
        return check(dataset, progress)

    monkeypatch.setattr(deep_checks, "deep_check", replaced)
    if change is delete:
        with pytest.raises(DatasetNotInstalled):
            verify_deep(HUMAN, config)
    else:
        assert verify_deep(HUMAN, config)[1].num_transitions == 299


def before(monkeypatch: pytest.MonkeyPatch, place: object, name: str, change: Callable) -> None:
    """Have another process change a dataset, once, just before a function is called."""
    original, changes = getattr(place, name), iter([change])

    def changed_first(*arguments: Any, **options: Any) -> Any:
        for each in changes:
            each()
        return original(*arguments, **options)

    monkeypatch.setattr(place, name, changed_first)


def test_delete_leaves_a_copy_that_took_the_place_of_the_one_it_was_asked_about(
    install: Callable, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = install(HUMAN)
    before(monkeypatch, deleting, "remove", lambda: convert(HUMAN, config))
    with pytest.raises(LockedError):
        datasets_cli.delete(HUMAN, config=config)
    assert open_dataset(folder).manifest.layout == "compact"
    before(monkeypatch, State, "confirm", lambda: convert(HUMAN, config))
    assert main(["delete", HUMAN, "--yes"]) == LockedError.exit_code
    assert open_dataset(folder).manifest.layout == "ted"
    before(monkeypatch, deleting, "remove", lambda: delete(HUMAN, config))
    with pytest.raises(LockedError):
        datasets_cli.delete(HUMAN, config=config)


def test_a_buffer_deletes_no_other_data_than_its_own(install: Callable, config: Config) -> None:
    install(HUMAN)
    datasets_cli.preprocess(HUMAN, lambda rows: rows, "x", config=config)
    buffer = ExperienceReplay("derived/x", root=config.root, download=False)
    derivation.derive(HUMAN, noisy, "x", config, replaces=True)
    with pytest.raises(LockedError):
        buffer.delete()
    assert datasets_cli.verify("derived/x", config=config)[0].ok


def noisy(rows: TensorDict) -> TensorDict:
    return rows.set("action", rows["action"] + 1)


def test_convert_says_what_it_made_though_that_is_deleted_at_once(
    install: Callable, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(HUMAN)
    change = layout.change_layout

    def deleted_then(*arguments: Any) -> Any:
        made = change(*arguments)
        shutil.rmtree(CacheRoot(config.root).dataset(HUMAN))
        return made

    monkeypatch.setattr(layout, "change_layout", deleted_then)
    assert datasets_cli.convert(HUMAN, "compact", config=config).layout == "compact"


def test_the_tables_of_what_was_replaced_go_whatever_was_there_when_the_call_began(
    install: Callable, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(HUMAN)
    root = CacheRoot(config.root)

    def another() -> None:
        datasets_cli.preprocess(HUMAN, noisy, "x", config=config)
        content = datasets_cli.dataset_info("derived/x", config=config).manifest.content
        save_table(root, content, "numbers", {"n": 1})

    before(monkeypatch, derivation, "write_derived", another)
    derivation.derive(HUMAN, lambda rows: rows, "x", config, replaces=True)
    source = datasets_cli.dataset_info(HUMAN, config=config).manifest.content
    assert {each.name for each in (root.path / "tables").iterdir()} == {source}


def test_repair_does_not_bring_back_what_was_deleted_meanwhile(
    install: Callable, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    (install(HUMAN) / "action.memmap").unlink()
    before(monkeypatch, repairing, "_reinstall", lambda: delete(HUMAN, config))
    with pytest.raises(PartialFailure) as failed:
        datasets_cli.repair(HUMAN, config=config)
    assert isinstance(failed.value.results[0].error, DatasetNotInstalled)
    assert not CacheRoot(config.root).dataset(HUMAN).exists()


def test_prune_keeps_the_raw_files_of_a_dataset_that_was_installed_meanwhile(
    install: Callable, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = CacheRoot(config.root).downloads(HUMAN) / "a.part"
    raw.parent.mkdir(parents=True)
    raw.write_bytes(b"raw")
    Path(f"{raw}.json").touch()

    def install_and_keep() -> None:
        install(HUMAN)
        raw.parent.mkdir(parents=True, exist_ok=True)
        raw.write_bytes(b"kept")
        Path(f"{raw}.json").touch()

    before(monkeypatch, pruning, "_lock", install_and_keep)
    [left] = datasets_cli.prune(older_than_days=0, config=config)
    assert left.reason and raw.exists()


@pytest.mark.parametrize("command", ["du", "prune --dry-run", f"delete {HUMAN} --yes"])
def test_a_folder_that_another_process_deletes_while_it_is_walked_is_left_out(
    command: str, install: Callable, monkeypatch: pytest.MonkeyPatch, config: Config
) -> None:
    install(HUMAN)
    (CacheRoot(config.root).downloads("demo/x") / "next").mkdir(parents=True)
    scandir = os.scandir

    def deleted_first(path: Any = ".") -> Any:
        if str(path).endswith("/next"):
            shutil.rmtree(path, ignore_errors=True)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", deleted_first)
    assert main(command.split()) in (0, LockedError.exit_code)
