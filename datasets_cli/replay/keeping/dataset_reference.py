"""The dataset that a buffer draws from, as dumps and states name it in place of its rows."""

from __future__ import annotations

from typing import Any

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import StateDict
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.replay.storages.frame_stack import FrameStack
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.storages.sequences import Sequences


def dataset_of(storage: Storage) -> StateDict | None:
    """Return id, content and number of rows of a storage's dataset; None if it has rows of its
    own.
    """
    if isinstance(storage, Sequences):
        return dataset_of(storage.rows)
    # Storages of several datasets, or of other columns, say it themselves.
    reference: StateDict | None = getattr(storage, "reference", None)
    if reference is not None:
        return reference
    if not isinstance(storage, DatasetStorage | FrameStack):
        return None
    manifest, selection = storage.dataset.manifest, storage.dataset.selection
    view = {} if selection is None else {"view": selection.digest}
    return {"id": manifest.id, "content": manifest.content, "num_rows": len(storage), **view}


def check_dataset(storage: Storage, expected: Any, what: str) -> None:
    """Check that a storage has the dataset that a dump or a state names, in any layout."""
    found = dataset_of(storage)
    if not isinstance(expected, dict) or not isinstance(expected.get("content"), str):
        raise UsageError(f"{what} does not name the content of a dataset. Save or dump it again.")
    wanted = f"{expected.get('id')} (content {expected.get('content')})"
    if found is None:
        raise UsageError(
            f"{what} is of a buffer over the dataset {wanted}, and has none of its rows; this "
            "buffer is not over a dataset. Load it into one over that dataset, such as "
            f"ExperienceReplay({str(expected.get('id'))!r}); copy rows with extend()."
        )
    if found["content"] != expected.get("content"):
        raise UsageError(
            f"{what} is of a buffer over the dataset {wanted}; this one's is {found['id']} "
            f"(content {found['content']}). Open the dataset that was used then, in any layout."
        )
    if found.get("view") != expected.get("view"):
        raise UsageError(
            f"{what} is of {_view_of(expected)} of {wanted}; this buffer is over "
            f"{_view_of(found)}, which has {found['num_rows']:,} rows. Make the same view first; a "
            "view is kept by its save(), and opened by ExperienceReplay('the file.json')."
        )


def _view_of(reference: StateDict) -> str:
    view = reference.get("view")
    return "all rows" if view is None else f"a view (digest {str(view)[:16]})"
