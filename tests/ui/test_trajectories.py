"""The table of trajectories and the page of one, against the rows that were written."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image
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

SHOWN = "/api/d/test/shown/trajectories"
FRAMES = np.random.default_rng(0).integers(0, 256, (14, 40, 30), np.uint8)
STACKS = np.random.default_rng(1).integers(0, 256, (14, 4, 40, 30), np.uint8)
HOSTILE = "</script><script>alert(1)</script>"


@pytest.fixture
def client(config: Config) -> TestClient:
    rows = rows_of(0, LENGTHS) | {("next", "reward"): REWARDS}
    write(config.root / "datasets" / "test" / "four", rows, "ted")
    shown = rows_of(0, LENGTHS) | {
        ("pixels",): FRAMES,
        ("stacks",): STACKS,
        ("observation",): np.arange(42, dtype=np.float32).reshape(14, 3),
        (HOSTILE,): np.zeros((14, 1), np.float32),
        ("wide",): np.zeros((14, 100), np.float32),
    }
    write(config.root / "datasets" / "test" / "shown", shown, "ted")
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
        "num_transitions": [*LENGTHS],
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
    assert [*columns(client, "")] == ["number", "start", "length", "num_transitions"]
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


def given(client: TestClient, address: str) -> Any:
    answer = client.get(address)
    assert answer.status_code == 200, answer.text
    return answer.json()


def data_of(page: str) -> Any:
    return json.loads(page.partition('id="page-data">')[2].partition("</script>")[0])


def test_curves_are_the_numbers_of_the_trajectory(client: TestClient) -> None:
    curves = given(client, f"{SHOWN}/2/curves?columns=observation,next.reward&start=1&stop=3")
    assert (curves["length"], curves["start"], curves["stop"]) == (6, 1, 3)
    assert curves["columns"]["observation"][1]["values"] == [3 * 6 + 1, 3 * 7 + 1]
    assert curves["columns"]["next.reward"] == [
        {"name": "next.reward", "steps": [1, 2], "values": [3.0, 3.5]}
    ]


def test_steps_are_those_of_peek(client: TestClient, config: Config) -> None:
    steps = given(client, f"{SHOWN}/2/steps?start=4&count=10")
    names = [".".join(each["key"]) for each in steps["columns"]]
    peeked = datasets_cli.peek("test/shown", trajectory=2, start=4, n=10, columns=names)
    assert steps == {"first": 4, **peeked.to_json()}
    assert len(steps["trajectories"]) == 2
    assert not {"wide", "pixels", "stacks"} & {*names}


def test_a_frame_is_the_one_of_its_step_bit_for_bit(client: TestClient) -> None:
    answer = client.get(f"{SHOWN}/2/frames/3.png")
    assert answer.headers["content-type"] == "image/png"
    with Image.open(BytesIO(answer.content)) as image:
        np.testing.assert_array_equal(np.asarray(image), FRAMES[4 + 1 + 3])


def test_of_a_stack_of_frames_the_last_is_shown(client: TestClient) -> None:
    answer = client.get(f"{SHOWN}/1/frames/0.png?column=stacks")
    with Image.open(BytesIO(answer.content)) as image:
        np.testing.assert_array_equal(np.asarray(image), STACKS[4, 3])


@pytest.mark.parametrize(
    ("address", "error"),
    [
        ("/9/curves", "OutOfRange"),
        ("/2/curves?columns=nothing", "UnknownKey"),
        ("/2/steps?start=6", "OutOfRange"),
        ("/2/frames/6.png", "OutOfRange"),
        ("/2/frames/0.png?column=observation", "UnknownKey"),
        ("/2/frames/0.png?column=../../etc/passwd", "UnknownKey"),
    ],
)
def test_an_unknown_part_of_a_trajectory_is_refused(
    address: str, error: str, client: TestClient
) -> None:
    answer = client.get(SHOWN + address)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, error)


def test_a_page_brings_its_first_curves_and_values(client: TestClient) -> None:
    data = data_of(client.get("/d/test/shown/trajectories/2?t=5").text)
    assert (data["step"], data["frames"], data["ends"]) == (5, ["pixels", "stacks"], ["terminated"])
    assert data["columns"] == ["next.reward", "action", "observation"]
    assert data["curves"]["columns"]["action"][0]["values"] == [-5.0, -6, -7, -8, -9, -10]
    assert data["steps"]["first"] == 0


def test_the_columns_of_an_address_are_those_with_curves(client: TestClient) -> None:
    page = client.get("/d/test/shown/trajectories/0?columns=mark&columns=action").text
    assert data_of(page)["columns"] == ["mark", "action"]
    assert '<input type="checkbox" name="columns" value="mark" checked>' in page


def test_pages_lead_to_those_before_and_after(client: TestClient) -> None:
    first, last = (client.get(f"/d/test/shown/trajectories/{each}").text for each in (0, 3))
    assert 'trajectories/1" rel="next"' in first and 'rel="prev"' not in first
    assert 'trajectories/2" rel="prev"' in last and 'rel="next"' not in last


def test_names_of_a_publisher_are_text(client: TestClient) -> None:
    page = client.get("/d/test/shown/trajectories/0").text
    assert HOSTILE not in page and "alert(1)" in page
    assert any(each["key"] == [HOSTILE] for each in data_of(page)["steps"]["columns"])
