"""Family names take the arguments that TorchRL's users pass, where these mean what is done here."""

from __future__ import annotations

from typing import Any

import pytest

from datasets_cli import D4RLExperienceReplay, MinariExperienceReplay
from datasets_cli.errors import UsageError


def test_arguments_of_torchrls_examples_are_taken(door: str) -> None:
    replay = D4RLExperienceReplay(
        dataset_id=door.removeprefix("d4rl/"),
        split_trajs=False,
        batch_size=4,
        use_truncated_as_done=True,
        from_env=False,
        direct_download=True,
        terminate_on_end=None,
        download=False,
    )
    assert replay.sample().shape == (4,)


@pytest.mark.parametrize(
    ("kind", "argument"),
    [
        (D4RLExperienceReplay, {"split_trajs": True}),
        (D4RLExperienceReplay, {"from_env": True}),
        (D4RLExperienceReplay, {"use_truncated_as_done": False}),
        (D4RLExperienceReplay, {"terminate_on_end": True}),
        (MinariExperienceReplay, {"split_trajs": True}),
        (MinariExperienceReplay, {"load_from_local_minari": True}),
    ],
)
def test_another_meaning_is_refused_before_anything_is_done(
    kind: Any, argument: dict[str, bool]
) -> None:
    (name,) = argument
    with pytest.raises(UsageError, match=f"{name}=(True|False) is not possible"):
        kind("nosuch", 4, **argument)
