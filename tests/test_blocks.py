"""A block of a page that is not executed is of a kind that is checked otherwise."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

import datasets_cli
from datasets_cli.cli.main import app
from datasets_cli.config import Config
from datasets_cli.core.progress import File, Note, Rows
from datasets_cli.core.progress_display import JsonLines
from tests.support.paths import PROJECT

ROOT: Any = get_command(app)
PAGES = [PROJECT / "README.md", PROJECT / "SKILL.md", *sorted((PROJECT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^( *)```(\{?\w*\}?)[^\n]*\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)

OTHERS = ("cd ", "make ", "pip install ", "python -m venv ", "ray start ", "source ")
"""What a line of ``bash`` begins with that is not a command of ours."""

TEXTS = {
    "docs/architecture.md": 1,  # a drawing; its folders are looked for below
    "docs/command-line.md": 1,  # lines of a download: test_progress.py
    "docs/format.md": 8,  # trees and drawings; their files are looked for below
    "docs/look.md": 1,  # a plot as wide as a terminal: test_docs.py
    "docs/page.md": 1,  # a program that waits: ui/test_export.py
}
"""How many blocks of ``text`` a page has, which no script wrote."""


def blocks(kind: str) -> Iterator[tuple[str, str]]:
    """Yield page and text of each block of a kind."""
    for page in PAGES:
        for match in FENCE.finditer(page.read_text(encoding="utf-8")):
            if match[2] == kind:
                yield page.relative_to(PROJECT).as_posix(), match[3]


def test_every_block_is_of_a_kind_that_is_checked() -> None:
    kinds = {match[2] for page in PAGES for match in FENCE.finditer(page.read_text())}
    assert kinds == {"python", "console", "bash", "toml", "json", "text", "{toctree}"}
    texts = Counter(page for page, _ in blocks("text"))
    for page in PAGES:
        name = page.relative_to(PROJECT).as_posix()
        texts[name] -= page.read_text(encoding="utf-8").count("\nRecorded on ")
    del texts["docs/commands.md"]  # `make lint` compares it with what the commands say
    assert +texts == TEXTS


def commands() -> Iterator[tuple[str, str]]:
    """Yield page and line of each command, in blocks of ``bash`` and in sentences."""
    for page, text in blocks("bash"):
        yield from ((page, line) for line in text.replace("\\\n", "").splitlines())
    for page in PAGES:
        text = FENCE.sub("", page.read_text(encoding="utf-8"))
        for span in re.findall(r"`(rlds [^`]+)`", text):
            yield page.relative_to(PROJECT).as_posix(), " ".join(span.split())


def unknown(line: str) -> list[str]:
    """Return the words of a line that are no command and no option of one."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words, found = [*lexer], []
    while "rlds" in words:
        words = words[words.index("rlds") + 1 :]
        names = [" ".join(words[:2]), *words[:1]]
        name = next((name for name in names if name in ROOT.commands), "")
        parameters = [*ROOT.params, *(ROOT.commands[name].params if name else ())]
        known = {"--help", *(each for one in parameters for each in one.opts + one.secondary_opts)}
        own = words[: words.index("|")] if "|" in words else words
        options = [
            word
            for before, word in zip(["", *own], own, strict=False)
            if word[:1] == "-" and before != "--sort"  # --sort -size: a value
        ]
        found += [word for word in options if word.partition("=")[0] not in known]
        found += [] if name or not words or words[0][0] == "-" else words[:1]
    return [word for word in found if word not in ("-", "COMMAND")]


def test_every_command_that_a_page_names_is_one_with_these_options() -> None:
    lines = [*commands()]
    assert [(page, line) for page, line in lines if unknown(line)] == []
    assert len(lines) > 200
    ours = ("rlds", *OTHERS)
    others = [line for page, text in blocks("bash") for line in text.splitlines()]
    assert [line for line in others if not line.startswith(ours)] == []


def test_every_option_in_a_sentence_is_one_of_a_command() -> None:
    commands = [ROOT, *(ROOT.commands[name] for name in ROOT.commands)]
    known = {each for one in commands for param in one.params for each in param.opts}
    known |= set(re.findall(r'"(--[a-z]+)"', (PROJECT / "scripts" / "mutants").read_text()))
    for example in (PROJECT / "examples").glob("*.py"):  # their options are fields
        fields = re.findall(r"^    (\w+): ", example.read_text(), re.M)
        known |= {f"--{prefix}{name}" for name in fields for prefix in ("", "no-")}
    for page in PAGES:
        text = FENCE.sub("", page.read_text(encoding="utf-8"))
        named = {word for span in re.findall(r"`(--[a-z][^`]*)`", text) for word in span.split()}
        options = {word.partition("=")[0].rstrip(",") for word in named if word[:2] == "--"}
        assert options <= known | {"--help"}, page.name


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("rlds list --instaled 'hopper-* | --x'", ["--instaled"]),
        ("rlds list -q | rlds verfy - --deep", ["verfy", "--deep"]),
        ("rlds config --json  # --not", []),
    ],
)
def test_a_command_or_an_option_that_is_none_is_found(line: str, words: list[str]) -> None:
    assert sorted(unknown(line)) == sorted(words)


def test_every_block_of_toml_is_that() -> None:
    assert all(tomllib.loads(text) for _, text in blocks("toml"))


def test_the_events_of_the_page_have_the_keys_that_are_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = JsonLines()
    for event in (File("d4rl/x", "a", 0, 10), Rows("d4rl/x", 10, 10), Note("a note")):
        lines(event)
    printed = [[*json.loads(line)] for line in capsys.readouterr().err.splitlines()]
    ((_, text),) = blocks("json")
    assert printed == [[*json.loads(line)] for line in text.splitlines()]


def test_the_table_of_families_counts_what_the_catalogue_has(config: Config) -> None:
    readme = (PROJECT / "README.md").read_text(encoding="utf-8")
    table = readme.partition("\n## Families\n")[2].partition("\n## ")[0]
    shown = {name: int(count) for name, count in re.findall(r"^\| `(\w+)` \| (\d+)", table, re.M)}
    records = datasets_cli.list_datasets(root=config.root)
    assert shown == Counter(each.id.partition("/")[0] for each in records)


def test_the_trees_of_the_format_name_the_files_of_a_dataset(door: str, config: Config) -> None:
    trees = "".join(text for page, text in blocks("text") if page == "docs/format.md")
    named = set(re.findall(r"(?<![\w/>])[a-z/]+\.(?:json|npy|memmap|zst)\b", trees))
    there = set()
    for id in (door, "demo/pong"):
        datasets_cli.download(id, root=config.root)
        folder = datasets_cli.dataset_path(id, root=config.root).path
        there |= {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    elsewhere = {"text/observation/mission.memmap", "part.json", "plan.json"}
    assert named - there == elsewhere and len(named & there) == 25
