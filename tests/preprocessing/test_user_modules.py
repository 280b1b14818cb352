"""Which modules are part of a function: the user's that its file imports, and no others."""

from __future__ import annotations

import importlib
import itertools
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from datasets_cli.parallel.user_code import UserModule, imported_by, is_of_user
from datasets_cli.preprocessing.function import (
    changed_parts,
    changes_by_name,
    codes_by_name,
    identity_of,
    load_function,
)

FUNCTION = "def f(batch, more=1):\n    return batch\n"
FILES = {
    "start{n}.py": "import json, torch\nimport near{n}\nfrom pack{n}.inner import one\n" + FUNCTION,
    "near{n}.py": "def late():\n    import far{n}\n",
    "far{n}.py": "import start{n}, not_there_at_all\n",
    "pack{n}/__init__.py": "",
    "pack{n}/inner/__init__.py": "from . import two\nfrom ...too_far import three\n",
    "pack{n}/inner/one.py": "from ..beside import *\n",
    "pack{n}/inner/two.py": "broken = (",
    "pack{n}/beside.py": "from json import *\n",
    "pack{n}/unused.py": "",
    "unused{n}.py": "",
}
USED = {
    "near{n}.py",
    "far{n}.py",
    "pack{n}/__init__.py",
    "pack{n}/inner/__init__.py",
    "pack{n}/inner/one.py",
    "pack{n}/inner/two.py",
    "pack{n}/beside.py",
}
_numbers = itertools.count()


@pytest.fixture
def number() -> int:
    """A number that makes the names of modules such as no other test imports."""
    return next(_numbers)


def write(folder: Path, number: int, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name.format(n=number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("{n}", str(number)))


def test_the_users_modules_that_a_file_imports_are_found_without_importing_them(
    tmp_path: Path, number: int
) -> None:
    write(tmp_path, number, FILES)
    found = imported_by([UserModule(f"start{number}", tmp_path / f"start{number}.py")])
    assert {each.place for each in found} == {name.format(n=number) for name in USED}
    assert not [name for name in sys.modules if name.endswith(str(number)) and "start" in name]
    order = [each.place for each in found]
    assert order.index(f"far{number}.py") < order.index(f"near{number}.py"), "what it imports first"


@pytest.mark.parametrize(
    "edited", [f"{name}.py" for name in ("near{n}", "far{n}", "pack{n}/beside")]
)
def test_an_edit_of_one_of_them_is_another_function_and_is_named(
    tmp_path: Path, number: int, edited: str
) -> None:
    write(tmp_path, number, FILES | {"pack{n}/inner/two.py": ""})
    before = codes_by_name(f"start{number}:f", tmp_path)
    place = edited.format(n=number)
    write(tmp_path, number, {edited: FILES[edited] + "# a comment counts, as in its own file\n"})
    after = codes_by_name(f"start{number}:f", tmp_path)
    assert changed_parts(before, after) == [f"code of {place} changed"]
    write(tmp_path, number, {"unused{n}.py": "x = 1\n", "pack{n}/unused.py": "x = 1\n"})
    assert codes_by_name(f"start{number}:f", tmp_path) == after


def test_the_rule_is_the_same_once_the_function_is_imported_and_in_any_folder(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = FILES | {
        "pack{n}/inner/__init__.py": "from . import two\n",
        "pack{n}/inner/two.py": "",
        "far{n}.py": "import start{n}\n",
    }
    write(tmp_path / "here", number, plain)
    write(tmp_path / "there" / "far", number, plain)
    here = codes_by_name(f"start{number}:f", tmp_path / "here")
    assert here == codes_by_name(f"start{number}:f", tmp_path / "there" / "far")
    monkeypatch.syspath_prepend(tmp_path / "here")
    parts = identity_of(importlib.import_module(f"start{number}").f).parts
    assert {part: parts[part] for part in parts if part.startswith("code of")} == here
    assert [*parts.keys() - here.keys()] == ["default of more"]


SAME = "import helping{n}\n" + FUNCTION
OTHERS = {
    "lambda": "import helping{n}\nf = lambda batch: batch\n",
    "partial": f"import functools, helping{{n}}\n{FUNCTION}f = functools.partial(f, more=2)\n",
    "closure": "import helping{n}\ndef made(x):\n    return lambda batch: x\nf = made(1)\n",
}


@pytest.mark.parametrize("text", [SAME, *OTHERS.values()], ids=["plain", *OTHERS])
def test_only_of_a_plain_function_its_files_alone_tell_that_it_is_the_same(
    tmp_path: Path, number: int, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, helper = f"plain{number}", tmp_path / f"helping{number}.py"
    write(tmp_path, number, {f"{name}.py": text, helper.name: ""})
    monkeypatch.syspath_prepend(tmp_path)
    entry = identity_of(importlib.import_module(name).f).entry
    assert changes_by_name(f"{name}:f", tmp_path, entry) == ([] if text == SAME else None)
    helper.write_text("# edited")
    assert changes_by_name(f"{name}:f", tmp_path, entry) == [f"code of {helper.name} changed"]


def test_a_module_without_text_is_known_by_its_place(tmp_path: Path, number: int) -> None:
    suffix = importlib.machinery.EXTENSION_SUFFIXES[-1]
    (tmp_path / f"compiled{number}{suffix}").write_bytes(b"\x7fELF")
    (tmp_path / f"start{number}.py").write_text(f"import compiled{number}\n{FUNCTION}")
    codes = codes_by_name(f"start{number}:f", tmp_path)
    assert codes[f"code of compiled{number}{suffix}"] == ""


def test_modules_of_python_and_of_libraries_are_not_the_users(tmp_path: Path) -> None:
    (tmp_path / "queue.py").write_text(FUNCTION)
    for text in ("queue:f", "torch:f", "nowhere_at_all:f", "nowhere.at.all:f"):
        assert codes_by_name(text, tmp_path) == {}


def test_a_module_of_a_package_is_found_without_importing_the_package(tmp_path: Path) -> None:
    folder = tmp_path / "package_of_sources" / "inner"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise ImportError")
    (folder / "code.py").write_text(FUNCTION)
    codes = codes_by_name("package_of_sources.inner.code:f", tmp_path)
    assert "code of package_of_sources/inner/code.py" in codes
    assert "package_of_sources" not in sys.modules


def test_what_is_installed_is_not_the_users() -> None:
    import numpy

    import datasets_cli

    files = [importlib.__file__, numpy.__file__, datasets_cli.__file__, "<frozen importlib>"]
    assert not any(map(is_of_user, files))
    assert is_of_user(__file__)


class Scale:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, batch: Any) -> Any:
        return batch


def scale(batch: Any, scale: float = 1.0) -> Any:
    return batch


def closed(factor: float) -> Any:
    return lambda batch: factor


@pytest.mark.parametrize(
    ("before", "now", "change"),
    [
        (partial(scale, scale=2), partial(scale, scale=3), "argument scale of the partial changed"),
        (partial(scale), partial(scale, scale=3), "argument scale of the partial is new"),
        (partial(scale, 2), partial(scale), "argument 1 of the partial is gone"),
        (Scale(1), Scale(2), "attribute factor of Scale changed"),
        (Scale(1).__call__, Scale(2).__call__, "attribute factor of Scale changed"),
        (closed(1), closed(2), "variable factor of the closure changed"),
        (scale, Scale(1), f"the function {__name__}.scale, now {__name__}.Scale"),
    ],
)
def test_what_of_a_function_changed_is_named(before: Any, now: Any, change: str) -> None:
    assert identity_of(now).changes(identity_of(before).entry)[0] == change
    assert identity_of(before).changes(identity_of(before).entry) == []


def test_a_default_that_changed_is_named() -> None:
    def made(value: int) -> Any:
        def function(batch: Any, factor: int = value) -> Any:
            return batch

        return function

    changes = identity_of(made(2)).changes(identity_of(made(1)).entry)
    assert changes == ["default of factor changed"]


def test_a_module_that_a_notebook_names_counts_too(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"helper{number}.py").write_text("def g(x):\n    return x\n")
    monkeypatch.syspath_prepend(tmp_path)
    helper = importlib.import_module(f"helper{number}")
    names: dict[str, Any] = {"helper": helper, "torch": sys.modules["torch"]}
    exec("def f(batch):\n    return helper.g(batch), torch.ones(1)", names)
    before = identity_of(names["f"])
    assert f"code of helper{number}.py" in before.parts
    (tmp_path / f"helper{number}.py").write_text("def g(x):\n    return -x\n")
    assert identity_of(names["f"]).changes(before.entry) == [f"code of helper{number}.py changed"]


def test_a_function_is_loaded_again_where_a_module_that_it_imports_was_edited(
    tmp_path: Path, number: int
) -> None:
    name, helper = f"loaded{number}", f"helping{number}"
    (tmp_path / f"{helper}.py").write_text("FACTOR = 1\n")
    (tmp_path / f"{name}.py").write_text(
        f"from {helper} import FACTOR\ndef f(batch):\n    return FACTOR\n"
    )

    def loaded() -> Any:
        return load_function(f"{name}:f", tmp_path)(None)  # type: ignore[arg-type]

    assert loaded() == 1
    (tmp_path / f"{helper}.py").write_text("FACTOR = 1 + 1\n")
    assert loaded() == 2
    (tmp_path / f"{helper}.py").write_text(f"from more{helper} import FACTOR\n")
    (tmp_path / f"more{helper}.py").write_text("FACTOR = 1 + 2\n")
    assert loaded() == 3
    (tmp_path / f"more{helper}.py").write_text("FACTOR = 1 + 1 + 2\n")
    assert loaded() == 4
