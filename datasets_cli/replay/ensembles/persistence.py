"""Keeping an ensemble: its members, and where the draws of members stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import StateDict
from datasets_cli.replay.buffers.buffer import ReplayBuffer
from datasets_cli.replay.keeping.draws import read_generator, write_generator
from datasets_cli.replay.keeping.dump_folder import (
    GENERATOR,
    SEAL,
    is_member,
    new_dump,
    open_dump,
)
from datasets_cli.replay.keeping.state import generator_in


def dump_members(buffers: Sequence[ReplayBuffer], generator: torch.Generator, folder: Path) -> None:
    """Write members into folders of their own; see ``ReplayBufferEnsemble.dumps``."""

    def is_part(name: str) -> bool:
        return name == GENERATOR or (is_member(name) and (folder / name / SEAL).exists())

    with new_dump(folder, is_part) as made:
        for number, buffer in enumerate(buffers):
            buffer.persistence.write(made / str(number))
        if generator is not torch.default_generator:
            write_generator(made, generator, generator.get_state())


def load_members(
    buffers: Sequence[ReplayBuffer], generator: torch.Generator, folder: Path, tensorclass: Any
) -> None:
    """Read what ``dump_members`` wrote; see ``ReplayBufferEnsemble.loads``."""
    is_own = generator is not torch.default_generator
    dump = open_dump(folder)
    state = read_generator(dump / GENERATOR, generator) if is_own else None
    with all_or_none(buffers) as plans:
        for number, buffer in enumerate(buffers):
            plans.append(buffer.persistence.plan_load(dump / str(number), tensorclass))
    if state is not None:
        generator.set_state(state)


def members_state(buffers: Sequence[ReplayBuffer], generator: torch.Generator) -> StateDict:
    """Return the state of members, and of what draws them."""
    members = [buffer.state_dict() for buffer in buffers]
    return {"members": members, "generator": generator.get_state()}


def restore_members(
    buffers: Sequence[ReplayBuffer],
    generator: torch.Generator,
    state: StateDict,
    tensorclass: Any,
) -> None:
    """Continue where ``members_state`` was called; see ``ReplayBufferEnsemble.load_state_dict``."""
    found = state.get("members") if isinstance(state, dict) else None
    if not isinstance(found, list) or len(found) != len(buffers):
        count = len(found) if isinstance(found, list) else "no"
        raise UsageError(
            f"The state is of an ensemble of {count} members; this one has {len(buffers)}. Make "
            "one of the same members."
        )
    drawn = generator_in(state, generator)
    with all_or_none(buffers) as plans:
        for buffer, own in zip(buffers, found, strict=True):
            plans.append(buffer.persistence.plan_restore(own, tensorclass))
    generator.set_state(drawn)


@contextmanager
def all_or_none(buffers: Sequence[ReplayBuffer]) -> Iterator[list[Callable[[], None]]]:
    """Let changes of members be planned; they are made at the end, if none was refused."""
    plans: list[Callable[[], None]] = []
    with ExitStack() as locks:
        for buffer in buffers:
            locks.enter_context(buffer.reader.lock)
        yield plans
        for change in plans:
            change()
