"""What classes of specs have in TorchRL, and the sentence of each name that is not here."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import datasets_cli as ours
from datasets_cli import UsageError
from datasets_cli.specs.spec import INSTEAD
from tests.support.paths import PROJECT
from tests.support.spec_pairs import Made

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl.data import tensor_specs as theirs

SPECS = [
    Made("Bounded", {"low": 0.0, "high": 1.0, "shape": (2,)}),
    Made("Unbounded", {"shape": (2,)}),
    Made("UnboundedContinuous", {"shape": (2,)}),
    Made("UnboundedDiscrete", {"shape": (2,)}),
    Made("Categorical", {"n": 3}),
    Made("OneHot", {"n": 3}),
    Made("MultiCategorical", {"nvec": [2, 3]}),
    Made("MultiOneHot", {"nvec": [2, 3]}),
    Made("Binary", {"n": 2}),
    Made("NonTensor", {"shape": (2,)}),
    Made("Composite", {"a": Made("Categorical", {"n": 2})}),
]
each_spec = pytest.mark.parametrize("made", SPECS, ids=lambda made: made.kind)


def defaults(function: Any) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not each.empty}


def methods(made: Made) -> Iterator[tuple[str, Any]]:
    """Give each public name of TorchRL's spec that is a method, with it."""
    for name in dir(made.theirs):
        method = inspect.getattr_static(type(made.theirs), name, None)
        if name[0] != "_" and inspect.isfunction(method):
            yield name, method


@each_spec
def test_every_keyword_is_taken_at_torchrls_default(made: Made) -> None:
    words = defaults(getattr(theirs, made.kind).__init__)
    assert len(words) >= 2
    for word, default in words.items():
        arguments = {word: default, **made.arguments}
        assert Made(made.kind, arguments).ours == made.ours, word


@each_spec
def test_a_missing_attribute_of_torchrls_spec_names_the_alternative(made: Made) -> None:
    public = [name for name in dir(type(made.theirs)) if re.match("[a-z]", name)]
    lacking = {name for name in public if not hasattr(made.ours, name)}
    assert len(public) > 30 and lacking <= INSTEAD.keys()
    for name in lacking:
        with pytest.raises(AttributeError, match=rf"has no attribute '{name}'\. [A-Zt].*\.$"):
            getattr(made.ours, name)


@each_spec
def test_every_keyword_of_a_method_is_one_of_ours(made: Made) -> None:
    for name, method in methods(made):
        if hasattr(made.ours, name):
            parameters = inspect.signature(getattr(made.ours, name)).parameters
            takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
            assert takes_all or defaults(method).keys() <= parameters.keys(), name


def test_the_page_lists_the_missing_attributes() -> None:
    page = (PROJECT / "docs/specs.md").read_text(encoding="utf-8")
    table = page.partition("## Missing attributes")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*`) \| (.*) \|$", table, re.MULTILINE)
    listed = {name: said for names, said in rows for name in re.findall("`(.*?)`", names)}
    assert {name: said.replace("`", "") for name, said in listed.items()} == INSTEAD


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("Composite", {"data_cls": dict}),
    ("Composite", {"step_mdp_static": True}),
    ("Composite", {"batch_size": (2,), "shape": (2,)}),
    ("Composite", {"names": ["time"]}),
    ("NonTensor", {"batched": True}),
    ("NonTensor", {"feature_dims": 1}),
    ("MultiCategorical", {"nvec": [2], "remove_singleton": 3}),
]


@pytest.mark.parametrize(("kind", "arguments"), WRONG)
def test_unsupported_arguments_of_specs_are_refused(kind: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        getattr(ours.specs, kind)(**arguments)


def test_a_batch_size_is_the_shape() -> None:
    assert ours.Composite(batch_size=(2,)).shape == (2,) == torch.zeros(2).shape
