"""Making datasets exist, and what is installed."""

from datasets_cli.build.install import get, plan
from datasets_cli.build.installed import (
    installed_folder,
    installed_id,
    is_installed,
    locked,
    remove,
    verify,
)
from datasets_cli.build.wish import Plan, Wish

__all__ = [
    "Plan",
    "Wish",
    "get",
    "installed_folder",
    "installed_id",
    "is_installed",
    "locked",
    "plan",
    "remove",
    "verify",
]
