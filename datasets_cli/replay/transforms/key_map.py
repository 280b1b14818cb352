"""Which entries of a batch a transform reads, and where what it makes of them goes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from tensordict import TensorDict

from datasets_cli.errors import UsageError
from datasets_cli.replay.nested_keys import NestedKeys, key_of, keys_of
from datasets_cli.schema.columns import Key, refuse_missing_reward, show_key
from datasets_cli.schema.tree import entry


class KeyMap:
    """Which entries of a batch are read, and where what is made of them goes."""

    def __init__(self, owner: str, in_keys: NestedKeys, out_keys: NestedKeys | None = None) -> None:
        self.owner = owner
        self.in_keys = keys_of(in_keys)
        self.out_keys = self.in_keys if out_keys is None else keys_of(out_keys)
        if len(self.in_keys) != len(self.out_keys):
            raise UsageError(
                f"{owner} needs an out_key for each in_key; found {len(self.in_keys)} and "
                f"{len(self.out_keys)}."
            )

    @property
    def pairs(self) -> list[tuple[Key, Key]]:
        """Each key that is read, and the one that its result goes to."""
        return list(zip(self.in_keys, self.out_keys, strict=True))

    def apply(
        self, batch: TensorDict, function: Callable[[torch.Tensor], torch.Tensor]
    ) -> TensorDict:
        """Put the function of each entry into the batch, and return that."""
        for source, target in self.pairs:
            batch.set(target, function(required_entry(batch, source, self.owner)))
        return batch


def stored_map(
    owner: str, in_keys_inv: NestedKeys | None, out_keys_inv: NestedKeys | None
) -> KeyMap:
    """Return which entries of written rows are read, and the names by which they are stored."""
    stored = in_keys_inv or []
    return KeyMap(owner, out_keys_inv or stored, stored)


def required_entry(batch: TensorDict, key: Key, owner: str) -> torch.Tensor:
    """Return an entry of a batch."""
    try:
        value: torch.Tensor | None = entry(batch, key)
    except AttributeError:  # a leaf where the key has a group
        value = None
    if value is None:
        refuse_missing_reward(key, owner, "the batch")
        names = batch.keys(include_nested=True, leaves_only=True)
        keys = sorted(show_key(key_of(name)) for name in names)
        raise UsageError(
            f"{owner} needs {show_key(key)}, which the batch does not have. It has: "
            f"{', '.join(keys)}."
        )
    return value
