"""The table of trajectories, against the lengths and rewards that rows were written with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import datasets_cli
from datasets_cli.config import Config
from datasets_cli.ui import application as trajectories
from datasets_cli.ui.application import application
from datasets_cli.ui.local_page import LocalPage
from datasets_cli.verbs.trajectories import list_trajectories
from tests.support.mixture_members import rows_of, write

LENGTHS = (4, 1, 6, 3)
REWARDS = np.array([2, 0, 0, 0, np.nan, 1, 1, 1, 1, 1, 1, 2, 2, 0], np.float32)[:, None]
RETURNS = [2.0, None, 6.0, 4.0]
API = "/api/d/test/four/trajectories"


@pytest.fixture
def client(config: Config) -> TestClient:
    rows = rows_of(0, LENGTHS) | {("next", "reward"): REWARDS}
    write(config.root / "datasets" / "test" / "four", rows, "ted")
    return TestClient(application(LocalPage.of(config)), "http://127.0.0.1")


def columns(client: TestClient, query: str) -> dict[str, list[Any]]:
    answer = client.get(f"{API}?{query}")
    assert answer.status_code == 200, answer.text
    found: dict[str, list[Any]] = answer.json()["columns"]
    return found


def test_all_columns_of_all_trajectories_are_those_that_were_written(client: TestClient) -> None:
    assert columns(client, "") == {
        "number": [0, 1, 2, 3],
        "start": [0, 4, 5, 11],
        "length": [*LENGTHS],
        "return": RETURNS,
        "terminated": [True] * 4,
        "truncated": [False] * 4,
    }


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ("sort=length", [1, 3, 0, 2]),
        ("sort=-length", [2, 0, 3, 1]),
        ("sort=return", [0, 3, 2, 1]),
        ("sort=-return", [2, 3, 0, 1]),
        ("sort=-terminated", [0, 1, 2, 3]),
        ("sort=-number&start=1&count=2", [2, 1]),
        ("start=4", []),
    ],
)
def test_rows_are_sorted_on_the_server_and_nan_comes_last(
    query: str, numbers: list[int], client: TestClient
) -> None:
    assert columns(client, query)["number"] == numbers


def test_the_answer_is_that_of_the_verb(client: TestClient, config: Config) -> None:
    listed = list_trajectories("test/four", sort="-return", n=3, config=config)
    assert client.get(f"{API}?sort=-return&count=3").json() == listed.to_json()


def test_an_answer_has_at_most_500_rows(config: Config) -> None:
    write(config.root / "datasets" / "test" / "many", rows_of(0, [1] * 700), "ted")
    client = TestClient(application(LocalPage.of(config)), "http://127.0.0.1")
    answer = client.get("/api/d/test/many/trajectories?count=1000000000").json()
    assert (answer["num_trajectories"], len(answer["columns"]["number"])) == (700, 500)


def test_returns_of_many_rows_are_told_once_statistics_are_kept(
    client: TestClient, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trajectories, "QUICK_ROWS", 13)
    assert [*columns(client, "")] == ["number", "start", "length"]
    page = client.get("/d/test/four/trajectories").text
    assert "Not known yet: return, terminated, truncated. Run: rlds stats test/four" in page
    datasets_cli.dataset_stats("test/four", config=config)
    assert columns(client, "sort=return")["number"] == [0, 3, 2, 1]
    assert "Not known yet" not in client.get("/d/test/four/trajectories").text


@pytest.mark.parametrize("query", ["sort=nothing", "start=-1", "count=ten", "start=1" + "0" * 400])
def test_what_cannot_be_read_is_refused_in_a_sentence(query: str, client: TestClient) -> None:
    answer = client.get(f"{API}?{query}")
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "UsageError")


def test_the_page_has_rows_links_and_orders_without_a_script(client: TestClient) -> None:
    page = client.get("/d/test/four/trajectories?sort=length").text
    places = [page.index(f'href="/d/test/four/trajectories/{number}"') for number in (1, 3, 0, 2)]
    assert places == sorted(places)
    assert 'aria-sort="ascending"' in page
    assert 'href="?sort=-length"' in page
