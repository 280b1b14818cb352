"""What every recipe must do: its catalogue, its files, downloads that go wrong.

A recipe joins by being there; ``tests/conformance.py`` says how, and ``test_conformance_rows.py``
has the rest.
"""

from __future__ import annotations

import importlib
import json
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from datasets_cli.catalogue import entries
from datasets_cli.catalogue.entries import catalogue, load_recipe
from datasets_cli.catalogue.names import resolve
from datasets_cli.config import Config
from datasets_cli.errors import AccessError, IntegrityError
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.recipe import CatalogueEntry, Recipe, Resource
from datasets_cli.store.cache_root import CacheRoot, check_id
from datasets_cli.store.manifest import read_manifest
from tests.support.conformance import (
    Case,
    Publisher,
    case_of,
    install,
    prepared,
    published_families,
)
from tests.support.origin import Fault, Origin
from tests.support.values import assert_folder


@pytest.fixture(scope="module", params=published_families())
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    with prepared(request.param) as found:
        yield found


@pytest.fixture
def publisher(case: Case, config: Config) -> Iterator[Publisher]:
    with Origin() as origin:
        yield Publisher(case, origin, config)


# Joining.


@pytest.mark.parametrize("family", published_families())
def test_every_family_has_a_case(family: str) -> None:
    assert case_of(family).id.startswith(f"{family}/")


def test_a_recipe_without_a_case_is_told_what_to_add(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lunar.py").touch()
    package = importlib.import_module("datasets_cli.recipes")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    entries.families.cache_clear()
    try:
        assert "lunar" in entries.families()
    finally:
        entries.families.cache_clear()
    with pytest.raises(AssertionError, match=r"recipe lunar has no case.*Add one to CASES"):
        case_of("lunar")


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
    "refused": (lambda data: Fault(status=403), AccessError),
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
    """Return the files in which this damage can be seen: without a checksum no flipped byte can."""
    return [each for each in publisher.resources if each.checksums or damage != "flipped"]


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


@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_once_the_publisher_has_repaired_a_file_a_repeated_run_succeeds(
    damage: str, publisher: Publisher
) -> None:
    fault, error = DAMAGES[damage]
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
