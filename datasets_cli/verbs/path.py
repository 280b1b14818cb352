"""The folder of an installed dataset."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from datasets_cli.catalogue.selection import InstalledId
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import takes_fields
from datasets_cli.install.find import condition_of, installed_id
from datasets_cli.store.cache_root import CacheRoot


@dataclass(frozen=True)
class DatasetFolder(JsonForm):
    """The folder of an installed dataset, for ``open``, ``Path`` and ``str``.

    Args:
        id: the full id.
        path: the folder.
        state: ``"installed"``, ``"unchecked"``, ``"unverified"`` or ``"damaged"``.
        problem: the reason why it is damaged, or empty.
    """

    JSON = "id path state"

    id: str
    path: Path
    state: str = "installed"
    problem: str = ""

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)


@takes_fields(InstalledId)
def dataset_path(call: InstalledId) -> DatasetFolder:
    """Return the folder of an installed dataset, which ``Path`` and ``open`` accept.

    Raises:
        DatasetNotInstalled: the dataset is not installed under this root.
        UnknownDataset: no recipe and no folder has that name.
    """
    config = call.chosen_config()
    id = installed_id(call.id, config)
    folder = CacheRoot(config.root).dataset(id)
    condition = condition_of(folder, id)
    return DatasetFolder(id, folder, condition.state, condition.problem)
