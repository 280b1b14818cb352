"""Which tests run which line: a pytest plugin, for scripts/mutants.

``-p tests.support.covered_lines --covered=FOLDER`` has each process of pytest write a file there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

_ROOMS = ["datasets_cli", "recipes"]
_COVERAGE = coverage.Coverage(data_file=None, source=_ROOMS, config_file=False)
_SECONDS: dict[str, float] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--covered", required=True)


def pytest_configure() -> None:
    _COVERAGE.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _COVERAGE.switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        _COVERAGE.switch_context("")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _SECONDS[report.nodeid] = _SECONDS.get(report.nodeid, 0) + report.duration


def pytest_unconfigure(config: pytest.Config) -> None:
    worker = getattr(config, "workerinput", {"workerid": "gw"})["workerid"]
    if worker == "gw" and config.getoption("numprocesses", None):
        return  # others ran the tests
    _COVERAGE.stop()
    data, tests = _COVERAGE.get_data(), [*_SECONDS]
    number_of = {test: number for number, test in enumerate(tests)}
    files = {
        file: {
            line: [number_of[test] for test in run_by if test in number_of]
            for line, run_by in data.contexts_by_lineno(file).items()
        }
        for file in data.measured_files()
    }
    text = json.dumps({"seconds": _SECONDS, "files": files})
    Path(config.getoption("covered"), f"{worker}.json").write_text(text, encoding="utf-8")
