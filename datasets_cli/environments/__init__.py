"""Gymnasium environments that accept and return TensorDicts: one, or several together.

Has every public name of this room, also those at the top of ``datasets_cli``.
"""

from __future__ import annotations

from datasets_cli.lazy_names import lazy_names, room_names

_LAZY_IMPORTS = {
    "SerialEnv": "environments.gym_env",
    "MultiAsyncCollector": "environments.collectors.collectors",
    "DistributedCollector": "environments.collectors.collectors",
    "DistributedSyncCollector": "environments.collectors.collectors",
    "RayCollector": "environments.collectors.collectors",
}

_HOMES = {**room_names("environments."), **_LAZY_IMPORTS}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
