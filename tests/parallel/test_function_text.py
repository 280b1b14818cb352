"""The digest of a function from its text alone is that of the imported function, or not known."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from datasets_cli.errors import UsageError
from datasets_cli.parallel.function_state import identity_of
from datasets_cli.parallel.function_text import identity_by_text

KNOWN = {
    "plain": "def f(batch):\n    return batch\n",
    "helper": "import math\nN = 3\ndef g(x):\n    return x\ndef f(batch):\n    return g(batch)\n",
    "defaults": "def f(batch, a=1, b=(2, 'x', -1.5), *, c=None, d={'k': [1]}):\n    return batch\n",
    "keyword": "def f(batch, *, c, d=2):\n    return batch\n",
    "inner": "def f(batch):\n    def g():\n        return lambda: batch\n    return g\n",
    "future": "from __future__ import annotations\n\ndef f(batch: No) -> No:\n    return batch\n",
    "encoded": "# -*- coding: latin-1 -*-\ndef f(batch):\n    return 'é'\n",
    "lines": "def f(batch):\r\n    return batch\r\n",
}
UNKNOWN = {
    "decorated": "def d(f):\n    return f\n@d\ndef f(batch):\n    return batch\n",
    "twice": "def f(batch):\n    return batch\ndef f(batch):\n    return 1\n",
    "again": "def f(batch):\n    return batch\nf = print\n",
    "star": "def f(batch):\n    return batch\nfrom math import *\n",
    "global_": "def f(batch):\n    return batch\ndef g():\n    global f\n    f = 1\ng()\n",
    "lambda_": "f = lambda batch: batch\n",
    "imported": "from math import floor as f\n",
    "computed": "N = 1\ndef f(batch, n=N):\n    return batch\n",
    "branch": "if True:\n    def f(batch):\n        return batch\n",
    "class_": "class f:\n    pass\n",
    "missing": "x = 1\n",
    "broken": "def f(batch:\n",
}


@pytest.mark.parametrize("kind", KNOWN)
def test_the_digest_is_that_of_the_imported_function(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"source_of_{kind}"
    encoding = "latin-1" if kind == "encoded" else "utf-8"
    (tmp_path / f"{name}.py").write_bytes(KNOWN[kind].encode(encoding))
    identity = identity_by_text(f"{name}:f", tmp_path)
    assert name not in sys.modules
    monkeypatch.syspath_prepend(tmp_path)
    assert identity == identity_of(importlib.import_module(name).f)


@pytest.mark.parametrize("kind", UNKNOWN)
def test_what_the_text_does_not_tell_is_not_known(tmp_path: Path, kind: str) -> None:
    (tmp_path / "source.py").write_text(UNKNOWN[kind])
    assert identity_by_text("source:f", tmp_path) is None


def test_a_module_of_a_package_is_found_without_importing_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "package_of_sources" / "inner"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("")
    (folder / "code.py").write_text(KNOWN["plain"])
    identity = identity_by_text("package_of_sources.inner.code:f", tmp_path)
    assert "package_of_sources" not in sys.modules
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("package_of_sources.inner.code")
    assert identity == identity_of(module.f)


def test_modules_that_are_not_the_users_are_not_looked_for(tmp_path: Path) -> None:
    (tmp_path / "queue.py").write_text(KNOWN["plain"])
    for text in ("queue:f", "torch:f", "nowhere_at_all:f", "nowhere.at.all:f"):
        assert identity_by_text(text, tmp_path) is None
    with pytest.raises(UsageError, match="is not MODULE:FUNCTION"):
        identity_by_text("queue", tmp_path)
