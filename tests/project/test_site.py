"""The site of the pages: built without a network, searched, and refused where a page is wrong."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from sphinx.search.en import SearchEnglish

from tests.support import public_names
from tests.support.paths import PROJECT

pytestmark = pytest.mark.slow


class Site(NamedTuple):
    folder: Path
    code: int
    said: str


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The site of a copy in which one link, one anchor and one name are broken."""
    copy = tmp_path_factory.mktemp("site")
    for name in ("docs", "benchmarks"):
        shutil.copytree(PROJECT / name, copy / name)
    for name in ("datasets_cli", "recipes", "tests", "examples", "scripts"):
        (copy / name).symlink_to(PROJECT / name)
    for page in PROJECT.glob("*.md"):
        shutil.copy(page, copy)
    for page, line in {
        "replay.md": "[gone](views.md#no-such-heading)",
        "views.md": "[gone](no-such-page.md)",
        "goals.md": "{py:class}`datasets_cli.NoSuchSampler`",
    }.items():
        with (copy / "docs" / page).open("a") as file:
            file.write(f"\n{line}\n")
    words = ["-q", "-n", "-W", "--keep-going", "-c", "docs", ".", "built"]
    unreachable = {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *words],
        cwd=copy,
        env=os.environ | unreachable | {"PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        check=False,
    )
    return Site(copy / "built", done.returncode, done.stderr)


def test_a_broken_anchor_link_and_name_fail_and_are_named_with_their_page(site: Site) -> None:
    pattern = r"docs/([\w-]+\.md):\d+: WARNING: .*(no-such-heading|no-such-page|NoSuchSampler)"
    named = [re.search(pattern, line) for line in site.said.splitlines()]
    assert site.code == 1 and None not in named, site.said
    assert {each and each.groups() for each in named} == {
        ("replay.md", "no-such-heading"),
        ("views.md", "no-such-page"),
        ("goals.md", "NoSuchSampler"),
    }


def test_a_search_for_timeouts_of_antmaze_finds_the_page_on_d4rl(site: Site) -> None:
    text = (site.folder / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    stem = SearchEnglish({}).stem

    def pages_with(word: str) -> set[str]:
        places = [index[terms].get(stem(word), []) for terms in ("terms", "titleterms")]
        numbers = [[each] if isinstance(each, int) else each for each in places]
        return {index["docnames"][number] for each in numbers for number in each}

    found = pages_with("timeouts") & pages_with("antmaze")
    assert "docs/families/d4rl" in found and len(found) < len(index["docnames"]) / 4


def test_a_page_brings_nothing_from_another_host(site: Site) -> None:
    pages = [*site.folder.rglob("*.html")]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        brought = re.findall(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(\w+:)?//', text)
        assert not brought, page
    styles = "".join(path.read_text() for path in site.folder.rglob("*.css"))
    assert len(pages) > 40 and not re.findall(r"(?:@import|url\()\s*['\"]?https?:", styles)


def test_an_option_in_a_sentence_can_be_copied_and_searched(site: Site) -> None:
    page = (site.folder / "docs" / "commands.html").read_text(encoding="utf-8")
    assert "after --no-verify or rlds demo --keep)" in page  # and no dash of print


def test_every_public_name_is_on_a_page(site: Site) -> None:
    pages = "".join(path.read_text() for path in (site.folder / "build" / "api").glob("*.html"))
    names = [
        f"{module}.{name}"
        for module in public_names.MODULES
        for group in public_names.groups(module).values()
        for name in group
    ]
    assert len(names) > 200 and [name for name in names if f'id="{name}"' not in pages] == []


def test_a_link_to_code_leads_to_the_repository(site: Site) -> None:
    page = (site.folder / "docs" / "cookbook.html").read_text(encoding="utf-8")
    assert 'href="https://github.com/rlds-cli/rlds-cli/blob/main/examples/td3_bc.py"' in page
