"""Keeping an offline and an online buffer, and where the fraction of offline rows stands.

PATH/offline/    a dump of that buffer: of a dataset a reference
PATH/online/     a dump of that buffer: all rows
PATH/share.json  the fraction, and what is carried
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import StateDict
from datasets_cli.replay.buffers.buffer import ReplayBuffer
from datasets_cli.replay.ensembles.pair import NAMES
from datasets_cli.replay.ensembles.persistence import all_or_none
from datasets_cli.replay.ensembles.shares import OfflineShare
from datasets_cli.replay.keeping.dump_folder import PAIR_PARTS, new_dump, open_dump
from datasets_cli.replay.storages.state_files import SETTINGS_BYTES, read_state, write_state

SHARE = "share.json"


def dump_pair(buffers: Sequence[ReplayBuffer], share: OfflineShare, folder: Path) -> None:
    """Write two buffers and their share; see ``OfflineToOnline.dumps``."""
    with new_dump(folder, PAIR_PARTS.__contains__) as made:
        for name, buffer in zip(NAMES, buffers, strict=True):
            buffer.persistence.write(made / name)
        write_state(made / SHARE, share.state())


def load_pair(buffers: Sequence[ReplayBuffer], share: OfflineShare, folder: Path) -> None:
    """Read what ``dump_pair`` wrote; see ``OfflineToOnline.loads``."""
    dump = open_dump(folder)
    state = read_state(dump / SHARE, SETTINGS_BYTES)
    plan_share = partial(share.plan_restore, state, str(folder))
    _change(
        buffers,
        plan_share,
        [
            partial(buffer.persistence.plan_load, dump / name)
            for name, buffer in zip(NAMES, buffers, strict=True)
        ],
    )


def pair_state(buffers: Sequence[ReplayBuffer], share: OfflineShare) -> StateDict:
    """Return the states of two buffers and of their share."""
    states = {name: buffer.state_dict() for name, buffer in zip(NAMES, buffers, strict=True)}
    return {**states, "share": share.state()}


def restore_pair(buffers: Sequence[ReplayBuffer], share: OfflineShare, state: Any) -> None:
    """Continue where ``pair_state`` was called; see ``OfflineToOnline.load_state_dict``."""
    found = state.keys() if isinstance(state, dict) else set()
    if not {*NAMES, "share"} <= found:
        raise UsageError(
            "The state of OfflineToOnline has offline, online and share; this one has "
            f"{', '.join(map(str, found)) or 'nothing'}. One of a buffer alone is for that buffer."
        )
    plan_share = partial(share.plan_restore, state["share"], "The state")
    _change(
        buffers,
        plan_share,
        [
            partial(buffer.persistence.plan_restore, state[name])
            for name, buffer in zip(NAMES, buffers, strict=True)
        ],
    )


def _change(
    buffers: Sequence[ReplayBuffer],
    plan_share: Callable[[], Callable[[], None]],
    plan_buffers: Sequence[Callable[[], Callable[[], None]]],
) -> None:
    """Make all changes that are planned, or none where one is refused."""
    with all_or_none(buffers) as plans:
        plans.append(plan_share())
        plans += [plan() for plan in plan_buffers]
