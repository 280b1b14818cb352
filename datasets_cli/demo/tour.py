"""The main job end to end: download, verify, convert, open, sample, on data that ships with us."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tensordict import TensorDict

from datasets_cli.config import load_config
from datasets_cli.demo.origin import serve
from datasets_cli.demo.results import DemoResult
from datasets_cli.experience import ExperienceReplay
from datasets_cli.install.install import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.install.verification import verify
from datasets_cli.progress import Progress

BATCH_SIZE = 64


@dataclass(frozen=True)
class Stop:
    """One dataset of the tour.

    Args:
        id: the dataset.
        about: what its files are.
        published: whether they are the publisher's own, so that the catalogue's checksums hold.
        num_slices: slices of trajectories in a batch; None draws single steps.
    """

    id: str
    about: str
    published: bool
    num_slices: int | None = 4

    @property
    def sampled(self) -> str:
        """What a batch is, in words."""
        if self.num_slices is None:
            return f"{BATCH_SIZE} steps"
        return f"{self.num_slices} slices of {BATCH_SIZE // self.num_slices} steps"


STOPS = (
    Stop(
        "d4rl/door-human-v0",
        "the first demonstration of D4RL's file, 300 steps",
        published=False,
    ),
    Stop(
        "minari/D4RL/door/human-v2",
        "3 of the 25 episodes of Minari's dataset",
        published=True,
    ),
    Stop(
        "openml/61",
        "iris, whole, as OpenML answers it",
        published=True,
        num_slices=None,
    ),
    Stop(
        "atari_dqn/Pong/5",
        "1,000 steps of a random player in the format of the DQN Replay Dataset, 400 a checkpoint",
        published=False,
    ),
)


def tour(root: Path, progress: Progress) -> Iterator[DemoResult]:
    """Install every demo dataset under ``root`` from a server on loopback; yield what was found.

    Args:
        root: an empty cache root.
        progress: told of what happens.
    """
    with serve() as mirrors:
        config = load_config(root=root, offline=False, mirrors=mirrors)
        for stop in STOPS:
            options = InstallOptions(accept_any=not stop.published)
            folder = install_dataset(stop.id, config, options, progress=progress)
            manifest = verify(stop.id, config)
            replay = ExperienceReplay(
                stop.id,
                batch_size=BATCH_SIZE,
                root=root,
                download=False,
                num_slices=stop.num_slices,
                seed=0,
            )
            batch = replay.sample()
            yield DemoResult(
                id=stop.id,
                about=stop.about,
                published=stop.published,
                path=folder,
                num_transitions=manifest.num_transitions,
                num_trajectories=manifest.num_trajectories,
                num_files_verified=len(manifest.files),
                sampled=stop.sampled,
                resources=manifest.resources,
                batch=_leaves(batch),
                mean_reward=float(batch["next", "reward"].mean()),
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
