"""The site: `make docs` builds it from the Markdown that people read on GitHub, without a network.

Its root is that of the repository, so that a link from one file to another is the same in both. A
link to a file that is no page, such as code, leads to the file on GitHub. Pages of every public
name are written into build/api/, in the groups of docs/python.md.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(PROJECT))

from datasets_cli.version import __version__  # noqa: E402
from tests.support.public_names import groups  # noqa: E402

project, author, copyright = "rlds", "the authors of rlds", "the authors of rlds, MIT"  # noqa: A001
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
PAGES = ["benchmarks/README.md", "CHANGELOG.md", "CONTRIBUTING.md"]
include_patterns = ["docs/**.md", "build/api/*.rst", *PAGES]
exclude_patterns = [".*", "build/docs", "build/[!a]*", "tests", "datasets_cli", "recipes", "dist"]
nitpicky = True

html_theme = "furo"
html_title = f"rlds {__version__}"
html_copy_source = False
html_show_sphinx = False

myst_heading_anchors = 4
myst_enable_extensions: list[str] = []
CODE = "https://github.com/rlds-cli/rlds-cli/blob/main/"

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_typehints_format = "short"
napoleon_numpy_docstring = False
napoleon_use_rtype = False
FOREIGN = ["torch", "tensordict", "numpy", "gymnasium", "torchrl", "pandas", "jax", "typing"]
nitpick_ignore_regex = [("py:.*", rf"{package}(\..*)?") for package in FOREIGN]


def write_api() -> None:
    """Write a page for each group of public names, which has what the docstrings say of them."""
    folder = PROJECT / "build" / "api"
    folder.mkdir(parents=True, exist_ok=True)
    titles = []
    for title, names in groups().items():
        pages = [f".. autodoc:: {name}" for name in names]
        titles.append(title)
        heading = f"{title[0].upper()}{title[1:]}"
        text = f"{heading}\n{'=' * len(heading)}\n\n" + "\n\n".join(map(directive, names)) + "\n"
        path = folder / f"{re.sub('[^a-z]+', '-', title.lower())}.rst"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def directive(name: str) -> str:
    """Return the directive that documents a public name."""
    import inspect

    import datasets_cli

    thing = getattr(datasets_cli, name)
    kind = "data"
    if inspect.isclass(thing):
        kind = "exception" if issubclass(thing, BaseException) else "class"
    elif callable(thing):
        kind = "function"
    return f".. auto{kind}:: datasets_cli.{name}"


write_api()
