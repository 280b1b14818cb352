"""What every recipe must do: its catalogue, its files, downloads that go wrong."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

import datasets_cli
from datasets_cli import ExperienceReplay, RandomSampler, SliceSampler
from datasets_cli.catalogue import names
from datasets_cli.catalogue.entries import catalogue, load_recipe
from datasets_cli.catalogue.names import resolve
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import AccessError, IntegrityError
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.recipe import (
    ZIP_MAGIC,
    Block,
    CatalogueEntry,
    Recipe,
    Resource,
    Source,
    deferred,
)
from datasets_cli.schema.columns import TERMINATED, show_key
from datasets_cli.store.cache_root import CacheRoot, check_id
from datasets_cli.store.dataset import Dataset, open_dataset
from datasets_cli.store.manifest import read_manifest
from tests.support.conformance import (
    Case,
    Publisher,
    install,
    prepared,
    published_families,
)
from tests.support.killed import call_killed
from tests.support.origin import Fault, Origin
from tests.support.values import Expected, Key, assert_folder, assert_same


@pytest.fixture(scope="module", params=published_families())
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    with prepared(request.param) as found:
        yield found


@pytest.fixture
def publisher(case: Case, config: Config) -> Iterator[Publisher]:
    with Origin() as origin:
        yield Publisher(case, origin, config)


# The catalogue.


@pytest.fixture
def recipe(case: Case) -> Recipe:
    return load_recipe(case.family)


def test_a_recipe_says_what_people_must_know(recipe: Recipe) -> None:
    assert recipe.version >= 1
    assert recipe.title and recipe.licence
    assert recipe.homepage.startswith("https://")
    json.dumps(recipe.to_json())


def assert_row(family: str, row: CatalogueEntry) -> None:
    assert check_id(f"{family}/{row.name}") and "~" not in row.name
    for number in (row.size, row.num_transitions, row.num_trajectories):
        assert number is None or (type(number) is int and number > 0), row
    json.dumps(dict(row.details), allow_nan=False)


def test_the_rows_of_the_catalogue_are_well_formed(
    recipe: Recipe, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket.socket, "connect", None)  # offline
    rows = list(recipe.datasets(None))
    assert rows and rows == list(recipe.datasets(None))
    assert len({row.name for row in rows}) == len(rows)
    for row in rows:
        assert_row(recipe.family, row)
    assert catalogue(recipe, CacheRoot(config.root)) == {row.name: row for row in rows}


def test_an_id_of_the_catalogue_means_itself(case: Case, recipe: Recipe, config: Config) -> None:
    root = CacheRoot(config.root)
    names = sorted(catalogue(recipe, root))
    for id in (case.id, *(f"{recipe.family}/{name}" for name in (names[0], names[-1]))):
        assert resolve(id, root).id == id


# The resources.

HEX = {"md5": 32, "sha1": 40, "sha256": 64}


def assert_resource(resource: Resource) -> None:
    for url in resource.urls:
        parts = urlsplit(url)
        assert parts.scheme in ("http", "https") and parts.hostname and not parts.fragment, url
    assert re.fullmatch(r"[\w$.-]+(/[\w$.-]+)*", resource.filename), resource.filename
    assert not resource.filename.startswith(("-", "."))
    for content in resource.contents:
        assert content.size is None or content.size > 0
        for algorithm, digest in content.checksums.items():
            assert re.fullmatch(f"[0-9a-f]{{{HEX[algorithm]}}}", digest), resource.filename


def test_resources_are_well_formed(publisher: Publisher, recipe: Recipe) -> None:
    found = publisher.resources
    assert found and all(resource.urls for resource in found)
    assert len({resource.filename for resource in found}) == len(found)
    for resource in found:
        assert_resource(resource)
        assert publisher.path(resource) in publisher.content
    name = publisher.case.id.partition("/")[2]
    assert tuple(recipe.resources(name, publisher.http)) == found


def test_resources_need_no_network_where_the_user_has_the_files(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket.socket, "connect", None)
    if recipe.resources_at is not None:
        return  # its files are known only by looking
    for row in recipe.datasets(None):
        found = recipe.resources(row.name, None)
        assert found
        for resource in found:
            assert_resource(resource)


# Downloads that go wrong.

DAMAGES: dict[str, tuple[Callable[[bytes], Fault], type[Exception]]] = {
    "truncated": (lambda data: Fault(body=data[: len(data) // 2]), IntegrityError),
    "flipped": (lambda data: Fault(flip=len(data) // 2), IntegrityError),
    "a web page": (lambda data: Fault(body=b"<!DOCTYPE html>\n<title>Hello"), IntegrityError),
    "empty": (lambda data: Fault(body=b""), IntegrityError),
    "missing": (lambda data: Fault(status=404), AccessError),
}


def assert_refused(publisher: Publisher, error: type[Exception]) -> None:
    with pytest.raises(error):
        install_ted(publisher)
    root = publisher.config.root
    assert not list(root.rglob("manifest.json"))
    assert not [*root.glob("tmp/*"), *root.glob("datasets/*")]


def install_ted(publisher: Publisher) -> Path:
    return install_dataset(
        publisher.case.id, publisher.config, InstallOptions(layout="ted"), http=publisher.http
    ).path


def forget(publisher: Publisher, resource: Resource) -> None:
    """Delete what is here of a file."""
    for path in publisher.config.root.rglob(f"{resource.filename}*"):
        path.unlink()


def spoilable(publisher: Publisher, damage: str) -> list[Resource]:
    """Return the files in which this damage can be seen: a flipped byte needs a checksum."""
    # A zip archive contains the checksums of its members.
    checked = [each for each in publisher.resources if each.checksums or each.magic == ZIP_MAGIC]
    return checked if damage == "flipped" else publisher.resources


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_to_any_file_is_refused_and_leaves_nothing(
    damage: str, publisher: Publisher
) -> None:
    fault, error = DAMAGES[damage]
    assert spoilable(publisher, damage)
    for resource in spoilable(publisher, damage):
        forget(publisher, resource)
        publisher.damage(resource, fault)
        assert_refused(publisher, error)
        publisher.heal(resource)
        forget(publisher, resource)  # the next test says what becomes of it


def test_once_the_publisher_has_repaired_a_file_a_repeated_run_succeeds(
    publisher: Publisher,
) -> None:
    fault, error = DAMAGES["truncated"]
    resource = min(publisher.resources, key=lambda each: len(each.checksums))
    publisher.damage(resource, fault)
    assert_refused(publisher, error)
    publisher.heal(resource)
    assert_folder(install_ted(publisher), publisher.case.expected())


def test_a_download_that_was_cut_goes_on_where_it_stopped(
    publisher: Publisher, tmp_path: Path
) -> None:
    sizes = {
        path: len(publisher.content[path]) for path in map(publisher.path, publisher.resources)
    }
    largest = max(sizes, key=lambda path: sizes[path])
    half = sizes[largest] // 2
    publisher.origin.script(largest, Fault(cut=half), Fault(status=404))
    assert_refused(publisher, AccessError)
    found = read_manifest(install_ted(publisher))
    assert publisher.origin.ranges(largest) == [None, f"bytes={half}-", f"bytes={half}-"]
    for path in sizes.keys() - {largest, *publisher.asked}:
        assert len(publisher.origin.log(path)) == 1, path
    assert found.files == read_manifest(install(publisher.case, tmp_path, "ted")).files


@pytest.mark.parametrize("count", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_a_download_that_is_killed_again_and_again_is_completed(
    publisher: Publisher, tmp_path: Path, count: int
) -> None:
    codes = [
        call_killed(lambda: bool(install_ted(publisher)) - 1, step, tmp_path)
        for step in range(0, 20, 20 // count)
    ]
    assert codes == [-signal.SIGKILL] * count
    assert not list(publisher.config.root.rglob("manifest.json"))
    assert_folder(install_ted(publisher), publisher.case.expected())


Leaves = Columns = dict[Key, np.ndarray]


@pytest.fixture(scope="module")
def expected(case: Case) -> Expected:
    return case.expected()


@dataclass(frozen=True)
class Installed:
    """A case that was downloaded and converted."""

    config: Config
    dataset: Dataset
    leaves: Leaves

    @property
    def id(self) -> str:
        return self.dataset.manifest.id

    @property
    def layout(self) -> str:
        return self.dataset.manifest.layout


@pytest.fixture(scope="module", params=["ted", "compact"])
def installed(
    request: pytest.FixtureRequest, case: Case, tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    root = tmp_path_factory.mktemp("root")
    dataset = open_dataset(install(case, root, request.param))
    return Installed(Config(root=root), dataset, read(dataset))


def read(dataset: Dataset) -> Leaves:
    return {key: rows.numpy() for key, rows in dataset.columns(()).items()}


# The rows.


def test_every_value_equals_the_source_read_independently(
    installed: Installed, expected: Expected
) -> None:
    assert_same(installed.leaves, expected.leaves)
    texts = open_dataset(installed.dataset.folder, text=True).texts
    found = {key: texts.column(key) for key in texts.keys} if texts else {}
    assert found == expected.texts
    assert installed.dataset.offsets.tolist() == expected.offsets
    if installed.layout == "ted":
        assert_folder(installed.dataset.folder, expected)


# Planted faults, of which the comparison must see every one.


def _some(columns: Columns, *roots: str) -> Key:
    """Return the first column under one of the roots, such as the reward if there is one."""
    return next(key for root in roots for key in columns if show_key(key).startswith(root))


def shifted(columns: Columns) -> Columns:
    return {key: np.roll(columns[key], 1, axis=0) for key in columns if key[0] == "action"}


def swapped(columns: Columns) -> Columns:
    return {key: np.concatenate([rows[1::-1], rows[2:]]) for key, rows in columns.items()}


def flipped(columns: Columns) -> Columns:
    """Change the last bit of a number."""
    rows = columns[key := _some(columns, "next.reward", "action")].copy()
    rows[-1:].view(np.uint8)[..., 0] ^= 1
    return {key: rows}


def cast(columns: Columns) -> Columns:
    rows = columns[key := _some(columns, "action")]
    return {key: rows.astype("f4" if rows.dtype == np.float64 else "f8")}


def ended(columns: Columns) -> Columns:
    """End a trajectory after the first row, or continue one that ends there."""
    flags = np.zeros(len(next(iter(columns.values()))), np.bool_)
    flags = np.array(columns.get(TERMINATED, flags)).reshape(-1) != 0
    flags[0] ^= True
    return {TERMINATED: flags}


@pytest.mark.parametrize("fault", [shifted, swapped, flipped, cast, ended])
def test_a_recipe_with_a_planted_fault_is_seen(
    fault: Callable[[Columns], Columns],
    case: Case,
    expected: Expected,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipe = load_recipe(case.family)

    def blocks(source: Source) -> Iterator[Block]:
        for block in recipe.blocks(source):
            yield replace(block, columns={**block.columns, **fault(dict(block.columns))})

    monkeypatch.setattr(names, "load_recipe", lambda family: replace(recipe, blocks=blocks))
    folder = install(case, tmp_path, "ted")
    with pytest.raises(AssertionError):
        assert_folder(folder, expected)  # a fault of the last step may be one of a final step


# Using what is installed.


def test_rlds_verify_accepts_it(installed: Installed) -> None:
    assert main(["verify", installed.id, "--root", str(installed.config.root)]) == 0


def test_there_and_back_to_the_other_layout_gives_the_same_bytes(
    installed: Installed, expected: Expected, tmp_path: Path
) -> None:
    root = shutil.copytree(installed.config.root, tmp_path / "copy")
    config = replace(installed.config, root=root)
    for layout in ("compact", "ted"):
        folder = datasets_cli.convert(installed.id, layout, config=config).path
    assert_folder(folder, expected)
    if installed.layout == "ted":
        assert open_dataset(folder).manifest.files == installed.dataset.manifest.files


def open_replay(installed: Installed, sampler: Any, batch_size: int) -> ExperienceReplay:
    root = installed.config.root
    return ExperienceReplay(
        installed.id, batch_size, root=root, download=False, sampler=sampler, seed=0, text=True
    )


def assert_batch(batch: Any, expected: Expected) -> np.ndarray:
    """Compare leaves and text of a batch with the rows that its index names; return the index."""
    index: np.ndarray = batch["index"].numpy()
    assert index.ndim == 1 and len(index)
    for key, rows in expected.leaves.items():
        found = batch[key].numpy()
        assert (found.dtype, found.shape) == (rows.dtype, (len(index), *rows.shape[1:])), key
        same = found.tobytes() == rows[index].tobytes()
        assert same, key
    for key, values in expected.texts.items():
        assert batch[key] == [values[row] for row in index], key
    return index


def test_a_sampler_of_rows_and_one_of_slices_draw_rows_of_the_source(
    installed: Installed, expected: Expected
) -> None:
    assert_batch(open_replay(installed, RandomSampler(), 20).sample(), expected)
    length = min(5, int(np.diff(expected.offsets).max()))
    sampler = SliceSampler(slice_len=length, truncated_key=None)
    index = assert_batch(open_replay(installed, sampler, 4 * length).sample(), expected)
    slices = index.reshape(-1, length)
    assert (np.diff(slices) == 1).all()
    assert (np.diff(expected.leaves["episode",][slices]) == 0).all()


def test_a_deferred_function_is_imported_when_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late_reader.py").write_text("def read(source):\n    yield from source\n")
    monkeypatch.syspath_prepend(tmp_path)
    read = deferred("late_reader:read")
    assert "late_reader" not in sys.modules
    assert list(read([1, 2])) == [1, 2]
    assert sys.modules.pop("late_reader").read is not read


@pytest.mark.parametrize("address", ["no_such_reader:read", "json:read"])
def test_a_wrong_address_fails_when_it_is_called(address: str) -> None:
    read = deferred(address)
    with pytest.raises((ImportError, AttributeError)):
        read([])
