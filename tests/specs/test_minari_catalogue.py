"""Every space of the Minari catalogue to a spec and back.

The catalogue has spaces as gymnasium prints them: with rounded bounds, and without the characters
of texts, for which gymnasium's own are taken. Three kitchen datasets state none.
"""

from __future__ import annotations

import csv
import json
import re
from typing import Any

import numpy as np
import pytest
from gymnasium import Space, spaces

from datasets_cli import spec_from_gymnasium, spec_from_json, spec_to_gymnasium, spec_to_json
from datasets_cli.specs.gymnasium_spaces import spec_of_space
from tests.support.paths import DEMO_DATA, PROJECT, TEST_DATA

CATALOGUE = PROJECT / "recipes" / "minari" / "catalogue.tsv"
COLUMNS = ("observation_space", "action_space")
NAMES = {
    **{name: getattr(spaces, name) for name in ("Box", "Dict", "Discrete")},
    **{name: getattr(np, name) for name in ("float32", "float64", "uint8")},
    "array": lambda *numbers: np.array(numbers),
    "inf": np.inf,
    "Text": lambda least, most, charset: spaces.Text(most, min_length=least),
}


def catalogue() -> list[dict[str, str]]:
    with CATALOGUE.open(encoding="utf-8") as file:
        return [*csv.DictReader(file, delimiter="\t")]


def printed_space(text: str) -> Space[Any]:
    """Return the space that is printed so."""
    python = re.sub(
        r"\[([^]]*)\]", lambda found: f"array({','.join(found[1].split())})", text
    ).replace("charset=...", "charset=None")
    pieces, ends = [], []
    for piece in re.split(r"(\w*\(|\))", python):
        if piece.endswith("("):
            ends.append("})" if piece == "Dict(" else ")")
        pieces.append("Dict({" if piece == "Dict(" else ends.pop() if piece == ")" else piece)
    space: Space[Any] = eval("".join(pieces), NAMES)
    return space


def test_every_space_of_the_catalogue_comes_back_equal() -> None:
    for text in {row[column] for row in catalogue() for column in COLUMNS} - {""}:
        space = printed_space(text)
        spec = spec_from_gymnasium(space)
        assert spec_to_gymnasium(spec) == space
        assert spec_from_json(json.loads(json.dumps(spec_to_json(spec), allow_nan=False))) == spec


def test_all_datasets_but_three_state_their_spaces() -> None:
    missing = [row["name"] for row in catalogue() if not all(row[column] for column in COLUMNS)]
    assert missing == [f"D4RL/kitchen/{kind}-v1" for kind in ("complete", "mixed", "partial")]


PUBLISHED = [
    path
    for folder in (TEST_DATA / "minari", DEMO_DATA / "minari")
    for path in sorted(folder.rglob("metadata.json"))
]


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.parent.name)
@pytest.mark.parametrize("column", COLUMNS)
def test_a_space_of_a_real_file_comes_back_equal(path: Any, column: str) -> None:
    from minari.serialization import deserialize_space

    text = json.loads(path.read_text(encoding="utf-8"))[column]
    space = deserialize_space(text)
    spec = spec_of_space(json.loads(text))
    assert spec == spec_from_gymnasium(space)
    assert spec_to_gymnasium(spec) == space
