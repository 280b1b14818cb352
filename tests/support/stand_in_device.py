"""A device that stands in for a GPU where there is none: the CPU does its work, and all is counted.

Its name is "meta", which torch knows without any driver. Inside of ``StandInDevice`` tensors of that
device have values, and as on a GPU they cannot be read but by a copy, nor mixed with the CPU's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

CPU, DEVICE = torch.device("cpu"), torch.device("meta")
WAITS = {"_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal"}


class OnDevice(torch.Tensor):
    """A tensor of the stand-in; ``values`` is where its values really are."""

    values: torch.Tensor

    @staticmethod
    def __new__(cls, values: torch.Tensor) -> OnDevice:
        made: OnDevice = torch.Tensor._make_wrapper_subclass(
            cls,
            values.shape,
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            device=DEVICE,
        )
        made.values = values
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{function} outside of StandInDevice")


class StandInDevice(TorchDispatchMode):
    """Does what a device is asked to, and lists it.

    operations: names, views left out; they are no work of a GPU's.
    waits: those for which the caller waits until the device has done all that it was asked to.
    sent: bytes of each tensor that was copied there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.clear()

    def clear(self) -> None:
        self.operations: list[str] = []
        self.waits: list[str] = []
        self.sent: list[int] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        here = [isinstance(tensor, OnDevice) for tensor in given]
        device = torch.device(kwargs["device"]) if kwargs.get("device") is not None else None
        if not any(here) and device != DEVICE:
            return function(*args, **kwargs)
        name = function.overloadpacket.__name__
        goes_away = device == CPU and name == "_to_copy"
        if not goes_away:
            on_cpu = [tensor for tensor, is_here in zip(given, here, strict=True) if not is_here]
            assert name in ("_to_copy", "copy_") or not any(tensor.ndim for tensor in on_cpu), (
                f"{name} mixes devices"
            )
            self.sent += [tensor.nbytes for tensor in on_cpu if name in ("_to_copy", "copy_")]
        is_mask = name in ("index", "index_put_", "index_put") and any(
            tensor is not None and tensor.dtype == torch.bool for tensor in args[1]
        )
        if goes_away or name in WAITS or (is_mask and name == "index"):
            self.waits.append(name)
        if not function.is_view:
            self.operations.append(name)
        if device == DEVICE:
            kwargs["device"] = CPU
        args, kwargs = tree_map_only(OnDevice, lambda tensor: tensor.values, (args, kwargs))
        if name == "_to_copy":
            result = args[0].to(kwargs.get("dtype") or args[0].dtype, copy=True)
        else:
            result = function(*args, **kwargs)
        if goes_away:
            return result
        if function._schema.is_mutable and given and here[0]:
            return given[0]
        return tree_map_only(torch.Tensor, OnDevice, result)
