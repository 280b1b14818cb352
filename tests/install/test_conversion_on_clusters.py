"""Conversion by Dask and by Ray: the same files as here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import datasets_cli
from datasets_cli.config import Config
from datasets_cli.core.progress import silent
from tests.install.test_side_by_side import BERKELEY, IDS, digest, published
from tests.support.clusters import DaskCluster, ray_cluster
from tests.support.origin import Origin


@pytest.fixture
def config(config: Config, tmp_path: Path) -> Iterator[Config]:
    with Origin() as origin:
        published(origin, tmp_path)
        yield replace(config, mirrors=((BERKELEY, origin.url),))


@pytest.mark.slow
def test_clusters_give_the_same_files(config: Config, tmp_path: Path) -> None:
    digests = {}
    with DaskCluster(tmp_path) as dask, ray_cluster():
        engines: dict[str, dict[str, Any]] = {
            "here": {},
            "dask": {"engine": "dask", "address": dask.address},
            "ray": {"engine": "ray"},
        }
        for name, engine in engines.items():
            there = replace(config, root=tmp_path / name)
            datasets_cli.download(IDS, verify=False, progress=silent, config=there, **engine)
            digests[name] = digest(there.root)
            assert not any((there.root / "tmp").iterdir())
    assert digests["here"] == digests["dask"] == digests["ray"]
