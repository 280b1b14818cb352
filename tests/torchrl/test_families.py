"""Classes of families accept TorchRL's arguments whose meaning is supported."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

from datasets_cli import (
    AtariDQNExperienceReplay,
    D4RLExperienceReplay,
    ExperienceReplay,
    MinariExperienceReplay,
    OpenMLExperienceReplay,
)
from datasets_cli.core.progress import silent
from datasets_cli.errors import ImmutableError, Unsupported
from datasets_cli.experience.opening import TrajectoryDatasetOptions


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
        (D4RLExperienceReplay, {"from_env": True}),
        (D4RLExperienceReplay, {"use_truncated_as_done": False}),
        (D4RLExperienceReplay, {"terminate_on_end": True}),
    ],
)
def test_another_meaning_is_refused_before_anything_is_done(
    kind: Any, argument: dict[str, bool]
) -> None:
    (name,) = argument
    with pytest.raises(Unsupported) as caught:
        kind("nosuch", 4, **argument)
    assert (caught.value.argument, caught.value.found) == (name, argument[name])


def test_whole_trajectories_are_drawn_in_place_of_rows(door: str) -> None:
    name = door.removeprefix("d4rl/")
    rows = D4RLExperienceReplay(name)[:]
    replay = D4RLExperienceReplay(name, 4, split_trajs=True, seed=0)
    batch = replay.sample()
    assert (len(replay), batch.shape) == (5, (4, 299)) and bool(batch["mask"].all())
    expected = rows["observation"].view(5, 299, -1)[batch["index"][:, 0]]
    assert torch.equal(batch["observation"], expected)
    with pytest.raises(ImmutableError):
        replay.extend(batch)
    with pytest.raises(Unsupported) as error:
        D4RLExperienceReplay(name, 4, split_trajs=True, slice_len=10)
    assert error.value.argument == "split_trajs"


NOT_OF_A_FAMILY: dict[type[ExperienceReplay], set[str]] = {
    D4RLExperienceReplay: {"options", "num_workers"},
    MinariExperienceReplay: {"options", "num_workers"},
    # A trajectory of a table is one step; its first argument is called name, as in TorchRL.
    OpenMLExperienceReplay: {
        *("options", "num_workers", "dataset_id"),
        *("num_slices", "slice_len", "frame_stack", "strict_length"),
    },
    # Its options and number of processes have other names.
    AtariDQNExperienceReplay: {"options", "num_workers"},
}


@pytest.mark.parametrize("family", NOT_OF_A_FAMILY)
def test_a_family_takes_every_argument_of_experience_replay(family: type[ExperienceReplay]) -> None:
    shared = inspect.signature(ExperienceReplay).parameters
    own = inspect.signature(family).parameters
    assert shared.keys() - own.keys() == NOT_OF_A_FAMILY[family]
    for name in shared.keys() & own.keys():
        expected = (shared[name].annotation, shared[name].default, shared[name].kind)
        assert (own[name].annotation, own[name].default, own[name].kind) == expected, name


# Arguments checked before a dataset is looked up; the test passes any object for all others.
CHECKED: dict[str, Any] = {
    **{"root": "r", "source": "s", "layout": "compact", "format": "numpy", "download": "force"},
    **{"text": True, "contiguous": True, "pin_memory": True, "cast": True},
    **{"columns": ["action"], "audit": "raise", "view": "no-idle", "repaired": True},
    **{"strict_length": False, "replacement": False, "progress": silent, "options": {"a": "b"}},
}


def test_every_argument_of_a_family_reaches_experience_replay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Taken(Exception):
        pass

    def take(self: ExperienceReplay, options: TrajectoryDatasetOptions, *_: Any) -> None:
        raise Taken(options)

    monkeypatch.setattr(ExperienceReplay, "_open", take)
    for family, missing in NOT_OF_A_FAMILY.items():
        names = inspect.signature(ExperienceReplay).parameters.keys() - missing
        names -= {"dataset_id", "batch_size"}
        assert names >= {*CHECKED} - missing | {"device", "seed"}
        given: dict[str, Any] = {name: CHECKED.get(name, object()) for name in names}
        with pytest.raises(Taken) as caught:
            family("the id", 4, **given)
        (options,) = caught.value.args
        assert (options.dataset_id, options.batch_size) == ("the id", 4)
        assert {name: getattr(options, name) for name in given} == given


def test_the_options_of_atari_reach_experience_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []

    def take(self: ExperienceReplay, options: TrajectoryDatasetOptions, *variant: Any) -> None:
        taken[:] = [options.strict_length, *variant]

    monkeypatch.setattr(ExperienceReplay, "_open", take)
    AtariDQNExperienceReplay("Pong/5", checkpoints="0:2", num_procs=3, strict_len=False)
    assert taken == [False, {"checkpoints": "0:2"}, 3]
    AtariDQNExperienceReplay("Pong/5", strict_length=False)
    assert taken == [False, {}, 0]


def test_options_and_processes_reach_experience_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []
    monkeypatch.setattr(ExperienceReplay, "_open", lambda self, *given: taken.extend(given[1:]))
    ExperienceReplay("atari_dqn/Pong/5", options={"checkpoints": "0:2"}, num_workers=3)
    assert taken == [{"checkpoints": "0:2"}, 3]
