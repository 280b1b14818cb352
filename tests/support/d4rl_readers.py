"""What others make of a file of D4RL: the steps of their transitions, and their flags.

Nothing here uses ``datasets_cli``. ``READERS`` is what ``scripts/errata`` is given.
"""

from __future__ import annotations

import importlib
import os
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path
from unittest import mock

import h5py
import numpy as np

Made = dict[str, np.ndarray]


def qlearning_dataset(path: Path) -> Made:
    """Return the transitions that D4RL's function of this name makes, by its rule.

    Each step but the file's last one and those with a timeout; the next step's observation follows,
    and ``terminals`` alone says what is over.
    """
    with h5py.File(path) as file:
        terminals = file["terminals"][:].reshape(-1) != 0
        timeouts = file["timeouts"][:].reshape(-1) != 0
    step = np.flatnonzero(~timeouts[:-1])
    over = terminals[step]
    return {"step": step, "follows": np.ones_like(over), "done": over, "terminated": over}


def torchrl(path: Path) -> Made:
    """Return what TorchRL's conversion makes of the file, which its download finds in place."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = importlib.import_module("torchrl.data.datasets.d4rl")
        name = next(n for n, url in module.D4RL_DATASETS.items() if url.endswith(f"/{path.name}"))

        def fetch(url: str, to: str) -> None:
            Path(to).symlink_to(path.absolute())

        with (
            tempfile.TemporaryDirectory() as root,
            mock.patch.dict(os.environ),  # it names its folder in a variable, and leaves that
            mock.patch.object(module.urllib.request, "urlretrieve", fetch),
        ):
            replay = module.D4RLExperienceReplay(name, 32, direct_download=True, root=root)
            rows = replay[:].clone()
    with h5py.File(path) as file:
        observations = file["observations"][:]
    count = len(rows)
    assert (rows["observation"].numpy() == observations[:count]).all(), "row k is step k"
    following = rows["next", "observation"].numpy() == observations[1 : count + 1]
    flags = {name: rows["next", name].numpy().reshape(-1) for name in ("done", "terminated")}
    return {"step": np.arange(count), "follows": following.all(1), **flags}


READERS = {
    "D4RL's `qlearning_dataset`": qlearning_dataset,
    f"TorchRL {version('torchrl')}": torchrl,
}
