"""Makes files of ``recipes/demo/data`` and ``tests/data/d4rl`` from their originals.

Both have an ORIGIN.md that says what they are.

python -m tests.support.make_demo_data door-v0_demos.pickle D4RL/door/human-v2/data
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from tests.support.ale_games import play
from tests.support.atari_files import record
from tests.support.paths import DEMO_DATA, TEST_DATA

DATA = DEMO_DATA
NUM_DEMONSTRATIONS = 5
NUM_EPISODES = 3
PONG_STEPS, PONG_CAPACITY = 1000, 400


class NumpyOnly(pickle.Unpickler):
    """Admits numpy's array globals alone: a pickle is otherwise a program."""

    ALLOWED = frozenset({("multiarray", "_reconstruct"), ("", "ndarray"), ("", "dtype")})

    def find_class(self, module: str, name: str) -> Any:
        package, _, rest = module.replace("numpy.core", "numpy._core").partition("numpy")
        if package or (rest.removeprefix("._core").removeprefix("."), name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"refused: {module}.{name}")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def make_demonstrations(pickle_path: Path) -> None:
    """Write whole demonstrations in D4RL's keys, float32 and gzip as its script does."""
    with pickle_path.open("rb") as file:
        demonstrations = NumpyOnly(file, encoding="latin1").load()[:NUM_DEMONSTRATIONS]
    target = TEST_DATA / "d4rl" / "demonstrations" / "door-v0_demos_clipped.hdf5"
    target.parent.mkdir(parents=True, exist_ok=True)
    lengths = [len(demonstration["rewards"]) for demonstration in demonstrations]
    timeouts = np.zeros(sum(lengths), dtype=np.bool_)
    timeouts[np.cumsum(lengths) - 1] = True
    columns = {
        "observations": _join(demonstrations, "observations"),
        "actions": np.clip(_join(demonstrations, "actions"), -1, 1),
        "rewards": _join(demonstrations, "rewards"),
        "terminals": np.zeros_like(timeouts),
        "timeouts": timeouts,
    }
    with h5py.File(target, "w") as file:
        for name, values in columns.items():
            file.create_dataset(name, data=values, compression="gzip")


def _join(demonstrations: list[dict[str, Any]], key: str) -> np.ndarray:
    return np.concatenate([d[key] for d in demonstrations]).astype(np.float32)


def make_minari(folder: Path) -> None:
    """Copy the first episodes of a Minari dataset as they are."""
    target = DATA / "minari" / "D4RL" / "door" / "human-v2" / "data"
    target.mkdir(parents=True, exist_ok=True)
    with (
        h5py.File(folder / "main_data.hdf5") as source,
        h5py.File(target / "main_data.hdf5", "w") as file,
    ):
        steps = 0
        for number in range(NUM_EPISODES):
            source.copy(f"episode_{number}", file)
            steps += len(source[f"episode_{number}/actions"])
    metadata = json.loads((folder / "metadata.json").read_text(encoding="utf-8"))
    size = (target / "main_data.hdf5").stat().st_size
    metadata |= {
        "total_episodes": NUM_EPISODES,
        "total_steps": steps,
        "dataset_size": round(size / 1e6, 1),
    }
    (target / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")


def make_atari() -> None:
    """Play Pong and write the logs of a replay buffer that is smaller than the publisher's."""
    target = DATA / "atari_dqn" / "Pong" / "5" / "replay_logs"
    record(target, play("pong", PONG_STEPS), PONG_CAPACITY)
    for path in target.glob("invalid_range_*"):
        path.unlink()  # nobody reads it


if __name__ == "__main__":
    make_demonstrations(Path(sys.argv[1]))
    make_minari(Path(sys.argv[2]))
    make_atari()
