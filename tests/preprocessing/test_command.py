"""The command that makes a derived dataset, as its manifest knows it."""

from __future__ import annotations

from typing import Any

import pytest

from datasets_cli.preprocessing.origin import command_of
from datasets_cli.store.manifest import Manifest

PARENT = {"id": "d4rl/x-v0", "content": "0"}
FUNCTION = {"name": "my.code.half", "digest": "0"}
VIEW = {"view": "ending_before.filter"}
MADE = "rlds preprocess d4rl/x-v0 --name y"


def derived(function: Any = FUNCTION, **parent: Any) -> Manifest:
    return Manifest(
        id="derived/y",
        layout="ted",
        num_transitions=3,
        num_trajectories=1,
        columns=(),
        files={},
        parent={**PARENT, **parent},
        function=function,
        arguments={"num_frames": 3, "chunksize": 2, "per": "transition"},
        seed=7,
    )


@pytest.mark.parametrize(
    ("manifest", "command"),
    [
        (
            derived(),
            f"{MADE} --fn my.code:half --seed 7 --num 3 --per transition --chunksize 2",
        ),
        (
            derived(**VIEW, where="return > 3"),
            f"{MADE} --fn my.code:half --where 'return > 3' --seed 7 --num 3 "
            "--per transition --chunksize 2",
        ),
        (
            derived({**FUNCTION, "pipeline": {"n_step": 2, "normalise": True, "cast": ["a", "b"]}}),
            f"{MADE} --n-step 2 --normalise --cast a --cast b --seed 7 --num 3 "
            "--per transition --chunksize 2",
        ),
        (
            derived(layout="compact"),
            f"{MADE} --fn my.code:half --seed 7 --num 3 --per transition --chunksize 2 "
            "--layout ted",
        ),
        (derived(**VIEW), ""),
        *(
            (derived({**FUNCTION, "name": name}), "")
            for name in ("f.<locals>.<lambda>", "__main__.half", "half", "")
        ),
        (derived({}), ""),
    ],
)
def test_the_command_is_the_one_that_made_it(manifest: Manifest, command: str) -> None:
    assert command_of(manifest) == command
