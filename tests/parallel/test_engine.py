"""Who works: what is refused before anything starts, in words that say what to do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from datasets_cli.cli.main import main
from datasets_cli.errors import RldsError, UsageError
from datasets_cli.parallel import dask_cluster, engine
from datasets_cli.parallel.engine import Workers

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"engine": "spark"}, r'"local", "dask" or "ray", not \'spark\''),
    ({"engine": "dask"}, "needs the address of a scheduler"),
    ({"address": "tcp://host:1"}, "is the address of a cluster, and the engine is local"),
    ({"engine": "dask"}, 'address="tcp://host:8786"\\. For processes'),
    ({"num_workers": -1}, "num_workers is -1; expected 0 or more"),
    ({"num_workers": "2"}, "num_workers is '2'; expected a whole number"),
    ({"executor": "dask"}, "executor is a concurrent.futures.Executor, .* not str"),
    ({"engine": "dask", "address": 8786}, "address is 8786; expected text"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_workers_that_cannot_be_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Workers(**arguments)


def test_an_executor_and_an_engine_exclude_one_another() -> None:
    with ThreadPoolExecutor(1) as pool, pytest.raises(UsageError, match="not both"):
        Workers(executor=pool, engine="ray")


@pytest.mark.parametrize(("name", "address"), [("dask", "tcp://host:1"), ("ray", None)])
def test_an_engine_that_is_not_installed_says_what_to_install(
    name: Any, address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=rf'pip install "rlds-cli\[{name}\]"'):
        Workers(engine=name, address=address)


def test_a_scheduler_that_is_not_there_is_an_error_within_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dask_cluster, "CONNECT_SECONDS", 0.3)
    workers = Workers(engine="dask", address="tcp://127.0.0.1:9")
    message = "no scheduler of Dask at tcp://127.0.0.1:9 .*`dask scheduler` starts one"
    with pytest.raises(RldsError, match=message), workers.pool():
        pass


def test_a_ray_cluster_that_is_not_there_is_an_error_at_once() -> None:
    workers = Workers(engine="ray", address="127.0.0.1:9")
    with pytest.raises(RldsError, match=r"no Ray cluster at \S+:9 .*refused"), workers.pool():
        pass


def test_the_command_line_passes_the_engine_on(
    door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dask_cluster, "CONNECT_SECONDS", 0.3)
    (tmp_path / "same_rows.py").write_text("def same(batch):\n    return batch\n")
    call = ["preprocess", door, "--fn", "same_rows:same", "--out", "x", "--engine", "dask"]
    assert main([*call, "--address", "tcp://127.0.0.1:9"]) == 1
    assert "no scheduler of Dask at tcp://127.0.0.1:9" in capsys.readouterr().err
    assert main(call) == 2
    assert "needs the address" in capsys.readouterr().err
    assert main([*call, "--workers", "2"]) == 2
    assert "Leave out --workers or --engine" in capsys.readouterr().err
