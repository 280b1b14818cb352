"""The site: `make docs` builds it from the Markdown that people read on GitHub, without a network.

Its root is that of the repository, so that a link from one file to another is the same in both. A
link to a file that is no page, such as code, leads to that file on GitHub. Pages of every public
name are written into build/api/, in the groups of docs/python.md.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from docutils import nodes
from sphinx.addnodes import download_reference
from sphinx.application import Sphinx

PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(PROJECT))

import datasets_cli  # noqa: E402
from tests.support.public_names import MODULES, groups  # noqa: E402

project, author, copyright = "rlds", "the authors of rlds", "the authors of rlds; MIT licence"
release = datasets_cli.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = [
    *("docs/**.md", "build/api/*.rst"),
    *("benchmarks/README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
]
exclude_patterns = ["**/.*", "build/[!a]*", "dist", "datasets_cli", "recipes", "tests"]
myst_heading_anchors = 4
smartquotes = False  # it makes one dash of the two of --option, in a sentence
html_theme = "furo"
html_title = f"rlds {release}"
html_copy_source = False

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_typehints_format = "short"
napoleon_numpy_docstring = False
OTHERS = (
    *("collections", "concurrent", "enum", "functools", "os", "pathlib", "socket", "typing"),
    *("gymnasium", "jax", "numpy", "pandas", "pyarrow", "tensordict", "torch"),
)
nitpick_ignore_regex = [("py:.*", rf"{package}\..*") for package in OTHERS]
# Modules of ours, and what annotations call types that have no page: written out by autodoc alone.
nitpick_ignore_regex += [
    ("py:.*", r"datasets_cli\.\w+\..*"),
    ("py:class", r"[A-Z]\w*|np\.ndarray|tuple\[str"),
]

CODE = "https://github.com/rlds-cli/rlds-cli/blob/main/"


def write_api() -> None:
    """Write a page for each group of public names, of what their docstrings say."""
    folder = PROJECT / "build" / "api"
    folder.mkdir(parents=True, exist_ok=True)
    pages = {}
    for title, names in all_groups().items():
        heading = f"{title[0].upper()}{title[1:]}\n{'=' * len(title)}"
        name = re.sub("[^a-z_]+", "-", title.partition(",")[0].lower())
        pages[folder / f"{name}.rst"] = "\n\n".join([heading, *map(documented, names)]) + "\n"
    for path in folder.iterdir():
        if path not in pages:
            path.unlink()
    for path, text in pages.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def all_groups() -> dict[str, list[str]]:
    """Return the titles of the pages of names, each with dotted names."""
    found = {}
    for module in MODULES:
        for title, names in groups(module).items():
            found[title or module] = [f"{module}.{name}" for name in names]
    return {title: names for title, names in found.items() if names}


PUBLIC = {
    name.rpartition(".")[2]: name for names in reversed(all_groups().values()) for name in names
}


def documented(name: str) -> str:
    """Return the directive that documents a public name."""
    thing = resolve_name(name)
    kind = "function" if inspect.isroutine(thing) else "data"
    if inspect.isclass(thing):
        kind = "exception" if issubclass(thing, BaseException) else "class"
    return f".. auto{kind}:: {name}"


def lead_to_code(app: Sphinx, doctree: nodes.document) -> None:
    """Have links to files that are no pages lead to GitHub."""
    for link in [*doctree.findall(download_reference)]:
        page = PROJECT / app.env.docname
        path = Path(os.path.normpath(page.parent / link["reftarget"])).relative_to(PROJECT)
        link.replace_self(nodes.reference("", "", *link.children, refuri=f"{CODE}{path}"))


def find_public(app: Sphinx, env: Any, node: Any, content: Any) -> Any:
    """Have an annotation that names a class as its module does lead to the public name's page."""
    name = node.get("reftarget", "").rpartition(".")[2]
    if node.get("refdomain") != "py" or name not in PUBLIC:
        return None
    domain, page, target = env.get_domain("py"), node["refdoc"], PUBLIC[name]
    return domain.resolve_xref(env, page, app.builder, node["reftype"], target, node, content)


def keep_drawings(app: Sphinx, *rest: Any) -> None:
    """Have what a docstring indents, as code and drawings, shown as it is."""
    lines = rest[-1]
    for place in reversed(range(2, len(lines))):
        after_text = not lines[place - 1] and not lines[place - 2].startswith(" ")
        if after_text and lines[place].startswith("    "):
            lines[place:place] = ["::", ""]


def whole_sentence(app: Sphinx, what: str, *rest: Any) -> None:
    """Keep what a docstring of an attribute says before a colon, which napoleon has for a type."""
    lines = rest[-1]
    types = [line for line in lines if line.startswith(":type: ")]
    if what in ("attribute", "property", "data") and types:
        lines.remove(types[0])
        lines[0] = f"{types[0].removeprefix(':type: ')}: {lines[0]}"


def begin_at_the_top(app: Sphinx, error: Exception | None) -> None:
    """Have build/docs/index.html lead to the first page, whose place is that of its source."""
    page = f'<!doctype html><meta http-equiv="refresh" content="0; url={root_doc}.html">\n'
    (Path(app.outdir) / "index.html").write_text(page, encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Write the pages of names, and follow links."""
    write_api()
    app.connect("doctree-read", lead_to_code, priority=100)
    app.connect("build-finished", begin_at_the_top)
    app.connect("missing-reference", find_public)
    app.connect("autodoc-process-docstring", keep_drawings, priority=100)
    app.connect("autodoc-process-docstring", whole_sentence, priority=900)
