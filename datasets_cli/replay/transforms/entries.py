"""Transforms of entries: which a batch has, what they are called, their shape and their type."""

from __future__ import annotations

import torch
from tensordict import TensorDict

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import NestedKey, NestedKeys, key_of, keys_of
from datasets_cli.replay.transforms.transform import KeyMap, Transform, required_entry, stored_map
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
        values = [required_entry(batch, key, names.owner) for key in names.in_keys]
        if not self.create_copy:
            batch = batch.exclude(*names.in_keys, inplace=True)
        for key, value in zip(names.out_keys, values, strict=True):
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
        self.inverse = self.only_writes = inverse

    def __call__(self, batch: TensorDict) -> TensorDict:
        return batch if self.inverse else batch.exclude(*self.excluded_keys)

    def inv(self, data: TensorDict) -> TensorDict:
        return data.exclude(*self.excluded_keys) if self.inverse else data


class CatTensors(Transform):
    """Joins several entries into one.

    Args:
        in_keys: the entries.
        out_key: where the result goes.
        dim: the dimension along which they are joined; negative counts from the last.
        del_keys: drop the entries that were joined.
        unsqueeze_if_oor: give an entry that lacks this dimension one of size 1.
        sort: join them in the order of their names rather than the one given.

    Raises:
        UsageError: no entry is named.
    """

    def __init__(
        self,
        in_keys: NestedKeys,
        out_key: NestedKey = "observation_vector",
        dim: int = -1,
        *,
        del_keys: bool = True,
        unsqueeze_if_oor: bool = False,
        sort: bool = True,
    ) -> None:
        keys = keys_of(in_keys or [])
        if not keys:
            raise UsageError("CatTensors needs in_keys: the entries to join.")
        # TorchRL's order of nested keys, since the columns of what is joined are in it.
        self.in_keys = sorted(keys, key="_-|-_".join) if sort else keys
        self.out_key = key_of(out_key)
        self.dim = dim
        self.del_keys = del_keys
        self.unsqueeze_if_oor = unsqueeze_if_oor

    def __call__(self, batch: TensorDict) -> TensorDict:
        values = [required_entry(batch, key, "CatTensors") for key in self.in_keys]
        if self.unsqueeze_if_oor:
            values = [self._with_dim(value) for value in values]
        try:
            joined = torch.cat(values, dim=self.dim)
        except (RuntimeError, IndexError) as error:
            shapes = ", ".join(str(list(value.shape)) for value in values)
            raise UsageError(
                f"CatTensors cannot join entries of shapes {shapes} along {self.dim}: {error}"
            ) from error
        batch.set(self.out_key, joined)
        if self.del_keys:
            joined_keys = [key for key in self.in_keys if key != self.out_key]
            batch = batch.exclude(*joined_keys, inplace=True)
        return batch

    def _with_dim(self, value: torch.Tensor) -> torch.Tensor:
        place = self.dim if self.dim > 0 else -self.dim - 1
        if place < value.ndim:
            return value
        return value.unsqueeze(-1 if self.dim > 0 else 0)

    def __repr__(self) -> str:
        return f"CatTensors(in_keys={self.in_keys}, out_key={self.out_key})"


class UnsqueezeTransform(Transform):
    """Gives entries one more dimension, of size 1.

    Args:
        dim: where; negative counts from the last.
        allow_positive_dim: accept a dim from 0 on, which counts the batch's dimensions too.
        in_keys: entries that are read.
        out_keys: where the results go; ``in_keys`` by default.
        in_keys_inv: where entries are stored, without that dimension, when rows are written.
        out_keys_inv: what those are called in what is written.

    Raises:
        UsageError: a dim from 0 on is not allowed, or there are not as many keys out as in.
    """

    def __init__(
        self,
        dim: int,
        *,
        allow_positive_dim: bool = False,
        in_keys: NestedKeys | None = None,
        out_keys: NestedKeys | None = None,
        in_keys_inv: NestedKeys | None = None,
        out_keys_inv: NestedKeys | None = None,
    ) -> None:
        if dim >= 0 and not allow_positive_dim:
            raise UsageError(
                f"A dim of {dim} means another one in batches of another rank. Give a negative "
                "dim, or pass allow_positive_dim=True."
            )
        self.dim = dim
        self._read = KeyMap("UnsqueezeTransform", in_keys or [], out_keys)
        self._stored = stored_map("UnsqueezeTransform", in_keys_inv, out_keys_inv)

    def __call__(self, batch: TensorDict) -> TensorDict:
        return self._read.apply(batch, lambda value: value.unsqueeze(self.dim))

    def inv(self, data: TensorDict) -> TensorDict:
        return self._stored.apply(data.copy(), lambda value: value.squeeze(self.dim))


class DTypeCastTransform(Transform):
    """Casts entries of one element type to another.

    >>> batch = TensorDict({"action": torch.zeros(2, 3, dtype=torch.float64)}, [2])
    >>> DTypeCastTransform(torch.float64, torch.float32)(batch)["action"].dtype
    torch.float32

    Args:
        dtype_in: the type of the entries that are cast where none is named, and of what is stored.
        dtype_out: what they become when they are read.
        in_keys: entries that are cast when read, of whatever type; every one of ``dtype_in`` where
            None.
        out_keys: where the results go; ``in_keys`` by default.
        in_keys_inv: where entries are stored as ``dtype_in`` when rows are written; none by
            default.
        out_keys_inv: what those are called in what is written.

    Raises:
        UsageError: a type is none, or there are not as many keys out as in.
    """

    def __init__(
        self,
        dtype_in: torch.dtype,
        dtype_out: torch.dtype,
        in_keys: NestedKeys | None = None,
        out_keys: NestedKeys | None = None,
        in_keys_inv: NestedKeys | None = None,
        out_keys_inv: NestedKeys | None = None,
    ) -> None:
        name = type(self).__name__
        for given in (dtype_in, dtype_out):
            if not isinstance(given, torch.dtype):
                raise UsageError(f"{name} casts one torch.dtype to another, not {given!r}.")
        if in_keys is None and out_keys is not None:
            raise UsageError(f"{name} cannot tell which entries its out_keys are for.")
        self.dtype_in, self.dtype_out = dtype_in, dtype_out
        self._read = None if in_keys is None else KeyMap(name, in_keys, out_keys)
        self._stored = stored_map(name, in_keys_inv, out_keys_inv)

    def __call__(self, batch: TensorDict) -> TensorDict:
        if self._read is not None:
            return self._read.apply(batch, lambda value: value.to(self.dtype_out))
        for key, value in list(batch.items(include_nested=True, leaves_only=True)):
            if isinstance(value, torch.Tensor) and value.dtype == self.dtype_in:
                batch.set(key, value.to(self.dtype_out))
        return batch

    def inv(self, data: TensorDict) -> TensorDict:
        return self._stored.apply(data.copy(), lambda value: value.to(self.dtype_in))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dtype_in}, {self.dtype_out})"


class DoubleToFloat(DTypeCastTransform):
    """Casts float64 to float32.

    Args:
        in_keys: entries that are cast when read; every float64 entry where None.
        out_keys: where the results go; ``in_keys`` by default.
        in_keys_inv: where entries are stored as float64 when rows are written; none by default.
        out_keys_inv: what those are called in what is written.

    Raises:
        UsageError: there are not as many keys out as in.
    """

    def __init__(
        self,
        in_keys: NestedKeys | None = None,
        out_keys: NestedKeys | None = None,
        in_keys_inv: NestedKeys | None = None,
        out_keys_inv: NestedKeys | None = None,
    ) -> None:
        super().__init__(torch.float64, torch.float32, in_keys, out_keys, in_keys_inv, out_keys_inv)
