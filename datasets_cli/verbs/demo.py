"""The main workflow on data that ships with the package: install, verify, open, sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from datasets_cli.config import Config, RootOptions
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import takes_fields
from datasets_cli.core.progress import silent
from datasets_cli.install.find import is_installed
from datasets_cli.install.installation import install_dataset
from datasets_cli.sources.new_files import temporary_folder
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.verbs.sample import Leaves, leaves_of
from datasets_cli.verbs.verify import verify_installed

BATCH_SIZE = 64


@dataclass(frozen=True)
class DemoResult(JsonForm):
    """One dataset of the demo: installed, verified, sampled.

    Args:
        id: the dataset.
        about: a description of its files.
        published: whether the files, or whole episodes of them, come from a publisher.
        path: its folder.
        num_transitions: the number of transitions.
        num_trajectories: the number of trajectories.
        num_files_verified: the number of files whose sha256 matches the manifest.
        sampled: a description of the batch.
        resources: the raw files, as in the manifest.
        batch: ``{key joined by dots: (dtype, shape)}`` of every leaf of the batch.
        mean_reward: the mean reward of the batch.
        is_new: whether the call installed it under the user's cache root; None if it was installed
            temporarily.
    """

    JSON = (
        "id about published path num_transitions num_trajectories "
        "files_verified=num_files_verified sampled resources batch mean_reward new=is_new?"
    )

    id: str
    about: str
    published: bool
    path: Path
    num_transitions: int
    num_trajectories: int
    num_files_verified: int
    sampled: str
    resources: tuple[Mapping[str, Any], ...]
    batch: Leaves
    mean_reward: float
    is_new: bool | None = None


@dataclass(frozen=True)
class Stop:
    """One dataset of the tour."""

    id: str
    published: bool
    num_slices: int | None = 4

    @property
    def sampled(self) -> str:
        """A description of the batch."""
        if self.num_slices is None:
            return f"{BATCH_SIZE} steps"
        return f"{self.num_slices} slices of {BATCH_SIZE // self.num_slices} steps"


STOPS = (
    Stop("demo/door-human", published=False),
    Stop("demo/door-minari", published=True),
    Stop("demo/iris", published=True, num_slices=None),
    Stop("demo/pong", published=False),
)


@dataclass(frozen=True, kw_only=True)
class DemoCall(RootOptions):
    """The arguments of ``run_demo``.

    Args:
        keep: keep the datasets installed under the cache root, as ``demo/door-human`` and so on.
    """

    keep: bool = field(
        default=False, metadata={"help": "Keep the demo datasets installed under the cache root."}
    )


@takes_fields(DemoCall)
def run_demo(call: DemoCall) -> Iterator[DemoResult]:
    """Install, verify and sample the small datasets that ship with rlds, and yield the results.

    Raises:
        RldsError: a step failed.
    """
    return _tour(call.chosen_config(), call.keep)


def _tour(config: Config, keep: bool) -> Iterator[DemoResult]:
    if keep:
        for stop in STOPS:
            yield _visited(stop, config)
        return
    with temporary_folder("demo") as folder:
        for stop in STOPS:
            yield replace(_visited(stop, replace(config, root=folder)), is_new=None)


def _visited(stop: Stop, config: Config) -> DemoResult:
    from datasets_cli.experience.replay import ExperienceReplay  # with torch

    before = is_installed(CacheRoot(config.root), stop.id)
    dataset = install_dataset(stop.id, config, progress=silent)
    manifest = verify_installed(stop.id, config)
    replay = ExperienceReplay(
        stop.id,
        batch_size=BATCH_SIZE,
        root=config.root,
        download=False,
        num_slices=stop.num_slices,
        seed=0,
    )
    batch = replay.sample()
    return DemoResult(
        id=stop.id,
        about=str(manifest.metadata["about"]),
        published=stop.published,
        path=dataset.path,
        num_transitions=manifest.num_transitions,
        num_trajectories=manifest.num_trajectories,
        num_files_verified=len(manifest.files),
        sampled=stop.sampled,
        resources=manifest.resources,
        batch=leaves_of(batch),
        mean_reward=float(batch["next", "reward"].mean()),
        is_new=not before,
    )
