"""OpenML on loopback: captured answers of its API, and small tables in its publisher's format."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen
from xml.etree import ElementTree

import numpy as np
import pytest

from datasets_cli.config import Config, load_config
from tests.support.origin import Fault, Origin
from tests.support.paths import TEST_DATA

DATA = TEST_DATA / "openml"
SITE = "https://www.openml.org/"
NOT_ITS_OWN = 40981  # whose captured description is that of 292
CAPTURED = sorted(
    number
    for path in DATA.glob("id_*/api-v1-jd-*.json.gz")
    if (number := int(path.name.split("-")[-1].removesuffix(".json.gz"))) != NOT_ITS_OWN
)
API = "api/v1/json/data"

Entry = dict[str, Any]


class OpenML:
    """A server that answers as OpenML does."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin

    @property
    def config(self) -> Config:
        hosts = ("https://www.openml.org/", "https://api.openml.org/")
        return load_config(mirrors=[f"{host}={self.origin.url}" for host in hosts])

    def page(self, path: str, document: Any) -> None:
        self.origin.put(f"{API}/{path}", json.dumps(document).encode())

    def no_such(self, path: str, message: str = "No results") -> None:
        body = json.dumps({"error": {"code": "372", "message": message}}).encode()
        self.origin.always(f"{API}/{path}", Fault(status=412, body=body))

    def list(self, filters: str, *entries: Entry) -> None:
        self.page(f"list/{filters}", {"data": {"dataset": list(entries)}})

    def publish(
        self, data_id: int, arff: bytes, features: Sequence[Entry], **description: Any
    ) -> Entry:
        url = f"{SITE}data/v1/download/{data_id}/file.arff"
        stated = {
            "id": str(data_id),
            "name": "mine",
            "version": "1",
            "description": "",
            "format": "ARFF",
            "licence": "CC0",
            "status": "active",
            "url": url,
            "md5_checksum": hashlib.md5(arff).hexdigest(),
            **description,
        }
        self.page(str(data_id), {"data_set_description": stated})
        self.page(f"features/{data_id}", {"data_features": {"feature": features}})
        self.page(f"qualities/{data_id}", {})
        if stated["url"]:
            self.origin.put(urlsplit(stated["url"]).path[1:], arff)
        return stated

    def named(self, name: str, version: int, data_id: int) -> None:
        """Let a search for one version of a name find a dataset."""
        entry = {"did": data_id, "name": name, "version": version, "status": "active"}
        self.list(f"data_name/{name.lower()}/limit/2/data_version/{version}", entry)

    def captured(self, data_id: int) -> None:
        (description,) = DATA.glob(f"id_*/api-v1-jd-{data_id}.json.gz")
        folder = description.parent
        served = {"": "jd", "features/": "jdf", "qualities/": "jdq"}
        for kind, name in served.items():
            path = folder / f"api-v1-{name}-{data_id}.json.gz"
            if path.exists():
                self.origin.put(f"{API}/{kind}{data_id}", gzip.decompress(path.read_bytes()))
        (file,) = folder.glob("data-v1-dl-*.arff.gz")
        url = json.loads(gzip.decompress(description.read_bytes()))["data_set_description"]["url"]
        self.origin.put(urlsplit(url).path[1:], gzip.decompress(file.read_bytes()))


@contextmanager
def sklearn_reads(origin: Origin) -> Iterator[None]:
    """Let ``fetch_openml`` ask this server instead of OpenML's."""

    def opened(request: Any) -> Any:
        assert urlsplit(request.full_url).hostname == "www.openml.org"
        return urlopen(origin.url + urlsplit(request.full_url).path[1:])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sklearn.datasets._openml.urlopen", opened)
        yield


def feature(index: int, name: str, data_type: str = "numeric", **marks: Any) -> Entry:
    """Return a column as the API lists it: all flags are texts."""
    flags = dict.fromkeys(("is_target", "is_ignore", "is_row_identifier"), "false")
    entry = {"index": str(index), "name": name, "data_type": data_type, **flags}
    return entry | {"number_of_missing_values": "0"} | marks


def header(columns: Mapping[str, str]) -> str:
    lines = [f"@attribute '{name}' {kind}" for name, kind in columns.items()]
    return "\n".join(["% a comment", "@RELATION 'some table'", "", *lines, "", "@DATA", ""])


def table(rows: str, columns: Mapping[str, str], target: str) -> tuple[bytes, list[Entry]]:
    """Return an ARFF file and its features; one of them is the label."""
    kinds = {name: "nominal" if kind[0] == "{" else kind for name, kind in columns.items()}
    features = [feature(index, *item) for index, item in enumerate(kinds.items())]
    for entry in features:
        entry["is_target"] = str(entry["name"] == target).lower()
    return (header(columns) + rows).encode(), features


# Real files of which openml-python kept the XML, or nothing, beside the data.


def anneal() -> tuple[bytes, list[Entry]]:
    """Return all 898 rows of anneal, and its features as the JSON API would list them."""
    folder = DATA / "openml-python" / "2"
    root = ElementTree.fromstring(gzip.decompress((folder / "features.xml.gz").read_bytes()))
    features = []
    for element in root:
        entry: Entry = {}
        for field in element:
            key = field.tag.rpartition("}")[2]
            if key == "nominal_value":
                entry.setdefault(key, []).append(field.text)
            else:
                entry[key] = field.text
        features.append(entry)
    return gzip.decompress((folder / "dataset.arff.gz").read_bytes()), features


def dexter() -> tuple[bytes, list[Entry]]:
    data = (DATA / "openml-python" / "minus1" / "dataset.arff.gz").read_bytes()
    arff = gzip.decompress(data)
    names = re.findall(r"^@attribute (\S+)", arff.decode(), re.MULTILINE)
    features = [feature(index, name) for index, name in enumerate(names[:-1])]
    marks = {"is_target": "true", "nominal_value": ["-1", "1"]}
    return arff, [*features, feature(len(features), names[-1], "nominal", **marks)]


# Tables of the schema of those that TorchRL names: columns as OpenML has them, random rows.

ADULT = {
    "age": 5, "workclass": 8, "fnlwgt": None, "education": 16, "education-num": None,
    "marital-status": 7, "occupation": 14, "relationship": 6, "race": 5, "sex": 2,
    "capitalgain": 5, "capitalloss": 5, "hoursperweek": 5, "native-country": 41, "class": 2,
}  # fmt: skip
MUSHROOM = {f"property-{index}": 2 + index % 9 for index in range(21)} | {
    "veil-type": 1,
    "class": 2,
}
COVERTYPE = {
    **dict.fromkeys(("Elevation", "Aspect", "Slope", "Horizontal_Distance")),
    **{f"wilderness_area{index}": "01" for index in range(4)},
    **{f"soil_type_{index}": "01" for index in range(40)},
    "class": 7,
}
SHUTTLE = {f"A{index}": None for index in range(1, 10)} | {"class": 7}
MAGIC = {f"f{name}:": None for name in ("Length", "Width", "Size", "Conc")} | {"class:": 2}
SCHEMAS: dict[str, tuple[str, int, dict[str, Any], float]] = {
    "adult_num": ("adult", 1, ADULT, 0.02),
    "adult_onehot": ("adult", 1, ADULT, 0.02),
    "mushroom_num": ("mushroom", 1, MUSHROOM, 0.02),
    "mushroom_onehot": ("mushroom", 1, MUSHROOM, 0.02),
    "covertype": ("covertype", 3, COVERTYPE, 0.0),
    "shuttle": ("shuttle", 1, SHUTTLE, 0.0),
    "magic": ("MagicTelescope", 1, MAGIC, 0.0),
}
"""``{TorchRL's name: (OpenML's name, version, {column: number of labels}, share missing)}``"""

DATA_IDS = {"shuttle": 40685, "magic": 1120}
"""Those of them whose ids are known."""


def publish_schema(site: OpenML, name: str, num_rows: int = 300) -> dict[str, list[str]]:
    """Publish a random table of the schema of one of TorchRL's names; return its columns."""
    openml_name, version, schema, missing = SCHEMAS[name]
    rng = np.random.default_rng(7)
    columns, cells = {}, []
    for column, kind in schema.items():
        values, columns[column] = _column(rng, column, kind, num_rows)
        if column not in ("class", "class:"):
            values = [v if rng.random() >= missing else "?" for v in values]
        cells.append(values)
    rows = "\n".join(",".join(row) for row in zip(*cells, strict=True))
    arff, features = table(rows, columns, next(reversed(schema)))
    number = DATA_IDS.get(name, 5)
    site.publish(number, arff, features, name=openml_name, version=str(version))
    site.named(openml_name, version, number)
    return dict(zip(schema, cells, strict=True))


def _column(
    rng: np.random.Generator, name: str, kind: int | str | None, num_rows: int
) -> tuple[list[str], str]:
    if kind is None:
        return [repr(value) for value in (1e3 * rng.standard_normal(num_rows)).tolist()], "REAL"
    digits = kind == "01" or name in ("age", "capitalgain", "capitalloss", "hoursperweek")
    count = 2 if kind == "01" else int(kind)
    labels = [str(code) if digits else f"{name[:3]}-{code}" for code in range(count)]
    declared = list(rng.permutation(labels))
    return list(rng.choice(labels, num_rows)), f"{{{', '.join(declared)}}}"
