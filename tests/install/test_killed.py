"""Processes killed at every stage, and several at once: nothing half-made is ever listed."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from datasets_cli.cli.main import main
from datasets_cli.config import Config, load_config
from datasets_cli.errors import LockedError, RldsError
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.manifest import read_manifest
from datasets_cli.verbs.delete import delete
from datasets_cli.verbs.verify import verify_installed as verify
from tests.support.d4rl_files import save, steps
from tests.support.interpreters import Piped
from tests.support.killed import run_killed
from tests.support.origin import Fault, Origin, Stall

ID = "d4rl/maze2d-open-v0"
FILENAME = "maze2d-open-sparse.hdf5"
REMOTE = f"datasets/offline_rl/maze2d/{FILENAME}"
BLOCK = 65_536  # a download reads blocks of so many bytes
CUT = 100_000

CHILD = """
import os, signal, sys
from datasets_cli.install import installation
from datasets_cli.config import load_config

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def pause(where):
    print(where, flush=True)
    sys.stdin.readline()

{before}
installation.install_dataset(sys.argv[1], load_config(), installation.InstallOptions(force={force}))
"""

DIE_AFTER_WRITES = """
from datasets_cli.store.layouts.ted_writer import TedWriter
write, calls = TedWriter.write, []
def write_and_die(*arguments):
    write(*arguments)
    calls.append(arguments)
    if len(calls) == {count}:
        die()
TedWriter.write = write_and_die
"""

DIE_BEFORE_RENAME_TO = """
rename = os.rename
def die_or_rename(source, target):
    if "{part}" in str(target):
        die()
    rename(source, target)
os.rename = die_or_rename
"""

DIE_IN_SWEEP = """
import shutil
def die_half_way(folder, **options):
    if "trash-" in str(folder):
        os.unlink(folder / "action.memmap")
        die()
shutil.rmtree = die_half_way
"""

REMOVE = """
from datasets_cli.verbs.delete import delete
delete(sys.argv[1], config=load_config())
"""

TELL_AT_LOCK = """
locked = installation.locked
def tell_and_lock(*arguments):
    print("at the lock", flush=True)
    return locked(*arguments)
installation.locked = tell_and_lock
"""

WITHOUT_LOCK = """
import errno, fcntl
def refuse(*_):
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
fcntl.flock = refuse
"""

PAUSE_BEFORE_STAGING = """
stage = installation.stage
def pause_and_stage(*arguments):
    pause("before the staging")
    return stage(*arguments)
installation.stage = pause_and_stage
"""

PAUSE_IN_STAGING = """
from datasets_cli.store.layouts.ted_writer import TedWriter
write = TedWriter.write
def write_and_pause(*arguments):
    write(*arguments)
    pause("in the staging")
    TedWriter.write = write
TedWriter.write = write_and_pause
"""

HOLD_LOCK = """
from datasets_cli.store.cache_root import CacheRoot
with installation.locked(CacheRoot(load_config().root).lock(sys.argv[1]), sys.argv[1], 1.0):
    pause("locked")
sys.exit()
"""

TWO_FILES = """
import numpy as np
from datasets_cli.recipe import Block, Recipe, Resource, CatalogueEntry

def resources(name, web):
    return [Resource((f"{origin}{{name}}",), name) for name in ("first", "second")]

def blocks(source):
    for path in source.files.values():
        values = np.fromfile(path, np.float32).reshape(-1, 1)
        yield Block({{("observation",): values, ("action",): values, ("next", "reward"): values}})

RECIPE = Recipe(
    "twofiles", 1, "", "", "", "", lambda web: [CatalogueEntry("pair")], resources, blocks
)
"""


class Machine:
    """One cache root, which child processes and this one work on."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.root = CacheRoot(config.root)
        self.part = self.root.downloads(ID) / f"{FILENAME}.part"
        self.children: list[Piped] = []

    def start(self, before: str = "", *, id: str = ID, force: bool = False) -> Piped:
        self.children.append(Piped("-c", CHILD.format(before=before, force=force), id))
        return self.children[-1]

    def run_killed(self, before: str, *, force: bool = False) -> None:
        assert self.start(before, force=force).finish() == -signal.SIGKILL

    def installed(self) -> list[str]:
        return list(self.root.installed())

    def files(self, id: str = ID) -> dict[str, dict[str, object]]:
        """Check every byte of an installed dataset and return what its manifest says of them."""
        return dict(verify(id, self.config).files)

    def leftovers(self) -> list[Path]:
        """Return what lies in the root but is neither a dataset nor a lock."""
        folders = (self.config.root / "tmp", self.config.root / "downloads")
        return [path for folder in folders if folder.exists() for path in folder.iterdir()]


@pytest.fixture
def origin(published: dict[str, bytes]) -> Iterator[Origin]:
    with Origin() as running:
        running.put(REMOTE, published["old"])
        yield running


@pytest.fixture
def machine(origin: Origin, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    servers = ("http://rail.eecs.berkeley.edu/", "https://huggingface.co/")
    monkeypatch.setenv("RLDS_MIRRORS", ",".join(f"{server}={origin.url}" for server in servers))
    machine = Machine(load_config())
    yield machine
    for child in machine.children:
        child.kill()


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Two versions of the publisher's file."""
    return {
        version: write_source(tmp_path_factory.mktemp(version), timeouts).read_bytes()
        for version, timeouts in {"old": [999, 2500], "new": [123, 4567]}.items()
    }


@pytest.fixture(scope="module")
def undisturbed(
    published: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, object]]:
    """What a run that nobody disturbs makes of each version."""
    made = {}
    for version, data in published.items():
        folder = tmp_path_factory.mktemp(version)
        (folder / FILENAME).write_bytes(data)
        dataset = install_dataset(
            ID, Config(root=folder / "root"), InstallOptions(source=str(folder))
        ).path
        made[version] = dict(read_manifest(dataset).files)
        assert "final/observation.memmap" in made[version]
    return made


def write_source(folder: Path, timeouts: list[int]) -> Path:
    path = folder / FILENAME
    save(path, steps(path, (4, 2), [], timeouts, num_steps=5000), compression=None)
    return path


def wait_for_size(path: Path, size: int, child: Piped) -> None:
    while not path.exists() or path.stat().st_size < size:
        assert child.returncode is None, "the child has ended"
        time.sleep(0.005)


def kill(child: Piped) -> None:
    child.kill()
    child.finish()


def go_on(child: Piped) -> int:
    """Let a child that has paused, or has never paused, run to its end."""
    return child.finish("\n")


# --- killed -------------------------------------------------------------------------------------


def test_killed_during_a_download(machine: Machine, origin: Origin, undisturbed: dict) -> None:
    origin.script(REMOTE, Fault(stall=Stall(), stall_after=CUT))
    child = machine.start()
    wait_for_size(machine.part, CUT, child)
    kill(child)
    assert machine.installed() == []
    install_dataset(ID, machine.config)
    assert origin.ranges(REMOTE) == [None, f"bytes={CUT}-"]
    assert machine.files() == undisturbed["old"]
    assert (machine.installed(), machine.leftovers()) == ([ID], [])


def test_killed_between_two_files(
    machine: Machine, origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.arange(30_000, dtype=np.float32)
    origin.put("first", rows[:15_000].tobytes())
    origin.put("second", rows[15_000:].tobytes())
    (tmp_path / "twofiles.py").write_text(TWO_FILES.format(origin=origin.url))
    monkeypatch.setenv("RLDS_RECIPES", str(tmp_path))
    stall = Stall()
    origin.script("second", Fault(stall=stall))
    child = machine.start(id="twofiles/pair")
    assert stall.reached.wait(60)
    kill(child)
    assert machine.installed() == []
    assert go_on(machine.start(id="twofiles/pair")) == 0
    assert origin.ranges("first") == [None]
    assert origin.ranges("second") == [None, None]
    assert (machine.installed(), machine.leftovers()) == (["twofiles/pair"], [])
    monkeypatch.setenv("RLDS_HOME", str(tmp_path / "other"))
    undisturbed = Machine(load_config())
    assert go_on(undisturbed.start(id="twofiles/pair")) == 0
    assert machine.files("twofiles/pair") == undisturbed.files("twofiles/pair")


@pytest.mark.parametrize(
    "before",
    [
        DIE_AFTER_WRITES.format(count=1),
        DIE_BEFORE_RENAME_TO.format(part="/datasets/d4rl/"),
    ],
    ids=["after the first write", "before the rename"],
)
def test_killed_while_rows_are_written(
    before: str, machine: Machine, origin: Origin, undisturbed: dict
) -> None:
    machine.run_killed(before)
    assert machine.installed() == []
    assert machine.leftovers() != []
    install_dataset(ID, machine.config)
    assert origin.ranges(REMOTE) == [None]
    assert machine.files() == undisturbed["old"]
    assert (machine.installed(), machine.leftovers()) == ([ID], [])


@pytest.fixture
def replaced(machine: Machine, origin: Origin, published: dict[str, bytes]) -> Machine:
    """A machine that has the old version of a file whose publisher has a new one."""
    install_dataset(ID, machine.config)
    origin.put(REMOTE, published["new"])
    return machine


def test_killed_replacement_leaves_the_old_copy(replaced: Machine, undisturbed: dict) -> None:
    replaced.run_killed(DIE_BEFORE_RENAME_TO.format(part="trash-"), force=True)
    assert replaced.installed() == [ID]
    assert replaced.files() == undisturbed["old"]
    install_dataset(ID, replaced.config, InstallOptions(force=True))
    assert replaced.files() == undisturbed["new"]
    assert replaced.leftovers() == []


def test_killed_between_the_renames_of_a_replacement(
    replaced: Machine, origin: Origin, undisturbed: dict
) -> None:
    replaced.run_killed(DIE_BEFORE_RENAME_TO.format(part="/datasets/d4rl/"), force=True)
    assert replaced.installed() == []
    num_requests = len(origin.requests)
    install_dataset(ID, replaced.config)
    assert replaced.files() == undisturbed["old"]
    assert len(origin.requests) == num_requests
    install_dataset(ID, replaced.config, InstallOptions(force=True))
    assert replaced.files() == undisturbed["new"]
    assert replaced.leftovers() == []


def test_half_swept_old_copy_is_never_brought_back(replaced: Machine, undisturbed: dict) -> None:
    replaced.run_killed(DIE_IN_SWEEP, force=True)
    assert replaced.files() == undisturbed["new"]
    shutil.rmtree(replaced.root.dataset(ID))
    install_dataset(ID, replaced.config)
    assert replaced.files() == undisturbed["new"]
    assert replaced.leftovers() == []


def test_deletion_sweeps_what_a_killed_replacement_left(replaced: Machine) -> None:
    replaced.run_killed(DIE_IN_SWEEP, force=True)
    assert replaced.leftovers() != []
    delete(ID, config=replaced.config)
    assert (replaced.installed(), replaced.leftovers()) == ([], [])


def test_half_deleted_dataset_is_never_brought_back(replaced: Machine, undisturbed: dict) -> None:
    replaced.run_killed(DIE_IN_SWEEP + REMOVE)
    assert replaced.installed() == []
    install_dataset(ID, replaced.config)
    assert replaced.files() == undisturbed["new"]
    assert replaced.leftovers() == []


def test_failed_replacement_puts_the_old_copy_back(
    replaced: Machine, undisturbed: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def refuse(source: Path, target: Path) -> None:
        if "trash-" not in str(source) + str(target):
            raise PermissionError(errno.EACCES, "refused", str(target))
        rename(source, target)

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(RldsError, match=r"^refused: ") as caught:
        install_dataset(ID, replaced.config, InstallOptions(force=True))
    assert isinstance(caught.value.__cause__, PermissionError)
    assert replaced.files() == undisturbed["old"]
    assert list((replaced.config.root / "tmp").iterdir()) == []


def test_parent_that_another_process_removes_is_made_again(
    machine: Machine, undisturbed: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, removed = os.rename, []

    def remove_first(source: Path, target: Path) -> None:
        if not removed and "/datasets/d4rl/" in str(target):
            removed.append(target.parent)
            target.parent.rmdir()
        rename(source, target)

    monkeypatch.setattr(os, "rename", remove_first)
    install_dataset(ID, machine.config)
    assert removed == [machine.root.dataset(ID).parent]
    assert machine.files() == undisturbed["old"]


# --- at the same time ---------------------------------------------------------------------------


def test_two_processes_get_the_same_id_and_one_downloads(
    machine: Machine, origin: Origin, undisturbed: dict
) -> None:
    stall = Stall()
    origin.script(REMOTE, Fault(stall=stall, stall_after=CUT))
    first = machine.start()
    assert stall.reached.wait(60)
    second = machine.start(TELL_AT_LOCK)
    assert second.stdout.readline() == "at the lock\n"
    stall.release.set()
    assert (go_on(first), go_on(second)) == (0, 0)
    assert origin.ranges(REMOTE) == [None]
    assert machine.files() == undisturbed["old"]
    assert machine.leftovers() == []


@pytest.mark.parametrize("etag", ['"1"', None], ids=["continued", "begun anew"])
def test_two_downloads_at_once_where_locks_do_not_work(
    etag: str | None,
    machine: Machine,
    origin: Origin,
    published: dict[str, bytes],
    undisturbed: dict,
) -> None:
    origin.put(REMOTE, published["old"], etag=etag)
    stalls = [Stall(), Stall()]
    origin.script(REMOTE, *[Fault(stall=stall, stall_after=BLOCK) for stall in stalls])
    first = machine.start(WITHOUT_LOCK)
    wait_for_size(machine.part, BLOCK, first)
    second = machine.start(WITHOUT_LOCK)
    assert stalls[1].reached.wait(60)
    stalls[0].release.set()
    assert go_on(first) == 0
    stalls[1].release.set()
    assert go_on(second) == 0
    assert origin.ranges(REMOTE)[:2] == [None, f"bytes={BLOCK}-" if etag else None]
    assert len(published["old"]) <= origin.sent <= 2 * len(published["old"])
    assert machine.files() == undisturbed["old"]
    assert (machine.installed(), machine.leftovers()) == ([ID], [])


def test_another_process_does_it_all_meanwhile_where_locks_do_not_work(
    machine: Machine, undisturbed: dict
) -> None:
    slow = machine.start(WITHOUT_LOCK + PAUSE_BEFORE_STAGING)
    assert "staging" in slow.stdout.readline()
    dataset = install_dataset(ID, machine.config).path
    inode = dataset.stat().st_ino
    assert go_on(slow) == 0
    assert machine.files() == undisturbed["old"]
    assert dataset.stat().st_ino == inode  # the first one committed stays
    assert (machine.installed(), machine.leftovers()) == ([ID], [])


def test_two_stagings_at_once_where_locks_do_not_work(machine: Machine, undisturbed: dict) -> None:
    children = []
    for _ in range(2):
        child = machine.start(WITHOUT_LOCK + PAUSE_IN_STAGING)
        assert "staging" in child.stdout.readline()
        children.append(child)
    assert [go_on(child) for child in children] == [0, 0]
    assert machine.files() == undisturbed["old"]
    assert (machine.installed(), machine.leftovers()) == ([ID], [])


def test_lock_held_by_another_process_is_an_error_after_the_timeout(machine: Machine) -> None:
    holder = machine.start(HOLD_LOCK)
    assert holder.stdout.readline() == "locked\n"
    with pytest.raises(LockedError) as caught:
        install_dataset(ID, replace(machine.config, lock_timeout=0.05))
    assert caught.value.expected == "the lock within 0.05 s"
    assert caught.value.exit_code == 8
    assert isinstance(caught.value, TimeoutError)
    assert go_on(holder) == 0
    install_dataset(ID, machine.config)
    assert machine.installed() == [ID]


def test_lock_of_a_killed_process_is_free(machine: Machine) -> None:
    holder = machine.start(HOLD_LOCK)
    assert holder.stdout.readline() == "locked\n"
    kill(holder)
    install_dataset(ID, replace(machine.config, lock_timeout=5.0))
    assert machine.installed() == [ID]


DOOR = "demo/door-human"
"""It has a final step, which is in files of its own."""


@pytest.mark.parametrize("stride", [17, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("call", "is_there"),
    [
        ("download {id} -q", False),
        ("download {id} --force -q", True),
        ("convert {id} --layout compact -q", True),
        ("delete {id} --yes", True),
        ("preprocess {id} --where 'number >= 0' --name copy -q", True),
    ],
)
def test_killed_at_any_change_of_the_disk_the_same_command_goes_on(
    call: str, is_there: bool, stride: int, config: Config, tmp_path: Path
) -> None:
    if is_there:
        install_dataset(DOOR, config)
    (config.root / "tmp").mkdir(parents=True, exist_ok=True)
    call = call.format(id=DOOR)
    for step in range(0, 1000, stride):
        root = tmp_path / "copy"
        shutil.copytree(config.root, root)
        if run_killed(call, step, root, tmp_path) == 0:
            break
        at_root = ["--root", str(root)]
        assert main(["verify", *at_root]) == 0  # what is listed is whole
        code = main([*shlex.split(call), *at_root])
        assert code == 0 or (call.startswith("delete") and code == 3), step  # it was deleted
        assert main(["download", DOOR, "-q", *at_root]) == 0 and main(["verify", *at_root]) == 0
        assert not list((root / "tmp").iterdir()), step
        for id in CacheRoot(root).installed():
            assert read_manifest(CacheRoot(root).dataset(id)).final_steps == 1
        shutil.rmtree(root)
    assert step > 0
