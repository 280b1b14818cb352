"""The identity of a function: its digest, its state and the modules that it imports."""

from __future__ import annotations

import functools
import importlib
import itertools
import json
import sys
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from datasets_cli import RewardScaling
from datasets_cli.parallel.user_code import UserModule, imported_by, is_of_user
from datasets_cli.preprocessing.function import (
    changed_parts,
    changes_by_name,
    codes_by_name,
    identity_of,
    load_function,
)
from tests.support.interpreters import preloaded
from tests.support.processes import Child

SOURCE = """
import functools
import torch

FACTOR = 2

def scale(batch, factor=FACTOR):
    return batch

def made(*state):
    def inner(batch):
        return state
    return inner

class Scale:
    def __init__(self, **state):
        self.__dict__.update(state)

    def __call__(self, batch):
        return batch

partial = functools.partial(scale, factor=3)
closed = made(torch.arange(3), {"b", "a", "c"}, {"x": (1, 2.5, None)})
called = Scale(weight=torch.ones(2), names=["a"], inner=Scale(scale=scale))
network = Scale(net=torch.nn.Linear(2, 2).requires_grad_(False))
torch.nn.init.ones_(network.net.weight)
torch.nn.init.zeros_(network.net.bias)
first, second = (lambda batch: batch), (lambda batch: batch)
called_twice = Scale(a=(1.5, 2), b=(1.5, 2))
"""
NAMES = ["scale", "partial", "closed", "called", "network", "first", "second", "called_twice"]


def digest(function: Any) -> str:
    return identity_of(function).digest


def of_module(folder: Path, source: str, name: str = "digested") -> dict[str, str]:
    """Return the digests of a module's functions, from a process of its own."""
    write_module(folder, source, name)
    found: dict[str, str] = Child("fork", import_and_digest, folder, name).result()
    return found


def write_module(folder: Path, source: str, name: str = "digested") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_bytes(source.encode())


def import_and_digest(_: Connection, folder: Path, name: str) -> dict[str, str]:
    sys.path.insert(0, str(folder))
    sys.modules.pop(name, None)
    module = importlib.import_module(name)
    return {name: digest(getattr(module, name)) for name in NAMES if hasattr(module, name)}


def of_other_process(folder: Path, source: str) -> dict[str, str]:
    """Return the same from a process that is no fork of this one: it hashes text in its own way."""
    write_module(folder, source)
    script = (
        "import json, digested as module;"
        "from datasets_cli.preprocessing.function import identity_of;"
        f"print(json.dumps({{n: identity_of(getattr(module, n)).digest for n in {NAMES}}}))"
    )
    done = preloaded("-c", script, folder=folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_another_folder_line_ending_and_process_have_the_same_digest(tmp_path: Path) -> None:
    here = of_other_process(tmp_path / "here", SOURCE)
    there = of_module(tmp_path / "far" / "away", SOURCE.replace("\n", "\r\n"))
    assert here == there
    assert len(set(here.values())) == len(NAMES)


def test_a_script_and_a_module_of_one_file_have_the_same_digest(tmp_path: Path) -> None:
    module = of_module(tmp_path, SOURCE)
    script = (
        "import runpy, digested as m; from datasets_cli.preprocessing.function import identity_of"
    )
    script += "\nm.scale.__module__ = '__main__'; import sys; sys.modules['__main__'] = m"
    script += "\nprint(identity_of(m.scale).entry)"
    done = preloaded("-c", script, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert module["scale"] in done.stdout
    assert "'name': 'scale'" in done.stdout


def test_a_users_file_with_the_name_of_one_of_pythons_counts(tmp_path: Path) -> None:
    double, triple = (of_module(tmp_path / n, f"{SOURCE}\n# {n}", "mailbox") for n in "23")
    assert not set(double.values()) & set(triple.values())


def test_an_edit_of_the_file_gives_another_digest(tmp_path: Path) -> None:
    before = of_module(tmp_path / "a", SOURCE)
    after = of_module(tmp_path / "b", SOURCE.replace("FACTOR = 2", "FACTOR = 4"))
    assert not set(before.values()) & set(after.values())


def numbered(number: Any) -> Callable[[Any], Any]:
    def function(batch: Any) -> Any:
        return number

    return function


class Object:
    def __init__(self, state: Any) -> None:
        self.state = state

    def __call__(self, batch: Any) -> Any:
        return self.state

    def method(self, batch: Any) -> Any:
        return batch


STATES = [
    None, True, 1, 1.0, "1", b"1", 2, -0.0, 0.0, 1j, float("nan"), [1], (1,), {1}, {1: 1},
    frozenset({1, 2}), torch.tensor([1]), torch.tensor([1.0]), torch.tensor([[1]]),
    torch.tensor([1], dtype=torch.bfloat16), torch.empty(0), torch.eye(2).to_sparse(),
    np.array([1]), np.array([2]), np.float32(1), np.datetime64(1, "s"), torch.float32, len,
    np.array(["a", None], dtype=object), range(3), slice(3), Path("a"), np, Object,
    functools.partial(len, "a"), Object(1), Object(2), Object(1).method, RewardScaling(0, 2),
]  # fmt: skip


def test_every_state_has_a_digest_of_its_own() -> None:
    for wrap in (numbered, Object):
        digests = [digest(wrap(state)) for state in STATES]
        assert digests == [digest(wrap(state)) for state in STATES]
        assert len(set(digests)) == len(STATES)


def test_equal_state_counts_and_not_who_shares_it() -> None:
    pair = (1.5, "x")
    same = Object([pair, pair])
    other = Object([(float("1.5"), "x"), (float("1.5"), "".join(["x"]))])
    assert digest(same) == digest(other)


def test_state_that_holds_itself_has_a_digest() -> None:
    def circle() -> Object:
        found = Object([])
        found.state.append(found)
        return found

    assert digest(circle()) == digest(circle()) != digest(Object([]))


def test_what_has_no_source_is_known_by_its_code_and_globals() -> None:
    def made(text: str, **known: Any) -> Any:
        exec(text, known)
        return known["f"]

    text = "def f(batch):\n    return [x * FACTOR for x in batch]"
    assert digest(made(text, FACTOR=2)) == digest(made("\n\n" + text, FACTOR=2))
    assert digest(made(text, FACTOR=2)) != digest(made(text, FACTOR=3))
    assert digest(made(text, FACTOR=2)) != digest(made(text.replace("*", "+"), FACTOR=2))
    kind = "class f:\n    def __call__(self, batch):\n        return {}"
    assert digest(made(kind.format(1))()) != digest(made(kind.format(2))())


def test_what_cannot_be_reduced_or_pickled_has_a_digest() -> None:
    class Odd:
        def __reduce_ex__(self, protocol: Any) -> Any:
            raise TypeError("no")

    assert digest(numbered(Odd())) == digest(numbered(Odd()))
    assert len(digest(numbered(torch.Generator()))) == 64


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (numbered(1), f"{__name__}.numbered.<locals>.function"),
        (functools.partial(functools.partial(numbered, 1)), f"{__name__}.numbered"),
        (Object(1), f"{__name__}.Object"),
        (Object(1).method, f"{__name__}.Object.method"),
        (torch.nn.Linear(1, 1), "torch.nn.modules.linear.Linear"),
        (len, "len"),
    ],
)
def test_a_function_has_a_name_for_people(function: Any, name: str) -> None:
    assert identity_of(function).name == name


def test_a_file_that_is_gone_leaves_what_was_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone_functions.py").write_text("def f(batch):\n    return batch\n")
    monkeypatch.syspath_prepend(tmp_path)
    function = importlib.import_module("gone_functions").f
    before = digest(function)
    (tmp_path / "gone_functions.py").unlink()
    assert digest(function) != before


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


def scale(batch: Any, scale: float = 1.0) -> Any:
    return batch


def with_default(value: int) -> Any:
    def function(batch: Any, factor: int = value) -> Any:
        return batch

    return function


@pytest.mark.parametrize(
    ("before", "now", "change"),
    [
        (partial(scale, scale=2), partial(scale, scale=3), "argument scale of the partial changed"),
        (partial(scale), partial(scale, scale=3), "argument scale of the partial is new"),
        (partial(scale, 2), partial(scale), "argument 1 of the partial is gone"),
        (Object(1), Object(2), "attribute state of Object changed"),
        (Object(1).__call__, Object(2).__call__, "attribute state of Object changed"),
        (numbered(1), numbered(2), "variable number of the closure changed"),
        (with_default(1), with_default(2), "default of factor changed"),
        (scale, Object(1), f"the function {__name__}.scale, now {__name__}.Object"),
    ],
)
def test_what_of_a_function_changed_is_named(before: Any, now: Any, change: str) -> None:
    assert identity_of(now).changes(identity_of(before).entry)[0] == change
    assert identity_of(before).changes(identity_of(before).entry) == []


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
    (tmp_path / f"{name}.py").write_text(
        f"from {helper} import FACTOR\ndef f(batch):\n    return FACTOR * 2\n"
    )
    assert loaded() == 2
    (tmp_path / f"{helper}.py").write_text("FACTOR = 1 + 1\n")
    assert loaded() == 4
    (tmp_path / f"{helper}.py").write_text(f"from more{helper} import FACTOR\n")
    (tmp_path / f"more{helper}.py").write_text("FACTOR = 1 + 2\n")
    assert loaded() == 6
    (tmp_path / f"more{helper}.py").write_text("FACTOR = 1 + 1 + 2\n")
    assert loaded() == 8
