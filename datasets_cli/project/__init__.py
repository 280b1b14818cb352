"""A project: ``rlds.toml``, the plan of its steps, and its declared data.

Has every public name of this room, also those at the top of ``datasets_cli``.
"""

from __future__ import annotations

from datasets_cli.lazy_names import lazy_names, room_names

_LAZY_IMPORTS = {
    "PreprocessStep": "project.step",
    "Pipeline": "preprocessing.pipeline",
    "StepFile": "project.file",
}

_HOMES = {**room_names("project."), **_LAZY_IMPORTS}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
