"""TorchRL's names: modules, classes, attributes, arguments."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import itertools
import pkgutil
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

import pytest
import torch
from tensordict import TensorDict

import datasets_cli
import datasets_cli.torchrl
from datasets_cli import (
    AtariDQNExperienceReplay,
    D4RLExperienceReplay,
    LazyMemmapStorage,
    LazyTensorStorage,
    ListStorage,
    PrioritizedSampler,
    RandomSampler,
    ReplayBuffer,
    ReplayBufferEnsemble,
    SliceSampler,
    TensorDictMaxValueWriter,
    TensorDictReplayBuffer,
    TensorStorage,
)
from datasets_cli.errors import EmptyBuffer, Unsupported, UsageError
from datasets_cli.replay.storages import process_lock as processes
from datasets_cli.torchrl import PrioritizedReplayBuffer, TensorDictPrioritizedReplayBuffer
from datasets_cli.torchrl.keywords import KEYWORDS
from tests.support import public_names
from tests.support.parity import ours, theirs
from tests.support.paths import PROJECT
from tests.support.refusals import refused
from tests.support.torchrl_names import PAIRS, accepts, defaults, torchrl

# TorchRL's keywords: of methods, with an effect, and rejected with the name of the class.


# A keyword with another name here: no script passes it by name.
RENAMED = {
    ("extend", "tensordicts"): "data",
    ("update_tensordict_priority", "data"): "batch",
    ("load_state_dict", "state_dict"): "state",
}
METHODS = """add append_transform dump dumps empty extend insert_transform load load_state_dict
loads preprocess query register_load_hook register_save_hook sample save set_ set_at_ set_rng
set_sampler set_storage set_writer state_dict stats update_ update_priority
update_tensordict_priority"""


@pytest.mark.parametrize("name", [name for name in PAIRS if "ReplayBuffer" in name])
def test_every_keyword_of_a_buffers_methods_is_one_of_ours(name: str) -> None:
    theirs, ours = PAIRS[name]
    for method in METHODS.split():
        their_method = getattr(theirs, method, None)
        if their_method is None or not hasattr(ours, method):
            continue  # an ensemble leaves some to its members
        lacking = defaults(their_method).keys() - accepts(getattr(ours, method))
        assert lacking <= {word for verb, word in RENAMED if verb == method}, method


ROWS = TensorDict({"a": torch.arange(6), "td_error": torch.rand(6)}, [6])


def test_the_buffers_keywords_reach_a_dataset_and_an_ensemble(door: str) -> None:
    words = defaults(PAIRS["TensorDictReplayBuffer"][0]) | defaults(PAIRS["ReplayBuffer"][0])
    replay = D4RLExperienceReplay(door.removeprefix("d4rl/"), **(words | {"batch_size": 4}))
    assert replay.sample().shape == (4,) and replay.priority_key == "td_error"
    members = [ReplayBuffer(storage=TensorStorage(ROWS)) for _ in range(2)]
    words = defaults(PAIRS["ReplayBufferEnsemble"][0]) | {"batch_size": 4}
    assert ReplayBufferEnsemble(*members, **words).sample().shape == (2, 2)


WRONG: list[tuple[Any, str, Any]] = [
    (ReplayBuffer, "service_backend", "ray"),
    (TensorDictReplayBuffer, "transport", "distributed"),
    (TensorDictReplayBuffer, "consume_after_n_samples", 1),
    (ReplayBuffer, "sample_unit", "sequence"),
    (functools.partial(TensorDictPrioritizedReplayBuffer, alpha=1, beta=1), "sync", False),
    (ListStorage, "device", "cuda"),
    (functools.partial(LazyTensorStorage, 9), "consolidated", True),
    (functools.partial(D4RLExperienceReplay, "hopper"), "storage", ListStorage(3)),
]


@pytest.mark.parametrize(("make", "word", "value"), WRONG)
def test_an_unsupported_value_is_rejected_with_the_name_of_the_class(
    make: Any, word: str, value: Any
) -> None:
    name = getattr(make, "func", make).__name__
    with pytest.raises(Unsupported) as caught:
        make(**{word: value})
    error = caught.value
    assert str(error).startswith(f"{name} ")
    assert (error.argument, error.found) == (word, value) and error.expected and error.advice


def test_the_error_names_a_derived_class() -> None:
    class Mine(ReplayBuffer):
        pass

    with pytest.raises(Unsupported) as error:
        Mine(transport=3)
    assert str(error.value).startswith("Mine ")
    with pytest.raises(TypeError, match=r"Mine.*'shard'; did you mean 'shared'"):
        Mine(shard=True)


@pytest.mark.parametrize("word", sorted(KEYWORDS["AtariDQNExperienceReplay"]))
def test_help_shows_each_word_with_the_values_that_it_takes(word: str) -> None:
    found = inspect.signature(AtariDQNExperienceReplay).parameters[word]
    assert found.annotation.startswith(("Literal[", "Callable["))
    assert found.annotation == f"Literal[{found.default!r}]" or "," in found.annotation


def test_parts_may_be_given_as_classes_and_functions() -> None:
    buffer = TensorDictReplayBuffer(
        storage=functools.partial(LazyTensorStorage, 20),
        sampler=SliceSamplerOfTwo,
        writer=TensorDictMaxValueWriter,
        transform_factory=lambda: lambda batch: batch.set("b", batch["a"] + 1),
        batch_size=4,
    )
    assert (buffer.storage.max_size, type(buffer.writer)) == (20, TensorDictMaxValueWriter)  # type: ignore[attr-defined]
    assert type(buffer.sampler) is SliceSamplerOfTwo and len(buffer.transform) == 1
    assert type(ReplayBuffer(storage=ListStorage, sampler=RandomSampler).storage) is ListStorage
    with refused(UsageError, argument="transform_factory"):
        ReplayBuffer(transform=dict, transform_factory=lambda: dict)


class SliceSamplerOfTwo(SliceSampler):
    def __init__(self) -> None:
        super().__init__(slice_len=2)


def test_a_prioritised_buffer_takes_a_sampler_or_its_device() -> None:
    sampler = PrioritizedSampler(1000, 0.7, 0.5)
    made = PrioritizedReplayBuffer(alpha=1, beta=1, sampler=sampler)
    assert made.sampler is sampler
    assert PrioritizedReplayBuffer(alpha=1, beta=1, sampler_device="cpu").sampler is not sampler
    with refused(UsageError, argument="sampler_device"):
        PrioritizedReplayBuffer(alpha=1, beta=1, sampler=sampler, sampler_device="cpu")


@pytest.mark.parametrize("kind", [LazyTensorStorage, LazyMemmapStorage])
def test_a_storage_may_follow_its_rows_to_their_device(kind: Any) -> None:
    storage = kind(6, device="auto")
    buffer = ReplayBuffer(storage=storage, batch_size=3)
    buffer.extend(ROWS)
    assert storage.device == torch.device("cpu") and buffer.sample()["a"].device.type == "cpu"
    if kind is LazyTensorStorage:
        moved = LazyTensorStorage(6, device="auto")
        moved.flatten(torch.empty(2, 3, device="meta"))
        assert moved.device == torch.device("meta")
    assert TensorStorage(ROWS, device="auto").device == torch.device("cpu")


def test_files_say_when_they_are_deleted(tmp_path: Any) -> None:
    LazyMemmapStorage(3, auto_cleanup=True)
    LazyMemmapStorage(3, scratch_dir=tmp_path, auto_cleanup=False)
    for wrong in ({"auto_cleanup": False}, {"scratch_dir": tmp_path, "auto_cleanup": True}):
        with refused(Unsupported, argument="auto_cleanup", found=wrong["auto_cleanup"]):
            LazyMemmapStorage(3, **wrong)


def test_a_batch_of_tensordicts_always_has_its_info() -> None:
    buffer = TensorDictReplayBuffer(storage=TensorStorage(ROWS), batch_size=3)
    assert "index" in buffer.sample(include_info=True)
    batch, info = buffer.sample(return_info=True, include_info=True)
    assert torch.equal(batch["index"], info["index"])
    with refused(Unsupported, argument="include_info", found=False):
        buffer.sample(include_info=False)


@pytest.mark.parametrize("sampler", [RandomSampler(), SliceSampler(slice_len=2)])
@pytest.mark.parametrize("storage", [ListStorage(9), LazyTensorStorage(9)])
def test_sampling_an_empty_buffer_is_a_runtime_error_too(sampler: Any, storage: Any) -> None:
    buffer = ReplayBuffer(storage=storage, sampler=sampler, batch_size=4)
    prioritised = PrioritizedReplayBuffer(alpha=1, beta=1, storage=storage, batch_size=4)
    for empty in (buffer, prioritised):
        with pytest.raises(RuntimeError) as caught:
            empty.sample()
        assert isinstance(caught.value, EmptyBuffer) and isinstance(caught.value, ValueError)


def checked_classes() -> dict[str, set[str]]:
    """Return the classes of buffers and their parts that TorchRL's modules test objects for."""
    root = Path(torchrl.__file__).parent
    kinds = vars(torchrl.data.replay_buffers).values()
    names = {kind.__name__ for kind in kinds if inspect.isclass(kind)} - {"Sequence"}
    asked = re.compile(rf"isinstance\([^:]*\b(?:{'|'.join(names)})\b")
    found: dict[str, set[str]] = {}
    for path in root.rglob("*.py"):
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        text = path.read_text(encoding="utf-8")
        if not asked.search(text):  # parsing all of TorchRL takes seconds
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                classes = {getattr(n, "id", "") for n in ast.walk(node.args[1])} & names
                if classes:
                    found.setdefault(module, set()).update(classes)
    return found


def test_the_page_lists_each_place_where_torchrl_asks_for_its_own_classes() -> None:
    page = (PROJECT / "docs" / "replay.md").read_text(encoding="utf-8")
    table = page.partition("### What TorchRL's own code does")[2]
    for module, classes in checked_classes().items():
        inside = module.startswith("data.replay_buffers.") and not module.endswith("scheduler")
        row = "data.replay_buffers" if inside else module
        assert f"| `{row}` |" in table, (module, classes)
        line = table.partition(f"| `{row}` |")[2].partition("\n")[0]
        assert inside or all(f"`{name}`" in line for name in classes), (module, classes)
    assert table.count("\n| `") == 9  # and no other place


# Attributes of samplers, storages and trajectories that TorchRL's users read.


KEYS: list[dict[str, Any]] = [
    {},
    {"traj_key": "episode"},
    {"traj_key": ("a", "b")},
    {"end_key": "done"},
    {"end_keys": ["a", ("next", "b")]},
]


@pytest.mark.parametrize("keys", KEYS)
def test_a_sampler_of_slices_says_where_trajectories_are(keys: dict[str, Any]) -> None:
    keys_found = [
        (made.traj_key, made.end_key, made.end_keys)
        for made in (library.SliceSampler(slice_len=2, **keys) for library in (ours, theirs))
    ]
    assert keys_found[0] == keys_found[1]


@pytest.mark.parametrize("keys", [{}, {"end_key": ("next", "done")}])
@pytest.mark.parametrize("columns", [["traj_ids", "episode"], ["episode"], []])
def test_a_sampler_says_which_numbers_it_found(columns: list[str], keys: dict[str, Any]) -> None:
    numbers = torch.arange(6) // 3
    rows = TensorDict({"next": {"done": torch.tensor([[False], [False], [True]] * 2)}}, [6])
    for name in columns:
        rows[("collector", name) if name == "traj_ids" else name] = numbers
    numbers_found = []
    for library in (ours, theirs):
        sampler = library.SliceSampler(slice_len=2, **keys)
        buffer = library.ReplayBuffer(
            storage=library.LazyTensorStorage(6), sampler=sampler, batch_size=4
        )
        buffer.extend(rows)
        before = sampler.traj_key
        buffer.sample()
        numbers_found.append((before, sampler.traj_key))
    assert numbers_found[0] == numbers_found[1] and numbers_found[0][0] is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_a_total_reward_has_the_type_of_the_rewards(dtype: torch.dtype) -> None:
    rows = TensorDict({"next": {"reward": torch.arange(6).to(dtype)}}, [6])
    total = ours.Trajectory(rows).total_reward
    expected = theirs.Trajectory(data=rows, batch_size=[]).total_reward
    assert total.dtype == expected.dtype and total == expected


KINDS = "LazyTensorStorage LazyMemmapStorage ListStorage CompressedListStorage StorageEnsemble"


@pytest.mark.parametrize("kind", KINDS.split())
def test_a_checkpointer_of_a_storage_is_refused(kind: str) -> None:
    storage = getattr(ours, kind)(ours.ListStorage(6) if kind == "StorageEnsemble" else 6)
    storage.checkpointer = None
    with pytest.raises(Unsupported) as caught:
        storage.checkpointer = 3
    assert (caught.value.argument, caught.value.found) == ("checkpointer", 3)
    assert str(caught.value).startswith(kind)


def test_the_end_of_a_program_closes_locks_silently(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lock").touch()
    lock = processes.ProcessLock(tmp_path / "lock")
    with lock:
        pass
    monkeypatch.setattr(processes, "os", None)
    lock.__del__()  # as once the module has been taken apart
    lock._file = None
    processes.ProcessLock.__new__(processes.ProcessLock).__del__()


@pytest.mark.parametrize("kind", ["LazyTensorStorage", "LazyMemmapStorage"])
def test_the_size_of_a_storage_is_that_of_its_whole_steps_once_rows_are_there(kind: str) -> None:
    sizes = []
    for library in (ours, theirs):
        buffer = library.ReplayBuffer(storage=getattr(library, kind)(7, ndim=2), batch_size=2)
        before = buffer.storage.max_size
        buffer.extend(TensorDict({"a": torch.arange(12).view(4, 3)}, [4, 3]))
        sizes.append((before, buffer.storage.max_size))
    assert sizes == [(7, 8), (7, 8)]
    filled = ours.ReplayBuffer(storage=ours.LazyTensorStorage(7, ndim=2))
    filled.extend(TensorDict({"a": torch.arange(12).view(4, 3)}, [4, 3]))
    for size in (7, 8):
        again = ours.ReplayBuffer(storage=ours.LazyTensorStorage(size, ndim=2))
        again.load_state_dict(filled.state_dict())
        assert (again[:]["a"] == filled[:]["a"]).all()


# Base classes: isinstance answers as with TorchRL's classes.


STORAGES = {"TensorStorage", "LazyTensorStorage", "LazyMemmapStorage", "ListStorage"}


def test_storages_and_samplers_derive_as_torchrls_do() -> None:
    samplers = {name for name in ours.__all__ if "Sampler" in name and hasattr(theirs, name)}
    samplers -= {"SamplerEnsemble"}  # it holds samplers here, and is none
    assert len(samplers) == 7
    for names in (STORAGES, samplers):
        for first, second in itertools.permutations(names, 2):
            derives = issubclass(getattr(theirs, first), getattr(theirs, second))
            assert (getattr(ours, second) in getattr(ours, first).__mro__) == derives, (
                first,
                second,
            )


@pytest.mark.parametrize(
    ("family", "id"),
    [
        ("AtariDQNExperienceReplay", "demo/pong"),
        ("D4RLExperienceReplay", "demo/door-human"),
        ("MinariExperienceReplay", "demo/door-minari"),
    ],
)
def test_a_family_draws_slices_by_torchrls_samplers(family: str, id: str, tmp_path: Any) -> None:
    made = getattr(ours, family)
    replay = made(id, batch_size=8, slice_len=4, root=tmp_path, seed=0)
    assert type(replay.sampler) is ours.SliceSampler
    once = made(id, batch_size=8, slice_len=4, root=tmp_path, replacement=False)
    assert type(once.sampler) is ours.SliceSamplerWithoutReplacement
    assert isinstance(once.sampler, ours.SliceSampler)
    assert not isinstance(made(id, batch_size=8, root=tmp_path).sampler, ours.SliceSampler)
    plain = ours.ExperienceReplay(id, batch_size=8, slice_len=4, root=tmp_path, seed=0)
    assert (replay.sample()["index"] == plain.sample()["index"]).all()
    plain.load_state_dict(replay.state_dict())
    assert (replay.sample()["index"] == plain.sample()["index"]).all()


# ``torchrl`` -> ``datasets_cli.torchrl`` is the whole change of an import line.


OLD_SPECS = (
    "BinaryDiscreteTensorSpec",
    "BoundedTensorSpec",
    "CompositeSpec",
    "DiscreteTensorSpec",
    "MultiDiscreteTensorSpec",
    "MultiOneHotDiscreteTensorSpec",
    "OneHotDiscreteTensorSpec",
    "UnboundedContinuousTensorSpec",
    "UnboundedDiscreteTensorSpec",
)
# Every import line of TorchRL's pages on its datasets, buffers and collectors.
LINES = [
    "from torchrl.data import LazyMemmapStorage, TensorDictReplayBuffer",
    "from torchrl.data.datasets import AtariDQNExperienceReplay",
    "from torchrl.data.datasets import MinariExperienceReplay",
    "from torchrl.data.replay_buffers import LazyMemmapStorage, ReplayBuffer",
    "from torchrl.data.replay_buffers import ReplayBufferEnsemble",
    "from torchrl.data.replay_buffers import SliceSampler",
    "from torchrl.data.replay_buffers.samplers import PrioritizedSampler, RandomSampler",
    "from torchrl.envs import CatTensors, Compose",
    "from torchrl.trainers import ReplayBufferTrainer",
    "from torchrl.collectors import SyncDataCollector",
    "from torchrl.envs import GymEnv",
    "from torchrl.envs.utils import RandomPolicy",
    *(f"from torchrl.data import {name}" for name in ("TensorSpec", *OLD_SPECS)),
    # Written as paths in the text of the pages.
    "from torchrl.collectors import split_trajectories",
    "from torchrl.data import Sampler, Storage, Writer, MultiStep, RoundRobinWriter",
    "from torchrl.envs.utils import check_env_specs",
    "from torchrl.data.datasets import D4RLExperienceReplay, OpenMLExperienceReplay",
]


OLD_COLLECTORS = ("SyncDataCollector", "MultiSyncDataCollector", "MultiaSyncDataCollector")

# Names that the pages have at a path where the TorchRL of the tests does not.
OF_THE_PAGES = {("data", "Sampler"), ("collectors", "split_trajectories")}
OF_THE_PAGES |= {("envs.utils", "RandomPolicy")}
OF_THE_PAGES |= {("data", name) for name in OLD_SPECS}
OF_THE_PAGES |= {("collectors", name) for name in OLD_COLLECTORS}
OF_THE_PAGES |= {
    ("collectors.distributed", f"{kind}DataCollector")
    for kind in ("Distributed", "DistributedSync", "RPC")
}


def our_path(line: str) -> str:
    return line.replace("torchrl", "datasets_cli.torchrl", 1)


def test_an_import_line_of_the_pages_needs_no_other_change() -> None:
    for line in LINES:
        names: dict[str, object] = {}
        exec(our_path(line), names)
        for alias in ast.parse(line).body[0].names:  # type: ignore[attr-defined]
            assert names[alias.name] is public_names.find(alias.name), line


@cache
def names_only() -> dict[str, ModuleType]:
    """Return the modules that hold names only, by their paths below ``torchrl``."""
    package = datasets_cli.torchrl
    prefix = f"{package.__name__}."
    modules = {
        found.name.removeprefix(prefix): importlib.import_module(found.name)
        for found in pkgutil.walk_packages(package.__path__, prefix)
    }
    tops = package._MODULES
    return {path: module for path, module in modules.items() if path.split(".")[0] in tops}


def names_of_torchrl(path: str) -> set[str]:
    """Return which of our names TorchRL's module at a path has, or its pages say that it has."""
    theirs = importlib.import_module(f"torchrl.{path}")
    present = {name for name in public_names.HOMES if hasattr(theirs, name)}
    depth = theirs.__name__.count(".")
    if path == "envs.utils" or (path not in datasets_cli.torchrl._MODULES and depth > 2):
        # A module that TorchRL does not open to users also has its imports.
        present = {n for n in present if getattr(theirs, n).__module__.startswith(theirs.__name__)}
    expected = present | {name for where, name in OF_THE_PAGES if where == path}
    if path == "envs.transforms.transforms":
        # There TorchRL spreads the classes over private modules and gathers them again.
        expected = {n for n in datasets_cli.torchrl.envs.__all__ if hasattr(theirs, n)}
    return expected


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # TorchRL's own, when it is imported
def test_a_module_has_the_names_that_torchrl_has_there_and_no_others() -> None:
    ours = {path: set(module.__all__) for path, module in names_only().items()}
    assert ours == {path: names_of_torchrl(path) for path in ours}
    for path, module in names_only().items():
        for name in module.__all__:
            assert getattr(module, name) is public_names.find(name), path


def is_list(node: ast.stmt) -> TypeGuard[ast.Assign | ast.AugAssign]:
    """Return whether a statement is a part of ``__all__`` that type checkers understand."""
    return isinstance(node, ast.Assign | ast.AugAssign)


def test_type_checkers_see_the_names_of_a_module() -> None:
    for path, module in names_only().items():
        tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
        listed = [eval(ast.unparse(n.value), vars(module)) for n in tree.body if is_list(n)]
        (block,) = [node for node in tree.body if isinstance(node, ast.If)]
        (line,) = map(ast.unparse, block.body)
        assert line == "from datasets_cli.torchrl.names import *", path
        assert [name for names in listed for name in names] == module.__all__, path


def test_modules_below_are_attributes_and_unknown_names_are_refused() -> None:
    assert datasets_cli.torchrl.data.replay_buffers.samplers.SliceSampler
    assert datasets_cli.torchrl.envs.transforms.Compose is datasets_cli.Compose
    for path, module in names_only().items():
        below = [other for other in names_only() if other.rpartition(".")[0] == path]
        children = {other.rpartition(".")[2] for other in below}
        assert set(dir(module)) == {*module.__all__, *children}
        with pytest.raises(AttributeError, match=f"{module.__name__}.*NoSuchName"):
            module.NoSuchName  # noqa: B018


def test_paths_are_light_until_a_name_is_used() -> None:
    script = (
        "import sys, datasets_cli.torchrl.data.replay_buffers.samplers, datasets_cli.torchrl.envs;"
        "import datasets_cli.torchrl.data.datasets, datasets_cli.torchrl.collectors;"
        "print({'torch', 'numpy', 'tensordict', 'torchrl'} & sys.modules.keys())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


def test_torchrl_and_minari_are_imported_nowhere() -> None:
    for folder in ("datasets_cli", "recipes"):
        for path in (PROJECT / folder).rglob("*.py"):
            lines = re.findall(r"^\s*(?:import|from) (\w+)", path.read_text(encoding="utf-8"), re.M)
            assert not {"torchrl", "minari"} & {*lines}, path
