"""The main job end to end on data that ships with the package: install, verify, open, sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from datasets_cli.config import Config, RootOptions
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import takes_fields
from datasets_cli.core.progress import Silent
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
        about: what its files are.
        published: whether they are a publisher's own, or whole episodes of them.
        path: its folder.
        num_transitions: rows.
        num_trajectories: trajectories.
        num_files_verified: files whose sha256 is as in the manifest.
        sampled: what the batch is, in words.
        resources: the files that were read, as the manifest has them.
        batch: ``{key joined by dots: (element type, shape)}`` of every leaf of the batch.
        mean_reward: of the batch.
        kept: whether it was installed under the user's cache root, where it stays; False where it
            was there before, None where it was not to stay.
    """

    JSON = (
        "id about published path num_transitions num_trajectories "
        "files_verified=num_files_verified sampled resources batch mean_reward kept?"
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
    kept: bool | None = None


@dataclass(frozen=True)
class Stop:
    """One dataset of the tour."""

    id: str
    published: bool
    num_slices: int | None = 4

    @property
    def sampled(self) -> str:
        """What a batch is, in words."""
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
    """What ``run_demo`` takes.

    Args:
        keep: leave them installed under the root, as demo/door-human and so on.
    """

    keep: bool = field(
        default=False, metadata={"help": "Keep the demo datasets installed under the cache root."}
    )


@takes_fields(DemoCall)
def run_demo(call: DemoCall) -> Iterator[DemoResult]:
    """Yield what comes of installing, verifying and sampling the small datasets that ship with us.

    Raises:
        RldsError: something of it failed.
    """
    return _tour(call.chosen_config(), call.keep)


def _tour(config: Config, keep: bool) -> Iterator[DemoResult]:
    if keep:
        for stop in STOPS:
            yield _visited(stop, config)
        return
    with temporary_folder("demo") as folder:
        for stop in STOPS:
            yield replace(_visited(stop, replace(config, root=folder)), kept=None)


def _visited(stop: Stop, config: Config) -> DemoResult:
    from datasets_cli.experience.replay import ExperienceReplay  # with torch

    before = is_installed(CacheRoot(config.root), stop.id)
    installed = install_dataset(stop.id, config, progress=Silent())
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
        path=installed.path,
        num_transitions=manifest.num_transitions,
        num_trajectories=manifest.num_trajectories,
        num_files_verified=len(manifest.files),
        sampled=stop.sampled,
        resources=manifest.resources,
        batch=leaves_of(batch),
        mean_reward=float(batch["next", "reward"].mean()),
        kept=not before,
    )
