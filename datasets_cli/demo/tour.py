"""The main job end to end: install, verify, open and sample data that ships with the package."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tensordict import TensorDict

from datasets_cli.config import Config
from datasets_cli.demo.results import DemoResult
from datasets_cli.experience import ExperienceReplay
from datasets_cli.install.install import install_dataset
from datasets_cli.installed.lookup import is_installed
from datasets_cli.installed.verification import verify
from datasets_cli.progress import Progress
from datasets_cli.store.cache_root import CacheRoot

BATCH_SIZE = 64


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


def tour(config: Config, progress: Progress) -> Iterator[DemoResult]:
    """Install every demo dataset from the files in the package; yield what was found."""
    for stop in STOPS:
        before = is_installed(CacheRoot(config.root), stop.id)
        folder = install_dataset(stop.id, config, progress=progress)
        manifest = verify(stop.id, config)
        replay = ExperienceReplay(
            stop.id,
            batch_size=BATCH_SIZE,
            root=config.root,
            download=False,
            num_slices=stop.num_slices,
            seed=0,
        )
        batch = replay.sample()
        yield DemoResult(
            id=stop.id,
            about=str(manifest.metadata["about"]),
            published=stop.published,
            path=folder,
            num_transitions=manifest.num_transitions,
            num_trajectories=manifest.num_trajectories,
            num_files_verified=len(manifest.files),
            sampled=stop.sampled,
            resources=manifest.resources,
            batch=_leaves(batch),
            mean_reward=float(batch["next", "reward"].mean()),
            kept=not before,
        )


def _leaves(batch: TensorDict) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the element type and shape of every leaf, sorted by its key."""
    leaves = sorted(batch.items(include_nested=True, leaves_only=True), key=str)
    return {
        ".".join(key) if isinstance(key, tuple) else key: (
            str(leaf.dtype).removeprefix("torch."),
            tuple(leaf.shape),
        )
        for key, leaf in leaves
    }
