"""``torchrl`` -> ``datasets_cli.torchrl`` is the whole change of an import line."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

import datasets_cli
import datasets_cli.torchrl
from tests.support import public_names
from tests.support.paths import PROJECT

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
    "from torchrl.data import TensorSpec",
    "from torchrl.data import BinaryDiscreteTensorSpec",
    "from torchrl.data import BoundedTensorSpec",
    "from torchrl.data import CompositeSpec",
    "from torchrl.data import DiscreteTensorSpec",
    "from torchrl.data import MultiDiscreteTensorSpec",
    "from torchrl.data import MultiOneHotDiscreteTensorSpec",
    "from torchrl.data import OneHotDiscreteTensorSpec",
    "from torchrl.data import UnboundedContinuousTensorSpec",
    "from torchrl.data import UnboundedDiscreteTensorSpec",
    # Written as paths in the text of the pages.
    "from torchrl.collectors import split_trajectories",
    "from torchrl.data import Sampler, Storage, Writer, MultiStep, RoundRobinWriter",
    "from torchrl.envs.utils import check_env_specs",
    "from torchrl.data.datasets import D4RLExperienceReplay, OpenMLExperienceReplay",
]

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


def ours(line: str) -> str:
    return line.replace("torchrl", "datasets_cli.torchrl", 1)


def test_an_import_line_of_the_pages_needs_no_other_change() -> None:
    for line in LINES:
        names: dict[str, object] = {}
        exec(ours(line), names)
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


def test_type_checkers_see_the_names_of_a_module() -> None:
    for path, module in names_only().items():
        tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
        (literal,) = [
            ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign)
        ]
        (block,) = [node for node in tree.body if isinstance(node, ast.If)]
        (line,) = map(ast.unparse, block.body)
        assert line == "from datasets_cli.torchrl.names import *", path
        assert literal == module.__all__, path


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
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and not node.level:
                    names = [node.module or ""]
                tops = {name.partition(".")[0] for name in names}
                assert not tops & {"torchrl", "minari"}, path
