"""Making datasets exist, and what is installed."""

from datasets_cli.build.install import Plan, Wish, get, plan
from datasets_cli.build.installed import (
    installed_folder,
    installed_id,
    is_installed,
    remove,
    verify,
)

__all__ = [
    "Plan",
    "Wish",
    "get",
    "installed_folder",
    "installed_id",
    "is_installed",
    "plan",
    "remove",
    "verify",
]
