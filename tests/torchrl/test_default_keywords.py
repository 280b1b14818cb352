"""Every keyword of a class that TorchRL has too is taken at its default, and the page lists those
that are refused at any other value.
"""

from __future__ import annotations

import inspect
import itertools
import re
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

import datasets_cli as ours
from datasets_cli.errors import Unsupported
from tests.support.paths import PROJECT
from tests.support.torchrl_names import PAIRS, accepts, defaults

ROWS = TensorDict({"a": torch.arange(6), "td_error": torch.rand(6)}, [6])
PRIORITIES = {"alpha": 0.7, "beta": 0.5}


def buffer() -> Any:
    return ours.TensorDictReplayBuffer(storage=ours.TensorStorage(ROWS), batch_size=2)


def prioritized() -> Any:
    return ours.PrioritizedSampler(6, **PRIORITIES)


def trainer() -> dict[str, Any]:
    loop = {"collector": [ROWS], "total_frames": 6, "frame_skip": 1, "optim_steps_per_batch": 1}
    return {**loop, "loss_module": torch.nn.Identity()}


WITHOUT_ARGUMENTS = """ReplayBuffer TensorDictReplayBuffer Storage Sampler RandomSampler
SamplerWithoutReplacement Writer ImmutableDatasetWriter RoundRobinWriter
TensorDictRoundRobinWriter TensorDictMaxValueWriter Transform Compose DoubleToFloat
RewardSum Reward2GoTransform ToTensorImage StepCounter InitTracker
"""
# The arguments that have no default, by place and by name.
MADE: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "D4RLExperienceReplay": (["demo/door-human"], {"batch_size": 4}),
    "MinariExperienceReplay": (["demo/door-minari"], {"batch_size": 4}),
    "OpenMLExperienceReplay": (["demo/iris"], {"batch_size": 4}),
    "AtariDQNExperienceReplay": (["demo/pong"], {}),
    "PrioritizedReplayBuffer": ([], PRIORITIES),
    "TensorDictPrioritizedReplayBuffer": ([], PRIORITIES),
    "OfflineToOnlineReplayBuffer": ([buffer()], {"online_capacity": 6}),
    "HERReplayBuffer": ([], {"reward_fn": len}),
    "ReplayBufferEnsemble": ([buffer(), buffer()], {}),
    "StorageEnsemble": ([ours.TensorStorage(ROWS)], {}),
    "SamplerEnsemble": ([ours.RandomSampler()], {}),
    "WriterEnsemble": ([ours.RoundRobinWriter()], {}),
    "ListStorage": ([6], {}),
    "LazyStackStorage": ([6], {}),
    "CompressedListStorage": ([6], {}),
    "LazyTensorStorage": ([6], {}),
    "LazyMemmapStorage": ([6], {}),
    "TensorStorage": ([ROWS], {}),
    "PrioritizedSampler": ([6], PRIORITIES),
    "SliceSampler": ([], {"slice_len": 2}),
    "SliceSamplerWithoutReplacement": ([], {"slice_len": 2}),
    "PrioritizedSliceSampler": ([6], {**PRIORITIES, "slice_len": 2}),
    "LinearScheduler": ([prioritized(), "alpha", 1.0, 3], {}),
    "StepScheduler": ([prioritized(), "alpha"], {}),
    "Trajectory": ([ROWS], {}),
    "TrajectoryPredicate": ([len], {}),
    "Trainer": ([], trainer()),
    "ReplayBufferTrainer": ([buffer()], {}),
    "CatFrames": ([2, -1], {}),
    "CatTensors": ([["a"], "b"], {}),
    "UnsqueezeTransform": ([-1], {}),
    "DTypeCastTransform": ([torch.float64, torch.float32], {}),
    "ObservationNorm": ([0.0, 1.0, ["a"]], {}),
    "RewardScaling": ([0.0, 1.0], {}),
    "RandomCropTensorDict": ([2], {}),
    "MultiStep": ([0.9, 2], {}),
    "MultiStepTransform": ([2, 0.9], {}),
    "RenameTransform": ([["a"], ["b"]], {}),
    "SelectTransform": (["a"], {}),
    "ExcludeTransform": (["a"], {}),
    "CenterCrop": ([2], {}),
    "Resize": ([2], {}),
    **dict.fromkeys(WITHOUT_ARGUMENTS.split(), ([], {})),
}
# Others have their own tables: of specs tests/specs, and the steps of environments below.
ELSEWHERE = {
    name for name, (_, kind) in PAIRS.items() if kind.__module__.startswith("datasets_cli.specs")
}
ELSEWHERE |= {"GymEnv", "SerialEnv", "ParallelEnv", "RandomPolicy"}
ELSEWHERE |= {"Collector", "MultiSyncCollector", "MultiAsyncCollector"}
SHARED = {name for name in PAIRS.keys() - ELSEWHERE if inspect.isclass(PAIRS[name][1])}


def make(name: str, folder: Path, **words: Any) -> Any:
    """Make an object of a class of ours, or of one derived from a protocol."""
    kind: Any = PAIRS[name][1]
    if inspect.isabstract(kind):
        kind = type(name, (kind,), dict.fromkeys(kind.__abstractmethods__, len))
    by_place, by_name = MADE[name]
    is_given = {*[*inspect.signature(kind).parameters][: len(by_place)], *by_name}
    words = {word: value for word, value in words.items() if word not in is_given}
    if name.endswith("ExperienceReplay"):
        words["root"] = folder
    return kind(*by_place, **by_name, **words)


def test_every_class_of_both_libraries_is_in_the_table() -> None:
    enums = {name for name in SHARED if issubclass(PAIRS[name][1], Enum)}
    assert SHARED - enums == MADE.keys()


def test_every_keyword_of_torchrls_is_one_of_ours() -> None:
    for name in PAIRS.keys() - ELSEWHERE:
        theirs, mine = PAIRS[name]
        assert defaults(theirs).keys() - accepts(mine) == set(), name


@pytest.mark.filterwarnings("ignore:mp_start_method='fork' has no effect:UserWarning")
@pytest.mark.parametrize("name", MADE)
def test_every_keyword_is_taken_at_torchrls_default(name: str, tmp_path: Path) -> None:
    made = make(name, tmp_path, **defaults(PAIRS[name][0]))
    assert PAIRS[name][1] in type(made).__mro__


def is_refused(name: str, folder: Path, word: str) -> bool:
    """Return whether a keyword is refused by name at a value that is not one of both."""
    try:
        make(name, folder, **{word: object()})
    except Unsupported as error:
        # A keyword of a function, or of both True and False, has a meaning.
        expected = str(error.expected)
        return error.argument == word and not (
            expected == "a function" or {"True", "False"} <= {*expected.split()}
        )
    except Exception:
        return False
    return False


def test_the_page_lists_every_keyword_that_is_refused(tmp_path: Path) -> None:
    page = (PROJECT / "docs" / "replay.md").read_text(encoding="utf-8")
    section = page.partition("### Rejected keywords")[2].partition("\n#")[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| `")]
    columns = [[re.findall(r"`(\w+)`", cell) for cell in row] for row in rows]
    listed = {pair for words, names in columns for pair in itertools.product(names, words)}
    assert listed == {
        (name, word)
        for name in MADE
        for word in defaults(PAIRS[name][0])
        if is_refused(name, tmp_path, word)
    }
