"""The digest of a function is the same wherever it is computed; another function has another."""

from __future__ import annotations

import functools
import importlib
import json
import shutil
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from datasets_cli import RewardScaling
from datasets_cli.preprocessing.function import identity_of
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
    shutil.copyfile(tmp_path / "digested.py", tmp_path / "script.py")
    with (tmp_path / "script.py").open("a") as file:
        file.write("")
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
    for wrap in (numbered, Object, functools.partial(functools.partial, numbered)):
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


def test_functions_of_one_name_in_one_line_differ() -> None:
    first, second = (lambda batch: batch), (lambda batch: None)
    assert digest(first) != digest(second)


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
