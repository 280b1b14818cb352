"""Files that are not what they should be: rejected by name, and nothing is left behind."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from datasets_cli.config import Config
from datasets_cli.errors import DiskFull, IntegrityError, NetworkError, RldsError, SourceError
from datasets_cli.install import installation
from datasets_cli.install.fetch import read_blocks, source_errors
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.recipe import Block
from datasets_cli.recipes.d4rl import catalogue as d4rl
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.manifest import read_manifest
from datasets_cli.verbs.verify import verify_installed as verify
from tests.cli.test_wrong_calls import small_disk
from tests.support.d4rl_files import save, steps
from tests.support.origin import Origin
from tests.support.paths import PROJECT

ID = "d4rl/maze2d-open-v0"
FILENAME = "maze2d-open-sparse.hdf5"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the publisher's file is to lie."""
    folder = tmp_path / "source"
    folder.mkdir()
    return folder / FILENAME


@pytest.fixture(params=["folder", "server"])
def offer(request: pytest.FixtureRequest, path: Path) -> Iterator[Callable[[], InstallOptions]]:
    """Return a function that offers the file as ``--source`` does."""
    if request.param == "folder":
        yield lambda: InstallOptions(source=str(path.parent))
        return
    with Origin() as origin:

        def serve() -> InstallOptions:
            origin.put(FILENAME, path.read_bytes())
            return InstallOptions(source=origin.url)

        yield serve


# How columns are read does not depend on where their file came from.
in_a_folder = pytest.mark.parametrize("offer", ["folder"], indirect=True)


@pytest.fixture
def refusal(config: Config, offer: Callable[[], InstallOptions]) -> Callable[..., str]:
    """Return a function that offers the file, checks how it is refused, and returns the message."""

    def refused(kind: type[RldsError] = SourceError) -> str:
        wish = offer()
        assert wish.source
        offline = replace(config, offline="://" not in wish.source)
        with pytest.raises(kind) as caught:
            install_dataset(ID, offline, wish)
        assert type(caught.value) is kind
        assert caught.value.exit_code == 4
        message = str(caught.value)
        assert FILENAME in message or ID in message
        assert "\n" not in message
        assert_nothing_made(config)
        return message

    return refused


def assert_nothing_made(config: Config) -> None:
    assert list(CacheRoot(config.root).installed()) == []
    for folder in ("datasets", "tmp"):
        assert list((config.root / folder).rglob("*")) == []


def columns(path: Path, **changes: Any) -> dict[str, Any]:
    """Return the columns of a good file, some of them replaced, or taken away by None."""
    changed = steps(path, (4, 2), num_steps=300) | changes
    return {name: values for name, values in changed.items() if values is not None}


# --- not the file -------------------------------------------------------------------------------


def test_good_file_is_not_refused(
    config: Config, path: Path, offer: Callable[[], InstallOptions]
) -> None:
    save(path, columns(path))
    install_dataset(ID, config, offer())
    assert verify(ID, config).num_transitions > 200


@pytest.mark.parametrize("kept", [8, 0.999])
def test_truncated_file_is_refused(kept: float, path: Path, refusal: Callable[..., str]) -> None:
    save(path, columns(path))
    size = int(kept if kept > 1 else kept * path.stat().st_size)
    path.write_bytes(path.read_bytes()[:size])
    assert "is not a complete HDF5 file" in refusal()


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch, path: Path) -> bytes:
    """The bytes of a good file whose size and checksum are in the catalogue."""
    save(path, columns(path), compression=None)
    data = path.read_bytes()
    stated = {"bytes": str(len(data)), "sha256": hashlib.sha256(data).hexdigest()}
    row = d4rl._table()[ID.removeprefix("d4rl/")] | stated
    monkeypatch.setattr(d4rl, "_table", lambda: {row["name"]: row})
    return data


def flip(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def test_file_of_another_size_is_refused_with_both_sizes(
    path: Path, known: bytes, refusal: Callable[..., str]
) -> None:
    path.write_bytes(known + b"more")
    message = refusal(IntegrityError)
    assert f"expected {len(known)} bytes" in message
    assert str(len(known) + 4) in message


def test_no_verify_takes_the_file_and_the_manifest_says_so(
    config: Config, path: Path, known: bytes, offer: Callable[[], InstallOptions]
) -> None:
    path.write_bytes(flip(known, len(known) - 100))
    dataset = install_dataset(ID, config, replace(offer(), accept_any=True)).path
    (resource,) = read_manifest(dataset).resources
    assert resource["checked"].startswith("not verified:")
    assert hashlib.sha256(known).hexdigest() in resource["checked"]


# --- another layout -----------------------------------------------------------------------------


@in_a_folder
@pytest.mark.parametrize("name", ["observations", "terminals"])
def test_missing_key_is_named_with_the_keys_that_are_there(
    name: str, path: Path, refusal: Callable[..., str]
) -> None:
    save(path, columns(path, **{name: None}))
    message = refusal()
    assert f"has no {name}" in message
    assert "timeouts" in message
    assert all(other in message for other in columns(path))


@in_a_folder
@pytest.mark.parametrize("name", ["actions", "timeouts"])
def test_column_that_lacks_a_step_is_refused(
    name: str, path: Path, refusal: Callable[..., str]
) -> None:
    save(path, columns(path, **{name: columns(path)[name][:-1]}))
    message = refusal()
    assert "ragged" in message
    assert f"{name} [299]" in message


@in_a_folder
@pytest.mark.parametrize("value", [2, -1, 255])
def test_flag_that_is_neither_0_nor_1_is_refused(
    value: int, path: Path, refusal: Callable[..., str]
) -> None:
    terminals = np.zeros(300, np.int64)
    terminals[17] = value
    save(path, columns(path, terminals=terminals))
    assert f"found {value} (int64) in row 17" in refusal()


@in_a_folder
@pytest.mark.parametrize(
    "wrong",
    [
        {"rewards": np.zeros((300, 2), np.float32)},
        {"observations": np.float32(1)},
        {"observations": np.array([b"a step"] * 300)},
        {"actions": np.zeros(300, [("left", "f4"), ("right", "f4")])},
        {"terminals": np.zeros((300, 2), np.bool_)},
        {name: np.zeros(0, np.float32) for name in ("actions", "observations", "rewards")}
        | {"terminals": np.zeros(0, np.bool_), "timeouts": np.zeros(0, np.bool_)},
    ],
    ids=["two rewards", "a scalar", "text", "a record", "two flags", "no step"],
)
def test_column_of_another_kind_is_refused(
    wrong: dict[str, Any], path: Path, refusal: Callable[..., str]
) -> None:
    save(path, columns(path, **wrong), compression=None)
    refusal()


@in_a_folder
def test_file_of_d3rlpy_is_refused(path: Path, refusal: Callable[..., str]) -> None:
    flags = columns(path)["terminals"]
    d3rlpy = {"episode_terminals": flags, "discrete_action": False, "version": np.bytes_("1.0")}
    save(path, columns(path, timeouts=None, **d3rlpy))
    assert "it is a d3rlpy file" in refusal()


# --- files that reach out -----------------------------------------------------------------------


def link_elsewhere(file: h5py.File, secret: Path) -> None:
    file["actions"] = h5py.ExternalLink(str(secret), "actions")


def link_inside_a_group(file: h5py.File, secret: Path) -> None:
    save(secret.with_name("rest"), {"actions": np.zeros((300, 2))})
    file["actions"] = np.zeros((300, 2), np.float32)
    file["infos/goal"] = h5py.ExternalLink(str(secret), "actions")


def link_softly(file: h5py.File, secret: Path) -> None:
    file["actions"] = h5py.SoftLink("/observations")


def store_outside(file: h5py.File, secret: Path) -> None:
    file.create_dataset("actions", (300, 2), "f4", external=[(str(secret), 0, 2400)])


def map_elsewhere(file: h5py.File, secret: Path) -> None:
    layout = h5py.VirtualLayout((300, 2), "f4")
    layout[:] = h5py.VirtualSource(str(secret), "actions", (300, 2))
    file.create_virtual_dataset("actions", layout)


@in_a_folder
@pytest.mark.parametrize(
    ("reach_out", "place", "reason"),
    [
        (link_elsewhere, "/actions", "ExternalLink"),
        (link_inside_a_group, "/infos/goal", "ExternalLink"),
        (link_softly, "/actions", "SoftLink"),
        (store_outside, "/actions", "another file"),
        (map_elsewhere, "/actions", "another file"),
    ],
)
def test_file_that_refers_to_another_file_is_refused(
    reach_out: Callable[[h5py.File, Path], None],
    place: str,
    reason: str,
    path: Path,
    refusal: Callable[..., str],
) -> None:
    secret = path.parent.parent / "secret.hdf5"
    save(secret, columns(path), compression=None)
    save(path, columns(path, actions=None), compression=None)
    with h5py.File(path, "a") as file:
        reach_out(file, secret)
    message = refusal()
    assert f"{FILENAME}:{place}" in message
    assert reason in message


def archive(kind: str) -> bytes:
    """Return an archive whose one file would leave the folder that it is unpacked in."""
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w") as packed:
            packed.writestr("../../escaped", b"out")
    else:
        with tarfile.open(fileobj=buffer, mode="w:gz" if kind == "tar.gz" else "w") as packed_tar:
            packed_tar.addfile(tarfile.TarInfo("../../escaped"))
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_an_archive_is_refused_and_never_unpacked(
    kind: str, path: Path, refusal: Callable[..., str], tmp_path: Path
) -> None:
    path.write_bytes(archive(kind))
    refusal()
    assert not list(tmp_path.rglob("escaped"))


def test_nothing_here_unpacks_archives() -> None:
    # They read the arrays of an archive and the checksums of one, and write no file of it.
    readers = [
        PROJECT / "datasets_cli" / name
        for name in ("exchange/npz.py", "formats/npz.py", "replay/state_file.py")
    ]
    code = [
        path.read_text()
        for top in ("datasets_cli", "recipes")
        for path in PROJECT.joinpath(top).rglob("*.py")
        if path not in readers
    ]
    assert len(code) > 300
    assert all("extract" not in path.read_text() for path in readers)
    for word in ("tarfile", "zipfile", "unpack_archive"):
        assert not [text for text in code if word in text], word


# --- the disk -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "in_commit"),
    [(0, False), (1000, False), (40_000, False), (100, True)],
    ids=["no byte", "little", "most", "all but the manifest"],
)
def test_full_disk_while_installing_leaves_the_older_copy(
    size: int, in_commit: bool, config: Config, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(path, steps(path, (4, 2), num_steps=3000))
    install_dataset(ID, config, InstallOptions(source=str(path.parent)))
    commit = installation.commit

    def commit_on_a_small_disk(*arguments: Any, **options: Any) -> Any:
        with small_disk(size):
            return commit(*arguments, **options)

    with ExitStack() as stack, pytest.raises(DiskFull) as caught:
        if in_commit:
            monkeypatch.setattr(installation, "commit", commit_on_a_small_disk)
        else:
            stack.enter_context(small_disk(size))
        install_dataset(ID, config, InstallOptions(source=str(path.parent), force=True))
    assert caught.value.exit_code == 7 and str(config.root) in str(caught.value)
    assert verify(ID, config).num_transitions > 2000
    assert list((config.root / "tmp").iterdir()) == []


KINDS = (OSError, ValueError, TypeError, KeyError, IndexError, ZeroDivisionError, OverflowError)


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_reader_raises_over_odd_bytes_is_a_damaged_source(kind: type[Exception]) -> None:
    def blocks() -> Iterator[Block]:
        yield Block({})
        raise kind("odd")

    read = read_blocks("mine/one", blocks())
    next(read)
    with pytest.raises(SourceError) as caught:
        next(read)
    assert caught.value.id == "mine/one" and caught.value.found.startswith(kind.__name__)
    assert caught.value.exit_code == 4


def test_an_error_of_ours_stays_what_it_is() -> None:
    gone = NetworkError("gone")
    with pytest.raises(NetworkError) as caught, source_errors("mine/one"):
        raise gone
    assert caught.value is gone
