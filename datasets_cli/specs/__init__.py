"""Specs: shapes, dtypes and spaces of tensors; converted from gymnasium spaces.

Has every public name of this room, also those at the top of ``datasets_cli``.
"""

from __future__ import annotations

from datasets_cli.lazy_names import lazy_names, room_names

_LAZY_IMPORTS = {
    "TensorSpec": "specs.spec",
    "UnboundedContinuous": "specs.bounded",
    "UnboundedDiscrete": "specs.bounded",
    "Binary": "specs.categorical",
}

_HOMES = {**room_names("specs."), **_LAZY_IMPORTS}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
