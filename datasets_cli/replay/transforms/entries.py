"""Transforms of entries: their selection, names, shapes and dtypes."""

from __future__ import annotations

import torch
from tensordict import TensorDict

from datasets_cli.errors import UsageError, WrongRows, wrong_value
from datasets_cli.replay.arguments import NestedKey, NestedKeys, key_of, keys_of
from datasets_cli.replay.transforms.transform import KeyMap, Transform, required_entry, stored_map
from datasets_cli.schema.columns import Key, show_key

FLAGS = ("done", "terminated", "truncated")
REWARDS: list[Key] = [("reward",), ("next", "reward")]
DONES: list[Key] = [(*place, flag) for place in ((), ("next",)) for flag in FLAGS]


class RenameTransform(Transform):
    """Renames entries.

    Args:
        in_keys: keys of the entries.
        out_keys: their new keys; a key cannot be in ``in_keys`` and ``out_keys``, because the
            order would matter.
        in_keys_inv: keys of the stored rows, for entries that are renamed when rows are written.
        out_keys_inv: keys of the same entries in the written rows.
        create_copy: keep the entries under their old keys too.

    Raises:
        UsageError: the numbers of keys differ, or a key is an old and a new one.
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
                    f"RenameTransform: {show_key(key)} is in in_keys and in out_keys.",
                    argument="out_keys",
                    key=key,
                    advice="Use two transforms.",
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
    """Keeps the selected entries, and drops all other entries.

    Args:
        selected_keys: keys of entries to keep; a key that the batch lacks is skipped.
        keep_rewards: keep the reward too.
        keep_dones: keep the done, terminated and truncated flags too.
    """

    def __init__(
        self, *selected_keys: NestedKey, keep_rewards: bool = True, keep_dones: bool = True
    ) -> None:
        self.selected_keys = [key_of(key) for key in selected_keys]
        self._all_keys = [
            *self.selected_keys,
            *(REWARDS if keep_rewards else []),
            *(DONES if keep_dones else []),
        ]

    def __call__(self, batch: TensorDict) -> TensorDict:
        return batch.select(*self._all_keys, strict=False)


class ExcludeTransform(Transform):
    """Drops the excluded entries.

    Args:
        excluded_keys: keys of entries to drop; a key that the batch lacks is skipped.
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
        in_keys: keys of the entries.
        out_key: key of the result.
        dim: the dimension along which they are joined; negative counts from the last.
        del_keys: drop the entries that were joined.
        unsqueeze_if_oor: add a dimension of size 1 to an entry that lacks ``dim``.
        sort: join them in the order of their keys rather than of ``in_keys``.

    Raises:
        UsageError: ``in_keys`` is empty.
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
            raise UsageError(
                "CatTensors: in_keys is empty; expected the keys of the entries to join.",
                argument="in_keys",
            )
        # TorchRL's order of nested keys, so that both join the same columns in the same order.
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
            shapes = [list(value.shape) for value in values]
            raise WrongRows(
                f"CatTensors cannot join entries of shapes {', '.join(map(str, shapes))} along "
                f"dim {self.dim}: {error}",
                found=shapes,
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
    """Adds a dimension of size 1 to entries.

    Args:
        dim: its position; negative counts from the last.
        allow_positive_dim: accept ``dim >= 0``, which counts the batch's dimensions too.
        in_keys: keys of the entries.
        out_keys: keys of the results; ``in_keys`` by default.
        in_keys_inv: keys of stored entries, from which the dimension is removed when rows are
            written.
        out_keys_inv: keys of the same entries in the written rows.

    Raises:
        UsageError: ``dim >= 0`` without ``allow_positive_dim``, or the numbers of keys differ.
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
            raise wrong_value("dim", "a negative dim, or allow_positive_dim=True", dim)
        self.dim = dim
        self._read = KeyMap("UnsqueezeTransform", in_keys or [], out_keys)
        self._stored = stored_map("UnsqueezeTransform", in_keys_inv, out_keys_inv)

    def __call__(self, batch: TensorDict) -> TensorDict:
        return self._read.apply(batch, lambda value: value.unsqueeze(self.dim))

    def inv(self, data: TensorDict) -> TensorDict:
        return self._stored.apply(data.copy(), lambda value: value.squeeze(self.dim))


class DTypeCastTransform(Transform):
    """Casts entries of one dtype to another.

    >>> batch = TensorDict({"action": torch.zeros(2, 3, dtype=torch.float64)}, [2])
    >>> DTypeCastTransform(torch.float64, torch.float32)(batch)["action"].dtype
    torch.float32

    Args:
        dtype_in: dtype of stored entries; without ``in_keys``, entries of this dtype are cast.
        dtype_out: their dtype in batches.
        in_keys: keys of entries that are cast when read; every entry of ``dtype_in`` by default.
        out_keys: keys of the results; ``in_keys`` by default.
        in_keys_inv: keys of entries that are stored as ``dtype_in`` when rows are written.
        out_keys_inv: keys of the same entries in the written rows.

    Raises:
        UsageError: a dtype is not a ``torch.dtype``, or the numbers of keys differ.
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
        for argument, dtype in {"dtype_in": dtype_in, "dtype_out": dtype_out}.items():
            if not isinstance(dtype, torch.dtype):
                raise wrong_value(argument, "a torch dtype, for example torch.float32", dtype)
        if in_keys is None and out_keys is not None:
            raise UsageError(
                f"{name}: out_keys needs in_keys.", argument="out_keys", advice="Pass in_keys too."
            )
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
        in_keys: keys of entries that are cast when read; every float64 entry by default.
        out_keys: keys of the results; ``in_keys`` by default.
        in_keys_inv: keys of entries that are stored as float64 when rows are written.
        out_keys_inv: keys of the same entries in the written rows.

    Raises:
        UsageError: the numbers of keys differ.
    """

    def __init__(
        self,
        in_keys: NestedKeys | None = None,
        out_keys: NestedKeys | None = None,
        in_keys_inv: NestedKeys | None = None,
        out_keys_inv: NestedKeys | None = None,
    ) -> None:
        super().__init__(torch.float64, torch.float32, in_keys, out_keys, in_keys_inv, out_keys_inv)
