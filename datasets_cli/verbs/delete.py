"""Deletion of installed datasets and of leftovers of their downloads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial

from datasets_cli.catalogue.names import INSTALLED_IDS, named_ids, select_each, select_installed
from datasets_cli.config import Config, RootOptions
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import DRY_RUN, takes_fields
from datasets_cli.install.find import installed_id, remove
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.commit import Identity, identity
from datasets_cli.verbs.du import usage_of


@dataclass(frozen=True)
class DeletedDataset(JsonForm):
    """A deleted dataset, or one that a dry run would delete.

    Args:
        id: the full id.
        size_bytes: the size of its folder, cached tables and leftovers of downloads.
        deleted: False after a dry run.
        state: its former state: ``"installed"``, ``"unchecked"``, ``"unverified"``, ``"damaged"``.
        copy: the identity of the deleted folder.
    """

    JSON = "id bytes=size_bytes deleted state"

    id: str
    size_bytes: int
    deleted: bool
    state: str = "installed"
    copy: Identity = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class DeleteCall(RootOptions):
    """The arguments of ``delete``.

    Args:
        ids: an id, a name that resolves to one, a glob, or several of them.
        dry_run: delete nothing, and return what would be deleted.
        expected: the result of a dry run; a dataset that was replaced since then is kept.
    """

    ids: str | Iterable[str] = field(
        metadata={**INSTALLED_IDS, "help": "Ids or globs of installed datasets."}
    )
    _: KW_ONLY
    dry_run: bool = field(default=False, metadata=DRY_RUN)
    expected: Iterable[DeletedDataset] = field(default=(), metadata={"typed": None})


@takes_fields(DeleteCall)
def delete(call: DeleteCall) -> list[DeletedDataset]:
    """Delete installed datasets and leftovers of their downloads, without confirmation.

    Raises:
        UnknownDataset, DatasetNotInstalled: datasets are not installed; the message names all of
            them, and nothing is deleted.
        LockedError: another process replaced a dataset during the call.
    """
    config = call.chosen_config()
    place = CacheRoot(config.root)
    ids = select_each(named_ids(call.ids), partial(_own_ids, config))
    copies = {each.id: each.copy for each in call.expected}
    found = [_looked_at(id, place) for id in ids]
    if call.dry_run:
        return found
    for each in found:
        remove(each.id, config, copies.get(each.id, each.copy))
    return [replace(each, deleted=True) for each in found]


def _looked_at(id: str, root: CacheRoot) -> DeletedDataset:
    copy, usage = identity(root.dataset(id)), usage_of(id, root)
    return DeletedDataset(id, usage.size_bytes, False, usage.state, copy)


def _own_ids(config: Config, text: str) -> list[str]:
    """Return the ids that a text selects; a fallback is never deleted in place of its dataset."""
    selected = select_installed(text, config)
    return [installed_id(id, config, accept_fallback=False) for id in selected]
