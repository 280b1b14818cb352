"""OpenML's tables: what is left out, what is missing, the catalogue, and what is refused."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from datasets_cli.catalogue.entries import catalogue, load_recipe, refresh
from datasets_cli.config import Config
from datasets_cli.errors import IntegrityError, SourceError, UnknownDataset, UsageError
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.recipes.openml import api
from datasets_cli.recipes.openml import catalogue as openml
from datasets_cli.sources.http import Http
from datasets_cli.store.cache_root import CacheRoot, check_id
from datasets_cli.store.dataset import Dataset, open_dataset
from tests.support import openml_files as files
from tests.support.openml_files import OpenML, feature, table
from tests.support.origin import Origin

RECIPE = load_recipe("openml")
SMALL = table("1,a\n2,b\n", {"x": "real", "y": "{a,b}"}, "y")


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenML]:
    """A server that stands for OpenML itself: what it refuses is not asked for anywhere else."""
    with Origin() as origin:
        monkeypatch.setattr(api, "API", f"{origin.url}{files.API}")
        yield OpenML(origin)


def install(site: OpenML, name: str = "5") -> Dataset:
    return open_dataset(install_dataset(f"openml/{name}", site.config).path)


def notes(dataset: Dataset) -> list[str]:
    return dataset.manifest.metadata["notes"]


# What is left out, and what is missing


def test_what_cannot_be_learned_from_is_left_out_and_named(site):
    columns = {"n": "real", "i": "{p,q}", "s": "string", "d": "date", "x": "real", "y": "{a,b}"}
    arff, features = table("1,p,'t, u',2020,0.5,b\n", columns, "y")
    features[0]["is_row_identifier"] = "true"
    features[1]["is_ignore"] = "true"
    site.publish(5, arff, features)
    dataset = install(site)
    assert dataset.columns(("observation",))["observation",].tolist() == [[0.5]]
    assert notes(dataset) == [
        "left out, row numbers: n",
        "left out, to be ignored: i",
        "left out, text or dates: s, d",
    ]


def test_a_long_list_of_what_is_left_out_is_short_in_the_note_and_whole_in_the_metadata(site):
    columns = {f"s{index}": "string" for index in range(30)} | {"x": "real", "y": "real"}
    site.publish(5, *table(",".join(["t"] * 30) + ",1,2\n", columns, "y"))
    dataset = install(site)
    assert notes(dataset)[0].endswith("s8, s9 and 20 more")
    assert len(dataset.manifest.metadata["left_out"]["text or dates"]) == 30


@pytest.mark.parametrize("counted", ["1", "0"])
@pytest.mark.parametrize("kind", ["{a,b}", "numeric"])
def test_a_missing_label_is_nan_where_openml_counts_one(kind, counted, site):
    label = "b" if kind[0] == "{" else "1"
    arff, features = table(f"1,{label}\n2,?\n", {"x": "real", "y": kind}, "y")
    features[1]["number_of_missing_values"] = counted
    site.publish(5, arff, features)
    dataset = install(site)
    action = dataset.columns(("action",))["action",]
    assert torch.equal(action.isnan(), torch.tensor([False, True]))
    assert (action.dtype, action[0].item()) == (torch.float64, 1.0)
    doubts = [] if counted == "1" else ["features.json counts 0 missing labels"]
    assert notes(dataset) == ["labels missing: 1; the action is NaN there", *doubts]


def test_labels_that_openml_counts_as_missing_and_the_file_has_are_positions(site):
    arff, features = table("1,b\n", {"x": "real", "y": "{a,b}"}, "y")
    features[1]["number_of_missing_values"] = "1"
    site.publish(5, arff, features)
    dataset = install(site)
    action = dataset.columns(("action",))["action",]
    assert (action.dtype, action.tolist(), notes(dataset)) == (torch.int64, [1], [])


def test_one_missing_label_of_several_makes_all_of_them_floats(site):
    arff, features = table("b,1,d\na,2,?\n", {"y": "{a,b}", "x": "real", "z": "{c,d}"}, "y")
    features[2]["is_target"] = "true"
    site.publish(5, arff, features)
    action = install(site).columns(("action",))["action",]
    assert action[0].tolist() == [1.0, 1.0]
    assert action[1].isnan().tolist() == [False, True]


def test_a_missing_label_in_the_last_block_is_found_before_the_first_is_written(site, monkeypatch):
    monkeypatch.setattr("datasets_cli.schema.columns.BLOCK_ROWS", 2)
    rows = "1,a\n" * 8 + "2,?\n"
    site.publish(5, *table(rows, {"x": "real", "y": "{a,b}"}, "y"))
    action = install(site).columns(("action",))["action",]
    assert action[:8].tolist() == [0.0] * 8
    assert action[8].isnan()


def test_a_latin_1_file_has_the_labels_that_openml_lists_and_a_note(site):
    columns = {"größe": "real", "y": "{café,'crème brûlée'}"}
    arff, features = table("1,'crème brûlée'\n2,café\n", columns, "y")
    site.publish(5, arff.decode().encode("latin-1"), features)
    dataset = install(site)
    assert dataset.columns(("action",))["action",].tolist() == [1, 0]
    assert dataset.manifest.metadata["classes"] == {"y": ["café", "crème brûlée"]}
    assert dataset.manifest.metadata["feature_names"] == ["größe"]
    assert notes(dataset) == [
        "dataset.arff is not UTF-8 throughout: each of its bytes is read as Latin-1"
    ]


def test_tabs_and_ranges_are_read(site):
    columns = {"x": "real [0,10]", "n": "integer [0,255]", "y": "{a,b}"}
    site.publish(5, *table("1.5\t7\tb\n\t8\ta\n", columns, "y"))
    rows = install(site).columns(())
    assert rows["observation",][0].tolist() == [1.5, 7.0]
    assert rows["observation",][1].isnan().tolist() == [True, False]
    assert rows["action",].tolist() == [1, 0]


def test_columns_of_one_name_are_told_apart_by_their_number(site):
    columns = {"x": "{p,q}", "x ": "{r,s}", "y": "{a,b}"}
    arff, features = table("q,r,b\n", columns, "y")
    features[1]["name"] = "x"
    site.publish(5, arff.replace(b"'x '", b"'x'"), features)
    metadata = install(site).manifest.metadata
    assert metadata["categories"] == {"x (column 0)": ["p", "q"], "x (column 1)": ["r", "s"]}
    assert metadata["feature_names"] == ["x (column 0)", "x (column 1)"]


def test_features_count_by_their_number_in_whatever_order_they_are_listed(site):
    arff, features = table("1,b,0.5\n", {"x": "real", "y": "{a,b}", "z": "real"}, "y")
    site.publish(5, arff, features[::-1])
    dataset = install(site)
    assert dataset.columns(("observation",))["observation",].tolist() == [[1.0, 0.5]]
    assert dataset.manifest.metadata["feature_names"] == ["x", "z"]


def test_labels_of_both_kinds_share_a_column_of_numbers(site):
    arff, features = table("1,b,0.5\n", {"x": "real", "y": "{a,b}", "z": "real"}, "y")
    features[2]["is_target"] = "true"
    site.publish(5, arff, features)
    dataset = install(site)
    assert dataset.columns(("action",))["action",].tolist() == [[1.0, 0.5]]
    assert dataset.manifest.metadata["target_names"] == ["y", "z"]
    assert dataset.manifest.metadata["classes"] == {"y": ["a", "b"]}


def test_openml_s_doubts_and_a_table_without_a_label_are_notes(site):
    arff, features = table("1,2\n", {"x": "real", "y": "real"}, "none")
    site.publish(5, arff, features, status="deactivated", error="Read timed out", warning="Odd.")
    dataset = install(site)
    assert dataset.columns(("action",))["action",].shape == (1, 0)
    assert notes(dataset) == [
        "OpenML marks it as deactivated: problems were found in it",
        "OpenML says: Read timed out",
        "OpenML says: Odd.",
        "the table has no label; the action is empty",
    ]


# Parquet


def test_parquet_alone_needs_a_reader(site, monkeypatch):
    monkeypatch.setattr(openml, "find_spec", lambda name: None)
    site.publish(5, b"PAR1", SMALL[1], url="https://data.openml.org/datasets/0000/0005/x.pq")
    with pytest.raises(UsageError) as caught:
        install(site)
    assert caught.value.id == "openml/5" and "parquet" in str(caught.value.advice)


def test_a_parquet_file_is_asked_for_once_at_each_of_its_addresses(site, monkeypatch):
    monkeypatch.setattr(openml, "find_spec", lambda name: name)
    urls = {
        "url": "https://a.org/x.pq",
        "parquet_url": "https://b.org/x",
        "minio_url": "https://b.org/x",
    }
    site.publish(5, b"PAR1", SMALL[1], **urls)
    (*_, file) = RECIPE.resources("5", Http(site.config))
    assert file.urls == ("https://a.org/x.pq", "https://b.org/x")
    assert (file.magic, dict(file.checksums)) == (b"PAR1", {})


def test_every_value_of_a_parquet_file_is_pyarrow_s(site):
    parquet = pytest.importorskip("pyarrow.parquet")
    path = files.DATA / "openml-python" / "30" / "dataset_30.pq"
    source = parquet.read_table(path)
    kinds = ["nominal" if "dictionary" in str(field.type) else "numeric" for field in source.schema]
    features = [feature(i, name, kinds[i]) for i, name in enumerate(source.column_names)]
    features[-1]["is_target"] = "true"
    url = site.origin.put("data.pq", path.read_bytes())
    site.publish(5, b"", features, url=[], parquet_url=url)
    dataset = install(site)
    columns = [source[name].combine_chunks() for name in source.column_names]
    codes = [c.indices if kind == "nominal" else c for c, kind in zip(columns, kinds, strict=True)]
    right = np.stack([column.to_numpy(zero_copy_only=False).astype(float) for column in codes], 1)
    rows = dataset.columns(())
    same = rows["observation",].numpy().tobytes() == right[:, :-1].tobytes()
    assert same
    assert rows["action",].tolist() == right[:, -1].tolist()
    classes = dataset.manifest.metadata["classes"]["Class_number_of_rings"]
    assert classes == columns[-1].dictionary.to_pylist()


def parquet(site: OpenML, columns: dict[str, Any], kinds: dict[str, Any], **target: Any) -> Dataset:
    """Publish columns as Parquet and install them; the kinds are labels, or None for numbers."""
    write = pytest.importorskip("pyarrow.parquet").write_table
    path = site.config.root.parent / "table.pq"
    write(pytest.importorskip("pyarrow").table(columns), path)
    features = [
        feature(i, name, "numeric" if labels is None else "nominal")
        | ({"nominal_value": labels} if labels else {})
        for i, (name, labels) in enumerate(kinds.items())
    ]
    features[-1] |= {"is_target": "true", **target}
    url = site.origin.put("data.pq", path.read_bytes())
    site.publish(5, b"", features, url=[], parquet_url=url)
    return install(site)


def test_plain_strings_booleans_and_integers_of_parquet_are_labels(site):
    columns = {
        "b": [True, False, None],
        "i": [3, 1, 3],
        "x": [0.5, None, 2.0],
        "y": ["v", "u", "v"],
    }
    kinds = {"b": ["FALSE", "TRUE"], "i": ["1", "2", "3"], "x": None, "y": ["v", "u"]}
    dataset = parquet(site, columns, kinds)
    rows = dataset.columns(())
    nan = float("nan")
    right = torch.tensor([[1, 2, 0.5], [0, 0, nan], [nan, 2, 2.0]], dtype=torch.float64)
    assert torch.allclose(rows["observation",], right, rtol=0, atol=0, equal_nan=True)
    assert (rows["action",].dtype, rows["action",].tolist()) == (torch.int64, [0, 1, 0])
    assert dataset.manifest.metadata["classes"] == {"y": ["v", "u"]}
    assert dataset.manifest.metadata["categories"] == {"b": kinds["b"], "i": kinds["i"]}


@pytest.mark.parametrize(("labels", "classes"), [([], ["u", "v"]), (["v", "u"], ["v", "u"])])
def test_the_labels_of_plain_strings_are_those_that_openml_lists_or_all_of_them(
    labels, classes, site
):
    dataset = parquet(site, {"x": [0.5, 1.0], "y": ["v", "u"]}, {"x": None, "y": labels})
    assert dataset.manifest.metadata["classes"] == {"y": classes}
    action = dataset.columns(("action",))["action",].tolist()
    assert [classes[position] for position in action] == ["v", "u"]


def test_a_plain_string_that_openml_does_not_list_is_refused(site):
    with pytest.raises(SourceError) as caught:
        parquet(site, {"x": [0.5, 1.0], "y": ["v", "u"]}, {"x": None, "y": "u"})
    assert (caught.value.key, caught.value.row, caught.value.found) == ("y", 0, "v")


def test_missing_labels_of_parquet_are_nan(site):
    dataset = parquet(site, {"x": [0.5, 1.0], "y": [True, None]}, {"x": None, "y": []})
    action = dataset.columns(("action",))["action",]
    assert action.isnan().tolist() == [False, True]
    assert notes(dataset)[0] == "labels missing: 1; the action is NaN there"


def test_a_damaged_parquet_file_is_refused(site):
    url = site.origin.put("data.pq", b"PAR1" + bytes(50))
    site.publish(5, b"", SMALL[1], url=[], parquet_url=url)
    with pytest.raises(SourceError) as caught:
        install(site)
    assert caught.value.path == "dataset.pq"


# The catalogue


def test_the_shipped_catalogue_has_torchrl_s_seven_and_more():
    rows = {row.name: row for row in RECIPE.datasets(None)}
    assert files.SCHEMAS.keys() | {"adult", "iris@1"} <= rows.keys()
    assert all(check_id(f"openml/{name}") for name in rows)
    for name, (openml_name, version, _, _) in files.SCHEMAS.items():
        details = rows[name].details
        assert (details["openml_name"], details["version"]) == (openml_name, str(version))
    assert (rows["iris@1"].size, rows["iris@1"].num_transitions) == (7487, 150)


def test_a_refreshed_catalogue_has_every_active_dataset(config: Config):
    def entry(number: int, name: str) -> dict[str, Any]:
        quality = [{"name": "NumberOfInstances", "value": "898.0"}]
        return {"did": number, "name": name, "version": 1, "quality": quality}

    class Pages:
        def json(self, url: str, no_such_data: Any = None) -> Any:
            page = url.removeprefix(f"{api.API}/list/limit/1000/offset/")
            found = {
                "0/status/active": [entry(1, "new"), entry(2, "BNG(a,b)")],
                "2/status/active": {"did": 3, "name": "last", "version": 1},
            }
            if page not in found:
                raise UnknownDataset("No results")
            return {"data": {"dataset": found[page]}}

    root = CacheRoot(config.root)
    assert refresh(RECIPE, root, Pages()) == len(list(RECIPE.datasets(None))) + 3  # type: ignore[arg-type]
    rows = catalogue(RECIPE, root)
    assert rows["new@1"].num_transitions == 898
    assert rows["2"].details["openml_name"] == "BNG(a,b)"
    assert rows["iris@1"].num_transitions == 150


# Files that are not what OpenML says


def test_a_file_of_another_md5_is_refused(site):
    site.publish(5, *SMALL, url=f"{site.origin.url}x.arff", md5_checksum="0" * 32)
    with pytest.raises(IntegrityError) as caught:
        install(site)
    assert caught.value.expected == f"md5 {'0' * 32}"
    assert caught.value.exit_code == 4
    root = CacheRoot(site.config.root)
    assert list(root.installed()) == []
    assert not [*root.path.glob("tmp/*"), *root.downloads("openml/5").glob("*.arff*")]
    right = hashlib.md5(SMALL[0]).hexdigest()  # of the file that was refused
    site.publish(5, *SMALL, url=f"{site.origin.url}x.arff", md5_checksum=right)
    assert len(install(site)) == 2
    assert len(site.origin.log("x.arff")) == 2  # what was refused is not used again


def test_a_file_without_an_md5_is_taken_and_read_with_care(site):
    site.publish(5, b"nothing of the kind", SMALL[1], url=f"{site.origin.url}x", md5_checksum=[])
    with pytest.raises(SourceError) as caught:
        install(site)
    assert (caught.value.path, caught.value.row) == ("dataset.arff", 1)


def with_target(name: str, kind: str) -> tuple[bytes, list[files.Entry]]:
    return table("1,a\n", {"x": "real", "y": kind}, name)


def one_feature_more() -> tuple[bytes, list[files.Entry]]:
    return SMALL[0], [*SMALL[1], feature(2, "z")]


def only_text() -> tuple[bytes, list[files.Entry]]:
    return table("a,b,c\n", {"x": "string", "d": "date", "y": "{c}"}, "y")


def only_labels() -> tuple[bytes, list[files.Entry]]:
    return table("a\n", {"y": "{a}"}, "y")


@pytest.mark.parametrize(
    ("published", "words"),
    [
        (one_feature_more(), "the same dataset: expected 3 columns, found 2"),
        (with_target("y", "string"), "the label 'y' is text; expected classes or numbers"),
        (only_text(), "no feature remains; left out: x, d (text or dates)"),
        (only_labels(), "no feature remains; left out: none, all columns are labels"),
        ((SMALL[0], []), "expected 0 columns, found 2"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused(published, words, site):
    site.publish(5, *published)
    with pytest.raises(SourceError) as caught:
        install(site)
    assert str(caught.value).startswith("openml/5: ")
    assert words in str(caught.value)


def test_a_row_that_is_refused_is_named_by_its_line_and_beginning(site):
    rows = "1,a\n2,b\n" + ",".join("3" * 99) + "\n"
    site.publish(5, *table(rows, {"x": "real", "y": "{a,b}"}, "y"))
    with pytest.raises(SourceError) as caught:
        install(site)
    message = str(caught.value)
    assert f"line 10: expected 2 values, found 99. The line begins: '{'3,' * 30}' " in message
    assert message.startswith("openml/5: dataset.arff, line 10")
    assert message.endswith("report that the recipe does not read them.")


def test_documents_that_are_no_json_are_refused(tmp_path, config: Config):
    (tmp_path / "description.json").write_text('{"data_set_description": {"id": "5"}}')
    (tmp_path / "features.json").write_text("not JSON")
    (tmp_path / "dataset.arff").write_bytes(SMALL[0])
    with pytest.raises(SourceError) as caught:
        install_dataset("openml/5", config, InstallOptions(source=str(tmp_path)))
    assert caught.value.path == "features.json"


def test_documents_that_are_not_openml_s_are_refused(tmp_path, config: Config):
    for name in ("description.json", "features.json"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "dataset.arff").write_bytes(SMALL[0])
    with pytest.raises(SourceError) as caught:
        install_dataset("openml/mine", config, InstallOptions(source=str(tmp_path)))
    assert caught.value.path == "description.json"
