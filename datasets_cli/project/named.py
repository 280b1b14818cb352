"""What a name opens: an installed dataset, or what a project declares."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from datasets_cli.config import Config
from datasets_cli.errors import UsageError
from datasets_cli.project.file import DATA
from datasets_cli.replay.storages.dataset import DatasetStorage, open_installed
from datasets_cli.replay.storages.options import StorageOptions

if TYPE_CHECKING:
    from datasets_cli.replay.buffers.tensordict import TensorDictReplayBuffer


def open_named(
    name: str,
    project: str | os.PathLike[str] | None,
    config: Config,
    options: StorageOptions,
) -> DatasetStorage | TensorDictReplayBuffer:
    """Open an installed dataset, or what a project declares; see ``open_dataset``."""
    if project is None:
        return open_installed(name, config, options)
    if options != StorageOptions():
        raise UsageError(
            "device, pin_memory, contiguous and text are of a dataset; a project declares its data "
            f"in [{DATA}.{name}]."
        )
    # Mixtures, views and installing: of a dataset that is there they take longer than to open it.
    from datasets_cli.project.data import DataFile, open_declared

    return open_declared(name, DataFile(project), config.root, download=True).buffer
