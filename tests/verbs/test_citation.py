"""Citations and cards: read by parsers of their formats."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from markdown_it import MarkdownIt

import datasets_cli
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import UnknownDataset, UsageError
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.manifest import read_manifest, write_manifest
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


Capture = pytest.CaptureFixture[str]
EVIL = "<script>alert(1)</script> \x1b[2J| [x](javascript:y) `a` ```\n# Not a heading\n- item & 1"


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attributes}

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def evil(config: Config, door: str) -> str:
    """Have a manifest whose texts are commands of terminals, HTML and Markdown."""
    folder = CacheRoot(config.root).dataset(door)
    manifest = read_manifest(folder)
    told = {"notes": [EVIL], "licence": EVIL, "author": EVIL, "title": EVIL}
    changed = {**vars(manifest), "metadata": {**manifest.metadata, **told}, "content": ""}
    write_manifest(folder, type(manifest)(**changed))
    return door


def test_a_card_has_what_is_known_and_says_how_to_load_it(config: Config, door: str) -> None:
    text = str(datasets_cli.dataset_card(door, config=config))
    titles = [line for line in text.splitlines() if line.startswith("#")]
    assert titles == [
        f"# {door}",
        "## Size and origin",
        "## Columns",
        "## Statistics",
        "## Returns and lengths",
        "## Known traps and notes",
        "## Licence and citation",
        "## How to load it",
    ]
    assert f"rlds download {door}" in text and f'ExperienceReplay("{door}", ' in text
    assert "@misc{d4rl/door-human-v0," in text and "Licence: CC BY 4.0." in text
    statistics = datasets_cli.dataset_stats(door, config=config)
    assert f"| {statistics.columns['action']['mean']:.6g} |".replace("-", "-") in text


def test_the_card_of_what_is_not_installed_is_the_catalogues(config: Config) -> None:
    text = str(datasets_cli.dataset_card("hopper-medium-v2", config=config))
    assert text.startswith("# d4rl/hopper-medium-v2\n") and "## Statistics" not in text
    assert "152.8 MB" in text and "not installed" in text


def test_markdown_shows_texts_and_obeys_none(config: Config, door: str) -> None:
    text = str(datasets_cli.dataset_card(evil(config, door), config=config))
    html = MarkdownIt("commonmark").enable("table").render(text)
    page = Page(html)
    assert not {"script", "a", "li", "img", "hr"} & set(page.tags) and "\x1b" not in text
    assert page.tags.count("h1") == 1 and page.tags.count("h2") == 7
    shown = " ".join("".join(page.texts).split())
    assert "<script>alert(1)</script> \\x1b[2J| [x](javascript:y) `a` ``` # Not a heading" in shown
    rows = html.partition("Statistics")[2].partition("</table>")[0].count("<tr>")
    assert rows == 1 + len(datasets_cli.dataset_stats(door, config=config).columns)


def test_the_card_for_hugging_face_begins_with_yaml(config: Config, door: str) -> None:
    text = str(datasets_cli.dataset_card(door, format="hf", config=config))
    _, head, rest = text.split("---\n", 2)
    known = yaml.safe_load(head)
    assert known["license"] == "cc-by-4.0" and known["size_categories"] == ["1K<n<10K"]
    assert known["task_categories"] == ["reinforcement-learning"] and "d4rl" in known["tags"]
    assert rest.strip().startswith(f"# {door}")
    hostile = str(datasets_cli.dataset_card(evil(config, door), format="hf", config=config))
    known = yaml.safe_load(hostile.split("---\n", 2)[1])
    assert known["license"] == "other" and "alert(1)" in known["license_name"]


@pytest.mark.parametrize("format", ["md", "hf"])
def test_a_terminal_gets_no_escape_sequence(
    format: str, config: Config, door: str, capsys: Capture
) -> None:
    assert main(["card", evil(config, door), "--format", format]) == 0
    assert "\x1b" not in capsys.readouterr().out
    assert main(["card", door, "--format", format, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["format"] == format


def test_cards_of_derived_data_and_of_frames(config: Config, tmp_path: Path) -> None:
    datasets_cli.download("demo/pong", config=config)
    assert main(["preprocess", "demo/pong", "--max-trajectories", "1", "--name", "p", "-q"]) == 0
    text = str(datasets_cli.dataset_card("derived/p", config=config))
    assert "Derived from demo/pong" in text and "by channel" in text
    assert "rlds download derived" not in text


def test_an_unknown_format_is_refused(config: Config, capsys: Capture) -> None:
    with pytest.raises(UsageError):
        datasets_cli.dataset_card("demo/iris", format="html", config=config)
    assert main(["card", "demo/iris", "--format", "pdf"]) == 2
    assert "'pdf' is not one of" in capsys.readouterr().err
    with pytest.raises(UnknownDataset):
        datasets_cli.dataset_card("nosuch", config=config)
