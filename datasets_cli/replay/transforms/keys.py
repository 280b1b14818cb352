"""Transforms of which entries a batch has, and what they are called."""

from __future__ import annotations

from tensordict import TensorDict

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import NestedKey, NestedKeys, key_of
from datasets_cli.replay.transforms.key_map import KeyMap, required_entry, stored_map
from datasets_cli.replay.transforms.transform import Transform
from datasets_cli.schema.columns import Key, show_key

FLAGS = ("done", "terminated", "truncated")
REWARDS: list[Key] = [("reward",), ("next", "reward")]
DONES: list[Key] = [(*place, flag) for place in ((), ("next",)) for flag in FLAGS]


class RenameTransform(Transform):
    """Gives entries other names.

    Args:
        in_keys: the entries.
        out_keys: their new names; none of them is among ``in_keys``, since the order would matter.
        in_keys_inv: the names under which entries are stored when rows are written.
        out_keys_inv: the names that those have in what is written.
        create_copy: keep the entries under their old names too.

    Raises:
        UsageError: there are not as many new names as entries, or one is both.
    """

    def __init__(
        self,
        in_keys: NestedKeys,
        out_keys: NestedKeys,
        in_keys_inv: NestedKeys | None = None,
        out_keys_inv: NestedKeys | None = None,
        create_copy: bool = False,
    ) -> None:
        self._names = KeyMap("RenameTransform", in_keys, out_keys)
        self._stored = stored_map("RenameTransform", in_keys_inv, out_keys_inv)
        self.create_copy = create_copy
        for key in self._names.in_keys:
            if key in self._names.out_keys:
                raise UsageError(
                    f"RenameTransform cannot rename {show_key(key)} and give that name to another "
                    "entry at once. Use two transforms."
                )

    def __call__(self, batch: TensorDict) -> TensorDict:
        return self._rename(batch, self._names)

    def inv(self, data: TensorDict) -> TensorDict:
        return self._rename(data.copy(), self._stored)

    def _rename(self, batch: TensorDict, names: KeyMap) -> TensorDict:
        found = [required_entry(batch, key, names.owner) for key in names.in_keys]
        if not self.create_copy:
            batch = batch.exclude(*names.in_keys, inplace=True)
        for key, value in zip(names.out_keys, found, strict=True):
            batch.set(key, value)
        return batch


class SelectTransform(Transform):
    """Keeps some entries, and drops the others.

    Args:
        selected_keys: what to keep; a key that the batch does not have is passed over.
        keep_rewards: keep the reward too.
        keep_dones: keep the done, terminated and truncated flags too.
    """

    def __init__(
        self, *selected_keys: NestedKey, keep_rewards: bool = True, keep_dones: bool = True
    ) -> None:
        self.selected_keys = [key_of(key) for key in selected_keys]
        self._kept = [
            *self.selected_keys,
            *(REWARDS if keep_rewards else []),
            *(DONES if keep_dones else []),
        ]

    def __call__(self, batch: TensorDict) -> TensorDict:
        return batch.select(*self._kept, strict=False)


class ExcludeTransform(Transform):
    """Drops some entries.

    Args:
        excluded_keys: what to drop; a key that the batch does not have is passed over.
        inverse: drop them when rows are written, rather than when they are read.
    """

    def __init__(self, *excluded_keys: NestedKey, inverse: bool = False) -> None:
        self.excluded_keys = [key_of(key) for key in excluded_keys]
        self.inverse = inverse

    def __call__(self, batch: TensorDict) -> TensorDict:
        return batch if self.inverse else batch.exclude(*self.excluded_keys)

    def inv(self, data: TensorDict) -> TensorDict:
        return data.exclude(*self.excluded_keys) if self.inverse else data
