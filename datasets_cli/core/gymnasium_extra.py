"""The optional dependency gymnasium; importing this module without it raises ``UsageError``."""

from __future__ import annotations

from datasets_cli.errors import UsageError, install_extra

try:
    import gymnasium
except ModuleNotFoundError as error:
    if error.name != "gymnasium":
        raise
    raise UsageError(
        "Environments, collectors and recordings need gymnasium, which is not installed.",
        expected="gymnasium",
        advice=install_extra("collect"),
    ) from error

__all__ = ["gymnasium"]
