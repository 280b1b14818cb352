"""How datasets are cited, against what the publishers and the manifests say."""

from __future__ import annotations

import pytest

import datasets_cli
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.verbs.cite import _escaped

PAPERS = {
    "d4rl/hopper-medium-v2": ["fu2020d4rl"],
    "minari/D4RL/door/human-v2": ["younis2024minari", "fu2020d4rl"],
    "minari/mujoco/hopper/expert-v0": ["younis2024minari"],
    "openml/adult": ["vanschoren2014openml"],
    "atari_dqn/Pong/5": ["agarwal2020optimistic"],
    "atari_dqn/Pong/5~unplugged": ["agarwal2020optimistic", "gulcehre2020rlunplugged"],
    "demo/door-minari": ["younis2024minari", "fu2020d4rl"],
}


@pytest.mark.parametrize("id", PAPERS)
def test_a_dataset_is_cited_with_the_papers_of_its_publisher(config: Config, id: str) -> None:
    keys = list(datasets_cli.cite(id, config=config).entries)
    assert keys == [id.replace("~", "-"), *PAPERS[id]]


def test_an_installed_dataset_is_cited_by_its_content(config: Config, door: str) -> None:
    content = datasets_cli.dataset_info(door, config=config).to_json()["content"]
    citation = datasets_cli.cite(door, config=config)
    assert f"Content {content}" in citation.entries[door]


def test_derived_data_are_cited_with_their_parents_and_the_papers(
    config: Config, door: str
) -> None:
    assert main(["preprocess", door, "--cast", "float32", "--name", "small", "-q"]) == 0
    citation = datasets_cli.cite("derived/small", config=config)
    assert list(citation.entries) == ["derived/small", door, "fu2020d4rl"]
    assert f"Derived from {door}" in str(citation)


def test_of_several_datasets_each_paper_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cite", "hopper-medium-v2", "hopper-expert-v2"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("@misc{d4rl/hopper") == 2 and printed.count("@misc{fu2020d4rl") == 1
    assert printed.count("{") == printed.count("}")


def test_what_latex_takes_for_a_command_is_escaped() -> None:
    assert _escaped("a_b & 5%\n~c\\") == r"a\_b \& 5\% \textasciitilde{}c\textbackslash{}"
