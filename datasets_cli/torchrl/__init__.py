"""TorchRL's dialect: its names, arguments and module paths.

The modules below it that TorchRL has, too, stand where they do there and hold names only: to change
``torchrl`` into ``datasets_cli.torchrl`` is all that an import line needs.
"""

from __future__ import annotations

from datasets_cli.torchrl.names import lazy_names

__all__ = ["collectors", "data", "envs", "trainers"]

__getattr__, __dir__ = lazy_names(__name__, modules=__all__)
