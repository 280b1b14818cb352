"""A device that stands in for a GPU where there is none: the CPU does its work, and all is counted.

Its name is "meta", which torch knows without any driver. Inside of ``StandInDevice`` tensors of
that device have values, and as on a GPU they cannot be read but by a copy, nor mixed with the
CPU's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

CPU, DEVICE = torch.device("cpu"), torch.device("meta")
WAITS = {"_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal"}
COPIES = {"_to_copy", "copy_"}


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

    def numpy(self, *, force: bool = False) -> np.ndarray:
        assert force, "numpy has no memory of a device's"
        return self.cpu().numpy()

    def tolist(self) -> Any:
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, function: Any, *_: Any) -> Any:
        raise AssertionError(f"{function} outside of StandInDevice")


class StandInDevice(TorchDispatchMode):
    """Does what a device is asked to, and lists it.

    operations: names; views are left out, which are no work of a device's.
    waits: those for which the caller waits until all that the device was asked to is done.
    sent: bytes of each tensor that was copied there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.clear()

    def clear(self) -> None:
        self.operations: list[str] = []
        self.waits: list[str] = []
        self.sent: list[int] = []

    def __torch_dispatch__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        is_here = any(isinstance(each, OnDevice) for each in given)
        device = kwargs.get("device")
        if not is_here and device != DEVICE:
            return function(*args, **kwargs)
        name = function.overloadpacket.__name__
        goes_away = is_here and device == CPU
        self._note(name, function.is_view, goes_away, given, args)
        if device is not None:
            kwargs = {**kwargs, "device": CPU}
        args, kwargs = tree_map_only(OnDevice, lambda each: each.values, (args, kwargs))
        if name == "_to_copy":
            kwargs = {**kwargs, "non_blocking": False}
        result = function(*args, **kwargs)
        if goes_away:
            return result.clone() if name == "_to_copy" else result
        if function._schema.is_mutable and given:
            return given[0]
        return tree_map_only(torch.Tensor, OnDevice, result)

    def _note(self, name: str, is_view: bool, goes_away: bool, given: Any, args: Any) -> None:
        elsewhere = [each for each in given if not isinstance(each, OnDevice)]
        if name in COPIES:
            self.sent += [each.nbytes for each in elsewhere]
        else:
            assert not any(each.ndim for each in elsewhere), f"{name} mixes devices"
        # Of a mask as an index a device must first say how many it marks.
        is_masked = name == "index" and any(
            each is not None and each.dtype == torch.bool for each in args[1]
        )
        if goes_away or is_masked or name in WAITS:
            self.waits.append(name)
        if not (is_view or name.startswith("unsafe_split")):
            self.operations.append(name)
