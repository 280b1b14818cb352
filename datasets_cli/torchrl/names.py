"""The names of TorchRL's modules, which stand at TorchRL's paths and hold names only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import datasets_cli
from datasets_cli import environments, replay, specs, torchrl
from datasets_cli.lazy_names import lazy_names

if TYPE_CHECKING:
    from datasets_cli import *
    from datasets_cli.environments import *
    from datasets_cli.replay import *
    from datasets_cli.specs import *
    from datasets_cli.torchrl import *

_FACES = (datasets_cli, environments, replay, specs, torchrl)
_HOMES = {name: home for face in _FACES for name, home in face._LAZY_IMPORTS.items()}


def torchrl_names(
    module: str, names: Sequence[str] = (), *, modules: Sequence[str] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and ``__dir__`` of a module."""
    return lazy_names(module, {name: _HOMES[name] for name in names}, modules)
