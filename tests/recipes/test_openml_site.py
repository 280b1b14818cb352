"""OpenML's site: ids, names and versions, its odd answers, and files that are not what it says."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from datasets_cli import OpenMLExperienceReplay
from datasets_cli.catalogue.entries import load_recipe
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import NetworkError, SourceError, UnknownDataset
from datasets_cli.install.installation import install_dataset
from datasets_cli.recipes.openml import api
from datasets_cli.store.dataset import Dataset, open_dataset
from tests.support import openml_files as files
from tests.support.moved import moved
from tests.support.openml_files import OpenML, table
from tests.support.origin import Fault, redirect

Capture = pytest.CaptureFixture[str]

RECIPE = load_recipe("openml")
IRIS = "data/v1/download/61/iris.arff"
SMALL = table("1,a\n2,b\n", {"x": "real", "y": "{a,b}"}, "y")


@pytest.fixture
def direct(site: OpenML, monkeypatch: pytest.MonkeyPatch) -> OpenML:
    """The same server as OpenML itself: what it refuses is not asked for anywhere else."""
    monkeypatch.setattr(api, "API", f"{site.origin.url}{files.API}")
    return site


@pytest.fixture
def rlds(site: OpenML, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command line, with this server as a mirror of OpenML."""
    return lambda *arguments: main([*arguments, "--mirror", f"{files.SITE}={site.origin.url}"])


class Pages:
    """A web of these answers of the API, and 412 for all else."""

    def __init__(self, pages: dict[str, Any]) -> None:
        self.pages = pages

    def json(self, url: str, no_such_data: Any = None) -> Any:
        path = url.removeprefix(f"{api.API}/")
        if path not in self.pages:
            words = no_such_data(412, b'{"error": {"message": "No results"}}')
            raise UnknownDataset(f"{url} answered HTTP 412: {words}.")
        return self.pages[path]

    def has(self, url: str) -> bool:
        raise AssertionError("OpenML is never asked so")


def captured_list(name: str) -> Any:
    (path,) = files.DATA.glob(f"id_*/api-v1-jdl-dn-{name}.json.gz")
    return json.loads(gzip.decompress(path.read_bytes()))


def active(name: str) -> str:
    return f"list/data_name/{name}/limit/1000/status/active"


def install(site: OpenML, name: str) -> Dataset:
    return open_dataset(install_dataset(f"openml/{name}", site.config).path)


# Ids, names and versions


def test_an_id_is_downloaded_converted_and_shown(site, rlds, capsys: Capture):
    site.captured(61)
    assert rlds("download", "openml/61", "--keep-raw") == 0
    folder = Path(capsys.readouterr().out.strip())
    manifest = json.loads((folder / "manifest.json").read_text())
    checked = {entry["filename"]: entry["checked"] for entry in manifest["resources"]}
    assert checked == {
        "description.json": "nothing",
        "features.json": "nothing",
        "dataset.arff": "md5",
    }
    assert rlds("info", "openml/61") == 0
    card = capsys.readouterr().out
    assert all(text in card for text in ("openml/61", "iris", "licence            Public"))
    assert rlds("download", "openml/61", "--force", "--offline") == 5


def test_a_version_of_a_name_is_downloaded(site, rlds, capsys: Capture):
    site.captured(2)
    site.page("list/data_name/anneal/limit/2/data_version/1", captured_list("anneal-l-2-dv-1"))
    assert rlds("download", "openml/anneal@1", "--json") == 0
    (result,) = json.loads(capsys.readouterr().out)["datasets"]
    assert (result["id"], result["num_transitions"]) == ("openml/anneal@1", 11)


def test_a_bare_name_is_its_newest_active_version_and_says_so(site, rlds, capsys: Capture):
    site.captured(40589)
    site.page(active("emotions"), captured_list("emotions-l-2-s-act-"))
    site.page("list/data_name/emotions/limit/2/data_version/3", captured_list("emotions-l-2-dv-3"))
    assert rlds("download", "openml/emotions") == 0
    output = capsys.readouterr()
    assert output.out.strip().endswith("openml/emotions@3")
    assert "openml/emotions is openml/emotions@3, its newest version" in output.err


def test_of_several_active_versions_the_newest_is_meant():
    web = Pages({active("anneal"): captured_list("anneal-l-2-s-act-")})
    row = RECIPE.find("anneal", web)
    assert row is not None
    assert (row.name, row.details["version"]) == ("anneal@3", "3")


def test_a_deactivated_version_is_taken_by_its_number_and_marked(site, rlds, capsys: Capture):
    site.captured(40675)
    site.no_such("list/data_name/glass2/limit/2/data_version/1")
    search = "list/data_name/glass2/limit/2/data_version/1/status/deactivated"
    site.page(search, captured_list("glass2-l-2-dv-1-s-dact"))
    assert rlds("download", "openml/glass2@1") == 0
    assert "OpenML marks it as deactivated" in capsys.readouterr().err


def test_a_bare_name_without_an_active_version_names_the_deactivated(site, rlds, capsys: Capture):
    site.no_such(active("glass2"))
    old = active("glass2").replace("active", "deactivated")
    site.page(old, captured_list("glass2-l-2-dv-1-s-dact"))
    assert rlds("download", "openml/glass2") == 3
    assert (
        "has no active version: OpenML has deactivated openml/glass2@1" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("id", "silent", "words"),
    [
        ("999999999", ["999999999"], "openml/999999999 is not a known dataset: .*Unknown dataset"),
        (
            "irs",
            [active("irs"), active("irs").replace("active", "deactivated")],
            "openml/irs is not a known dataset. Did you mean .*openml/iris@1",
        ),
        (
            "emotions@9",
            [
                "list/data_name/emotions/limit/2/data_version/9",
                "list/data_name/emotions/limit/2/data_version/9/status/deactivated",
            ],
            "openml/emotions@9 is not a known dataset: OpenML has openml/emotions@3",
        ),
    ],
)
def test_what_openml_has_not_exits_with_3_and_the_nearest_names(
    id, silent, words, site, rlds, capsys: Capture
):
    site.page(active("emotions"), captured_list("emotions-l-2-s-act-"))
    for path in silent:
        site.no_such(path, "Unknown dataset")
    assert rlds("download", f"openml/{id}") == 3
    error = capsys.readouterr().err
    assert re.search(words, error), error
    assert "\n" not in error.strip()


def test_offline_a_bare_name_needs_its_version(config: Config, capsys: Capture):
    assert main(["download", "openml/credit-g", "--offline"]) == 5
    assert main(["path", "openml/credit-g"]) == 3
    assert main(["info", "openml/credit-g@1"]) == 0
    assert "rlds download openml/credit-g@1" in capsys.readouterr().out


def test_offline_a_bare_name_is_the_highest_version_that_is_known_here(
    site, config: Config, capsys: Capture
):
    site.captured(40589)
    folder = install_dataset("openml/40589", site.config).path
    moved(folder, "mood@3")
    for name in ("openml/mood", "openml/emotions", "emotions"):  # the second is in the catalogue
        code = 0 if "mood" in name else 3
        assert main(["path", name]) == code
        assert main(["verify", name, "--quick"]) == code
        assert main(["info", name]) == 0
        assert main(["download", name, "--offline"]) == (5 if code else 0)
    assert len(OpenMLExperienceReplay("mood", 32, download=False)) == 13
    assert main(["delete", "openml/mood", "--yes"]) == 0


# Odd answers


def test_a_list_of_one_may_be_bare(site, direct):
    arff, (only, label) = table("1,a\n2,a\n", {"x": "real", "y": "{a}"}, "y")
    site.publish(5, arff, [only, label | {"nominal_value": "a"}], licence=["CC0"], creator="A. B.")
    metadata = install(site, "5").manifest.metadata
    assert (metadata["licence"], metadata["creator"]) == ("CC0", "A. B.")
    entry = {"did": "7", "name": "one", "version": "2", "quality": {"name": "X", "value": "1"}}
    web = Pages({"list/limit/1000/offset/0/status/active": {"data": {"dataset": entry}}})
    assert [row.name for row in api.published(web)] == ["one@2"]


def test_a_file_is_sought_at_its_host_and_at_the_others():
    old, new = "http://www.openml.org/data/download/6/x", "https://data.openml.org/0001/x.pq"
    www, other = (
        "https://www.openml.org/data/download/6/x",
        "https://api.openml.org/data/download/6/x",
    )
    assert api.file_urls(old) == (www, other)
    assert api.file_urls(other) == (other, www)
    assert api.file_urls(new)[0] == new
    assert api.file_urls("https://elsewhere.org/x") == ("https://elsewhere.org/x",)


def test_a_file_that_has_moved_to_another_host_is_followed(site):
    site.captured(61)
    data = gzip.decompress((files.DATA / "id_61" / "data-v1-dl-61.arff.gz").read_bytes())
    site.origin.put("elsewhere/iris.arff", data)
    site.origin.always(IRIS, redirect(f"{site.origin.url}elsewhere/iris.arff"))
    assert install(site, "61").manifest.num_transitions == 150
    assert len(site.origin.log("elsewhere/iris.arff")) == 1


def test_an_address_of_another_host_is_taken_from_its_mirror(site):
    url = "https://api.openml.org/data/v1/download/5/file.arff"
    site.publish(5, *SMALL, url=url)
    (resource,) = [r for r in install(site, "5").manifest.resources if "arff" in r["filename"]]
    assert resource["url"] == f"{site.origin.url}data/v1/download/5/file.arff"


@pytest.mark.parametrize("page", [[], {"data_set_description": None}, {"other": {}}])
def test_an_answer_that_is_not_openml_s_is_refused(page, site, direct):
    site.page("5", page)
    with pytest.raises(SourceError) as caught:
        install(site, "5")
    assert str(caught.value.path).endswith("/5")


def test_features_that_openml_has_not_made_yet_are_named_with_its_words(site, direct):
    site.publish(5, *SMALL)
    site.no_such("features/5", "No features found. Additionally, dataset processed with error")
    with pytest.raises(UnknownDataset) as caught:
        install(site, "5")
    assert caught.value.found == 412


def test_412_without_openml_s_words_is_that_of_another_server_and_the_next_is_asked(site, direct):
    site.publish(5, *SMALL)
    site.origin.always("mirror/5", Fault(status=412, body=b"<p>Precondition Failed"))
    mirror = (f"{api.API}/5", f"{site.origin.url}mirror/5")
    config = replace(site.config, mirrors=(mirror, *site.config.mirrors))
    dataset = open_dataset(install_dataset("openml/5", config).path)
    assert dataset.manifest.num_transitions == 2
    assert site.origin.log("mirror/5")


@pytest.mark.parametrize("body", [b"", b"<p>", b"[]", b'{"error": "no"}'])
def test_412_without_openml_s_words_is_not_an_answer_of_openml(body, site, direct):
    site.origin.always(f"{files.API}/5", Fault(status=412, body=body))
    with pytest.raises(NetworkError) as caught:
        install(site, "5")
    assert caught.value.found == 412
