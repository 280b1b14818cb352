"""Who works: what is refused before anything starts, in words that say what to do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from datasets_cli.cli.main import main
from datasets_cli.errors import RldsError, UsageError, install_extra
from datasets_cli.parallel import dask_cluster, engine
from datasets_cli.parallel.engine import Workers

WRONG: list[tuple[dict[str, Any], str, object]] = [
    ({"engine": "spark"}, "engine", "spark"),
    ({"engine": "dask"}, "address", None),
    ({"address": "tcp://host:1"}, "address", "tcp://host:1"),
    ({"num_workers": -1}, "num_workers", -1),
    ({"num_workers": "2"}, "num_workers", "2"),
    ({"executor": "dask"}, "executor", "str"),
    ({"engine": "dask", "address": 8786}, "address", 8786),
    ({"engine": "ray", "executor": ThreadPoolExecutor(1)}, "executor", None),
]


@pytest.mark.parametrize(("arguments", "name", "found"), WRONG)
def test_workers_that_cannot_be_are_refused(
    arguments: dict[str, Any], name: str, found: object
) -> None:
    with pytest.raises(UsageError) as caught:
        Workers(**arguments)
    assert (caught.value.argument, caught.value.found) == (name, found)


@pytest.mark.parametrize(("name", "address"), [("dask", "tcp://host:1"), ("ray", None)])
def test_an_engine_that_is_not_installed_says_what_to_install(
    name: Any, address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "find_spec", lambda name: None)
    with pytest.raises(UsageError) as caught:
        Workers(engine=name, address=address)
    assert caught.value.advice == install_extra(name)


@pytest.mark.parametrize(
    ("name", "address"), [("dask", "tcp://127.0.0.1:9"), ("ray", "127.0.0.1:9")]
)
def test_a_cluster_that_does_not_answer_is_an_error_within_its_time(
    name: Any, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_cluster, "CONNECT_SECONDS", 0.3)
    with pytest.raises(RldsError) as caught, Workers(engine=name, address=address).pool():
        pass
    assert caught.value.found == address and isinstance(caught.value.__cause__, OSError)


def test_the_command_line_passes_the_engine_on(
    door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dask_cluster, "CONNECT_SECONDS", 0.3)
    (tmp_path / "same_rows.py").write_text("def same(batch):\n    return batch\n")
    call = ["preprocess", door, "--fn", "same_rows:same", "--name", "x", "--engine", "dask"]
    assert main([*call, "--address", "tcp://127.0.0.1:9"]) == 1
    assert "tcp://127.0.0.1:9" in capsys.readouterr().err
    assert main(call) == 2
    assert "needs the address" in capsys.readouterr().err
    assert main([*call, "--workers", "2"]) == 2
    assert "Omit --workers or --engine" in capsys.readouterr().err
