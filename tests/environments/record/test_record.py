"""Recordings against loops of gymnasium written by hand; resumed, added to, refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from datasets_cli import ExperienceReplay, RldsError, UsageError, download, record, verify
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.environments.record import episodes
from datasets_cli.environments.record.options import seed_of
from datasets_cli.environments.record.run import environment_spec, recover_environment
from datasets_cli.errors import Unsupported, WrongRows
from datasets_cli.store.manifest import read_manifest
from tests.environments.record import toys
from tests.support.d4rl_cuts import CUTS
from tests.support.refusals import refused

CARTPOLE, PENDULUM = "CartPole-v1", "Pendulum-v1"


def by_hand(env_id: str, num_episodes: int, seed: int = 0, policy: Any = None) -> Iterator[Any]:
    """Yield the steps of a recording: episode, observation, action, and what ``step`` returned."""
    env = gymnasium.make(env_id)
    for episode in range(num_episodes):
        observation, _ = env.reset(seed=seed_of(seed, episode, 0))
        env.action_space.seed(seed_of(seed, episode, 1))
        done = False
        while not done:
            action = policy(observation) if policy else env.action_space.sample()
            following, reward, terminated, truncated, _ = env.step(action)
            yield episode, observation, action, following, reward, terminated, truncated
            observation, done = following, terminated or truncated


def files_of(name: str) -> dict[str, Any]:
    return dict(read_manifest(ExperienceReplay(f"recorded/{name}").data_path).files)


@pytest.mark.parametrize(("num_envs", "layout"), [(1, "ted"), (4, "compact")])
def test_a_recording_equals_a_loop_written_by_hand(num_envs: int, layout: str) -> None:
    made = record(CARTPOLE, "x", num_episodes=30, num_envs=num_envs, seed=3, layout=layout)
    steps = list(by_hand(CARTPOLE, 30, 3))
    rows = ExperienceReplay("recorded/x")[:]
    assert (made.num_transitions, made.num_trajectories, made.layout) == (len(steps), 30, layout)
    keys = ["episode", "observation", "action", ("next", "observation"), ("next", "reward")]
    for key, column in zip([*keys, ("next", "terminated"), ("next", "truncated")], zip(*steps)):  # noqa: B905
        wanted = np.asarray(column)
        found = rows[key].numpy().reshape(wanted.shape)
        assert found.dtype == wanted.dtype and found.tobytes() == wanted.tobytes(), key
    assert verify("recorded/x", deep=True)


def test_a_policy_of_a_module_chooses_the_actions() -> None:
    record(CARTPOLE, "x", policy="tests.environments.record.toys:lean", num_episodes=3, num_envs=2)
    wanted = [step[2] for step in by_hand(CARTPOLE, 3, policy=lambda o: int(o[2] > 0))]
    assert ExperienceReplay("recorded/x")[:]["action"].tolist() == wanted


def test_workers_do_not_change_a_byte() -> None:
    for workers in (0, 2):
        record(PENDULUM, f"by-{workers}", num_steps=250, num_workers=workers, policy=toys.pushy)
    assert files_of("by-0") == files_of("by-2")


def test_steps_cut_the_last_episode_as_truncated() -> None:
    record(CARTPOLE, "x", num_steps=50)
    rows = ExperienceReplay("recorded/x")[:]
    assert len(rows) == 50 and bool(rows["next", "truncated"][-1])
    assert not rows["next", "terminated"][-1]
    wanted = [step[2] for step in by_hand(CARTPOLE, 5)][:50]
    assert rows["action"].tolist() == wanted


def test_an_interrupted_recording_continues_to_the_same_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record(CARTPOLE, "whole", num_episodes=6, policy=toys.coin)
    whole, recorded = episodes.make_environments, []

    def fail_at_the_fourth(options: Any) -> Any:
        recorded.append(options)
        if len(recorded) == 4:
            raise KeyboardInterrupt
        return whole(options)

    with monkeypatch.context() as patched:
        patched.setattr(episodes, "make_environments", fail_at_the_fourth)
        with pytest.raises(KeyboardInterrupt):
            record(CARTPOLE, "half", num_episodes=6, policy=toys.coin)
        record(CARTPOLE, "half", num_episodes=6, policy=toys.coin)
    assert len(recorded) == 4 + 3  # what was recorded is not recorded again
    assert files_of("half") == files_of("whole")


def test_another_recording_does_not_take_the_place_of_an_interrupted_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one_chunk = iter([episodes.make_environments])

    def fail_at_the_second(options: Any) -> Any:
        return next(one_chunk, toys.broken)(options)

    with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):
        patched.setattr(episodes, "make_environments", fail_at_the_second)
        record(CARTPOLE, "x", num_episodes=6)
    differing = {"expected": {"num_episodes": 6}, "found": {"num_episodes": 5}}
    with refused(UsageError, argument="num_episodes", **differing):
        record(CARTPOLE, "x", num_episodes=5)


def test_a_call_that_failed_before_the_first_finished_episode_can_be_corrected() -> None:
    with refused(RldsError, argument="policy"):
        record(CARTPOLE, "x", num_episodes=6, policy=toys.broken)
    record(CARTPOLE, "x", num_episodes=2, policy=toys.coin)
    record(CARTPOLE, "whole", num_episodes=2, policy=toys.coin)
    assert files_of("x") == files_of("whole")


def test_the_error_names_the_policy_or_environment_and_the_line() -> None:
    for env, policy, argument, name, function in (
        (CARTPOLE, toys.broken, "policy", "broken", "broken"),
        ("Falling-v0", "random", "env", "Falling-v0", "step"),
    ):
        with pytest.raises(RldsError) as raised:
            record(env, "x", num_episodes=1, policy=policy)
        message = str(raised.value)
        assert raised.value.argument == argument
        assert f"{name} failed: ZeroDivisionError" in message
        assert "toys.py, line " in message and f"in {function})" in message


def test_episodes_that_are_added_continue_the_numbers() -> None:
    record(CARTPOLE, "whole", num_episodes=7)
    record(CARTPOLE, "parts", num_episodes=3)
    record(CARTPOLE, "parts", num_episodes=4, append=True)
    assert files_of("parts") == files_of("whole")
    replay = ExperienceReplay("recorded/parts")
    assert [each["episodes_recorded"] for each in replay.metadata["recordings"]] == [3, 4]


def test_the_same_call_again_does_nothing_and_another_one_is_refused() -> None:
    made = record(CARTPOLE, "x", num_episodes=2)
    assert record(CARTPOLE, "x", num_episodes=2) == made
    with refused(UsageError, id="recorded/x", argument="name"):
        record(CARTPOLE, "x", num_episodes=3)
    differing = ["env_spec", "observation_space", "action_space"]
    with refused(UsageError, id="recorded/x", argument="append", found=differing):
        record("Acrobot-v1", "x", num_episodes=3, append=True)


def test_spaces_of_every_kind_become_columns() -> None:
    record("Corridor-v0", "x", num_episodes=5, num_envs=2)
    rows = ExperienceReplay("recorded/x")[:]
    steps = list(by_hand("Corridor-v0", 5))
    for place, prefix in ((1, ()), (3, ("next",))):
        seen = [step[place] for step in steps]
        for key in ("pixels", "place"):
            found = rows[*prefix, "observation", key].numpy()
            assert found.tolist() == np.array([each[key] for each in seen]).tolist()
        for number in (0, 1):
            found = rows[*prefix, "observation", "goal", str(number)].numpy()
            assert found.tolist() == [each["goal"][number].tolist() for each in seen]
    assert rows["action", "0"].tolist() == [int(step[2][0]) for step in steps]
    assert rows["action", "1"].numpy().tolist() == [step[2][1].tolist() for step in steps]


def test_text_is_recorded_as_text() -> None:
    record("Written-v0", "x", num_episodes=2)
    rows = ExperienceReplay("recorded/x", text=True)[:]
    assert list(rows["observation", "text"]) == ["0", "1", "2"] * 2
    assert list(rows["next", "observation", "text"]) == ["1", "2", "3"] * 2
    with refused(Unsupported, id="recorded/x", argument="append"):
        record("Written-v0", "x", num_episodes=2, append=True)


@pytest.mark.parametrize(("acts", "space"), [(False, "observation"), (True, "action")])
def test_text_alone_is_refused_before_anything_is_recorded(
    acts: bool, space: str, config: Config
) -> None:
    with refused(Unsupported, key=(space,), found=str(gymnasium.spaces.Text(12))):
        record("Spoken-v0", "x", num_episodes=1, env_options={"acts": acts})
    assert not (config.root / "downloads").exists()


def test_an_environment_whose_specification_is_not_json_is_refused_by_name(
    config: Config,
) -> None:
    gymnasium.register("Callable-v0", entry_point=lambda: gymnasium.make(CARTPOLE))
    try:
        with refused(Unsupported, argument="env", found="Callable-v0"):
            record("Callable-v0", "x", num_episodes=1)
    finally:
        gymnasium.registry.pop("Callable-v0")
    assert not (config.root / "downloads").exists()


def test_an_endless_environment_is_cut_by_the_steps(capsys: pytest.CaptureFixture[str]) -> None:
    record("Endless-v0", "x", num_steps=10)
    assert ExperienceReplay("recorded/x")[:]["observation"].tolist() == list(range(10))
    record("Endless-v0", "y", num_episodes=2, max_episode_steps=4)
    rows = ExperienceReplay("recorded/y")[:]
    assert rows["next", "truncated"].flatten().tolist() == [False, False, False, True] * 2


def test_long_episodes_are_written_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    record(CARTPOLE, "whole", num_episodes=8, num_envs=2)
    monkeypatch.setattr("datasets_cli.environments.record.episodes.BUFFER_BYTES", 1000)
    record(CARTPOLE, "pieces", num_episodes=8, num_envs=2)
    assert files_of("pieces") == files_of("whole")


def test_minari_reads_the_spaces_and_the_environment_is_recovered() -> None:
    from minari.serialization import deserialize_space

    record("Corridor-v0", "x", num_episodes=1)
    replay = ExperienceReplay("recorded/x")
    for name in ("observation_space", "action_space"):
        assert deserialize_space(replay.metadata[name]) == getattr(toys.Corridor, name)
    assert isinstance(replay.recover_environment().unwrapped, toys.Corridor)
    assert json.loads(replay.metadata["env_spec"])["id"] == "Corridor-v0"


def test_a_dataset_without_an_environment_says_so(door: str) -> None:
    with refused(Unsupported, id=door):
        ExperienceReplay(door, download=False).recover_environment()


@pytest.mark.parametrize(
    ("options", "error", "attributes"),
    [
        ({"num_episodes": None}, UsageError, {"argument": "num_episodes", "found": "neither"}),
        ({"num_steps": 1}, UsageError, {"argument": "num_episodes", "found": "both"}),
        ({"num_episodes": 0}, UsageError, {"argument": "num_episodes", "found": 0}),
        ({"num_episodes": "2"}, UsageError, {"argument": "num_episodes", "found": "2"}),
        ({"seed": None}, UsageError, {"argument": "seed", "found": None}),
        ({"policy": toys.wrong}, WrongRows, {"key": ("action",), "found": (1, 2)}),
        ({"policy": toys.too_many}, WrongRows, {"argument": "policy", "expected": 1}),
        ({"env_options": {"mode": print}}, UsageError, {"argument": "env_options"}),
        ({"env_options": {"mode": 1}}, UsageError, {"argument": "env", "found": CARTPOLE}),
    ],
)
def test_wrong_calls_are_refused(
    options: dict[str, Any], error: type[UsageError], attributes: dict[str, Any], config: Config
) -> None:
    with refused(error, **attributes):
        record(CARTPOLE, "x", **{"num_episodes": 1, **options})
    assert not (config.root / "datasets").exists()


@pytest.mark.parametrize(
    ("name", "value"), [("policy", "nowhere:f"), ("policy", "nowhere"), ("layout", "csv")]
)
def test_the_wrong_argument_of_a_call_is_named(name: str, value: str, config: Config) -> None:
    with pytest.raises(UsageError, match=rf"\b{name}\b"):
        record(CARTPOLE, "x", **{"num_episodes": 1, name: value})  # type: ignore[arg-type]
    assert not (config.root / "datasets").exists()


def test_actions_out_of_bounds_are_recorded_unchanged() -> None:
    record(PENDULUM, "x", num_episodes=3, policy=toys.pushy)
    rows = ExperienceReplay("recorded/x")[:]
    outside = rows["observation"][:, 2] > 0
    assert torch.equal(rows["action"].squeeze(-1), torch.where(outside, 2.25, 2.0))


def test_a_recording_does_not_change_the_callers_random_numbers() -> None:
    torch.manual_seed(5)
    np.random.seed(5)
    before = torch.get_rng_state(), np.random.get_state()[1]
    record(PENDULUM, "x", num_episodes=1, policy=toys.pushy)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])


@pytest.mark.parametrize(
    ("policy", "check_actions"), [(toys.lost, True), (toys.lost, "strict"), (toys.pushy, "strict")]
)
def test_after_an_invalid_action_the_call_can_be_resumed_without_the_check(
    policy: Any, check_actions: Any
) -> None:
    with refused(WrongRows, key=("action",)):
        record(PENDULUM, "x", num_episodes=2, policy=policy, check_actions=check_actions)
    if policy is toys.pushy:  # Pendulum's own rows become NaN else
        record(PENDULUM, "x", num_episodes=2, policy=policy, check_actions=False)
        assert len(ExperienceReplay("recorded/x")) == 400


def test_the_command_takes_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["record", PENDULUM, "--name", "x", "--episodes", "1"]
    command += ["--policy", f"{toys.__name__}:pushy"]
    for word, message in (
        ("strict", "is not in the environment's"),
        ("often", "'often' is not one of"),
    ):
        assert main([*command, "--check-actions", word]) == 2
        assert message in capsys.readouterr().err
    assert main([*command, "--check-actions", "false"]) == 0


def test_an_environment_is_registered_by_the_module_in_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = f"from gymnasium import register\nregister('Lunar-v7', '{toys.__name__}:Corridor')"
    (tmp_path / "lunar_environments.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    manifest = SimpleNamespace(id="x/y", metadata={"environment": "lunar_environments:Lunar-v7"})
    assert isinstance(recover_environment(manifest, {}).unwrapped, toys.Corridor)
    manifest.metadata["environment"] = "no_such_module:Lunar-v7"
    with refused(UsageError, id="x/y"):
        recover_environment(manifest, {})


def test_a_dataset_of_d4rl_names_gymnasiums_environment(tmp_path: Path) -> None:
    source = CUTS["hopper-medium-v2"].lay_out(tmp_path / "source")
    download("d4rl/hopper-medium-v2", source=source, verify=False)
    replay = ExperienceReplay("d4rl/hopper-medium-v2", download=False)
    spec = environment_spec(replay.manifest)
    assert spec is not None and (spec.id, spec.max_episode_steps) == ("Hopper-v4", 1000)
    with refused(UsageError, id="d4rl/hopper-medium-v2"):  # MuJoCo is not installed here
        replay.recover_environment()
