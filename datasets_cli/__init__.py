"""The dataset manager for offline reinforcement learning."""

from datasets_cli.version import __version__

__all__ = ["__version__"]
